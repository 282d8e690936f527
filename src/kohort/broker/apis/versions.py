"""Handles ApiVersions: which APIs and versions this broker serves."""

from __future__ import annotations

import re

from kohort.broker.broker import Broker
from kohort.broker.call import Call
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

# As Kafka's: what may stand in client_software_name and _version.
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def api_versions(broker: Broker, call: Call) -> ApiVersionsResponse:
    request: ApiVersionsRequest = call.request
    named = call.version < 3 or all(
        _SOFTWARE.fullmatch(text) for text in (request.client_software_name, request.client_software_version)
    )
    if not named:
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    return ApiVersionsResponse(api_keys=_all_keys())


def _all_keys() -> list[ApiVersion]:
    from kohort.broker.apis.table import TABLE  # the table names this module's handler

    return [ApiVersion(row.key, row.advertised_first, row.last) for row in TABLE.values()]
