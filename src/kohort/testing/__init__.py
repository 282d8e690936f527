"""The testing kit: a broker in the test's process that fails, rebalances and lets time pass on demand.

With pytest, use the fixture `kafka`; without pytest, `with kohort.testing.Kafka() as kafka:`. See docs/testing.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kohort.testing.faults import Fault, SeenRequest
    from kohort.testing.groups import GroupView, MemberView
    from kohort.testing.kafka import Kafka
    from kohort.testing.pipelines import TrialResult, try_pipeline
    from kohort.testing.records import StoredRecord

__all__ = [
    "Fault",
    "GroupView",
    "Kafka",
    "MemberView",
    "SeenRequest",
    "StoredRecord",
    "TrialResult",
    "try_pipeline",
]

_WHERE = {
    "Fault": "faults",
    "GroupView": "groups",
    "Kafka": "kafka",
    "MemberView": "groups",
    "SeenRequest": "faults",
    "StoredRecord": "records",
    "TrialResult": "pipelines",
    "try_pipeline": "pipelines",
}


def __getattr__(name: str) -> Any:
    """Loads a name on first use: every start of pytest imports the plugin in this package, which must cost nothing."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"kohort.testing.{_WHERE[name]}"), name)
