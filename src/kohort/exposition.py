"""Metrics in the text format of Prometheus, and the small HTTP server that serves them at /metrics.

Brokers (`kohort serve --metrics`) and pipelines (`kohort pipeline run --metrics`) use it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from kohort.settings import SettingError

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LOOPBACK = "127.0.0.1"


@dataclass(slots=True)
class Family:
    """One metric: what it is, and a value for each set of labels."""

    name: str
    kind: str
    """gauge or counter"""
    text: str
    samples: list[tuple[Mapping[str, str], float]] = field(default_factory=list)

    def add(self, value: float, **labels: str) -> None:
        self.samples.append((labels, value))


def exposition(families: Iterable[Family]) -> str:
    """Returns the text of all families; a family without a sample is left out."""
    return "".join(_text(family) for family in families if family.samples)


def _text(family: Family) -> str:
    lines = [f"# HELP {family.name} {family.text}\n# TYPE {family.name} {family.kind}\n"]
    for labels, value in family.samples:
        named = ",".join(f'{name}="{_escaped(of)}"' for name, of in labels.items())
        lines.append(
            f"{family.name}{{{named}}} {_number(value)}\n" if named else f"{family.name} {_number(value)}\n"
        )
    return "".join(lines)


def _number(value: float) -> str:
    """Writes whole numbers in full: an offset must not become 1.23457e+06."""
    return str(int(value)) if value == int(value) else repr(float(value))


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def metrics_address(text: str) -> tuple[str, int]:
    """Reads `9464` (on loopback) or `HOST:9464`; port 0 takes a free one."""
    host, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise SettingError(f"--metrics {text}: give a port, or HOST:PORT, for example --metrics 9464")
    return host.strip("[]") or LOOPBACK, int(port)


class MetricsServer:
    """Serves from its creation on; a thread of the server calls `text` for each request."""

    def __init__(self, where: tuple[str, int], text: Callable[[], str]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path.partition("?")[0] not in ("/metrics", "/"):
                    self.send_error(404, "the metrics are at /metrics")
                    return
                body = text().encode()
                self.send_response(200)
                self.send_header("Content-Type", CONTENT_TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Writes nothing: the terminal belongs to the program."""

        host, port = where
        try:
            self._server = ThreadingHTTPServer((host, port), Handler)
        except OSError as error:
            raise SettingError(
                f"--metrics {host}:{port}: {error.strerror or error}; choose another port, or 0 for a free one"
            ) from None
        self._server.daemon_threads = True
        self.address = f"http://{host}:{self._server.server_address[1]}/metrics"
        self._thread = threading.Thread(target=self._server.serve_forever, name="kohort-metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
