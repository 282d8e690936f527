"""State of transactional ids.

Generated from schema/describe_transactions.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import Message, Struct


class DescribeTransactionsRequest(Message):
    API_KEY = 65
    __slots__ = ("transactional_ids",)
    FIELDS = __slots__

    def __init__(
        self,
        transactional_ids: list[str] | None = None,
    ) -> None:
        self.transactional_ids: list[str] = [] if transactional_ids is None else transactional_ids


class TransactionTopicData(Struct):
    __slots__ = ("topic", "partitions",)
    FIELDS = __slots__

    def __init__(
        self,
        topic: str = "",
        partitions: list[int] | None = None,
    ) -> None:
        self.topic = topic
        self.partitions: list[int] = [] if partitions is None else partitions


class DescribedTransactionState(Struct):
    __slots__ = ("error_code", "transactional_id", "transaction_state", "transaction_timeout_ms", "transaction_start_time_ms", "producer_id", "producer_epoch", "topics",)
    FIELDS = __slots__

    def __init__(
        self,
        error_code: int = 0,
        transactional_id: str = "",
        transaction_state: str = "",
        transaction_timeout_ms: int = 0,
        transaction_start_time_ms: int = 0,
        producer_id: int = 0,
        producer_epoch: int = 0,
        topics: list[TransactionTopicData] | None = None,
    ) -> None:
        self.error_code = error_code
        self.transactional_id = transactional_id
        self.transaction_state = transaction_state
        self.transaction_timeout_ms = transaction_timeout_ms
        self.transaction_start_time_ms = transaction_start_time_ms
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.topics: list[TransactionTopicData] = [] if topics is None else topics


class DescribeTransactionsResponse(Message):
    API_KEY = 65
    __slots__ = ("throttle_time_ms", "transaction_states",)
    FIELDS = __slots__

    def __init__(
        self,
        throttle_time_ms: int = 0,
        transaction_states: list[DescribedTransactionState] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.transaction_states: list[DescribedTransactionState] = [] if transaction_states is None else transaction_states
