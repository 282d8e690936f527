"""What is measured of groups: requests, rebalances, what rest costs, and how long a long log takes to load."""

from __future__ import annotations

import contextlib
import resource
import shutil
import time
from pathlib import Path

from benchmarks import group_frames, load, targets
from benchmarks.rows import Run, loaded, running
from benchmarks.targets import Target

ROWS = ("heartbeat", "consumer_heartbeat", "commit", "rebalance", "big_group", "idle_groups", "reload")
_NO_DELAY = "group.initial.rebalance.delay.ms=0"
BIG, IDLE_S = 5000, 5.0
_SETTLED_S = 1.0  # the upkeep of a broker has looked at everything once
_CHECKPOINT = "cleaner-offset-checkpoint"  # its rows: topic, partition, first dirty offset


def measure(run: Run) -> None:
    # 5,000 members each have a connection; the brokers inherit the limit.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if run.wants("heartbeat", "consumer_heartbeat", "commit", "rebalance", "big_group"):
        side_by_side(run)
    if "kohort" in run.who and run.wants("idle_groups"):
        with run.guarded("idle groups"):
            idle_groups(run)
    if "kohort" in run.who and run.wants("reload"):
        with run.guarded("start with a long log of commits"):
            reload(run)


def driven(mode: str, target: Target, seconds: float = 0, **options: int) -> dict[str, float]:
    words = ["--seconds", str(seconds)]
    words += [word for name, value in options.items() for word in (f"--{name}", str(value))]
    return loaded("benchmarks.group_load", mode, target, words, seconds + 180)


def start(name: str, directory: Path, *settings: str) -> Target:
    """kafka, kohort-os, kohort-disk; nobody waits for a first member's companions."""
    if name == "kafka":
        return targets.apache_kafka(directory, _NO_DELAY, *settings)
    return targets.kohort(directory, f"durability={name[7:]}", _NO_DELAY, *settings, name=name)


# --- beside Kafka ---


def side_by_side(run: Run) -> None:
    """Brokers that stay up, one after the other in every round; round 0 is the warm-up."""
    names = [
        name for who in run.who for name in (["kafka"] if who == "kafka" else ["kohort-os", "kohort-disk"])
    ]
    with contextlib.ExitStack() as stack:
        brokers: list[Target] = []
        for name in names:
            with run.guarded(f"start of {name}"):
                brokers.append(stack.enter_context(running(start(name, run.work / f"groups-{name}"))))
        run.say(f"groups: warming up {', '.join(target.name for target in brokers)}")
        for round_number in range(run.rounds + 1):
            for row in ("heartbeat", "consumer_heartbeat", "commit", "rebalance"):
                for target in brokers if run.wants(row) else ():
                    with run.guarded(f"{row} on {target.name}"):
                        _one(run, row, target, round_number)
        for target in brokers if run.wants("big_group") else ():
            with run.guarded(f"a group of {BIG} on {target.name}"):
                _big_group(run, target)


def _one(run: Run, row: str, target: Target, round_number: int) -> None:
    is_kafka = target.name == "kafka"
    label = f"round {round_number}/{run.rounds} {target.name} {row}"
    if row == "rebalance":
        figures = driven(row, target, rounds=5 if round_number or not is_kafka or run.is_quick else 60)
        if round_number:
            run.note("rebalance_s", target.name, figures["rejoin_s"])
            run.say(
                f"{label}: {figures['rejoin_s'] * 1000:.0f} ms, {figures['rejoin_cpu_s'] * 1000:.0f} ms of CPU"
            )
    elif row == "commit" or target.name != "kohort-disk":  # a heartbeat does not know about durability
        # A JVM compiles for a while, a commit longer than a heartbeat; Python does not.
        warm_up_s = run.warm_up_s / (1 if row == "commit" else 2) if is_kafka else 1
        seconds = min(run.seconds, 2) if round_number else warm_up_s
        figures = driven(row, target, seconds)
        if round_number:
            run.note(f"{row}_per_s", target.name, figures["per_s"])
            run.note(f"{row}_cpu_us", target.name, figures["cpu_us"])
            text = f"{figures['per_s']:.0f}/s, {figures['cpu_us']:.0f} µs of CPU each"
            run.say(f"{label}: {text} (the load's own: {figures['load_cpu_us']:.0f} µs)")


