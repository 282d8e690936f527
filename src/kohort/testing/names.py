"""Looks up the APIs and errors that a test names, and the groups and topics that a request names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kohort.broker.apis.table import TABLE
from kohort.broker.call import Call
from kohort.settings import nearest
from kohort.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kohort.broker.broker import Broker

_API_KEYS = {row.name: row.key for row in TABLE.values()}
_PLAIN = {name.lower(): name for name in _API_KEYS}
_FETCH, _TOPIC = 1, 2
_TOPIC_FIELDS = ("topics", "topic_data", "topic_names", "topic_partitions")
_GROUP_FIELDS = ("groups", "groups_names", "coordinator_keys")


def api_key(name: str) -> int:
    """Returns the key of an API by its name (`OffsetCommit` or `offset_commit`); ValueError suggests a name."""
    known = _PLAIN.get(name.replace("_", "").lower())
    if known is None:
        raise ValueError(f"there is no API {name!r} on this broker{nearest(name, _API_KEYS)}")
    return _API_KEYS[known]


def error_code(error: str | int | ErrorCode) -> ErrorCode:
    """Returns an error by its name, number or ErrorCode; ValueError suggests a name."""
    if isinstance(error, str):
        if error not in ErrorCode.__members__:
            raise ValueError(f"there is no error {error!r}{nearest(error.upper(), ErrorCode.__members__)}")
        found = ErrorCode[error]
    else:
        try:
            found = ErrorCode(error)
        except ValueError:
            raise ValueError(f"there is no error with the code {error}; they are in ErrorCode") from None
    if found is ErrorCode.NONE:
        raise ValueError("NONE is not an error; to let requests pass, remove the fault")
    return found


def groups_in(call: Call) -> set[str]:
    """Returns the groups that a request is about."""
    found = set()
    group_id = getattr(call.request, "group_id", None)
    if group_id:
        found.add(group_id)
    if getattr(call.request, "key", None):  # FindCoordinator before v4
        found.add(call.request.key)
    for name in _GROUP_FIELDS:
        for entry in getattr(call.request, name, None) or ():
            found.add(entry if isinstance(entry, str) else entry.group_id)
    return found


def topics_in(broker: Broker, call: Call) -> set[str]:
    """Returns the topics that a request is about; for a fetch, also those that its session remembers."""
    found = set(_topic_names(broker, call.request))
    if call.codec.api_key == _FETCH and call.version >= 7 and call.request.session_epoch > 0:
        for key in broker.sessions.partitions_of(call.request.session_id):
            found |= set(_named(broker, key))
    return found


def _topic_names(broker: Broker, struct: Any) -> Iterator[str]:
    for field in _TOPIC_FIELDS:
        for entry in getattr(struct, field, None) or ():
            yield from _named(broker, entry)
    for entry in getattr(struct, "resources", None) or ():
        if getattr(entry, "resource_type", None) == _TOPIC:
            yield entry.resource_name
    for group in getattr(struct, "groups", None) or ():
        if not isinstance(group, str):
            yield from _topic_names(broker, group)


def _named(broker: Broker, entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
        return
    name = getattr(entry, "name", None) or getattr(entry, "topic", None)
    if name:
        yield name
    topic = broker.store.topics_by_id.get(getattr(entry, "topic_id", b""))
    if topic is not None:
        yield topic.name
