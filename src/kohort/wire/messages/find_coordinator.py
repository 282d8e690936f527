"""Which broker coordinates a group or a transactional id.

Generated from schema/find_coordinator.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import Message, Struct


class FindCoordinatorRequest(Message):
    API_KEY = 10
    __slots__ = ("key", "key_type", "coordinator_keys",)
    FIELDS = __slots__

    def __init__(
        self,
        key: str = "",
        key_type: int = 0,
        coordinator_keys: list[str] | None = None,
    ) -> None:
        self.key = key
        self.key_type = key_type
        self.coordinator_keys: list[str] = [] if coordinator_keys is None else coordinator_keys


class Coordinator(Struct):
    __slots__ = ("key", "node_id", "host", "port", "error_code", "error_message",)
    FIELDS = __slots__

    def __init__(
        self,
        key: str = "",
        node_id: int = 0,
        host: str = "",
        port: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
    ) -> None:
        self.key = key
        self.node_id = node_id
        self.host = host
        self.port = port
        self.error_code = error_code
        self.error_message = error_message


class FindCoordinatorResponse(Message):
    API_KEY = 10
    __slots__ = ("throttle_time_ms", "error_code", "error_message", "node_id", "host", "port", "coordinators",)
    FIELDS = __slots__

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
        node_id: int = 0,
        host: str = "",
        port: int = 0,
        coordinators: list[Coordinator] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.node_id = node_id
        self.host = host
        self.port = port
        self.coordinators: list[Coordinator] = [] if coordinators is None else coordinators
