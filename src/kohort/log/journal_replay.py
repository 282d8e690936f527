"""Puts back into the logs what a crash took from them and the journal of small appends still has."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from kohort.log.durability.rounds import FoundRounds
from kohort.log.partition import Partition
from kohort.log.storage import recovery
from kohort.log.topic import Topic
from kohort.wire.errors import KafkaError, KohortError

log = logging.getLogger(__name__)


class DamagedJournal(KohortError):
    """What the journal has cannot be put back; the text says what to do."""

    what_to_do = "Do as the text says; restore the data directory from a copy if there is one."


def put_back(found: FoundRounds, topics_by_id: Mapping[bytes, Topic], now_ms: int) -> dict[Partition, int]:
    """Appends what the recovered logs lack; returns how many batches each partition in the journal got.

    A batch that begins at the end of its log was torn or lost with the page cache. One before the end is in the log
    already. One behind the end was not acknowledged, because the batch before it was not. Deleted topics are left out.
    """
    partitions: dict[Partition, int] = {}
    behind: dict[Partition, int] = {}
    for entry in (entry for journaled in found.rounds for entry in journaled.entries):
        topic = topics_by_id.get(entry.topic_id)
        if topic is None or entry.partition >= len(topic.partitions):
            continue
        partition = topic.partitions[entry.partition]
        partitions.setdefault(partition, 0)
        if entry.base_offset == partition.log_end_offset:
            try:
                partition.append_as_is(entry.batch, entry.header, now_ms)
            except KafkaError as error:
                raise DamagedJournal(
                    f"records of the journal cannot be written back into the log of {error.message}; "
                    "correct that and start again: the journal is kept"
                ) from error
            partitions[partition] += 1
        elif entry.base_offset > partition.log_end_offset:
            behind.setdefault(partition, entry.base_offset)
    for partition, offset in behind.items():
        log.warning(
            "%s-%d: the journal goes on at offset %d, but the log ends at %d: what is behind that is dropped, because "
            "the records between were not acknowledged, or are lost",
            partition.topic, partition.index, offset, partition.log_end_offset,
        )  # fmt: skip
    return partitions


def begin_again(partition: Partition, batches: int) -> None:
    """Deletes again what DeleteRecords had deleted before the crash; after `put_back`, when all is on disk."""
    log.warning(
        "%s-%d: %d batches up to offset %d were put back from the journal",
        partition.topic, partition.index, batches, partition.log_end_offset,
    )  # fmt: skip
    start_offset = min(recovery.read_start_offset(partition.directory), partition.log_end_offset)
    if start_offset > partition.log_start_offset:
        partition.delete_records(start_offset)
