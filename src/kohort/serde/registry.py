"""The client of a schema registry: Confluent's REST API, with retries, failover, authentication and caches.

    registry = SchemaRegistry(RegistrySettings.of("http://127.0.0.1:8081"))
    schema_id = registry.register("orders-value", "AVRO", '{"type": "string"}')
    registry.schema(schema_id).text

It works with every registry that has this API: Confluent's, Karapace, Redpanda's, Apicurio's at /apis/ccompat/v7.
"""

from __future__ import annotations

import json
import os
import random
import ssl
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NoReturn, cast, get_args
from urllib.parse import quote

import kohort
from kohort.serde.errors import (
    RegistryAccessDenied,
    RegistryError,
    RegistryUnavailable,
    SchemaNotFound,
    SchemaRefused,
)
from kohort.serde.packages import package
from kohort.serde.registry_settings import RegistrySettings as RegistrySettings
from kohort.settings import SettingError

if TYPE_CHECKING:
    import httpx

SchemaKind = Literal["AVRO", "JSON", "PROTOBUF"]

_KINDS: tuple[str, ...] = get_args(SchemaKind)
_MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"
_RETRIABLE = (408, 429, 500, 502, 503, 504)
_LARGEST_ANSWER = 32 * 1024 * 1024
_MOST_REFERENCES = 1000
_SHOWN = 160  # characters of an answer that a message shows


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """What a schema imports: a name in its text (a type, a file, a URL), and the subject and version it stands for."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema as a registry holds it; subject and version are None if it was asked for by its id."""

    id: int
    kind: SchemaKind
    text: str
    references: tuple[SchemaReference, ...] = ()
    subject: str | None = None
    version: int | None = None


