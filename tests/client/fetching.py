"""A fetcher with its subscription and metadata in virtual time; the test is the broker.

Requests and answers go through the real codec, so that a test sees what a broker would see in that version.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kohort.client.config import CONSUMER, read_config
from kohort.client.consume.fetcher import Fetcher
from kohort.client.core.effects import Answer, Failure, FailureKind, Send
from kohort.client.core.metadata import Metadata
from kohort.client.offsets.subscription import PartitionState, Position, SubscriptionState
from kohort.client.types import TopicPartition
from kohort.wire.compiler.compile import codec
from kohort.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from kohort.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kohort.wire.records.batch import encode_batch
from kohort.wire.records.payload import BatchRecord

ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
SESSION = 77


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b".")


def batch(first: int, count: int = 1, *, size: int = 10, epoch: int = 4, **more: Any) -> bytes:
    """A batch of `count` records from offset `first` on, whose values are their offsets."""
    records = [
        BatchRecord(offset, 1000 + offset, None, str(offset).encode().rjust(size), [])
        for offset in range(first, first + count)
    ]
    return bytes(encode_batch(records, base_offset=first, partition_leader_epoch=epoch, **more))


def data(records: bytes = b"", *, error: int = 0, high_watermark: int = 1000, **more: Any) -> PartitionData:
    if "aborted" in more:
        more["aborted_transactions"] = [AbortedTransaction(*entry) for entry in more.pop("aborted")]
    if "leader" in more:
        more["current_leader"] = LeaderIdAndEpoch(*more.pop("leader"))
    return PartitionData(0, error, high_watermark, records=records, **more)


class World:
    """Partitions of `leaders`, all assigned, at offset 0 unless told otherwise; nodes 1, 2 and 3."""

    def __init__(
        self, leaders: Mapping[TopicPartition, int] | None = None, version: int = 18, **settings: object
    ) -> None:
        self.now_ms = 1_000_000
        self.version = version
        self.leaders = dict(leaders or {ORDERS_0: 1})
        self.epochs = dict.fromkeys(self.leaders, 4)
        self.offline: dict[TopicPartition, list[int]] = {}
        self.topic_ids = {partition.topic: topic_id(partition.topic) for partition in self.leaders}
        self.nodes = [1, 2, 3]
        self.config, _ = read_config(CONSUMER, {"bootstrap.servers": "a:1"}, settings)
        self.out: list[Send] = []
        self.subscription = SubscriptionState(self.config.reset())
        self.metadata = Metadata(self.out, self.config, lambda: 0.5)
        self.fetcher = Fetcher(self.out, self.config, self.subscription, self.metadata, lambda: 0.5)
        self.under_way: dict[int, Send] = {}
        # By node, what its fetch reads: what the broker knows from the whole session.
        self.reads: dict[int, dict[TopicPartition, int]] = {}
        self.metadata.want(frozenset(self.topic_ids), now_ms=self.now_ms)
        self.update_metadata()
        self.subscription.assign(self.leaders)
        for partition in self.leaders:
            self.seek(partition, 0)

    # --- the user -----------------------------------------------------------------------------------------

    def state(self, partition: TopicPartition = ORDERS_0) -> PartitionState:
        return self.subscription.state(partition)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.state(partition).seek(Position(offset))

    def offset(self, partition: TopicPartition = ORDERS_0) -> int:
        position = self.state(partition).position
        assert position is not None
        return position.offset

    def take(self, max_records: int = 500) -> dict[TopicPartition, list[int]]:
        """The offsets of what is handed out; the values must be theirs."""
        taken = self.fetcher.take(max_records, self.now_ms)
        for records in taken.values():
            assert [int(record.value or b"") for record in records] == [record.offset for record in records]
        return {partition: [record.offset for record in records] for partition, records in taken.items()}

    def has_data(self) -> bool:
        return self.fetcher.has_data

    def has_error(self) -> bool:
        return self.fetcher.has_error

    # --- the brokers ----------------------------------------------------------------------------------------

    def update_metadata(self, after_ms: int = 200) -> None:
        """An answer to the metadata request, which must be due."""
        self.now_ms += after_ms
        self.metadata.tick(self.now_ms)
        send = next(send for send in self.out if send.purpose == "metadata.update")
        self.out.remove(send)
        topics = [
            MetadataResponseTopic(
                0,
                name,
                identity,
                False,
                [
                    MetadataResponsePartition(
                        0, p.partition, leader, self.epochs[p], offline_replicas=self.offline.get(p)
                    )
                    for p, leader in self.leaders.items()
                    if p.topic == name
                ],
            )
            for name, identity in self.topic_ids.items()
        ]
        brokers = [MetadataResponseBroker(node, f"node{node}", 9092) for node in self.nodes]
        response = MetadataResponse(0, brokers, "cluster", 1, topics)
        send.on_answer(Answer(send, 12, response), self.now_ms)

    def tick(self, after_ms: int = 0) -> dict[int, FetchRequest]:
        """The fetches that go out now, by node, as the broker decodes them."""
        self.now_ms += after_ms
        self.fetcher.tick(self.now_ms)
        sent: dict[int, FetchRequest] = {}
        for send in self.out:
            assert send.node_id not in sent, "one fetch at a time to each node"
            if send.purpose == "fetcher.fetch":
                assert send.node_id not in self.under_way, "one fetch at a time to each node"
                self.under_way[send.node_id] = send
            sent[send.node_id] = request = self.request(send)
            if request.session_epoch <= 0:
                self.reads[send.node_id] = {}
            reads = self.reads[send.node_id]
            for partition in forgotten(request):
                del reads[partition]
            reads |= offsets_asked(request)
        self.out.clear()
        self.fetcher.tick(self.now_ms)
        assert not self.out, "a second tick at once does nothing more"
        return sent

    def request(self, send: Send) -> FetchRequest:
        version = min(self.version, send.max_version or self.version)
        coder = codec(1, version)
        decoded = coder.decode_request(memoryview(b"".join(coder.encode_request(send.make(version)))))
        assert isinstance(decoded, FetchRequest)
        return decoded

    def answer(
        self,
        found: Mapping[TopicPartition, PartitionData],
        *,
        node: int = 1,
        session_id: int = SESSION,
        nodes: Iterable[NodeEndpoint] = (),
        error: int = 0,
        throttle_ms: int = 0,
    ) -> None:
        send = self.under_way.pop(node)
        version = min(self.version, send.max_version or self.version)
        topics = []
        for partition, part in found.items():
            part.partition_index = partition.partition
            topics.append(
                FetchableTopicResponse(
                    partition.topic, self.topic_ids.get(partition.topic, topic_id("other")), [part]
                )
            )
        response = FetchResponse(throttle_ms, error, session_id, topics, list(nodes))
        coder = codec(1, version)
        response = coder.decode_response(memoryview(b"".join(coder.encode_response(response))))  # type: ignore[assignment]
        send.on_answer(Answer(send, version, response), self.now_ms)

    def fail(self, kind: FailureKind = FailureKind.DISCONNECTED, *, node: int = 1) -> None:
        send = self.under_way.pop(node)
        send.on_answer(Answer(send, failure=Failure(kind, "the cable was cut")), self.now_ms)


def offsets_asked(request: FetchRequest) -> dict[TopicPartition, int]:
    """What a request says: the offset of each partition it names."""
    return {
        TopicPartition(topic.topic or topic.topic_id.rstrip(b".").decode(), part.partition): part.fetch_offset
        for topic in request.topics
        for part in topic.partitions
    }


def forgotten(request: FetchRequest) -> set[TopicPartition]:
    return {
        TopicPartition(topic.topic or topic.topic_id.rstrip(b".").decode(), index)
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    }
