"""Certificates of a listener that are renewed while the broker runs, by IncrementalAlterConfigs."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from kohort.broker import running
from kohort.broker.apis.configs import AlterConfigOp, ResourceType
from kohort.client.io.blocking_connection import BlockingConnection
from kohort.settings import ConfigSource
from kohort.wire.errors import ErrorCode
from kohort.wire.messages import alter_configs as legacy
from kohort.wire.messages import incremental_alter_configs as incremental
from kohort.wire.messages.api_versions import ApiVersionsRequest
from kohort.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tests.broker.tls_peer import TlsPeer
from tests.certificates import Certificates, Certified, make_certificates

KEYSTORE, TRUSTSTORE = "listener.name.lan.ssl.keystore.location", "listener.name.lan.ssl.truststore.location"
OK = (ErrorCode.NONE, None)


@pytest.fixture
def certificates(tmp_path) -> Certificates:
    return make_certificates(tmp_path / "certificates")


def settings_of(certificates: Certificates, **more: str) -> dict[str, str]:
    settings = certificates.listener("SSL", name="LAN", **more)
    listeners = {
        "listeners": "LAN://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "listener.security.protocol.map": "LAN:SSL,PLAINTEXT:PLAINTEXT",
    }
    return settings | listeners


@pytest.fixture
def broker(certificates):
    with running(settings=settings_of(certificates)) as started:
        yield started


@pytest.fixture
def admin(broker):
    with BlockingConnection(str(broker.server.listeners[1].told)) as connection:
        yield connection


def alter(
    admin: BlockingConnection,
    values: dict[str, str | None],
    *,
    name: str = "1",
    validate_only: bool = False,
    operation: AlterConfigOp = AlterConfigOp.SET,
) -> tuple[ErrorCode, str | None]:
    configs = [incremental.AlterableConfig(key, operation, value) for key, value in values.items()]
    resource = incremental.AlterConfigsResource(ResourceType.BROKER, name, configs)
    answer = admin.call(incremental.IncrementalAlterConfigsRequest([resource], validate_only))
    (result,) = answer.responses
    return ErrorCode(result.error_code), result.error_message


def described(admin: BlockingConnection, *names: str) -> dict[str, tuple]:
    asked = DescribeConfigsResource(ResourceType.BROKER, "1", list(names))
    (result,) = admin.call(DescribeConfigsRequest([asked], include_synonyms=True)).results
    assert result.error_code == 0
    return {c.name: (c.value, c.config_source, c.is_sensitive, c.read_only) for c in result.configs}


def synonyms(admin: BlockingConnection, name: str) -> list[tuple[str, int]]:
    asked = DescribeConfigsResource(ResourceType.BROKER, "1", [name])
    (result,) = admin.call(DescribeConfigsRequest([asked], include_synonyms=True)).results
    return [(synonym.name, synonym.source) for synonym in result.configs[0].synonyms]


def certificate_shown(broker, context: ssl.SSLContext) -> str:
    """What a new client is shown, in PEM."""
    with TlsPeer(broker.bootstrap_servers, context) as client:
        shown = client.tls.getpeercert(binary_form=True)
        assert shown is not None
        return ssl.DER_cert_to_PEM_cert(shown)


def renewed(certificates: Certificates) -> Certified:
    """A new certificate of the broker, with the same names, in other files."""
    return certificates.authority.certify("broker", directory=certificates.directory / "new")


def test_the_same_path_again_reads_the_file_anew_for_new_connections_only(broker, admin, certificates):
    context = certificates.context()
    old = certificate_shown(broker, context)
    with TlsPeer(broker.bootstrap_servers, context) as open_one:
        certificates.authority.certify("broker")
        new = certificates.broker.text("certificate")
        assert certificate_shown(broker, context) == old != new, "a file alone changes nothing"
        for _ in range(2):
            assert alter(admin, {KEYSTORE: certificates.broker.store}) == OK
            assert certificate_shown(broker, context) == new
            assert open_one.call(ApiVersionsRequest("pytest", "1"), version=3).error_code == 0
            certificates.authority.certify("broker")
            new = certificates.broker.text("certificate")


def test_another_path_is_in_force_after_a_restart_too(certificates, tmp_path):
    settings, new = settings_of(certificates), renewed(certificates)
    with running(tmp_path / "data", settings=settings) as broker:
        with BlockingConnection(str(broker.server.listeners[1].told)) as admin:
            assert alter(admin, {KEYSTORE: new.store}) == OK
            assert described(admin, KEYSTORE) == {
                KEYSTORE: (new.store, ConfigSource.DYNAMIC_BROKER_CONFIG, False, False)
            }
            assert synonyms(admin, KEYSTORE) == [
                (KEYSTORE, ConfigSource.DYNAMIC_BROKER_CONFIG),
                ("ssl.keystore.location", ConfigSource.STATIC_BROKER_CONFIG),
            ]
        assert certificate_shown(broker, certificates.context()) == new.text("certificate")
    with running(tmp_path / "data", settings=settings) as broker:
        assert certificate_shown(broker, certificates.context()) == new.text("certificate")
        with BlockingConnection(str(broker.server.listeners[1].told)) as admin:
            assert alter(admin, {KEYSTORE: None}, operation=AlterConfigOp.DELETE) == OK
            assert described(admin, KEYSTORE, "ssl.keystore.location") == {
                "ssl.keystore.location": (
                    certificates.broker.store,
                    ConfigSource.STATIC_BROKER_CONFIG,
                    False,
                    True,
                )
            }
        old = certificates.broker.text("certificate")
        assert certificate_shown(broker, certificates.context()) == old


def test_a_listener_that_is_gone_after_a_restart_stops_nobody(certificates, tmp_path, caplog):
    settings = settings_of(certificates)
    with (
        running(tmp_path / "data", settings=settings) as broker,
        BlockingConnection(str(broker.server.listeners[1].told)) as admin,
    ):
        assert alter(admin, {KEYSTORE: certificates.broker.store}) == OK
    other = certificates.listener("SSL", name="WAN")
    with running(tmp_path / "data", settings=other) as broker:
        certificate_shown(broker, certificates.context())
    assert f"{KEYSTORE}: there is no such listener any more" in caplog.text


def test_a_store_that_is_missing_at_a_start_is_told_and_locks_nothing(certificates, tmp_path):
    settings, new = settings_of(certificates), renewed(certificates)
    with (
        running(tmp_path / "data", settings=settings) as broker,
        BlockingConnection(str(broker.server.listeners[1].told)) as admin,
    ):
        assert alter(admin, {KEYSTORE: new.store}) == OK
    moved = Path(new.store).rename(new.store + ".away")
    with (
        pytest.raises(ValueError, match=r"store\.pem cannot be read"),
        running(tmp_path / "data", settings=settings),
    ):
        pass
    moved.rename(new.store)
    with running(tmp_path / "data", settings=settings) as broker:
        assert certificate_shown(broker, certificates.context()) == new.text("certificate")


def test_keys_as_texts_are_secrets(certificates, caplog):
    """A listener whose own key is given as text gets another one so; nobody is shown either."""
    settings = {n: v for n, v in settings_of(certificates).items() if n != "ssl.keystore.location"}
    prefix = "listener.name.lan."
    own = {
        f"{prefix}ssl.keystore.key": certificates.broker.text("key"),
        f"{prefix}ssl.keystore.certificate.chain": certificates.broker.text("certificate"),
    }
    locked = certificates.authority.certify("broker", password="sesame")
    new = {
        f"{prefix}ssl.keystore.key": locked.text("key"),
        f"{prefix}ssl.keystore.certificate.chain": locked.text("certificate"),
        f"{prefix}ssl.key.password": "sesame",
    }
    with running(settings=settings | own) as broker:
        with BlockingConnection(str(broker.server.listeners[1].told)) as admin:
            assert set(described(admin, *own).values()) == {
                (None, ConfigSource.STATIC_BROKER_CONFIG, True, False)
            }
            assert alter(admin, new) == OK
            assert set(described(admin, *new).values()) == {
                (None, ConfigSource.DYNAMIC_BROKER_CONFIG, True, False)
            }
        assert certificate_shown(broker, certificates.context()) == locked.text("certificate")
    assert f"{prefix}ssl.keystore.key is kept in clear in the data directory" in caplog.text
    assert "sesame" not in caplog.text


def test_whom_a_listener_trusts_is_renewed_too(certificates):
    settings = settings_of(certificates, ssl_client_auth="required")
    stranger = certificates.context(certificates.stranger)
    both = certificates.directory / "both.pem"
    texts = [
        Path(each.certificate).read_text()
        for each in (certificates.authority, certificates.strange_authority)
    ]
    both.write_text("\n".join(texts))
    with running(settings=settings) as broker:
        with BlockingConnection(str(broker.server.listeners[1].told)) as admin:
            with pytest.raises(OSError, match=r"(?i)alert|reset|closed"):
                call_once(broker, stranger)
            assert alter(admin, {TRUSTSTORE: str(both)}) == OK
            call_once(broker, stranger)
        call_once(broker, certificates.context(certificates.alice))


def call_once(broker, context: ssl.SSLContext) -> None:
    with TlsPeer(broker.bootstrap_servers, context) as client:
        client.call(ApiVersionsRequest("pytest", "1"), version=3)


def test_what_cannot_be_changed_is_an_invalid_request_and_changes_nothing(broker, admin, certificates):
    before = certificate_shown(broker, certificates.context())
    other_name = certificates.authority.certify("other")
    rows: list[tuple[dict[str, str | None], str, str]] = [
        ({"ssl.keystore.location": certificates.broker.store}, "1", "only per-listener using the listener prefix"),
        ({KEYSTORE: certificates.broker.store}, "", "at default cluster level, broker id must be specified"),
        ({KEYSTORE: other_name.store}, "1", "Keystore DistinguishedName does not match: existing=CN=broker,"),
        ({KEYSTORE: str(certificates.directory / "none")}, "1", "cannot be read: No such file"),
        ({KEYSTORE: ""}, "1", "listener LAN has no certificate"),
        ({TRUSTSTORE: ""}, "1", "Cannot remove the SSL truststore from an existing listener: LAN"),
        ({"listener.name.lan.ssl.keystore.type": "JKS"}, "1", "Kohort reads PEM only"),
        ({"listener.name.lan.ssl.keystore.password": "x"}, "1", "take ssl.keystore.password out"),
        ({"listener.name.lan.ssl.client.auth": "required"}, "1", "Cannot update these configs dynamically"),
        ({"listener.name.lan.ssl.enabled.protocols": "TLSv1.3"}, "1", "Cannot update these configs dynamically"),
        ({"listener.name.lan.ssl.cipher.suites": "x"}, "1", "Cannot update these configs dynamically"),
        ({"ssl.client.auth": "none"}, "1", "Cannot update these configs dynamically: ssl.client.auth"),
        ({"listener.name.wan.ssl.keystore.location": "x"}, "1", "there is no such listener with TLS"),
        ({"listener.name.plaintext.ssl.keystore.location": "x"}, "1", "there is no such listener with TLS"),
    ]  # fmt: skip
    for values, name, said in rows:
        error, message = alter(admin, values, name=name)
        assert error == ErrorCode.INVALID_REQUEST
        assert said in str(message)
    assert KEYSTORE not in described(admin)
    assert certificate_shown(broker, certificates.context()) == before


@pytest.mark.parametrize("allowed", [False, True])
def test_names_may_change_where_the_settings_allow_it(certificates, allowed):
    word = str(allowed).lower()
    settings = settings_of(certificates, ssl_allow_dn_changes=word, ssl_allow_san_changes=word)
    with (
        running(settings=settings) as broker,
        BlockingConnection(str(broker.server.listeners[1].told)) as admin,
    ):
        certificates.authority.certify("broker", "localhost", "more.test")
        error, message = alter(admin, {KEYSTORE: certificates.broker.store})
        assert (error == ErrorCode.NONE) is allowed
        assert allowed or "the new certificate lacks 127.0.0.1" in str(message)
        other = certificates.authority.certify("other", "localhost", "127.0.0.1", "more.test")
        assert (alter(admin, {KEYSTORE: other.store})[0] == ErrorCode.NONE) is allowed


def test_a_name_more_is_not_a_name_lost(broker, admin, certificates):
    certificates.authority.certify("broker", "localhost", "127.0.0.1", "more.test")
    assert alter(admin, {KEYSTORE: certificates.broker.store}) == OK
    assert certificate_shown(broker, certificates.context()) == certificates.broker.text("certificate")


def test_a_truststore_cannot_be_added(certificates):
    settings = {n: v for n, v in settings_of(certificates).items() if "truststore" not in n}
    with (
        running(settings=settings) as broker,
        BlockingConnection(str(broker.server.listeners[1].told)) as admin,
    ):
        new = {
            TRUSTSTORE: certificates.authority.certificate,
            "listener.name.lan.ssl.truststore.type": "PEM",
        }
        error, message = alter(admin, new)
        assert error == ErrorCode.INVALID_REQUEST
        assert "Cannot add SSL truststore to an existing listener" in str(message)


def test_validating_only_changes_nothing(broker, admin, certificates):
    before = certificate_shown(broker, certificates.context())
    certificates.authority.certify("broker")
    assert alter(admin, {KEYSTORE: certificates.broker.store}, validate_only=True) == OK
    assert certificate_shown(broker, certificates.context()) == before


def test_the_older_alter_configs_renews_as_well(broker, admin, certificates):
    certificates.authority.certify("broker")
    configs = [legacy.AlterableConfig(KEYSTORE, certificates.broker.store)]
    resource = legacy.AlterConfigsResource(ResourceType.BROKER, "1", configs)
    (result,) = admin.call(legacy.AlterConfigsRequest([resource])).responses
    assert result.error_code == 0
    assert certificate_shown(broker, certificates.context()) == certificates.broker.text("certificate")


def test_a_broker_without_tls_has_nothing_to_renew():
    with running() as broker, BlockingConnection(broker.bootstrap_servers) as admin:
        error, message = alter(admin, {KEYSTORE: "/some/store.pem"})
        assert (error, "no listener with TLS" in str(message)) == (ErrorCode.INVALID_REQUEST, True)
