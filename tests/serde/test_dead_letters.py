"""Records that cannot be read go to a dead-letter topic; none is lost, and a registry that is away moves none."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from kohort import AsyncConsumer, AsyncProducer, Consumer, DeserializationFailed, Producer
from kohort.serde import (
    AvroDeserializer,
    JsonDeserializer,
    RegistryUnavailable,
    SchemaRegistry,
    dead_letter,
    dead_letter_record,
)
from kohort.testing import Kafka
from tests.client.consuming import PATIENCE_S
from tests.serde.orders import Point
from tests.serde.registry_server import Registry


def reading(kafka: Kafka, deserializer: Any) -> Consumer[bytes, Any]:
    return Consumer(
        bootstrap_servers=kafka.bootstrap_servers,
        group_id="billing",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        value_deserializer=deserializer,
    )


def failure(consumer: Consumer[bytes, Any]) -> DeserializationFailed:
    """Polls until a record cannot be deserialized."""
    for _ in range(100):
        try:
            consumer.poll(PATIENCE_S / 10)
        except DeserializationFailed as failed:
            return failed
    pytest.fail("every record could be read")


def test_every_record_is_read_or_a_dead_letter(kafka: Kafka, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "kohort.serde")
    bad = {"value": b"{no json", "key": b"k", "headers": [("trace", b"7")], "timestamp": 1_700_000_000_000}
    kafka.produce("orders", ['{"x": 1}', bad, '{"x": 2}', '{"y": 3}', '{"x": 4}'])
    read: list[Point] = []
    with (
        reading(kafka, JsonDeserializer(Point)) as consumer,
        Producer(bootstrap_servers=kafka.bootstrap_servers) as producer,
    ):
        consumer.subscribe(["orders"])
        while len(read) < 3:
            try:
                polled = consumer.poll(PATIENCE_S)
            except DeserializationFailed as failed:
                dead_letter(failed, consumer, producer, "orders.dlq")
                continue
            read += [record.value for records in polled.values() for record in records if record.value]
            consumer.commit(timeout=PATIENCE_S)
    assert read == [Point(1), Point(2), Point(4)]
    assert kafka.committed("billing", "orders") == {0: 5}
    letters = kafka.consume_all("orders.dlq")
    assert [letter.value for letter in letters] == [b"{no json", b'{"y": 3}']
    first = letters[0]
    assert (first.key, first.timestamp) == (b"k", 1_700_000_000_000)
    headers = dict(first.headers)
    assert headers.pop("__kohort.errors.exception.message").startswith(b"the data is no JSON: ")
    assert headers == {
        "trace": b"7",
        "__kohort.errors.topic": b"orders",
        "__kohort.errors.partition": b"0",
        "__kohort.errors.offset": b"1",
        "__kohort.errors.timestamp": b"1700000000000",
        "__kohort.errors.origin": b"value",
        "__kohort.errors.exception.class.name": b"DataMismatch",
    }
    assert (
        b"field x: is missing, and Point needs it"
        in dict(letters[1].headers)["__kohort.errors.exception.message"]
    )
    assert "orders-0 at offset 1 is now in orders.dlq: the data is no JSON" in caplog.text


def test_the_message_names_the_record_the_schema_and_what_to_do(
    kafka: Kafka, registry: SchemaRegistry
) -> None:
    kafka.produce("orders", [{"value": b"\x00\x00\x00\x00\x11data"}])
    with reading(kafka, AvroDeserializer(registry=registry)) as consumer:
        consumer.subscribe(["orders"])
        failed = failure(consumer)
    assert str(failed).startswith(
        "the value deserializer failed on the record of orders-0 at offset 0: schema id 17 is not in the schema "
        "registry at http://127.0.0.1:"
    )
    assert str(failed).endswith("; to go on without this record, seek to offset 1")
    assert "\n" not in str(failed)
    assert dead_letter_record(failed, "orders.dlq").value == b"\x00\x00\x00\x00\x11data"


def test_a_registry_that_is_away_moves_no_record(
    kafka: Kafka, server: Registry, registry: SchemaRegistry
) -> None:
    schema_id = registry.register("orders-value", "AVRO", '{"type":"string"}')
    kafka.produce("orders", [{"value": b"\x00\x00\x00\x00\x01\x06one"}])
    away = server.fault("ids", status=503)
    with (
        reading(kafka, AvroDeserializer(registry=registry)) as consumer,
        Producer(bootstrap_servers=kafka.bootstrap_servers) as producer,
    ):
        consumer.subscribe(["orders"])
        failed = failure(consumer)
        assert isinstance(failed.__cause__, RegistryUnavailable)
        assert str(failed).endswith("; poll again to try this record again")
        with pytest.raises(DeserializationFailed) as again:
            dead_letter(failed, consumer, producer, "orders.dlq")
        assert again.value is failed
        away.times = 0
        (records,) = consumer.poll(PATIENCE_S).values()
        assert [record.value for record in records] == ["one"]
    assert schema_id == 1
    with pytest.raises(ValueError, match="there is no topic"):
        kafka.consume_all("orders.dlq")


def test_a_letter_that_cannot_be_written_leaves_the_record_where_it_is(kafka: Kafka) -> None:
    kafka.produce("orders", ["no json"])
    with (
        reading(kafka, JsonDeserializer()) as consumer,
        Producer(bootstrap_servers=kafka.bootstrap_servers) as producer,
    ):
        consumer.subscribe(["orders"])
        failed = failure(consumer)
        with pytest.raises(Exception, match="bad topic"):
            dead_letter(failed, consumer, producer, "bad topic")
        assert failure(consumer).offset == 0


async def test_with_asyncio(kafka: Kafka) -> None:
    kafka.produce("orders", ["no json", '{"x": 1}'])
    read: list[Any] = []
    async with (
        AsyncConsumer(
            bootstrap_servers=kafka.bootstrap_servers,
            auto_offset_reset="earliest",
            value_deserializer=JsonDeserializer(Point),
        ) as consumer,
        AsyncProducer(bootstrap_servers=kafka.bootstrap_servers) as producer,
    ):
        await consumer.assign([("orders", 0)])
        while not read:
            try:
                polled = await consumer.poll(PATIENCE_S)
            except DeserializationFailed as failed:
                await (await producer.send(*dead_letter_record(failed, "orders.dlq")))
                await consumer.seek(failed.partition, failed.offset + 1)
                continue
            read += [record.value for records in polled.values() for record in records]
    assert read == [Point(1)]
    assert [letter.value for letter in kafka.consume_all("orders.dlq")] == [b"no json"]
