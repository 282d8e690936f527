"""The assignors of the coordinator: they divide partitions among the members of KIP-848 groups and share groups.

spec.py      what an assignor is told: members, their old targets, partitions
range.py     `range`      uniform.py   `uniform`, for equal subscriptions, and different ones (uniform_mixed.py)
simple.py    `simple`, the assignor of share groups

They are pure functions of a `GroupSpec`. The same spec gives the same division, whatever the order of its maps.
"""

from collections.abc import Callable

from kohort.coordinator.assignors.range import assign_range
from kohort.coordinator.assignors.simple import assign_simple
from kohort.coordinator.assignors.spec import AssignorMember, GroupSpec, PartitionsByTopic
from kohort.coordinator.assignors.uniform import assign_uniform

CONSUMER_ASSIGNORS: dict[str, Callable[[GroupSpec], dict[str, PartitionsByTopic]]] = {
    "uniform": assign_uniform,
    "range": assign_range,
}
"""The assignors that a member of a KIP-848 group may name; Kafka's default is the first."""

__all__ = [
    "CONSUMER_ASSIGNORS",
    "AssignorMember",
    "GroupSpec",
    "PartitionsByTopic",
    "assign_range",
    "assign_simple",
    "assign_uniform",
]
