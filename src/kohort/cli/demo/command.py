"""`kohort demo`: runs a broker, a producer, and a group whose members come and go, one of them a pipeline on Spark.

Everything runs on this machine and ends by itself. Exit code 0: every order was processed by a member of the group,
and Spark's sums are right.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import click

from kohort.broker import running
from kohort.cli.demo.console import console_beside
from kohort.cli.demo.processes import (
    GROUP,
    PARTITIONS,
    PIPELINE,
    TOPIC,
    DemoMember,
    OrderProducer,
    PipelineProcess,
    why_no_spark,
)
from kohort.cli.demo.report import DemoWorker, Sample, draw, print_report
from kohort.cli.demo.sums import read_orders, read_sums
from kohort.client.admin import Admin
from kohort.client.consumer import Consumer
from kohort.client.types import TopicPartition
from kohort.insight.rebalances import rebalances_of

SECONDS = 40.0
PER_SECOND = 3000
LONGEST_S = 120.0
"""How long the group may take to catch up when there are no more orders."""
PATIENCE_S = 60.0
"""How long the next event waits for the group to settle."""
SPARK_START_S = 300.0
"""How long to wait for Spark before the orders begin."""
LEAST_SESSION_MS = 2000
SUMS = "revenue"
"""The folder of Spark's sums."""
_LOOK_S = 0.5
_BAR = 20


@dataclass(slots=True)
class Timeline:
    """What has happened in the demo so far."""

    seconds: float
    began: float = field(default_factory=time.monotonic)
    samples: list[Sample] = field(default_factory=list)
    events: list[tuple[float, str]] = field(default_factory=list)
    members: dict[str, DemoMember] = field(default_factory=dict)

    def now_s(self) -> float:
        return time.monotonic() - self.began

    def tell(self, text: str) -> None:
        self.events.append((self.now_s(), text))
        clear = "\r\x1b[K" if sys.stdout.isatty() else ""
        print(f"{clear}{self.now_s():5.1f} s  • {text}", flush=True)


class DemoFailed(Exception):
    """The demo did not go as it should; the text says why."""


@click.command(epilog="Example: kohort demo --out ./demo-out")
@click.option(
    "--seconds", type=float, default=SECONDS, show_default=True, help="How long orders are written."
)
@click.option(
    "--out", default="demo-out", show_default=True, metavar="DIR", help="Where picture and Parquet go."
)
def command(seconds: float, out: str) -> int:
    """Show all of it at work for about a minute.

    A broker, a producer of orders, a group whose members come, go and are killed, and a pipeline on Spark. Ends with
    tables and a picture.
    """
    return demo(seconds, Path(out))


def demo(seconds: float, out: Path) -> int:
    """Runs the demo; 0 if every order was processed, and Spark's sums are right."""
    out = writable(out)
    with tempfile.TemporaryDirectory(prefix="kohort-demo-") as directory:
        folder = Path(directory)
        began = time.perf_counter()
        with running(folder / "data", settings={"group.min.session.timeout.ms": 500}) as broker:
            took_ms = (time.perf_counter() - began) * 1000
            print(
                f"broker on {broker.bootstrap_servers}, ready in {took_ms:.0f} ms, every record synced to disk"
            )
            try:
                with console_beside(broker.bootstrap_servers):
                    return _Demo(broker.bootstrap_servers, folder, out, seconds).run()
            except DemoFailed as failure:
                print(f"\nkohort: the demo failed: {failure}", file=sys.stderr)
                return 1


def writable(wanted: Path) -> Path:
    """The folder, or a temporary one if it cannot be written to."""
    try:
        wanted.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=wanted):
            return wanted
    except OSError as error:
        other = Path(tempfile.mkdtemp(prefix="kohort-demo-out-"))
        print(f"{wanted} cannot be written to ({error.strerror}): picture and Parquet go to {other}")
        return other


