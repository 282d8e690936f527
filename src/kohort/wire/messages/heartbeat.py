"""A member says that it lives.

Generated from schema/heartbeat.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import Message


class HeartbeatRequest(Message):
    API_KEY = 12
    __slots__ = ("group_id", "generation_id", "member_id", "group_instance_id",)
    FIELDS = __slots__

    def __init__(
        self,
        group_id: str = "",
        generation_id: int = 0,
        member_id: str = "",
        group_instance_id: str | None = None,
    ) -> None:
        self.group_id = group_id
        self.generation_id = generation_id
        self.member_id = member_id
        self.group_instance_id = group_instance_id


class HeartbeatResponse(Message):
    API_KEY = 12
    __slots__ = ("throttle_time_ms", "error_code",)
    FIELDS = __slots__

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
