"""What metrics cost a broker at full load: `python -m benchmarks.metrics [--quick]`.

Two brokers, one with `--metrics` and one without, take turns under the same load, and their CPU for each request is
compared. On a machine that does other work too, that differs by some percent from round to round. So the counting alone
is measured as well: requests are put into a connection of a broker within a process of its own, its answers go nowhere,
and the shortest of many runs with counting is compared with the shortest without.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from benchmarks import group_rows, load, report, rows, targets
from benchmarks.group_frames import TOPIC, commit_frame, find_coordinator, heartbeat_frame, join_alone
from benchmarks.targets import Target
from kohort.broker.net.outbox import Outbox
from kohort.broker.node import start
from kohort.broker.running import new_event_loop

GOAL_PERCENT = 1.0
HEAD = ["load", "unit", "without", "with metrics", "difference", "counting alone", "of a request", "goal", ""]
_SETTINGS = ("durability=os", "group.initial.rebalance.delay.ms=0")
_BATCH = 50
_IN_FLIGHT = 5  # requests in one read, as producers send them
_PARTITIONS = list(range(10))


# --- the whole broker ---------------------------------------------------------------------------------


def heartbeats(target: Target, seconds: float) -> float:
    return group_rows.driven("heartbeat", target, seconds)["cpu_us"]


def commits(target: Target, seconds: float) -> float:
    return group_rows.driven("commit", target, seconds)["cpu_us"]


def produce(target: Target, seconds: float) -> float:
    """CPU in µs of a Produce with a batch of 16 records of 1 KB."""
    figures = rows.driven("produce", target, "metered", seconds, limit_mb=600, batch_records=16)
    return figures["cpu_s_per_gb"] * 1e6 / (1024 * 1024 / 16)


def fetch(target: Target, seconds: float) -> float:
    """CPU in µs of a Fetch of 1 MB."""
    return rows.driven("fetch", target, "metered", seconds)["cpu_s_per_gb"] * 1e6 / 1024


Costs = dict[str, list[tuple[float, float]]]
"""The CPU µs of a request without and with metrics, by load, in each round."""
Load = Callable[[Target, float], float]
# Each load, how it is made, what of it is counted alone, and whether the goal is for it. Heartbeats are the lightest
# requests there are; a broker that has nothing else to do would have 200,000 members of groups.
LOADS: tuple[tuple[str, Load, str, bool], ...] = (
    ("Produce of 16 KB", produce, "produce", True),
    ("Fetch of 1 MB", fetch, "heartbeat", True),
    ("OffsetCommit of 10 partitions", commits, "commit", True),
    ("Heartbeat", heartbeats, "heartbeat", False),
)


def in_turns(rounds: int, seconds: float, say: Callable[[str], None]) -> tuple[Costs, float]:
    """Returns the CPU of a request without and with metrics, by load and round, and the CPU ms of one scrape."""
    found: Costs = {name: [] for name, *_ in LOADS}
    with targets.workshop() as work, ExitStack() as stack:
        off = stack.enter_context(rows.running(targets.kohort(work / "off", *_SETTINGS, name="off")))
        on = stack.enter_context(
            rows.running(targets.kohort(work / "on", *_SETTINGS, name="on", options=("--metrics", "0")))
        )
        for number in range(rounds + 1):
            for name, make, _, _ in LOADS:
                pair = (off, on) if number % 2 else (on, off)
                cost = {target.name: make(target, seconds) for target in pair}
                if number:  # the first round warms up
                    found[name].append((cost["off"], cost["on"]))
                    say(
                        f"round {number}/{rounds} {name}: {cost['off']:.2f} µs, with metrics {cost['on']:.2f} µs"
                    )
        return found, _scrape_ms(on)


def _scrape_ms(target: Target) -> float:
    told = re.search(r"metrics: (http://\S+)", target.log.read_text())
    assert told, "the broker says where its metrics are"
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    before, count = target.cpu_s(), 50
    for _ in range(count):
        direct.open(told[1], timeout=60).read()
    return (target.cpu_s() - before) * 1000 / count


# --- counting alone -----------------------------------------------------------------------------------


async def _alone(mode: str, is_metered: bool, rounds: int) -> float:
    """Nanoseconds of one request that is handled in memory, the least of many."""
    settings = {"durability": "memory", "group.initial.rebalance.delay.ms": "0"}
    server = await start(
        settings, directory=None, listen="127.0.0.1:0", on_fatal=sys.exit, is_metered=is_metered
    )

    def prepare() -> tuple[load.Connection, bytes]:
        client = load.Connection(str(server.listeners[0].told))
        find_coordinator(client, "alone")
        if mode == "heartbeat":
            return client, heartbeat_frame("alone", *join_alone(client, "alone"))
        load.create_topics(client, {TOPIC: len(_PARTITIONS)})
        if mode == "produce":
            return client, load.produce_frame(TOPIC, 0, load.record_batch(1, 100)) * _IN_FLIGHT
        frame = commit_frame("alone", _PARTITIONS, 5)
        for _ in range(4):  # then it is recognized
            client.call(frame)
        return client, frame

    _, frame = await asyncio.get_running_loop().run_in_executor(None, prepare)
    (connection,) = server.admission.connections
    Outbox._send = _go_nowhere  # type: ignore[method-assign, assignment]
    size, arrive, least = len(frame), connection.buffer_updated, float("inf")
    buffer = server.scratch[:size]
    for _ in range(rounds):
        begun = time.perf_counter_ns()
        for _ in range(_BATCH):
            buffer[:] = frame  # the broker writes offsets into it
            arrive(size)
        least = min(least, (time.perf_counter_ns() - begun) / _BATCH)
    return least / _IN_FLIGHT if mode == "produce" else least


def _go_nowhere(outbox: Outbox) -> bool:
    outbox._queue.clear()
    return True


def alone(mode: str, is_metered: bool, rounds: int) -> float:
    """Measures in this process, which is for nothing else."""
    return new_event_loop().run_until_complete(_alone(mode, is_metered, rounds))


def counting_ns(mode: str, tries: int, rounds: int) -> float:
    """What counting adds to one request: each try is a pair of new processes, and the median of them counts."""
    differences = []
    for _ in range(tries):
        least = [_in_a_process(mode, word, rounds) for word in ("off", "on")]
        differences.append(least[1] - least[0])
    return statistics.median(differences)


def _in_a_process(mode: str, word: str, rounds: int) -> float:
    command = [sys.executable, "-m", "benchmarks.metrics", "--alone", mode, word, str(rounds)]
    root = Path(__file__).parent.parent
    return float(
        subprocess.run(command, capture_output=True, text=True, timeout=300, check=True, cwd=root).stdout
    )


# --- the report ---------------------------------------------------------------------------------------


def table(found: Costs, counting: dict[str, float]) -> list[list[str]]:
    lines = []
    for name, _, mode, has_goal in LOADS:
        off, on = (min(each) for each in zip(*found[name], strict=True))
        share = counting[mode] / 10 / off  # ns of µs, in percent
        verdict = ("met" if share < GOAL_PERCENT else "MISSED") if has_goal else ""
        goal = f"< {GOAL_PERCENT:.0f} %" if has_goal else ""
        lines.append(
            [name, "CPU µs", f"{off:.1f}", f"{on:.1f}", f"{on / off - 1:+.1%}", f"{counting[mode]:.0f} ns"]
            + [f"{share:.2f} %", goal, verdict]
        )
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.metrics", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round; writes nothing")
    parser.add_argument("--rounds", type=int, default=9, help="how often the brokers take turns (default 9)")
    parser.add_argument("--alone", nargs=3, metavar=("MODE", "ON", "ROUNDS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone:
        mode, word, count = options.alone
        print(alone(mode, word == "on", int(count)))
        return 0
    begun = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - begun:4.0f} s] {text}", file=sys.stderr, flush=True)

    rounds, seconds = (1, 0.5) if options.quick else (options.rounds, 1.5)
    found, scrape_ms = in_turns(rounds, seconds, say)
    tries, count = (1, 200) if options.quick else (5, 2000)
    counting = {mode: counting_ns(mode, tries, count) for mode in ("heartbeat", "commit", "produce")}
    lines = table(found, counting)
    widths = [max(len(row[i]) for row in [HEAD, *lines]) for i in range(len(HEAD))]
    for row in [HEAD, *lines]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    print(f"one scrape: {scrape_ms:.1f} ms of CPU")
    if not options.quick:
        _write(lines, rounds, scrape_ms)
    return 0


def _write(lines: list[list[str]], rounds: int, scrape_ms: float) -> None:
    command = " ".join(["python -m benchmarks.metrics", *sys.argv[1:]])
    body = [
        "## What metrics cost",
        "",
        f"`{command}`, {time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC, the least of "
        f"{rounds} rounds in turns. Machine: {report.machine()}.",
        "",
        *("| " + " | ".join(row) + " |" for row in [HEAD, ["---"] * len(HEAD), *lines]),
        "",
        "- difference: of the whole broker's CPU for a request, as the kernel counts it; it varies by some percent "
        "from run to run, because the machine does other work too.",
        "- counting alone: what a metered connection adds to a request that is handled in memory (least of many runs, "
        "in new processes); of a request: its share of the CPU without metrics, which is what the goal is about.",
        "- Produce is counted with five requests in one read, as producers send them; Fetch as a heartbeat is.",
        f"- One scrape of a broker with few topics and groups takes {scrape_ms:.1f} ms of CPU.",
    ]
    report.replace_section("metrics", body)
    print(f"written: {report.HERE}/RESULTS.md")


if __name__ == "__main__":
    sys.exit(main())
