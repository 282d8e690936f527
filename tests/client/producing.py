"""A producer's accumulator and sender in virtual time, with answers that the test makes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from kohort.client.config import ProducerConfig
from kohort.client.core.cluster import Cluster, Node, PartitionInfo, TopicInfo
from kohort.client.core.effects import Answer, Failure, FailureKind, Outbox, Send
from kohort.client.core.metadata import Metadata
from kohort.client.produce.accumulator import Accumulator, NoRoom, merge_limit
from kohort.client.produce.batch import RecordHandle
from kohort.client.produce.fast_send import fast_send
from kohort.client.produce.outgoing import Outgoing
from kohort.client.produce.partitioners import STICKY
from kohort.client.produce.sender import Sender
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.init_producer_id import InitProducerIdResponse
from kohort.wire.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kohort.wire.records.batch import BatchHeader, iter_records, read_header

TOPIC_ID = bytes(range(16))
Produced = tuple[BatchHeader, list[bytes | None]]


def cluster(
    partitions: int = 1,
    nodes: int = 1,
    *,
    topic: str = "orders",
    topic_id: bytes = TOPIC_ID,
    version: int = 1,
) -> Cluster:
    """Partition p is led by node p % nodes + 1."""
    infos = {p: PartitionInfo(p % nodes + 1, 5) for p in range(partitions)}
    return Cluster(
        "c",
        1,
        {n + 1: Node(n + 1, "127.0.0.1", 9092 + n) for n in range(nodes)},
        {topic: TopicInfo(topic, topic_id, infos)},
        {},
        version,
    )


class Core:
    """Accumulator and sender, with a clock `now_ms` of their own."""

    def __init__(
        self,
        partitions: int = 1,
        nodes: int = 1,
        jitter: Callable[[], float] = lambda: 0.5,
        **settings: object,
    ) -> None:
        given = {"bootstrap_servers": "127.0.0.1:9092", "linger_ms": 0, **settings}
        self.outgoing = Outgoing(None, given, jitter)
        self.config: ProducerConfig = self.outgoing.config
        self.now_ms = 1_000_000
        self.out: Outbox = []
        self.woken = 0
        self.metadata = Metadata(self.out, self.config, jitter)
        self.metadata.cluster = cluster(partitions, nodes)
        self.accumulator: Accumulator[RecordHandle] = Accumulator(
            RecordHandle, threading.Lock(), jitter, self._wake, batch_size=self.outgoing.batch_limit,
            merge_limit=merge_limit(self.config), buffer_memory=self.config.buffer_memory,
            linger_ms=self.config.linger_ms,
        )  # fmt: skip
        self.sender = Sender(self.out, self.config, self.metadata, self.accumulator, jitter)
        self.sender.want_topic("orders", self.now_ms)
        self.under_way: list[Send] = []

    def _wake(self) -> None:
        self.woken += 1

    def send(
        self, value: bytes | None, partition: int = STICKY, key: bytes | None = None, **rest: Any
    ) -> RecordHandle:
        handle = self.try_send(value, partition, key, **rest)
        assert isinstance(handle, RecordHandle), handle
        return handle

    def try_send(
        self, value: bytes | None, partition: int = STICKY, key: bytes | None = None, **rest: Any
    ) -> RecordHandle | NoRoom:
        self.sender._learn(self.now_ms)
        topic = self.accumulator.topics["orders"]
        timestamp, headers, callback = rest.get("timestamp", 77), rest.get("headers"), rest.get("callback")

        def ordinarily(*record: Any) -> RecordHandle | NoRoom:
            return self.accumulator.append(
                topic, partition, key, value, timestamp, headers, callback, self.now_ms
            )

        fast = fast_send(self.accumulator, self.outgoing, lambda: 0, lambda: self.now_ms, ordinarily)
        at = topic.sticky if partition == STICKY else partition
        return fast("orders", value, key, headers, at, timestamp, callback)  # type: ignore[no-any-return]

    def tick(self, after_ms: int = 0) -> list[Send]:
        """The new requests, without metadata's."""
        self.now_ms += after_ms
        self.sender.tick(self.now_ms)
        new = [send for send in self.out if not send.purpose.startswith("metadata")]
        self.out.clear()
        self.under_way += new
        return new

    def start(self, producer_id: int = 7, epoch: int = 0) -> None:
        """Gives the producer its id."""
        (ask,) = self.tick()
        assert ask.purpose == "sender.init_producer_id"
        self.answer(ask, InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch), 5)

    def answer(self, send: Send, response: Any, version: int = 12) -> None:
        self.under_way.remove(send)
        send.on_answer(Answer(send, version, response), self.now_ms)

    def lose(self, send: Send, kind: FailureKind = FailureKind.DISCONNECTED) -> None:
        self.under_way.remove(send)
        send.on_answer(Answer(send, failure=Failure(kind, "gone")), self.now_ms)

    def written(self, send: Send, offset: int = 0, **rest: Any) -> None:
        self.reply(send, ErrorCode.NONE, base_offset=offset, **rest)

    def reply(
        self,
        send: Send,
        code: ErrorCode,
        *,
        version: int = 12,
        leader: tuple[int, int] | None = None,
        nodes: Iterable[NodeEndpoint] = (),
        **rest: Any,
    ) -> None:
        """The same answer for every partition of a request."""
        topics = []
        for topic in request(send, version).topic_data:
            said = []
            for data in topic.partition_data:
                response = PartitionProduceResponse(data.index, int(code), **rest)
                if leader is not None:
                    response.current_leader = LeaderIdAndEpoch(*leader)
                said.append(response)
            by_name = version < 13
            topics.append(
                TopicProduceResponse(
                    topic.name if by_name else "", bytes(16) if by_name else topic.topic_id, said
                )
            )
        self.answer(send, ProduceResponse(topics, node_endpoints=list(nodes)), version)

    def take_completed(self) -> int:
        """Calls the callbacks and waiters of all batches that ended, and returns how many those are."""
        done, self.sender.completed[:] = list(self.sender.completed), ()
        for batch in done:
            batch.tell(_raise)
        return len(done)


def _raise(error: BaseException) -> None:
    raise error


def request(send: Send, version: int = 12) -> ProduceRequest:
    made = send.make(version)
    assert isinstance(made, ProduceRequest)
    return made


def parts(send: Send) -> list[PartitionProduceData]:
    return [data for topic in request(send).topic_data for data in topic.partition_data]


def produced(send: Send) -> Produced:
    """Header and values of the only batch of a request."""
    (data,) = parts(send)
    assert isinstance(data.records, (bytes, memoryview))
    return read_header(data.records), [record.value for record in iter_records(data.records)]


def values(send: Send) -> list[bytes | None]:
    return produced(send)[1]


def numbers(send: Send) -> tuple[int, int, int]:
    """Producer id, epoch, first sequence."""
    header = produced(send)[0]
    return header.producer_id, header.producer_epoch, header.base_sequence


def outcome(handle: RecordHandle) -> Any:
    return handle._outcome
