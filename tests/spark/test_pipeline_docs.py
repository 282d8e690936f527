"""docs/pipelines.md and docs/scheduling.md: pipelines that are shown can be run, and commands can be called."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from kohort.spark.pipelines.sinks import KINDS
from kohort.testing import try_pipeline
from tests.cli.commands import parse
from tests.test_readme import blocks

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "pipelines.md").read_text("utf-8")
SCHEDULING = (ROOT / "docs" / "scheduling.md").read_text("utf-8")
ORDER = {"id": 1, "customer": "anna", "amount": 2.5}
# A word of each pipeline that is shown, one record for it, and the row that comes out.
SHOWN: dict[str, tuple[Any, dict[str, Any]]] = {
    "# orders.py": (ORDER, {"id": 1, "amount": 2.5}),
    "# customers.py": ({"value": "Anna", "key": "7"}, {"id": "7", "name": "Anna"}),
    "-- group: large-orders": ({"value": "x" * 1001, "key": "k"}, {"id": "k", "text": "x" * 1001}),
    "-- sink: postgresql orders": (
        {"value": ORDER, "timestamp": "2026-11-16T12:00:00Z"},
        {"id": 1, "customer": "anna", "amount": "2.50", "ordered_at": "2026-11-16T12:00:00+00:00"},
    ),
    "-- sink: delta": ("a", {"text": "a", "partition": 0, "offset": 0}),
    "-- sink: iceberg": ("a", {"text": "a", "partition": 0, "offset": 0}),
}


def pipelines() -> list[str]:
    return [text for text in blocks(PAGE, "python") if "def pipeline" in text] + blocks(PAGE, "sql")


def test_every_pipeline_that_is_shown_is_tried_here() -> None:
    assert sorted(sum(word in text for word in SHOWN) for text in pipelines()) == [1] * len(SHOWN)


@pytest.mark.parametrize("word", SHOWN)
def test_a_pipeline_that_is_shown_does_what_is_said(spark: Any, tmp_path: Path, word: str) -> None:
    (text,) = [each for each in pipelines() if word in each]
    file = tmp_path / f"shown.{'py' if 'def pipeline' in text else 'sql'}"
    file.write_text(text, "utf-8")
    record, row = SHOWN[word]
    assert try_pipeline(file, [record]).rows == [row]


def test_the_tests_that_are_shown_pass(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    (text,) = [each for each in blocks(PAGE, "python") if "try_pipeline" in each]
    names: dict[str, Any] = {}
    exec(text, names)
    tests = [name for name in names if name.startswith("test_")]
    assert len(tests) == 2
    for name in tests:
        names[name]()


def test_every_command_that_is_shown_can_be_called() -> None:
    lines = [line for page in (PAGE, SCHEDULING) for line in page.splitlines()]
    shown = [line for line in lines if line.startswith("kohort pipeline")]
    shown += re.findall(r"/opt/kohort/bin/(kohort pipeline [^\"\n>]*)", SCHEDULING)
    assert len(shown) > 12
    for line in shown:
        parse(shlex.split(line, comments=True)[1:])


def test_the_table_of_sinks_says_what_the_code_does() -> None:
    rows = [line.split("|")[1:5] for line in PAGE.split("## Sinks")[1].split("\n\n")[1].splitlines()[2:]]
    found = {
        name: (promise.strip(), tuple(mode.strip() for mode in modes.split(",")))
        for names, _, promise, modes in rows
        for name in re.findall(r"`(\w+)`", names)
    }
    assert list(found) == list(KINDS)
    for name, (promise, modes) in found.items():
        assert promise.startswith(KINDS[name].promise)
        assert modes == KINDS[name].modes


def test_a_record_that_is_shown_is_a_whole_record() -> None:
    from kohort.spark.pipelines.trial_records import FIELDS

    (shown,) = re.findall(r'`(\{"value": .*?\})`', PAGE)
    assert set(json.loads(shown.replace("{…}", "{}").replace("…", "1"))) <= set(FIELDS)
