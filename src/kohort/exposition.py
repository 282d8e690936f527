"""Metrics for Prometheus, and the small HTTP server that serves them at /metrics, and health at /healthz and /readyz.

Brokers (`kohort serve --metrics`) and pipelines (`kohort pipeline run --metrics`) use it. `prometheus_client` writes
the formats; it is imported with the first server, so that a start without metrics does not wait for it.
"""

from __future__ import annotations

import gzip
import ipaddress
import json
import logging
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import TYPE_CHECKING

from kohort.settings import SettingError

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

log = logging.getLogger("kohort.metrics")

LOOPBACK = "127.0.0.1"
_PATIENCE_S = 10.0  # with a client that sends or reads nothing
_LOOK_S = 0.1  # how soon the server notices that it is to end
_NAMES_OF_LOOPBACK = ("localhost", "localhost.localdomain", "ip6-localhost")


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """A metric as the documentation has it: what it is called, what kind it is, what it says."""

    name: str
    kind: str
    """gauge, counter (the name ends in _total), histogram, or untyped"""
    text: str
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HistogramValue:
    """A histogram at one moment: `counts` has one more than `bounds`, for what is above the last of them."""

    bounds: Sequence[float]
    counts: Sequence[int]
    total: float


Value = float | HistogramValue
Samples = dict[MetricSpec, list[tuple[tuple[str, ...], Value]]]
"""The values of each metric at one moment, by their labels. Metrics without a value are left out."""


def families(samples: Samples) -> Iterator[Metric]:
    """Makes of samples what `prometheus_client` writes."""
    for spec, values in samples.items():
        if values:
            yield _family(spec, values)


def _family(spec: MetricSpec, values: Iterable[tuple[tuple[str, ...], Value]]) -> Metric:
    from prometheus_client import core

    if spec.kind == "histogram":
        histogram = core.HistogramMetricFamily(spec.name, spec.text, labels=spec.labels)
        for labels, value in values:
            assert isinstance(value, HistogramValue)
            histogram.add_metric(labels, _cumulated(value), value.total)
        return histogram
    kinds: dict[str, type[core.GaugeMetricFamily | core.CounterMetricFamily | core.UntypedMetricFamily]] = {
        "gauge": core.GaugeMetricFamily,
        "counter": core.CounterMetricFamily,
        "untyped": core.UntypedMetricFamily,
    }
    family = kinds[spec.kind](spec.name, spec.text, labels=spec.labels)
    for labels, value in values:
        assert not isinstance(value, HistogramValue)
        family.add_metric(labels, value)
    return family


def _cumulated(value: HistogramValue) -> list[tuple[str, float]]:
    buckets: list[tuple[str, float]] = []
    below = 0
    for bound, count in zip((*value.bounds, "+Inf"), value.counts, strict=True):
        below += count
        buckets.append((str(bound), below))
    return buckets


class SampledCollector:
    """Gives a registry the samples of the moment when it is asked."""

    def __init__(self, samples: Callable[[], Samples]) -> None:
        self._samples = samples

    def collect(self) -> Iterator[Metric]:
        return families(self._samples())

    def describe(self) -> Iterable[Metric]:
        """Tells nothing beforehand, so that to register it does not ask for samples."""
        return []


def registry_of(samples: Callable[[], Samples], *, of_process: bool = False) -> CollectorRegistry:
    """Returns a registry of its own for these samples, with the metrics of this process if they are wanted."""
    import prometheus_client

    registry = prometheus_client.CollectorRegistry(auto_describe=False)
    registry.register(SampledCollector(samples))
    if of_process:
        prometheus_client.ProcessCollector(registry=registry)
        prometheus_client.PlatformCollector(registry=registry)
        prometheus_client.GCCollector(registry=registry)
    return registry


def text_of(registry: CollectorRegistry) -> str:
    """Returns all metrics of a registry in Prometheus's text format."""
    from prometheus_client import generate_latest

    return generate_latest(registry).decode()


# --- health -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HealthReport:
    """The answer to /healthz or /readyz: `problems` says why not, `details` what was looked at."""

    problems: tuple[str, ...] = ()
    details: Mapping[str, object] = field(default_factory=dict)

    @property
    def is_good(self) -> bool:
        return not self.problems

    def to_json(self) -> dict[str, object]:
        status = "ok" if self.is_good else "unavailable"
        return {"status": status, "problems": list(self.problems), **self.details}


