"""The sender against a broker that loses requests and answers, in virtual time: once and in order, for many seeds."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from kohort.client.core.effects import FailureKind, Send
from kohort.client.produce.batch import RecordHandle
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from kohort.wire.records.batch import iter_records, read_header
from tests.client.producing import Core, outcome, request

PARTITIONS = 3


@dataclass
class Log:
    """A partition as a broker keeps it, with the last five batches of the producer."""

    values: list[bytes | None] = field(default_factory=list)
    epoch: int = -1
    last_sequence: int = -1
    recent: list[tuple[int, int, int]] = field(default_factory=list)  # first and last sequence, offset

    def append(self, batch: bytes, most_records: int) -> tuple[ErrorCode, int]:
        header = read_header(batch)
        if header.record_count > most_records:
            return ErrorCode.MESSAGE_TOO_LARGE, -1
        first, last = header.base_sequence, header.base_sequence + header.record_count - 1
        if header.producer_epoch < self.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        if header.producer_epoch > self.epoch:
            if first != 0:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            self.epoch, self.last_sequence, self.recent = header.producer_epoch, -1, []
        for known_first, known_last, offset in self.recent:
            if (known_first, known_last) == (first, last):
                return ErrorCode.NONE, offset
        if first != self.last_sequence + 1:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        offset = len(self.values)
        self.values += [record.value for record in iter_records(batch)]
        self.last_sequence = last
        self.recent = [*self.recent, (first, last, offset)][-5:]
        return ErrorCode.NONE, offset

    def forget(self) -> None:
        """What a start without state files does: the producer is unknown."""
        self.epoch, self.last_sequence, self.recent = -1, -1, []


class Faults:
    """One node with three partitions, driven step by step by chance."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.core = Core(
            partitions=PARTITIONS,
            jitter=self.chance.random,
            batch_size=self.chance.choice([120, 300, 2000]),
            linger_ms=self.chance.choice([0, 3]),
            max_in_flight_requests_per_connection=self.chance.choice([1, 2, 5]),
        )
        self.logs = [Log() for _ in range(PARTITIONS)]
        self.most_records = self.chance.choice([2, 5, 1000])
        self.sent: list[list[tuple[bytes, RecordHandle]]] = [[] for _ in range(PARTITIONS)]
        self.arrived: list[Send] = []  # at the broker, not worked on
        self.answers: list[tuple[Send, ProduceResponse]] = []
        self.core.start()

    def produce(self) -> None:
        partition = self.chance.randrange(PARTITIONS)
        value = b"%d" % len(self.sent[partition])
        self.sent[partition].append((value, self.core.send(value, partition)))

    def tick(self) -> None:
        self.arrived += self.core.tick(after_ms=self.chance.choice([0, 1, 5, 150]))

    def work(self, refuse: bool) -> None:
        if not self.arrived:
            return
        send = self.arrived.pop(0)
        refusal = ErrorCode.NONE
        if refuse:
            refusal = self.chance.choice([ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR])
        topics = []
        for topic in request(send).topic_data:
            said = []
            for data in topic.partition_data:
                assert isinstance(data.records, bytes)
                code, offset = refusal, -1
                if not refuse:
                    code, offset = self.logs[data.index].append(data.records, self.most_records)
                said.append(PartitionProduceResponse(data.index, int(code), offset))
            topics.append(TopicProduceResponse(topic.name, partition_responses=said))
        self.answers.append((send, ProduceResponse(topics)))

    def answer(self) -> None:
        if self.answers:
            self.core.answer(*self.answers.pop(0))

    def disconnect(self) -> None:
        """Some requests were still carried out; none is answered any more."""
        for _ in range(self.chance.randrange(len(self.arrived) + 1)):
            self.work(refuse=False)
        self.arrived.clear()
        self.answers.clear()
        for send in list(self.core.under_way):
            self.core.lose(send, self.chance.choice([FailureKind.DISCONNECTED, FailureKind.TIMED_OUT]))

    def storm(self, steps: int) -> None:
        for _ in range(steps):
            step = self.chance.random()
            if step < 0.35:
                self.produce()
            elif step < 0.6:
                self.tick()
            elif step < 0.78:
                self.work(refuse=self.chance.random() < 0.1)
            elif step < 0.95:
                self.answer()
            else:
                self.disconnect()

    def calm(self) -> None:
        for _ in range(5000):
            if self.core.sender.is_idle:
                return
            self.tick()
            self.work(refuse=False)
            self.answer()
        raise AssertionError("the sender does not come to rest")


@pytest.mark.parametrize("first_seed", range(0, 200, 20))
def test_whatever_is_lost_every_record_is_written_once_and_in_order(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + 20):
        faults = Faults(seed)
        faults.storm(400)
        faults.calm()
        for log, sent in zip(faults.logs, faults.sent, strict=True):
            assert log.values == [value for value, _ in sent], f"seed {seed}"
            assert [outcome(placed).offset for _, placed in sent] == list(range(len(sent))), f"seed {seed}"
        assert faults.core.accumulator.used_bytes == 0, f"seed {seed}"


@pytest.mark.parametrize("seed", range(20))
def test_a_broker_that_forgets_the_producer_while_nothing_is_under_way_changes_nothing(seed: int) -> None:
    faults = Faults(seed)
    for _ in range(4):
        faults.storm(100)
        faults.calm()
        for log in faults.logs:
            log.forget()
    faults.calm()
    for log, sent in zip(faults.logs, faults.sent, strict=True):
        assert log.values == [value for value, _ in sent], f"seed {seed}"
