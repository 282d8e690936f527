"""One step of a SASL exchange.

Generated from schema/sasl_authenticate.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import Message


class SaslAuthenticateRequest(Message):
    API_KEY = 36
    __slots__ = ("auth_bytes",)
    FIELDS = __slots__

    def __init__(
        self,
        auth_bytes: bytes = b"",
    ) -> None:
        self.auth_bytes = auth_bytes


class SaslAuthenticateResponse(Message):
    API_KEY = 36
    __slots__ = ("error_code", "error_message", "auth_bytes", "session_lifetime_ms",)
    FIELDS = __slots__

    def __init__(
        self,
        error_code: int = 0,
        error_message: str | None = "",
        auth_bytes: bytes = b"",
        session_lifetime_ms: int = 0,
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message
        self.auth_bytes = auth_bytes
        self.session_lifetime_ms = session_lifetime_ms
