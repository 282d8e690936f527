"""A broker with SASL and an authorizer, for tests: what it is started with, and how its clients log in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kohort.broker.running import running

ADMIN, PASSWORD = "admin", 'admin\'s = secret, \\ and "more"'
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_MODULES = "org.apache.kafka.common.security"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


SETTINGS = {
    "listeners": "CLIENT://127.0.0.1:0",
    "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.client.plain.sasl.jaas.config": (
        f"{_MODULES}.plain.PlainLoginModule required user_{ADMIN}={_quoted(PASSWORD)};"
    ),
    "authorizer.class.name": AUTHORIZER,
    "super.users": f"User:{ADMIN}",
}


@contextmanager
def secured_broker(directory: Path | None = None) -> Iterator[running]:
    """A broker to which `admin` may do everything, and others what ACLs say."""
    with running(directory, settings=SETTINGS) as broker:
        yield broker


def login(
    broker: running, user: str = ADMIN, password: str = PASSWORD, mechanism: str = "PLAIN"
) -> dict[str, object]:
    """The settings of a client."""
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }
