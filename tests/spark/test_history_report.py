"""The report of `group-history` from tables as they lie on disk; without Spark."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kohort.spark.history.report import MOST_GROUPS, file_name, write_report

START = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
TEXT, WHEN, NUMBER = pa.string(), pa.timestamp("us", tz="UTC"), pa.int64()


def write(out: Path, name: str, kinds: dict[str, Any], *rows: dict[str, Any]) -> None:
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist(list(rows), schema=pa.schema(list(kinds.items())))
    pq.write_table(table, folder / "part-0.parquet")


def tables_of(out: Path, *groups: str) -> None:
    lag = [
        {"group_id": group, "topic": "t", "partition": part, "at": START + timedelta(seconds=at), "lag": at * part}
        for group in groups for part in range(15) for at in range(3)
    ]  # fmt: skip
    write(out, "lag", {"group_id": TEXT, "topic": TEXT, "partition": NUMBER, "at": WHEN, "lag": NUMBER}, *lag)
    rebalances = [
        {
            "group_id": group, "generation_before": number or None, "generation": number + 1, "members": 1,
            "completed_at": START + timedelta(seconds=number), "came": [f"<b>{number}</b>"], "went": [],
            "moved": ["t-0"], "join_ms": None if number == 1 else 20, "sync_ms": None if number == 1 else 5,
            "reason": None,
        }
        for group in groups for number in range(70)
    ]  # fmt: skip
    kinds = {
        "group_id": TEXT,
        "generation_before": NUMBER,
        "generation": NUMBER,
        "completed_at": WHEN,
        "members": NUMBER,
    }
    names = pa.list_(TEXT)
    kinds |= {
        "came": names,
        "went": names,
        "moved": names,
        "join_ms": NUMBER,
        "sync_ms": NUMBER,
        "reason": TEXT,
    }
    write(out, "rebalances", kinds, *rebalances)
    owned = [
        {
            "group_id": group, "member_id": f"m{part}", "group_instance_id": None, "topic": None if part == 9 else "t",
            "partition": None if part == 9 else part, "from_at": START,
            "until_at": None if part else START + timedelta(1),
        }
        for group in groups for part in range(10)
    ]  # fmt: skip
    kinds = {
        "group_id": TEXT,
        "member_id": TEXT,
        "group_instance_id": TEXT,
        "topic": TEXT,
        "partition": NUMBER,
    }
    write(out, "memberships", {**kinds, "from_at": WHEN, "until_at": WHEN}, *owned)
    write(out, "commits", {"group_id": TEXT}, *({"group_id": group} for group in groups))
    aside = [{"kind": "bad", "problem": "broken & bent"}] * 3
    write(out, "aside", {"kind": TEXT, "problem": TEXT}, *aside)


def test_each_group_has_its_pictures_in_files_and_in_the_page(tmp_path: Path) -> None:
    tables_of(tmp_path, "plain", "strange/<ü>")
    page = write_report(tmp_path).read_text()
    assert page.count("data:image/png;base64,") == 6
    for group in ("plain", "strange/<ü>"):
        for kind in ("lag", "rebalances", "owners"):
            data = (tmp_path / "report" / f"{kind}-{file_name(group)}.png").read_bytes()
            assert data.startswith(b"\x89PNG")
    assert "2 groups, 2 commits" in page
    assert "strange/&lt;ü&gt;" in page
    assert "<b>" not in page
    assert "The last 30 rebalances" in page
    assert "bad: broken &amp; bent" in page


def test_a_second_report_replaces_the_pictures_of_the_first(tmp_path: Path) -> None:
    tables_of(tmp_path, "old")
    write_report(tmp_path)
    tables_of(tmp_path, "new")
    write_report(tmp_path)
    assert {path.name for path in (tmp_path / "report").glob("*.png")} == {
        "lag-new.png", "rebalances-new.png", "owners-new.png",
    }  # fmt: skip


def test_groups_with_less_to_tell_are_only_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_matplotlib(monkeypatch)
    tables_of(tmp_path, *(f"group-{number}" for number in range(MOST_GROUPS + 3)))
    page = write_report(tmp_path).read_text()
    assert f"{MOST_GROUPS + 3} groups" in page
    assert all(f"group-{number}" in page for number in range(MOST_GROUPS + 3))
    assert "3 groups with less to tell" in page


def test_without_matplotlib_there_are_tables_and_the_page_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_matplotlib(monkeypatch)
    tables_of(tmp_path, "g")
    page = write_report(tmp_path).read_text()
    assert "pip install matplotlib" in page
    assert "data:image" not in page
    assert "<td>0 → 1</td>" not in page
    assert "69 → 70" in page


def without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)


def test_files_are_named_after_groups_and_no_two_alike() -> None:
    assert file_name("orders-etl.v2") == "orders-etl.v2"
    assert file_name("a/b") != file_name("a:b")
    assert "/" not in file_name("../../etc")
