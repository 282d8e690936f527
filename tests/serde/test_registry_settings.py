"""The registry's settings: both names of each, contradictions, and no secrets in what is shown."""

from __future__ import annotations

import pickle

import pytest

from kohort import SettingError
from kohort.serde.registry import RegistrySettings, SchemaRegistry

URL = "http://127.0.0.1:8081"


def test_the_names_of_java_and_of_python_mean_the_same() -> None:
    java = {
        "schema.registry.url": URL,
        "basic.auth.credentials.source": "USER_INFO",
        "schema.registry.basic.auth.user.info": "me:secret",
        "latest.cache.ttl.sec": "7",
    }
    python = {
        "url": URL,
        "basic.auth.credentials.source": "USER_INFO",
        "basic.auth.user.info": "me:secret",
        "cache.latest.ttl.sec": 7,
    }
    assert RegistrySettings.of(java) == RegistrySettings.of(python)
    assert RegistrySettings.of(URL) == RegistrySettings.of({"url": URL})


def test_several_urls() -> None:
    assert RegistrySettings.of({"url": ["http://a:1/", "http://b:2"]}).urls == ("http://a:1", "http://b:2")
    assert (
        RegistrySettings.of("http://a:1 , http://b:2/apis/ccompat/v7/").urls[1]
        == "http://b:2/apis/ccompat/v7"
    )


def test_credentials_in_the_url_are_taken_out_of_it() -> None:
    settings = RegistrySettings.of("http://me:s%3Acret@a:1")
    assert settings.credentials == ("me", "s:cret")
    assert settings.urls == ("http://a:1",)


def test_secrets_are_not_shown() -> None:
    for given in (
        {"url": "http://me:hush@a:1"},
        {"url": URL, "basic.auth.user.info": "me:hush"},
        {"url": URL, "bearer.auth.token": "hush", "proxy": "http://me:hush@p:1"},
        {"url": "https://a", "ssl.certificate.location": "/c", "ssl.key.password": "hush"},
    ):
        settings = RegistrySettings.of(given)
        assert "hush" not in repr(settings) + repr(SchemaRegistry(settings))
        assert pickle.loads(pickle.dumps(settings)) == settings
        assert hash(settings) == hash(RegistrySettings.of(given))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "schema.registry.url is missing"),
        ({"url": "127.0.0.1:8081"}, "must be http://host:port"),
        ({"url": "mock://x"}, "must be http://host:port"),
        ({"url": "http://a:port"}, "must be http://host:port"),
        ({"url": URL, "basic.auth.user.info": "me"}, "name:password"),
        ({"url": URL, "basic.auth.credentials.source": "USER_INFO"}, "needs basic.auth.user.info"),
        ({"url": URL, "basic.auth.credentials.source": "SASL_INHERIT"}, "must be one of: URL, USER_INFO"),
        ({"url": "http://a:b@c", "basic.auth.user.info": "me:x"}, "remove one"),
        ({"url": URL, "basic.auth.user.info": "a:b", "bearer.auth.token": "t"}, "basic and bearer"),
        ({"url": URL, "bearer.auth.credentials.source": "STATIC_TOKEN"}, "needs bearer.auth.token"),
        ({"url": URL, "bearer.auth.credentials.source": "OAUTHBEARER"}, "must be one of: STATIC_TOKEN"),
        ({"url": URL, "bearer.auth.logical.cluster": "c"}, "need bearer.auth.token"),
        ({"url": URL, "ssl.key.location": "/k"}, "need ssl.certificate.location"),
        ({"url": URL, "schema.registry.ssl.truststore.location": "/t.jks"}, "give PEM files"),
        ({"url": URL, "auto.register.schemas": False}, r"AvroSerializer\(…, auto_register_schemas=…\)"),
        ({"url": URL, "max.retrys": 1}, "did you mean max.retries"),
        ({"url": URL, "timeout": "soon"}, "Not a number"),
        ({"url": URL, "schema.registry.url": "http://b:1"}, "given twice"),
    ],
    ids=str,
)
def test_what_is_wrong_is_told(given: dict[str, object], words: str) -> None:
    with pytest.raises(SettingError, match=words) as refused:
        RegistrySettings.of(given)
    assert "\n" not in str(refused.value)
