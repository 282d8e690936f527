"""The transactional ids that this broker coordinates.

Generated from schema/list_transactions.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import Message, Struct


class ListTransactionsRequest(Message):
    API_KEY = 66
    __slots__ = ("state_filters", "producer_id_filters", "duration_filter", "transactional_id_pattern",)
    FIELDS = __slots__

    def __init__(
        self,
        state_filters: list[str] | None = None,
        producer_id_filters: list[int] | None = None,
        duration_filter: int = -1,
        transactional_id_pattern: str | None = None,
    ) -> None:
        self.state_filters: list[str] = [] if state_filters is None else state_filters
        self.producer_id_filters: list[int] = [] if producer_id_filters is None else producer_id_filters
        self.duration_filter = duration_filter
        self.transactional_id_pattern = transactional_id_pattern


class ListedTransactionState(Struct):
    __slots__ = ("transactional_id", "producer_id", "transaction_state",)
    FIELDS = __slots__

    def __init__(
        self,
        transactional_id: str = "",
        producer_id: int = 0,
        transaction_state: str = "",
    ) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.transaction_state = transaction_state


class ListTransactionsResponse(Message):
    API_KEY = 66
    __slots__ = ("throttle_time_ms", "error_code", "unknown_state_filters", "transaction_states",)
    FIELDS = __slots__

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        unknown_state_filters: list[str] | None = None,
        transaction_states: list[ListedTransactionState] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.unknown_state_filters: list[str] = [] if unknown_state_filters is None else unknown_state_filters
        self.transaction_states: list[ListedTransactionState] = [] if transaction_states is None else transaction_states
