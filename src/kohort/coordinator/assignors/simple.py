"""The `simple` assignor of share groups: partitions are shared by as many members as it takes to give each member one.

With M members and P partitions, each partition has S = ceil(M / P) members, and each member about S * P / M partitions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

from kohort.coordinator.assignors.spec import GroupSpec, PartitionsByTopic

_Place = tuple[bytes, int]


def assign_simple(spec: GroupSpec) -> dict[str, PartitionsByTopic]:
    """Returns a balanced division in which members keep what they had as far as balance allows.

    If members subscribe to different topics, each topic is divided among its own subscribers.
    """
    given: dict[str, dict[bytes, set[int]]] = {member_id: {} for member_id in spec.members}
    in_order = sorted(spec.members)
    topics = spec.subscribed_topics()
    if not topics:
        return {member_id: {} for member_id in spec.members}
    if spec.homogeneous:
        _Sharing(spec, in_order, topics).divide(given)
    else:
        for topic_id in topics:
            subscribers = [each for each in in_order if topic_id in spec.members[each].topic_ids]
            _Sharing(spec, subscribers, [topic_id]).divide(given)
    return {
        member_id: {topic_id: frozenset(indexes) for topic_id, indexes in topics.items()}
        for member_id, topics in given.items()
    }


class _Sharing:
    """One division: which members hold each partition, and which partitions each member holds."""

    def __init__(self, spec: GroupSpec, members: list[str], topics: Collection[bytes]) -> None:
        self.members = members
        self.holders: dict[_Place, dict[str, None]] = {
            (topic_id, index): {} for topic_id in topics for index in spec.partitions_to_assign(topic_id)
        }
        total = len(self.holders)
        self.sharing = -(-len(members) // total) if total else 0
        wanted = self.sharing * total
        # The first i members together want the ceiling of their part.
        sums = [-(-wanted * i // len(members)) for i in range(len(members) + 1)]
        self.desired = {each: sums[i + 1] - sums[i] for i, each in enumerate(members)}
        self.held: dict[str, set[_Place]] = {}
        for member_id in members:
            old = spec.members[member_id].assigned
            mine = {(topic_id, index) for topic_id in topics for index in old.get(topic_id, ())}
            self.held[member_id] = mine = {place for place in mine if place in self.holders}
            for place in mine:
                self.holders[place][member_id] = None

    def divide(self, given: dict[str, dict[bytes, set[int]]]) -> None:
        """Adds what each member holds in the end to `given`."""
        self._drop_over_desired()
        self._drop_overshared()
        self._fill()
        for member_id in self.members:
            for topic_id, index in self.held[member_id]:
                given[member_id].setdefault(topic_id, set()).add(index)

    def _take_away(self, place: _Place, member_id: str) -> None:
        del self.holders[place][member_id]
        self.held[member_id].remove(place)

    def _drop_over_desired(self) -> None:
        """Takes from members that hold too many, first what most others hold too."""
        for member_id in self.members:
            mine = self.held[member_id]
            over = len(mine) - self.desired[member_id]
            if over > 0:
                by_sharing = sorted(mine, key=lambda place: (-len(self.holders[place]), place))
                for place in by_sharing[:over]:
                    self._take_away(place, member_id)

    def _drop_overshared(self) -> None:
        for place, holders in self.holders.items():
            for member_id in list(holders)[self.sharing :]:
                self._take_away(place, member_id)

    def _fill(self) -> None:
        """Gives each partition to members with room, in turn, until enough hold it.

        A partition may stay short of holders if all members with room hold it already. It never stays without any:
        the room that is left is at least what partitions are short of.
        """
        open_members = deque(each for each in self.members if len(self.held[each]) < self.desired[each])
        for place, holders in self.holders.items():
            tries = len(open_members)
            while tries and len(holders) < self.sharing:
                tries -= 1
                member_id = open_members.popleft()
                if member_id in holders:
                    open_members.append(member_id)
                    continue
                holders[member_id] = None
                self.held[member_id].add(place)
                if len(self.held[member_id]) < self.desired[member_id]:
                    open_members.append(member_id)
