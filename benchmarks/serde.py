"""Serializers beside confluent-kafka's, on one registry: `python -m benchmarks.serde [--quick]`.

Both write and read the same records with the same libraries for Avro and Protobuf below; what differs is the way around
them. Time is that of this process's CPU alone, so that a busy machine does not matter much. The registry is the one of
the tests; after the first record nobody asks it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer as TheirAvroDeserializer
from confluent_kafka.schema_registry.avro import AvroSerializer as TheirAvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer as TheirJSONDeserializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer as TheirJSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer as TheirProtobufDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer as TheirProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from tests.serde.orders import AVRO, ORDER, Order, order_message
from tests.serde.registry_server import running_registry

from benchmarks import report
from kohort.serde import (
    AvroDeserializer,
    AvroSerializer,
    JsonDeserializer,
    JsonSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
    SchemaRegistry,
)
from kohort.serde.objects import plain

Call = Callable[[], object]
JSON_SCHEMA = json.dumps({"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}})
TOPIC = {"subject.name.strategy.type": "TOPIC"}  # their default asks Confluent Cloud first
BINARY = {"use.deprecated.format": False, **TOPIC}


def pairs(registry: SchemaRegistry, theirs: Any) -> Iterator[tuple[str, Call, Call]]:
    """What is measured: its name, our call and theirs."""
    value = {name: SerializationContext(name, MessageField.VALUE) for name in ("avro", "json", "protobuf")}
    order = plain(ORDER)
    text = json.loads(JsonSerializer()("json", ORDER) or b"")

    avro, their_avro = (
        AvroSerializer(schema=AVRO, registry=registry),
        TheirAvroSerializer(theirs, AVRO, conf=TOPIC),
    )
    data = avro("avro", order) or b""
    read, their_read = AvroDeserializer(registry=registry), TheirAvroDeserializer(theirs, conf=TOPIC)
    yield "Avro, dict to bytes", lambda: avro("avro", order), lambda: their_avro(order, value["avro"])
    yield "Avro, bytes to dict", lambda: read("avro", data), lambda: their_read(data, value["avro"])
    of_class = AvroSerializer(Order, schema=AVRO, registry=registry)
    to_dict = TheirAvroSerializer(theirs, AVRO, lambda thing, context: plain(thing), conf=TOPIC)
    yield "Avro, dataclass to bytes", lambda: of_class("avro", ORDER), lambda: to_dict(ORDER, value["avro"])
    into = AvroDeserializer(Order, registry=registry)
    from_dict = TheirAvroDeserializer(theirs, None, lambda found, context: Order(**found), conf=TOPIC)
    yield "Avro, bytes to dataclass", lambda: into("avro", data), lambda: from_dict(data, value["avro"])

    write_json = JsonSerializer(schema=JSON_SCHEMA, registry=registry)
    their_json = TheirJSONSerializer(JSON_SCHEMA, theirs, conf={**TOPIC, "validate": False})
    line = write_json("json", text) or b""
    read_json = JsonDeserializer(registry=registry)
    their_reader = TheirJSONDeserializer(
        JSON_SCHEMA, schema_registry_client=theirs, conf={**TOPIC, "validate": False}
    )
    yield "JSON, dict to bytes", lambda: write_json("json", text), lambda: their_json(text, value["json"])
    yield "JSON, bytes to dict", lambda: read_json("json", line), lambda: their_reader(line, value["json"])

    message = order_message()
    kind = type(message)
    write, their_write = (
        ProtobufSerializer(kind, registry=registry),
        TheirProtobufSerializer(kind, theirs, conf=BINARY),
    )
    binary = write("protobuf", message) or b""
    parse, their_parse = (
        ProtobufDeserializer(kind, registry=registry),
        TheirProtobufDeserializer(kind, BINARY, theirs),
    )
    yield (
        "Protobuf, message to bytes",
        lambda: write("protobuf", message),
        lambda: their_write(message, value["protobuf"]),
    )
    yield (
        "Protobuf, bytes to message",
        lambda: parse("protobuf", binary),
        lambda: their_parse(binary, value["protobuf"]),
    )


def rate(call: Call, seconds: float) -> float:
    """Calls a second of CPU time."""
    call()
    count, begun = 0, time.process_time()
    while (took := time.process_time() - begun) < seconds:
        for _ in range(200):
            call()
        count += 200
    return count / took


def measure(seconds: float, rounds: int) -> list[list[str]]:
    rows = []
    with running_registry() as server, SchemaRegistry(server.url) as registry:
        theirs = SchemaRegistryClient({"url": server.url})
        for name, ours, other in pairs(registry, theirs):
            measured = [(rate(ours, seconds), rate(other, seconds)) for _ in range(rounds)]
            mine, peer = (statistics.median(each) for each in zip(*measured, strict=True))
            ratio = statistics.median(one / two for one, two in measured)
            rows.append([name, f"{mine / 1000:,.0f}", f"{peer / 1000:,.0f}", f"{ratio:.1f}×"])
    return rows


HEAD = ["what", "Kohort, thousand/s", "confluent-kafka, thousand/s", "ratio"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serde", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round; writes nothing")
    options = parser.parse_args()
    seconds, rounds = (0.1, 1) if options.quick else (0.5, 5)
    rows = measure(seconds, rounds)
    for row in [HEAD, *rows]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, (28, 20, 28, 6), strict=True)).rstrip())
    if not options.quick:
        table = ["| " + " | ".join(row) + " |" for row in [HEAD, ["---"] * 4, *rows]]
        body = [
            "## Serializers beside confluent-kafka's",
            "",
            f"`python -m benchmarks.serde`, {time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC, medians of {rounds}. "
            f"Machine: {report.machine()}. Calls a second of CPU time. An order of nine fields (Protobuf: four), with "
            "a schema registry, whose answers both have cached; neither validates JSON. confluent-kafka makes "
            "dataclasses by functions: ours to plain data, `Order(**found)` from it, which leaves its lines as dicts.",
            "",
            *table,
        ]
        report.replace_section("serde", body)
        print(f"written: {report.HERE}/RESULTS.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
