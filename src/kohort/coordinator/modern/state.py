"""ModernState: what the records of a group of the new protocols say, and the changes that they make to it.

A change is what one record says, without its bytes. A handler makes changes; each is applied to the live group at once
and encoded as a record. When the records are durable the same changes are applied to the state in `Durable`; a load
decodes the records to changes and applies these. So one place knows what a record does: the `apply_to` of its change.

The types of records differ between consumer groups and share groups, their meaning does not:

| change               | consumer | share | says                                                          |
|----------------------|----------|-------|---------------------------------------------------------------|
| `GroupEpochChange`   | 3        | 11    | the epoch of the group, and the hash of its topics            |
| `SubscriptionChange` | 5        | 10    | a member and what it subscribes to                            |
| `TargetEpochChange`  | 6        | 12    | the epoch of the target assignment, and when it was computed  |
| `TargetChange`       | 7        | 13    | what a member is to own                                       |
| `AssignmentChange`   | 8        | 14    | what a member owns now, and at which epoch it is              |

None in place of the value is a tombstone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, Protocol, TypeVar

from kohort.coordinator.assignors.spec import PartitionsByTopic
from kohort.coordinator.frozen import frozen

FIRST_EPOCH = 1
"""The epochs of a group that is new: a member that subscribes to nothing gets it, for 0 would mean that it joins."""
NO_EPOCH = -1
"""The epoch of a target that has ended."""
M = TypeVar("M")


class ModernState(Generic[M]):
    """A group as its records say it. A subclass says what a member is, by `with_subscription` and `with_assignment`."""

    def __init__(self) -> None:
        self.exists = False
        self.group_epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = FIRST_EPOCH
        self.assignment_timestamp_ms = 0
        self.members: dict[str, M] = {}
        """Values that never change: a changed member is another value."""
        self.targets: dict[str, PartitionsByTopic] = {}

    def apply_all(self, changes: Iterable[Change]) -> None:
        for change in changes:
            change.apply_to(self)

    def take_over(self, other: ModernState[M]) -> None:
        """Becomes a copy of another state."""
        self.exists = other.exists
        self.group_epoch, self.metadata_hash = other.group_epoch, other.metadata_hash
        self.assignment_epoch = other.assignment_epoch
        self.assignment_timestamp_ms = other.assignment_timestamp_ms
        self.targets = dict(other.targets)
        for member_id in list(self.members):
            self.put_member(member_id, None)
        for member_id, member in other.members.items():
            self.put_member(member_id, member)

    def facts(self) -> tuple[Any, ...]:
        """Returns all that the records say, to be compared."""
        epochs = (self.group_epoch, self.metadata_hash, self.assignment_epoch, self.assignment_timestamp_ms)
        return (self.exists, *epochs, self.members, self.targets)

    def put_member(self, member_id: str, member: M | None) -> None:
        """Adds, replaces or (None) removes a member; a live group keeps its counts here too."""
        if member is None:
            self.members.pop(member_id, None)
        else:
            self.members[member_id] = member

    # ---- what a subclass says

    def with_subscription(self, member_id: str, member: M | None, value: Any) -> M | None:
        """Returns a member with another subscription; None if the member has ended, because `value` is None."""
        raise NotImplementedError

    def with_assignment(self, member_id: str, member: M | None, value: Any) -> M | None:
        """Returns a member with another assignment; `value` is None if that has ended."""
        raise NotImplementedError


class Change(Protocol):
    """What a record of a group says."""

    def apply_to(self, state: Any) -> None: ...


@frozen
class GroupEpochChange:
    """None ends the group: its members and targets have been ended before."""

    epoch: int | None
    metadata_hash: int = 0

    def apply_to(self, state: ModernState[Any]) -> None:
        state.exists = self.epoch is not None
        state.group_epoch = FIRST_EPOCH if self.epoch is None else self.epoch
        state.metadata_hash = self.metadata_hash


@frozen
class TargetEpochChange:
    epoch: int | None
    timestamp_ms: int = 0
    """When the target was computed; 0 if that is not known."""

    def apply_to(self, state: ModernState[Any]) -> None:
        if self.epoch is None:
            state.assignment_epoch, state.assignment_timestamp_ms = NO_EPOCH, 0
        else:
            state.exists = True
            state.assignment_epoch, state.assignment_timestamp_ms = self.epoch, self.timestamp_ms


@frozen
class TargetChange:
    member_id: str
    partitions: PartitionsByTopic | None

    def apply_to(self, state: ModernState[Any]) -> None:
        if self.partitions is None:
            state.targets.pop(self.member_id, None)
        else:
            state.exists = True
            state.targets[self.member_id] = self.partitions


@frozen
class SubscriptionChange:
    member_id: str
    value: Any
    """The value of the record, of a class in `kohort.wire.messages`."""

    def apply_to(self, state: ModernState[Any]) -> None:
        state.exists = state.exists or self.value is not None
        member = state.members.get(self.member_id)
        state.put_member(self.member_id, state.with_subscription(self.member_id, member, self.value))


@frozen
class AssignmentChange:
    member_id: str
    value: Any
    """The value of the record, of a class in `kohort.wire.messages`."""

    def apply_to(self, state: ModernState[Any]) -> None:
        state.exists = state.exists or self.value is not None
        member = state.members.get(self.member_id)
        state.put_member(self.member_id, state.with_assignment(self.member_id, member, self.value))
