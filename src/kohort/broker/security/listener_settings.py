"""Reads the security settings of each listener.

A setting with the prefix `listener.name.<name>.` (in lower case) beats the plain one; `sasl.jaas.config` counts only
with the prefix and the mechanism: `listener.name.lan.plain.sasl.jaas.config`. Texts of errors show no values: they may
be secrets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kohort.broker.listeners import Listener
from kohort.security.jaas import JaasEntry, parse_jaas
from kohort.settings import SettingError

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_PREFIX = "listener.name."
_BY_MECHANISM = ("sasl.jaas.config", "sasl.server.callback.handler.class", "connections.max.reauth.ms")
_OAUTH = frozenset(
    f"sasl.oauthbearer.{name}"
    for name in (
        "jwks.endpoint.url", "expected.issuer", "expected.audience", "clock.skew.seconds", "sub.claim.name",
        "scope.claim.name", "jwks.endpoint.refresh.ms",
    )
)  # fmt: skip
_TLS = frozenset(
    {
        "ssl.keystore.type", "ssl.keystore.location", "ssl.keystore.key", "ssl.keystore.certificate.chain",
        "ssl.keystore.password", "ssl.key.password", "ssl.truststore.type", "ssl.truststore.location",
        "ssl.truststore.certificates", "ssl.truststore.password", "ssl.client.auth", "ssl.enabled.protocols",
        "ssl.protocol", "ssl.cipher.suites", "ssl.principal.mapping.rules", "ssl.allow.dn.changes",
        "ssl.allow.san.changes", "ssl.endpoint.identification.algorithm",
    }
)  # fmt: skip
_SASL = frozenset({"sasl.enabled.mechanisms", "sasl.server.max.receive.size", "sasl.credentials.file"})
OF_A_LISTENER = _TLS | _OAUTH | _SASL | frozenset(_BY_MECHANISM)
"""The settings of security that may have the prefix of a listener."""
LIMITS = ("max.connections", "max.connection.creation.rate")
"""The limits that a listener may have besides those of the whole broker."""
RENEWABLE = frozenset(
    f"ssl.{name}"
    for name in (
        "keystore.type", "keystore.location", "keystore.password", "keystore.key", "keystore.certificate.chain",
        "key.password", "truststore.type", "truststore.location", "truststore.password", "truststore.certificates",
    )
)  # fmt: skip
"""The settings of a listener that IncrementalAlterConfigs changes while the broker runs."""
_ENDINGS = tuple(f".{name}" for name in RENEWABLE)
SECRET = (
    "password",
    "jaas.config",
    "keystore.key",
    "keystore.certificate.chain",
    "truststore.certificates",
    "secret",
)


def is_security_setting(name: str) -> bool:
    """Whether this module reads the setting, with the prefix of a listener or without."""
    return name.startswith(_PREFIX) or name in OF_A_LISTENER


def without_effect(listeners: Sequence[Listener], settings: Mapping[str, str]) -> list[str]:
    """Returns a warning for each setting, without the prefix of a listener, that no listener has a use for."""
    uses_sasl = any(listener.uses_sasl for listener in listeners)
    uses_tls = any(listener.uses_tls for listener in listeners)
    warnings = []
    for name, value in settings.items():
        if name not in OF_A_LISTENER or not value.strip():
            continue
        if name.startswith("ssl.") and not uses_tls:
            warnings.append(f"{name} has no effect here: no listener is SSL or SASL_SSL")
        elif not name.startswith("ssl.") and not uses_sasl:
            warnings.append(f"{name} has no effect here: no listener is SASL_PLAINTEXT or SASL_SSL")
    return warnings


def is_secret(name: str) -> bool:
    """Whether nobody is shown its value; those that Kafka calls passwords."""
    return name.endswith(SECRET)


def is_dynamic(name: str) -> bool:
    """Whether it can be changed while the broker runs: a store of one listener."""
    return name.startswith(_PREFIX) and name.endswith(_ENDINGS)


def check_dynamic(names: Sequence[str], *, for_all_brokers: bool) -> None:
    """Raises SettingError for settings of listeners that cannot be changed while the broker runs, in Kafka's words."""
    unprefixed = sorted(name for name in names if name in RENEWABLE)
    if unprefixed:
        raise SettingError(
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            f"{', '.join(unprefixed)}; say listener.name.LISTENER.{unprefixed[0]}"
        )
    fixed = sorted(name for name in names if not is_dynamic(name))
    if fixed:
        raise SettingError(f"Cannot update these configs dynamically: {', '.join(fixed)}")
    if for_all_brokers:
        raise SettingError(
            "Cannot update these configs at default cluster level, broker id must be specified: "
            f"{', '.join(sorted(names))}"
        )


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """The security settings of one listener; those of SASL by mechanism."""

    listener: Listener
    mechanisms: tuple[str, ...]
    jaas: Mapping[str, JaasEntry]
    max_reauth_ms: Mapping[str, int]
    handler_classes: Mapping[str, str]
    values: Mapping[str, str]
    """All others that are in force for it."""

    def __repr__(self) -> str:
        return f"ListenerSettings({self.listener.name}, {self.mechanisms})"


