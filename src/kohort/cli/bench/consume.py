"""`kohort bench consume`: how fast records are read."""

from __future__ import annotations

import time

import click

from kohort.cli.bench.measures import rates, report
from kohort.cli.bench.produce import BenchFailed, send_measured
from kohort.cli.bench.scratch import partitions_option, scratch_topic, settings_option
from kohort.cli.frame.cluster import ClusterOptions, cluster_options
from kohort.cli.frame.exit_codes import ExitCode
from kohort.cli.frame.output import json_option
from kohort.cli.records.settings import more_settings
from kohort.client.config import CONSUMER, PRODUCER
from kohort.client.consumer import Consumer
from kohort.client.producer import Producer

_STANDSTILL_S = 60.0


@click.command(epilog="Example: kohort bench consume --records 50000 --size 200")
@click.option(
    "--records", type=click.IntRange(min=1), default=100_000, show_default=True, help="How many are read."
)
@click.option("--size", type=click.IntRange(min=1), default=100, show_default=True, help="Bytes of a value.")
@click.option(
    "--max-poll-records", type=click.IntRange(min=1), default=500, show_default=True, help="In one poll."
)
@partitions_option
@settings_option
@json_option
@cluster_options
def command(
    cluster: ClusterOptions,
    records: int,
    size: int,
    max_poll_records: int,
    partitions: int,
    replication_factor: int | None,
    settings: tuple[str, ...],
    as_json: bool,
) -> int:
    """Fills a topic, which is not measured, and reads it record by record from the beginning."""
    with scratch_topic(cluster, partitions, replication_factor) as (_, topic):
        with Producer(cluster.settings(*PRODUCER.settings)) as producer:
            send_measured(producer, topic, records, size)
        own = {
            name
            for name in CONSUMER.settings
            if not name.startswith(("group.", "enable.auto", "auto.offset"))
        }
        given = {**cluster.settings(*own), **more_settings(settings), "auto.offset.reset": "earliest"}
        start_s = time.perf_counter()
        with Consumer(given) as consumer:
            consumer.assign([(topic, number) for number in range(partitions)])
            first_s, end_s, times_ms = _read(consumer, records, max_poll_records)
    figures = rates(records, size, end_s - start_s)
    figures["first_record_s"] = round(first_s - start_s, 4)
    report("consume", figures, {"poll": times_ms}, as_json=as_json)
    return ExitCode.DONE


def _read(consumer: Consumer[bytes, bytes], records: int, at_once: int) -> tuple[float, float, list[float]]:
    """Reads all records; returns when the first and the last came, and how long each poll took, in ms."""
    times_ms: list[float] = []
    read, first_s, last_s = 0, 0.0, time.perf_counter()
    while read < records:
        before_s = time.perf_counter()
        polled = consumer.poll(1.0, max_records=at_once)
        now_s = time.perf_counter()
        for found in polled.values():
            for record in found:
                read += record.value is not None
        if polled:
            first_s, last_s = first_s or now_s, now_s
            times_ms.append((now_s - before_s) * 1000)
        elif now_s - last_s > _STANDSTILL_S:
            raise BenchFailed(f"only {read} of {records} records came, and no more for {_STANDSTILL_S:.0f} s")
    return first_s, time.perf_counter(), times_ms
