"""docs/security.md: its five commands make a broker with TLS, SCRAM and ACLs, on which the rest of the page is run."""

from __future__ import annotations

import json
import os
import re
import shlex
import ssl
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from kohort import Admin, AuthenticationFailed, AuthorizationFailed, Consumer, Producer
from kohort.broker.running import running
from kohort.cli.frame.properties import read_properties
from tests.cli.command_line import kohort_process, run_at_terminal, run_kohort
from tests.docs.pages import DOCS, Block, blocks_of

PAGE = blocks_of(DOCS / "security.md")
ADDRESS = "localhost:9093"
PASSWORDS = {"admin": "admin-secret", "alice": "alice-secret"}
_READY = re.compile(r"bootstrap\.servers=(\S+) ")


def blocks(test: str, language: str) -> list[Block]:
    """The blocks of the page that a test of this file runs."""
    found = [b for b in PAGE if (b.run_by or "").endswith(f"::{test}") and b.language == language]
    assert found, test
    return found


def lines_of(block: Block) -> list[str]:
    """The command lines of a block."""
    return [line[2:] for line in re.sub(r"\\\n\s*", "", block.text).splitlines() if line.startswith("$ ")]


@dataclass(slots=True)
class SecuredPlace:
    """The folder in which the five commands were run, and the broker that the third one started."""

    folder: Path
    address: str
    said: list[str]

    def text(self, block: Block) -> str:
        return block.text.replace(ADDRESS, self.address)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredPlace]:
    """Runs the five commands of the page, one after the other, as a person would at a terminal."""
    folder = tmp_path_factory.mktemp("secured")
    test = "test_five_commands_lead_to_tls_scram_and_acls"
    of_broker, of_admin = blocks(test, "properties")
    (commands,) = blocks(test, "console")
    certificate, first_user, serve, user, acls = lines_of(commands)
    faster = "group.initial.rebalance.delay.ms=0\n"
    (folder / "broker.properties").write_text(of_broker.text.replace(ADDRESS, "localhost:0") + faster)
    subprocess.run(["bash", "-c", certificate], cwd=folder, check=True, capture_output=True, timeout=60)
    said = [typed(folder, first_user, "admin")]
    log = folder / "broker.log"
    with log.open("wb") as out:
        broker = kohort_process(*shlex.split(serve)[1:], cwd=folder, stdout=out, stderr=out)
    try:
        address = ready_at(log, broker)
        (folder / "admin.properties").write_text(of_admin.text.replace(ADDRESS, address))
        said += [typed(folder, user, "alice"), typed(folder, acls, "")]
        yield SecuredPlace(folder, address, said)
    finally:
        broker.terminate()
        broker.wait(60)


def typed(folder: Path, line: str, user: str) -> str:
    """Runs a command line and types the password of a user; returns what it printed."""
    password = PASSWORDS.get(user, "")
    prompts = ((f"Password of {user}: ", password), ("The same again: ", password)) if user else ()
    ran = run_at_terminal(*shlex.split(line)[1:], typed=prompts, cwd=folder)
    assert ran.code == 0, ran.err
    return ran.out.decode()


def ready_at(log: Path, broker: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and broker.poll() is None:
        if found := _READY.search(log.read_text()):
            return found[1]
        time.sleep(0.02)
    pytest.fail(log.read_text())


def login(place: SecuredPlace, user: str, password: str) -> dict[str, object]:
    settings: dict[str, object] = dict(read_properties(place.folder / "admin.properties"))
    settings["ssl.truststore.location"] = str(place.folder / "ca.pem")
    del settings["sasl.jaas.config"]
    return {**settings, "sasl.username": user, "sasl.password": password}


def test_five_commands_lead_to_tls_scram_and_acls(place: SecuredPlace) -> None:
    assert place.said[:2] == [
        f"{who}: added (SCRAM-SHA-512, 4096 iterations)\n" for who in ("admin", "alice")
    ]
    assert place.said[2].count("added: ALLOW") == 5
    assert (place.folder / "broker.pem").stat().st_mode & 0o077 == 0, "others cannot read the key"
    as_alice = login(place, "alice", "alice-secret")
    with Producer(as_alice) as producer:
        assert producer.send("orders", value=b"x").result(30).offset == 0
        with pytest.raises(AuthorizationFailed):
            producer.send("secrets", value=b"x").result(30)
    with Consumer(as_alice, group_id="billing", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["orders"])
        assert next(iter(consumer)).value == b"x"
    for settings in (login(place, "alice", "wrong"), login(place, "nobody", "alice-secret")):
        with Producer(settings) as producer, pytest.raises(AuthenticationFailed):
            producer.send("orders", value=b"x").result(30)
    log = (place.folder / "broker.log").read_text()
    assert not [secret for secret in PASSWORDS.values() if secret in log]
    assert "no console:" in log


def test_clients_log_in_as_the_page_says(
    place: SecuredPlace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place.folder)
    ours, librdkafka = blocks("test_clients_log_in_as_the_page_says", "python")
    run(place.text(ours))
    assert int(capsys.readouterr().out) >= 0
    run(place.text(librdkafka))
    assert capsys.readouterr().out == "0 records are left\n"


def run(source: str) -> None:
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(source, "docs/security.md", "exec", dont_inherit=True), names)


