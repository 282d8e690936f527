"""Producers that go on while the broker dies under them, and a ledger of what it promised them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, Producer

from kohort.client.io.blocking_connection import BlockingConnection
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.init_producer_id import InitProducerIdRequest
from kohort.wire.records.batch import iter_batches, iter_records
from tests.broker.peer import batch_of, create_topic, fetch, produce_request

MAX_IN_FLIGHT = 5  # what a broker remembers of an idempotent producer
BATCH_RECORDS = 4


@dataclass(slots=True)
class Ledger:
    """Which value was acknowledged at which offset of one partition, and what was read back."""

    topic: str
    partition: int
    acknowledged: dict[int, bytes] = field(default_factory=dict)
    next_offset: int = 0
    log: dict[int, bytes | None] = field(default_factory=dict)

    def read(self, broker: BlockingConnection) -> None:
        """Reads what is new in the log since the last time."""
        while True:
            data = fetch(broker, self.topic, self.next_offset, self.partition, partition_max_bytes=1 << 24)
            assert data.error_code == 0, ErrorCode(data.error_code).name
            view = memoryview(data.records or b"")
            for position, header in iter_batches(view):
                for record in iter_records(view[position : position + header.size]):
                    if record.offset >= self.next_offset:
                        self.log[record.offset] = record.value
                self.next_offset = header.last_offset + 1
            if self.next_offset >= data.high_watermark:
                return

    def check(self, promised: dict[int, bytes]) -> None:
        """Every promised record is in the log at its offset."""
        lost = {offset: value for offset, value in promised.items() if self.log.get(offset) != value}
        where = f"{self.topic}-{self.partition}"
        shown = {offset: (value, self.log.get(offset)) for offset, value in sorted(lost.items())[:5]}
        assert not lost, f"{where}: {len(lost)} acknowledged records are not at their offset: {shown}"

    def check_once(self) -> None:
        """At the end, when all is acknowledged: each record once, offsets without gaps."""
        values = list(self.log.values())
        assert len(values) == len(set(values)), f"{self.topic}-{self.partition} holds a record twice"
        assert list(self.log) == list(range(len(self.log))), f"{self.topic}-{self.partition} has a gap"
        assert set(values) == set(self.acknowledged.values())


class Worker:
    """A thread that works until it is told to finish; what went wrong in it is raised by `finish`."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.stopping = threading.Event()
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._guarded, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self, timeout_s: float = 240.0) -> None:
        self.stopping.set()
        self._thread.join(timeout_s)
        if self.failure is not None:
            raise self.failure
        assert not self._thread.is_alive(), f"{type(self).__name__} did not finish in {timeout_s:.0f} s"

    def _guarded(self) -> None:
        try:
            self.work()
        except BaseException as error:
            self.failure = error

    def work(self) -> None:
        raise NotImplementedError

    def connected(self, use: Callable[[BlockingConnection], None]) -> None:
        """Uses connections, one after the other as the broker comes and goes, until `use` returns."""
        while True:
            try:
                with BlockingConnection(self.bootstrap_servers, timeout_s=20.0) as broker:
                    return use(broker)
            except OSError:
                time.sleep(0.01)


class RawProducer(Worker):
    """An idempotent producer with explicit sequences: what was not answered is sent again as it was."""

    def __init__(self, bootstrap_servers: str, ledger: Ledger) -> None:
        super().__init__(bootstrap_servers)
        self.ledger = ledger
        self.repeated = 0  # batches that were sent more than once
        self._producer_id = -1
        self._sequence = 0
        self._unanswered: deque[tuple[bytes, list[bytes]]] = deque()

    def work(self) -> None:
        self.connected(self._produce)

    def _produce(self, broker: BlockingConnection) -> None:
        if self._producer_id < 0:
            self._producer_id = broker.call(InitProducerIdRequest(transactional_id=None)).producer_id
        self.repeated += len(self._unanswered)
        for batch, _ in self._unanswered:
            self._send(broker, batch)
        while self._unanswered or not self.stopping.is_set():
            while len(self._unanswered) < MAX_IN_FLIGHT and not self.stopping.is_set():
                self._send(broker, self._next_batch())
            self._take(broker.receive().responses[0].partition_responses[0])

    def _next_batch(self) -> bytes:
        values = [b"raw %d" % (self._sequence + i) for i in range(BATCH_RECORDS)]
        identity: dict[str, Any] = {
            "producer_id": self._producer_id,
            "producer_epoch": 0,
            "base_sequence": self._sequence,
        }
        batch = batch_of(*values, **identity)
        self._sequence += BATCH_RECORDS
        self._unanswered.append((batch, values))
        return batch

    def _send(self, broker: BlockingConnection, batch: bytes) -> None:
        broker.send(produce_request(self.ledger.topic, batch, self.ledger.partition), version=9)

    def _take(self, outcome: Any) -> None:
        assert outcome.error_code == 0, ErrorCode(outcome.error_code).name
        _, values = self._unanswered.popleft()
        for offset, value in enumerate(values, outcome.base_offset):
            assert offset not in self.ledger.acknowledged, f"offset {offset} was answered twice"
            self.ledger.acknowledged[offset] = value


class ConfluentProducer(Worker):
    """librdkafka with `enable.idempotence`, which sends again by itself."""

    def __init__(self, bootstrap_servers: str, ledgers: list[Ledger]) -> None:
        super().__init__(bootstrap_servers)
        self.ledgers = ledgers
        self.refused: list[KafkaError] = []

    def work(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 1,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "retry.backoff.ms": 10,
                "retry.backoff.max.ms": 100,
                "message.timeout.ms": 0,  # never: a slow machine needs long for so many starts
                "log_level": 0,
            }
        )
        number = 0
        while not self.stopping.is_set():
            for ledger in self.ledgers:
                value = b"confluent %d" % number
                producer.produce(
                    ledger.topic, value, b"k", partition=ledger.partition, on_delivery=self._delivered
                )
                number += 1
            producer.poll(0.002 if len(producer) < 200 else 0.05)
        assert producer.flush(180) == 0, "records were not delivered in three minutes of calm"

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            self.refused.append(error)
            return
        ledger = self.ledgers[message.partition()]
        offset = message.offset()
        assert offset not in ledger.acknowledged, f"offset {offset} was answered twice"
        ledger.acknowledged[offset] = message.value()


class TopicMaker(Worker):
    """Creates topics; what was answered must be there after any crash."""

    def __init__(self, bootstrap_servers: str) -> None:
        super().__init__(bootstrap_servers)
        self.made: list[str] = []

    def work(self) -> None:
        self.connected(self._make)

    def _make(self, broker: BlockingConnection) -> None:
        while not self.stopping.wait(0.05):
            name = f"made-{len(self.made)}"
            outcome = ErrorCode(create_topic(broker, name).error_code)
            # It exists already when the crash took the answer but not the topic.
            assert outcome in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS), outcome.name
            self.made.append(name)
