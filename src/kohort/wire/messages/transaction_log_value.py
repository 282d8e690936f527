"""The value of a record in `__transaction_state`: the state of a transactional id.

Generated from schema/transaction_log_value.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from typing import NamedTuple


class PartitionsSchema(NamedTuple):
    topic: str = ""
    partition_ids: tuple[int, ...] = ()


class TransactionLogValue(NamedTuple):
    producer_id: int = 0
    previous_producer_id: int = -1
    next_producer_id: int = -1
    producer_epoch: int = 0
    transaction_timeout_ms: int = 0
    transaction_status: int = 0
    transaction_partitions: tuple[PartitionsSchema, ...] | None = None
    transaction_last_update_timestamp_ms: int = 0
    transaction_start_timestamp_ms: int = 0
    client_transaction_version: int = 0
    next_producer_epoch: int = -1
