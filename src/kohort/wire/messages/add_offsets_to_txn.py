"""A group whose offsets a transaction is about to commit.

Generated from schema/add_offsets_to_txn.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import Message


class AddOffsetsToTxnRequest(Message):
    API_KEY = 25
    __slots__ = ("transactional_id", "producer_id", "producer_epoch", "group_id",)
    FIELDS = __slots__

    def __init__(
        self,
        transactional_id: str = "",
        producer_id: int = 0,
        producer_epoch: int = 0,
        group_id: str = "",
    ) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.group_id = group_id


class AddOffsetsToTxnResponse(Message):
    API_KEY = 25
    __slots__ = ("throttle_time_ms", "error_code",)
    FIELDS = __slots__

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