def test_the_commands_of_users_acls_and_quotas(place: SecuredPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.folder)
    monkeypatch.setenv("KOHORT_CONFIG", "admin.properties")
    (place.folder / "bob.password").write_text("bob-secret\n")
    for block in blocks("test_the_commands_of_users_acls_and_quotas", "console"):
        shown = re.split(r"^\$ .*\n", block.text, flags=re.MULTILINE)[1:]
        for line, output in zip(lines_of(block), shown, strict=True):
            ran = run_kohort(*shlex.split(line)[1:])
            assert ran.code == 0, f"{line}: {ran.err}"
            assert not output or ran.out.decode() == output, line
    assert os.stat("users").st_mode & 0o077 == 0


def test_the_python_of_the_page(
    place: SecuredPlace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place.folder)
    (block,) = blocks("test_the_python_of_the_page", "python")
    run(place.text(block))
    assert "ALLOW READ to User:dora" in capsys.readouterr().out


def test_a_broker_starts_with_the_settings_of_the_page(
    place: SecuredPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And takes the tokens of the provider, of which a file stands in for the URL."""
    monkeypatch.chdir(place.folder)
    (block,) = blocks("test_a_broker_starts_with_the_settings_of_the_page", "properties")
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    published = json.loads(RSAAlgorithm.to_jwk(key.public_key()))
    keys = tmp_path / "keys"
    keys.write_text(json.dumps({"keys": [{**published, "kid": "one", "use": "sig", "alg": "RS256"}]}))
    file = tmp_path / "broker.properties"
    file.write_text(
        block.text.replace(ADDRESS, "localhost:0").replace("https://login.example/keys", keys.as_uri())
    )

    def settings(audience: str) -> dict[str, object]:
        now = int(time.time())
        claims = {
            "sub": "alice",
            "iss": "https://login.example",
            "aud": audience,
            "iat": now,
            "exp": now + 300,
        }
        token = jwt.encode(claims, key, algorithm="RS256", headers={"kid": "one"})
        return {
            "bootstrap.servers": broker.bootstrap_servers,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": "ca.pem",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token": lambda: token,
        }

    with running(settings=read_properties(file)) as broker:
        with Admin(settings("kafka")) as admin:
            assert admin.describe_cluster(timeout=30).nodes
        with Admin(settings("others")) as admin, pytest.raises(AuthenticationFailed):
            admin.describe_cluster(timeout=30)


def test_a_certificate_is_renewed_while_the_broker_runs(
    place: SecuredPlace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place.folder)
    old = Path("ca.pem").read_text()
    (commands,) = blocks("test_five_commands_lead_to_tls_scram_and_acls", "console")
    Path("broker.pem").unlink()
    subprocess.run(["bash", "-c", lines_of(commands)[0]], check=True, capture_output=True, timeout=60)
    new = Path("ca.pem").read_text()
    Path("ca.pem").write_text(old + new)  # the broker is its own authority: clients know both meanwhile
    host, _, port = place.address.rpartition(":")
    assert ssl.get_server_certificate((host, int(port))).split() == old.split()
    (block,) = blocks("test_a_certificate_is_renewed_while_the_broker_runs", "python")
    run(place.text(block))
    assert capsys.readouterr().out == "renewed\n"
    assert ssl.get_server_certificate((host, int(port))).split() == new.split()
