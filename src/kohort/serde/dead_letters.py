"""Puts a record that cannot be deserialized into a dead-letter topic, as it was read, with the reason in its headers.

    try:
        records = consumer.poll(1.0)
    except DeserializationFailed as failed:
        dead_letter(failed, consumer, producer, "orders.dlq")

A failure that is not the record's fault (the schema registry is away) is raised again: the record stays where it is.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from kohort.client.errors import DeserializationFailed
from kohort.serde.errors import MissingPackage, RegistryAccessDenied, RegistryError, SchemaNotFound

if TYPE_CHECKING:
    from kohort import Consumer, Producer, ProducerRecord

_log = logging.getLogger("kohort.serde")

PREFIX = "__kohort.errors."
"""The headers are this and: topic, partition, offset, timestamp, origin, exception.class.name, exception.message."""

_LONGEST_REASON = 4096


def dead_letter(
    failed: DeserializationFailed,
    consumer: Consumer[Any, Any],
    producer: Producer[Any, Any],
    topic: str,
    timeout: float = 60,
) -> None:
    """Writes the record that failed to a dead-letter topic, waits until it is written, and seeks past it.

    The producer must send bytes as they are: one without serializers. If the record cannot be written, the exception
    says why and the consumer stays before it: nothing is lost. If the program ends between the write and the next
    commit, the record is read and written once more.
    """
    record = dead_letter_record(failed, topic)
    producer.send(*record).result(timeout)
    consumer.seek(failed.partition, failed.offset + 1)
    _log.warning("%s at offset %d is now in %s: %s", failed.partition, failed.offset, topic, failed.__cause__)


def dead_letter_record(failed: DeserializationFailed, topic: str) -> ProducerRecord:
    """Returns the record for a dead-letter topic: key, value, headers and timestamp as they were, and the reason.

    For AsyncProducer: `await (await producer.send(*dead_letter_record(failed, "orders.dlq")))`. It raises the failure
    again if the record is not at fault.
    """
    from kohort import ProducerRecord

    if not is_of_the_record(failed):
        raise failed
    cause = failed.__cause__
    reason = {
        "topic": failed.topic,
        "partition": failed.partition.partition,
        "offset": failed.offset,
        "timestamp": failed.timestamp,
        "origin": failed.origin,
        "exception.class.name": type(cause if cause is not None else failed).__qualname__,
        "exception.message": str(cause if cause is not None else failed)[:_LONGEST_REASON],
    }
    headers = [*failed.headers, *((PREFIX + name, str(value).encode()) for name, value in reason.items())]
    timestamp_ms = failed.timestamp if failed.timestamp >= 0 else None
    return ProducerRecord(topic, failed.value, failed.key, headers, None, timestamp_ms)


def is_of_the_record(failed: DeserializationFailed) -> bool:
    """Says whether the record is at fault, and not the registry, its credentials or a missing package."""
    cause = failed.__cause__
    if isinstance(cause, MissingPackage | RegistryAccessDenied):
        return False
    return not isinstance(cause, RegistryError) or isinstance(cause, SchemaNotFound)
