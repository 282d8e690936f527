"""Ten thousand connections that say nothing: good clients come in all the same, and the broker stays small."""

from __future__ import annotations

import resource
import socket
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

import kohort
from tests.clients.process import BrokerProcess

COUNT = 10_000
LOGINS = 20
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SETTINGS = (
    "listener.security.protocol.map=PLAINTEXT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms=PLAIN",
    f'listener.name.plaintext.plain.sasl.jaas.config={PLAIN} user_alice="secret";',
    "durability=memory",
)


def connections(address: str, stack: ExitStack, count: int) -> None:
    host, _, port = address.rpartition(":")
    for _ in range(count):
        sock = stack.enter_context(socket.socket())
        sock.settimeout(60)
        sock.connect((host, int(port)))


def log_in(address: str) -> float:
    began = time.perf_counter()
    config = {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "secret",
    }
    with kohort.Admin(config) as admin:
        admin.list_topics()
    return time.perf_counter() - began


@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_good_clients_come_in_beside_ten_thousand_silent_ones(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= hard < COUNT + 2_000:
        pytest.skip(f"a process may open {hard} files here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, COUNT + 2_000), hard))
    try:
        with BrokerProcess(tmp_path, *SETTINGS) as broker, ExitStack() as stack:
            took_s = []
            for _ in range(LOGINS):
                connections(broker.bootstrap_servers, stack, COUNT // LOGINS)
                took_s.append(log_in(broker.bootstrap_servers))
            assert broker._process is not None
            status = Path(f"/proc/{broker._process.pid}/status")
            if status.exists():
                (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmRSS"))
                assert int(line.split()[1]) < 500_000  # kB
                print(
                    f"\n{COUNT} silent connections: {line}; the slowest of {LOGINS} logins took {max(took_s):.2f} s"
                )
            lines = broker.log_file.read_text().splitlines()
            assert len(lines) < 100  # not one for each
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
