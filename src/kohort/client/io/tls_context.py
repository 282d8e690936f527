"""Makes the ssl.SSLContext of a client from its settings: PEM in files or as text, by Java's or librdkafka's names."""

from __future__ import annotations

import logging
import os
import ssl
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from kohort.client.config import ClientConfig
from kohort.portable import as_file
from kohort.security.cipher_suites import TLS_1_3, cipher_suites
from kohort.security.pem import certificates_of, private_key_of, wrong_store
from kohort.settings import SettingError

_log = logging.getLogger("kohort.client.config")

_SYSTEMS = "probe"
"""librdkafka's word for the authorities of the system."""


def tls_context(config: ClientConfig) -> ssl.SSLContext:
    """Makes a context; raises SettingError, which names the setting, for what cannot be read or does not fit."""
    context = _trusting(config)
    if not config.enable_ssl_certificate_verification:
        _log.warning(
            "enable.ssl.certificate.verification=false: whoever is between this client and the broker can read and "
            "change everything"
        )
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif config.ssl_endpoint_identification_algorithm != "https":
        context.check_hostname = False  # the chain of the certificate is checked all the same
    _limit_versions(context, config)
    if config.ssl_cipher_suites:
        _limit_ciphers(context, config)
    _show_certificate(context, config)
    return context


# --- whom we trust ---------------------------------------------------------------------------------------------------


def _trusting(config: ClientConfig) -> ssl.SSLContext:
    """Makes a context that trusts only the given authorities, or the system's if none are given."""
    location = config.ssl_ca_location or config.ssl_truststore_location
    text = config.ssl_ca_pem or config.ssl_truststore_certificates
    if not text and location in ("", _SYSTEMS):
        return ssl.create_default_context()
    name = "ssl.ca.location" if config.ssl_ca_location else "ssl.truststore.location"
    as_text = "ssl.ca.pem" if config.ssl_ca_pem else "ssl.truststore.certificates"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        trust(context, location, text, as_text)
    except OSError as error:  # ssl.SSLError is one
        what = f"{as_text}: {error}" if text else f"{name}={location}: {_why_unreadable(location, error)}"
        raise SettingError(what) from error
    return context


def trust(context: ssl.SSLContext, location: str, text: str, what: str) -> None:
    """Adds authorities from a file, a folder or a text, which `what` names; raises OSError if they cannot be read."""
    if text:
        context.load_verify_locations(cadata=certificates_of(text, what))
    elif os.path.isdir(location):
        context.load_verify_locations(capath=location)
    else:
        context.load_verify_locations(cafile=location)


def _why_unreadable(path: str, error: OSError) -> str:
    """Says what is wrong with a PEM file; with Java's own key stores it says how to make one of them."""
    try:
        with Path(path).open("rb") as file:
            store = wrong_store(file.read(4))
    except OSError:
        store = None
    if store is None:
        return str(error)
    return (
        f"it is {store}, not PEM: `keytool -importkeystore -srckeystore {path} -destkeystore {path}.p12 "
        f"-deststoretype PKCS12` (for a JKS), then `openssl pkcs12 -in {path}.p12 -out {path}.pem`"
    )


# --- what is spoken --------------------------------------------------------------------------------------------------


def _limit_versions(context: ssl.SSLContext, config: ClientConfig) -> None:
    allowed = set(config.ssl_enabled_protocols) - ({"TLSv1.3"} if config.ssl_protocol == "TLSv1.2" else set())
    v1_2, v1_3 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
    context.minimum_version = v1_2 if "TLSv1.2" in allowed else v1_3
    context.maximum_version = v1_3 if "TLSv1.3" in allowed else v1_2


def _limit_ciphers(context: ssl.SSLContext, config: ClientConfig) -> None:
    suites = cipher_suites(config.ssl_cipher_suites)
    if suites.openssl:
        try:
            context.set_ciphers(suites.openssl)
        except ssl.SSLError as error:
            raise SettingError(
                f"ssl.cipher.suites={','.join(config.ssl_cipher_suites)}: OpenSSL has none of them"
            ) from error
    if suites.tls_1_3 is None:
        return
    if not suites.tls_1_3:
        _only(context, ssl.TLSVersion.TLSv1_2)
    elif suites.tls_1_3 != TLS_1_3:
        choose = getattr(context, "set_ciphersuites", None)  # Python 3.15
        if choose is None:
            raise SettingError(
                "ssl.cipher.suites: this Python cannot choose among the suites of TLS 1.3; name all of "
                f"{', '.join(sorted(TLS_1_3))}, or set ssl.enabled.protocols=TLSv1.2 and name none of them"
            )
        choose(":".join(sorted(suites.tls_1_3)))
    if not suites.openssl:
        _only(context, ssl.TLSVersion.TLSv1_3)


def _only(context: ssl.SSLContext, version: ssl.TLSVersion) -> None:
    if not context.minimum_version <= version <= context.maximum_version:
        raise SettingError("ssl.cipher.suites has no suite for any version of ssl.enabled.protocols")
    context.minimum_version = context.maximum_version = version


# --- who we are ------------------------------------------------------------------------------------------------------


def _show_certificate(context: ssl.SSLContext, config: ClientConfig) -> None:
    """Loads our certificate and key, for brokers that want to see one; OpenSSL reads them from files alone."""
    certificate, key = _certificate(config), _key(config)
    if certificate is None:
        return
    named = ", ".join(dict.fromkeys(_shown(*each) for each in (certificate, key or certificate)))
    with _as_path(*certificate) as own, _as_path(*(key or certificate)) as private:
        try:
            context.load_cert_chain(own, private, lambda: config.ssl_key_password)
        except OSError as error:
            why = _why_unreadable(certificate[1], error) if _is_path(certificate[0]) else str(error)
            raise SettingError(f"{named}: {why}; if the key has a password, see ssl.key.password") from error


def _certificate(config: ClientConfig) -> tuple[str, str] | None:
    """Returns the name of the setting that has our certificate, and the path or the text in it."""
    for name in ("ssl.certificate.location", "ssl.keystore.location"):
        if path := _value(config, name):
            return name, path
    for name in ("ssl.certificate.pem", "ssl.keystore.certificate.chain"):
        if text := _value(config, name):
            return name, certificates_of(text, name)
    return None


def _key(config: ClientConfig) -> tuple[str, str] | None:
    if config.ssl_key_location:
        return "ssl.key.location", config.ssl_key_location
    for name in ("ssl.key.pem", "ssl.keystore.key"):
        if text := _value(config, name):
            return name, private_key_of(text, name)
    return None


def _is_path(name: str) -> bool:
    return name.endswith(".location")


def _shown(name: str, value: str) -> str:
    """Shows a setting for people: a path, but no text, which may be a key."""
    return f"{name}={value}" if _is_path(name) else name


def _value(config: ClientConfig, name: str) -> str:
    value = getattr(config, name.replace(".", "_"))
    assert isinstance(value, str)
    return value


def _as_path(name: str, value: str) -> AbstractContextManager[str]:
    """Gives the path of what a setting holds: its own path, or that of its text."""
    return nullcontext(value) if _is_path(name) else as_file(value)
