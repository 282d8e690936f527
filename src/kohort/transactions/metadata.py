"""What a record of `__transaction_state` says about a transactional id."""

from __future__ import annotations

import struct
from typing import NamedTuple

from kohort.transactions.state import EMPTY, TransactionState
from kohort.wire.compiler.compile import data_codec
from kohort.wire.errors import BadFrame, BadRecord
from kohort.wire.messages.transaction_log_key import TransactionLogKey
from kohort.wire.messages.transaction_log_value import PartitionsSchema, TransactionLogValue

TopicPartition = tuple[str, int]

NO_PRODUCER_ID = NO_EPOCH = -1
LAST_EPOCH = 32_766
"""The last epoch that a producer is given; 32767 is only written when its transaction ends."""
_VALUE_VERSION = 1
_SHORT = struct.Struct(">h")
_key = data_codec("transaction_log_key", 0)
_value = data_codec("transaction_log_value", _VALUE_VERSION)


class TransactionMetadata(NamedTuple):
    """The state of a transactional id."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition]
    update_ms: int
    start_ms: int = -1
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id before the transition that this is the result of; mostly the same one."""
    next_producer_id: int = NO_PRODUCER_ID
    """The producer id that the end of the transaction switches to, because there is no epoch left."""
    client_version: int = 0
    """2 if the transition raised the epoch as transaction.version 2 does."""

    @property
    def is_exhausted(self) -> bool:
        return self.producer_epoch >= LAST_EPOCH


def encode_id(transactional_id: str) -> bytes:
    """Returns the key of the record about a transactional id."""
    return _key.encode(TransactionLogKey(transactional_id))


def encode_metadata(metadata: TransactionMetadata) -> bytes:
    """Returns the value of the record."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(metadata.partitions):
        by_topic.setdefault(topic, []).append(partition)
    partitions = tuple(PartitionsSchema(topic, tuple(ids)) for topic, ids in by_topic.items())
    return _value.encode(
        TransactionLogValue(
            metadata.producer_id,
            metadata.previous_producer_id,
            metadata.next_producer_id,
            metadata.producer_epoch,
            metadata.timeout_ms,
            metadata.state,
            None if metadata.state is EMPTY else partitions,
            metadata.update_ms,
            metadata.start_ms,
            metadata.client_version,
        )
    )


def decode_id(key: bytes) -> str | None:
    """Returns the transactional id of a key; None if a newer version wrote it. Raises BadRecord."""
    try:
        if _SHORT.unpack_from(key)[0] != 0:
            return None
        decoded: TransactionLogKey = _key.decode(key)
        return decoded.transactional_id
    except (BadFrame, struct.error) as error:
        raise BadRecord(f"a key that cannot be read ({error}): {key[:80]!r}") from error


def decode_metadata(value: bytes) -> TransactionMetadata | None:
    """Returns what a value says; None if a newer version wrote it. Raises BadRecord."""
    try:
        version: int = _SHORT.unpack_from(value)[0]
        if not 0 <= version <= _VALUE_VERSION:
            return None
        codec = _value if version == _VALUE_VERSION else data_codec("transaction_log_value", version)
        found: TransactionLogValue = codec.decode(value)
        state = TransactionState(found.transaction_status)
    except (BadFrame, struct.error, ValueError) as error:
        raise BadRecord(f"the state of a transaction that cannot be read ({error})") from error
    return TransactionMetadata(
        found.producer_id,
        found.producer_epoch,
        found.transaction_timeout_ms,
        state,
        frozenset((each.topic, p) for each in found.transaction_partitions or () for p in each.partition_ids),
        found.transaction_last_update_timestamp_ms,
        found.transaction_start_timestamp_ms,
        found.previous_producer_id,
        found.next_producer_id,
        found.client_transaction_version,
    )
