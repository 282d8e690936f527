"""The TLS of a listener: its key, its certificates, whom it trusts, and who a client with a certificate is.

Stores are in PEM: a file (`ssl.keystore.location` with the key and its chain, `ssl.truststore.location`), or the text
itself (`ssl.keystore.key` with `ssl.keystore.certificate.chain`, `ssl.truststore.certificates`). They can be renewed
while the broker runs: new connections use the new ones. Texts of errors show no values: they may be secrets.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kohort.broker.listeners import Listener
from kohort.broker.security.listener_settings import RENEWABLE
from kohort.portable import as_file
from kohort.security.acls import ANONYMOUS
from kohort.security.cipher_suites import TLS_1_3, CipherSuites, cipher_suites
from kohort.security.pem import certificates_of, pem_blocks, wrong_store
from kohort.security.principals import (
    RULES_SETTING,
    alternative_names,
    mapped_name,
    parse_mapping_rules,
    subject_name,
)
from kohort.settings import SettingError

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_HOW_TO_CONVERT = (
    "Convert it once: keytool -importkeystore -srckeystore OLD.jks -destkeystore store.p12 -deststoretype PKCS12, then "
    "openssl pkcs12 -in store.p12 -nodes -out store.pem"
)


@dataclass(frozen=True, slots=True)
class TlsStores:
    """What was loaded: the context for new connections, the broker's certificate (DER), and whom it trusts."""

    context: ssl.SSLContext
    certificate: bytes
    has_truststore: bool


class ListenerTls:
    """The TLS of one listener. `context` is the one for new connections; `renew` replaces it."""

    def __init__(self, listener: Listener, values: Mapping[str, str]) -> None:
        self.name = listener.name
        self.is_before_sasl = listener.uses_sasl  # who the client is, SASL tells
        self._values = dict(values)
        self._rules = parse_mapping_rules(values.get(RULES_SETTING, "DEFAULT"))
        self._may_change_dn = _boolean(values, "ssl.allow.dn.changes")
        self._may_change_san = _boolean(values, "ssl.allow.san.changes")
        self._stores = _load(self.name, values)
        # All connections of a listener write files from this buffer, each within one call.
        self.staging = memoryview(bytearray(128 * 1024))

    @property
    def context(self) -> ssl.SSLContext:
        return self._stores.context

    def principal_of(self, certificate: bytes | None) -> str | None:
        """Returns who a client with this certificate (DER) is; None if no rule maps its name.

        Where SASL follows, a certificate lets a client in and says nothing more.
        """
        if certificate is None or self.is_before_sasl:
            return ANONYMOUS
        name = mapped_name(self._rules, subject_name(certificate))
        return None if name is None else f"User:{name}"

    def renewed(self, values: Mapping[str, str]) -> TlsStores:
        """Loads the stores of these settings anew; SettingError if they cannot replace those in force."""
        fixed = {name: value for name, value in self._values.items() if name not in RENEWABLE}
        old, new = self._stores, _load(self.name, fixed | {n: v for n, v in values.items() if n in RENEWABLE})
        if old.has_truststore != new.has_truststore:
            what = (
                "Cannot add SSL truststore to"
                if new.has_truststore
                else "Cannot remove the SSL truststore from"
            )
            raise SettingError(
                f"{what} an existing listener: {self.name}. Set it in the broker's file and restart"
            )
        was, now = subject_name(old.certificate), subject_name(new.certificate)
        if not self._may_change_dn and was.casefold().split() != now.casefold().split():
            raise SettingError(
                f"listener {self.name}: Keystore DistinguishedName does not match: existing={was}, new={now} "
                "(ssl.allow.dn.changes=true at the start allows it)"
            )
        lost = alternative_names(old.certificate) - alternative_names(new.certificate)
        if lost and not self._may_change_san:
            raise SettingError(
                f"listener {self.name}: Keystore SubjectAltNames do not match: the new certificate lacks "
                f"{', '.join(sorted(map(_shown_name, lost)))} (ssl.allow.san.changes=true at the start allows it)"
            )
        return new

    def renew(self, stores: TlsStores) -> None:
        """Uses these stores for new connections; open ones keep theirs."""
        self._stores = stores


def _shown_name(encoded: bytes) -> str:
    """Returns an alternative name for people: a host name, an address, or the bytes."""
    content = encoded[2:]
    if encoded[0] == 0x87 and len(content) == 4:
        return ".".join(map(str, content))
    return content.decode() if content.isascii() else content.hex()


# --- the settings of a listener ------------------------------------------------------------------------


def check_tls(listener: Listener, values: Mapping[str, str]) -> None:
    """Raises SettingError for what is wrong with the settings themselves; no file is read."""
    _check_forms(listener.name, values)
    _own_context(listener.name, values)
    parse_mapping_rules(values.get(RULES_SETTING, "DEFAULT"))
    _boolean(values, "ssl.allow.dn.changes")
    _boolean(values, "ssl.allow.san.changes")


