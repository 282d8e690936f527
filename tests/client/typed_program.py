"""A program as users write it. It is never run: test_typing.py lets mypy check it, and expects what the comments say.

`# error: words` is what mypy must complain about in that line, `# reveals: T` what `reveal_type` must answer.
"""

from __future__ import annotations

import json
from typing import Any, reveal_type

from kohort import (
    AcknowledgeType,
    Admin,
    AsyncConsumer,
    AsyncProducer,
    AsyncShareConsumer,
    Consumer,
    Producer,
    Record,
    ShareConsumer,
)
from kohort.serde import (
    AvroDeserializer,
    AvroSerializer,
    JsonDeserializer,
    JsonSerializer,
    LongSerializer,
    StringDeserializer,
)


def number(topic: str, data: bytes) -> int:
    return int(data)


def text(topic: str, thing: int) -> bytes:
    return b"%d" % thing


def consuming(settings: dict[str, object]) -> None:
    plain = Consumer(settings, group_id="g", max_poll_records=10, enable_auto_commit=False)
    for record in plain:
        reveal_type(record.value)  # reveals: bytes | None
    for records in plain.poll(1.0).values():
        reveal_type(records[0].key)  # reveals: bytes | None
    typed = Consumer(settings, key_deserializer=number, value_deserializer=lambda topic, data: data.decode())
    reveal_type(typed)  # reveals: kohort.client.consumer.Consumer[int, str]
    with typed as consumer:
        for one in consumer:
            reveal_type(one.key)  # reveals: int | None
            reveal_type(one.value)  # reveals: str | None
            reveal_type(one.offset)  # reveals: int
    named: Consumer[str, dict[str, Any]] = Consumer({"value.deserializer": json.loads})
    for other in named:
        take(other)
        take(record)  # error: incompatible type "Record[bytes, bytes]"
    keep(plain)
    Consumer(
        bootstrap_servers=["a:1", "b:2"], group_id=None, interceptors=[object()], session_timeout_ms="6000"
    )
    Consumer(group_ids="g")  # error: Unexpected keyword argument "group_ids"
    Consumer(max_poll_records=1.5)  # error: has incompatible type "float"
    Consumer(enable_auto_commit=7)  # error: has incompatible type "int"
    Consumer(linger_ms=5)  # error: Unexpected keyword argument "linger_ms"
    Consumer(value_deserializer=len)  # error: incompatible type


def sharing(settings: dict[str, object]) -> None:
    typed = ShareConsumer(settings, group_id="g", value_deserializer=number)
    reveal_type(typed)  # reveals: kohort.client.share_consumer.ShareConsumer[bytes, int]
    for record in typed:
        reveal_type(record.value)  # reveals: int | None
        reveal_type(record.delivery_count)  # reveals: int | None
        typed.acknowledge(record, AcknowledgeType.RELEASE)
        typed.acknowledge(record, 2)  # error: incompatible type "int"
    for records in typed.poll(1.0).values():
        reveal_type(records[0].value)  # reveals: int | None
    for error in typed.commit_sync().values():
        reveal_type(error)  # reveals: KohortError | None
    ShareConsumer(auto_offset_reset="earliest")  # error: Unexpected keyword argument "auto_offset_reset"


async def sharing_asynchronously(settings: dict[str, object]) -> None:
    async with AsyncShareConsumer(settings, key_deserializer=number) as consumer:
        async for record in consumer:
            reveal_type(record.key)  # reveals: int | None
            consumer.acknowledge(record)


def take(record: Record[str, dict[str, Any]]) -> None: ...


def keep(consumer: Consumer) -> None:
    """Without types: bytes."""


def producing() -> None:
    plain = Producer(bootstrap_servers="a:1", acks=1, linger_ms=5, partitioner=lambda topic, key, count: 0)
    plain.send("orders", "text", key=b"bytes")
    plain.send("orders", 5)  # error: has incompatible type "int"
    typed = Producer(bootstrap_servers="a:1", value_serializer=text)
    typed.send("orders", 5, key="k")
    typed.send("orders", "five")  # error: has incompatible type "str"
    Producer(group_id="g")  # error: Unexpected keyword argument "group_id"
    Admin(bootstrap_servers="a:1", retries=3)
    Admin(acks="all")  # error: Unexpected keyword argument "acks"


async def on_a_loop() -> None:
    async with AsyncConsumer(bootstrap_servers="a:1", value_deserializer=number) as consumer:
        async for record in consumer:
            reveal_type(record.value)  # reveals: int | None
            reveal_type(record.key)  # reveals: bytes | None
        AsyncConsumer(group="g")  # error: Unexpected keyword argument "group"
    async with AsyncProducer(bootstrap_servers="a:1", value_serializer=text) as producer:
        await producer.send("orders", 5)
        await producer.send("orders", b"5")  # error: has incompatible type "bytes"
        await producer.send_and_wait("orders", "5")  # error: has incompatible type "str"


class Order:
    """Any class."""


def with_serde() -> None:
    orders = Consumer(
        bootstrap_servers="a:1",
        key_deserializer=StringDeserializer(),
        value_deserializer=JsonDeserializer(Order),
    )
    reveal_type(orders)  # reveals: kohort.client.consumer.Consumer[str, tests.client.typed_program.Order]
    for record in orders:
        reveal_type(record.value)  # reveals: tests.client.typed_program.Order | None
    avro = Consumer(value_deserializer=AvroDeserializer(Order, registry="http://a"))
    reveal_type(avro)  # reveals: kohort.client.consumer.Consumer[bytes, tests.client.typed_program.Order]
    plain = Consumer(value_deserializer=AvroDeserializer(registry="http://a"))
    reveal_type(plain)  # reveals: kohort.client.consumer.Consumer[bytes, Any]
    made = Consumer(value_deserializer=JsonDeserializer(lambda data: int(data["x"])))
    reveal_type(made)  # reveals: kohort.client.consumer.Consumer[bytes, int]
    JsonDeserializer(Order, registri="http://a")  # error: No overload variant
    producer = Producer(key_serializer=LongSerializer(), value_serializer=AvroSerializer(Order, schema="{}"))
    producer.send("orders", Order(), key=5)
    producer.send("orders", "order")  # error: has incompatible type "str"
    producer.send("orders", Order(), key="k")  # error: has incompatible type "str"
    anything = Producer(value_serializer=JsonSerializer())
    anything.send("orders", {"a": [1]})
