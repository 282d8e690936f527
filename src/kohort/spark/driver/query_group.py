"""What a streaming query is to its consumer group: one protocol, and the choice of its implementation.

member   SoleMember: a static member that has all partitions; the group and its lag show in every Kafka tool
assign   CommitOnlyGroup: no member; commits offsets under the group's name
shared   SharedMember: a member among others; the group says which partitions this query reads
none     NoGroup: no group is named, and nothing is committed

The driver alone speaks for the group; executors only read. The checkpoint decides what is read, and the group mirrors
it: what is committed is durable in the checkpoint already.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from kohort.client.embedding import ClusterSession
from kohort.client.types import TopicPartition
from kohort.spark.driver.commit_only import CommitOnlyGroup, NoGroup
from kohort.spark.driver.member import SharedMember, SoleMember
from kohort.spark.offsets import Offsets
from kohort.spark.options import GroupMode, SourceOptions


class QueryGroup(Protocol):
    """A query's side of its group, as the driver of a stream calls it."""

    @property
    def session(self) -> ClusterSession:
        """The connections of the driver."""

    def enter(self, topics: Collection[str]) -> None:
        """Joins, where that is the mode; again when the topics have changed. GroupTaken if it is not possible."""

    def check(self) -> None:
        """Raises what went wrong with the membership since."""

    def committed(self, partitions: Collection[TopicPartition]) -> Offsets:
        """What the group has committed, for those partitions where it has."""

    def commit_start(self, offsets: Offsets) -> None:
        """Returns when the group holds these offsets, where it had none before; raises if that cannot be."""

    def commit(self, durable: Offsets, *, wait: bool) -> None:
        """Mirrors what is durable in the checkpoint. Without `wait` the commit goes on by itself."""

    def claim(self, start: Offsets, ends: Offsets) -> Offsets:
        """How far this query may read: the ends of its own partitions."""

    def begin_of(self, new: Collection[TopicPartition], end: Offsets) -> Offsets:
        """Where partitions begin that are in `end` and were not there before."""

    def plan(self, end: Offsets) -> Offsets:
        """Notes that a batch goes up to `end`; returns what is left of that by now."""

    def readable(self, start: Offsets, end: Offsets) -> tuple[Offsets, Offsets]:
        """Start and end of what the tasks of a batch read."""

    def close(self) -> None:
        """Makes the last commit and leaves in order, in bounded time."""


_BY_MODE: dict[GroupMode, Callable[[SourceOptions], QueryGroup]] = {
    GroupMode.NONE: NoGroup,
    GroupMode.ASSIGN: CommitOnlyGroup,
    GroupMode.MEMBER: SoleMember,
    GroupMode.SHARED: SharedMember,
}


def group_for(options: SourceOptions) -> QueryGroup:
    """The implementation that the options ask for; nothing is sent yet."""
    return _BY_MODE[options.group_mode](options)
