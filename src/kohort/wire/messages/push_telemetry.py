"""Metrics that a client pushes (KIP-714).

Generated from schema/push_telemetry.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import ZERO_UUID, Message


class PushTelemetryRequest(Message):
    API_KEY = 72
    __slots__ = ("client_instance_id", "subscription_id", "terminating", "compression_type", "metrics",)
    FIELDS = __slots__

    def __init__(
        self,
        client_instance_id: bytes = ZERO_UUID,
        subscription_id: int = 0,
        terminating: bool = False,
        compression_type: int = 0,
        metrics: bytes = b"",
    ) -> None:
        self.client_instance_id = client_instance_id
        self.subscription_id = subscription_id
        self.terminating = terminating
        self.compression_type = compression_type
        self.metrics = metrics


class PushTelemetryResponse(Message):
    API_KEY = 72
    __slots__ = ("throttle_time_ms", "error_code",)
    FIELDS = __slots__

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
