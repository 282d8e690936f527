"""Settings of TLS and SASL by Java's and librdkafka's names: what is the same, what contradicts, what is hidden."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from kohort.client.config import ADMIN, CONSUMER, PRODUCER, ClientConfig, read_config
from kohort.client.core.security_settings import (
    SAME_SETTINGS,
    client_credentials,
    credentials,
    extensions_of,
)
from kohort.client.io.tls import security_for
from kohort.security.cipher_suites import TLS_1_3, cipher_suites
from kohort.security.pem import certificates_of, pem_blocks, private_key_of
from kohort.settings import SettingError, Table
from tests.client.driving import config_for

MODULE = "org.apache.kafka.common.security"
SECRET = "hunter2-is-a-secret"


def made(**settings: Any) -> ClientConfig:
    return config_for("127.0.0.1:1", **settings)


def plain(jaas: str) -> ClientConfig:
    return made(security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN", sasl_jaas_config=jaas)


# --- names ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", [CONSUMER, PRODUCER, ADMIN], ids=lambda table: table.what)
@pytest.mark.parametrize("name", SAME_SETTINGS)
def test_librdkafkas_name_means_the_same(table: Table[Any], name: str) -> None:
    servers = {"bootstrap.servers": "a:1"}
    value = "OAUTHBEARER" if name == "sasl.mechanisms" else "x"
    by_this, _ = read_config(table, servers | {name: value}, {})
    by_that, _ = read_config(table, servers | {SAME_SETTINGS[name]: value}, {})
    assert by_this == by_that
    with pytest.raises(SettingError, match="two names of one setting"):
        read_config(table, servers | {name: value, SAME_SETTINGS[name]: "PLAIN"}, {})


def test_a_protocol_may_be_written_in_any_case() -> None:
    assert made(security_protocol="ssl", ssl_endpoint_identification_algorithm="HTTPS") == made(
        security_protocol="SSL", ssl_endpoint_identification_algorithm="https"
    )


# --- secrets --------------------------------------------------------------------------------------------------------


def test_no_secret_is_shown() -> None:
    secrets = {row.field: SECRET for row in CONSUMER if row.sensitive}
    assert {"sasl_password", "ssl_key_pem", "sasl_jaas_config", "ssl_keystore_key"} <= secrets.keys()
    config = made(**secrets)
    assert SECRET not in repr(config)
    assert "sasl_password=<hidden>" in repr(config)
    assert pickle.loads(pickle.dumps(config)) == config  # an executor gets the real ones


@pytest.mark.parametrize("jaas", [f'x required password="{SECRET}', f"x required password {SECRET};", SECRET])
def test_a_jaas_config_that_cannot_be_read_is_not_shown(jaas: str) -> None:
    with pytest.raises(SettingError, match=r"sasl\.jaas\.config") as error:
        plain(jaas)
    assert SECRET not in str(error.value)


# --- JAAS -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("jaas", "found"),
    [
        (
            rf'{MODULE}.plain.PlainLoginModule required username="a\"n" password="x;\\ y=";',
            ('a"n', "x;\\ y="),
        ),
        ('PlainLoginModule required user_password="no" username=ann password=yes;', ("ann", "yes")),
        (
            "PlainLoginModule required // why\n /* username=x */ username='ann' password='s e';",
            ("ann", "s e"),
        ),
    ],
)
def test_credentials_of_a_jaas_config(jaas: str, found: tuple[str, str]) -> None:
    assert credentials(plain(jaas)) == found


@pytest.mark.parametrize(
    ("jaas", "words"),
    [
        (
            f'{MODULE}.scram.ScramLoginModule required username="a" password="b";',
            "sasl.mechanism to SCRAM-SHA-256",
        ),
        ("com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true;", "GSSAPI"),
        ('PlainLoginModule required username="a";', "password"),
        ('PlainLoginModule required username="a" password="b"', "semicolon"),
    ],
)
def test_a_jaas_config_that_does_not_fit(jaas: str, words: str) -> None:
    with pytest.raises(SettingError, match=words):
        plain(jaas)


def test_client_credentials_and_extensions_from_jaas() -> None:
    jaas = (
        f'{MODULE}.oauthbearer.OAuthBearerLoginModule required clientId="ann" clientSecret="s" scope="all" '
        'extension_traceId="123";'
    )
    config = made(
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        sasl_jaas_config=jaas,
        sasl_oauthbearer_token_endpoint_url="https://id.test/token",
        sasl_oauthbearer_extensions="support=yes, pool = p1",
        sasl_login_callback_handler_class=f"{MODULE}.oauthbearer.OAuthBearerLoginCallbackHandler",
    )
    assert client_credentials(config) == ("ann", "s", "all")
    assert extensions_of(config) == {"traceId": "123", "support": "yes", "pool": "p1"}


# --- what does not fit together -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"ssl_ca_location": "a", "ssl_truststore_location": "b"}, "say the same"),
        ({"ssl_ca_pem": "a", "ssl_truststore_certificates": "b"}, "say the same"),
        (
            {"ssl_keystore_location": "a", "ssl_keystore_key": "b", "ssl_keystore_certificate_chain": "c"},
            "same",
        ),
        ({"ssl_keystore_location": "a", "ssl_key_location": "b", "ssl_certificate_location": "c"}, "same"),
        ({"ssl_keystore_key": "a"}, "belong together"),
        ({"ssl_keystore_certificate_chain": "a"}, "belong together"),
        ({"ssl_certificate_pem": "a"}, "without its private key"),
        ({"ssl_key_pem": "a"}, "without its certificate"),
        ({"ssl_keystore_location": "a", "ssl_keystore_password": "b"}, "ssl.key.password"),
        ({"ssl_truststore_location": "a", "ssl_truststore_password": "b"}, "no password"),
        ({"ssl_keystore_type": "JKS"}, "keytool"),
        ({"ssl_truststore_type": "PKCS12"}, "openssl pkcs12"),
        ({"ssl_enabled_protocols": "TLSv1.1"}, "TLSv1.2, TLSv1.3"),
        ({"ssl_enabled_protocols": "TLSv1.3", "ssl_protocol": "TLSv1.2"}, "ssl.enabled.protocols"),
    ],
)
def test_settings_of_tls_that_contradict_each_other(settings: dict[str, str], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        made(security_protocol="SSL", **settings)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"sasl_oauthbearer_method": "oidc"}, "token.endpoint.url"),
        ({"sasl_oauthbearer_token_endpoint_url": "https://id.test"}, "client.credentials.client.id"),
        ({"sasl_oauthbearer_token_endpoint_url": "id.test"}, "https://"),
        ({"sasl_oauthbearer_extensions": "auth=1"}, "'auth' is no name"),
        ({"sasl_oauthbearer_extensions": "a"}, "name=value"),
        (
            {"sasl_oauthbearer_grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer"},
            "client_credentials",
        ),
        ({"sasl_login_callback_handler_class": "com.shop.Login"}, "it names a Java class"),
        ({"sasl_oauthbearer_jwt_retriever_class": "com.shop.Jwt"}, "it names a Java class"),
        ({}, "where tokens come from"),
        ({"enable_sasl_oauthbearer_unsecure_jwt": True}, "principal=NAME"),
        (
            {"enable_sasl_oauthbearer_unsecure_jwt": True, "sasl_oauthbearer_config": "sub=a"},
            "sub is not one of",
        ),
        (
            {"sasl_jaas_config": "OAuthBearerLoginModule required unsecuredLoginLifetimeSeconds=5;"},
            "Claim_sub",
        ),
    ],
)
def test_settings_of_tokens_that_contradict_each_other(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        security_for(made(security_protocol="SASL_SSL", sasl_mechanism="OAUTHBEARER", **settings))


def test_what_is_not_used_is_not_checked() -> None:
    made(ssl_ca_location="a", ssl_truststore_location="b", sasl_jaas_config="?")


# --- PEM ------------------------------------------------------------------------------------------------------------

PEM = "-----BEGIN CERTIFICATE-----\n" + "QUJD" * 16 + "\nREVG\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nQUJD\n-----END ENCRYPTED PRIVATE KEY-----\n"


@pytest.mark.parametrize(
    "written",
    [PEM, PEM.replace("\n", " "), PEM.replace("\n", "\\n"), f"subject: x\n{PEM}", PEM.replace("\n", "\r\n")],
)
def test_pem_is_read_however_it_is_written(written: str) -> None:
    assert certificates_of(written, "x") == PEM
    assert private_key_of(written + KEY, "x") == KEY
    assert [kind for kind, _ in pem_blocks(written + KEY, "x")] == ["CERTIFICATE", "ENCRYPTED PRIVATE KEY"]


def test_pem_that_is_none() -> None:
    with pytest.raises(SettingError, match=r"ssl\.ca\.pem is not PEM"):
        certificates_of("ca.pem", "ssl.ca.pem")
    with pytest.raises(SettingError, match="no certificate"):
        certificates_of(KEY, "ssl.ca.pem")
    with pytest.raises(SettingError, match="no private key"):
        private_key_of(PEM, "ssl.key.pem")


@pytest.mark.parametrize("content", [b"\xfe\xed\xfe\xed\0\0", b"\x30\x82\x01"])
@pytest.mark.parametrize("setting", ["ssl_truststore_location", "ssl_keystore_location"])
def test_a_key_store_of_javas_is_named_with_what_to_do(tmp_path: Path, content: bytes, setting: str) -> None:
    store = tmp_path / "store.jks"
    store.write_bytes(content)
    with pytest.raises(SettingError, match=r"not PEM: `keytool .* then `openssl pkcs12"):
        security_for(made(security_protocol="SSL", **{setting: str(store)}))


# --- ciphers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_128_CBC_SHA256", "DHE-RSA-AES128-SHA256"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
    ],
)
def test_names_of_cipher_suites(java: str, openssl: str) -> None:
    assert cipher_suites([java]).openssl == openssl
    assert cipher_suites([openssl]).openssl == openssl
    assert cipher_suites([java]).tls_1_3 == frozenset()
    assert cipher_suites([openssl]).tls_1_3 is None
    assert cipher_suites([java, *TLS_1_3]).tls_1_3 == TLS_1_3


@pytest.mark.parametrize("name", ["TLS_RSA_WITH_RC4_128_MD5", "TLS_NONSENSE", "nonsense"])
def test_a_cipher_suite_that_is_not_there(name: str) -> None:
    with pytest.raises(SettingError, match=name):
        security_for(made(security_protocol="SSL", ssl_cipher_suites=name))
