"""Clients as people use them first: nothing is set but the broker's address, and records go one at a time.

A consumer has a group and starts at the beginning besides. Called by `benchmarks.client_load`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

from benchmarks.client_load import WARM, Meter, cpu_s, endless, group, timed

CHUNK = 1000  # records between two looks at the meter
WAIT_S = 0.1  # for room, where a client leaves that to its user


def counted(meter: Meter, count: int, values: Iterator[Any]) -> Meter:
    """Reads one value after the other; the meter is told of the first, and then of some at a time."""
    some = 1
    while meter.records < count:
        meter.add(sum(1 for _ in islice(values, some)))
        some = CHUNK
    return meter


# --- consumers ---


def consume_kohort(address: str, topic: str, count: int) -> Meter:
    from kohort import Consumer

    settings = {"bootstrap.servers": address, "group.id": group(), "auto.offset.reset": "earliest"}
    with Consumer(settings) as consumer:
        meter = Meter(count)
        consumer.subscribe([topic])
        return counted(meter, count, (record.value for record in consumer))


def consume_confluent(address: str, topic: str, count: int) -> Meter:
    from confluent_kafka import Consumer

    consumer = Consumer({"bootstrap.servers": address, "group.id": group(), "auto.offset.reset": "earliest"})

    def values() -> Iterator[Any]:
        while True:
            message = consumer.poll(1.0)
            if message is not None:
                assert message.error() is None, message.error()
                yield message.value()

    meter = Meter(count)
    consumer.subscribe([topic])
    counted(meter, count, values())
    consumer.close()
    return meter


def consume_aiokafka(address: str, topic: str, count: int) -> Meter:
    from aiokafka import AIOKafkaConsumer

    async def run() -> Meter:
        consumer = AIOKafkaConsumer(bootstrap_servers=address, group_id=group(), auto_offset_reset="earliest")
        await consumer.start()
        meter, seen = Meter(count), 0
        consumer.subscribe([topic])
        try:
            async for record in consumer:
                record.value  # noqa: B018
                seen += 1
                if seen == CHUNK or not meter.records:
                    meter.add(seen)
                    seen = 0
                    if meter.records >= count:
                        break
        finally:
            await consumer.stop()
        return meter

    return asyncio.run(run())


def consume_kafka_python(address: str, topic: str, count: int) -> Meter:
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(bootstrap_servers=address, group_id=group(), auto_offset_reset="earliest")
    meter = Meter(count)
    consumer.subscribe([topic])
    counted(meter, count, (record.value for record in consumer))
    consumer.close()
    return meter


# --- producers ---


def produce_kohort(address: str, topic: str, count: int, size: int) -> dict[str, float]:
    from kohort import Producer

    with Producer({"bootstrap.servers": address}) as producer:

        def run(some: int) -> None:
            for value in endless(size, some):
                producer.send(topic, value=value)
            producer.flush()

        return timed(count, run)


def produce_confluent(address: str, topic: str, count: int, size: int) -> dict[str, float]:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": address})

    def run(some: int) -> None:
        for value in endless(size, some):
            while True:
                try:
                    producer.produce(topic, value=value)
                    break
                except BufferError:  # 100,000 records wait: here the user has to
                    producer.poll(WAIT_S)
        producer.flush()

    return timed(count, run)


def produce_aiokafka(address: str, topic: str, count: int, size: int) -> dict[str, float]:
    from aiokafka import AIOKafkaProducer

    async def run() -> dict[str, float]:
        producer = AIOKafkaProducer(bootstrap_servers=address)
        await producer.start()

        async def send(some: int) -> None:
            for value in endless(size, some):
                await producer.send(topic, value)
            await producer.flush()

        try:
            await send(WARM)
            began, cpu = time.perf_counter(), cpu_s()
            await send(count)
            took = time.perf_counter() - began
            return {"per_s": count / took, "cpu_us": (cpu_s() - cpu) / count * 1e6, "first_s": 0.0}
        finally:
            await producer.stop()

    return asyncio.run(run())


def produce_kafka_python(address: str, topic: str, count: int, size: int) -> dict[str, float]:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=address)

    def run(some: int) -> None:
        for value in endless(size, some):
            producer.send(topic, value)
        producer.flush()

    result = timed(count, run)
    producer.close()
    return result


CONSUMERS = {
    "kohort": consume_kohort,
    "confluent": consume_confluent,
    "aiokafka": consume_aiokafka,
    "kafka-python": consume_kafka_python,
}
PRODUCERS = {
    "kohort": produce_kohort,
    "confluent": produce_confluent,
    "aiokafka": produce_aiokafka,
    "kafka-python": produce_kafka_python,
}
