"""Connections within this machine are not paced; others are left as the system made them."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from kohort import Admin, loopback
from kohort.broker import running
from kohort.loopback import send_at_once


@pytest.fixture(autouse=True)
def _as_linux_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tested here is Linux's own; the portable way leaves connections as they are."""
    monkeypatch.setattr(loopback, "PORTABLE", False)


def congestion_control(sock: socket.socket) -> str:
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode()


def connected(from_address: str) -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        near = socket.create_connection(listening.getsockname(), 60, (from_address, 0))
        return near, listening.accept()[0]


def connections_of_this_process(port: int) -> Iterator[socket.socket]:
    """Both ends of those that lead to a port."""
    for name in os.listdir("/proc/self/fd"):
        try:
            copy = os.dup(int(name))
        except OSError:
            continue  # closed meanwhile
        try:
            sock = socket.socket(fileno=copy)
        except OSError:
            os.close(copy)  # no socket
            continue
        with sock:
            if sock.family == socket.AF_INET and sock.type == socket.SOCK_STREAM and is_connected(sock, port):
                yield sock


def is_connected(sock: socket.socket, port: int) -> bool:
    try:
        return port in (sock.getsockname()[1], sock.getpeername()[1])
    except OSError:
        return False


def test_both_ends_have_one_address() -> None:
    near, far = connected("127.0.0.1")
    with near, far:
        for end in (near, far):
            send_at_once(end)
            assert congestion_control(end) == "reno"


def test_an_end_at_another_address_keeps_what_the_system_chose() -> None:
    near, far = connected("127.0.0.2")
    with near, far, socket.socket() as untouched:
        send_at_once(near)
        assert congestion_control(near) == congestion_control(untouched)


def test_a_connection_that_is_gone_is_no_error() -> None:
    with socket.socket() as never_connected:
        send_at_once(never_connected)


def test_broker_and_client_use_it() -> None:
    with running() as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.list_topics()
        ends = list(
            map(congestion_control, connections_of_this_process(int(broker.bootstrap_servers.split(":")[1])))
        )
        assert len(ends) >= 2
        assert set(ends) == {"reno"}
