"""Who may ask what: the Host header, other sites, the token for changes, the size of bodies, the headers of answers.

- A page of another site can make a browser send requests to this machine. DNS rebinding gives such a page a name that
  leads here, so the name in the Host header must be one of ours. An IP address is always fine: rebinding needs a name.
- Requests that a browser says come from another site are refused (Sec-Fetch-Site, Origin), and no CORS header is
  ever sent.
- Changes need the token, which only the terminal shows, and a body that is JSON: a form of another site cannot send
  one without asking first.
- The page may load only what this server serves, may not be framed, and text of messages is never taken for HTML.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kohort.console.errors import error_response
from kohort.console.tokens import is_token

log = logging.getLogger("kohort.console")

MOST_BODY_BYTES = 1 << 20
BODY_S = 10.0
LONGEST_HEADER = 300
_TOO_LARGE = (413, "too_large", f"a body may have {MOST_BODY_BYTES:,} bytes, and {BODY_S:.0f} s to arrive")
_SAFE_METHODS = ("GET", "HEAD")
_OWN_SITE = ("same-origin", "none")
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


def is_address(host: str) -> bool:
    """Says whether a host is an IP address, as it stands in a URL: an IPv6 address in brackets."""
    try:
        if host.startswith("[") and host.endswith("]"):
            ipaddress.IPv6Address(host[1:-1].partition("%")[0])
        else:
            ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return True


def host_of(header: str) -> str | None:
    """Returns the host of a Host header in lower case, without the port; None if it is none."""
    try:
        parts = urlsplit(f"//{header}")
        if parts.username is not None or parts.path or parts.query or parts.fragment:
            return None
        parts.port  # noqa: B018 - raises ValueError if it is no number
        host = parts.hostname
    except ValueError:
        return None
    if not host:
        return None
    return f"[{host}]" if ":" in host else host.rstrip(".")


class RequestGuard:
    """ASGI middleware that refuses what must not come in, and adds the headers of safety to what goes out."""

    def __init__(self, app: ASGIApp, allowed_hosts: Collection[str], token: str, read_only: bool) -> None:
        self._app = app
        self._allowed = {host.lower().rstrip(".") for host in allowed_hosts} | {"localhost"}
        self._token = token
        self._read_only = read_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_api = scope["path"].startswith("/api")
        begun: list[Message] = []

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                begun.append(message)
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                if is_api:
                    headers.setdefault("cache-control", "no-store")
                else:
                    headers.setdefault("cache-control", "no-cache")
            await send(message)

        headers = Headers(scope=scope)
        refusal = self._refusal(scope, headers, is_api)
        if refusal is None and scope["method"] not in _SAFE_METHODS:
            body = await whole_body(receive)
            if body is None:
                refusal = _TOO_LARGE
            else:
                receive = replaying(body, receive)
        if refusal is not None:
            response = error_response(*refusal)
            if refusal[0] == 401:
                response.headers["www-authenticate"] = 'Bearer realm="kohort console"'
            await response(scope, receive, send_safely)
            return
        try:
            await self._app(scope, receive, send_safely)
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            if begun:
                raise  # the server closes the connection
            response = error_response(500, "fault", "the console has a fault; its log says which")
            await response(scope, receive, send_safely)

    def _refusal(self, scope: Scope, headers: Headers, is_api: bool) -> tuple[int, str, str] | None:
        """Returns the answer for a request that must not come in; None if it may."""
        if (wrong := self._wrong_host(headers)) is not None:
            return 421, "wrong_host", wrong
        site = headers.get("sec-fetch-site")
        if is_api and site is not None and site not in _OWN_SITE:
            return 403, "other_site", "this request comes from a page of another site, and is not carried out"
        if scope["method"] in _SAFE_METHODS:
            return None
        return self._wrong_change(headers)

    def _wrong_host(self, headers: Headers) -> str | None:
        given = headers.get("host", "")
        host = host_of(given)
        if host is not None and (host in self._allowed or is_address(host)):
            return None
        return (
            f"the Host header says {given[:LONGEST_HEADER]!r}, which is no name of this console: open it by its "
            "address, or start it with --allow-host NAME"
        )

    def _wrong_change(self, headers: Headers) -> tuple[int, str, str] | None:
        origin = headers.get("origin")
        if origin is not None and urlsplit_netloc(origin) != headers.get("host", "").lower():
            return (
                403,
                "other_site",
                f"this request comes from {origin[:LONGEST_HEADER]}, and is not carried out",
            )
        if self._read_only:
            return 403, "read_only", "this console was started with --read-only: it changes nothing"
        if not is_token(headers.get("authorization"), self._token):
            return 401, "unauthorized", (
                "changes need the token that the console printed when it started: send it in the header "
                "Authorization: Bearer TOKEN"
            )  # fmt: skip
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return 415, "unsupported_media_type", "send the body as JSON, with Content-Type: application/json"
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit() or int(length) > MOST_BODY_BYTES:
            return _TOO_LARGE
        return None


def urlsplit_netloc(origin: str) -> str | None:
    """Returns host and port of an Origin header in lower case; None if it has none (`null`)."""
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:
        return None


async def whole_body(receive: Receive) -> bytes | None:
    """Receives a body; None if it is too large, or does not come in time."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            while True:
                message = await receive()
                body += message.get("body", b"")
                if len(body) > MOST_BODY_BYTES:
                    return None
                if not message.get("more_body", False):
                    return bytes(body)
    except TimeoutError:
        return None


def replaying(body: bytes, receive: Receive) -> Receive:
    """Makes a function that gives a body that was received already, and then what comes."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

    return replay
