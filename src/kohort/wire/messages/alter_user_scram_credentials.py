"""Sets and deletes SCRAM credentials; the client sends the salted password, never the password.

Generated from schema/alter_user_scram_credentials.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import Message, Struct


class ScramDeletion(Struct):
    __slots__ = ("name", "mechanism",)
    FIELDS = __slots__

    def __init__(
        self,
        name: str = "",
        mechanism: int = 0,
    ) -> None:
        self.name = name
        self.mechanism = mechanism


class ScramUpsertion(Struct):
    __slots__ = ("name", "mechanism", "iterations", "salt", "salted_password",)
    FIELDS = __slots__

    def __init__(
        self,
        name: str = "",
        mechanism: int = 0,
        iterations: int = 0,
        salt: bytes = b"",
        salted_password: bytes = b"",
    ) -> None:
        self.name = name
        self.mechanism = mechanism
        self.iterations = iterations
        self.salt = salt
        self.salted_password = salted_password


class AlterUserScramCredentialsRequest(Message):
    API_KEY = 51
    __slots__ = ("deletions", "upsertions",)
    FIELDS = __slots__

    def __init__(
        self,
        deletions: list[ScramDeletion] | None = None,
        upsertions: list[ScramUpsertion] | None = None,
    ) -> None:
        self.deletions: list[ScramDeletion] = [] if deletions is None else deletions
        self.upsertions: list[ScramUpsertion] = [] if upsertions is None else upsertions


class AlterScramResult(Struct):
    __slots__ = ("user", "error_code", "error_message",)
    FIELDS = __slots__

    def __init__(
        self,
        user: str = "",
        error_code: int = 0,
        error_message: str | None = "",
    ) -> None:
        self.user = user
        self.error_code = error_code
        self.error_message = error_message


class AlterUserScramCredentialsResponse(Message):
    API_KEY = 51
    __slots__ = ("throttle_time_ms", "results",)
    FIELDS = __slots__

    def __init__(
        self,
        throttle_time_ms: int = 0,
        results: list[AlterScramResult] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.results: list[AlterScramResult] = [] if results is None else results
