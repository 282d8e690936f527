"""Settings of topics and brokers.

Generated from schema/describe_configs.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import Message, Struct


class DescribeConfigsResource(Struct):
    __slots__ = ("resource_type", "resource_name", "configuration_keys",)
    FIELDS = __slots__

    def __init__(
        self,
        resource_type: int = 0,
        resource_name: str = "",
        configuration_keys: list[str] | None = None,
    ) -> None:
        self.resource_type = resource_type
        self.resource_name = resource_name
        self.configuration_keys = configuration_keys


class DescribeConfigsRequest(Message):
    API_KEY = 32
    __slots__ = ("resources", "include_synonyms", "include_documentation",)
    FIELDS = __slots__

    def __init__(
        self,
        resources: list[DescribeConfigsResource] | None = None,
        include_synonyms: bool = False,
        include_documentation: bool = False,
    ) -> None:
        self.resources: list[DescribeConfigsResource] = [] if resources is None else resources
        self.include_synonyms = include_synonyms
        self.include_documentation = include_documentation


class DescribeConfigsSynonym(Struct):
    __slots__ = ("name", "value", "source",)
    FIELDS = __slots__

    def __init__(
        self,
        name: str = "",
        value: str | None = "",
        source: int = 0,
    ) -> None:
        self.name = name
        self.value = value
        self.source = source


class DescribeConfigsResourceResult(Struct):
    __slots__ = ("name", "value", "read_only", "config_source", "is_sensitive", "synonyms", "config_type", "documentation",)
    FIELDS = __slots__

    def __init__(
        self,
        name: str = "",
        value: str | None = "",
        read_only: bool = False,
        config_source: int = -1,
        is_sensitive: bool = False,
        synonyms: list[DescribeConfigsSynonym] | None = None,
        config_type: int = 0,
        documentation: str | None = "",
    ) -> None:
        self.name = name
        self.value = value
        self.read_only = read_only
        self.config_source = config_source
        self.is_sensitive = is_sensitive
        self.synonyms: list[DescribeConfigsSynonym] = [] if synonyms is None else synonyms
        self.config_type = config_type
        self.documentation = documentation


class DescribeConfigsResult(Struct):
    __slots__ = ("error_code", "error_message", "resource_type", "resource_name", "configs",)
    FIELDS = __slots__

    def __init__(
        self,
        error_code: int = 0,
        error_message: str | None = "",
        resource_type: int = 0,
        resource_name: str = "",
        configs: list[DescribeConfigsResourceResult] | None = None,
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message
        self.resource_type = resource_type
        self.resource_name = resource_name
        self.configs: list[DescribeConfigsResourceResult] = [] if configs is None else configs


class DescribeConfigsResponse(Message):
    API_KEY = 32
    __slots__ = ("throttle_time_ms", "results",)
    FIELDS = __slots__

    def __init__(
        self,
        throttle_time_ms: int = 0,
        results: list[DescribeConfigsResult] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.results: list[DescribeConfigsResult] = [] if results is None else results
