"""One client at work, in a process of its own: `python -m benchmarks.client_load consume kohort ADDRESS TOPIC COUNT`.

Prints one line of JSON: records per second and CPU of this process per record, both after a warm-up, and seconds from
`subscribe` to the first record. Every client is used in its best form.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

CHUNK = 10_000  # records from one call, where a client lets one choose
LINGER_MS = 20
BATCH = 1_000_000  # librdkafka's default; given to all who have the setting
WARM = 50_000  # records before the clock starts


def values(size: int, count: int) -> list[bytes]:
    """Lines that compress as logs do, a thousand different ones; the same in every process."""
    words = [f"{(n * 2654435761) % 2**32:08x}" for n in range(4096)]
    made = []
    for n in range(min(count, 1000)):
        line = f'{{"order": {n}, "customer": "{words[n]}", "note": "'
        while len(line) < size:
            line += words[(n * 31 + len(line)) % 4096] + " order placed; "
        made.append(line[: size - 2].encode() + b'"}')
    return made


class Meter:
    """Counts from a fifth of the records on: before that clients join, fill their queues, and load their kernels."""

    def __init__(self, count: int) -> None:
        self._warm = count // 5
        self.began = time.perf_counter()
        self.first_s = 0.0
        self.records = 0
        self._from: tuple[float, float, int] | None = None

    def add(self, records: int) -> None:
        self.records += records
        if not self.first_s and self.records:
            self.first_s = time.perf_counter() - self.began
        if self._from is None and self.records > self._warm:
            self._from = (time.perf_counter(), cpu_s(), self.records)

    def result(self) -> dict[str, float]:
        assert self._from is not None
        began, cpu, records = self._from
        counted = max(1, self.records - records)
        return {
            "per_s": counted / (time.perf_counter() - began),
            "cpu_us": (cpu_s() - cpu) / counted * 1e6,
            "first_s": self.first_s,
        }


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def group() -> str:
    return f"bench-{uuid.uuid4()}"


# --- consumers ---


def consume_kohort(address: str, topic: str, count: int) -> Meter:
    from kohort import Consumer

    settings = {"bootstrap.servers": address, "group.id": group(), "auto.offset.reset": "earliest"}
    with Consumer(settings, max_poll_records=CHUNK) as consumer:
        meter = Meter(count)
        consumer.subscribe([topic])
        while meter.records < count:
            seen = 0
            for records in consumer.poll(1.0).values():
                for record in records:
                    record.value  # noqa: B018 that every value is made is the point
                    seen += 1
            meter.add(seen)
        return meter


def consume_kohort_arrow(address: str, topic: str, count: int, *, binary_view: bool = False) -> Meter:
    from kohort import Consumer

    settings = {"bootstrap.servers": address, "group.id": group(), "auto.offset.reset": "earliest"}
    with Consumer(settings) as consumer:
        meter = Meter(count)
        consumer.subscribe([topic])
        while meter.records < count:
            batch = consumer.poll_arrow(
                1.0, columns=("key", "value", "offset", "timestamp"), binary_view=binary_view
            )
            meter.add(0 if batch is None else batch.num_rows)
        return meter


def consume_kohort_views(address: str, topic: str, count: int) -> Meter:
    return consume_kohort_arrow(address, topic, count, binary_view=True)


def consume_ceiling(address: str, topic: str, count: int) -> Meter:
    """What this machine allows: the same answers into one buffer that is used again, decompressed but never decoded."""
    from kohort.client.consume.fetch_buffer import BULK_FETCH_BYTES
    from kohort.client.io.blocking_connection import BlockingConnection
    from kohort.wire.compiler.compile import codec
    from kohort.wire.frame import read_response_header
    from kohort.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
    from kohort.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
    from kohort.wire.records.batch import HEADER_SIZE, iter_batches
    from kohort.wire.records.compression import decompress_into

    meter, layout = Meter(count), codec(FetchRequest.API_KEY, 18)
    buffer, unpacked = memoryview(bytearray(2 * BULK_FETCH_BYTES)), memoryview(bytearray(1 << 27))
    with BlockingConnection(address) as broker:
        asked = MetadataRequest([MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        topic_id = broker.call(asked).topics[0].topic_id

        def ask(offset: int) -> None:
            wanted = FetchPartition(0, fetch_offset=offset, partition_max_bytes=BULK_FETCH_BYTES)
            topics = [FetchTopic(topic_id=topic_id, partitions=[wanted])]
            request = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=50 << 20, topics=topics)
            broker.send(request, answered=False)

        ask(0)
        while meter.records < count:
            frame = broker.receive_into(buffer)
            _, body = read_response_header(layout, frame)
            answer: Any = layout.decode_response(frame, body)
            records = answer.responses[0].partitions[0].records
            batches = list(iter_batches(records))
            ask(batches[-1][1].last_offset + 1)  # as ours: the next answer is on its way meanwhile
            for pos, header in batches:
                if header.compression:
                    data = records[pos + HEADER_SIZE : pos + header.size]
                    decompress_into(header.compression, data, unpacked, intact=True)
            meter.add(sum(header.record_count for _, header in batches))
    return meter


def consume_confluent(address: str, topic: str, count: int) -> Meter:
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group(),
            "auto.offset.reset": "earliest",
            # Without these it stops fetching for a second whenever its queue is full.
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 1_000_000,
            "fetch.queue.backoff.ms": 1,
        }
    )
    meter = Meter(count)
    consumer.subscribe([topic])
    while meter.records < count:
        seen = 0
        for message in consumer.consume(CHUNK, 1.0):
            assert message.error() is None, message.error()
            message.value()
            seen += 1
        meter.add(seen)
    consumer.close()
    return meter


def consume_aiokafka(address: str, topic: str, count: int) -> Meter:
    from aiokafka import AIOKafkaConsumer

    async def run() -> Meter:
        consumer = AIOKafkaConsumer(bootstrap_servers=address, group_id=group(), auto_offset_reset="earliest")
        await consumer.start()
        meter = Meter(count)
        consumer.subscribe([topic])
        try:
            while meter.records < count:
                seen = 0
                for records in (await consumer.getmany(timeout_ms=1000, max_records=CHUNK)).values():
                    for record in records:
                        record.value  # noqa: B018
                        seen += 1
                meter.add(seen)
        finally:
            await consumer.stop()
        return meter

    return asyncio.run(run())


def consume_kafka_python(address: str, topic: str, count: int) -> Meter:
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        bootstrap_servers=address, group_id=group(), auto_offset_reset="earliest", max_poll_records=CHUNK
    )
    meter = Meter(count)
    consumer.subscribe([topic])
    while meter.records < count:
        seen = 0
        for records in consumer.poll(timeout_ms=1000).values():
            for record in records:
                record.value  # noqa: B018
                seen += 1
        meter.add(seen)
    consumer.close()
    return meter


# --- producers ---


def endless(size: int, count: int) -> Iterator[bytes]:
    lines = values(size, count)
    for n in range(count):
        yield lines[n % len(lines)]


def timed(count: int, produce: Callable[[int], None]) -> dict[str, float]:
    produce(WARM)
    began, cpu = time.perf_counter(), cpu_s()
    produce(count)
    took = time.perf_counter() - began
    return {"per_s": count / took, "cpu_us": (cpu_s() - cpu) / count * 1e6, "first_s": 0.0}


def produce_kohort(address: str, topic: str, count: int, size: int, codec: str) -> dict[str, float]:
    from kohort import Producer

    with Producer(
        bootstrap_servers=address, linger_ms=LINGER_MS, batch_size=BATCH, compression_type=codec,
        max_request_size=BATCH * 4,
    ) as producer:  # fmt: skip

        def run(some: int) -> None:
            for value in endless(size, some):
                producer.send(topic, value=value)
            producer.flush()

        return timed(count, run)


def produce_kohort_arrow(address: str, topic: str, count: int, size: int, codec: str) -> dict[str, float]:
    import pyarrow

    from kohort import Producer

    rows = 50_000
    batch = pyarrow.RecordBatch.from_pydict({"value": list(endless(size, rows))})
    with Producer(
        bootstrap_servers=address, linger_ms=LINGER_MS, batch_size=BATCH, compression_type=codec,
        max_request_size=BATCH * 4,
    ) as producer:  # fmt: skip

        def run(some: int) -> None:
            for _ in range(some // rows):
                producer.send_arrow(topic, batch)
            producer.flush()

        return timed(count, run)


def produce_confluent(address: str, topic: str, count: int, size: int, codec: str) -> dict[str, float]:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": address,
            "linger.ms": LINGER_MS,
            "compression.type": codec,
            "enable.idempotence": True,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1_000_000,
        }
    )

    def run(some: int) -> None:
        for value in endless(size, some):
            try:
                producer.produce(topic, value=value)
            except BufferError:
                producer.flush()
                producer.produce(topic, value=value)
        producer.flush()

    return timed(count, run)


def produce_aiokafka(address: str, topic: str, count: int, size: int, codec: str) -> dict[str, float]:
    from aiokafka import AIOKafkaProducer

    async def run() -> dict[str, float]:
        producer = AIOKafkaProducer(
            bootstrap_servers=address, linger_ms=LINGER_MS, max_batch_size=BATCH, enable_idempotence=True,
            compression_type=None if codec == "none" else codec, max_request_size=BATCH * 4,
        )  # fmt: skip
        await producer.start()
        try:
            for value in endless(size, WARM):
                await producer.send(topic, value)
            await producer.flush()
            began, cpu = time.perf_counter(), cpu_s()
            last: Any = None
            for value in endless(size, count):
                last = await producer.send(topic, value)
            await producer.flush()
            await last
            took = time.perf_counter() - began
            return {"per_s": count / took, "cpu_us": (cpu_s() - cpu) / count * 1e6, "first_s": 0.0}
        finally:
            await producer.stop()

    return asyncio.run(run())


def produce_kafka_python(address: str, topic: str, count: int, size: int, codec: str) -> dict[str, float]:
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=address, linger_ms=LINGER_MS, batch_size=BATCH, acks="all",
        compression_type=None if codec == "none" else codec, max_request_size=BATCH * 4,
    )  # fmt: skip

    def run(some: int) -> None:
        for value in endless(size, some):
            producer.send(topic, value)
        producer.flush()

    result = timed(count, run)
    producer.close()
    return result


CONSUMERS = {
    "kohort": consume_kohort,
    "kohort-arrow": consume_kohort_arrow,
    "kohort-views": consume_kohort_views,
    "ceiling": consume_ceiling,
    "confluent": consume_confluent,
    "aiokafka": consume_aiokafka,
    "kafka-python": consume_kafka_python,
}
PRODUCERS = {
    "kohort": produce_kohort,
    "kohort-arrow": produce_kohort_arrow,
    "confluent": produce_confluent,
    "aiokafka": produce_aiokafka,
    "kafka-python": produce_kafka_python,
}


def main(words: list[str]) -> None:
    mode, client, address, topic, count, *rest = words
    if mode.endswith("-defaults"):
        from benchmarks import client_defaults as defaults

        if mode == "consume-defaults":
            result = defaults.CONSUMERS[client](address, topic, int(count)).result()
        else:
            result = defaults.PRODUCERS[client](address, topic, int(count), int(rest[0]))
    elif mode == "consume":
        result = CONSUMERS[client](address, topic, int(count)).result()
    else:
        result = PRODUCERS[client](address, topic, int(count), int(rest[0]), rest[1])
    print(json.dumps(result), flush=True)
    os._exit(0)  # a client that lingers at the end has nothing to add


if __name__ == "__main__":
    main(sys.argv[1:])
