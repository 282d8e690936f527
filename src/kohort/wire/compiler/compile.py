"""Compiles the notation of `schema/` into straight-line encode and decode functions, one pair per version.

A codec is made when its version is first used: a client uses one version of a handful of APIs, so a broker
that starts compiles nothing. What every client needs of the newest versions is made ahead, in `codecs/`. Runs of
fields of fixed size become one `struct` call; arrays of structs become loops in the same function.
`python -m kohort.wire.compiler.compile produce 9` prints the source that is run.

Decoding never trusts a length: it is checked against what is left of the frame before anything is allocated.
All bytes that are wrong in some way raise BadFrame.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from kohort.wire.codecs import READY, READY_DATA
from kohort.wire.compiler.decoder import decoder_source
from kohort.wire.compiler.encoder import encoder_source
from kohort.wire.compiler.notation import ApiSpec, DataSpec, Spec, StructSpec, api, data, schema
from kohort.wire.messages import APIS
from kohort.wire.struct import Message

API_VERSIONS = 18  # its response header is always version 0, so that a client of any age can read it

Chunk = Any  # bytes, or a sized object that goes out as it is (a slice of a file)
Decode = Callable[..., Message]  # (buf, pos=0, slack=0)
Encode = Callable[[Message], list[Chunk]]


class Codec:
    """Encodes and decodes one API in one version; each of the four functions is compiled when first used.

    `decode_…(buf, pos=0, slack=0)` takes a view of exactly one frame, where its body begins, and how many bytes may
    follow the message; raises BadFrame.
    `encode_…(message)` gives chunks: bytes, and file slices where a `records` field held one.
    """

    def __init__(self, api_spec: ApiSpec, version: int) -> None:
        self.api_key, self.version = api_spec.key, version
        self.flexible = version in api_spec.flexible
        self.response_header_is_flexible = self.flexible and api_spec.key != API_VERSIONS
        self._api = api_spec

    @classmethod
    def ready(cls, api_key: int, version: int, module: Any) -> Codec:
        """A codec whose client's half was made ahead; the schema is read only if the other half is needed."""
        made = cls.__new__(cls)
        made.api_key, made.version, made.flexible = api_key, version, module.FLEXIBLE
        made.response_header_is_flexible = made.flexible and api_key != API_VERSIONS
        made.encode_request, made.decode_response = module.encode_request, module.decode_response
        return made

    def __getattr__(self, name: str) -> Any:
        if name == "_api":
            self._api = api(APIS[self.api_key].module)
            return self._api
        action, _, which = name.partition("_")
        if action not in ("decode", "encode") or which not in ("request", "response"):
            raise AttributeError(name)
        message = self._api.request if which == "request" else self._api.response
        function = _compiled(action, self._api, self.version, message)
        setattr(self, name, function)
        return function

    kept: Any = None  # what the one who uses it keeps with it
    decode_request: Decode
    decode_response: Decode
    encode_request: Encode
    encode_response: Encode


def _compiled(action: str, schema: Spec, version: int, message: StructSpec) -> Any:
    make = decoder_source if action == "decode" else encoder_source
    source, names = make(schema, version, message)
    exec(compile(source, f"<{action} {message.name} v{version}>", "exec"), names)
    return names[action]


@cache
def codec(api_key: int, version: int) -> Codec:
    """The codec of an API in a version. Raises KeyError for one that has no layout here."""
    row = APIS[api_key]
    if not row.first <= version <= row.last:
        raise KeyError((api_key, version))
    if version == row.last and row.module in READY:
        return Codec.ready(api_key, version, import_module(f"kohort.wire.codecs.{row.module}"))
    return Codec(api(row.module), version)


class DataCodec:
    """Encodes and decodes a format of its own in one version, for example the value of a record.

    `decode(buf, pos)` gives a named tuple; `pos` is behind the int16 unless told otherwise. It raises BadFrame.
    `encode(message)` gives bytes, the int16 included; it raises `struct.error` where a value does not fit its field.
    """

    def __init__(self, spec: DataSpec, version: int) -> None:
        self._spec, self._version = spec, version

    @classmethod
    def ready(cls, module: Any) -> DataCodec:
        """A codec that was made ahead."""
        made = cls.__new__(cls)
        made.encode, made.decode = module.encode, module.decode
        return made

    def __getattr__(self, name: str) -> Any:
        if name not in ("decode", "encode"):
            raise AttributeError(name)
        function = _compiled(name, self._spec, self._version, self._spec.struct)
        setattr(self, name, function)
        return function

    decode: Callable[..., Any]
    encode: Callable[[Any], bytes]


@cache
def data_codec(module: str, version: int) -> DataCodec:
    """The codec of a format of its own in a version. Raises KeyError for a version that has no layout here."""
    if (module, version) in READY_DATA:
        return DataCodec.ready(import_module(f"kohort.wire.codecs.{module}_v{version}"))
    spec = data(module)
    if version not in spec.versions:
        raise KeyError((module, version))
    return DataCodec(spec, version)


if __name__ == "__main__":
    spec = schema(sys.argv[1])
    for part in spec.messages:
        for show in (decoder_source, encoder_source):
            sys.stdout.write(show(spec, int(sys.argv[2]), part)[0] + "\n\n")
