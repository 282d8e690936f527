"""What is measured. Each stage brings brokers up, alternates between them, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import load, targets
from benchmarks.targets import Target

LIFE = ("start", "memory", "recovery")
ROWS = ("start", "recovery", "memory", "produce16", "produce128", "fetch", "partitions")
# Kafka keeps deleted files for a minute; here they would only be written back under the next measurement.
_KAFKA_SETTINGS = ("log.segment.delete.delay.ms=500",)


@dataclass(slots=True)
class Run:
    """One run of the benchmarks: what to measure, how often, and what came out."""

    work: Path
    rows: tuple[str, ...]
    rounds: int
    seconds: float  # of load in one measurement
    warm_up_s: float  # before the first one; the JVM compiles for a while
    fill_mb: int
    who: tuple[str, ...]  # kafka, kohort
    say: Callable[[str], None]
    is_quick: bool = False
    busy: float = 0.0  # load average before the run: what others did on this machine
    figures: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    trouble: list[str] = field(default_factory=list)

    def wants(self, *rows: str) -> bool:
        return any(row in self.rows for row in rows)

    def note(self, figure: str, who: str, value: float) -> None:
        self.figures.setdefault((figure, who), []).append(value)

    @contextlib.contextmanager
    def guarded(self, what: str) -> Iterator[None]:
        """What fails is told at the end; the other measurements go on."""
        try:
            yield
        except (load.Refused, targets.DidNotStart, subprocess.SubprocessError, OSError) as error:
            self.trouble.append(f"{what}: {error}")
            self.say(f"{what} FAILED: {error}")


@contextlib.contextmanager
def running(target: Target) -> Iterator[Target]:
    try:
        yield target
    finally:
        target.kill()


def start(who: str, directory: Path) -> Target:
    """kafka, kohort (as it comes: durability disk), kohort-os"""
    if who == "kafka":
        return targets.apache_kafka(directory, *_KAFKA_SETTINGS)
    settings = ("durability=os",) if who == "kohort-os" else ()
    return targets.kohort(directory, *settings, name=who)


def first_produce_s(target: Target, topic: str) -> float:
    """From the start of the process until an acks=all produce to a topic was answered."""
    end = time.monotonic() + 60
    while True:
        try:
            connection = load.Connection(target.address)
            break
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.002)
    load.create_topics(connection, {topic: 1})
    load.produce_once(connection, topic, 0, load.record_batch(1, 100), 60)
    connection.close()
    return time.monotonic() - target.started


def driven(mode: str, target: Target, topic: str, seconds: float, **options: int) -> dict[str, float]:
    """Runs the load in a process of its own and returns its figures."""
    more = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    words = ["--topic", topic, "--seconds", str(seconds), *more]
    return loaded("benchmarks.load", mode, target, words, seconds + 90)


def loaded(module: str, mode: str, target: Target, words: list[str], timeout_s: float) -> dict[str, float]:
    os.sync()  # what an earlier measurement left dirty is not this one's to pay for
    command = [
        sys.executable,
        "-m",
        module,
        mode,
        "--address",
        target.address,
        "--pid",
        str(target.pid),
        *words,
    ]
    root = Path(__file__).parent.parent
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, cwd=root, check=False)
    if done.returncode:
        raise load.Refused(f"{mode} on {target.name}: {done.stderr.strip()[-300:]}")
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def life(run: Run) -> None:
    """Start, rest, crash with data, start again; a fresh directory each time."""
    rounds = min(run.rounds, 3)  # Kafka takes half a minute for one
    for round_number in range(rounds):
        for who in run.who:
            with run.guarded(f"start and recovery of {who}"):
                _one_life(
                    run,
                    who,
                    run.work / f"life-{who}-{round_number}",
                    f"round {round_number + 1}/{rounds} {who}",
                )


def _one_life(run: Run, who: str, directory: Path, label: str) -> None:
    with running(start(who, directory)) as target:
        taken = first_produce_s(target, "first")
        run.note("start", who, taken)
        run.say(f"{label}: first produce answered after {taken:.2f} s")
        if run.wants("memory"):
            time.sleep(3)
            run.note("memory_idle", who, target.rss_mb())
            run.say(f"{label}: {target.rss_mb():.0f} MB resident when idle")
        if run.wants("recovery"):
            filled = driven("produce", target, "filled", 20, batch_records=128, limit_mb=run.fill_mb)["mb"]
    if run.wants("recovery"):
        with running(start(who, directory)) as target:
            taken = first_produce_s(target, "filled")
            run.note("recovery", who, taken)
            run.say(f"{label}: ready {taken:.2f} s after SIGKILL with {filled:.0f} MB")
    shutil.rmtree(directory, ignore_errors=True)


def loads(run: Run) -> None:
    """Produce and fetch against brokers that stay up, one after the other in every round."""
    subjects = [
        name for who in run.who for name in (["kafka"] if who == "kafka" else ["kohort-os", "kohort-disk"])
    ]
    with contextlib.ExitStack() as stack:
        brokers: dict[str, Target] = {}
        for name in subjects:
            with run.guarded(f"start of {name}"):
                brokers[name] = stack.enter_context(running(start(name, run.work / f"load-{name}")))
        for round_number in range(run.rounds + 1):
            if not round_number:
                run.say(f"warming up {', '.join(brokers)}")
            _load_round(run, list(brokers.values()), round_number)
        for name, target in brokers.items():
            run.note("memory_loaded", name, target.rss_mb())


def _load_round(run: Run, brokers: list[Target], round_number: int) -> None:
    """Row by row over all brokers, so that what is compared was measured within seconds. Round 0 is the warm-up."""
    used = []
    for records in (16, 128):
        if run.wants(f"produce{records}") or (records == 128 and run.wants("fetch")):
            used.append(topic := f"p{records}-{round_number}")
            for target in brokers:
                _noted(
                    run,
                    target,
                    f"produce{records}",
                    round_number,
                    topic,
                    batch_records=records,
                    limit_mb=1000,
                )
    for target in brokers:
        if run.wants("fetch") and target.name != "kohort-disk":  # reading does not know about durability
            _noted(run, target, "fetch", round_number, used[-1])
    for target in brokers:
        with run.guarded(f"deleting topics of {target.name}"):
            connection = load.Connection(target.address)
            load.delete_topics(connection, *used)
            connection.close()


def _noted(run: Run, target: Target, row: str, round_number: int, topic: str, **options: int) -> None:
    mode = "fetch" if row == "fetch" else "produce"
    # A JVM compiles for a while; Python does not.
    seconds = run.seconds if round_number else run.warm_up_s if target.name == "kafka" else run.seconds / 2
    with run.guarded(f"{row} on {target.name}"):
        figures = driven(mode, target, topic, seconds, **options)
        if round_number:
            _note_load(run, target, row, round_number, figures)


def _note_load(run: Run, target: Target, row: str, round_number: int, figures: dict[str, float]) -> None:
    for figure in ("mb_per_s", "cpu_s_per_gb", "load_cpu_s_per_gb"):
        run.note(f"{row}_{figure}", target.name, figures[figure])
    text = f"{figures['mb_per_s']:.0f} MB/s, {figures['cpu_s_per_gb']:.2f} CPU s/GB"
    run.say(f"round {round_number}/{run.rounds} {target.name} {row}: {text}")


def partitions(run: Run) -> None:
    """What 10,000 partitions cost Kohort: made, written once each, and after a clean stop and start."""
    directory, topics = run.work / "partitions", {f"many-{i}": 1000 for i in range(10)}
    if "kohort" not in run.who:
        return
    with run.guarded("10,000 partitions"):
        with running(start("kohort-os", directory)) as target:
            resource.prlimit(target.pid, resource.RLIMIT_NOFILE, (1024, 1024))
            connection = load.Connection(target.address)
            load.create_topics(connection, {"first": 1})
            before = target.rss_mb()
            for name, count in topics.items():
                load.create_topics(connection, {name: count})
            run.note("partitions_made", "kohort", target.rss_mb())
            run.note("partitions_each_kb", "kohort", (target.rss_mb() - before) * 1024 / 10_000)
            run.say(f"10,000 partitions made: {before:.0f} -> {target.rss_mb():.0f} MB")
            batch = load.record_batch(1, 100)
            for name, count in topics.items():
                for index in range(count):
                    load.produce_once(connection, name, index, batch)
            connection.close()
            run.note("partitions_written", "kohort", target.rss_mb())
            run.note("partitions_written_each_kb", "kohort", (target.rss_mb() - before) * 1024 / 10_000)
            run.say(f"10,000 partitions with a record each: {target.rss_mb():.0f} MB")
            target.stop()
        with running(start("kohort-os", directory)) as target:
            taken = first_produce_s(target, "many-0")
            run.note("partitions_start", "kohort", taken)
            run.note("partitions_restarted", "kohort", target.rss_mb())
            run.say(
                f"10,000 partitions, clean restart: produce after {taken:.2f} s, {target.rss_mb():.0f} MB"
            )
    shutil.rmtree(directory, ignore_errors=True)


def measure(run: Run) -> None:
    if run.wants(*LIFE):
        life(run)
    if run.wants("produce16", "produce128", "fetch"):
        loads(run)
    if run.wants("partitions"):
        partitions(run)