def _load(name: str, values: Mapping[str, str]) -> TlsStores:
    _check_forms(name, values)
    context = _own_context(name, values)
    certificate = _load_keys(name, context, values)
    return TlsStores(context, certificate, _load_trust(name, context, values))


def _check_forms(name: str, values: Mapping[str, str]) -> None:
    """Refuses what is not PEM, and settings that contradict each other."""
    has = {key: bool(values.get(f"ssl.{key}", "").strip()) for key in (
        "keystore.location", "keystore.key", "keystore.certificate.chain", "keystore.password",
        "truststore.location", "truststore.certificates", "truststore.password",
    )}  # fmt: skip
    if not (has["keystore.location"] or has["keystore.key"] or has["keystore.certificate.chain"]):
        raise SettingError(
            f"listener {name} has no certificate: say ssl.keystore.type=PEM and ssl.keystore.location=FILE, a file "
            "with the private key and its certificate chain in PEM"
        )
    for store in ("keystore", "truststore"):
        if any(is_set for key, is_set in has.items() if key.startswith(store)):
            _check_type(name, store, values)
        if has[f"{store}.password"]:
            more = "; a key has ssl.key.password" if store == "keystore" else ""
            raise SettingError(
                f"listener {name}: PEM has no store password: take ssl.{store}.password out{more}"
            )
    if has["keystore.location"] and (has["keystore.key"] or has["keystore.certificate.chain"]):
        raise SettingError(
            f"listener {name}: say either ssl.keystore.location or ssl.keystore.key with "
            "ssl.keystore.certificate.chain, not both"
        )
    if has["keystore.key"] != has["keystore.certificate.chain"] and not has["keystore.location"]:
        there, missing = ("key", "certificate.chain") if has["keystore.key"] else ("certificate.chain", "key")
        raise SettingError(
            f"listener {name}: ssl.keystore.{there} is set, but ssl.keystore.{missing} is not; both are needed"
        )
    if has["truststore.location"] and has["truststore.certificates"]:
        raise SettingError(
            f"listener {name}: say either ssl.truststore.location or ssl.truststore.certificates, not both"
        )


def _check_type(name: str, store: str, values: Mapping[str, str]) -> None:
    kind = values.get(f"ssl.{store}.type", "JKS").strip()
    if kind.upper() != "PEM":
        default = "" if f"ssl.{store}.type" in values else ", the default"
        raise SettingError(
            f"listener {name}: ssl.{store}.type is {kind}{default}, and Kohort reads PEM only. {_HOW_TO_CONVERT}; "
            f"and say ssl.{store}.type=PEM, ssl.{store}.location=store.pem"
        )


