"""Which metrics a client is to push, and how often (KIP-714).

Generated from schema/get_telemetry_subscriptions.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import ZERO_UUID, Message


class GetTelemetrySubscriptionsRequest(Message):
    API_KEY = 71
    __slots__ = ("client_instance_id",)
    FIELDS = __slots__

    def __init__(
        self,
        client_instance_id: bytes = ZERO_UUID,
    ) -> None:
        self.client_instance_id = client_instance_id


class GetTelemetrySubscriptionsResponse(Message):
    API_KEY = 71
    __slots__ = ("throttle_time_ms", "error_code", "client_instance_id", "subscription_id", "accepted_compression_types", "push_interval_ms", "telemetry_max_bytes", "delta_temporality", "requested_metrics",)
    FIELDS = __slots__

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        client_instance_id: bytes = ZERO_UUID,
        subscription_id: int = 0,
        accepted_compression_types: list[int] | None = None,
        push_interval_ms: int = 0,
        telemetry_max_bytes: int = 0,
        delta_temporality: bool = False,
        requested_metrics: list[str] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.client_instance_id = client_instance_id
        self.subscription_id = subscription_id
        self.accepted_compression_types: list[int] = [] if accepted_compression_types is None else accepted_compression_types
        self.push_interval_ms = push_interval_ms
        self.telemetry_max_bytes = telemetry_max_bytes
        self.delta_temporality = delta_temporality
        self.requested_metrics: list[str] = [] if requested_metrics is None else requested_metrics
