"""A Kafka for tests: a broker in this process that fails, rebalances and lets time pass on demand.

With pytest the fixture `kafka` is one; without, `with kohort.testing.Kafka() as kafka:`. See docs/testing.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kohort.testing.faults import Fault, Request
    from kohort.testing.groups import Group, Member
    from kohort.testing.kafka import Kafka
    from kohort.testing.records import Record

__all__ = ["Fault", "Group", "Kafka", "Member", "Record", "Request"]

_WHERE = {
    "Fault": "faults",
    "Group": "groups",
    "Kafka": "kafka",
    "Member": "groups",
    "Record": "records",
    "Request": "faults",
}


def __getattr__(name: str) -> Any:
    """On first use: pytest loads the plugin in this package at every start, and that must cost nothing."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"kohort.testing.{_WHERE[name]}"), name)
