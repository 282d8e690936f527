"""Has the keys that tokens are signed with: of a file, which is read again when it has changed, or of a URL."""

from __future__ import annotations

import logging
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from http.client import HTTPException
from pathlib import Path
from urllib.parse import unquote, urlsplit

from kohort.security.signed_tokens import KeySource, VerificationKey, parse_jwks
from kohort.settings import SettingError

log = logging.getLogger("kohort.broker")

_SETTING = "sasl.oauthbearer.jwks.endpoint.url"
_BETWEEN_FETCHES_MS = 10_000
"""How often keys are fetched at most, whatever kids the tokens name."""
_PATIENCE_S = 5.0
_MOST_BYTES = 1024 * 1024


def key_source(url: str, *, refresh_ms: int, truststore: str | None = None) -> KeySource:
    """Returns the keys behind a URL; SettingError if it can never have any. `truststore` is a file of PEM."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        return JwksFile(Path(unquote(parts.path)).absolute())
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise SettingError(f"{_SETTING}={url} is not a URL that begins with https:// or file:///")
    return JwksUrl(url, refresh_ms, truststore)


class JwksFile:
    """The keys of a file."""

    def __init__(self, path: Path) -> None:
        self._path, self.where = path, path.as_uri()
        self._seen: tuple[int, int, int] | None = None
        self._keys: Sequence[VerificationKey] = ()
        try:
            self._read(self._stamp())
        except (OSError, ValueError) as error:
            raise SettingError(f"{_SETTING}: cannot use {path}: {_words(error)}") from None

    def current(self) -> Sequence[VerificationKey]:
        try:
            seen = self._stamp()
            if seen != self._seen:
                self._read(seen)
        except (OSError, ValueError) as error:
            log.error(
                "%s: cannot use %s: %s. The keys that were read before stay",
                _SETTING,
                self._path,
                _words(error),
            )
        return self._keys

    def fetch_if_due(self, now_ms: int, *, is_missing: bool) -> Callable[[], None] | None:
        return None

    def _read(self, seen: tuple[int, int, int]) -> None:
        self._seen = seen
        self._keys = parse_jwks(self._path.read_bytes())

    def _stamp(self) -> tuple[int, int, int]:
        status = self._path.stat()
        return status.st_mtime_ns, status.st_size, status.st_ino


class JwksUrl:
    """The keys of a URL: fetched at the first login, then when they are old or one is missing."""

    def __init__(self, url: str, refresh_ms: int, truststore: str | None) -> None:
        self.where, self._refresh_ms = url, refresh_ms
        self._keys: Sequence[VerificationKey] = ()
        self._fetched_ms: int | None = None
        self._is_fetching = False
        try:
            self._context = ssl.create_default_context(cafile=truststore)
        except OSError as error:
            raise SettingError(f"ssl.truststore.location: cannot use {truststore}: {_words(error)}") from None

    def current(self) -> Sequence[VerificationKey]:
        return self._keys

    def fetch_if_due(self, now_ms: int, *, is_missing: bool) -> Callable[[], None] | None:
        if is_missing and self._is_fetching:
            return self._fetch  # who needs a key waits with those who came before
        age_ms = None if self._fetched_ms is None else now_ms - self._fetched_ms
        if age_ms is not None and 0 <= age_ms < (_BETWEEN_FETCHES_MS if is_missing else self._refresh_ms):
            return None
        self._fetched_ms, self._is_fetching = now_ms, True
        return self._fetch

    def _fetch(self) -> None:
        """Fetches the keys. If they cannot be had, the log says so and the old ones stay. Runs on another thread."""
        try:
            handler = urllib.request.HTTPSHandler(context=self._context)
            with urllib.request.build_opener(handler).open(self.where, timeout=_PATIENCE_S) as answer:
                if self.where.startswith("https:") and not answer.url.startswith("https:"):
                    raise ValueError("it redirects to an address without TLS")
                text = answer.read(_MOST_BYTES + 1)
            if len(text) > _MOST_BYTES:
                raise ValueError("it is longer than 1 MB")
            self._keys = parse_jwks(text)
        except (OSError, ValueError, HTTPException) as error:
            log.error(
                "cannot fetch the keys of tokens from %s: %s", _without_login(self.where), _words(error)
            )
        finally:
            self._is_fetching = False


def _without_login(url: str) -> str:
    """Returns a URL without the name and the password that it may have."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _words(error: Exception) -> str:
    if isinstance(error, urllib.error.URLError):
        return str(error.reason)
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
