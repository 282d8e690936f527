"""The batches of one partition on their way to its leader. Sans-IO."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from kohort.client.core.cluster import NO_NODE
from kohort.client.produce.batch import Batch

if TYPE_CHECKING:
    from kohort.client.produce.accumulator import TopicQueues


class PartitionQueue:
    """The batches of one partition, and what the sender knows of it."""

    __slots__ = (
        "topic", "index", "topic_queues", "closed", "in_flight", "sent", "producer_id", "producer_epoch",
        "next_sequence", "last_acked_sequence", "last_acked_offset", "unresolved", "leader_id", "leader_epoch",
    )  # fmt: skip

    def __init__(self, topic: TopicQueues, index: int) -> None:
        self.topic = topic.name
        self.index = index
        self.topic_queues = topic
        self.closed: deque[Batch] = deque()
        self.in_flight: list[Batch] = []  # sent at least once and not done, in the order of first sending
        self.sent = 0  # batches so far
        self.producer_id = -1
        self.producer_epoch = -1
        self.next_sequence = 0
        self.last_acked_sequence = -1
        self.last_acked_offset = -1
        self.unresolved: int | None = None  # the sequence after a batch whose fate nobody knows
        self.leader_id = NO_NODE
        self.leader_epoch = -1

    @property
    def open(self) -> Batch:
        """The batch that takes records; `full` of the topic if there is none."""
        return self.topic_queues.open[self.index]

    def __repr__(self) -> str:
        return f"{self.topic}-{self.index}"
