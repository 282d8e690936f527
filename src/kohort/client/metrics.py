"""The metrics of the clients: the names that `metrics()` returns, and the tables of all there are."""

from __future__ import annotations

from typing import Any

from kohort.client.config import AdminConfig, ConsumerConfig, ProducerConfig, ShareConsumerConfig
from kohort.client.consume.fetch_metrics import FETCHES, PARTITION_FETCHES, TOPIC_FETCHES
from kohort.client.consume.poll_metrics import POLLS
from kohort.client.core.metrics import COUNT, MetricName, Metrics, MetricTable
from kohort.client.group.group_metrics import GROUP
from kohort.client.io.measured import MeasuredClient
from kohort.client.io.network_metrics import NETWORK
from kohort.client.offsets.commit_metrics import COMMITS
from kohort.client.produce.sender_metrics import PRODUCER_CALLS, SENDER, TOPIC_SENDS
from kohort.client.share.share_metrics import SHARE_FETCHES, SHARE_GROUP, SHARE_POLLS

__all__ = ["MeasuredClient", "MetricName", "MetricTable", "Metrics", "TABLES"]

TABLES: dict[str, tuple[MetricTable[Any], ...]] = {
    ConsumerConfig.METRIC_PREFIX: (
        GROUP,
        COMMITS,
        FETCHES,
        TOPIC_FETCHES,
        PARTITION_FETCHES,
        POLLS,
        NETWORK,
        COUNT,
    ),
    ShareConsumerConfig.METRIC_PREFIX: (SHARE_GROUP, SHARE_FETCHES, SHARE_POLLS, NETWORK, COUNT),
    ProducerConfig.METRIC_PREFIX: (SENDER, PRODUCER_CALLS, TOPIC_SENDS, NETWORK, COUNT),
    AdminConfig.METRIC_PREFIX: (NETWORK, COUNT),
}
"""What each kind of client counts, by the word that the groups of its metrics begin with."""
