"""Describes one API as the table of APIs has it: key, versions, handler, and the codec of each version."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from inspect import iscoroutinefunction
from typing import Any, TypeAlias

from kohort.broker.broker import Broker
from kohort.broker.call import Call
from kohort.wire.compiler.compile import Codec, codec
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.api_versions import ApiVersion, ApiVersionsResponse

# Any: an answer, None (it comes later), or a coroutine of an answer; `Row.is_async` tells which it can be.
Handler: TypeAlias = Callable[[Broker, Call], Any]

TOO_MANY_BYTES = 1 << 31
"""How many bytes may follow a request in its frame: all. Kafka does not look at them, and librdkafka (Metadata,
AlterUserScramCredentials) and kafka-go (DescribeAcls) send some."""


@dataclass(slots=True)
class Row:
    """One API in the table of APIs."""

    key: int
    name: str
    first: int
    last: int
    handler: Handler
    advertised_first: int = -1  # where it differs from `first`
    note: str = ""
    own_codec: Callable[[int], Codec] | None = (
        None  # makes the codec of a version, where it is not the schema's
    )
    is_async: bool = field(init=False)
    codecs: dict[int, Codec] = field(init=False)

    def __post_init__(self) -> None:
        # An object may be a handler too: then its class has the coroutine function.
        self.is_async = iscoroutinefunction(self.handler) or iscoroutinefunction(type(self.handler).__call__)
        self.codecs = {}
        if self.advertised_first < 0:
            self.advertised_first = self.first

    def codec(self, version: int) -> Codec:
        found = self.codecs.get(version)
        if found is None:
            own = self.own_codec
            found = self.codecs[version] = codec(self.key, version) if own is None else own(version)
        return found


def unsupported_version(api_versions: Row) -> ApiVersionsResponse:
    """Returns the answer, always in version 0, to an ApiVersions newer than this broker: the versions it may use."""
    own = ApiVersion(api_versions.key, api_versions.first, api_versions.last)
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[own])
