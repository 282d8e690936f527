"""What a broker says to the settings of TLS: keys, certificates, versions, cipher suites, client certificates."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from kohort.broker import running
from kohort.settings import SettingError
from kohort.wire.messages.metadata import MetadataRequest
from tests.broker.tls_peer import TlsPeer
from tests.certificates import Certificates, make_certificates


@pytest.fixture(scope="module")
def certificates(tmp_path_factory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def refusal(settings: dict[str, str]) -> str:
    with pytest.raises(SettingError) as error, running(settings=settings):
        pass
    return str(error.value)


def serves(settings: dict[str, str], context: ssl.SSLContext) -> TlsPeer:
    """Starts a broker with these settings, and calls it once."""
    with running(settings=settings) as broker, TlsPeer(broker.bootstrap_servers, context) as client:
        assert client.call(MetadataRequest(None), version=12).cluster_id
        return client


def without(settings: dict[str, str], *names: str) -> dict[str, str]:
    return {name: value for name, value in settings.items() if name not in names}


# --- keys and certificates


def test_a_file_with_key_and_chain(certificates):
    serves(certificates.listener("SSL"), certificates.context())


def test_settings_of_the_listener_beat_the_plain_ones(certificates):
    settings = certificates.listener("SSL", name="LAN") | {"ssl.keystore.location": "/nowhere"}
    serves(
        settings | {"listener.name.lan.ssl.keystore.location": certificates.broker.store},
        certificates.context(),
    )


@pytest.mark.parametrize("joined", ["\n", " "], ids=["lines", "one line, as properties files make it"])
def test_key_and_chain_as_texts(certificates, joined):
    settings = without(certificates.listener("SSL"), "ssl.keystore.location", "ssl.truststore.location")
    texts = {
        "ssl.keystore.key": certificates.broker.text("key"),
        "ssl.keystore.certificate.chain": certificates.broker.text("certificate"),
        "ssl.truststore.certificates": Path(certificates.authority.certificate).read_text(),
    }
    serves(settings | {n: joined.join(t.splitlines()) for n, t in texts.items()}, certificates.context())


def test_a_key_with_a_password(certificates):
    locked = certificates.authority.certify("locked", password="sesame")
    settings = certificates.listener("SSL", ssl_keystore_location=locked.store)
    serves(settings | {"ssl.key.password": "sesame"}, certificates.context())
    assert "say its ssl.key.password" in refusal(settings)
    text = refusal(settings | {"ssl.key.password": "open-sesame"})
    assert "is ssl.key.password right?" in text
    assert "open-sesame" not in text


def test_wrong_forms_are_refused_and_the_text_says_what_to_do(certificates):
    good = certificates.listener("SSL")
    key, chain = certificates.broker.text("key"), certificates.broker.text("certificate")
    parts = {"ssl.keystore.key": key, "ssl.keystore.certificate.chain": chain}
    bare = without(good, "ssl.keystore.location")
    trusted = {"ssl.truststore.certificates": chain}
    rows = [
        (good | parts, "not both"),
        (good | {"ssl.keystore.key": key}, "not both"),
        (bare | {"ssl.keystore.key": key}, "ssl.keystore.certificate.chain is not; both are needed"),
        (bare | {"ssl.keystore.certificate.chain": chain}, "ssl.keystore.key is not; both are needed"),
        (bare, "has no certificate: say ssl.keystore.type=PEM"),
        (good | {"ssl.keystore.password": "s3cret"}, "take ssl.keystore.password out; a key has ssl.key.password"),
        (good | {"ssl.truststore.password": "s3cret"}, "take ssl.truststore.password out"),
        (good | trusted, "either ssl.truststore.location or ssl.truststore.certificates"),
        (without(good, "ssl.keystore.type"), "ssl.keystore.type is JKS, the default, and Kohort reads PEM only."),
        (good | {"ssl.truststore.type": "PKCS12"}, "ssl.truststore.type is PKCS12, and Kohort reads PEM only. Convert"),
        (good | {"ssl.key.password": "s3cret"}, "the private key is not encrypted. Take it out"),
        (good | {"ssl.client.auth": "perhaps"}, "ssl.client.auth must be none, requested or required"),
        (
            without(good, "ssl.truststore.location") | {"ssl.client.auth": "required"},
            "needs to know whose certificates to trust",
        ),
        (good | {"ssl.enabled.protocols": "TLSv1.1,TLSv1.2"}, "has TLSv1.1; there are TLSv1.2 and TLSv1.3"),
        (good | {"ssl.protocol": "SSLv3"}, "ssl.protocol=SSLv3 is not known"),
        (good | {"ssl.cipher.suites": "TLS_RSA_WITH_RC4_128_SHA"}, "RC4_128_SHA is not known here"),
        (good | {"ssl.principal.mapping.rules": "CN=alice"}, "invalid rule 'CN=alice'"),
        (good | {"ssl.allow.dn.changes": "perhaps"}, "ssl.allow.dn.changes must be true or false"),
    ]  # fmt: skip
    for settings, said in rows:
        text = refusal(settings)
        assert said in text
        assert "s3cret" not in text
        assert "PRIVATE KEY" not in text


def test_files_that_are_not_what_they_should_be(certificates, tmp_path):
    good, authority = certificates.listener("SSL"), certificates.authority.certificate
    java = tmp_path / "store.jks"
    java.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    damaged = tmp_path / "damaged.pem"
    damaged.write_text(certificates.broker.text("store").replace("MI", "!!"))
    other = certificates.authority.certify("other")
    mixed = tmp_path / "mixed.pem"
    mixed.write_text(certificates.broker.text("key") + other.text("certificate"))
    for name, path, said in (
        ("keystore", tmp_path / "missing.pem", "missing.pem cannot be read: No such file or directory"),
        ("truststore", tmp_path / "missing.pem", "missing.pem cannot be read: No such file or directory"),
        ("keystore", java, "is a JKS, not PEM. Convert it once: keytool"),
        (
            "keystore",
            authority,
            "must have one private key (it has 0) and at least one certificate (it has 1)",
        ),
        ("keystore", damaged, "ssl.keystore.location: OpenSSL does not take it"),
        ("keystore", mixed, "the private key does not belong to the first certificate"),
        ("truststore", certificates.broker.key, "has no certificate: a block"),
        ("truststore", damaged, "ssl.truststore.location: OpenSSL does not take it"),
    ):
        text = refusal(good | {f"ssl.{name}.location": str(path)})
        assert text.startswith("listener SSL: ")
        assert said in text


def test_an_encrypted_key_in_the_older_form(certificates, tmp_path):
    key = load_pem_private_key(certificates.broker.text("key").encode(), None)
    older = key.private_bytes(
        Encoding.PEM, PrivateFormat.TraditionalOpenSSL, BestAvailableEncryption(b"sesame")
    )
    assert b"4,ENCRYPTED" in older
    store = tmp_path / "older.pem"
    store.write_text(older.decode() + certificates.broker.text("certificate"))
    settings = certificates.listener("SSL", ssl_keystore_location=str(store))
    serves(settings | {"ssl.key.password": "sesame"}, certificates.context())
    assert "say its ssl.key.password" in refusal(settings)


# --- versions and cipher suites


@pytest.mark.parametrize(
    ("protocols", "version"),
    [("TLSv1.2", "TLSv1.2"), ("TLSv1.3", "TLSv1.3"), ("TLSv1.2,TLSv1.3", "TLSv1.3")],
)
def test_enabled_protocols(certificates, protocols, version):
    with (
        running(settings=certificates.listener("SSL", ssl_enabled_protocols=protocols)) as broker,
        TlsPeer(broker.bootstrap_servers, certificates.context()) as client,
    ):
        assert client.tls.version() == version
        older = certificates.context()
        older.maximum_version = ssl.TLSVersion.TLSv1_2
        if protocols == "TLSv1.3":
            with pytest.raises(ssl.SSLError, match=r"(?i)protocol.version"):
                TlsPeer(broker.bootstrap_servers, older)


def test_cipher_suites_by_their_names_in_java(certificates):
    suites = "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384,TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"
    with (
        running(settings=certificates.listener("SSL", ssl_cipher_suites=suites)) as broker,
        TlsPeer(broker.bootstrap_servers, certificates.context()) as client,
    ):
        assert client.tls.version() == "TLSv1.2", "no suite of TLS 1.3 is named"
        assert client.tls.cipher()[0] in ("ECDHE-ECDSA-AES256-SHA384", "ECDHE-ECDSA-CHACHA20-POLY1305")
        strange = certificates.context()
        strange.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
        with pytest.raises(ssl.SSLError, match=r"(?i)handshake.failure"):
            TlsPeer(broker.bootstrap_servers, strange)


def test_cipher_suites_of_tls_1_3(certificates):
    all_of_them = "TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256,TLS_AES_128_GCM_SHA256"
    with (
        running(settings=certificates.listener("SSL", ssl_cipher_suites=all_of_them)) as broker,
        TlsPeer(broker.bootstrap_servers, certificates.context()) as client,
    ):
        assert client.tls.version() == "TLSv1.3"
    one = certificates.listener("SSL", ssl_cipher_suites="TLS_AES_128_GCM_SHA256")
    if hasattr(ssl.SSLContext, "set_ciphersuites"):
        assert serves(one, certificates.context()).tls is not None
    else:
        assert "this Python cannot choose among the suites of TLS 1.3" in refusal(one)
    none = {"ssl.enabled.protocols": "TLSv1.3", "ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"}
    assert "no suite of ssl.cipher.suites is of a version" in refusal(certificates.listener("SSL") | none)
