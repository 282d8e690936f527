"""Finalizes levels of features such as transaction.version.

Generated from schema/update_features.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import Message, Struct


class FeatureUpdateKey(Struct):
    __slots__ = ("feature", "max_version_level", "allow_downgrade", "upgrade_type",)
    FIELDS = __slots__

    def __init__(
        self,
        feature: str = "",
        max_version_level: int = 0,
        allow_downgrade: bool = False,
        upgrade_type: int = 1,
    ) -> None:
        self.feature = feature
        self.max_version_level = max_version_level
        self.allow_downgrade = allow_downgrade
        self.upgrade_type = upgrade_type


class UpdateFeaturesRequest(Message):
    API_KEY = 57
    __slots__ = ("timeout_ms", "feature_updates", "validate_only",)
    FIELDS = __slots__

    def __init__(
        self,
        timeout_ms: int = 60000,
        feature_updates: list[FeatureUpdateKey] | None = None,
        validate_only: bool = False,
    ) -> None:
        self.timeout_ms = timeout_ms
        self.feature_updates: list[FeatureUpdateKey] = [] if feature_updates is None else feature_updates
        self.validate_only = validate_only


class UpdatableFeatureResult(Struct):
    __slots__ = ("feature", "error_code", "error_message",)
    FIELDS = __slots__

    def __init__(
        self,
        feature: str = "",
        error_code: int = 0,
        error_message: str | None = "",
    ) -> None:
        self.feature = feature
        self.error_code = error_code
        self.error_message = error_message


class UpdateFeaturesResponse(Message):
    API_KEY = 57
    __slots__ = ("throttle_time_ms", "error_code", "error_message", "results",)
    FIELDS = __slots__

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
        results: list[UpdatableFeatureResult] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.results: list[UpdatableFeatureResult] = [] if results is None else results
