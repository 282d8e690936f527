"""Checks the settings of TLS and SASL against each other, and reads JAAS: whatever Java and librdkafka call them.

Nothing here touches a file or a socket. What is wrong is a SettingError that says what to write instead; its text never
holds a secret.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kohort.security.jaas import JaasEntry, parse_jaas
from kohort.settings import SettingError

if TYPE_CHECKING:
    from kohort.client.config import ClientConfig

SAME_SETTINGS = {
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.oauthbearer.client.id": "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.secret": "sasl.oauthbearer.client.credentials.client.secret",
}
"""Names of librdkafka's, and the setting of Java's that means the same. Both are taken."""

_CONVERT = (
    "make a PEM file of it: `keytool -importkeystore -srckeystore STORE -destkeystore STORE.p12 -deststoretype PKCS12` "
    "if it is a JKS, then `openssl pkcs12 -in STORE.p12 -out STORE.pem`"
)
_MODULES = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "OAuthBearerLoginModule": ("OAUTHBEARER",),
}
_LOGIN_HANDLERS = ("OAuthBearerLoginCallbackHandler", "OAuthBearerUnsecuredLoginCallbackHandler")
_RETRIEVERS = ("ClientCredentialsJwtRetriever", "DefaultJwtRetriever", "FileJwtRetriever")
_A_FUNCTION = "set sasl.oauthbearer.token to a function that returns a token"


# --- checks of one value --------------------------------------------------------------------------------------------


def store_type(value: str) -> str | None:
    """Takes PEM; says how to make it of Java's own stores."""
    if value.upper() in ("", "PEM"):
        return None
    if value.upper() in ("JKS", "PKCS12"):
        return f"only PEM is read; {_CONVERT}, and set the type to PEM"
    return "String must be one of: PEM"


def login_handler(value: str) -> str | None:
    """Takes the two handlers of Kafka's own, which are built in here."""
    return _known_class(value, _LOGIN_HANDLERS)


def jwt_retriever(value: str) -> str | None:
    """Takes the retrievers of Kafka's own that are built in here."""
    return _known_class(value, _RETRIEVERS)


def _known_class(value: str, known: tuple[str, ...]) -> str | None:
    if not value or value.rpartition(".")[2] in known:
        return None
    return f"it names a Java class; built in are {' and '.join(known)}; for anything else {_A_FUNCTION}"


# --- checks of all together -------------------------------------------------------------------------------------------


def check_security(config: ClientConfig) -> None:
    """Raises SettingError where settings of TLS or SASL that are used contradict each other, or one is missing."""
    if config.security_protocol.endswith("SSL"):
        _check_tls(config)
    if config.security_protocol.startswith("SASL"):
        _check_sasl(config)


def _check_tls(config: ClientConfig) -> None:
    _one_of_them(
        config, "ssl.ca.location", "ssl.ca.pem", "ssl.truststore.location", "ssl.truststore.certificates"
    )
    _one_of_them(
        config,
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.keystore.location",
        "ssl.keystore.certificate.chain",
    )
    _one_of_them(config, "ssl.key.location", "ssl.key.pem", "ssl.keystore.location", "ssl.keystore.key")
    certificate = config.ssl_certificate_location or config.ssl_certificate_pem
    if (config.ssl_key_location or config.ssl_key_pem) and not certificate:
        raise SettingError(
            "a private key without its certificate: give ssl.certificate.location or ssl.certificate.pem too"
        )
    if config.ssl_certificate_pem and not (config.ssl_key_location or config.ssl_key_pem):
        raise SettingError(
            "ssl.certificate.pem without its private key: give ssl.key.pem or ssl.key.location"
        )
    if bool(config.ssl_keystore_key) != bool(config.ssl_keystore_certificate_chain):
        raise SettingError(
            "ssl.keystore.key and ssl.keystore.certificate.chain belong together: give both or none"
        )
    if config.ssl_truststore_password:
        raise SettingError("ssl.truststore.password: a PEM file has no password; leave it out")
    if config.ssl_keystore_password:
        raise SettingError(
            "ssl.keystore.password: a PEM file has no password; if its private key has one, set ssl.key.password"
        )
    if "TLSv1.2" not in config.ssl_enabled_protocols and config.ssl_protocol == "TLSv1.2":
        raise SettingError("ssl.protocol=TLSv1.2 is not among ssl.enabled.protocols: leave ssl.protocol out")


def _one_of_them(config: ClientConfig, *names: str) -> None:
    given = given_of(config, names)
    if len(given) > 1:
        raise SettingError(f"{' and '.join(given)} say the same: give one of them")


def given_of(config: Any, names: Iterable[str]) -> list[str]:
    """Returns those of the names that have a value."""
    return [name for name in names if getattr(config, name.replace(".", "_"))]


