"""Transactions for a broker, in a process of its own: `python -m benchmarks.transaction_load MODE --address … --pid …`.

- `by_hand`: one producer, one partition, ten records a transaction: Produce v12 and EndTxn v5 (KIP-890), one request
  after the other on one connection.
- `confluent`: the same with confluent-kafka, which speaks the protocol before: AddPartitionsToTxn, Produce, EndTxn.
- `fill`: 8 partitions of transactions of 16 batches of 128 KB, one in ten of them aborted, for the fetches to read.

Prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

from confluent_kafka import Producer

from benchmarks import load
from kohort.client.io.blocking_connection import BlockingConnection
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.end_txn import EndTxnRequest
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from kohort.wire.messages.init_producer_id import InitProducerIdRequest
from kohort.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kohort.wire.records.batch import BatchRecord, encode_batch

RECORDS, VALUE = 10, bytes(range(100))
_NOT_YET = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
_PATIENCE_S = 60.0


class TransactionalLoad:
    """One transactional producer, request by request."""

    def __init__(self, address: str, transactional_id: str) -> None:
        self._connection = BlockingConnection(address)
        self._id = transactional_id
        self._sequences: dict[int, int] = {}
        self.refusals = 0
        """How often the transaction before was not complete yet, and a request had to be sent again."""
        self._until_taken(self._find)
        self._until_taken(self._init)

    def _until_taken(self, ask: object) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while (code := ErrorCode(ask())) in _NOT_YET:  # type: ignore[operator]
            self.refusals += 1
            if time.monotonic() > deadline:
                raise load.Refused(f"still {code.name} after {_PATIENCE_S:.0f} s")
            time.sleep(0.001)
        if code is not ErrorCode.NONE:
            raise load.Refused(code.name)

    def _find(self) -> int:
        request = FindCoordinatorRequest(key_type=1, coordinator_keys=[self._id])
        return int(self._connection.call(request, version=4).coordinators[0].error_code)

    def _init(self) -> int:
        answer = self._connection.call(InitProducerIdRequest(self._id, 60_000, -1, -1), version=5)
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
        return int(answer.error_code)

    def produce(self, topic: str, partition: int, values: list[bytes]) -> None:
        now_ms, sequence = int(time.time() * 1000), self._sequences.get(partition, 0)
        batch = encode_batch(
            [BatchRecord(i, now_ms, None, value, []) for i, value in enumerate(values)],
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            transactional=True,
        )
        data = TopicProduceData(topic, partition_data=[PartitionProduceData(partition, batch)])
        request = ProduceRequest(self._id, -1, 30_000, [data])

        def ask() -> int:
            answer = self._connection.call(request, version=12)
            return int(answer.responses[0].partition_responses[0].error_code)

        self._until_taken(ask)
        self._sequences[partition] = sequence + len(values)

    def end(self, *, commit: bool) -> None:
        def ask() -> int:
            request = EndTxnRequest(self._id, self._producer_id, self._epoch, commit)
            answer = self._connection.call(request, version=5)
            if not answer.error_code:
                self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
                self._sequences.clear()
            return int(answer.error_code)

        self._until_taken(ask)


def by_hand(plan: load.Plan) -> dict[str, float]:
    load.prepare(plan)
    producer = TransactionalLoad(plan.address, plan.topic)
    cpu_0, start, count = load.cpu_s(plan.pid), time.monotonic(), 0
    producer.refusals = 0
    while time.monotonic() < start + plan.seconds:
        producer.produce(plan.topic, 0, [VALUE] * RECORDS)
        producer.end(commit=True)
        count += 1
    return _figures(count, start, load.cpu_s(plan.pid) - cpu_0) | {"refusals": producer.refusals / count}


def confluent(plan: load.Plan) -> dict[str, float]:
    load.prepare(plan)
    producer = Producer({"bootstrap.servers": plan.address, "transactional.id": plan.topic, "linger.ms": 0})
    producer.init_transactions(_PATIENCE_S)
    cpu_0, start, count = load.cpu_s(plan.pid), time.monotonic(), 0
    while time.monotonic() < start + plan.seconds:
        producer.begin_transaction()
        for _ in range(RECORDS):
            producer.produce(plan.topic, VALUE, partition=0)
        producer.commit_transaction(_PATIENCE_S)
        count += 1
    return _figures(count, start, load.cpu_s(plan.pid) - cpu_0)


def _figures(count: int, start: float, cpu_s: float) -> dict[str, float]:
    return {"per_s": count / (time.monotonic() - start), "cpu_us": cpu_s / count * 1e6}


def fill(plan: load.Plan) -> dict[str, float]:
    load.prepare(plan)
    producer = TransactionalLoad(plan.address, f"{plan.topic}-fill")
    values, number, size = [bytes(1024)] * 128, 0, 0
    while size < plan.limit_mb * load.MB:
        for each in range(16):
            producer.produce(plan.topic, each % plan.partitions, values)
            size += 128 * 1024
        producer.end(commit=number % 10 != 9)
        number += 1
    return {"mb": size / load.MB}


def main() -> None:
    modes = {"by_hand": by_hand, "confluent": confluent, "fill": fill}
    parser = argparse.ArgumentParser(prog="python -m benchmarks.transaction_load", description=__doc__)
    parser.add_argument("mode", choices=modes)
    parser.add_argument("--address", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--pid", type=int, default=0, help="the broker, to count its CPU")
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--limit-mb", type=int, default=200)
    parser.add_argument("--partitions", type=int, default=8)
    options = vars(parser.parse_args())
    mode = options.pop("mode")
    try:
        found = modes[mode](load.Plan(**options))
    except (load.Refused, OSError) as error:
        sys.exit(f"load: {error}")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
