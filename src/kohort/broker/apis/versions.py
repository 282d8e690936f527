"""Handles ApiVersions: which APIs, versions and features this broker serves."""

from __future__ import annotations

import re

from kohort.broker.broker import Broker
from kohort.broker.call import Call
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

# As Kafka's: what may stand in client_software_name and _version.
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")

# Feature -> its level, which nobody can change here. Clients choose their ways by these.
FINALIZED = {"group.version": 1, "share.version": 1, "transaction.version": 2}
_FEATURES_EPOCH = 3  # it must rise whenever FINALIZED changes, or clients that stay connected do not look


def api_versions(broker: Broker, call: Call) -> ApiVersionsResponse:
    request: ApiVersionsRequest = call.request
    named = call.version < 3 or all(
        _SOFTWARE.fullmatch(text) for text in (request.client_software_name, request.client_software_version)
    )
    if not named:
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    answer = ApiVersionsResponse(api_keys=_all_keys())
    answer.finalized_features_epoch = _FEATURES_EPOCH
    answer.finalized_features = [FinalizedFeatureKey(name, level, level) for name, level in FINALIZED.items()]
    if call.version >= 4:  # v3 has no supported features that begin with level 0
        answer.supported_features = [SupportedFeatureKey(name, 0, level) for name, level in FINALIZED.items()]
    return answer


def _all_keys() -> list[ApiVersion]:
    from kohort.broker.apis.table import TABLE  # the table names this module's handler

    return [ApiVersion(row.key, row.advertised_first, row.last) for row in TABLE.values()]
