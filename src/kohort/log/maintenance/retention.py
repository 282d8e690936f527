"""Deletes old segments: by time, by size, and those before the log start offset.

Only whole segments are deleted, from the oldest on, and nothing at or after the high watermark. The active segment is
deleted too once all of its records have expired; a new one is begun first, as in Kafka.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

from kohort.log.partition import Partition
from kohort.log.storage.segment import Segment
from kohort.settings import LONG_MAX

log = logging.getLogger(__name__)

NEVER = LONG_MAX


def expire(partition: Partition, now_ms: int) -> int:
    """Deletes what has expired, and returns when there may be more, if nothing is appended until then."""
    segments = partition.segments
    if not segments or partition.stopped is not None:
        return NEVER
    config = partition.config
    _drop(partition, _before_start(partition), "they lie before the log start offset", now_ms)
    if not config.delete:
        return NEVER
    if config.retention_bytes >= 0:
        count = sum(1 for _ in _over_size(partition))
        _drop(
            partition,
            count,
            f"the log is larger than retention.bytes={config.retention_bytes}",
            now_ms,
        )
    if config.retention_ms < 0:
        return NEVER
    count = sum(1 for _ in _expired(partition, now_ms))
    _drop(partition, count, f"they are older than retention.ms={config.retention_ms}", now_ms)
    if partition.high_watermark < partition.log_end_offset:
        return now_ms
    oldest = partition.segments[0]
    return _time_of(oldest) + config.retention_ms + 1 if oldest.size else NEVER


def _deletable(partition: Partition) -> Iterator[Segment]:
    """Yields the segments, from the oldest on, that are wholly below the high watermark."""
    segments = partition.segments
    ends = [segment.base_offset for segment in segments[1:]] + [partition.log_end_offset]
    for segment, end in zip(list(segments), ends, strict=True):
        is_empty_end = segment is segments[-1] and not segment.size
        if end > partition.high_watermark or is_empty_end:
            return
        yield segment


def _before_start(partition: Partition) -> int:
    bases = [segment.base_offset for segment in partition.segments[1:]]
    return sum(1 for base in bases if base <= partition.log_start_offset)


def _over_size(partition: Partition) -> Iterator[Segment]:
    too_much = partition.size - partition.config.retention_bytes
    for segment in _deletable(partition):
        too_much -= segment.size
        if too_much < 0:
            return
        yield segment


def _expired(partition: Partition, now_ms: int) -> Iterator[Segment]:
    for segment in _deletable(partition):
        if now_ms - _time_of(segment) <= partition.config.retention_ms:
            return
        yield segment


def _time_of(segment: Segment) -> int:
    """Returns the largest timestamp of a segment's records; if they have none, when it was last written."""
    largest = segment.largest_timestamp()
    if largest >= 0:
        return largest
    try:
        return int(os.stat(segment.file.path).st_mtime * 1000)
    except OSError:
        return segment.created_ms


def _drop(partition: Partition, count: int, why: str, now_ms: int) -> None:
    if not count:
        return
    segments = partition.segments
    if count == len(segments):
        partition.roll(now_ms)
    log.info(
        "%s-%d: deleting %d segments up to offset %d: %s",
        partition.topic, partition.index, count, partition.segments[count].base_offset, why,
    )  # fmt: skip
    partition.drop_segments(count)
