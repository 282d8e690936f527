"""The settings of a schema registry's client, by the names of Confluent's Java and Python clients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from kohort.settings import Kind, SettingError, Table, as_text, at_least, one_of, setting

PREFIX = "schema.registry."
"""Java's clients have this before every name; here it may stand there or not."""

_OTHER_NAMES = {"latest.cache.ttl.sec": "cache.latest.ttl.sec"}
_PEM = "give PEM files: schema.registry.ssl.ca.location, ssl.certificate.location and ssl.key.location"
_OF_SERIALIZER = "it belongs to a serializer: AvroSerializer(…, {keyword}=…)"
_REFUSED = {
    "ssl.truststore.location": _PEM,
    "ssl.truststore.password": _PEM,
    "ssl.truststore.type": _PEM,
    "ssl.keystore.location": _PEM,
    "ssl.keystore.password": _PEM,
    "ssl.keystore.type": _PEM,
    "http.connect.timeout.ms": "use schema.registry.timeout, in seconds",
    "http.read.timeout.ms": "use schema.registry.timeout, in seconds",
    "proxy.host": "use schema.registry.proxy with a URL: http://host:port",
    "proxy.port": "use schema.registry.proxy with a URL: http://host:port",
}
_KEYWORDS = {
    "auto.register.schemas": "auto_register_schemas",
    "use.latest.version": "use_latest_version",
    "normalize.schemas": "normalize_schemas",
    "key.subject.name.strategy": "subject_name_strategy",
    "value.subject.name.strategy": "subject_name_strategy",
    "subject.name.strategy": "subject_name_strategy",
}


