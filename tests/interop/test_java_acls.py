"""kafka-acls and the Java consumer on a broker of ours with an authorizer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker import peer
from tests.broker.secured import login, secured

from .conftest import Run

pytestmark = pytest.mark.interop
ACLS = "org.apache.kafka.tools.AclCommand"
LOGIN = """security.protocol=SASL_PLAINTEXT
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="{0}" password="{0}";
"""

# Arguments, what the output must match, what it must not.
COMMANDS = [
    ("--add --allow-principal User:alice --consumer --topic t --group g", "operation=READ", "Error"),
    (
        "--add --deny-principal User:alice --deny-host 10.0.0.1 --operation Write --topic pre "
        "--resource-pattern-type prefixed",
        "permissionType=DENY",
        "Error",
    ),
    ("--list --topic t", r"User:alice, host=\*, operation=DESCRIBE", "pre"),
    (
        "--list --topic prefix --resource-pattern-type match",
        r"name=pre, patternType=PREFIXED(.|\n)*host=10.0.0.1, operation=WRITE",
        "name=t,",
    ),
    ("--list --principal User:alice", "resourceType=GROUP, name=g", None),
    ("--remove --force --topic pre --resource-pattern-type prefixed", "", "Error"),
    ("--list", "name=t", "name=pre"),
]


@pytest.fixture
def address() -> Iterator[str]:
    with secured() as broker:
        yield broker.bootstrap_servers


def command_config(folder: Path, user: str) -> str:
    file = folder / f"{user}.properties"
    file.write_text(LOGIN.format(user))
    return str(file)


def test_kafka_acls(java: Run, address: str, tmp_path: Path) -> None:
    server = ["--bootstrap-server", address, "--command-config", command_config(tmp_path, "admin")]
    for arguments, wanted, unwanted in COMMANDS:
        said = java(ACLS, *server, *arguments.split())
        assert re.search(wanted, said), f"{arguments}\n{said}"
        assert unwanted is None or not re.search(unwanted, said), f"{arguments}\n{said}"
    with login(address, "admin") as admin, login(address, "alice") as alice:
        peer.create_topic(admin, "t")
        assert peer.fetch(alice, "t").error_code == 0