def read_listener_settings(
    listener: Listener, settings: Mapping[str, str], names: Sequence[str]
) -> ListenerSettings:
    """Returns what holds for a listener; SettingError says what is wrong. `names` are those of all listeners."""
    _check_names(settings, names)
    own_prefix = f"{_PREFIX}{listener.name.lower()}."
    own = {
        name[len(own_prefix) :]: value
        for name, value in settings.items()
        if name.lower().startswith(own_prefix)
    }
    values = {name: value for name, value in settings.items() if name in OF_A_LISTENER}
    client_auth = values.pop("ssl.client.auth", "none") if listener.uses_sasl else None
    values |= {name: value for name, value in own.items() if name in OF_A_LISTENER or name in LIMITS}
    values |= {name: own[f"oauthbearer.{name}"] for name in _OAUTH if f"oauthbearer.{name}" in own}
    for name in LIMITS:
        if name in values:
            _whole_number(f"{own_prefix}{name}", values[name], 1)
    if client_auth is not None:  # listeners with SASL obey only the prefixed form
        values["ssl.client.auth"] = own.get("ssl.client.auth", "none")
    if listener.uses_tls:
        from kohort.broker.security.tls import check_tls

        check_tls(listener, values)
    if not listener.uses_sasl:
        return ListenerSettings(listener, (), {}, {}, {}, values)
    mechanisms = _mechanisms(listener, values.get("sasl.enabled.mechanisms", "GSSAPI"))
    jaas, reauth, handlers = {}, {}, {}
    for mechanism in mechanisms:
        prefix = f"{mechanism.lower()}."
        text = own.get(f"{prefix}sasl.jaas.config")
        if text is not None:
            jaas[mechanism] = parse_jaas(text, f"{own_prefix}{prefix}sasl.jaas.config")
        limit = own.get(f"{prefix}connections.max.reauth.ms", values.get("connections.max.reauth.ms", "0"))
        reauth[mechanism] = _whole_number(f"{own_prefix}{prefix}connections.max.reauth.ms", limit)
        handler = own.get(f"{prefix}sasl.server.callback.handler.class")
        if handler is not None:
            handlers[mechanism] = handler.strip()
    return ListenerSettings(listener, mechanisms, jaas, reauth, handlers, values)


def _mechanisms(listener: Listener, text: str) -> tuple[str, ...]:
    mechanisms = tuple(dict.fromkeys(item.strip().upper() for item in text.split(",") if item.strip()))
    unknown = [mechanism for mechanism in mechanisms if mechanism not in MECHANISMS]
    if unknown or not mechanisms:
        what = f"has no {', '.join(unknown)}" if unknown else "needs a mechanism"
        raise SettingError(
            f"listener {listener.name} ({listener.protocol}): the broker {what}. Say which mechanisms it offers, "
            "for example sasl.enabled.mechanisms=SCRAM-SHA-512 (there are PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, "
            "OAUTHBEARER)"
        )
    return mechanisms


def _check_names(settings: Mapping[str, str], names: Sequence[str]) -> None:
    lower = [name.lower() for name in names]
    mechanisms = "|".join(mechanism.lower() for mechanism in (*MECHANISMS, "GSSAPI"))
    for name in settings:
        if not name.startswith(_PREFIX):
            continue
        listener = next((each for each in lower if name.lower().startswith(f"{_PREFIX}{each}.")), None)
        if listener is None:
            raise SettingError(f"{name}: there is no such listener; listeners has {', '.join(names)}")
        rest = name[len(_PREFIX) + len(listener) + 1 :]
        with_mechanism = re.fullmatch(rf"(?:{mechanisms})\.(.+)", rest)
        known = rest in OF_A_LISTENER or rest in LIMITS
        if with_mechanism:
            known = with_mechanism[1] in _BY_MECHANISM or rest.removeprefix("oauthbearer.") in _OAUTH
        if not known:
            raise SettingError(
                f"{name} is not supported: a listener has no setting {rest} of its own. Take it out"
            )
        if rest == "sasl.jaas.config":
            raise SettingError(
                f"{name} must name its mechanism: {_PREFIX}{listener}.plain.sasl.jaas.config, for example"
            )


def _whole_number(name: str, text: str, least: int = 0) -> int:
    try:
        number = int(text)
    except ValueError:
        raise SettingError(f"{name} must be a whole number") from None
    if number < least:
        raise SettingError(f"{name} must be at least {least}")
    return number
