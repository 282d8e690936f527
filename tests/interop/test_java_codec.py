"""Our codec against Kafka's own message classes: same bytes, same values, for every API and version."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from kohort.wire.compiler.compile import codec
from kohort.wire.compiler.notation import all_apis

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
