"""The settings of the transaction coordinator, with Kafka's names and defaults."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """Kafka's settings for transactions; `transaction.max.timeout.ms` is `max_timeout_ms`, and so on."""

    max_timeout_ms: int = 900_000
    id_expiration_ms: int = 604_800_000
    state_log_num_partitions: int = 50
    abort_timed_out_interval_ms: int = 10_000
    remove_expired_interval_ms: int = 3_600_000
    # How long what failed of a transaction's end waits: its markers and its Complete are tried for ever.
    retry_backoff_ms: int = 100
    # The finalized transaction.version: aborts that no client asked for use it.
    transaction_version: int = 2
