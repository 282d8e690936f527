"""Which resources have settings.

Generated from schema/list_config_resources.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import Message, Struct


class ListConfigResourcesRequest(Message):
    API_KEY = 74
    __slots__ = ("resource_types",)
    FIELDS = __slots__

    def __init__(
        self,
        resource_types: list[int] | None = None,
    ) -> None:
        self.resource_types: list[int] = [] if resource_types is None else resource_types


class ConfigResource(Struct):
    __slots__ = ("resource_name", "resource_type",)
    FIELDS = __slots__

    def __init__(
        self,
        resource_name: str = "",
        resource_type: int = 16,
    ) -> None:
        self.resource_name = resource_name
        self.resource_type = resource_type


class ListConfigResourcesResponse(Message):
    API_KEY = 74
    __slots__ = ("throttle_time_ms", "error_code", "config_resources",)
    FIELDS = __slots__

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        config_resources: list[ConfigResource] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.config_resources: list[ConfigResource] = [] if config_resources is None else config_resources
