"""Which APIs and versions the broker serves.

Generated from schema/api_versions.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import Message, Struct


class ApiVersionsRequest(Message):
    API_KEY = 18
    __slots__ = ("client_software_name", "client_software_version",)
    FIELDS = __slots__

    def __init__(
        self,
        client_software_name: str = "",
        client_software_version: str = "",
    ) -> None:
        self.client_software_name = client_software_name
        self.client_software_version = client_software_version


class ApiVersion(Struct):
    __slots__ = ("api_key", "min_version", "max_version",)
    FIELDS = __slots__

    def __init__(
        self,
        api_key: int = 0,
        min_version: int = 0,
        max_version: int = 0,
    ) -> None:
        self.api_key = api_key
        self.min_version = min_version
        self.max_version = max_version


class SupportedFeatureKey(Struct):
    __slots__ = ("name", "min_version", "max_version",)
    FIELDS = __slots__

    def __init__(
        self,
        name: str = "",
        min_version: int = 0,
        max_version: int = 0,
    ) -> None:
        self.name = name
        self.min_version = min_version
        self.max_version = max_version


class FinalizedFeatureKey(Struct):
    __slots__ = ("name", "max_version_level", "min_version_level",)
    FIELDS = __slots__

    def __init__(
        self,
        name: str = "",
        max_version_level: int = 0,
        min_version_level: int = 0,
    ) -> None:
        self.name = name
        self.max_version_level = max_version_level
        self.min_version_level = min_version_level


class ApiVersionsResponse(Message):
    API_KEY = 18
    __slots__ = ("error_code", "api_keys", "throttle_time_ms", "supported_features", "finalized_features_epoch", "finalized_features", "zk_migration_ready",)
    FIELDS = __slots__

    def __init__(
        self,
        error_code: int = 0,
        api_keys: list[ApiVersion] | None = None,
        throttle_time_ms: int = 0,
        supported_features: list[SupportedFeatureKey] | None = None,
        finalized_features_epoch: int = -1,
        finalized_features: list[FinalizedFeatureKey] | None = None,
        zk_migration_ready: bool = False,
    ) -> None:
        self.error_code = error_code
        self.api_keys: list[ApiVersion] = [] if api_keys is None else api_keys
        self.throttle_time_ms = throttle_time_ms
        self.supported_features: list[SupportedFeatureKey] = [] if supported_features is None else supported_features
        self.finalized_features_epoch = finalized_features_epoch
        self.finalized_features: list[FinalizedFeatureKey] = [] if finalized_features is None else finalized_features
        self.zk_migration_ready = zk_migration_ready