@dataclass(frozen=True, slots=True, repr=False)
class RegistrySettings:
    """Where a schema registry is and how to speak to it; made by `RegistrySettings.of`. Its repr holds no secrets."""

    url: str = setting(
        "url",
        Kind.STRING,
        "",
        None,
        "Where the registry is; several URLs, with commas in between, are tried in turn.",
        sensitive=True,
    )
    basic_auth_credentials_source: str = setting(
        "basic.auth.credentials.source",
        Kind.STRING,
        "",
        one_of("URL", "USER_INFO"),
        "Where the name and the password are: in the URL (`http://name:password@host`), or in basic.auth.user.info.",
    )
    basic_auth_user_info: str = setting(
        "basic.auth.user.info",
        Kind.STRING,
        "",
        None,
        "`name:password` for basic authentication.",
        sensitive=True,
    )
    bearer_auth_credentials_source: str = setting(
        "bearer.auth.credentials.source",
        Kind.STRING,
        "",
        one_of("STATIC_TOKEN"),
        "STATIC_TOKEN: the token is bearer.auth.token.",
    )
    bearer_auth_token: str = setting(
        "bearer.auth.token", Kind.STRING, "", None, "The token for bearer authentication.", sensitive=True
    )
    bearer_auth_logical_cluster: str = setting(
        "bearer.auth.logical.cluster", Kind.STRING, "", None, "Sent with the token as `target-sr-cluster`."
    )
    bearer_auth_identity_pool_id: str = setting(
        "bearer.auth.identity.pool.id",
        Kind.STRING,
        "",
        None,
        "Sent with the token as `Confluent-Identity-Pool-Id`.",
    )
    ssl_ca_location: str = setting(
        "ssl.ca.location",
        Kind.STRING,
        "",
        None,
        "A PEM file or a folder with the CAs to trust; else SSL_CERT_FILE's, or those of certifi.",
    )
    ssl_certificate_location: str = setting(
        "ssl.certificate.location", Kind.STRING, "", None, "A PEM file with the client's certificate."
    )
    ssl_key_location: str = setting(
        "ssl.key.location", Kind.STRING, "", None, "A PEM file with its key, if that is not in the same file."
    )
    ssl_key_password: str = setting(
        "ssl.key.password", Kind.STRING, "", None, "The password of the key.", sensitive=True
    )
    proxy: str = setting(
        "proxy",
        Kind.STRING,
        "",
        None,
        "The URL of an HTTP proxy; else HTTPS_PROXY, HTTP_PROXY and NO_PROXY of the environment hold.",
        sensitive=True,
    )
    timeout: float = setting(
        "timeout",
        Kind.DOUBLE,
        10.0,
        at_least(0.001),
        "Seconds to wait for a connection, and then for the answer.",
    )
    max_retries: int = setting(
        "max.retries",
        Kind.INT,
        3,
        at_least(0),
        "How often a request is tried again after no answer, 429 or 5xx.",
    )
    retries_wait_ms: int = setting(
        "retries.wait.ms",
        Kind.INT,
        500,
        at_least(0),
        "The wait before the first retry; it doubles, with jitter.",
    )
    retries_max_wait_ms: int = setting(
        "retries.max.wait.ms", Kind.INT, 5000, at_least(0), "The longest wait between two tries."
    )
    cache_capacity: int = setting(
        "cache.capacity", Kind.INT, 10_000, at_least(1), "Schemas by id that are kept; an id never changes."
    )
    cache_latest_ttl_sec: float = setting(
        "cache.latest.ttl.sec",
        Kind.DOUBLE,
        300.0,
        None,
        "How long the latest version of a subject is taken for it without asking again; -1: for ever.",
    )

    @classmethod
    def of(cls, given: Mapping[str, object] | str) -> RegistrySettings:
        """Reads settings by name, with `schema.registry.` before it or not; a string is a URL. Others are refused."""
        values: dict[str, str] = {}
        for name, value in ({"url": given} if isinstance(given, str) else given).items():
            own = own_name(name)
            if value is None:
                continue
            if own in values and values[own] != _text(value):
                raise SettingError(
                    f"{name} is given twice, as {own} and as {PREFIX}{own}, with different values"
                )
            values[own] = _text(value)
        settings = REGISTRY.parse(values)
        settings._check()
        return settings

    @property
    def urls(self) -> tuple[str, ...]:
        """The base URLs, without credentials and without a slash at the end."""
        return tuple(_without_user_info(url) for url in _listed(self.url))

    @property
    def credentials(self) -> tuple[str, str] | None:
        """Name and password for basic authentication, or None."""
        if self.basic_auth_user_info:
            name, _, password = self.basic_auth_user_info.partition(":")
            return name, password
        for url in _listed(self.url):
            parts = urlsplit(url)
            if parts.username is not None:
                return unquote(parts.username), unquote(parts.password or "")
        return None

    def __repr__(self) -> str:
        shown = [f"url={','.join(self.urls)!r}"]
        for row in REGISTRY:
            value = getattr(self, row.field)
            if row.field != "url" and value != row.default:
                shown.append(f"{row.field}={'<hidden>' if row.sensitive else repr(value)}")
        return f"RegistrySettings({', '.join(shown)})"

    def _check(self) -> None:
        """Raises SettingError for settings that contradict each other."""
        if not self.urls:
            raise SettingError(
                "schema.registry.url is missing: where is the schema registry? (http://host:8081)"
            )
        for url in self.urls:
            if not _is_usable(url):
                raise SettingError(
                    f"schema.registry.url must be http://host:port or https://host:port, not {url}"
                )
        self._check_credentials()
        if (self.ssl_key_location or self.ssl_key_password) and not self.ssl_certificate_location:
            raise SettingError("ssl.key.location and ssl.key.password need ssl.certificate.location")

    def _check_credentials(self) -> None:
        in_url = any(urlsplit(url).username is not None for url in _listed(self.url))
        if self.basic_auth_user_info and ":" not in self.basic_auth_user_info:
            raise SettingError("basic.auth.user.info must be name:password")
        if self.basic_auth_user_info and in_url:
            raise SettingError(
                "there are credentials in schema.registry.url and in basic.auth.user.info: remove one"
            )
        source = self.basic_auth_credentials_source
        if source == "USER_INFO" and not self.basic_auth_user_info:
            raise SettingError(
                "basic.auth.credentials.source=USER_INFO needs basic.auth.user.info=name:password"
            )
        if source == "URL" and self.basic_auth_user_info:
            raise SettingError("basic.auth.user.info needs basic.auth.credentials.source=USER_INFO, not URL")
        if self.bearer_auth_token and self.credentials is not None:
            raise SettingError(
                "there are both basic and bearer credentials for the schema registry: remove one"
            )
        if self.bearer_auth_credentials_source and not self.bearer_auth_token:
            raise SettingError("bearer.auth.credentials.source=STATIC_TOKEN needs bearer.auth.token")
        if not self.bearer_auth_token and (
            self.bearer_auth_logical_cluster or self.bearer_auth_identity_pool_id
        ):
            raise SettingError(
                "bearer.auth.logical.cluster and bearer.auth.identity.pool.id need bearer.auth.token"
            )


REGISTRY = Table(RegistrySettings, "schema registry")


def own_name(name: str) -> str:
    """Returns a setting's name without `schema.registry.`; SettingError if there is no such setting."""
    own = name.removeprefix(PREFIX)
    own = _OTHER_NAMES.get(own, own)
    if own in REGISTRY.settings:
        return own
    if own in _REFUSED:
        raise SettingError(f"{name} is not supported: {_REFUSED[own]}")
    if own in _KEYWORDS:
        raise SettingError(
            f"{name} is no setting of the schema registry: {_OF_SERIALIZER.format(keyword=_KEYWORDS[own])}"
        )
    REGISTRY[own]  # it says what is near
    raise AssertionError(own)


def is_registry_setting(name: str) -> bool:
    """Says whether a name among a program's settings is meant for the schema registry."""
    return name.startswith((PREFIX, "basic.auth.", "bearer.auth."))


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return as_text(value) or ""


def _listed(urls: str) -> Iterable[str]:
    return [url.strip().rstrip("/") for url in urls.split(",") if url.strip()]


def _is_usable(url: str) -> bool:
    parts = urlsplit(url)
    try:
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port is no number
        return False


def _without_user_info(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
