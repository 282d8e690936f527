"""A schema registry in memory behind real HTTP on 127.0.0.1: the part of Confluent's API that serializers use.

with running_registry() as registry:
    SchemaRegistry(registry.url).register("orders-value", "AVRO", '"string"')

`registry.fault(…)` makes it answer something else for some requests; `registry.requests` is what it was asked.
"""

from __future__ import annotations

import base64
import json
import re
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass
class Fault:
    """An answer instead of the right one, `times` times, for paths that the pattern matches."""

    pattern: str
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    times: int = 1_000_000
    seconds_a_byte: float = 0.0
    hang_up: bool = False


@dataclass
class Asked:
    """One request as it came."""

    method: str
    path: str
    headers: dict[str, str]


class Registry:
    """The schemas: by id, and for each subject the ids of its versions."""

    def __init__(self) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.requests: list[Asked] = []
        self.faults: list[Fault] = []
        self.authorization: str | None = None
        self.incompatible: set[str] = set()
        self.lock = threading.Lock()
        self.url = ""

    def fault(self, pattern: str, **what: Any) -> Fault:
        self.faults.append(Fault(pattern, **what))
        return self.faults[-1]

    def asked(self, method: str = "") -> list[str]:
        return [each.path for each in self.requests if method in ("", each.method)]

    def answer(self, method: str, target: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        parts = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        names = [unquote(name) for name in parts.path.strip("/").split("/")]
        match method, names:
            case "GET", ["schemas", "ids", number]:
                schema = self.schemas.get(int(number))
                if schema is None:
                    return 404, {"error_code": 40403, "message": f"Schema {number} not found"}
                return 200, as_asked(schema, query)
            case "GET", ["subjects", subject, "versions", version]:
                return self.version(subject, version, query)
            case "POST", ["subjects", subject, "versions"]:
                return self.register(subject, body)
            case "POST", ["subjects", subject]:
                return self.lookup(subject, body)
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def version(self, subject: str, version: str, query: dict[str, str]) -> tuple[int, dict[str, Any]]:
        ids = self.subjects.get(subject)
        if ids is None:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        number = len(ids) if version in ("latest", "-1") else int(version)
        if not 1 <= number <= len(ids):
            return 404, {"error_code": 40402, "message": f"Version {version} not found."}
        schema_id = ids[number - 1]
        schema = as_asked(self.schemas[schema_id], query)
        return 200, {"subject": subject, "version": number, "id": schema_id, **schema}

    def register(self, subject: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        schema = stored(body)
        if schema is None:
            return 422, {"error_code": 42201, "message": "Invalid schema"}
        if subject in self.incompatible:
            return 409, {
                "error_code": 409,
                "message": f"incompatible with an earlier schema for subject '{subject}'",
            }
        with self.lock:
            known = [number for number, other in self.schemas.items() if other == schema]
            schema_id = known[0] if known else len(self.schemas) + 1
            self.schemas[schema_id] = schema
            ids = self.subjects.setdefault(subject, [])
            if schema_id not in ids:
                ids.append(schema_id)
        return 200, {"id": schema_id}

    def lookup(self, subject: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        schema = stored(body)
        ids = self.subjects.get(subject)
        if ids is None:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        for version, schema_id in enumerate(ids, 1):
            if self.schemas[schema_id] == schema:
                return 200, {
                    "subject": subject,
                    "version": version,
                    "id": schema_id,
                    **self.schemas[schema_id],
                }
        return 404, {"error_code": 40403, "message": "Schema not found"}


def stored(body: dict[str, Any]) -> dict[str, Any] | None:
    """A schema as the registry keeps it; None if it cannot be one."""
    kind = body.get("schemaType", "AVRO")
    text = body.get("schema")
    if not isinstance(text, str):
        return None
    if kind in ("AVRO", "JSON"):
        try:
            text = json.dumps(json.loads(text), separators=(",", ":"))
        except ValueError:
            return None
    schema: dict[str, Any] = {"schema": text}
    if kind != "AVRO":
        schema["schemaType"] = kind
    if body.get("references"):
        schema["references"] = body["references"]
    return schema


def as_asked(schema: dict[str, Any], query: dict[str, str]) -> dict[str, Any]:
    """With `format=serialized` a .proto text is given out as a descriptor, as Confluent's registry does."""
    if query.get("format") != "serialized" or "syntax" not in schema["schema"]:
        return schema
    from kohort.serde.protobuf import compiled

    (file,) = [each for each in compiled("given.proto", schema["schema"], {}) if each.name == "given.proto"]
    return {**schema, "schema": base64.b64encode(file.SerializeToString()).decode()}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    registry: Registry

    def handle(self) -> None:
        try:
            super().handle()
        except OSError:  # the client went away, or TLS did not come about
            self.close_connection = True

    def do_GET(self) -> None:
        self.handle_any()

    def do_POST(self) -> None:
        self.handle_any()

    def handle_any(self) -> None:
        registry = self.registry
        length = int(self.headers.get("Content-Length") or 0)
        raw = self.rfile.read(length)
        registry.requests.append(
            Asked(self.command, self.path, {k.lower(): v for k, v in self.headers.items()})
        )
        fault = next(
            (each for each in registry.faults if each.times and re.search(each.pattern, self.path)), None
        )
        if fault is not None:
            fault.times -= 1
            self.give_wrong(fault)
        elif registry.authorization and self.headers.get("Authorization") != registry.authorization:
            self.give(
                401, json.dumps({"error_code": 40101, "message": "User cannot be authenticated"}).encode()
            )
        else:
            status, answer = registry.answer(self.command, self.path, json.loads(raw or b"{}"))
            self.give(status, json.dumps(answer).encode())

    def give(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {
            "Content-Type": "application/vnd.schemaregistry.v1+json",
            **(headers or {}),
        }.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def give_wrong(self, fault: Fault) -> None:
        if fault.hang_up:
            self.close_connection = True
            return
        try:
            if not fault.seconds_a_byte:
                self.give(fault.status, fault.body, fault.headers)
                return
            self.send_response(fault.status)
            self.send_header("Content-Length", str(len(fault.body)))
            self.end_headers()
            for byte in fault.body:
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
                time.sleep(fault.seconds_a_byte)
        except OSError:  # the client had enough
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


@contextmanager
def running_registry(tls: ssl.SSLContext | None = None) -> Iterator[Registry]:
    """Runs a registry; with `tls` it speaks HTTPS."""
    registry = Registry()
    handler = type("OneHandler", (Handler,), {"registry": registry})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        server.block_on_close = False
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        registry.url = f"http{'s' if tls else ''}://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join(10)