class SchemaRegistry:
    """Asks a registry for schemas and registers new ones; any number of threads may use it.

    Schemas by id, and by subject and version, never change and are asked for once; `latest` is asked for again after
    `cache.latest.ttl.sec`. It can be pickled (without its caches) and used after a fork.
    """

    def __init__(self, settings: RegistrySettings | Mapping[str, object] | str) -> None:
        self.settings = settings if isinstance(settings, RegistrySettings) else RegistrySettings.of(settings)
        self._urls = self.settings.urls
        self._first = 0  # the URL that answered last
        self._lock = threading.RLock()
        self._pid = 0
        self._client: httpx.Client | None = None
        self._by_id: dict[int, RegisteredSchema] = {}
        self._by_version: dict[tuple[str, int], RegisteredSchema] = {}
        self._latest: dict[str, tuple[float, RegisteredSchema]] = {}
        self._registered: dict[object, int] = {}
        _ALL.add(self)

    @classmethod
    def shared(cls, settings: RegistrySettings | Mapping[str, object] | str) -> SchemaRegistry:
        """Returns the one client that this process has for these settings, with all that it has cached."""
        parsed = settings if isinstance(settings, RegistrySettings) else RegistrySettings.of(settings)
        with _SHARED_LOCK:
            return _SHARED.setdefault(parsed, cls(parsed))

    def __enter__(self) -> SchemaRegistry:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"SchemaRegistry({self.settings!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.settings,)

    def close(self) -> None:
        """Closes the connections; what is cached stays, and the next request opens a new connection."""
        with self._lock:
            client, self._client = self._client, None
            if client is not None and self._pid == os.getpid():
                client.close()

    # --- what there is ----------------------------------------------------------------------------

    def schema(self, schema_id: int) -> RegisteredSchema:
        """Returns the schema with this id; SchemaNotFound if there is none."""
        found = self._by_id.get(schema_id)
        if found is not None:
            return found
        with self._lock:
            found = self._by_id.get(schema_id)
            if found is None:
                answer = self._ask("GET", f"/schemas/ids/{schema_id}", f"schema id {schema_id}")
                found = self._read(answer, f"schema id {schema_id}", schema_id=schema_id)
                self._keep(found)
        return found

    def latest(self, subject: str) -> RegisteredSchema:
        """Returns the latest version of a subject; SchemaNotFound if there is no such subject."""
        ttl_s = self.settings.cache_latest_ttl_sec
        known = self._latest.get(subject)
        if known is not None and (ttl_s < 0 or time.monotonic() - known[0] < ttl_s):
            return known[1]
        with self._lock:
            what = f"the latest schema of subject {subject}"
            answer = self._ask("GET", f"/subjects/{quote(subject, safe='')}/versions/latest", what)
            found = self._read(answer, what, subject=subject)
            self._latest[subject] = time.monotonic(), found
            self._keep(found)
        return found

    def version(self, subject: str, version: int) -> RegisteredSchema:
        """Returns one version of a subject; SchemaNotFound if it is not there."""
        found = self._by_version.get((subject, version))
        if found is not None:
            return found
        with self._lock:
            what = f"version {version} of subject {subject}"
            answer = self._ask("GET", f"/subjects/{quote(subject, safe='')}/versions/{version}", what)
            found = self._read(answer, what, subject=subject)
            self._by_version[subject, version] = found
        return found

    def references_of(self, schema: RegisteredSchema) -> dict[str, RegisteredSchema]:
        """Returns all schemas that a schema imports, and those that these import, by the names of the references.

        They come in an order in which they can be read: a schema after all that it imports itself.
        """
        found: dict[str, RegisteredSchema] = {}
        self._follow(schema.references, found, set())
        return found

    def _follow(
        self, references: Sequence[SchemaReference], found: dict[str, RegisteredSchema], begun: set[str]
    ) -> None:
        for reference in references:
            if reference.name in begun:
                continue
            begun.add(reference.name)
            if len(begun) > _MOST_REFERENCES:
                raise RegistryError(
                    f"a schema imports more than {_MOST_REFERENCES} others: is its registry sound?"
                )
            schema = self.version(reference.subject, reference.version)
            self._follow(schema.references, found, begun)
            found[reference.name] = schema

    # --- new ones ---------------------------------------------------------------------------------

    def register(
        self,
        subject: str,
        kind: SchemaKind,
        text: str,
        references: Sequence[SchemaReference] = (),
        *,
        normalize: bool = False,
    ) -> int:
        """Registers a schema as the newest version of a subject, if it is not one already; returns its id."""
        what = f"the schema for subject {subject}"
        return self._id_of(
            f"/subjects/{quote(subject, safe='')}/versions", what, kind, text, references, normalize
        )

    def lookup(
        self,
        subject: str,
        kind: SchemaKind,
        text: str,
        references: Sequence[SchemaReference] = (),
        *,
        normalize: bool = False,
    ) -> RegisteredSchema:
        """Returns the version of a subject that has this schema; SchemaNotFound if it was never registered."""
        what = f"this schema under subject {subject}"
        query = "?normalize=true" if normalize else ""
        answer = self._ask(
            "POST", f"/subjects/{quote(subject, safe='')}{query}", what, _body(kind, text, references)
        )
        return self._read({"schemaType": kind, "schema": text, **answer}, what, subject=subject)

    def _id_of(
        self,
        path: str,
        what: str,
        kind: SchemaKind,
        text: str,
        references: Sequence[SchemaReference],
        normalize: bool,
    ) -> int:
        key = path, kind, text, tuple(references), normalize
        known = self._registered.get(key)
        if known is not None:
            return known
        with self._lock:
            known = self._registered.get(key)
            if known is None:
                query = "?normalize=true" if normalize else ""
                answer = self._ask("POST", path + query, what, _body(kind, text, references))
                known = self._registered[key] = _whole_number(answer, "id", what)
        return known

    # --- requests ---------------------------------------------------------------------------------

    def _ask(self, method: str, path: str, what: str, body: object = None) -> dict[str, Any]:
        """Sends a request until it is answered: to each URL in turn, and all again after a wait.

        `what` says what it is about, for messages: "schema id 5".
        """
        trouble = ""
        for attempt in range(self.settings.max_retries + 1):
            if attempt:
                time.sleep(self._wait_ms(attempt) / 1000)
            for turn in range(len(self._urls)):
                at = (self._first + turn) % len(self._urls)
                url = self._urls[at]
                try:
                    status, data = self._send(method, url + path, body)
                except _NoAnswer as silent:
                    trouble = f"{url}: {silent}"
                    continue
                if status in _RETRIABLE:
                    trouble = f"{url}: HTTP {status}{_said(data)}"
                    continue
                self._first = at
                return _parsed(data, url, what) if 200 <= status < 300 else _refuse(status, data, url, what)
        tries = self.settings.max_retries + 1
        raise RegistryUnavailable(
            f"the schema registry was asked for {what} {tries} times and did not answer ({trouble}): check that it "
            f"runs and that schema.registry.url is right, then try again; no record is at fault"
        )

    def _wait_ms(self, attempt: int) -> float:
        longest: float = min(
            self.settings.retries_max_wait_ms, self.settings.retries_wait_ms * 2 ** (attempt - 1)
        )
        return longest * (0.5 + random.random() / 2)

    def _send(self, method: str, url: str, body: object) -> tuple[int, bytes]:
        """Returns status and body of one answer, read within the time and up to a size; _NoAnswer if there is none."""
        errors = package("httpx", "a schema registry")
        content = None if body is None else json.dumps(body).encode()
        deadline_s = time.monotonic() + self.settings.timeout
        data = bytearray()
        try:
            with self._http().stream(method, url, content=content) as response:
                if 300 <= response.status_code < 400:
                    return response.status_code, response.headers.get("location", "").encode()
                for chunk in response.iter_bytes():
                    data += chunk
                    if len(data) > _LARGEST_ANSWER:
                        raise RegistryError(
                            f"{url} answers more than {_LARGEST_ANSWER >> 20} MiB: is schema.registry.url a registry?"
                        )
                    if time.monotonic() > deadline_s:
                        raise _NoAnswer(f"no whole answer within {self.settings.timeout:g} s")
                return response.status_code, bytes(data)
        except errors.TimeoutException as late:
            raise _NoAnswer(f"no answer within {self.settings.timeout:g} s") from late
        except (errors.HTTPError, errors.InvalidURL) as error:
            _raise_tls(error, url)
            raise _NoAnswer(str(error) or type(error).__name__) from error

    def _http(self) -> httpx.Client:
        with self._lock:
            if self._client is None or self._pid != os.getpid():
                self._client, self._pid = _new_client(self.settings), os.getpid()
                weakref.finalize(self, _close_in, self._pid, self._client)
            return self._client

    # --- answers ----------------------------------------------------------------------------------

    def _keep(self, schema: RegisteredSchema) -> None:
        while len(self._by_id) >= self.settings.cache_capacity:
            del self._by_id[next(iter(self._by_id))]
        self._by_id.setdefault(schema.id, schema)

    def _read(
        self,
        answer: Mapping[str, Any],
        what: str,
        *,
        schema_id: int | None = None,
        subject: str | None = None,
    ) -> RegisteredSchema:
        kind = answer.get("schemaType") or "AVRO"
        text = answer.get("schema")
        if kind not in _KINDS:
            raise RegistryError(f"{what} is of the kind {kind!r}, and only {', '.join(_KINDS)} can be read")
        if not isinstance(text, str):
            raise RegistryError(
                f"the schema registry's answer for {what} has no schema in it: {_shown(answer)}"
            )
        found = _whole_number(answer, "id", what) if schema_id is None else schema_id
        version = answer.get("version")
        return RegisteredSchema(
            found,
            cast(SchemaKind, kind),
            text,
            tuple(_reference(each, what) for each in answer.get("references") or ()),
            subject,
            version if isinstance(version, int) and subject is not None else None,
        )