def _big_group(run: Run, target: Target) -> None:
    figures = driven("rebalance", target, members=BIG, rounds=3)
    run.note("big_group_first_s", target.name, figures["first_s"])
    run.note("big_group_rejoin_s", target.name, figures["rejoin_s"])
    run.say(
        f"{target.name}: {BIG} members settle in {figures['first_s']:.2f} s, again in {figures['rejoin_s']:.2f} s"
    )


# --- Kohort alone ---


def idle_groups(run: Run) -> None:
    """What groups cost while nothing happens: memory each, and CPU of the whole broker."""
    count = 1000 if run.is_quick else 10_000
    with running(start("kohort-os", run.work / "idle-groups")) as target:
        driven("idle", target, count=1)
        time.sleep(_SETTLED_S)
        before = target.rss_mb()
        driven("idle", target, count=count)
        time.sleep(_SETTLED_S)
        run.note("idle_group_kb", "kohort", (target.rss_mb() - before) * 1024 / count)
        cpu_0 = target.cpu_s()
        time.sleep(IDLE_S)
        run.note("idle_cpu_percent", "kohort", (target.cpu_s() - cpu_0) * 100 / IDLE_S)
        run.say(
            f"{count} idle groups: {before:.0f} -> {target.rss_mb():.0f} MB, {target.cpu_s() - cpu_0:.2f} s of CPU"
        )
    shutil.rmtree(run.work / "idle-groups", ignore_errors=True)


def reload(run: Run) -> None:
    """A start with a million commits of one group in one partition of `__consumer_offsets`.

    With its segments of 100 MB the topic has one sealed segment then; that is what compaction can work on.
    """
    directory, count = run.work / "reload", 1_000_000
    uncleaned = ["log.cleaner.enable=false"]
    if run.is_quick:
        count = 100_000
        uncleaned.append(f"offsets.topic.segment.bytes={8 * load.MB}")
    with running(start("kohort-os", directory, *uncleaned)) as target:
        figures = driven("fill", target, count=count)
        last = int(figures["last"])
        run.say(f"{count} commits written in {figures['seconds']:.0f} s, {offsets_mb(directory):.0f} MB")
        target.stop()
    with running(start("kohort-os", directory, *uncleaned)) as target:
        _note_reload(run, target, "reload_full", last)
        target.stop()
    with running(start("kohort-os", directory, "log.cleaner.backoff.ms=200")) as target:
        first_answer_s(target, last)
        _compacted(target)
        target.stop()
    with running(start("kohort-os", directory)) as target:
        _note_reload(run, target, "reload_compacted", last)
        target.kill()
    with running(start("kohort-os", directory)) as target:
        _note_reload(run, target, "reload_crashed", last)
    shutil.rmtree(directory, ignore_errors=True)


def _note_reload(run: Run, target: Target, key: str, last: int) -> None:
    taken = first_answer_s(target, last)
    run.note(f"{key}_s", "kohort", taken)
    run.note(f"{key}_mb", "kohort", offsets_mb(target.data))
    run.say(f"{key}: group answered after {taken:.2f} s with {offsets_mb(target.data):.0f} MB of commits")


def first_answer_s(target: Target, last: int) -> float:
    """From the start of the process until the committed offset is told; it must be the last one committed."""
    connection, end = load.Connection(target.address), time.monotonic() + 120
    while True:
        code, offset = group_frames.committed(connection, "filled", 0)
        if code == 0:
            break
        if code not in group_frames.NOT_YET or time.monotonic() > end:
            raise load.Refused(f"OffsetFetch answered {code}")
        time.sleep(0.002)
    taken = time.monotonic() - target.started
    connection.close()
    if offset != last:
        raise load.Refused(f"offset {last} was committed and {offset} is there")
    return taken


def _compacted(target: Target, limit_s: float = 60) -> None:
    """Waits until a pass over the sealed segments is done."""
    checkpoint, end = target.data / _CHECKPOINT, time.monotonic() + limit_s
    while (
        not checkpoint.exists()
        or _partition(target.data).name.replace("-", " ") not in checkpoint.read_text()
    ):
        if time.monotonic() > end:
            raise load.Refused(f"__consumer_offsets was not compacted in {limit_s:.0f} s")
        time.sleep(0.1)


def _partition(data: Path) -> Path:
    return max(data.glob("**/__consumer_offsets-*"), key=_size)


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("*.log"))


def offsets_mb(data: Path) -> float:
    return _size(_partition(data)) / load.MB
