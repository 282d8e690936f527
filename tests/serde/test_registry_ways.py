"""The ways to a registry: TLS with a private authority, a client's certificate, a proxy."""

from __future__ import annotations

import pytest

from kohort import SettingError
from kohort.serde import RegistryError, RegistryUnavailable, SchemaRegistry
from tests.client.certificates import Certificates, make_certificates
from tests.serde.registry_server import Registry, running_registry

STRING = '{"type":"string"}'


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def test_a_private_authority(certificates: Certificates) -> None:
    with running_registry(certificates.server_context()) as server:
        with SchemaRegistry(
            {"url": server.url, "schema.registry.ssl.ca.location": certificates.authority}
        ) as registry:
            assert registry.register("s", "AVRO", STRING) == 1
        with (
            SchemaRegistry(server.url) as stranger,
            pytest.raises(
                RegistryError, match=r"give that CA's PEM file in schema\.registry\.ssl\.ca\.location"
            ) as refused,
        ):
            stranger.schema(1)
        assert not isinstance(refused.value, RegistryUnavailable), "another try would not help"


@pytest.mark.parametrize(
    "key",
    [
        {"ssl.key.location": "client.key"},
        {"ssl.key.location": "client.locked.key", "ssl.key.password": "sesame"},
    ],
)
def test_a_clients_certificate(certificates: Certificates, key: dict[str, str]) -> None:
    own = {
        name: certificates.path(value) if name.endswith("location") else value for name, value in key.items()
    }
    with running_registry(certificates.server_context(ask_client=True)) as server:
        settings = {"url": server.url, "ssl.ca.location": certificates.authority, "max.retries": 0}
        shown = {"ssl.certificate.location": certificates.path("client.pem"), **own}
        with SchemaRegistry({**settings, **shown}) as registry:
            assert registry.register("s", "AVRO", STRING) == 1
        with SchemaRegistry(settings) as nobody, pytest.raises(RegistryError):
            nobody.schema(1)


@pytest.mark.parametrize(
    "given",
    [
        {"ssl.ca.location": "/no/such.pem"},
        {"ssl.certificate.location": "/no/such.pem"},
        {"ssl.ca.location": __file__},
    ],
)
def test_files_that_cannot_be_used_are_told(given: dict[str, str]) -> None:
    with (
        SchemaRegistry({"url": "https://127.0.0.1:1", **given}) as registry,
        pytest.raises(SettingError, match=r"the PEM files for the schema registry \(/.*\) cannot be used: "),
    ):
        registry.schema(1)


def test_a_locked_key_without_its_password_is_told_and_asks_nobody(certificates: Certificates) -> None:
    given = {
        "ssl.certificate.location": certificates.path("client.pem"),
        "ssl.key.location": certificates.path("client.locked.key"),
    }
    with (
        SchemaRegistry({"url": "https://127.0.0.1:1", **given}) as registry,
        pytest.raises(SettingError, match="cannot be used"),
    ):
        registry.schema(1)


def test_a_proxy_is_asked_instead(server: Registry) -> None:
    with SchemaRegistry(
        {"url": "http://registry.example:8081", "proxy": server.url, "timeout": 5}
    ) as registry:
        assert registry.register("s", "AVRO", STRING) == 1
    assert server.asked() == ["http://registry.example:8081/subjects/s/versions"]


def test_a_proxy_that_is_none_is_told() -> None:
    with (
        SchemaRegistry({"url": "http://registry.example:8081", "proxy": "ftp://x"}) as registry,
        pytest.raises(SettingError, match="proxy"),
    ):
        registry.schema(1)
