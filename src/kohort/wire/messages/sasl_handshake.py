"""Chooses the SASL mechanism.

Generated from schema/sasl_handshake.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import Message


class SaslHandshakeRequest(Message):
    API_KEY = 17
    __slots__ = ("mechanism",)
    FIELDS = __slots__

    def __init__(
        self,
        mechanism: str = "",
    ) -> None:
        self.mechanism = mechanism


class SaslHandshakeResponse(Message):
    API_KEY = 17
    __slots__ = ("error_code", "mechanisms",)
    FIELDS = __slots__

    def __init__(
        self,
        error_code: int = 0,
        mechanisms: list[str] | None = None,
    ) -> None:
        self.error_code = error_code
        self.mechanisms: list[str] = [] if mechanisms is None else mechanisms
