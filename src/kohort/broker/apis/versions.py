"""ApiVersions: which APIs and versions this broker serves."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kohort.broker.broker import Broker
from kohort.broker.net.call import Call
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from kohort.broker.apis.table import Row

API_KEY = 18
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


def unsupported_version() -> ApiVersionsResponse:
    """The answer, always in version 0, to an ApiVersions that is newer than we know: key 18 with its range."""
    row = _table()[API_KEY]
    own = ApiVersion(row.key, row.first, row.last)
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[own])


def _all_keys() -> list[ApiVersion]:
    return [ApiVersion(row.key, row.advertised_first, row.last) for row in _table().values()]


def _table() -> dict[int, Row]:
    from kohort.broker.apis.table import TABLE  # the table names this module's handler

    return TABLE
