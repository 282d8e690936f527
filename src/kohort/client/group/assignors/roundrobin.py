"""The `roundrobin` assignor: deals all partitions of all topics to the members in turn."""

from __future__ import annotations

from collections.abc import Mapping

from kohort.client.group.assignors.assignor import (
    Assignor,
    TopicPartitions,
    assignments,
    in_static_order,
    partition_counts,
)
from kohort.client.group.consumer_protocol import Assignment, Subscription
from kohort.client.types import TopicPartition


class RoundRobinAssignor(Assignor):
    """`roundrobin`: even over all topics together, at the price of moving much when membership changes."""

    name = "roundrobin"

    def assign(self, cluster: TopicPartitions, members: Mapping[str, Subscription]) -> dict[str, Assignment]:
        order = in_static_order(members)
        topics_of = [frozenset(members[member_id].topics) for member_id in order]
        given: dict[str, list[TopicPartition]] = {member_id: [] for member_id in order}
        turn = 0
        for topic, count in partition_counts(cluster, members.values()).items():
            for partition in range(count):
                while topic not in topics_of[turn]:
                    turn = (turn + 1) % len(order)
                given[order[turn]].append(TopicPartition(topic, partition))
                turn = (turn + 1) % len(order)
        return assignments(given)
