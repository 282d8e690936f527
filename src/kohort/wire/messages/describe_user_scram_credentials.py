"""Lists the SCRAM mechanisms and iterations of users, never their secrets.

Generated from schema/describe_user_scram_credentials.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import Message, Struct


class ScramUserName(Struct):
    __slots__ = ("name",)
    FIELDS = __slots__

    def __init__(
        self,
        name: str = "",
    ) -> None:
        self.name = name


class DescribeUserScramCredentialsRequest(Message):
    API_KEY = 50
    __slots__ = ("users",)
    FIELDS = __slots__

    def __init__(
        self,
        users: list[ScramUserName] | None = None,
    ) -> None:
        self.users = users


class ScramCredentialInfo(Struct):
    __slots__ = ("mechanism", "iterations",)
    FIELDS = __slots__

    def __init__(
        self,
        mechanism: int = 0,
        iterations: int = 0,
    ) -> None:
        self.mechanism = mechanism
        self.iterations = iterations


class ScramUserResult(Struct):
    __slots__ = ("user", "error_code", "error_message", "credential_infos",)
    FIELDS = __slots__

    def __init__(
        self,
        user: str = "",
        error_code: int = 0,
        error_message: str | None = "",
        credential_infos: list[ScramCredentialInfo] | None = None,
    ) -> None:
        self.user = user
        self.error_code = error_code
        self.error_message = error_message
        self.credential_infos: list[ScramCredentialInfo] = [] if credential_infos is None else credential_infos


class DescribeUserScramCredentialsResponse(Message):
    API_KEY = 50
    __slots__ = ("throttle_time_ms", "error_code", "error_message", "results",)
    FIELDS = __slots__

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
        results: list[ScramUserResult] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.results: list[ScramUserResult] = [] if results is None else results
