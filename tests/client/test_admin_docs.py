"""docs/admin.md: every example is run against a broker, every call is there, the table is that of the code."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import kohort
from kohort import Admin
from kohort.cli.reference import filled
from kohort.testing import Kafka

DOCS = Path(__file__).parents[2] / "docs" / "admin.md"
ADDRESS = "127.0.0.1:9092"
PRINTS = {
    0: ["orders 3"],
    1: ["['customers', 'orders'] ['billing']"],
    2: ["0 1 (1,)", "1 1 (1,)", "2 1 (1,)", "3 1 (1,)", "4 1 (1,)", "5 1 (1,)"],
    3: ["3600000 False"],
    4: ["2", "{TopicPartition(topic='orders', partition=0): 1}"],
    5: ["billing Empty 5"],
    6: ["{TopicPartition(topic='orders', partition=0): OffsetAndMetadata(offset=0, metadata='', leader_epoch=None)"],
    7: ["{'alice': (ScramCredentialInfo(mechanism=<ScramMechanism.SCRAM_SHA_512", "ClientQuotaEntity("],
    8: ["it was there before"],
}  # fmt: skip
MAKES_TOPICS = (0, 2)


def examples() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", DOCS.read_text("utf-8"), re.DOTALL | re.MULTILINE)


@pytest.fixture
def orders(kafka: Kafka) -> Kafka:
    """What the examples find: two topics, two records in each partition of `orders`, a group that has read one."""
    kafka.create_topic("orders", partitions=3)
    kafka.create_topic("customers")
    kafka.produce(
        "orders", [{"value": f"{n}", "partition": n % 3, "timestamp": 1_700_000_000_000} for n in range(6)]
    )
    with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        admin.alter_group_offsets("billing", {("orders", n): n % 2 for n in range(3)})
    return kafka


@pytest.mark.parametrize("number", range(len(examples())))
def test_every_example_of_the_docs_works(number: int, request: pytest.FixtureRequest) -> None:
    broker: Kafka = request.getfixturevalue("kafka" if number in MAKES_TOPICS else "orders")
    example = examples()[number]
    assert ADDRESS in example
    printed: list[str] = []

    def show(*things: Any) -> None:
        printed.append(" ".join(map(str, things)))

    source = compile(example.replace(ADDRESS, broker.bootstrap_servers), str(DOCS), "exec")
    exec(source, {"print": show, "__name__": "__main__"})
    assert [line[: len(wanted)] for line, wanted in zip(printed, PRINTS[number], strict=True)] == PRINTS[
        number
    ]


def test_every_call_is_in_a_table_with_its_arguments() -> None:
    rows = re.findall(r"^\| `(\w+)\((.*?)\)` \|", DOCS.read_text("utf-8"), re.MULTILINE)
    described = dict(rows)
    assert len(described) == len(rows)
    public = {name for name, _ in inspect.getmembers(Admin, inspect.isfunction) if not name.startswith("_")}
    assert set(described) == public
    for name, arguments in described.items():
        named = [word.strip(" *").partition("=")[0] for word in arguments.split(", ") if word]
        parameters = [
            p for p in inspect.signature(getattr(Admin, name)).parameters if p not in ("self", "timeout")
        ]
        assert named == parameters, name


def test_every_error_in_the_docs_exists() -> None:
    table = DOCS.read_text("utf-8").partition("| error | what happened")[2].partition("\n\n")[0]
    named = [re.findall(r"`([A-Z]\w+)`", row.split("|")[1])[0] for row in table.splitlines()[2:]]
    assert len(named) == 6
    for name in named:
        assert issubclass(getattr(kohort, name), kohort.KohortError)


def test_the_table_of_settings_is_that_of_the_code() -> None:
    page = DOCS.read_text("utf-8")
    assert page == filled(page), "run `make supported`"
    assert page.count("| `bootstrap.servers` |") == 1
    assert page.count("| `retries` |") == 1