def _check_sasl(config: ClientConfig) -> None:
    entry = jaas_of(config)
    if config.sasl_mechanism == "OAUTHBEARER":
        _check_oauth(config)
        return
    if not config.sasl_username and entry is not None:
        credentials(config)
    elif not (config.sasl_username and config.sasl_password):
        raise SettingError(
            f"security.protocol={config.security_protocol} with sasl.mechanism={config.sasl_mechanism} needs "
            "sasl.username and sasl.password (or sasl.jaas.config)"
        )


def _check_oauth(config: ClientConfig) -> None:
    _one_of_them(config, "https.ca.location", "https.ca.pem")
    url = config.sasl_oauthbearer_token_endpoint_url
    if config.sasl_oauthbearer_method == "oidc" and not url:
        raise SettingError("sasl.oauthbearer.method=oidc needs sasl.oauthbearer.token.endpoint.url")
    if url and not url.lower().startswith(("https://", "http://", "file:///")):
        raise SettingError(
            "sasl.oauthbearer.token.endpoint.url is https://…, http://… or file:///…: where do tokens come from?"
        )
    if url and not url.lower().startswith("file:"):
        client_credentials(config)
    extensions_of(config)


# --- JAAS -------------------------------------------------------------------------------------------------------------


def jaas_of(config: ClientConfig) -> JaasEntry | None:
    """Returns what sasl.jaas.config says, or None without one; its module must be that of sasl.mechanism."""
    if not config.sasl_jaas_config:
        return None
    entry = parse_jaas(config.sasl_jaas_config)
    module = entry.module.rpartition(".")[2]
    if module == "Krb5LoginModule":
        raise SettingError(
            "sasl.jaas.config: GSSAPI (Kerberos) is not supported; PLAIN, SCRAM and OAUTHBEARER are"
        )
    fitting = _MODULES.get(module)
    if fitting is not None and config.sasl_mechanism not in fitting:
        raise SettingError(
            f"sasl.jaas.config names {module}, but sasl.mechanism is {config.sasl_mechanism}: set sasl.mechanism to "
            f"{' or '.join(fitting)}"
        )
    return entry


def credentials(config: ClientConfig) -> tuple[str, str]:
    """Returns sasl.username and sasl.password, or what is in sasl.jaas.config."""
    if config.sasl_username:
        return config.sasl_username, config.sasl_password
    entry = jaas_of(config)
    options = entry.options if entry is not None else {}
    if not {"username", "password"} <= options.keys():
        raise SettingError(
            'sasl.jaas.config has no username="…" and password="…": add them, or give sasl.username and '
            "sasl.password instead"
        )
    return options["username"], options["password"]


def client_credentials(config: ClientConfig) -> tuple[str, str, str]:
    """Returns id, secret and scope for the token endpoint, from the settings or from sasl.jaas.config."""
    entry = jaas_of(config)
    options = entry.options if entry is not None else {}
    name = config.sasl_oauthbearer_client_credentials_client_id or options.get("clientId", "")
    secret = config.sasl_oauthbearer_client_credentials_client_secret or options.get("clientSecret", "")
    if not name or not secret:
        raise SettingError(
            "sasl.oauthbearer.token.endpoint.url needs sasl.oauthbearer.client.credentials.client.id and "
            "sasl.oauthbearer.client.credentials.client.secret"
        )
    return name, secret, config.sasl_oauthbearer_scope or options.get("scope", "")


def extensions_of(config: ClientConfig) -> dict[str, str]:
    """Returns the SASL extensions of sasl.oauthbearer.extensions, and of JAAS: `extension_traceId="123"`."""
    found: dict[str, str] = {}
    entry = jaas_of(config)
    for name, value in (entry.options if entry is not None else {}).items():
        if name.startswith("extension_"):
            found[name.removeprefix("extension_")] = value
    for pair in filter(None, (part.strip() for part in config.sasl_oauthbearer_extensions.split(","))):
        name, sign, value = pair.partition("=")
        if not sign:
            raise SettingError("sasl.oauthbearer.extensions is name=value,name=value")
        found[name.strip()] = value.strip()
    wrong = wrong_extension(found)
    if wrong is not None:
        raise SettingError(f"sasl.oauthbearer.extensions: {wrong}")
    return found


def wrong_extension(extensions: dict[str, str]) -> str | None:
    """Says what RFC 7628 has against SASL extensions; None: nothing."""
    for name, value in extensions.items():
        if not (name.isascii() and name.isalpha()) or name == "auth":
            return f"{name!r} is no name of an extension: it has letters alone, and is not auth"
        if not value or not all(" " <= sign <= "~" or sign in "\t\r\n" for sign in value):
            return f"the value of {name} must be printable ASCII"
    return None


# --- for people -------------------------------------------------------------------------------------------------------


def shown_settings(config: Any, rows: Iterable[Any]) -> str:
    """Writes the settings that are not as they were, without the values of secrets."""
    changed = [(row, getattr(config, row.field)) for row in rows]
    shown = [
        f"{row.field}={'<hidden>' if row.sensitive else repr(value)}"
        for row, value in changed
        if value != row.default
    ]
    return f"{type(config).__name__}({', '.join(shown)})"
