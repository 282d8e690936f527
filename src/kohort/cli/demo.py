"""`kohort demo`: a broker, a producer of orders and a client that fetches them, for a few seconds."""

from __future__ import annotations

import json
import random
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field

from kohort.broker import running
from kohort.client.connection import Connection
from kohort.wire.compression import Compression
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kohort.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kohort.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kohort.wire.payload import Record
from kohort.wire.records import encode_batch, iter_batches, iter_records

TOPIC = "orders"
PARTITIONS = 3
BATCHES = 600
BATCH_RECORDS = 50
SECONDS = 4.0
_BAR = 24


@dataclass(slots=True)
class Progress:
    """What the two clients have done so far; read by the one who prints."""

    produced: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    fetched: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    latest: str = ""
    fetched_bytes: int = 0
    failure: BaseException | None = None


def demo() -> int:
    with tempfile.TemporaryDirectory(prefix="kohort-demo-") as directory:
        began = time.perf_counter()
        with running(directory) as broker:
            took_ms = (time.perf_counter() - began) * 1000
            print(
                f"broker on {broker.bootstrap_servers}, ready in {took_ms:.0f} ms, every record synced to disk"
            )
            with Connection(broker.bootstrap_servers) as admin:
                topic = CreatableTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=1)
                created = admin.call(CreateTopicsRequest([topic], 10_000)).topics[0]
                print(f"topic {TOPIC} with {PARTITIONS} partitions: {ErrorCode(created.error_code).name}")
            return _flow(broker.bootstrap_servers)


def _flow(address: str) -> int:
    progress = Progress()
    threads = [
        threading.Thread(target=_guarded, args=(work, address, progress), daemon=True)
        for work in (_produce, _fetch)
    ]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads) and progress.failure is None:
        threads[-1].join(0.25)
        _show(progress, time.perf_counter() - began)
    if progress.failure is not None:
        print(f"kohort: the demo failed: {progress.failure!r}", file=sys.stderr)
        return 1
    seconds = time.perf_counter() - began
    total = BATCHES * BATCH_RECORDS
    print("\npartition   produced    fetched")
    for index in range(PARTITIONS):
        print(f"{index:>9} {progress.produced[index]:>10,} {progress.fetched[index]:>10,}")
    print(f"{total:,} orders in {seconds:.1f} s, {progress.fetched_bytes / 1024:,.0f} KiB on the wire (lz4).")
    complete = sum(progress.fetched) == sum(progress.produced) == total
    print("every record arrived once, in order" if complete else "RECORDS ARE MISSING")
    return 0 if complete else 1


def _guarded(work: object, address: str, progress: Progress) -> None:
    assert callable(work)
    try:
        work(address, progress)
    except Exception as error:
        progress.failure = error


def _produce(address: str, progress: Progress) -> None:
    """Orders in lz4 batches with acks=all, a little faster and slower as shops do."""
    customers = random.Random(7)
    began = time.perf_counter()
    with Connection(address, client_id="demo-producer") as broker:
        for number in range(BATCHES):
            now_ms = time.time_ns() // 1_000_000
            records = [_order(customers, number * BATCH_RECORDS + i, now_ms) for i in range(BATCH_RECORDS)]
            batch = encode_batch(records, compression=Compression.LZ4)
            index = number % PARTITIONS
            data = TopicProduceData(TOPIC, partition_data=[PartitionProduceData(index, bytes(batch))])
            answer = broker.call(ProduceRequest(None, -1, 10_000, [data]), version=9)
            outcome = answer.responses[0].partition_responses[0]
            assert outcome.error_code == 0, ErrorCode(outcome.error_code).name
            progress.produced[index] += BATCH_RECORDS
            ahead = SECONDS * (number + 1) / BATCHES - (time.perf_counter() - began)
            if ahead > 0:
                time.sleep(ahead)


def _order(customers: random.Random, number: int, now_ms: int) -> Record:
    order = {
        "order": number,
        "customer": customers.randrange(500),
        "amount": customers.randrange(100, 9900) / 100,
    }
    return Record(number % BATCH_RECORDS, now_ms, b"%d" % order["customer"], json.dumps(order).encode(), [])


def _fetch(address: str, progress: Progress) -> None:
    """Reads all partitions by long poll until every order has come."""
    at = [0] * PARTITIONS
    deadline = time.monotonic() + SECONDS + 30
    with Connection(address, client_id="demo-fetcher") as broker:
        while sum(progress.fetched) < BATCHES * BATCH_RECORDS and time.monotonic() < deadline:
            wanted = [
                FetchPartition(i, fetch_offset=at[i], partition_max_bytes=1 << 20) for i in range(PARTITIONS)
            ]
            request = FetchRequest(
                max_wait_ms=500, min_bytes=1, max_bytes=8 << 20, topics=[FetchTopic(TOPIC)]
            )
            request.topics[0].partitions = wanted
            for part in broker.call(request, version=11).responses[0].partitions:
                assert part.error_code == 0, ErrorCode(part.error_code).name
                _take(part.partition_index, memoryview(part.records or b""), at, progress)


def _take(index: int, data: memoryview, at: list[int], progress: Progress) -> None:
    progress.fetched_bytes += len(data)
    for position, header in iter_batches(data):
        for record in iter_records(data[position : position + header.size]):
            assert record.offset == at[index], (
                f"partition {index}: offset {record.offset} instead of {at[index]}"
            )
            at[index] += 1
            progress.fetched[index] += 1
            progress.latest = (record.value or b"").decode()


def _show(progress: Progress, seconds: float) -> None:
    share = sum(progress.fetched) / (BATCHES * BATCH_RECORDS)
    bar = "█" * round(share * _BAR) + "·" * (_BAR - round(share * _BAR))
    behind = sum(progress.produced) - sum(progress.fetched)
    line = (
        f"{seconds:4.1f} s {bar} {sum(progress.fetched):>7,} fetched, {behind:>4} behind  {progress.latest}"
    )
    end = "\r" if sys.stdout.isatty() else "\n"
    print(line.ljust(118)[:118] if end == "\r" else line, end=end, flush=True)
