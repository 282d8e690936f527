"""Floods before authentication: many clients that begin and never end, or end wrong, keep no good client out."""

from __future__ import annotations

import socket
import struct
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from kohort.broker.net import sasl_connection
from kohort.broker.running import running
from kohort.client.io.blocking_connection import BlockingConnection
from kohort.wire.compiler.compile import codec
from kohort.wire.errors import ErrorCode
from kohort.wire.frame import request_frame
from kohort.wire.messages.metadata import MetadataRequest
from kohort.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from kohort.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.broker.peer import PATIENCE_S
from tests.broker.test_sasl import SETTINGS, handshake, is_closed, login
from tests.broker.tls_peer import TlsPeer
from tests.certificates import Certificates, make_certificates
from tests.clients.process import eventually

MANY = 200
SOON_S = 15.0
"""How long a good client may take among them: it takes milliseconds, but the machine is shared."""
HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"  # a TLS record that says 512 bytes, and ends after 11


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def short_patience(monkeypatch: pytest.MonkeyPatch) -> float:
    """What the broker leaves a client for TLS and SASL together: ten seconds, and less here."""
    monkeypatch.setattr(sasl_connection, "AUTHENTICATE_WITHIN_S", 2.0)
    return 2.0


def connected(address: str, count: int, stack: ExitStack) -> list[socket.socket]:
    host, _, port = address.rpartition(":")
    return [
        stack.enter_context(socket.create_connection((host, int(port)), PATIENCE_S)) for _ in range(count)
    ]


def is_soon(began: float) -> bool:
    return time.monotonic() - began < SOON_S


def test_half_open_handshakes_of_tls(certificates: Certificates) -> None:
    settings = certificates.listener("SSL") | {"max.connections": "100"}
    with running(settings=settings) as broker, ExitStack() as stack:
        for sock in connected(broker.bootstrap_servers, MANY, stack):
            with suppress(OSError):  # the first ones have given way already
                sock.sendall(HELLO)
        began = time.monotonic()
        good = stack.enter_context(TlsPeer(broker.bootstrap_servers, certificates.context()))
        assert good.call(MetadataRequest()).brokers
        assert is_soon(began)
        assert broker.server.connection_count <= 100


def test_logins_that_come_byte_by_byte_have_no_more_time_than_others(short_patience: float) -> None:
    """The clock of a login does not begin again with each byte."""
    encoder = codec(17, 1)
    hello = request_frame(encoder, 1, "slow", encoder.encode_request(SaslHandshakeRequest("PLAIN")))
    with running(settings=SETTINGS) as broker, ExitStack() as stack:
        slow = connected(broker.bootstrap_servers, 50, stack)
        for sock in slow:
            sock.sendall(hello)
        ends = threading.Event()
        dripping = threading.Thread(target=_drip, args=(slow, ends), daemon=True)
        dripping.start()
        stack.callback(dripping.join)
        stack.callback(ends.set)
        began = time.monotonic()
        with BlockingConnection(broker.bootstrap_servers, timeout_s=PATIENCE_S) as good:
            login(good)
            eventually(lambda: broker.server.connection_count == 1, "the slow ones are closed")
            assert time.monotonic() - began < short_patience + SOON_S
            assert good.call(MetadataRequest()).brokers


def _drip(socks: list[socket.socket], ends: threading.Event) -> None:
    frame = struct.pack(">i", 4096)
    sent = 0
    while not ends.wait(0.05):
        byte = frame[sent : sent + 1] or b"\0"
        sent += 1
        for sock in socks:
            with suppress(OSError):
                sock.send(byte)


def test_wrong_passwords_delay_those_who_send_them() -> None:
    """The pause of refused clients grows with their number; a right password from the same address has none."""
    with (
        running(settings=SETTINGS | {"connection.failed.authentication.delay.ms": "10"}) as broker,
        ExitStack() as stack,
    ):
        wrong = [
            stack.enter_context(BlockingConnection(broker.bootstrap_servers, timeout_s=PATIENCE_S))
            for _ in range(12)
        ]
        for each in wrong:
            handshake(each)
        for each in wrong:
            each.send(SaslAuthenticateRequest(b"\0alice\0wrong"), 2)
        began = time.monotonic()
        with BlockingConnection(broker.bootstrap_servers, timeout_s=PATIENCE_S) as good:
            login(good)
            assert good.call(MetadataRequest()).brokers
        assert is_soon(began)
        assert wrong[0].receive().error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert is_closed(wrong[0])
        assert wrong[9].receive().error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert time.monotonic() - began > 0.3  # it is doubled after the fourth, up to five seconds


def test_hashing_of_a_flood_leaves_the_loop_to_others(tmp_path: Path) -> None:
    """Passwords of a file are hashed by a few threads; what waits for them is bounded, and others are served."""
    from kohort.security.credentials_file import PasswordHash, format_credentials

    users = tmp_path / "users"
    users.write_text(format_credentials({"carol": PasswordHash.of("secret", b"0123456789abcdef", 50_000)}))
    settings = SETTINGS | {"sasl.credentials.file": str(users)}
    with running(settings=settings) as broker, ExitStack() as stack:
        served = stack.enter_context(BlockingConnection(broker.bootstrap_servers, timeout_s=PATIENCE_S))
        login(served)  # whose password is in the settings
        for number in range(20):
            each = stack.enter_context(BlockingConnection(broker.bootstrap_servers, timeout_s=PATIENCE_S))
            handshake(each)
            each.send(SaslAuthenticateRequest(b"\0carol\0wrong%d" % number), 2)
        slowest = max(_took_s(served) for _ in range(20))
        assert slowest < SOON_S / 3


def _took_s(client: BlockingConnection) -> float:
    began = time.monotonic()
    assert client.call(MetadataRequest()).brokers
    return time.monotonic() - began
