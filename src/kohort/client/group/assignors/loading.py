"""Loads the assignors that the setting `partition.assignment.strategy` names."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence

from kohort.client.group.assignors.assignor import Assignor, RebalanceProtocol
from kohort.client.group.assignors.cooperative import CooperativeStickyAssignor
from kohort.client.group.assignors.range import RangeAssignor
from kohort.client.group.assignors.roundrobin import RoundRobinAssignor
from kohort.client.group.assignors.sticky import StickyAssignor
from kohort.settings import SettingError

SETTING = "partition.assignment.strategy"
ENTRY_POINTS = "kohort.assignors"
JAVA_PACKAGE = "org.apache.kafka.clients.consumer."
OURS: dict[str, type[Assignor]] = {
    kind.name: kind for kind in (RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor)
}
BY_JAVA_CLASS = {JAVA_PACKAGE + kind.__name__: kind for kind in OURS.values()}


def load_assignors(spec: Iterable[str | type[Assignor] | Assignor]) -> list[Assignor]:
    """Returns one assignor for each instance, class or name.

    A name is one of ours ("range"), that of a Java class ("org.apache.kafka.clients.consumer.RangeAssignor"), that of
    a class of yours ("package.module:Class"), or that of an entry point in the group "kohort.assignors". A plain
    string is a list with commas, as in Kafka's configuration files.
    """
    if isinstance(spec, str):
        spec = [name.strip() for name in spec.split(",") if name.strip()]
    found: dict[str, Assignor] = {}
    for one in spec:
        assignor = _checked(one if not isinstance(one, str) else _by_name(one))
        if assignor.name in found:
            raise SettingError(f"{SETTING}: {assignor.name!r} is given twice; leave one out")
        found[assignor.name] = assignor
    if not found:
        raise SettingError(f"{SETTING} is empty; name at least one of {', '.join(OURS)}")
    return list(found.values())


def common_protocol(assignors: Sequence[Assignor]) -> RebalanceProtocol:
    """The highest rebalance protocol that all assignors support: the group may agree on any of these assignors."""
    common = set(RebalanceProtocol).intersection(*(assignor.protocols for assignor in assignors))
    if not common:
        each = "; ".join(
            f"{a.name}: {', '.join(protocol.name for protocol in a.protocols) or 'none'}" for a in assignors
        )
        raise SettingError(
            f"{SETTING}: these assignors have no rebalance protocol in common ({each}); leave one out"
        )
    return max(common, key=lambda protocol: protocol.value)


def _by_name(name: str) -> object:
    known = OURS.get(name) or BY_JAVA_CLASS.get(name)
    if known is not None:
        return known
    module, colon, attribute = name.partition(":")
    if colon:
        try:
            return getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise SettingError(f"{SETTING}: {name!r} cannot be loaded: {error}") from error
    return _by_entry_point(name)


def _by_entry_point(name: str) -> object:
    from importlib.metadata import entry_points  # slow to import, and seldom needed

    points = entry_points(group=ENTRY_POINTS)
    for point in points:
        if point.name == name:
            try:
                return point.load()
            except (ImportError, AttributeError) as error:
                raise SettingError(f"{SETTING}: entry point {name!r} cannot be loaded: {error}") from error
    installed = sorted({point.name for point in points} - OURS.keys())
    raise SettingError(
        f"{SETTING}: unknown assignor {name!r}; known are {', '.join([*OURS, *installed])}, their Java class names, "
        'and classes of yours as "package.module:Class"'
    )


def _checked(one: object) -> Assignor:
    if isinstance(one, type) and issubclass(one, Assignor):
        one = one()
    if not isinstance(one, Assignor):
        raise SettingError(
            f"{SETTING}: {one!r} is not an assignor; subclass kohort.client.group.assignors.Assignor"
        )
    if not isinstance(one.name, str) or not one.name:
        raise SettingError(f"{SETTING}: {type(one).__name__} has no name; give the class a `name`")
    return one
