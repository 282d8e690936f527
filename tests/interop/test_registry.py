"""A real schema registry: Apicurio Registry, which keeps its schemas in topics of our own broker (KafkaSQL storage).

Our client and confluent-kafka's speak to it, one reads what the other wrote, and a restart of it keeps the schemas.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from benchmarks import outside, targets
from benchmarks.targets import Target
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer as TheirAvroDeserializer
from confluent_kafka.schema_registry.avro import AvroSerializer as TheirAvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer as TheirJSONDeserializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer as TheirJSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer as TheirProtobufDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer as TheirProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from kohort import Consumer, Producer
from kohort.serde import (
    AvroDeserializer,
    AvroSerializer,
    JsonDeserializer,
    JsonSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
    RegistryError,
    RegistryUnavailable,
    SchemaNotFound,
    SchemaReference,
    SchemaRefused,
    SchemaRegistry,
)
from kohort.serde.framing import frame_message
from kohort.serde.objects import plain
from tests.serde.orders import AVRO, JSON_SCHEMA, ORDER, PROTOS, Order, Point, order_message

from .conftest import StartBroker

pytestmark = pytest.mark.interop
# Their default, ASSOCIATED, asks Confluent Cloud for the subject of a topic first.
TOPIC = {"subject.name.strategy.type": "TOPIC"}
START_S = 120


class Apicurio:
    """The registry's process; it can be stopped and started again."""

    def __init__(self, broker: Target, folder: Path) -> None:
        self._broker, self._folder = broker, folder
        self.port = targets.free_port()
        self.url = f"http://127.0.0.1:{self.port}/apis/ccompat/v7"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        settings = {
            "quarkus.http.host": "127.0.0.1",
            "quarkus.http.port": self.port,
            "apicurio.storage.kind": "kafkasql",
            "apicurio.kafkasql.bootstrap.servers": self._broker.address,
        }
        options = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command = [
            outside.program("java"),
            *options,
            *(f"-D{name}={value}" for name, value in settings.items()),
        ]
        log = self._folder / "apicurio.log"
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [*command, "-jar", str(outside.apicurio())],
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
            )
        deadline_s = time.monotonic() + START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                pytest.fail(f"Apicurio Registry did not start:\n{log.read_text(errors='replace')[-3000:]}")
            time.sleep(0.2)

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/subjects", timeout=5).status_code == 200
        except httpx.HTTPError:
            return False

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(20)


@pytest.fixture(scope="module")
def apicurio(start_broker: StartBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apicurio]:
    registry = Apicurio(start_broker(), tmp_path_factory.mktemp("apicurio"))
    try:
        registry.start()
        yield registry
    finally:
        registry.kill()


@pytest.fixture
def registry(apicurio: Apicurio) -> Iterator[SchemaRegistry]:
    with SchemaRegistry({"schema.registry.url": apicurio.url, "retries.wait.ms": 50}) as client:
        yield client


@pytest.fixture
def theirs(apicurio: Apicurio) -> Iterator[Any]:
    with SchemaRegistryClient({"url": apicurio.url}) as client:
        yield client


