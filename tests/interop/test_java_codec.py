"""Our codecs against Kafka's own message classes: same bytes, same values, for every API, format and version."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from kohort.wire.compiler.compile import codec, data_codec
from kohort.wire.compiler.notation import all_apis, all_data
from kohort.wire.group_records import RECORD_TYPES

from . import random_messages
from .conftest import Run

pytestmark = pytest.mark.interop
EACH = 6  # messages for each API, version and direction
CASES = [
    (key, version, which, seed)
    for key, api in all_apis().items()
    for version in range(api.versions.first, api.versions.last + 1)
    for which in ("request", "response")
    for seed in range(EACH)
]


def made(key: int, version: int, which: str, seed: int) -> tuple[Any, bytes]:
    """A message and our bytes of it; the same for the same arguments."""
    message = random_messages.message(
        all_apis()[key], which, version, random.Random(f"{key} {version} {which} {seed}")
    )
    return message, b"".join(map(bytes, getattr(codec(key, version), f"encode_{which}")(message)))


@pytest.fixture(scope="module")
def answers(java: Run) -> dict[tuple[int, int, str, int], str]:
    """What Kafka says to each case, from one run of the oracle."""
    lines = [
        f"{key} {version} {which} {made(key, version, which, seed)[1].hex()}\n"
        for key, version, which, seed in CASES
    ]
    said = java("CodecOracle", stdin="".join(lines), timeout_s=120).splitlines()
    return dict(zip(CASES, said, strict=True))


@pytest.mark.parametrize("key", all_apis(), ids=lambda key: all_apis()[key].name)
def test_kafka_reads_the_same_values_and_writes_the_same_bytes(
    key: int, answers: dict[tuple[int, int, str, int], str]
) -> None:
    wrong = []
    for case in (case for case in CASES if case[0] == key):
        message, ours = made(*case)
        first, _, rest = answers[case].partition(" ")
        if first != ours.hex():
            wrong.append(f"{case}: we wrote {ours.hex()[:400]}, Kafka: {answers[case][:400]}")
        else:
            wrong += [f"{case}{text}" for text in random_messages.differences(message, json.loads(rest))]
        if getattr(codec(key, case[1]), f"decode_{case[2]}")(memoryview(ours), 0) != message:
            wrong.append(f"{case}: our own decode differs from {message}"[:600])
    assert not wrong, "\n".join(wrong[:20])


def test_the_oracle_says_no(java: Run) -> None:
    message, ours = made(12, 4, "request", 0)
    other, theirs = made(12, 4, "request", 1)
    lines = [
        f"12 4 request {ours.hex()}00\n",
        f"12 4 request {ours[:-3].hex()}\n",
        f"12 4 request {theirs.hex()}\n",
    ]
    left_over, cut, changed = java("CodecOracle", stdin="".join(lines)).splitlines()
    assert left_over.startswith("error")
    assert cut.startswith("error")
    assert message != other
    assert random_messages.differences(message, json.loads(changed.partition(" ")[2]))


# The sticky assignor's user data have no class in Kafka: test_java_assignors gives them to Kafka's assignor.
FORMATS = {module: spec for module, spec in all_data().items() if spec.prefix}
EACH_FORMAT = 40
FORMAT_CASES = [
    (module, version, seed)
    for module, spec in FORMATS.items()
    for version in range(spec.versions.first, spec.versions.last + 1)
    for seed in range(EACH_FORMAT)
]


def made_data(module: str, version: int, seed: int) -> tuple[Any, bytes]:
    """A format's struct and our bytes of it; the same for the same arguments."""
    message = random_messages.data(FORMATS[module], version, random.Random(f"{module} {version} {seed}"))
    return message, data_codec(module, version).encode(message)


def question(module: str, version: int, encoded: bytes) -> str:
    spec = FORMATS[module]
    rooms = {"transaction_log": "transaction", "share_snapshot": "share", "share_update": "share"}
    room = next((room for start, room in rooms.items() if module.startswith(start)), "group")
    package = "common.message" if spec.record_type is None else f"coordinator.{room}.generated"
    kind = "key" if spec.prefix == "type" else "value"
    return f"org.apache.kafka.{package}.{spec.name} {version} {kind} {encoded.hex()}\n"


def test_kafka_reads_and_writes_the_formats_of_their_own_as_we_do(java: Run) -> None:
    lines = [
        question(module, version, made_data(module, version, seed)[1])
        for module, version, seed in FORMAT_CASES
    ]
    said = java("CodecOracle", stdin="".join(lines), timeout_s=120).splitlines()
    wrong = []
    for case, answer in zip(FORMAT_CASES, said, strict=True):
        message, ours = made_data(*case)
        first, _, rest = answer.partition(" ")
        if first != ours.hex():
            wrong.append(f"{case}: we wrote {ours.hex()[:400]}, Kafka: {answer[:400]}")
        else:
            wrong += [f"{case}{text}" for text in random_messages.differences(message, json.loads(rest))]
        if data_codec(*case[:2]).decode(ours) != message:
            wrong.append(f"{case}: our own decode differs from {message}"[:600])
    assert not wrong, "\n".join(wrong[:20])
    assert {module for module, _, _ in FORMAT_CASES} > {
        "offset_commit_value",
        "consumer_protocol_subscription",
    }


def test_the_oracle_says_no_to_formats_too(java: Run) -> None:
    _, ours = made_data("group_metadata_value", 3, 0)
    key = data_codec("group_metadata_key", 0).encode(made_data("group_metadata_key", 0, 0)[0])
    lines = [
        question("group_metadata_value", 3, ours + b"\0"),
        question("group_metadata_value", 3, ours[:-1]),
        question("group_metadata_value", 2, ours),
        question("offset_commit_key", 0, key),
    ]
    assert [line.split()[0] for line in java("CodecOracle", stdin="".join(lines)).splitlines()] == [
        "error"
    ] * 4


def test_we_know_the_types_of_records_that_kafka_knows(java: Run) -> None:
    kafkas = dict(each.split("=") for each in java("CodecOracle", stdin="types\n").split())
    ours = {str(number): f"{name}Key" for number, name in RECORD_TYPES.items()}
    assert {**ours, **kafkas} == ours
    # Of these two, Kafka 4.3 knows no more than that they were used.
    assert set(ours) - set(kafkas) == {"9", "18"}
