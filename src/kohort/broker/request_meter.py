"""Counts requests by API while metrics are served: how many, how long they took, their bytes and their errors.

A broker without metrics knows nothing of this. With them it serves from `RequestMeter.metered(table)`, whose codecs
look for error codes in the answers, and its connections are `MeteredConnection`s, which count the rest.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import replace
from typing import Any

from kohort.broker.api_row import Row
from kohort.broker.apis.table import FirstUse
from kohort.broker.error_answers import ERROR_FIELDS
from kohort.wire.compiler.compile import Codec
from kohort.wire.compiler.notation import StructSpec, api
from kohort.wire.messages import APIS
from kohort.wire.messages.produce import ProduceResponse
from kohort.wire.struct import Message

SHORTEST_S = 0.00005
BOUNDS_S = (
    SHORTEST_S, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30,
)  # fmt: skip

_TOLD = {
    ProduceResponse.API_KEY
}  # its handler tells of errors, because to look for them in each answer takes longer

ErrorCodes = Callable[[Message], list[int]]


class ApiMeter:
    """What is counted of one API."""

    __slots__ = ("buckets", "errors", "name", "quick", "seconds", "request_bytes", "response_bytes")

    def __init__(self, name: str) -> None:
        self.name = name
        self.buckets = [0] * (len(BOUNDS_S) + 1)  # of the seconds that answers took
        self.quick = 0  # of the first bucket: answers that were given at once
        self.seconds = 0.0
        self.request_bytes = 0
        self.response_bytes = 0
        self.errors: Counter[int] = Counter()

    def add(self, count: int, seconds: float, response_bytes: int) -> None:
        """Counts answers that took the same time."""
        self.buckets[bisect_left(BOUNDS_S, seconds)] += count
        self.seconds += seconds * count
        self.response_bytes += response_bytes

    @property
    def count(self) -> int:
        return self.quick + sum(self.buckets)


class RequestMeter:
    """What is counted of all APIs, by their keys. A codec of its table keeps the ApiMeter of its API."""

    def __init__(self, table: dict[int, Row]) -> None:
        self.apis = [ApiMeter(table[key].name if key in table else "") for key in range(max(table) + 1)]

    def metered(self, table: dict[int, Row]) -> dict[int, Row]:
        """Returns a table with the same rows, whose answers are searched for error codes."""
        return {key: self._row(row) for key, row in table.items()}

    def used(self) -> Iterator[ApiMeter]:
        """The APIs that were asked for so far."""
        return (api for api in self.apis if api.request_bytes)

    def _row(self, row: Row) -> Row:
        handler = row.handler.load() if isinstance(row.handler, FirstUse) else row.handler
        return replace(row, handler=handler, own_codec=lambda version: self._codec(row, version))

    def _codec(self, row: Row, version: int) -> Codec:
        """Returns a codec of its own; one of the wire's own kind shares what has been compiled."""
        made = copy(row.codec(version)) if row.own_codec is None else row.own_codec(version)
        made.kept = self.apis[row.key]
        error_codes = error_codes_of(row.key) if row.key not in _TOLD else None
        if error_codes is None:
            return made
        plain, errors = made.encode_response, self.apis[row.key].errors

        def encode_response(message: Message) -> list[Any]:
            found = error_codes(message)
            if found:
                errors.update(found)
            return plain(message)

        made.encode_response = encode_response
        return made


def error_codes_of(api_key: int) -> ErrorCodes | None:
    """Makes a function that lists the error codes in an answer of an API that are not 0; None if it has no such field.

    It is compiled as the codecs are, because it sees each answer that is encoded.
    """
    spec = api(APIS[api_key].module)
    lines = list(_search(spec.response, spec.structs, "message", 1))
    if not lines:
        return None
    source = "\n".join(["def error_codes(message):", "    found = []", *lines, "    return found"])
    names: dict[str, Any] = {}
    exec(compile(source, f"<error codes of {spec.name}>", "exec"), names)
    found: ErrorCodes = names["error_codes"]
    return found


def _search(struct: StructSpec, structs: dict[str, StructSpec], value: str, depth: int) -> Iterator[str]:
    indent = "    " * depth
    for field in struct.fields:
        path = f"{value}.{field.name}"
        if field.name in ERROR_FIELDS:
            yield f"{indent}if {path}: found.append({path})"
        elif field.type in structs:
            each = f"each{depth}"
            inner = list(_search(structs[field.type], structs, each, depth + 1))
            if inner:
                yield f"{indent}for {each} in {path if field.is_array else f'({path},)'} or ():"
                if not field.is_array:
                    yield f"{indent}    if {each} is None: continue"
                yield from inner