_SHARED: dict[RegistrySettings, SchemaRegistry] = {}
_SHARED_LOCK = threading.Lock()
_ALL: weakref.WeakSet[SchemaRegistry] = weakref.WeakSet()


def _renew_locks() -> None:
    """Gives a forked child locks that no thread of its parent holds."""
    global _SHARED_LOCK
    _SHARED_LOCK = threading.Lock()
    for registry in list(_ALL):
        registry._lock = threading.RLock()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_renew_locks)


class _NoAnswer(Exception):
    """One URL did not answer; another one, or a later try, may."""


def _new_client(settings: RegistrySettings) -> httpx.Client:
    errors = package("httpx", "a schema registry")
    headers = {
        "Accept": f"{_MEDIA_TYPE}, application/vnd.schemaregistry+json, application/json",
        "Content-Type": _MEDIA_TYPE,
        "User-Agent": f"kohort/{kohort.__version__}",
    }
    if settings.bearer_auth_token:
        headers["Authorization"] = f"Bearer {settings.bearer_auth_token}"
    if settings.bearer_auth_logical_cluster:
        headers["target-sr-cluster"] = settings.bearer_auth_logical_cluster
    if settings.bearer_auth_identity_pool_id:
        headers["Confluent-Identity-Pool-Id"] = settings.bearer_auth_identity_pool_id
    try:
        client: httpx.Client = errors.Client(
            headers=headers,
            auth=settings.credentials,
            verify=_tls_context(settings),
            proxy=settings.proxy or None,
            timeout=settings.timeout,
            follow_redirects=False,
        )
    except (ValueError, errors.InvalidURL) as error:
        raise SettingError(
            f"schema.registry.proxy, or a proxy of the environment, cannot be used: {error}"
        ) from error
    return client


def _tls_context(settings: RegistrySettings) -> ssl.SSLContext | bool:
    """Returns the certificates to trust and to show; only for TLS, because reading them takes some milliseconds."""
    if not any(url.startswith("https:") for url in (*settings.urls, settings.proxy)):
        return True
    try:
        ca = settings.ssl_ca_location
        if not ca:
            context: ssl.SSLContext = package("httpx", "a schema registry").create_ssl_context()
        elif os.path.isdir(ca):
            context = ssl.create_default_context(capath=ca)
        else:
            context = ssl.create_default_context(cafile=ca)
        if settings.ssl_certificate_location:
            context.load_cert_chain(
                settings.ssl_certificate_location,
                settings.ssl_key_location or None,
                settings.ssl_key_password or "",
            )
    except OSError as error:  # ssl.SSLError is one
        given = [settings.ssl_ca_location, settings.ssl_certificate_location, settings.ssl_key_location]
        files = ", ".join(filter(None, given))
        raise SettingError(
            f"the PEM files for the schema registry ({files}) cannot be used: {error}"
        ) from error
    return context


