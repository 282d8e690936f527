"""The end of a transaction: it commits or aborts.

Generated from schema/end_txn.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import Message


class EndTxnRequest(Message):
    API_KEY = 26
    __slots__ = ("transactional_id", "producer_id", "producer_epoch", "committed",)
    FIELDS = __slots__

    def __init__(
        self,
        transactional_id: str = "",
        producer_id: int = 0,
        producer_epoch: int = 0,
        committed: bool = False,
    ) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.committed = committed


class EndTxnResponse(Message):
    API_KEY = 26
    __slots__ = ("throttle_time_ms", "error_code", "producer_id", "producer_epoch",)
    FIELDS = __slots__

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        producer_id: int = -1,
        producer_epoch: int = -1,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