def always_well() -> HealthReport:
    return HealthReport()


# --- the server ---------------------------------------------------------------------------------------


def metrics_address(text: str) -> tuple[str, int]:
    """Reads `9464` (on loopback) or `HOST:9464`; port 0 takes a free one."""
    host, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise SettingError(f"--metrics {text}: give a port, or HOST:PORT, for example --metrics 9464")
    return host.strip("[]") or LOOPBACK, int(port)


class _Handler(BaseHTTPRequestHandler):
    """Answers one request; the class of each server has its registry and its checks."""

    timeout = _PATIENCE_S
    protocol_version = "HTTP/1.0"
    registry: CollectorRegistry
    checks: Mapping[str, Callable[[], HealthReport]]
    only_loopback: bool

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if self.only_loopback and not _is_loopback(self.headers.get("Host", "")):
            # A page from elsewhere may have given its own name our address, to read what only this machine may.
            self._answer_json(
                421, HealthReport(("the Host header names another machine; ask for 127.0.0.1",))
            )
        elif path in ("/metrics", "/"):
            self._answer_metrics()
        elif path in self.checks:
            health = self.checks[path]()
            self._answer_json(200 if health.is_good else 503, health)
        else:
            self.send_error(404, "the metrics are at /metrics, health at /healthz and /readyz")

    do_HEAD = do_GET

    def _answer_metrics(self) -> None:
        from prometheus_client.exposition import choose_encoder, gzip_accepted

        encode, content_type = choose_encoder(self.headers.get("Accept", ""))
        body, more = encode(self.registry), {}
        if gzip_accepted(self.headers.get("Accept-Encoding", "")):
            body, more = gzip.compress(body, 1), {"Content-Encoding": "gzip"}
        self._answer(200, content_type, body, more)

    def _answer_json(self, status: int, health: HealthReport) -> None:
        body = json.dumps(health.to_json(), ensure_ascii=False).encode() + b"\n"
        self._answer(status, "application/json; charset=utf-8", body, {"Cache-Control": "no-store"})

    def _answer(self, status: int, content_type: str, body: bytes, more: Mapping[str, str]) -> None:
        self.send_response(status)
        headers = {"Content-Type": content_type, "Content-Length": str(len(body)), **more}
        for name, value in {**headers, "X-Content-Type-Options": "nosniff"}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Writes nothing: the terminal belongs to the program."""


def _is_loopback(host_header: str) -> bool:
    """Tells whether a Host header names this machine itself; a client that sends none is no browser."""
    host = host_header.strip().lower()
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    if not name or name.rstrip(".") in _NAMES_OF_LOOPBACK:
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


class _QuietServer(ThreadingHTTPServer):
    daemon_threads = True

    def server_bind(self) -> None:
        """Binds as its parent does, which would also ask the network for the name of this machine."""
        TCPServer.server_bind(self)
        host, self.server_port = self.server_address[:2]
        self.server_name = str(host)

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(
            sys.exc_info()[1], OSError
        ):  # which is a scraper that went away while it was answered
            log.exception("a request for metrics could not be answered")


class MetricsServer:
    """Serves from its creation on; threads of the server call the registry and the checks."""

    def __init__(
        self,
        where: tuple[str, int],
        registry: CollectorRegistry,
        *,
        healthz: Callable[[], HealthReport] = always_well,
        readyz: Callable[[], HealthReport] = always_well,
    ) -> None:
        host, port = where
        parts = {
            "registry": registry,
            "checks": {"/healthz": healthz, "/readyz": readyz},
            "only_loopback": _is_loopback(f"[{host}]" if ":" in host else host),
        }
        try:
            self._server = _server_class(host)((host, port), type("Handler", (_Handler,), parts))
        except OSError as error:
            raise SettingError(
                f"--metrics {host}:{port}: {error.strerror or error}; choose another port, or 0 for a free one"
            ) from None
        shown = f"[{host}]" if ":" in host else host
        self.address = f"http://{shown}:{self._server.server_address[1]}/metrics"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_LOOK_S,), name="kohort-metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _server_class(host: str) -> type[_QuietServer]:
    if ":" not in host:
        return _QuietServer
    return type("Server", (_QuietServer,), {"address_family": socket.AF_INET6})
