"""Gathers the metrics of a node for Prometheus when they are asked for; requests count nothing on their way.

Metrics of topics and groups have the names that exporters for Kafka use, so that dashboards find them.
"""

from __future__ import annotations

from collections import Counter

import kohort
from kohort.broker.net.server import Server
from kohort.coordinator.classic.describe import shown_state
from kohort.coordinator.classic.state import GroupState
from kohort.coordinator.shard import Shard
from kohort.exposition import Family


def families(server: Server) -> list[Family]:
    """Returns all metrics of this moment. Call it on the event loop."""
    return [*_node(server), *_topics(server), *_groups(server)]


def _node(server: Server) -> list[Family]:
    up = Family("kohort_up", "gauge", "1, with what runs.")
    up.add(1, version=kohort.__version__, node=str(server.broker.node_id))
    brokers = Family("kafka_brokers", "gauge", "Nodes of the cluster.", [({}, 1)])
    count = server.connection_count
    connections = Family("kohort_connections", "gauge", "Connections of clients.", [({}, count)])
    return [up, brokers, connections]


def _topics(server: Server) -> list[Family]:
    count = Family("kafka_topic_partitions", "gauge", "Partitions of a topic.")
    end = Family("kafka_topic_partition_current_offset", "gauge", "The offset after the last record.")
    start = Family("kafka_topic_partition_oldest_offset", "gauge", "The offset of the first record.")
    size = Family("kohort_topic_partition_bytes", "gauge", "Bytes in the partition's segments.")
    for name, topic in server.broker.store.topics.items():
        count.add(len(topic.partitions), topic=name)
        for index, partition in enumerate(topic.partitions):
            if not partition.log_end_offset:
                continue  # never written to, as most partitions of a node with 10,000
            of = {"topic": name, "partition": str(index)}
            end.add(partition.log_end_offset, **of)
            start.add(partition.log_start_offset, **of)
            size.add(partition.size, **of)
    return [count, end, start, size]


def _groups(server: Server) -> list[Family]:
    if not server.broker.has_groups:
        return []
    states = Counter[str]({state.value: 0 for state in GroupState})
    by_state = Family("kohort_groups", "gauge", "Groups in each state.")
    members = Family("kafka_consumergroup_members", "gauge", "Members of a group.")
    offset = Family("kafka_consumergroup_current_offset", "gauge", "The offset that a group has committed.")
    lag = Family("kafka_consumergroup_lag", "gauge", "Records behind what the group has committed.")
    lag_sum = Family("kafka_consumergroup_lag_sum", "gauge", "Of all partitions of a topic.")
    rebalances = Family("kohort_group_rebalances_total", "counter", "Rebalances since the group was made.")
    for shard in server.broker.groups.runtime.shards:
        for group_id, group in shard.groups.items():
            states[shown_state(group).value] += 1
            members.add(len(group.members), consumergroup=group_id)
            history = shard.histories.get(group_id)
            if history is not None:
                rebalances.add(history.total, consumergroup=group_id)
        _offsets(server, shard, offset, lag, lag_sum)
    for state, number in states.items():
        by_state.add(number, state=state)
    return [by_state, members, offset, lag, lag_sum, rebalances]


def _offsets(server: Server, shard: Shard, offset: Family, lag: Family, lag_sum: Family) -> None:
    topics = server.broker.store.topics
    for group_id, committed in shard.durable.offsets.items():
        behind: Counter[str] = Counter()
        for (topic, index), positioned in sorted(committed.items()):
            of = {"consumergroup": group_id, "topic": topic, "partition": str(index)}
            at = positioned.committed.offset
            offset.add(at, **of)
            found = topics.get(topic)
            if found is None or index >= len(found.partitions):
                continue
            records = max(found.partitions[index].log_end_offset - max(at, 0), 0)
            lag.add(records, **of)
            behind[topic] += records
        for topic, records in behind.items():
            lag_sum.add(records, consumergroup=group_id, topic=topic)
