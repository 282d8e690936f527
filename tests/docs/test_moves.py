"""The pages about moving from another client: both sides of each example do the same, and every name is there."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.admin
import confluent_kafka
import confluent_kafka.admin
import kafka
import pytest

import kohort
from kohort.client.config import ADMIN, CONSUMER, PRODUCER, SECURITY_OBJECTS
from kohort.client.core.missing_settings import OTHER_NAMES
from kohort.testing import Kafka
from tests.docs.pages import ADDRESS, DOCS, Block, blocks_of, tables_of

CONFLUENT = DOCS / "move-from-confluent-kafka.md"
AIOKAFKA = DOCS / "move-from-aiokafka.md"
OURS = {name: getattr(kohort, name) for name in dir(kohort)}
CONFLUENT_NAMES = {
    "Consumer": confluent_kafka.Consumer,
    "Producer": confluent_kafka.Producer,
    "Message": confluent_kafka.Message,
    "AdminClient": confluent_kafka.admin.AdminClient,
}
OTHERS: dict[str, Mapping[str, Any]] = {
    "confluent-kafka": CONFLUENT_NAMES,
    "aiokafka": {
        **vars(aiokafka),
        "AIOKafkaAdminClient": aiokafka.admin.AIOKafkaAdminClient,
        "ConsumerRecord": aiokafka.ConsumerRecord,
    },
    "kafka-python": vars(kafka),
}
NOT_IN_TABLE = {*SECURITY_OBJECTS, "value.deserializer", "value.serializer", "partition.assignment.strategy"}
OUR_SETTINGS = {*CONSUMER.settings, *PRODUCER.settings, *ADMIN.settings, *NOT_IN_TABLE}


def pairs(path: Path) -> list[tuple[Block, Block]]:
    """The examples of a page, theirs and ours in turn."""
    found = [block for block in blocks_of(path) if block.language == "python"]
    return list(zip(found[::2], found[1::2], strict=True))


@pytest.fixture
def orders(kafka: Kafka) -> Kafka:
    kafka.create_topic("orders")
    kafka.produce("orders", [{"key": f"k{n}", "value": f"{n}", "headers": [("h", b"1")]} for n in range(3)])
    return kafka


def printed_by(block: Block, broker: Kafka, group: str, capsys: pytest.CaptureFixture[str]) -> str:
    source = block.text.replace(ADDRESS, broker.bootstrap_servers).replace('"billing"', f'"{group}"')
    capsys.readouterr()
    exec(compile(source, block.id, "exec", dont_inherit=True), {"__name__": "example"})
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [*pairs(CONFLUENT), *pairs(AIOKAFKA)],
    ids=lambda block: block.id,
)
def test_both_sides_of_an_example_do_the_same(
    orders: Kafka, theirs: Block, ours: Block, capsys: pytest.CaptureFixture[str]
) -> None:
    said = printed_by(theirs, orders, "theirs", capsys)
    if "payments" in theirs.text:
        with kohort.Admin(bootstrap_servers=orders.bootstrap_servers) as admin:
            admin.delete_topics("payments")
    assert printed_by(ours, orders, "ours", capsys) == said
    assert said


def rows(path: Path, kind: str) -> list[tuple[str, str, str]]:
    """Library, their name, our name: of the tables whose heading begins with `kind`."""
    return [
        (table[0][0], theirs.strip("`"), ours.strip("`"))
        for heading, table in tables_of(path)
        if heading.startswith(kind)
        for theirs, ours, _ in table[1:]
    ]


def resolve(names: Mapping[str, Any], path: str) -> Any:
    """The thing that a dotted name stands for; AttributeError or KeyError if there is none."""
    first, *rest = path.split(".")
    found = names[first]
    for name in rest:
        found = getattr(found, name, None) or _attribute(found, name)
    return found


def _attribute(cls: Any, name: str) -> str:
    """An attribute that a class has in its slots or annotations only."""
    if name not in {*getattr(cls, "__slots__", ()), *getattr(cls, "__annotations__", {})}:
        raise AttributeError(f"{cls} has no {name}")
    return name


@pytest.mark.parametrize("path", [CONFLUENT, AIOKAFKA], ids=lambda path: path.name)
def test_every_class_and_call_of_the_tables_is_there(path: Path) -> None:
    found = rows(path, "Names")
    assert len(found) > 30
    for library, theirs, ours in found:
        if theirs != "–":
            resolve(OTHERS[library], theirs)
        if ours != "–":
            resolve(OURS, ours)


def test_the_tables_leave_out_none_of_the_calls_that_people_use() -> None:
    """A method of theirs that is in no table is left out here, by name."""
    left_out = {
        "confluent-kafka": {
            "cluster_id", "set_sasl_credentials", "incremental_unassign", "purge", "alter_configs", "list_groups",
            "poll",
            "begin_transaction", "commit_transaction", "abort_transaction", "send_offsets_to_transaction",
            "delivery_count", "deserialized_key", "deserialized_value", "latency", "set_error", "set_headers",
            "set_key",
            "set_topic", "set_value", "create_acls", "delete_acls", "describe_acls", "elect_leaders",
            "alter_user_scram_credentials", "describe_user_scram_credentials",
        },
        "aiokafka": {
            "last_poll_timestamp", "last_stable_offset", "begin_transaction", "commit_transaction", "abort_transaction",
            "send_offsets_to_transaction", "create_batch", "start", "stop",
        },
    }  # fmt: skip
    for path, library, classes in (
        (CONFLUENT, "confluent-kafka", tuple(CONFLUENT_NAMES)),
        (AIOKAFKA, "aiokafka", ("AIOKafkaConsumer", "AIOKafkaProducer")),
    ):
        named = {theirs for _, theirs, _ in rows(path, "Names")}
        methods = {f"{cls}.{name}" for cls in classes for name in dir(OTHERS[library][cls]) if name[0] != "_"}
        missing = {name for name in methods - named if name.partition(".")[2] not in left_out[library]}
        assert not missing


def test_every_setting_of_the_tables_is_there() -> None:
    for path in (CONFLUENT, AIOKAFKA):
        found = rows(path, "Settings")
        assert len(found) > 20
        for library, theirs, ours in found:
            assert takes(library, theirs), (library, theirs)
            assert ours == "–" or ours in OUR_SETTINGS, ours


def takes(library: str, name: str) -> bool:
    """Whether the other library has this setting."""
    if library == "aiokafka":
        clients = (aiokafka.AIOKafkaConsumer, aiokafka.AIOKafkaProducer)
        return any(name in inspect.signature(client.__init__).parameters for client in clients)
    if library == "kafka-python":
        return name in kafka.KafkaConsumer.DEFAULT_CONFIG or name in kafka.KafkaProducer.DEFAULT_CONFIG
    if name == "error_cb":
        return bool(confluent_kafka.Consumer({"group.id": "g", name: print}))
    try:
        confluent_kafka.Producer({name: "no such value \0"})
    except confluent_kafka.KafkaException as error:
        return "No such configuration property" not in str(error)
    return True


def test_a_setting_of_another_client_is_answered_with_ours() -> None:
    for path in (CONFLUENT, AIOKAFKA):
        for _, theirs, ours in rows(path, "Settings"):
            name = theirs.replace("_", ".") if theirs != "error_cb" else theirs
            if ours != "–" and name != ours:
                assert ours in OTHER_NAMES[name], name


def test_keys_go_where_the_pages_say(kafka: Kafka) -> None:
    kafka.create_topic("placed", partitions=7)
    keys = [f"key-{number}".encode() for number in range(40)]
    theirs = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for key in keys:
        theirs.produce("placed", key=key, value=b"")
    theirs.flush()
    placed = {"theirs": {record.key: record.partition for record in kafka.consume_all("placed")}}
    for partitioner in ("murmur2", "consistent_random"):
        with kohort.Producer(bootstrap_servers=kafka.bootstrap_servers, partitioner=partitioner) as producer:
            sent = {key: producer.send("placed", b"", key=key) for key in keys}
            placed[partitioner] = {key: delivery.result(60).partition for key, delivery in sent.items()}
    assert placed["consistent_random"] == placed["theirs"] != placed["murmur2"]
