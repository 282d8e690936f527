"""The invariants of the consumers of a group together: owners, records, commits and hand-overs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kohort.client.group.consumer_protocol import decode_assignment
from kohort.client.types import TopicPartition
from kohort.coordinator.classic.group import Group
from kohort.coordinator.classic.state import GroupState
from kohort.sim.invariants import Broken

if TYPE_CHECKING:
    from kohort.sim.consumer import SimConsumer


@dataclass(slots=True)
class Owned:
    """A partition that a consumer owns."""

    commits_before: int
    """How many commits of this partition the log had when it was assigned."""
    next_offset: int | None = None
    """The offset after the last record returned; None if none was returned yet."""


class Witness:
    """Sees all records that a group processes and all commits that the coordinator writes."""

    def __init__(self, group_id: str, group: Callable[[], Group | None]) -> None:
        self.group_id = group_id
        self.group = group
        """Returns the group as the coordinator has it; None if the coordinator is down or does not know the group."""
        self.consumers: list[SimConsumer] = []
        self.commits: dict[TopicPartition, list[int]] = {}
        """Partition -> its commits in the order of the log; a first 0 stands for none."""
        self.ends: dict[TopicPartition, int] = {}
        """Partition -> the offset up to which every record was processed by some consumer."""
        self.handovers: dict[TopicPartition, tuple[str, int]] = {}
        self.records = self.repeated = self.clean_handovers = 0
        self.callbacks: Counter[str] = Counter()
        self.calm_since_ms: int | None = None

    # ---- records

    def processed(self, consumer: SimConsumer, partition: TopicPartition, offsets: list[int]) -> None:
        end = self.ends.get(partition, 0)
        consumer.require(
            offsets[0] <= end,
            f"{partition}: {end} to {offsets[0] - 1} were skipped, nobody has processed them",
        )
        self.records += len(offsets)
        self.repeated += sum(offset < end for offset in offsets)
        self.ends[partition] = max(end, offsets[-1] + 1)

    def new_owner(self, partition: TopicPartition) -> Owned:
        return Owned(len(self._commits(partition)))

    def begins(self, consumer: SimConsumer, partition: TopicPartition, owned: Owned, offset: int) -> None:
        """Checks the first record of a new owner: it is at a committed offset, after a clean hand-over at the last."""
        possible = self._commits(partition)[owned.commits_before - 1 :]
        consumer.require(
            offset in possible, f"began {partition} at {offset}, the group has committed {possible}"
        )
        handover = self.handovers.pop(partition, None)
        if handover is not None:
            self.clean_handovers += 1
            giver, expected = handover
            consumer.require(
                offset == expected,
                f"began {partition} at {offset}, but {giver} gave it away with {expected} committed",
            )

    def handed_over(self, consumer: SimConsumer, positions: dict[TopicPartition, int]) -> None:
        """Notes that a commit inside of `revoked` succeeded."""
        for partition, offset in positions.items():
            self.check_in_log(consumer, partition, offset)
            if self._commits(partition)[-1] == offset:
                self.handovers[partition] = (consumer.profile.name, offset)

    def check_sole_owner(self, consumer: SimConsumer, partition: TopicPartition) -> None:
        """Checks that no other consumer owns the partition in this generation.

        A static member that another process replaces is left out: it keeps its generation until it hears of that.
        """
        for other in self.consumers:
            if (
                other.profile is not consumer.profile
                and other.alive
                and other.generation_id == consumer.generation_id
                and other.membership.generation_id == consumer.membership.generation_id
                and partition in other.owned
                and partition not in other.revoking_now
            ):
                raise Broken(
                    f"{partition}: records for {consumer}, though {other} owns it in generation "
                    f"{other.generation_id}"
                )

    # ---- commits

    def _commits(self, partition: TopicPartition) -> list[int]:
        return self.commits.setdefault(partition, [0])

    def commit_written(self, partition: TopicPartition, offset: int) -> None:
        end = self.ends.get(partition, 0)
        if offset > end:
            raise Broken(f"{self.group_id} committed {offset} for {partition}, processed is {end}")
        self._commits(partition).append(offset)
        handover = self.handovers.get(partition)
        if handover is not None and handover[1] != offset:
            del self.handovers[partition]

    def check_in_log(self, consumer: SimConsumer, partition: TopicPartition, offset: int) -> None:
        consumer.require(
            offset in self._commits(partition),
            f"a commit of {offset} for {partition} succeeded, but the coordinator never wrote it",
        )

    def committed(self, partition: TopicPartition) -> int:
        return self._commits(partition)[-1]

    # ---- callbacks

    def check_given(self, consumer: SimConsumer) -> None:
        """Checks that a member owns what its coordinator assigned to it."""
        group, member_id = self.group(), consumer.membership.member_id
        if group is None or group.state is not GroupState.STABLE or member_id not in group.members:
            return
        if group.generation_id == consumer.membership.generation_id:
            given = set(decode_assignment(group.members[member_id].assignment).partitions)
            owned = set(consumer.core.subscription.partitions)
            consumer.require(owned == given, f"owns {sorted(owned)}, it was given {sorted(given)}")

    def is_settled(self, now_ms: int) -> bool:
        """Whether it has been calm for so long that nothing can go wrong any more."""
        return self.calm_since_ms is not None and now_ms >= self.calm_since_ms

    def check_lost(self, consumer: SimConsumer, partitions: list[TopicPartition]) -> None:
        """Checks that without faults only a consumer that polls too late or closes in a rebalance loses partitions."""
        if not self.is_settled(consumer.clock.now_ms) or consumer.user.stopping:
            return
        limit_ms = consumer.core.config.max_poll_interval_ms
        consumer.require(
            consumer.longest_pause_ms >= limit_ms,
            f"lost {partitions} though nothing fails and it polled in time",
        )
