"""`kohort top`: its rows, its keys on a real terminal, plain tables elsewhere, a cluster that goes and comes back."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import struct
import sys
import termios
import threading
import time
from pathlib import Path

import pytest

from kohort import Admin
from kohort.cli.main import main
from kohort.cli.top.command import _print_again_and_again
from kohort.cli.top.looking import LookingThread
from kohort.cli.top.rows import SORTS, GroupRow, RowChoice, shown_duration, shown_rate, sparkline
from kohort.cli.top.screen import Screen
from kohort.testing import Kafka
from tests.clients.process import eventually

PATIENCE_S = 60


@pytest.fixture
def lagging(kafka: Kafka) -> Kafka:
    """Groups with a lag of 10, 20 and 30."""
    kafka.create_topic("orders", partitions=3)
    kafka.produce("orders", [{"value": "x", "partition": n % 3} for n in range(30)])
    with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        for count, name in enumerate(("fast", "slow", "slowest"), 1):
            admin.alter_group_offsets(name, {("orders", n): 0 for n in range(count)})
    return kafka


def test_once_prints_a_table_sorted_by_lag(lagging: Kafka, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--once", "--interval", "0.2", "--bootstrap", lagging.bootstrap_servers]) == 0
    title, *rows = capsys.readouterr().out.splitlines()
    assert title.split()[:3] == ["GROUP", "STATE", "HEALTH"]
    assert [row.split()[0] for row in rows] == ["slowest", "slow", "fast"]
    assert re.match(r"slowest +Empty +OK +0 +30 +\d+ [sm].* +0 +0 +never$", rows[0]), rows[0]


def test_json_has_the_numbers_and_options_choose_groups(
    lagging: Kafka, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--once", "--interval", "0.2", "--json", "--bootstrap", lagging.bootstrap_servers]
    assert main(["top", "slow", "--sort", "group", "--reverse", "--state", "empty", *where]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["group"] for row in told["groups"]] == ["slowest", "slow"]
    assert told["problems"] == []
    row = told["groups"][0]
    assert (row["lag"], row["members"], row["caught_up_in_s"], row["consume_rate"]) == (30, 0, None, 0.0)
    assert row["lag_seconds"] >= 0
    assert len(row["lag_series"]) == 2
    assert main(["top", "--health", "stop", *where]) == 0
    assert json.loads(capsys.readouterr().out)["groups"] == []


def test_plain_tables_and_json_lines_until_time_is_up(
    lagging: Kafka, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--bootstrap", lagging.bootstrap_servers, "--interval", "0.2", "--seconds", "0.9"]
    assert main(["top", *where]) == 0
    shown = capsys.readouterr().out
    assert shown.count("--- ") >= 2
    assert shown.count("slowest") == shown.count("--- ")
    assert main(["top", "--json", *where]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(lines) >= 2
    assert len(lines[0]["groups"]) == 3


def test_a_cluster_that_goes_away_and_comes_back_is_told_and_survived(
    lagging: Kafka, capsys: pytest.CaptureFixture[str]
) -> None:
    with Admin(bootstrap_servers=lagging.bootstrap_servers, reconnect_backoff_max_ms=100) as admin:
        looking = LookingThread(admin, 0.1)
        looking.start()
        printing = threading.Thread(
            target=_print_again_and_again, args=(looking, RowChoice(), PATIENCE_S, False)
        )
        printing.daemon = True
        printing.start()
        eventually(lambda: looking.count > 1, "it has looked")
        lagging.stop()
        eventually(lambda: looking.away_since_s is not None, "it knows that the cluster is away")
        lagging.start()
        eventually(lambda: looking.away_since_s is None, "it knows that the cluster is back")
        before = looking.count
        eventually(lambda: looking.count > before, "it looks again")
        looking.stop()
        said = ""

        def is_told() -> bool:
            nonlocal said
            said += capsys.readouterr().err
            return "still trying" in said and "the cluster answers again" in said

        eventually(is_told, "both are told")


def test_a_cluster_that_is_not_there_is_an_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text("bootstrap.servers=127.0.0.1:1\ndefault.api.timeout.ms=300\n")
    assert main(["top", "--once", "--config", str(config)]) == 4
    assert "no broker answers at 127.0.0.1:1" in capsys.readouterr().err


# --- on a terminal --------------------------------------------------------------------------------------


class Terminal:
    """`kohort top` on a terminal of its own."""

    def __init__(self, *arguments: str) -> None:
        self.pid, self.descriptor = pty.fork()
        if self.pid == 0:
            os.environ |= {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "PYTHONUTF8": "1"}
            os.execv(sys.executable, [sys.executable, "-m", "kohort.cli.main", "top", *arguments])
        fcntl.ioctl(self.descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 130, 0, 0))
        self.shown = ""

    def wait_for(self, text: str) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while text not in self.shown:
            assert time.monotonic() < deadline_s, (text, self.shown[-3000:])
            if select.select([self.descriptor], [], [], 0.2)[0]:
                data = os.read(self.descriptor, 1 << 16).decode("utf-8", "replace")
                self.shown += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", data)

    def press(self, keys: str) -> None:
        self.shown = ""
        os.write(self.descriptor, keys.encode())

    def end(self) -> int:
        _, status = os.waitpid(self.pid, 0)
        os.close(self.descriptor)
        return os.waitstatus_to_exitcode(status)


def test_keys_change_the_order_and_the_search_and_end_it(lagging: Kafka) -> None:
    terminal = Terminal("--interval", "0.3", "--bootstrap", lagging.bootstrap_servers)
    terminal.wait_for("3 groups (3 shown), lag 60")
    terminal.wait_for("sorted by lag")
    terminal.press("s")
    terminal.wait_for("sorted by age")
    terminal.press("/slowest\r")
    terminal.wait_for("(1 shown)")
    terminal.press("q")
    assert terminal.end() == 0


def screen() -> Screen:
    return Screen(None, RowChoice(), "somewhere")  # type: ignore[arg-type]


def test_every_order_can_be_reached_by_a_key() -> None:
    shown = screen()
    seen = []
    for _ in SORTS:
        seen.append(shown.choice.sort)
        shown.press("s")
    assert sorted(seen) == sorted(SORTS)
    shown.press("S")
    assert shown.choice.sort == seen[-1]


def test_a_search_is_typed_letter_by_letter() -> None:
    shown = screen()
    for key in "/qs\x7fr\r":
        shown.press(key)
    assert shown.choice.search == "qr"
    assert not shown.is_over
    shown.press("q")
    assert shown.is_over


# --- how numbers are written ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"), (0, "0 s"), (0.4, "0 s"), (59.4, "59 s"), (60, "1 m"), (75, "1 m 15 s"), (3600, "1 h"),
        (7384, "2 h 3 m"), (86_400, "1 d"), (100_000, "1 d 3 h"), (1e8, "1,157 d 9 h"),
    ],
)  # fmt: skip
def test_durations(seconds: float | None, text: str) -> None:
    assert shown_duration(seconds) == text


@pytest.mark.parametrize(
    ("rate", "text"),
    [(None, "-"), (0, "0"), (0.25, "0.2"), (9.96, "10"), (999, "999"), (999.9, "1k"), (12_340, "12.3k"),
     (5e6, "5M"), (2.5e9, "2.5G")],
)  # fmt: skip
def test_rates(rate: float | None, text: str) -> None:
    assert shown_rate(rate) == text


def test_a_sparkline_is_as_wide_as_told_and_its_largest_value_is_full() -> None:
    rising = [(n * 1000, n) for n in range(100)]
    line = sparkline(rising, 10)
    assert len(line) == 10
    assert list(line) == sorted(line)
    assert line[-1] == "█"
    assert sparkline([(0, 0), (1000, 0)], 5) == "▁" * 5
    assert len(sparkline([(0, 7)], 5)) == 1
    assert sparkline([], 5) == ""
    assert sparkline(rising, 10, plain=True).isascii()


def test_a_gap_in_time_is_as_wide_as_it_was() -> None:
    line = sparkline([(0, 0), (90_000, 0), (91_000, 8), (100_000, 8)], 10)
    assert line == "▁" * 9 + "█"


@pytest.mark.parametrize(
    ("lag", "rate", "eta", "text"),
    [(0, 1.0, 0.0, "caught up"), (9, 1.0, None, "never"), (9, None, None, "-"), (9, 5.0, 61.0, "1 m 1 s")],
)
def test_when_a_group_has_caught_up(lag: int, rate: float | None, eta: float | None, text: str) -> None:
    row = GroupRow("g", "Stable", "OK", 1, lag, None, rate, rate, eta, [])
    assert row.cells()[-1] == text