class _Demo:
    def __init__(self, bootstrap: str, folder: Path, out: Path, seconds: float) -> None:
        self._bootstrap, self._folder, self._out = bootstrap, folder, out
        self._timeline = Timeline(seconds)
        self._pipeline: PipelineProcess | None = None
        self._missing: list[str] = []
        # Short timeouts, so that a lost member is noticed within the demo, but longer than a busy machine stalls.
        session_ms = max(int(seconds * 75), LEAST_SESSION_MS)
        self._stuck_s = session_ms * 2 / 1000
        self._settings = {
            "session.timeout.ms": session_ms,
            "heartbeat.interval.ms": session_ms // 6,
            "max.poll.interval.ms": session_ms * 4 // 3,
            "partition.assignment.strategy": "cooperative-sticky",
        }

    def run(self) -> int:
        timeline = self._timeline
        with contextlib.ExitStack() as closing:
            self._admin = closing.enter_context(Admin(bootstrap_servers=self._bootstrap))
            self._looker = closing.enter_context(Consumer(bootstrap_servers=self._bootstrap))
            self._admin.create_topic(TOPIC, PARTITIONS)
            print(f"topic {TOPIC} with {PARTITIONS} partitions; about {PER_SECOND:,} orders a second, lz4")
            closing.callback(self._close_members)
            self._start_spark(closing)
            self._orders = OrderProducer(self._bootstrap, timeline.seconds, PER_SECOND)
            closing.callback(self._orders.stop)
            self._wait_for_spark()
            timeline.began = time.monotonic()
            self._orders.start()
            self._run_events()
            self._catch_up()
            for member in timeline.members.values():
                member.leave()
            if self._pipeline is not None:
                timeline.tell("the pipeline is told to stop")
                self._wait_for_pipeline_end()
            return self._report()

    def _close_members(self) -> None:
        for member in self._timeline.members.values():
            member.close()

    def _start_spark(self, closing: contextlib.ExitStack) -> None:
        missing = why_no_spark()
        if missing is not None:
            self._missing.append(missing)
            print(f"no pipeline: {missing}; the rest goes on without")
            return
        self._pipeline = PipelineProcess(
            self._bootstrap, self._folder, self._folder / SUMS, self._timeline.now_s
        )
        closing.callback(self._pipeline.stop)
        print(f"kohort pipeline run {PIPELINE.name}: a member of the group {GROUP}, as any other")

    def _wait_for_spark(self) -> None:
        """Waits for the first batch of Spark, so that there is something to see from the beginning; not for ever."""
        if self._pipeline is None:
            return
        self._orders.first()
        began = time.monotonic()
        while (passed_s := time.monotonic() - began) < SPARK_START_S:
            if self._pipeline.failure is not None:
                raise DemoFailed(self._pipeline.failure)
            status = self._pipeline.status
            if status is not None and status.batch is not None:
                break
            _progress(f"Spark is starting, {passed_s:.0f} s")
            time.sleep(1.0)

    # --- what happens -----------------------------------------------------------------------------

    def _run_events(self) -> None:
        timeline = self._timeline
        events: list[tuple[float, Callable[[], None]]] = [
            (0.0, lambda: self._join("anna")),
            (0.1, lambda: self._join("bert")),
            (0.2, lambda: self._join("cleo")),
            (0.34, lambda: self._stuck("bert", self._stuck_s)),
            (0.54, lambda: self._kill("cleo")),
            (0.7, lambda: self._join("dora")),
            (0.85, lambda: self._leave("anna")),
        ]
        for share, event in events:
            at_s = share * timeline.seconds
            self._watch(lambda at_s=at_s: timeline.now_s() >= at_s and self._is_settled(), at_s + PATIENCE_S)  # type: ignore[misc]
            event()
        self._watch(lambda: not self._orders.is_alive(), timeline.seconds + 60)
        timeline.tell(f"no more orders: {self._orders.sent:,} were written")

    def _is_settled(self) -> bool:
        """Whether the last event is over, so that the next one is a rebalance of its own."""
        alive = [member for member in self._timeline.members.values() if member.is_alive]
        last = self._timeline.samples[-1]
        spark = 0 if self._pipeline is None else 1
        return not alive or (
            last.state == "Stable"
            and last.members == len(alive) + spark
            and all(each.has_partitions for each in alive)
        )

    def _join(self, name: str) -> None:
        self._timeline.tell(f"{name} joins the group {GROUP}")
        self._timeline.members[name] = DemoMember(name, self._bootstrap, self._settings, self._timeline.now_s)

    def _stuck(self, name: str, seconds: float) -> None:
        self._timeline.tell(f"{name} is stuck in its work for {seconds:.1f} s and does not poll")
        self._timeline.members[name].tell(f"stuck {seconds}")

    def _kill(self, name: str) -> None:
        member = self._timeline.members[name]
        self._timeline.tell(
            f"{name} is killed (SIGKILL to process {member.pid}): the group has to notice by itself"
        )
        member.kill()

    def _leave(self, name: str) -> None:
        self._timeline.tell(f"{name} leaves")
        self._timeline.members[name].leave()

    def _catch_up(self) -> None:
        """Waits until the group has committed everything."""
        if not self._watch(lambda: self._timeline.samples[-1].lag == 0, self._timeline.now_s() + LONGEST_S):
            raise DemoFailed(f"not everything was worked on {LONGEST_S:.0f} s after the last order")
        self._timeline.tell("everything is worked on and committed")

    def _wait_for_pipeline_end(self) -> None:
        assert self._pipeline is not None
        self._pipeline.stop()
        if self._pipeline.failure is not None:
            raise DemoFailed(self._pipeline.failure)

    # --- watching ---------------------------------------------------------------------------------

    def _watch(self, until: Callable[[], bool], deadline_s: float) -> bool:
        """Takes a sample twice a second until a condition holds; False if it does not in time."""
        timeline = self._timeline
        while True:
            if not timeline.samples or timeline.now_s() >= timeline.samples[-1].at_s + _LOOK_S:
                timeline.samples.append(self._look())
                self._show(timeline.samples[-1])
            if until():
                return True
            if timeline.now_s() > deadline_s:
                return False
            time.sleep(0.05)

    def _look(self) -> Sample:
        failures = [member.failure for member in self._timeline.members.values()]
        failures.append(self._pipeline.failure if self._pipeline is not None else None)
        if self._orders.failure is not None:
            failures.append(f"the producer: {self._orders.failure!r}")
        for failure in failures:
            if failure is not None:
                raise DemoFailed(failure)
        partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        end = sum(self._looker.end_offsets(*partitions).values())
        group = self._admin.describe_groups(GROUP)[GROUP]
        committed = self._admin.group_offsets(GROUP)
        status = None
        if self._pipeline is not None:
            status = self._pipeline.status
            self._pipeline.note_owned(
                sorted(
                    tp.partition
                    for m in group.members
                    if m.client_id.startswith("spark")
                    for tp in m.assignment
                )
            )
        return Sample(
            at_s=self._timeline.now_s(),
            written=end,
            worked=sum(member.records for member in self._timeline.members.values()),
            lag=end - sum(at.offset for at in committed.values() if at is not None),
            state=group.state,
            members=len(group.members),
            summed=None if self._pipeline is None else 0 if status is None else status.rows,
            batch=None if status is None else status.batch,
            batch_rows_per_s=0.0 if status is None else status.rows_per_second,
        )

    def _show(self, now: Sample) -> None:
        timeline = self._timeline
        if not sys.stdout.isatty() and len(timeline.samples) % 2 == 0:
            return
        done = round(min(1.0, now.at_s / timeline.seconds) * _BAR)
        line = (
            f"{now.at_s:5.1f} s  {'█' * done}{'·' * (_BAR - done)} {now.written:>7,} orders | "
            f"{GROUP}: {now.state}, {now.members} members, {now.lag:,} behind"
        )
        if self._pipeline is not None:
            what = "first batch" if now.batch is None else f"batch {now.batch}"
            line += f" | Spark: {what}, {now.summed:,} orders"
        _progress(line)

    # --- the end ----------------------------------------------------------------------------------

    def _report(self) -> int:
        timeline = self._timeline
        if sys.stdout.isatty():
            print("\r\x1b[K", end="")
        rebalances = rebalances_of(self._admin, {"bootstrap.servers": self._bootstrap}, GROUP).rebalances
        workers: dict[str, DemoWorker] = dict(timeline.members)
        if self._pipeline is None:
            good = print_report(timeline.samples, workers, self._orders.sent, rebalances)
        else:
            sums = read_sums(self._folder / SUMS)
            self._pipeline.worked = [(each.partition, each.first, each.after) for each in sums]
            self._pipeline.records = sum(each.after - each.first for each in sums)
            workers = {"spark": self._pipeline, **workers}
            orders = read_orders(self._bootstrap)
            good = print_report(timeline.samples, workers, self._orders.sent, rebalances, sums, orders)
            shutil.rmtree(self._out / SUMS, ignore_errors=True)
            shutil.copytree(self._folder / SUMS, self._out / SUMS)
            print(f"Parquet: {self._out / SUMS}")
        picture = self._out / "demo.png"
        began_ms = time.time() * 1000 - timeline.now_s() * 1000
        why_not = draw(timeline.samples, workers, rebalances, began_ms, picture)
        if why_not is None:
            print(f"picture: {picture}")
        else:
            self._missing.append(why_not)
        for missing in self._missing:
            print(f"left out: {missing}")
        print(f"{'all is well' if good else 'SOMETHING IS WRONG'}, {timeline.now_s():.0f} s")
        return 0 if good else 1


def _progress(line: str) -> None:
    """Shows a line of progress; on a terminal it replaces the one before."""
    if sys.stdout.isatty():
        print(f"\r\x1b[K{line[: shutil.get_terminal_size().columns - 1]}", end="", flush=True)
    else:
        print(line, flush=True)
