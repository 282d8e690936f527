"""Lists the quotas of users, client ids and addresses.

Generated from schema/describe_client_quotas.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import Message, Struct


class QuotaFilterComponent(Struct):
    __slots__ = ("entity_type", "match_type", "match",)
    FIELDS = __slots__

    def __init__(
        self,
        entity_type: str = "",
        match_type: int = 0,
        match: str | None = "",
    ) -> None:
        self.entity_type = entity_type
        self.match_type = match_type
        self.match = match


class DescribeClientQuotasRequest(Message):
    API_KEY = 48
    __slots__ = ("components", "strict",)
    FIELDS = __slots__

    def __init__(
        self,
        components: list[QuotaFilterComponent] | None = None,
        strict: bool = False,
    ) -> None:
        self.components: list[QuotaFilterComponent] = [] if components is None else components
        self.strict = strict


class QuotaEntity(Struct):
    __slots__ = ("entity_type", "entity_name",)
    FIELDS = __slots__

    def __init__(
        self,
        entity_type: str = "",
        entity_name: str | None = "",
    ) -> None:
        self.entity_type = entity_type
        self.entity_name = entity_name


class QuotaValue(Struct):
    __slots__ = ("key", "value",)
    FIELDS = __slots__

    def __init__(
        self,
        key: str = "",
        value: float = 0.0,
    ) -> None:
        self.key = key
        self.value = value


class QuotaEntry(Struct):
    __slots__ = ("entity", "values",)
    FIELDS = __slots__

    def __init__(
        self,
        entity: list[QuotaEntity] | None = None,
        values: list[QuotaValue] | None = None,
    ) -> None:
        self.entity: list[QuotaEntity] = [] if entity is None else entity
        self.values: list[QuotaValue] = [] if values is None else values


class DescribeClientQuotasResponse(Message):
    API_KEY = 48
    __slots__ = ("throttle_time_ms", "error_code", "error_message", "entries",)
    FIELDS = __slots__

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
        entries: list[QuotaEntry] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.entries = entries
