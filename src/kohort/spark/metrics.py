"""The metrics of a running pipeline, for Prometheus: http://127.0.0.1:PORT/metrics. On loopback only."""

from __future__ import annotations

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from kohort.spark.definition import PipelineError
from kohort.spark.pipeline_state import Status
from kohort.spark.progress import metrics_text


class MetricsServer:
    """Serves as soon as it is made; port 0 takes a free one."""

    def __init__(self, port: int, status: Status) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path.partition("?")[0] not in ("/metrics", "/"):
                    self.send_error(404, "the metrics are at /metrics")
                    return
                body = metrics_text(status, time.time_ns() // 1_000_000).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """The terminal belongs to the progress."""

        try:
            self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        except OSError as error:
            raise PipelineError(
                f"--metrics {port}: {error.strerror}; choose another port, or 0 for a free one"
            ) from None
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}/metrics"
        self._thread = threading.Thread(target=self._server.serve_forever, name="kohort-metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
