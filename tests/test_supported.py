"""SUPPORTED.md is written from the tables; this test fails when it is stale."""

from __future__ import annotations

from pathlib import Path

from kohort.broker.apis.table import TABLE
from kohort.cli.supported import page
from kohort.wire.compiler.notation import all_apis

ROOT = Path(__file__).parent.parent


def test_supported_md_is_what_the_tables_say():
    assert (ROOT / "SUPPORTED.md").read_text("utf-8") == page(), "run `make supported`"


def test_every_row_of_the_table_has_a_layout_for_all_of_its_versions():
    for key, row in TABLE.items():
        spec = all_apis()[key]
        assert spec.name == row.name
        assert row.first in spec.versions
        assert row.last in spec.versions


def test_the_table_serves_what_the_issue_asks_for():
    ranges = {row.name: (row.first, row.last) for row in TABLE.values()}
    assert ranges["Produce"] == (3, 13)
    assert ranges["Fetch"] == (4, 18)
    assert ranges["ListOffsets"] == (1, 11)
    assert ranges["Metadata"] == (0, 13)
    assert ranges["OffsetCommit"] == (2, 10)
    assert ranges["JoinGroup"] == (0, 9)
    assert TABLE[0].advertised_first == 0
