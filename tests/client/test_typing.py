"""What a type checker knows of the client: keys and values by their (de)serializers, settings as keywords."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

import pytest

from kohort import Consumer, Producer, Record, Records, ShareConsumer
from kohort.client import consumer, keywords, share_consumer
from kohort.client.config import ADMIN, CONSUMER, PRODUCER, SECURITY_OBJECTS, SHARE_CONSUMER, ClientConfig
from kohort.client.core.security_settings import SAME_SETTINGS
from kohort.client.produce import outgoing
from kohort.settings import Kind, Table

PROGRAM = Path(__file__).with_name("typed_program.py")
SOURCE = Path(__file__).parents[2] / "src"
EXPECTED = re.compile(r"# (error|reveals): (.*)$")

TYPES: dict[Kind, tuple[Any, ...]] = {
    Kind.BOOLEAN: (bool, str),
    Kind.STRING: (str,),
    Kind.INT: (int, str),
    Kind.LONG: (int, str),
    Kind.DOUBLE: (float, str),
}


@pytest.mark.parametrize(
    ("hints", "table", "objects"),
    [
        (keywords.ClientKeywords, Table(ClientConfig, "client"), SECURITY_OBJECTS),
        (keywords.ConsumerKeywords, CONSUMER, consumer.OBJECTS),
        (keywords.ShareConsumerKeywords, SHARE_CONSUMER, share_consumer.SHARE_OBJECTS),
        (keywords.ProducerKeywords, PRODUCER, outgoing.OBJECTS),
        (keywords.AdminKeywords, ADMIN, SECURITY_OBJECTS),
    ],
    ids=["client", "consumer", "share consumer", "producer", "admin"],
)
def test_the_keywords_are_the_settings(hints: Any, table: Table[Any], objects: tuple[str, ...]) -> None:
    apart = {"key_deserializer", "value_deserializer", "key_serializer", "value_serializer"}
    named = {name.replace(".", "_") for name in (*table.settings, *SAME_SETTINGS, *objects)}
    known = get_type_hints(hints)
    assert set(known) == named - apart, "keep src/kohort/client/keywords.py and config.py the same"
    for row in table.settings.values():
        types = {kind for kind in get_args(known[row.field]) if kind is not NoneType}
        if row.kind is not Kind.LIST:
            assert types >= set(TYPES[row.kind]), row.name
        if row.field not in ("acks", "partitioner") and row.kind is not Kind.LIST:
            assert types == set(TYPES[row.kind]), row.name
        assert NoneType in get_args(known[row.field]), row.name


def test_a_type_checker_knows_keys_values_and_settings(tmp_path: Path) -> None:
    settings = tmp_path / "mypy.ini"
    settings.write_text(
        f"[mypy]\nstrict = True\nmypy_path = {SOURCE}\nfollow_imports = silent\npretty = False\n"
    )
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file",
        str(settings),
        "--cache-dir",
        str(tmp_path / "cache"),
    ]
    ran = subprocess.run(
        [*command, "--no-error-summary", "--hide-error-context", str(PROGRAM)],
        capture_output=True,
        text=True,
        timeout=590,
        cwd=tmp_path,
    )
    said: dict[int, str] = {}
    for line in ran.stdout.splitlines():
        found = re.match(rf"{re.escape(str(PROGRAM))}:(\d+): (?:error|note): (.*)", line)
        if found:
            said[int(found[1])] = said.get(int(found[1]), "") + found[2] + "\n"
    expected: dict[int, str] = {}
    for number, line in enumerate(PROGRAM.read_text("utf-8").splitlines(), 1):
        if (found := EXPECTED.search(line)) and "`#" not in line:
            expected[number] = found[2]
    assert len(expected) > 20
    assert said.keys() == expected.keys(), ran.stdout + ran.stderr
    for number, words in expected.items():
        assert words in said[number].replace("builtins.", ""), said[number]


def test_records_and_clients_may_be_named_with_their_types_when_a_program_runs() -> None:
    assert Record[str, int]("t", 0, 1, key="k", value=2) == Record("t", 0, 1, key="k", value=2)
    assert Consumer[str, int].__origin__ is Consumer
    assert Producer[str, int].__origin__ is Producer
    assert ShareConsumer[str, int].__origin__ is ShareConsumer
    assert Records[str, int].__origin__ is Records
    record = Record("t", 0, 1, key=b"k", headers=[("h", None)])
    assert pickle.loads(pickle.dumps(record)) == record
    assert not hasattr(record, "__dict__")
