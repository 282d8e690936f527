"""`kohort bench commit`: how fast a group's offsets are committed."""

from __future__ import annotations

import time

import click

from kohort.cli.bench.measures import report
from kohort.cli.bench.scratch import partitions_option, scratch_topic, settings_option
from kohort.cli.frame.cluster import ClusterOptions, cluster_options
from kohort.cli.frame.exit_codes import ExitCode
from kohort.cli.frame.output import json_option
from kohort.cli.records.settings import more_settings
from kohort.client.consumer import Consumer


@click.command(epilog="Example: kohort bench commit --commits 500 --partitions 10")
@click.option(
    "--commits",
    type=click.IntRange(min=1),
    default=1_000,
    show_default=True,
    help="One after the other.",
)
@partitions_option
@settings_option
@json_option
@cluster_options
def command(
    cluster: ClusterOptions,
    commits: int,
    partitions: int,
    replication_factor: int | None,
    settings: tuple[str, ...],
    as_json: bool,
) -> int:
    """Commits the offsets of all partitions again and again, each time waiting for the answer."""
    with scratch_topic(cluster, partitions, replication_factor) as (_, topic):
        given = {
            **cluster.settings(),
            **more_settings(settings),
            "group.id": topic,
            "enable.auto.commit": "false",
        }
        with Consumer(given) as consumer:
            own = [(topic, number) for number in range(partitions)]
            consumer.assign(own)
            consumer.commit(dict.fromkeys(own, 0))  # the coordinator is found
            times_ms: list[float] = []
            start_s = time.perf_counter()
            for number in range(commits):
                before_s = time.perf_counter()
                consumer.commit(dict.fromkeys(own, number))
                times_ms.append((time.perf_counter() - before_s) * 1000)
            seconds = time.perf_counter() - start_s
    figures: dict[str, object] = {
        "commits": commits,
        "partitions": partitions,
        "seconds": round(seconds, 3),
        "commits_per_s": round(commits / max(seconds, 1e-9), 1),
    }
    report("commit", figures, {"commit": times_ms}, as_json=as_json)
    return ExitCode.DONE
