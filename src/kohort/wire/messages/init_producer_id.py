"""A producer id and epoch for an idempotent or transactional producer.

Generated from schema/init_producer_id.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import Message


class InitProducerIdRequest(Message):
    API_KEY = 22
    __slots__ = ("transactional_id", "transaction_timeout_ms", "producer_id", "producer_epoch",)
    FIELDS = __slots__

    def __init__(
        self,
        transactional_id: str | None = "",
        transaction_timeout_ms: int = 0,
        producer_id: int = -1,
        producer_epoch: int = -1,
    ) -> None:
        self.transactional_id = transactional_id
        self.transaction_timeout_ms = transaction_timeout_ms
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch


class InitProducerIdResponse(Message):
    API_KEY = 22
    __slots__ = ("throttle_time_ms", "error_code", "producer_id", "producer_epoch",)
    FIELDS = __slots__

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        producer_id: int = -1,
        producer_epoch: int = 0,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
