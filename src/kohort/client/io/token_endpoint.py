"""Asks a token endpoint for tokens (OAuth 2's client-credentials grant, RFC 6749 section 4.4), or reads one of a file.

It is called on a thread of its own and may wait. What may be over in a moment (no connection, 429, 5xx) is tried again
until sasl.login.retry.backoff.max.ms have passed; anything else is an error at once.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kohort import __version__
from kohort.client.config import ClientConfig
from kohort.client.core.security_settings import client_credentials
from kohort.client.io.tls_context import trust
from kohort.client.io.tokens import BearerToken, TokenRefused, TokenSource, expiry_of, is_bearer
from kohort.settings import SettingError

MOST_BYTES = 1 << 20
"""A longer answer is none of a token endpoint."""
_WORTH_A_RETRY = {408, 425, 429, 500, 502, 503, 504}


def endpoint_source(config: ClientConfig, extensions: Mapping[str, str]) -> TokenSource:
    """Returns a source that asks sasl.oauthbearer.token.endpoint.url."""
    url = config.sasl_oauthbearer_token_endpoint_url
    if url.lower().startswith("file:"):
        path = Path(urllib.request.url2pathname(urllib.parse.urlsplit(url).path))
        return lambda: _from_file(path, extensions)
    return _Endpoint(config, extensions).token


def _from_file(path: Path, extensions: Mapping[str, str]) -> BearerToken:
    try:
        token = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise TokenRefused(f"the token in {path} cannot be read: {error}") from None
    if not token or not is_bearer(token):
        raise TokenRefused(f"{path} holds no token: one word is expected")
    return BearerToken(token, expiry_of(token), extensions)


class _Endpoint:
    """One token endpoint with its settings."""

    def __init__(self, config: ClientConfig, extensions: Mapping[str, str]) -> None:
        self._url, self._extensions = config.sasl_oauthbearer_token_endpoint_url, extensions
        self._timeout_s = max(config.sasl_login_connect_timeout_ms, config.sasl_login_read_timeout_ms) / 1000
        self._backoff_ms = config.sasl_login_retry_backoff_ms
        self._patience_ms = config.sasl_login_retry_backoff_max_ms
        name, secret, scope = client_credentials(config)
        form = {"grant_type": "client_credentials"} | ({"scope": scope} if scope else {})
        self._body = urllib.parse.urlencode(form).encode()
        if config.sasl_oauthbearer_header_urlencode:
            name, secret = urllib.parse.quote_plus(name), urllib.parse.quote_plus(secret)
        self._headers = {
            "Authorization": "Basic " + base64.b64encode(f"{name}:{secret}".encode()).decode(),
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
            "User-Agent": f"kohort/{__version__}",
        }
        self._opener = urllib.request.build_opener(_NoRedirect(), *_https(config))
        parts = urllib.parse.urlsplit(self._url)
        self._place = (
            f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "") + parts.path
        )

    def token(self) -> BearerToken:
        """Asks, several times if need be."""
        started, pause_s = time.monotonic(), self._backoff_ms / 1000
        while True:
            try:
                return self._asked()
            except _MayPass as obstacle:
                left_s = self._patience_ms / 1000 - (time.monotonic() - started)
                if left_s <= 0:
                    raise TokenRefused(f"the token endpoint {self._place}: {obstacle}") from None
                time.sleep(min(max(pause_s, 0.01), left_s))
                pause_s *= 2

    def _asked(self) -> BearerToken:
        asked_ms = time.time_ns() // 1_000_000
        request = urllib.request.Request(self._url, self._body, self._headers, method="POST")
        try:
            with self._opener.open(request, timeout=self._timeout_s) as response:
                body = response.read(MOST_BYTES)
        except urllib.error.HTTPError as error:
            with error:
                raise self._refused(error) from None
        except (OSError, http.client.HTTPException) as error:  # URLError is an OSError
            reason = getattr(error, "reason", error)
            if isinstance(reason, ssl.SSLCertVerificationError):
                raise TokenRefused(
                    f"the certificate of the token endpoint {self._place} was not accepted: {reason.verify_message} "
                    "(see https.ca.location)"
                ) from None
            raise _MayPass(f"{reason}") from None
        return self._read(body, asked_ms)

    def _refused(self, error: urllib.error.HTTPError) -> Exception:
        said = _error_of(error.read(MOST_BYTES))
        text = f"HTTP {error.code} {error.reason}{said}"
        if error.code in _WORTH_A_RETRY:
            return _MayPass(text)
        hint = (
            "; check sasl.oauthbearer.client.credentials.client.id, …client.secret and sasl.oauthbearer.scope"
            if error.code in (400, 401, 403)
            else "; check sasl.oauthbearer.token.endpoint.url"
        )
        return TokenRefused(f"the token endpoint {self._place}: {text}{hint}")

    def _read(self, body: bytes, asked_ms: int) -> BearerToken:
        try:
            answer: Any = json.loads(body)
        except ValueError:
            answer = None
        token = (answer.get("access_token") or answer.get("id_token")) if isinstance(answer, dict) else None
        if not isinstance(token, str) or not is_bearer(token):
            raise TokenRefused(
                f"the token endpoint {self._place} answers without an access_token: is it the right URL?"
            )
        lasts_s = answer.get("expires_in")
        if isinstance(lasts_s, str) and lasts_s.isdigit():
            lasts_s = int(lasts_s)
        if isinstance(lasts_s, int | float) and not isinstance(lasts_s, bool) and lasts_s > 0:
            return BearerToken(token, asked_ms + int(lasts_s * 1000), self._extensions)
        return BearerToken(token, expiry_of(token), self._extensions)


class _MayPass(Exception):
    """What went wrong may be right at the next try."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the secret is for the endpoint that was named."""

    def redirect_request(self, *given: Any, **more: Any) -> None:
        return None


def _https(config: ClientConfig) -> list[urllib.request.HTTPSHandler]:
    if not (config.https_ca_location or config.https_ca_pem):
        return []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        trust(context, config.https_ca_location, config.https_ca_pem, "https.ca.pem")
    except OSError as error:
        named = "https.ca.pem" if config.https_ca_pem else f"https.ca.location={config.https_ca_location}"
        raise SettingError(f"{named}: {error}") from error
    return [urllib.request.HTTPSHandler(context=context)]


def _error_of(body: bytes) -> str:
    """Returns what RFC 6749 has an endpoint say of an error, for people; nothing else of the answer is shown."""
    try:
        answer = json.loads(body)
    except ValueError:
        return ""
    if not isinstance(answer, dict):
        return ""
    words = [str(answer[name])[:200] for name in ("error", "error_description") if answer.get(name)]
    return f" ({': '.join(words)})" if words else ""