def value_of(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def test_avro_both_ways(registry: SchemaRegistry, theirs: Any) -> None:
    ours = AvroSerializer(Order, schema=AVRO, registry=registry)("avro", ORDER)
    made = TheirAvroSerializer(theirs, AVRO, conf=TOPIC)(plain(ORDER), value_of("avro"))
    assert ours == made
    assert AvroDeserializer(Order, registry=registry)("avro", made) == ORDER
    assert TheirAvroDeserializer(theirs, conf=TOPIC)(ours, value_of("avro")) == plain(ORDER)


def test_json_both_ways(registry: SchemaRegistry, theirs: Any) -> None:
    ours = JsonSerializer(Point, schema=JSON_SCHEMA, registry=registry)("json", Point(1, 2))
    made = TheirJSONSerializer(JSON_SCHEMA, theirs, conf=TOPIC)({"x": 1, "y": 2}, value_of("json"))
    assert ours is not None
    assert ours[:5] == made[:5]
    assert JsonDeserializer(Point, registry=registry, validate=True)("json", made) == Point(1, 2)
    read = TheirJSONDeserializer(JSON_SCHEMA, schema_registry_client=theirs, conf=TOPIC)(
        ours, value_of("json")
    )
    assert read == {"x": 1, "y": 2}


def test_protobuf_both_ways(registry: SchemaRegistry, theirs: Any) -> None:
    message = order_message()
    kind, conf = type(message), {"use.deprecated.format": False, **TOPIC}
    ours = ProtobufSerializer(kind, registry=registry)("protobuf", message)
    assert ours == TheirProtobufSerializer(kind, theirs, conf=conf)(message, value_of("protobuf"))
    assert ProtobufDeserializer(kind, registry=registry)("protobuf", ours) == message
    assert TheirProtobufDeserializer(kind, conf, theirs)(ours, value_of("protobuf")) == message
    dynamic = ProtobufDeserializer(registry=registry)("protobuf", ours)
    assert dynamic.SerializeToString() == message.SerializeToString()


def test_proto_texts_with_a_reference_are_compiled(registry: SchemaRegistry) -> None:
    registry.register("money", "PROTOBUF", (PROTOS / "money.proto").read_text("utf-8"))
    text = (PROTOS / "order.proto").read_text("utf-8")
    schema_id = registry.register(
        "text-value", "PROTOBUF", text, [SchemaReference("money.proto", "money", 1)]
    )
    assert registry.schema(schema_id).text.startswith("syntax")
    data = frame_message(schema_id, [1]) + order_message().SerializeToString()
    dynamic = ProtobufDeserializer(registry=registry)("text", data)
    assert str(dynamic) == str(order_message())


def test_refusals_are_told_apart(apicurio: Apicurio, registry: SchemaRegistry) -> None:
    with pytest.raises(SchemaNotFound, match="schema id 9999 is not in the schema registry"):
        registry.schema(9999)
    with pytest.raises(SchemaNotFound, match="the latest schema of subject nothing"):
        registry.latest("nothing")
    with pytest.raises(SchemaRefused, match="subject wrong-value"):
        registry.register("wrong-value", "AVRO", '{"type":"recor"}')
    registry.register("strict-value", "AVRO", '{"type":"string"}')
    httpx.put(f"{apicurio.url}/config/strict-value", json={"compatibility": "BACKWARD"}).raise_for_status()
    with pytest.raises(SchemaRefused, match="HTTP 409"):
        registry.register("strict-value", "AVRO", '{"type":"int"}')
    with (
        SchemaRegistry(f"http://127.0.0.1:{apicurio.port}") as elsewhere,
        pytest.raises(RegistryError, match="knows no such path"),
    ):
        elsewhere.schema(1)


def test_records_and_their_schemas_survive_a_crash_of_the_registry(
    apicurio: Apicurio, broker: Target
) -> None:
    """Schemas are on our broker in a topic; the records are there too."""
    settings = {"schema.registry.url": apicurio.url, "max.retries": 0}
    with (
        SchemaRegistry(settings) as before,
        Producer(
            bootstrap_servers=broker.address,
            value_serializer=AvroSerializer(Order, schema=AVRO, registry=before),
        ) as producer,
    ):
        producer.send("kept", ORDER).result(60)
        schema_id = before.latest("kept-value").id
    apicurio.kill()
    with SchemaRegistry(settings) as away, pytest.raises(RegistryUnavailable, match="check that it runs"):
        away.schema(schema_id)
    apicurio.start()
    with (
        SchemaRegistry(settings) as after,
        Consumer(
            bootstrap_servers=broker.address,
            auto_offset_reset="earliest",
            value_deserializer=AvroDeserializer(Order, registry=after),
        ) as consumer,
    ):
        deadline_s = time.monotonic() + START_S
        while True:  # it answers before it has read all of its journal
            try:
                assert after.latest("kept-value").id == schema_id
                break
            except SchemaNotFound:
                assert time.monotonic() < deadline_s, "the schema did not come back"
                time.sleep(0.2)
        consumer.assign([("kept", 0)])
        (records,) = consumer.poll(60).values()
        assert [record.value for record in records] == [ORDER]
        assert after.register("kept-value", "AVRO", AVRO) == schema_id