def _own_context(name: str, values: Mapping[str, str]) -> ssl.SSLContext:
    """Returns a context with everything but keys and certificates."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _set_versions(name, context, values)
    auth = values.get("ssl.client.auth", "none").strip().lower()
    if auth not in _CLIENT_AUTH:
        raise SettingError(f"listener {name}: ssl.client.auth must be none, requested or required")
    if auth != "none" and not _given(values, "ssl.truststore.location", "ssl.truststore.certificates"):
        raise SettingError(
            f"listener {name}: ssl.client.auth={auth} needs to know whose certificates to trust: say "
            "ssl.truststore.type=PEM and ssl.truststore.location=FILE with the certificates of your authority"
        )
    context.verify_mode = _CLIENT_AUTH[auth]
    # As Java: each certificate of the truststore is trusted, also one that is not self-signed.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    # A client that ends its half of the connection still gets its answers; frames have lengths, so nothing can be cut.
    context.options |= getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)  # OpenSSL 1 does so by itself
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
    context.num_tickets = 0  # connections live long, and a session must not outlive a renewed truststore
    return context


def _set_versions(name: str, context: ssl.SSLContext, values: Mapping[str, str]) -> None:
    named = _items(values.get("ssl.enabled.protocols", "TLSv1.2,TLSv1.3"))
    strange = [version for version in named if version not in _VERSIONS]
    if strange or not named:
        raise SettingError(
            f"listener {name}: ssl.enabled.protocols has {', '.join(strange) or 'nothing'}; there are TLSv1.2 and "
            "TLSv1.3, older ones are not safe"
        )
    if (protocol := values.get("ssl.protocol", "TLS").strip()) not in ("TLS", *_VERSIONS):
        raise SettingError(
            f"listener {name}: ssl.protocol={protocol} is not known; take it out, or say TLSv1.3"
        )
    suites = cipher_suites(_items(values.get("ssl.cipher.suites", "")), f"listener {name}: ssl.cipher.suites")
    if suites.openssl or suites.tls_1_3:  # a version without a suite is not offered, as in Java
        usable = {"TLSv1.2": bool(suites.openssl), "TLSv1.3": suites.tls_1_3 is None or bool(suites.tls_1_3)}
        named = [version for version in named if usable[version]]
        if not named:
            raise SettingError(
                f"listener {name}: no suite of ssl.cipher.suites is of a version in ssl.enabled.protocols"
            )
        _set_suites(name, context, suites)
    chosen = [_VERSIONS[version] for version in named]
    context.minimum_version, context.maximum_version = min(chosen), max(chosen)


def _set_suites(name: str, context: ssl.SSLContext, suites: CipherSuites) -> None:
    choose_1_3 = getattr(context, "set_ciphersuites", None)  # Python 3.15 and newer
    if suites.tls_1_3 and choose_1_3 is not None:
        choose_1_3(":".join(sorted(suites.tls_1_3)))
    elif suites.tls_1_3 and suites.tls_1_3 != TLS_1_3:
        raise SettingError(
            f"listener {name}: this Python cannot choose among the suites of TLS 1.3; name all of them in "
            f"ssl.cipher.suites ({', '.join(sorted(TLS_1_3))}), or say ssl.enabled.protocols=TLSv1.2"
        )
    if suites.openssl:
        try:
            context.set_ciphers(suites.openssl)
        except ssl.SSLError:
            raise SettingError(
                f"listener {name}: OpenSSL has none of these ssl.cipher.suites: {suites.openssl}"
            ) from None


# --- keys and certificates -----------------------------------------------------------------------------


def _load_keys(name: str, context: ssl.SSLContext, values: Mapping[str, str]) -> bytes:
    """Loads the private key and its chain into the context, and returns the broker's certificate."""
    if _given(values, what := "ssl.keystore.location"):
        text = _text_of_file(name, what, values[what])
    else:
        what = "ssl.keystore.key with ssl.keystore.certificate.chain"
        text = values["ssl.keystore.key"] + values["ssl.keystore.certificate.chain"]
    what = f"listener {name}: {what}"
    blocks = pem_blocks(text, what)
    keys = [(kind, block) for kind, block in blocks if kind.endswith("PRIVATE KEY")]
    chain = [block for kind, block in blocks if kind == "CERTIFICATE"]
    if len(keys) != 1 or not chain:
        raise SettingError(
            f"{what} must have one private key (it has {len(keys)}) and at least one certificate (it has {len(chain)}) "
            "in PEM: -----BEGIN PRIVATE KEY-----, -----BEGIN CERTIFICATE-----"
        )
    ((kind, key),) = keys
    password, is_encrypted = values.get("ssl.key.password", ""), "ENCRYPTED" in kind or "4,ENCRYPTED" in key
    if bool(password) != is_encrypted:
        raise SettingError(
            f"listener {name}: the private key is encrypted; say its ssl.key.password"
            if is_encrypted
            else f"listener {name}: ssl.key.password is set, but the private key is not encrypted. Take it out"
        )
    try:
        with as_file("".join((key, *chain))) as path:
            context.load_cert_chain(path, password=password)
        return ssl.PEM_cert_to_DER_cert(chain[0])
    except (ssl.SSLError, ValueError) as error:
        raise SettingError(f"{what}: {_why(error, bool(password))}") from None


def _load_trust(name: str, context: ssl.SSLContext, values: Mapping[str, str]) -> bool:
    """Loads whom the listener trusts; False if there is no truststore."""
    if _given(values, what := "ssl.truststore.location"):
        text = _text_of_file(name, what, values[what])
    elif _given(values, what := "ssl.truststore.certificates"):
        text = values[what]
    else:
        return False
    what = f"listener {name}: {what}"
    try:
        context.load_verify_locations(cadata=certificates_of(text, what))
    except ssl.SSLError as error:
        raise SettingError(f"{what}: {_why(error)}") from None
    return True


def _text_of_file(name: str, what: str, path: str) -> str:
    try:
        raw = Path(path.strip()).read_bytes()
    except OSError as error:
        raise SettingError(f"listener {name}: {what}={path} cannot be read: {error.strerror}") from None
    if (store := wrong_store(raw[:4])) is not None:
        raise SettingError(f"listener {name}: {what}={path} is {store}, not PEM. {_HOW_TO_CONVERT}")
    return raw.decode("latin-1")


def _why(error: Exception, has_password: bool = False) -> str:
    reason = getattr(error, "reason", None) or ""
    if reason == "KEY_VALUES_MISMATCH":
        return (
            "the private key does not belong to the first certificate; put the broker's own certificate first"
        )
    if has_password and reason in ("BAD_DECRYPT", "PKCS12_CIPHERFINAL_ERROR", "BAD_PASSWORD_READ", ""):
        return "the private key cannot be decrypted; is ssl.key.password right?"
    return f"OpenSSL does not take it ({reason or error})"


def _given(values: Mapping[str, str], *names: str) -> bool:
    return any(values.get(name, "").strip() for name in names)


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _boolean(values: Mapping[str, str], name: str) -> bool:
    text = values.get(name, "false").strip().lower()
    if text not in ("true", "false"):
        raise SettingError(f"{name} must be true or false")
    return text == "true"
