"""The blocks of docs/client-security.md, against a broker that wants what they give."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kohort import Admin
from kohort.broker.running import running
from kohort.client.admin_types import UserScramCredentialUpsertion
from kohort.client.config import ADMIN
from kohort.client.io.tokens import unsecured_token
from kohort.spark.options import Subscribe, read_source_options
from tests.certificates import make_certificates

PAGE = (Path(__file__).parents[2] / "docs" / "client-security.md").read_text("utf-8")
MODULE = "org.apache.kafka.common.security"


def block(mark: str) -> str:
    found = re.search(rf"<!-- run: \S+::{mark} -->\n```python\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A broker with SCRAM and unsecured tokens over TLS, and the folder with its ca.pem."""
    folder = tmp_path_factory.mktemp("docs")
    certificates = make_certificates(folder)
    (folder / "ca.pem").write_text(Path(certificates.authority.certificate).read_text())
    given = {
        **certificates.listener("SASL_SSL", name="SAFE"),
        "sasl.enabled.mechanisms": "SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.safe.oauthbearer.sasl.jaas.config": f"{MODULE}.oauthbearer.OAuthBearerLoginModule required;",
    }
    with running(settings=given) as broker:
        by_token = {
            "bootstrap.servers": broker.bootstrap_servers,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": certificates.authority.certificate,
            "sasl.mechanism": "OAUTHBEARER",
            "enable.sasl.oauthbearer.unsecure.jwt": True,
            "sasl.oauthbearer.config": "principal=admin",
        }
        with Admin(by_token) as admin:
            password = UserScramCredentialUpsertion("alice", "secret of alice")
            admin.alter_user_scram_credentials([password])
        yield broker.bootstrap_servers, folder


def run(mark: str, address: str, names: dict[str, Any]) -> None:
    source = block(mark).replace("127.0.0.1:9093", address)
    exec(compile(source, mark, "exec", dont_inherit=True), names)


def test_a_password(
    place: tuple[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place[1])
    run("test_a_password", place[0], {})
    assert capsys.readouterr().out == "[]\n"


def test_a_token(
    place: tuple[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place[1])
    provider = SimpleNamespace(token=lambda: unsecured_token({"sub": "alice"}, 3600, {}).value)
    run("test_a_token", place[0], {"my_identity_provider": provider})
    assert capsys.readouterr().out == "[]\n"


class Reader:
    """Takes options as Spark's reader does, and keeps them; tests/spark/test_secured.py has a real one."""

    def __init__(self) -> None:
        self.given: dict[str, str] = {}
        self.readStream = self

    def format(self, name: str) -> Reader:
        assert name == "kohort"
        return self

    def options(self, **options: str) -> Reader:
        self.given |= options
        return self

    def option(self, name: str, value: str) -> Reader:
        self.given[name] = value
        return self

    def load(self) -> Reader:
        return self


def test_options_of_spark(place: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place[1])
    reader = Reader()
    run("test_options_of_spark", place[0], {"spark": reader})
    read = read_source_options(reader.given, streaming=True)
    assert read.strategy == Subscribe(("orders",))
    assert read.kafka["sasl.password"] == "secret of alice"


def test_the_page_names_settings_that_are_there() -> None:
    named = set(
        re.findall(r"`((?:enable\.)?(?:ssl|sasl|https|security)\.[a-z0-9.]+[a-z0-9])(?:=[^`]*)?`", PAGE)
    )
    assert len(named) > 30
    known = {
        *ADMIN.settings,
        "ssl.context",
        "sasl.oauthbearer.token",
        "sasl.mechanisms",
        "sasl.oauthbearer.client.id",
    }
    assert named <= known, named - known