def _close_in(pid: int, client: httpx.Client) -> None:
    if os.getpid() == pid:
        client.close()


def _raise_tls(error: BaseException, url: str) -> None:
    """Raises RegistryError if TLS is what failed: another try would fail too."""
    cause: BaseException | None = error
    for _ in range(10):
        if cause is None:
            return
        if isinstance(cause, ssl.SSLError):
            raise RegistryError(
                f"no TLS connection to {url}: {cause}; if its certificate is of a private CA, give that CA's PEM file "
                f"in schema.registry.ssl.ca.location"
            ) from error
        cause = cause.__cause__ or cause.__context__


def _body(kind: SchemaKind, text: str, references: Sequence[SchemaReference]) -> dict[str, object]:
    body: dict[str, object] = {"schema": text}
    if kind != "AVRO":
        body["schemaType"] = kind
    if references:
        body["references"] = [
            {"name": each.name, "subject": each.subject, "version": each.version} for each in references
        ]
    return body


def _parsed(data: bytes, url: str, what: str) -> dict[str, Any]:
    try:
        answer = json.loads(data)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise RegistryError(
            f"{url} was asked for {what} and answered what no schema registry does: {_shown(data)}; is "
            f"schema.registry.url right? (Apicurio's ends with /apis/ccompat/v7)"
        )
    return answer


def _refuse(status: int, data: bytes, url: str, what: str) -> NoReturn:
    """Raises the exception for an answer that is a refusal."""
    code, words = _code_of(data), _said(data)
    if 300 <= status < 400:
        raise RegistryError(
            f"{url} redirects to {_shown(data)}: give that address in schema.registry.url", status=status
        )
    if status in (401, 403):
        raise RegistryAccessDenied(
            f"the schema registry at {url} refused access to {what} (HTTP {status}{words}): check "
            f"basic.auth.user.info or bearer.auth.token, and what they allow",
            status=status,
            error_code=code,
        )
    if status == 404 and code is None:
        raise RegistryError(
            f"{url} knows no such path (HTTP 404{words}): is schema.registry.url right? (Apicurio's ends with "
            f"/apis/ccompat/v7)",
            status=status,
        )
    if status == 404:
        raise SchemaNotFound(
            f"{what} is not in the schema registry at {url} (HTTP 404{words}): is it the registry that the producer "
            f"uses, and was the schema deleted?",
            status=status,
            error_code=code,
        )
    if status in (409, 422):
        raise SchemaRefused(
            f"the schema registry at {url} refused {what} (HTTP {status}{words}): change the schema so that it is "
            f"valid and compatible, or the subject's compatibility",
            status=status,
            error_code=code,
        )
    raise RegistryError(
        f"the schema registry at {url} was asked for {what} and answered HTTP {status}{words}",
        status=status,
        error_code=code,
    )


def _code_of(data: bytes) -> int | None:
    try:
        code = json.loads(data)["error_code"]
    except (ValueError, KeyError, TypeError):
        return None
    return code if isinstance(code, int) else None


def _said(data: bytes) -> str:
    """Returns what an answer says, to follow its status: `: 40403 Schema not found`; empty if it says nothing."""
    try:
        words = str(json.loads(data)["message"])
    except (ValueError, KeyError, TypeError):
        words = data[: 2 * _SHOWN].decode(errors="replace")
    code = _code_of(data)
    words = " ".join(words.split())[:_SHOWN]
    said = f"{code} {words}" if code is not None else words
    return f": {said}" if said else ""


def _shown(answer: object) -> str:
    text = answer.decode(errors="replace") if isinstance(answer, bytes) else json.dumps(answer, default=str)
    return " ".join(text.split())[:_SHOWN] or "nothing"


def _whole_number(answer: Mapping[str, Any], name: str, what: str) -> int:
    number = answer.get(name)
    if not isinstance(number, int) or isinstance(number, bool):
        raise RegistryError(f"the schema registry's answer for {what} has no {name} in it: {_shown(answer)}")
    return number


def _reference(answer: Any, what: str) -> SchemaReference:
    try:
        return SchemaReference(str(answer["name"]), str(answer["subject"]), int(answer["version"]))
    except (KeyError, TypeError, ValueError):
        raise RegistryError(
            f"{what} has a reference without name, subject or version: {_shown(answer)}"
        ) from None
