"""Replaces all settings of a resource.

Generated from schema/alter_configs.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import Message, Struct


class AlterableConfig(Struct):
    __slots__ = ("name", "value",)
    FIELDS = __slots__

    def __init__(
        self,
        name: str = "",
        value: str | None = "",
    ) -> None:
        self.name = name
        self.value = value


class AlterConfigsResource(Struct):
    __slots__ = ("resource_type", "resource_name", "configs",)
    FIELDS = __slots__

    def __init__(
        self,
        resource_type: int = 0,
        resource_name: str = "",
        configs: list[AlterableConfig] | None = None,
    ) -> None:
        self.resource_type = resource_type
        self.resource_name = resource_name
        self.configs: list[AlterableConfig] = [] if configs is None else configs


class AlterConfigsRequest(Message):
    API_KEY = 33
    __slots__ = ("resources", "validate_only",)
    FIELDS = __slots__

    def __init__(
        self,
        resources: list[AlterConfigsResource] | None = None,
        validate_only: bool = False,
    ) -> None:
        self.resources: list[AlterConfigsResource] = [] if resources is None else resources
        self.validate_only = validate_only


class AlterConfigsResourceResponse(Struct):
    __slots__ = ("error_code", "error_message", "resource_type", "resource_name",)
    FIELDS = __slots__

    def __init__(
        self,
        error_code: int = 0,
        error_message: str | None = "",
        resource_type: int = 0,
        resource_name: str = "",
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message
        self.resource_type = resource_type
        self.resource_name = resource_name


class AlterConfigsResponse(Message):
    API_KEY = 33
    __slots__ = ("throttle_time_ms", "responses",)
    FIELDS = __slots__

    def __init__(
        self,
        throttle_time_ms: int = 0,
        responses: list[AlterConfigsResourceResponse] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.responses: list[AlterConfigsResourceResponse] = [] if responses is None else responses
