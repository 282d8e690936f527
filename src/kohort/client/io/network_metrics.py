"""Counts connections, requests, responses and their bytes: the metrics that all clients have."""

from __future__ import annotations

from kohort.client.core.metrics import MetricRow, MetricTable, MetricWindow, Sensor, average, counter, meter


class NetworkMetrics:
    """What the network counts, once for each connection, request and response."""

    def __init__(self, window: MetricWindow) -> None:
        self.connections = 0
        self.created, self.closed = Sensor(window), Sensor(window)
        self.authenticated, self.refused = Sensor(window), Sensor(window)
        self.renewed, self.not_renewed = Sensor(window), Sensor(window)
        self.sent, self.received = Sensor(window), Sensor(window)

    def connected(self, now_ms: int) -> None:
        self.connections += 1
        self.created.record(1, now_ms)

    def disconnected(self, now_ms: int) -> None:
        self.connections -= 1
        self.closed.record(1, now_ms)


NETWORK = MetricTable[NetworkMetrics](
    "{client}-metrics",
    (),
    (
        MetricRow("connection-count", "connections that are open", lambda m, now: m.connections),
        *counter("connection-creation", "connections that were made", lambda m: m.created),
        *counter("connection-close", "connections that were closed", lambda m: m.closed),
        *counter(
            "successful-authentication", "connections on which SASL accepted this client", lambda m: m.authenticated
        ),
        *counter("failed-authentication", "connections that TLS or SASL refused", lambda m: m.refused),
        *counter("successful-reauthentication", "sessions of SASL that were renewed", lambda m: m.renewed),
        *counter("failed-reauthentication", "sessions of SASL that were not renewed", lambda m: m.not_renewed),
        *counter("request", "requests sent", lambda m: m.sent),
        *average("request-size", "bytes of a request", lambda m: m.sent),
        *meter("outgoing-byte", "bytes sent", lambda m: m.sent),
        *counter("response", "responses received", lambda m: m.received),
        *meter("incoming-byte", "bytes received", lambda m: m.received),
        MetricRow(
            "network-io-rate",
            "requests and responses per second",
            lambda m, now: m.sent.count_rate(now) + m.received.count_rate(now),
        ),
        MetricRow(
            "network-io-total",
            "requests and responses, since the client was made",
            lambda m, now: m.sent.count + m.received.count,
        ),
    ),
)  # fmt: skip
