"""Copies a topic exactly once with the client that is named: `python -m tests.chaos.copying CLIENT ADDRESS`.

Each program is what its client's documentation says of consume-transform-produce. An error that an abort mends is
aborted, and the consumer goes back to what is committed. After any other error the program ends, and whoever started it
starts it again. A test kills it, and the broker, at any moment.

Each transaction also writes a receipt, which says what is in it: a transaction that is seen in part shows.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final

SOURCE: Final = "source"
_CALL_S = 60.0  # how long one call may take: the broker is down for a second or two
_AT_ONCE = 20


def target_of(client: str) -> str:
    return f"target-{client}"


def receipts_of(client: str) -> str:
    return f"receipts-{client}"


def receipt(values: Iterable[bytes]) -> bytes:
    return b" ".join(values)


def confluent(address: str) -> None:
    import confluent_kafka

    me = "confluent"
    common = {
        "bootstrap.servers": address,
        "reconnect.backoff.max.ms": 500,
        "log_level": 2,
        # The default, rebootstrap, makes send_offsets_to_transaction hang for as long as nothing else happens to a
        # connection: librdkafka forgets the broker, but not that it was the group's coordinator (its issue 5511, seen
        # with 2.16.0). The same program hangs with Apache Kafka 4.3.1, too.
        "metadata.recovery.strategy": "none",
    }
    consumer = confluent_kafka.Consumer(
        {
            **common,
            "group.id": me,
            "group.instance.id": me,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    producer = confluent_kafka.Producer({**common, "transactional.id": me, "linger.ms": 0})
    producer.init_transactions(_CALL_S)
    consumer.subscribe([SOURCE])
    while True:
        messages = [message for message in consumer.consume(_AT_ONCE, 0.2) if message.error() is None]
        if not messages:
            continue
        producer.begin_transaction()
        try:
            for message in messages:
                producer.produce(target_of(me), message.value(), partition=message.partition() or 0)
            producer.produce(receipts_of(me), receipt(message.value() or b"" for message in messages))
            positions = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), _CALL_S)
            producer.commit_transaction(_CALL_S)
        except confluent_kafka.KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            say("aborts", error)
            producer.abort_transaction(_CALL_S)
            for place in consumer.committed(consumer.assignment(), _CALL_S):
                if place.offset < 0:
                    place.offset = confluent_kafka.OFFSET_BEGINNING
                consumer.seek(place)


def aiokafka(address: str) -> None:
    asyncio.run(_aiokafka(address))


async def _aiokafka(address: str) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    me = "aiokafka"
    producer = AIOKafkaProducer(bootstrap_servers=address, transactional_id=me)
    consumer = AIOKafkaConsumer(
        SOURCE,
        bootstrap_servers=address,
        group_id=me,
        group_instance_id=me,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    async with asyncio.timeout(_CALL_S):
        await producer.start()
        await consumer.start()
    while True:
        for place, records in (await consumer.getmany(timeout_ms=200, max_records=_AT_ONCE)).items():
            values = [record.value for record in records]
            async with asyncio.timeout(_CALL_S), producer.transaction():
                for value in values:
                    await producer.send(target_of(me), value, partition=place.partition)
                await producer.send(receipts_of(me), receipt(values))
                await producer.send_offsets_to_transaction({place: records[-1].offset + 1}, me)


def _our_settings(client: str, address: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": address,
        "group_id": client,
        "group_instance_id": client,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "isolation_level": "read_committed",
        "max_poll_records": _AT_ONCE,
    }


def ours(address: str) -> None:
    from kohort import Consumer, Producer

    me = "ours"
    consumer: Consumer = Consumer(**_our_settings(me, address))
    producer: Producer = Producer(bootstrap_servers=address, transactional_id=me)
    producer.init_transactions()
    consumer.subscribe([SOURCE])
    while True:
        for place, records in consumer.poll(0.2).items():
            values = [record.value or b"" for record in records]
            with producer.transaction():
                for value in values:
                    producer.send(target_of(me), value, partition=place.partition)
                producer.send(receipts_of(me), receipt(values))
                producer.send_offsets_to_transaction(
                    {place: records[-1].offset + 1}, consumer.group_metadata()
                )


def ours_async(address: str) -> None:
    asyncio.run(_ours_async(address))


async def _ours_async(address: str) -> None:
    from kohort import AsyncConsumer, AsyncProducer

    me = "ours_async"
    consumer: AsyncConsumer = AsyncConsumer(**_our_settings(me, address))
    producer: AsyncProducer = AsyncProducer(bootstrap_servers=address, transactional_id=me)
    async with consumer, producer:
        await producer.init_transactions()
        await consumer.subscribe([SOURCE])
        while True:
            for place, records in (await consumer.poll(0.2)).items():
                values = [record.value or b"" for record in records]
                async with producer.transaction():
                    for value in values:
                        await producer.send(target_of(me), value, partition=place.partition)
                    await producer.send(receipts_of(me), receipt(values))
                    await producer.send_offsets_to_transaction(
                        {place: records[-1].offset + 1}, consumer.group_metadata()
                    )


PROGRAMS: Final[dict[str, Callable[[str], None]]] = {
    "confluent": confluent,
    "aiokafka": aiokafka,
    "ours": ours,
    "ours_async": ours_async,
}


def say(what: str, error: BaseException) -> None:
    print(f"{what}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        PROGRAMS[sys.argv[1]](sys.argv[2])
    except Exception as error:
        say("ends", error)
        os._exit(3)  # as a crash does: what is open stays open
