"""What tests of share groups send: a member with its share session, over our own blocking connection."""

from __future__ import annotations

from typing import Any

from kohort.client.io.blocking_connection import BlockingConnection
from kohort.wire.messages import initialize_share_group_state as initialize
from kohort.wire.messages import share_acknowledge as acknowledge
from kohort.wire.messages import share_fetch as fetch
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from kohort.wire.messages.metadata import MetadataRequest
from tests.broker.peer import values_in

SHARE = 2


def topic_id_of(client: BlockingConnection, name: str) -> bytes:
    topics = client.call(MetadataRequest(None), version=12).topics
    found: bytes = next(topic.topic_id for topic in topics if topic.name == name)
    return found


def initialize_state(
    client: BlockingConnection,
    group_id: str,
    topic_id: bytes,
    start_offset: int = 0,
    state_epoch: int = 0,
    partition: int = 0,
) -> int:
    """Does what the group coordinator does when a share group first sees a partition."""
    key = f"{group_id}:AAAAAAAAAAAAAAAAAAAAAA:{partition}"
    client.call(FindCoordinatorRequest(key_type=SHARE, coordinator_keys=[key]), version=6)
    topic = initialize.InitializeStateData(
        topic_id, [initialize.PartitionData(partition, state_epoch, start_offset)]
    )
    answer = client.call(initialize.InitializeShareGroupStateRequest(group_id, [topic]), version=0)
    return int(answer.results[0].partitions[0].error_code)


class ShareMember:
    """A member that fetches some partitions of one topic."""

    def __init__(self, client: BlockingConnection, group_id: str, member_id: str, topic_id: bytes) -> None:
        self.client, self.group_id, self.member_id, self.topic_id = client, group_id, member_id, topic_id
        self.epoch = 0

    def _next_epoch(self, epoch: int | None) -> int:
        if epoch is not None:
            return epoch
        self.epoch += 1
        return self.epoch - 1

    def fetch_request(self, *acks: tuple[Any, ...], epoch: int | None = None, **more: Any) -> Any:
        """`acks` are (first, last, type, …) of partition 0, or of `partitions` if there is only one."""
        epoch = self._next_epoch(epoch)
        partitions = more.pop("partitions", (0,))
        batches = [fetch.AcknowledgementBatch(first, last, list(types)) for first, last, *types in acks]
        parts = [
            fetch.FetchPartition(index, batches if not number else [])
            for number, index in enumerate(partitions)
        ]
        options = {
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": 1 << 26,
            "max_records": 500,
            "batch_size": 500,
        }
        return fetch.ShareFetchRequest(
            self.group_id,
            self.member_id,
            epoch,
            topics=[fetch.FetchTopic(self.topic_id, parts)],
            **(options | more),
        )

    def fetch(self, *acks: tuple[Any, ...], version: int = 2, **more: Any) -> Any:
        """Fetches; returns the whole answer."""
        return self.client.call(self.fetch_request(*acks, **more), version=version)

    def acquire(self, *acks: tuple[Any, ...], **more: Any) -> list[tuple[int, int, int]]:
        """Fetches partition 0; returns (first, last, delivery count) of what was acquired."""
        return acquired_in(self.fetch(*acks, **more))

    def acknowledge_request(self, *acks: tuple[Any, ...], epoch: int | None = None, **more: Any) -> Any:
        epoch = self._next_epoch(epoch)
        batches = [acknowledge.AcknowledgementBatch(first, last, list(types)) for first, last, *types in acks]
        part = acknowledge.AcknowledgePartition(more.pop("partition", 0), batches)
        topic = acknowledge.AcknowledgeTopic(more.pop("topic_id", self.topic_id), [part])
        return acknowledge.ShareAcknowledgeRequest(
            self.group_id, self.member_id, epoch, topics=[topic], **more
        )

    def acknowledge(self, *acks: tuple[Any, ...], version: int = 2, **more: Any) -> int:
        """Acknowledges records of partition 0; returns its error code, or that of the whole answer."""
        answer = self.client.call(self.acknowledge_request(*acks, **more), version=version)
        return int(answer.error_code or answer.responses[0].partitions[0].error_code)


def data_of(answer: Any) -> Any:
    """Returns the only partition of an answer."""
    (topic,) = answer.responses
    (data,) = topic.partitions
    return data


def acquired_in(answer: Any) -> list[tuple[int, int, int]]:
    assert answer.error_code == 0, answer.error_code
    if not answer.responses:
        return []
    data = data_of(answer)
    assert data.error_code == 0, data.error_code
    return [(a.first_offset, a.last_offset, a.delivery_count) for a in data.acquired_records]


__all__ = ["ShareMember", "acquired_in", "data_of", "initialize_state", "topic_id_of", "values_in"]
