"""Changes the quotas of users, client ids and addresses.

Generated from schema/alter_client_quotas.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import Message, Struct


class AlterQuotaEntity(Struct):
    __slots__ = ("entity_type", "entity_name",)
    FIELDS = __slots__

    def __init__(
        self,
        entity_type: str = "",
        entity_name: str | None = "",
    ) -> None:
        self.entity_type = entity_type
        self.entity_name = entity_name


class QuotaOp(Struct):
    __slots__ = ("key", "value", "remove",)
    FIELDS = __slots__

    def __init__(
        self,
        key: str = "",
        value: float = 0.0,
        remove: bool = False,
    ) -> None:
        self.key = key
        self.value = value
        self.remove = remove


class AlterQuotaEntry(Struct):
    __slots__ = ("entity", "ops",)
    FIELDS = __slots__

    def __init__(
        self,
        entity: list[AlterQuotaEntity] | None = None,
        ops: list[QuotaOp] | None = None,
    ) -> None:
        self.entity: list[AlterQuotaEntity] = [] if entity is None else entity
        self.ops: list[QuotaOp] = [] if ops is None else ops


class AlterClientQuotasRequest(Message):
    API_KEY = 49
    __slots__ = ("entries", "validate_only",)
    FIELDS = __slots__

    def __init__(
        self,
        entries: list[AlterQuotaEntry] | None = None,
        validate_only: bool = False,
    ) -> None:
        self.entries: list[AlterQuotaEntry] = [] if entries is None else entries
        self.validate_only = validate_only


class AlterQuotaResultEntity(Struct):
    __slots__ = ("entity_type", "entity_name",)
    FIELDS = __slots__

    def __init__(
        self,
        entity_type: str = "",
        entity_name: str | None = "",
    ) -> None:
        self.entity_type = entity_type
        self.entity_name = entity_name


class AlterQuotaResult(Struct):
    __slots__ = ("error_code", "error_message", "entity",)
    FIELDS = __slots__

    def __init__(
        self,
        error_code: int = 0,
        error_message: str | None = "",
        entity: list[AlterQuotaResultEntity] | None = None,
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message
        self.entity: list[AlterQuotaResultEntity] = [] if entity is None else entity


class AlterClientQuotasResponse(Message):
    API_KEY = 49
    __slots__ = ("throttle_time_ms", "entries",)
    FIELDS = __slots__

    def __init__(
        self,
        throttle_time_ms: int = 0,
        entries: list[AlterQuotaResult] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.entries: list[AlterQuotaResult] = [] if entries is None else entries
