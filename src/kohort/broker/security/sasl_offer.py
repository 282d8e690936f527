"""Makes the SASL mechanisms of a listener from its settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from kohort.broker.security.listener_settings import ListenerSettings
from kohort.broker.security.password_file import PasswordFile
from kohort.security.jaas import JaasEntry
from kohort.security.mechanism import ServerExchange
from kohort.security.oauthbearer import OAuthBearerExchange, UnsecuredTokens, Validate
from kohort.security.plain import PlainExchange, PlainPasswords, passwords_of
from kohort.security.sasl import SaslOffer
from kohort.security.scram import ScramExchange, ScramMechanism
from kohort.settings import SettingError

BeginScram = Callable[[ScramMechanism], ScramExchange]

_OAUTH = "org.apache.kafka.common.security.oauthbearer"
_UNSECURED = (f"{_OAUTH}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler",)
_SIGNED = (
    f"{_OAUTH}.OAuthBearerValidatorCallbackHandler",
    f"{_OAUTH}.secured.OAuthBearerValidatorCallbackHandler",
)
_HANDLERS = {
    "PLAIN": ("org.apache.kafka.common.security.plain.internals.PlainServerCallbackHandler",),
    "SCRAM-SHA-256": ("org.apache.kafka.common.security.scram.internals.ScramServerCallbackHandler",),
    "SCRAM-SHA-512": ("org.apache.kafka.common.security.scram.internals.ScramServerCallbackHandler",),
    "OAUTHBEARER": _UNSECURED + _SIGNED,
}
_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "OAUTHBEARER": f"{_OAUTH}.OAuthBearerLoginModule",
}


def sasl_offer(
    listener: str, settings: ListenerSettings, scram: BeginScram, secret: bytes, warnings: list[str]
) -> SaslOffer:
    """Returns what a listener offers, and adds warnings; SettingError says what is wrong with its settings or files."""
    begins: dict[str, Callable[[], ServerExchange]] = {}
    for mechanism in settings.mechanisms:
        _check(listener, settings, mechanism)
        if mechanism == "PLAIN":
            begins[mechanism] = partial(PlainExchange, _passwords(listener, settings, secret))
        elif mechanism == "OAUTHBEARER":
            begins[mechanism] = partial(OAuthBearerExchange, _validator(listener, settings, warnings))
        else:
            begins[mechanism] = partial(scram, ScramMechanism[mechanism.replace("-", "_")])
    return SaslOffer(begins, settings.max_reauth_ms, _max_receive_bytes(listener, settings.values))


def _name(listener: str, mechanism: str, setting: str) -> str:
    return f"listener.name.{listener.lower()}.{mechanism.lower()}.{setting}"


def _check(listener: str, settings: ListenerSettings, mechanism: str) -> None:
    """Refuses classes that cannot be run here, and login modules of another mechanism."""
    handler = settings.handler_classes.get(mechanism)
    if handler is not None and handler not in _HANDLERS[mechanism]:
        what = _name(listener, mechanism, "sasl.server.callback.handler.class")
        raise SettingError(
            f"{what}={handler} is a Java class that cannot be run here. There is {', '.join(_HANDLERS[mechanism])}"
        )
    entry = settings.jaas.get(mechanism)
    if entry is not None and entry.module != _MODULES[mechanism]:
        what = _name(listener, mechanism, "sasl.jaas.config")
        raise SettingError(
            f"{what}: the login module of {mechanism} is {_MODULES[mechanism]}, not {entry.module}"
        )


def _max_receive_bytes(listener: str, values: Mapping[str, str]) -> int | None:
    """Returns the limit that was set; None: the lower ones that hold if nothing was."""
    text = values.get("sasl.server.max.receive.size")
    if text is None:
        return None
    if not text.strip().isdecimal() or not int(text):
        raise SettingError(
            f"sasl.server.max.receive.size of listener {listener} must be a whole number above 0"
        )
    return int(text)


# --- PLAIN -------------------------------------------------------------------------------------------------------


def _passwords(listener: str, settings: ListenerSettings, secret: bytes) -> PlainPasswords:
    entry = settings.jaas.get("PLAIN", JaasEntry("", {}))
    path = settings.values.get("sasl.credentials.file", "").strip()
    if "PLAIN" not in settings.jaas and not path:
        what = _name(listener, "plain", "sasl.jaas.config")
        raise SettingError(
            f"listener {listener} offers PLAIN but has no users: say sasl.credentials.file=FILE, which `kohort users` "
            f'writes, or {what}={_MODULES["PLAIN"]} required user_alice="…";'
        )
    hashed = None
    if path:
        file = PasswordFile(Path(path))
        file.load()
        hashed = file.users
    return PlainPasswords(passwords_of(entry.options), hashed, secret)


# --- OAUTHBEARER -------------------------------------------------------------------------------------------------


def _validator(listener: str, settings: ListenerSettings, warnings: list[str]) -> Validate:
    handler, entry = settings.handler_classes.get("OAUTHBEARER"), settings.jaas.get("OAUTHBEARER")
    if handler in _SIGNED:
        return _signed_tokens(listener, settings, entry, warnings)
    if "sasl.oauthbearer.jwks.endpoint.url" in settings.values or (entry is None and handler is None):
        what = _name(listener, "oauthbearer", "sasl.server.callback.handler.class")
        raise SettingError(
            f"listener {listener} offers OAUTHBEARER, but would take tokens that anybody can write: say "
            f"{what}={_SIGNED[0]} and sasl.oauthbearer.jwks.endpoint.url. To take tokens without signatures, in "
            f"tests, say {_name(listener, 'oauthbearer', 'sasl.jaas.config')}={_MODULES['OAUTHBEARER']} required;"
        )
    warnings.append(
        f"listener {listener} takes tokens without signatures, so anybody can be anybody. This is for tests only"
    )
    options = entry.options if entry is not None else {}
    return UnsecuredTokens.of(options, _name(listener, "oauthbearer", "sasl.jaas.config"))


def _signed_tokens(
    listener: str, settings: ListenerSettings, entry: JaasEntry | None, warnings: list[str]
) -> Validate:
    try:
        from kohort.broker.security.jwks import key_source
        from kohort.security.signed_tokens import ClaimRules, SignedTokens
    except ImportError:
        raise SettingError(
            f"listener {listener} validates signed tokens, which needs PyJWT: pip install 'kohort[oauth]'"
        ) from None
    values = {
        name.removeprefix("sasl.oauthbearer."): text.strip()
        for name, text in settings.values.items()
        if text.strip()
    }
    url = values.get("jwks.endpoint.url")
    if url is None:
        raise SettingError(
            f"listener {listener}: say sasl.oauthbearer.jwks.endpoint.url=https://… or file:///…, where the keys of "
            "its tokens are"
        )
    if url.startswith("http://"):
        warnings.append(
            f"listener {listener}: sasl.oauthbearer.jwks.endpoint.url is not https, so whoever is between here "
            "and there can make tokens"
        )
    rules = ClaimRules(
        values.get("expected.issuer"),
        tuple(item.strip() for item in values.get("expected.audience", "").split(",") if item.strip()),
        1000 * _number("clock.skew.seconds", values, "30"),
        values.get("sub.claim.name", "sub"),
        values.get("scope.claim.name", "scope"),
    )
    truststore = entry.options.get("ssl.truststore.location") if entry is not None else None
    refresh_ms = _number("jwks.endpoint.refresh.ms", values, "3600000")
    return SignedTokens(rules, key_source(url, refresh_ms=refresh_ms, truststore=truststore))


def _number(name: str, values: Mapping[str, str], default: str) -> int:
    text = values.get(name, default)
    if not text.isascii() or not text.isdecimal():
        raise SettingError(f"sasl.oauthbearer.{name} must be a whole number, 0 or more")
    return int(text)
