"""Error responses to any request, made from the schema: the error stands where clients look for it.

A response holds errors in fields named `error_code` (in AddPartitionsToTxn `partition_error_code`): one at its top, or
one in each entry of an array, or both. An array of the response is filled from the array of the request that it
answers: the one of the same name, or all that the request has.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from kohort.wire.compiler.notation import PRIMITIVES, ApiSpec, FieldSpec, StructSpec, all_apis
from kohort.wire.errors import ErrorCode
from kohort.wire.struct import Message

# -1 in these fields says that there is no such node or port.
_MINUS_ONE_IF_UNKNOWN = ("node_id", "port", "leader_id")

ERROR_FIELDS = ("error_code", "partition_error_code")

_ASKED_AS = {"user": "name"}
"""Fields of answers that have another name in the request."""


def mirrored(
    key: int, version: int, request: Message, error: ErrorCode, message: str | None = None
) -> Message:
    """Returns a response whose arrays have the entries of the request, each with the error."""
    spec = all_apis()[key]
    answer: Message = _Mirror(spec, version, error, message).struct(spec.response, request)
    return answer


class _Mirror:
    """Builds the structs of one response from those of its request."""

    def __init__(self, spec: ApiSpec, version: int, error: ErrorCode, message: str | None) -> None:
        self._spec, self._version, self._error, self._message = spec, version, error, message
        self._messages = import_module(f"kohort.wire.messages.{spec.module}")

    def struct(self, response: StructSpec, source: Any) -> Any:
        """Builds one struct; `source` is the struct of the request that it answers, or a bare name or number."""
        made = getattr(self._messages, response.name)()
        bare = source if isinstance(source, str | int) else None
        for field in self._fields(response):
            if field.name in ERROR_FIELDS:
                setattr(made, field.name, self._error)
            elif field.name == "error_message":
                made.error_message = self._message
            elif field.is_array:
                if field.type not in PRIMITIVES and self._has_error(self._spec.structs[field.type]):
                    has_place = any(other.name in ERROR_FIELDS for other in self._fields(response))
                    setattr(made, field.name, self._entries(field, source, has_place))
            elif bare is not None and field.type == ("string" if isinstance(bare, str) else "int32"):
                setattr(made, field.name, bare)
                bare = None
            elif field.type in PRIMITIVES:
                self._scalar(made, field, source)
        return made

    def _fields(self, struct: StructSpec) -> list[FieldSpec]:
        return [field for field in struct.fields if self._version in field.versions]

    def _has_error(self, struct: StructSpec) -> bool:
        return any(
            field.name in ERROR_FIELDS
            or (field.type not in PRIMITIVES and self._has_error(self._spec.structs[field.type]))
            for field in self._fields(struct)
        )

    def _entries(self, field: FieldSpec, source: Any, has_place: bool) -> list[Any]:
        element = self._spec.structs[field.type]
        return [self.struct(element, entry) for entry in self._asked(field.name, source, has_place)]

    def _asked(self, name: str, source: Any, has_place: bool) -> list[Any]:
        """Returns the entries of the request that an array of the response answers."""
        if not hasattr(source, "FIELDS"):
            return []
        request = next(s for s in self._spec.structs.values() if s.name == type(source).__name__)
        arrays = [field.name for field in self._fields(request) if field.is_array]
        asked: list[Any] = []
        for answered in [name] if name in arrays else arrays:
            entries = getattr(source, answered)
            # Null means "all of them": where there is no other place for the error, one entry without a name holds it.
            asked += entries if entries is not None else [] if has_place else [None]
        return asked

    def _scalar(self, made: Any, field: FieldSpec, source: Any) -> None:
        value = getattr(source, _ASKED_AS.get(field.name, field.name), None)
        if value is not None:
            setattr(made, field.name, value)
        elif field.default is None and (field.type == "int64" or field.name in _MINUS_ONE_IF_UNKNOWN):
            setattr(made, field.name, -1)
