"""`kohort bench produce`: how fast records are written, and how long each one takes."""

from __future__ import annotations

import time
from functools import partial
from itertools import cycle, islice
from typing import Any

import click

from kohort.cli.bench.measures import rates, report
from kohort.cli.bench.scratch import partitions_option, payloads, scratch_topic, settings_option
from kohort.cli.frame.cluster import ClusterOptions, cluster_options
from kohort.cli.frame.exit_codes import ExitCode
from kohort.cli.frame.output import json_option
from kohort.cli.records.settings import more_settings
from kohort.client.config import PRODUCER
from kohort.client.producer import Producer
from kohort.errors import KohortError

_SAMPLES = 5_000
"""The latencies of so many records are taken: to time each one would slow all of them."""


class BenchFailed(KohortError):
    """Records of a measurement were not written."""


@click.command(epilog="Example: kohort bench produce --records 50000 --size 200 -X compression.type=lz4")
@click.option(
    "--records", type=click.IntRange(min=1), default=100_000, show_default=True, help="How many are written."
)
@click.option("--size", type=click.IntRange(min=1), default=100, show_default=True, help="Bytes of a value.")
@click.option("--rate", type=click.IntRange(min=1), help="Send no more than so many records a second.")
@click.option(
    "--warm-up",
    type=click.IntRange(min=1),
    default=50_000,
    show_default=True,
    help="Records before it is measured.",
)
@partitions_option
@settings_option
@json_option
@cluster_options
def command(
    cluster: ClusterOptions,
    records: int,
    size: int,
    rate: int | None,
    warm_up: int,
    partitions: int,
    replication_factor: int | None,
    settings: tuple[str, ...],
    as_json: bool,
) -> int:
    """Sends records of random letters, and takes the time from `send` to the broker's answer."""
    with (
        scratch_topic(cluster, partitions, replication_factor) as (_, topic),
        Producer({**cluster.settings(*PRODUCER.settings), **more_settings(settings)}) as producer,
    ):
        send_measured(producer, topic, warm_up, size)
        seconds, times_ms = send_measured(producer, topic, records, size, rate)
    report("produce", rates(records, size, seconds), {"latency": times_ms}, as_json=as_json)
    return ExitCode.DONE


def send_measured(
    producer: Producer[Any, Any], topic: str, records: int, size: int, rate: int | None = None
) -> tuple[float, list[float]]:
    """Sends records and waits for all; returns the seconds, and the latencies in ms of some of them."""
    every = max(1, records // _SAMPLES)
    times_ms: list[float] = []
    errors: list[Exception] = []

    def on_delivery(sent_s: float, metadata: object, error: Exception | None) -> None:
        times_ms.append((time.perf_counter() - sent_s) * 1000)
        if error is not None:
            errors.append(error)

    start_s = time.perf_counter()
    for number, value in enumerate(islice(cycle(payloads(size)), records)):
        if rate is not None:
            _wait_for(start_s + number / rate)
        if number % every:
            producer.send(topic, value)
        else:
            producer.send(topic, value, on_delivery=partial(on_delivery, time.perf_counter()))
    producer.flush()
    seconds = time.perf_counter() - start_s
    if errors:
        raise BenchFailed(f"{len(errors)} of {len(times_ms)} records were not written: {errors[0]}")
    return seconds, times_ms


def _wait_for(due_s: float) -> None:
    early_s = due_s - time.perf_counter()
    if early_s > 0.001:
        time.sleep(early_s)
