"""docs/serde.md and examples/dead_letters.py: every example is run."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kohort import Consumer, DeserializationFailed, KohortError, serde
from kohort.testing import Kafka
from tests.client.consuming import PATIENCE_S
from tests.serde.registry_server import Registry

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "serde.md"


@dataclass
class Numbered:
    id: int


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(
    "example", blocks("python"), ids=["five minutes", "registry", "resolution", "dead letters"]
)
def test_every_example_works_and_prints_what_it_says(
    kafka: Kafka, server: Registry, example: str, capsys: pytest.CaptureFixture[str]
) -> None:
    kafka.produce("documents", ['{"a": 1}', "no document", '{"b": 2}'])
    read: list[Any] = []

    def work(record: Any) -> bool:
        read.append(record.value)
        return len(read) == 2

    source = example.replace("127.0.0.1:9092", kafka.bootstrap_servers)
    source = source.replace("http://127.0.0.1:8081", server.url).replace("poll(5.0", f"poll({PATIENCE_S}")
    exec(compile(source, str(PAGE), "exec", dont_inherit=True), {"__name__": "example", "work": work})
    said = re.findall(r"print\(.*\)  # (.*)", example)
    assert capsys.readouterr().out.splitlines() == said
    if "work(" in example:
        assert read == [{"a": 1}, {"b": 2}]
        assert [letter.value for letter in kafka.consume_all("documents.dlq")] == [b"no document"]
    else:
        assert said


def test_the_error_of_the_page_is_what_a_consumer_says(kafka: Kafka) -> None:
    kafka.produce("orders", ['{"id": 1}', '{"id": "two"}'])
    with Consumer(
        bootstrap_servers=kafka.bootstrap_servers,
        auto_offset_reset="earliest",
        value_deserializer=serde.JsonDeserializer(Numbered),
    ) as consumer:
        consumer.assign([("orders", 0)])
        assert consumer.poll(PATIENCE_S)
        with pytest.raises(DeserializationFailed) as failed:
            consumer.poll(PATIENCE_S)
    assert blocks("text") == [f"{failed.value}\n"]


def test_every_error_of_the_page_exists() -> None:
    rows = PAGE.read_text("utf-8").partition("| cause |")[2].partition("\n\n")[0].splitlines()[2:]
    names = [re.match(r"\| `(\w+)`", row) for row in rows]
    found = {name[1] for name in names if name}
    errors = {
        name
        for name in serde.__all__
        if isinstance(getattr(serde, name), type) and issubclass(getattr(serde, name), KohortError)
    }
    assert found == errors - {"RegistryError"}


def test_every_class_of_the_table_of_formats_exists() -> None:
    table = PAGE.read_text("utf-8").partition("| ours |")[2].partition("\n\n")[0]
    named = set(re.findall(r"^\| (.*?) \|", table, re.MULTILINE))
    classes = {name for cell in named for name in re.findall(r"`(\w+erializer)`", cell)}
    assert len(classes) > 10
    for name in classes:
        assert getattr(serde, name)
        assert getattr(serde, name.replace("Serializer", "Deserializer"))


def test_the_program_for_dead_letters_loses_nothing(kafka: Kafka) -> None:
    kafka.produce(
        "orders",
        ['{"id": 1, "article": "apples"}', "junk", '{"id": 2}', '{"id": 3, "article": "pears", "count": 4}'],
    )
    program = [
        sys.executable,
        str(ROOT / "examples" / "dead_letters.py"),
        "--bootstrap",
        kafka.bootstrap_servers,
    ]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            said = [running.stdout.readline() for _ in range(2)]
            running.send_signal(signal.SIGTERM)
            _, wrong = running.communicate(timeout=PATIENCE_S)
        finally:
            running.kill()
    assert said == ["order 1: 1 of apples\n", "order 3: 4 of pears\n"]
    assert running.returncode == 0, wrong
    assert [letter.value for letter in kafka.consume_all("orders.dlq")] == [b"junk", b'{"id": 2}']
    assert kafka.committed("billing", "orders") == {0: 4}
