"""`kohort bench rebalance`: how long a group takes until all partitions have an owner after a member comes or goes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from functools import partial

import click

from kohort.cli.bench.measures import report
from kohort.cli.bench.produce import BenchFailed
from kohort.cli.bench.scratch import scratch_topic, settings_option
from kohort.cli.frame.cluster import ClusterOptions, cluster_options
from kohort.cli.frame.exit_codes import ExitCode
from kohort.cli.frame.output import json_option
from kohort.cli.records.settings import more_settings
from kohort.client.consumer import Consumer
from kohort.client.types import TopicPartition
from kohort.errors import KohortError

_PATIENCE_S = 120.0


class _Group:
    """The members of the group, each on a thread, and who owns which partition."""

    def __init__(self, settings: dict[str, object], topic: str, partitions: int) -> None:
        self._settings, self._topic, self._partitions = settings, topic, partitions
        self._owned: dict[int, set[TopicPartition]] = {}
        self._threads: dict[int, threading.Thread] = {}
        self._leaving: set[int] = set()
        self._changed = threading.Condition()
        self._failure: KohortError | None = None

    def join(self, member: int) -> None:
        """Starts a member."""
        with self._changed:
            self._owned[member] = set()
        thread = threading.Thread(
            target=self._run, args=(member,), name=f"bench-member-{member}", daemon=True
        )
        self._threads[member] = thread
        thread.start()

    def leave(self, member: int) -> None:
        """Has a member leave the group, and waits until it has."""
        with self._changed:
            self._leaving.add(member)
        self._threads.pop(member).join(_PATIENCE_S)
        with self._changed:
            self._owned.pop(member, None)
            self._changed.notify_all()

    def leave_all(self) -> None:
        """Ends all members."""
        with self._changed:
            self._leaving.update(self._threads)
        for member in list(self._threads):
            self.leave(member)

    def wait(self) -> None:
        """Waits until each partition has one owner, and each member has as many as there are for it."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._failure or self._is_balanced(), _PATIENCE_S):
                raise BenchFailed(f"the group has not settled within {_PATIENCE_S:.0f} s")
            if self._failure is not None:
                raise self._failure

    def _is_balanced(self) -> bool:
        counts = [len(owned) for owned in self._owned.values()]
        every = set().union(*self._owned.values())
        least = min(1, self._partitions // len(counts))
        return len(every) == sum(counts) == self._partitions and min(counts) >= least

    def _run(self, member: int) -> None:
        def assigned(partitions: Collection[TopicPartition]) -> None:
            with self._changed:
                self._owned[member].update(partitions)
                self._changed.notify_all()

        def revoked(partitions: Collection[TopicPartition]) -> None:
            with self._changed:
                self._owned[member].difference_update(partitions)

        try:
            with Consumer({**self._settings, "client.id": f"bench-{member}"}) as consumer:
                consumer.subscribe([self._topic], on_assigned=assigned, on_revoked=revoked, on_lost=revoked)
                while member not in self._leaving:
                    consumer.poll(0.05)
        except KohortError as error:
            with self._changed:
                self._failure = error
                self._changed.notify_all()


@click.command(epilog="Example: kohort bench rebalance --members 3 --rounds 5")
@click.option(
    "--members",
    type=click.IntRange(min=1, max=200),
    default=4,
    show_default=True,
    help="Of the group.",
)
@click.option(
    "--rounds", type=click.IntRange(min=1), default=10, show_default=True, help="Members that come and go."
)
@click.option("--partitions", type=click.IntRange(min=1), help="Default: two for each member.")
@click.option("--replication-factor", type=click.IntRange(min=1), help="Default: the cluster's.")
@settings_option
@json_option
@cluster_options
def command(
    cluster: ClusterOptions,
    members: int,
    rounds: int,
    partitions: int | None,
    replication_factor: int | None,
    settings: tuple[str, ...],
    as_json: bool,
) -> int:
    """Forms a group; then one member more joins and leaves again, and each time all partitions must be owned again."""
    count = partitions or 2 * (members + 1)
    with scratch_topic(cluster, count, replication_factor) as (_, topic):
        given: dict[str, object] = {
            **cluster.settings(), "heartbeat.interval.ms": 500, "enable.auto.commit": "false",
            **more_settings(settings), "group.id": topic,
        }  # fmt: skip
        group = _Group(given, topic, count)
        joins_ms: list[float] = []
        leaves_ms: list[float] = []
        try:
            start_s = time.perf_counter()
            for member in range(members):
                group.join(member)
            group.wait()
            formed_s = time.perf_counter() - start_s
            for number in range(rounds):
                joins_ms.append(_timed(partial(group.join, members + number), group))
                leaves_ms.append(_timed(partial(group.leave, members + number), group))
        finally:
            group.leave_all()
    figures: dict[str, object] = {
        "members": members,
        "partitions": count,
        "rounds": rounds,
        "formed_s": round(formed_s, 3),
        "heartbeat_interval_ms": int(str(given["heartbeat.interval.ms"])),
    }
    report("rebalance", figures, {"join": joins_ms, "leave": leaves_ms}, as_json=as_json)
    return ExitCode.DONE


def _timed(change: Callable[[], None], group: _Group) -> float:
    before_s = time.perf_counter()
    change()
    group.wait()
    return (time.perf_counter() - before_s) * 1000
