"""The sticky division where all members subscribe to the same topics: everyone gets an equal share, give or take one.

1. Each member keeps what it owns, up to its share; with racks, only what is near.
2. With racks: the rest goes to members below their share that are near.
3. What is left goes in turn to the members below their share.
"""

from __future__ import annotations

from collections.abc import Mapping

from kohort.client.group.assignors.claims import Settled
from kohort.client.group.assignors.hash_order import in_hash_order
from kohort.client.group.assignors.racks import Racks
from kohort.client.types import TopicPartition


class ConstrainedDivision:
    """`given` is the result; `moving` tells which partitions pass from one member to which other one."""

    def __init__(self, counts: Mapping[str, int], settled: Settled, racks: Racks) -> None:
        self._counts = counts
        self._racks = racks
        self._settled = settled
        members = len(settled.owned)
        # How many larger shares are still to be given.
        self._share, self._larger_shares = divmod(sum(counts.values()), members)
        self._largest = self._share + (self._larger_shares > 0)
        self._below: list[str] = []  # members that have less than a share
        self._at_share: list[str] = []  # members that may still get one more
        self._turn = 0  # whose turn it is among those below, while racks are matched
        self._given_up: dict[TopicPartition, str] = {}
        self.given: dict[str, list[TopicPartition]] = {member_id: [] for member_id in settled.owned}
        self.moving: dict[TopicPartition, str] = {}

    def divide(self) -> None:
        for member_id in in_hash_order(self.given):
            self._keep(member_id)
        kept = {partition for partitions in self.given.values() for partition in partitions}
        everything = (TopicPartition(t, p) for t in sorted(self._counts) for p in range(self._counts[t]))
        rest = [partition for partition in everything if partition not in kept]
        self._below.sort()
        self._at_share.sort()
        if self._racks:
            rest.sort(key=self._racks.members_near)  # those that the fewest members are near to come first
            rest = [partition for partition in rest if not self._give_near(partition)]
        self._deal(rest)

    def _keep(self, member_id: str) -> None:
        owned = []
        for partition in self._settled.owned[member_id]:
            if self._racks.apart(member_id, partition):
                self._given_up[partition] = member_id
            elif partition not in self._settled.disputed:
                owned.append(partition)
        owned.sort(key=lambda partition: (partition.partition, partition.topic))
        if len(owned) < self._share:
            size = len(owned)
            self._below.append(member_id)
        elif len(owned) >= self._largest and self._larger_shares:
            size = self._largest
            self._use_larger_share()
        else:
            size = self._share
            if self._larger_shares:
                self._at_share.append(member_id)
        self.given[member_id] += owned[:size]
        self._given_up.update(dict.fromkeys(owned[size:], member_id))

    def _use_larger_share(self) -> None:
        self._larger_shares -= 1
        if not self._larger_shares:
            self._at_share.clear()

    def _give_near(self, partition: TopicPartition) -> bool:
        """Gives a partition to a member in the rack of one of its replicas, if such a member may get more."""
        place = self._racks.next_near(partition, self._below, self._turn)
        if place is not None:
            member_id = self._below[place]
            if len(self.given[member_id]) + 1 >= self._share:
                del self._below[place]
                if self._larger_shares:
                    self._at_share.append(member_id)
            else:
                place += 1
            self._turn = place % len(self._below) if self._below else 0
        else:
            place = self._racks.next_near(partition, self._at_share, 0)
            if place is None:
                return False
            member_id = self._at_share.pop(place)
            self._use_larger_share()
        self._give(partition, member_id)
        return True

    def _deal(self, rest: list[TopicPartition]) -> None:
        turn = 0
        ready = iter(self._at_share)
        for partition in rest:
            if not self._below:
                member_id = next(ready, None)
                assert member_id is not None, f"every member has its share, but {partition} is left"
                self._give(partition, member_id)
                continue
            turn %= len(self._below)  # the list shrinks, so the turn may be past its end
            member_id = self._below[turn]
            self._give(partition, member_id)
            if len(self.given[member_id]) == self._share:
                del self._below[turn]
                self._at_share.append(member_id)
            else:
                turn += 1

    def _give(self, partition: TopicPartition, member_id: str) -> None:
        self.given[member_id].append(partition)
        if self._given_up.get(partition, member_id) != member_id or partition in self._settled.disputed:
            self.moving[partition] = member_id
