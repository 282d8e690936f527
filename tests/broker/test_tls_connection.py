"""Connections with TLS: what plain ones do, hostile handshakes, and who a client with a certificate is."""

from __future__ import annotations

import contextlib
import logging
import random
import socket
import ssl
import struct
import threading

import pytest

from kohort.broker import running
from kohort.broker.net import sasl_connection, tls_transport
from kohort.client.io.blocking_connection import BlockingConnection
from kohort.wire.messages.api_versions import ApiVersionsRequest
from kohort.wire.messages.fetch import FetchRequest
from kohort.wire.messages.metadata import MetadataRequest
from tests.broker.peer import (
    LONG_POLL_MS,
    PATIENCE_S,
    batch_of,
    create_topic,
    fetch,
    fetch_request,
    produce,
    produce_request,
    values_in,
)
from tests.broker.tls_peer import TlsPeer, connect, until_closed
from tests.certificates import Certificates, make_certificates
from tests.clients.process import eventually

ALERT = b"\x15\x03\x03\x00\x02\x02"  # a fatal one; Kafka's clients know it by its first four bytes


@pytest.fixture(scope="module")
def certificates(tmp_path_factory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module", params=["uvloop", "asyncio", "metered", "on disk"])
def broker(request, certificates, tmp_path_factory):
    """A broker with TLS on both event loops; one that counts requests, and one whose answers come from files."""
    settings = certificates.listener("SSL", socket_request_max_bytes="30000000")
    loop = "asyncio" if request.param == "asyncio" else "uvloop"
    where = tmp_path_factory.mktemp("data") if request.param == "on disk" else None
    with running(where, settings=settings, event_loop=loop, is_metered=request.param == "metered") as started:
        yield started


@pytest.fixture
def client(broker, certificates):
    with TlsPeer(broker.bootstrap_servers, certificates.context(), timeout_s=PATIENCE_S) as connection:
        yield connection


def is_served(client: BlockingConnection) -> bool:
    return client.call(ApiVersionsRequest("pytest", "1.0"), version=3).error_code == 0


def is_closed(client: BlockingConnection) -> bool:
    try:
        client.receive_frame()
    except TimeoutError:
        return False
    except OSError:
        return True
    return False


def send_many(client: BlockingConnection, request: FetchRequest) -> None:
    for _ in range(200_000):
        client.send(request, version=11)


def call_once(address: str, context: ssl.SSLContext) -> None:
    with TlsPeer(address, context) as client:
        client.send(MetadataRequest(None), version=5)
        client.receive()


# --- what plain connections do


def test_answers_come_in_the_order_of_the_requests(client):
    create_topic(client, "ordered")
    for number in range(50):
        client.send(produce_request("ordered", batch_of(b"%d" % number)), version=7)
        client.send(MetadataRequest(None), version=5)
    offsets = []
    for _ in range(50):
        offsets.append(client.receive().responses[0].partition_responses[0].base_offset)
        assert client.receive().cluster_id
    assert offsets == list(range(50))


def test_large_records_come_back_as_they_were(client):
    """Frames of many records of TLS, of sizes around 16 KB, and answers that are larger than the socket's buffers."""
    create_topic(client, "large", max_message_bytes=20_000_000)
    dice = random.Random(16)
    values = [dice.randbytes(size) for size in (1, 16_000, 16_384, 16_385, 131_072, 1_048_576, 9_000_000)]
    for value in values:
        client.send(produce_request("large", batch_of(value)), version=7)
    for offset in range(len(values)):
        assert client.receive().responses[0].partition_responses[0].base_offset == offset
    data = fetch(client, "large", partition_max_bytes=1 << 26)
    assert values_in(data) == values
    for offset, value in enumerate(values):
        client.send(fetch_request("large", offset, partition_max_bytes=1), version=11)
        assert values_in(client.receive().responses[0].partitions[0])[0] == value


def test_a_frame_may_arrive_in_pieces_and_records_of_any_size(broker, certificates, client):
    create_topic(client, "pieces")
    dice = random.Random(7)
    frames = b"".join(
        struct.pack(">ihhih", 10, 18, 0, number, -1) for number in range(300)
    )  # ApiVersions, 300 times
    position = 0
    while position < len(frames):
        size = dice.choice((1, 3, 100, 999))
        client.send_bytes(frames[position : position + size])
        position += size
    for number in range(300):
        assert client.receive_frame()[:4] == number.to_bytes(4, "big")


def test_a_client_that_does_not_read_stops_being_read_and_others_go_on(broker, certificates, client):
    create_topic(client, "unread", max_message_bytes=900_000)
    for _ in range(8):
        produce(client, "unread", batch_of(b"z" * 700_000), version=7)
    with TlsPeer(broker.bootstrap_servers, certificates.context(), timeout_s=0.3) as deaf:
        with pytest.raises(TimeoutError):
            send_many(deaf, fetch_request("unread", 0, partition_max_bytes=1 << 26))  # answers of 5.6 MB each
        assert is_served(client)
        deaf.tls.settimeout(PATIENCE_S)
        for _ in range(3):  # it reads after all, and everything is whole
            assert len(values_in(deaf.receive().responses[0].partitions[0])) == 8


def test_a_client_that_does_not_read_and_resets_leaves_nothing_behind(broker, certificates, client):
    create_topic(client, "left", max_message_bytes=900_000)
    for _ in range(8):
        produce(client, "left", batch_of(b"z" * 700_000), version=7)
    before = broker.server.connection_count
    with TlsPeer(broker.bootstrap_servers, certificates.context()) as deaf:
        for _ in range(5):
            deaf.send(fetch_request("left", 0, partition_max_bytes=1 << 26), version=11)
        eventually(lambda: is_waiting(broker), "the broker waits until it reads")
        deaf.tls.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    eventually(lambda: broker.server.connection_count <= before, "the connection is gone")
    assert len(values_in(fetch(client, "left", partition_max_bytes=1 << 26))) == 8


def is_waiting(broker) -> bool:
    async def look() -> bool:
        return any(connection._outbox.is_waiting for connection in broker.server.admission.connections)

    return broker.call(look())


def test_a_parked_fetch_holds_back_what_came_after_it(broker, certificates, client):
    create_topic(client, "parked")
    client.send(fetch_request("parked", 0, max_wait_ms=LONG_POLL_MS), version=11)
    client.send(MetadataRequest(None), version=5)
    with TlsPeer(broker.bootstrap_servers, certificates.context()) as other:
        produce(other, "parked", batch_of(b"now"))
    assert values_in(client.receive().responses[0].partitions[0]) == [b"now"]
    assert client.receive().cluster_id


@pytest.mark.parametrize("end", ["says_goodbye", "sends_no_more"])
def test_a_long_poll_is_answered_though_the_client_sends_no_more(broker, certificates, client, end):
    create_topic(client, f"half-{end}")
    partition = broker.server.broker.store.topics[f"half-{end}"].partitions[0]
    with TlsPeer(broker.bootstrap_servers, certificates.context(), timeout_s=PATIENCE_S) as half:
        half.send(fetch_request(f"half-{end}", 0, max_wait_ms=LONG_POLL_MS), version=11)
        eventually(lambda: partition.has_waiters, "the fetch waits")
        getattr(half, end)()
        assert is_served(client)
        produce(client, f"half-{end}", batch_of(b"late"))
        assert values_in(half.receive().responses[0].partitions[0]) == [b"late"]
        assert is_closed(half)


def test_a_client_that_resets_during_a_long_poll_leaves_nothing_behind(broker, certificates, client):
    create_topic(client, "gone")
    partition = broker.server.broker.store.topics["gone"].partitions[0]
    before = broker.server.connection_count
    with TlsPeer(broker.bootstrap_servers, certificates.context()) as leaver:
        leaver.send(fetch_request("gone", 0, max_wait_ms=LONG_POLL_MS), version=11)
        eventually(lambda: partition.has_waiters, "the fetch waits")
        leaver.tls.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    eventually(lambda: not partition.has_waiters, "it waits no more")
    eventually(lambda: broker.server.connection_count <= before, "the connection is gone")
    assert is_served(client)


def test_bad_input_closes_and_what_was_asked_before_is_answered(broker, certificates):
    with TlsPeer(broker.bootstrap_servers, certificates.context()) as bad:
        bad.send(MetadataRequest(None), version=5)
        bad.send_bytes(struct.pack(">i", -1))
        assert bad.receive().cluster_id
        assert is_closed(bad)


def test_stopping_answers_what_was_sent_before(tmp_path, certificates):
    broker = running(tmp_path, settings=certificates.listener("SSL"))
    broker.start()
    silent = connect(broker.bootstrap_servers)
    with TlsPeer(broker.bootstrap_servers, certificates.context()) as client:
        create_topic(client, "last")
        for _ in range(20):
            client.send(produce_request("last", batch_of(b"x")), version=7)
        offsets = [client.receive().responses[0].partition_responses[0].base_offset]
        broker.stop()
        with contextlib.suppress(OSError, IndexError):
            while True:
                offsets.append(client.receive().responses[0].partition_responses[0].base_offset)
    assert until_closed(silent) == b""
    silent.close()
    settings = certificates.listener("SSL")
    with (
        running(tmp_path, settings=settings) as again,
        TlsPeer(again.bootstrap_servers, certificates.context()) as client,
    ):
        assert fetch(client, "last").high_watermark >= len(offsets)
    assert offsets == list(range(len(offsets)))


# --- those who do not speak TLS, and those who speak it where nobody does


def test_plain_bytes_get_an_alert_that_kafkas_clients_explain(broker, client, caplog):
    with caplog.at_level(logging.WARNING, "kohort.broker"), connect(broker.bootstrap_servers) as plain:
        plain.sendall(struct.pack(">ihhih", 10, 18, 0, 1, -1) + b"more than the broker ever reads" * 9)
        assert until_closed(plain) == ALERT + b"\x0a"
        who = f"127.0.0.1:{plain.getsockname()[1]}"
    assert int.from_bytes(ALERT[:4], "big") == 352518912
    lines = [record.getMessage() for record in caplog.records if who in record.getMessage()]
    assert len(lines) == 1
    assert lines[0].endswith("it does not speak TLS, and the listener SSL speaks nothing else. "
                             "Set the client's security.protocol to SSL")  # fmt: skip
    assert is_served(client)


def test_a_tls_client_on_a_plain_port_is_closed_and_the_log_says_what_it_probably_was(certificates, caplog):
    with (
        running() as plain,
        caplog.at_level(logging.WARNING, "kohort.broker"),
        pytest.raises((ssl.SSLError, ConnectionError)),
    ):
        TlsPeer(plain.bootstrap_servers, certificates.context())
    (line,) = [record.getMessage() for record in caplog.records if "closing" in record.getMessage()]
    assert "a frame of 3692" in line
    assert "It is probably the beginning of TLS, which this listener does not speak" in line


def hello_of(certificates: Certificates) -> tuple[bytes, ssl.SSLObject, tuple[ssl.MemoryBIO, ssl.MemoryBIO]]:
    """How a client begins, and what it goes on with: what comes, and what is to be sent."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = certificates.context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read(), client, (incoming, outgoing)


def test_noise_in_the_handshake_hurts_nobody(broker, certificates, client):
    """Random bytes, records with a true head, and hellos in which some bytes are wrong."""
    dice = random.Random(20261116)
    hello, _, _ = hello_of(certificates)
    for number in range(60):
        with connect(broker.bootstrap_servers) as noisy:
            noise = dice.randbytes(dice.randrange(1, 700))
            if number % 3 == 1:
                noise = b"\x16\x03\x01" + len(noise).to_bytes(2, "big") + noise
            elif number % 3 == 2:
                damaged = bytearray(hello)
                for _ in range(dice.randrange(1, 5)):
                    damaged[dice.randrange(5, len(damaged))] = dice.randrange(256)
                noise = bytes(damaged)
            noisy.sendall(noise)
            if number % 4:
                noisy.shutdown(socket.SHUT_WR)
                until_closed(noisy)
    assert is_served(client)


def test_a_slow_handshake_holds_up_nobody(broker, certificates, client):
    """A hello that comes byte by byte, while others connect and are served; then it is answered too."""
    hello, slow, (incoming, outgoing) = hello_of(certificates)
    with connect(broker.bootstrap_servers) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number, byte in enumerate(hello):
            sock.sendall(bytes([byte]))
            if number % 100 == 1:
                assert is_served(client)
                with TlsPeer(broker.bootstrap_servers, certificates.context()) as other:
                    assert is_served(other)
        while True:
            try:
                slow.do_handshake()
                break
            except ssl.SSLWantReadError:
                incoming.write(sock.recv(65536))
        slow.write(struct.pack(">ihhih", 10, 18, 0, 5, -1))
        sock.sendall(outgoing.read())
        with contextlib.suppress(ssl.SSLWantReadError):
            slow.read()
        incoming.write(sock.recv(65536))
        assert slow.read(8)[4:] == (5).to_bytes(4, "big")


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_who_says_nothing_is_closed_in_time(certificates, monkeypatch, caplog, protocol):
    """With SASL too, which has the same time for both: a handshake that stops half way is not a login."""
    for module in (tls_transport, sasl_connection):
        monkeypatch.setattr(module, "AUTHENTICATE_WITHIN_S", 0.1)
    settings = certificates.listener(protocol, sasl_enabled_mechanisms="SCRAM-SHA-512")
    with (
        caplog.at_level(logging.WARNING, "kohort.broker"),
        running(settings=settings) as broker,
        connect(broker.bootstrap_servers) as silent,
        connect(broker.bootstrap_servers) as stuck,
    ):
        stuck.sendall(b"\x16\x03\x01\x02\x00")
        assert until_closed(silent) == until_closed(stuck) == b""
        with TlsPeer(broker.bootstrap_servers, certificates.context()) as client:
            assert is_served(client)
    said = {"SSL": "no TLS handshake within", "SASL_SSL": "not authenticated within"}[protocol]
    told = sum(said in record.getMessage() for record in caplog.records)
    assert told == 1, "one line a minute for an address and a reason"


def test_limits_count_connections_before_their_handshake(certificates):
    settings = certificates.listener("SSL", max_connections_per_ip="2")
    with (
        running(settings=settings) as small,
        connect(small.bootstrap_servers) as one,
        connect(small.bootstrap_servers) as two,
    ):
        eventually(lambda: small.server.connection_count == 2, "both are counted")
        with connect(small.bootstrap_servers) as three:
            assert until_closed(three) == b""
        one.close()
        two.close()
        eventually(lambda: not small.server.connection_count, "all connections are gone")
        with TlsPeer(small.bootstrap_servers, certificates.context()) as again:
            assert is_served(again)


def test_many_connections_at_once(broker, certificates):
    served: list[bool] = []

    def run() -> None:
        for _ in range(5):
            with TlsPeer(broker.bootstrap_servers, certificates.context()) as one:
                served.append(is_served(one))

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert served == [True] * 40


# --- certificates of clients


def principals(broker) -> set[str]:
    async def look() -> set[str]:
        return {connection.principal for connection in broker.server.admission.connections}

    return broker.call(look())


@pytest.mark.parametrize(
    ("rules", "principal"),
    [
        ("DEFAULT", "User:CN=alice,OU=Tests,O=Kohort"),
        ("RULE:^CN=([^,]*),.*$/$1/U,DEFAULT", "User:ALICE"),
    ],
)
def test_a_client_is_who_its_certificate_says(certificates, rules, principal):
    settings = certificates.listener("SSL", ssl_client_auth="requested", ssl_principal_mapping_rules=rules)
    with running(settings=settings) as broker:
        with TlsPeer(broker.bootstrap_servers, certificates.context(certificates.alice)) as alice:
            assert is_served(alice)
            assert principals(broker) == {principal}
        with TlsPeer(broker.bootstrap_servers, certificates.context()) as nobody:
            assert is_served(nobody)
            eventually(
                lambda: principals(broker) == {"User:ANONYMOUS"}, "only one without a certificate is left"
            )


@pytest.mark.parametrize("who", ["alice", "nobody"])
@pytest.mark.parametrize("prefixed", [False, True])
def test_a_listener_with_sasl_asks_for_certificates_only_by_its_own_setting(certificates, who, prefixed):
    name = "listener.name.sasl_ssl.ssl.client.auth" if prefixed else "ssl.client.auth"
    settings = certificates.listener("SASL_SSL", sasl_enabled_mechanisms="SCRAM-SHA-256") | {
        name: "required",
        "ssl.principal.mapping.rules": "RULE:^CN=bob$/bob/",  # it is for nobody, and is not asked
    }
    context = certificates.context(certificates.alice if who == "alice" else None)
    with running(settings=settings) as broker:
        if prefixed and who == "nobody":
            with pytest.raises((ssl.SSLError, ConnectionError)):
                call_once(broker.bootstrap_servers, context)
        else:
            with TlsPeer(broker.bootstrap_servers, context) as client:
                assert is_served(client)
                assert principals(broker) == {"User:ANONYMOUS"}


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
@pytest.mark.parametrize("who", ["nobody", "a stranger", "not mapped"])
def test_who_may_not_in_gets_an_alert_and_is_closed_at_once(certificates, who, version, caplog):
    rules = "RULE:^CN=bob$/bob/" if who == "not mapped" else "DEFAULT"
    settings = certificates.listener("SSL", ssl_client_auth="required", ssl_principal_mapping_rules=rules)
    shown = {"nobody": None, "a stranger": certificates.stranger, "not mapped": certificates.alice}[who]
    context = certificates.context(shown)
    context.maximum_version = ssl.TLSVersion[version]
    with running(settings=settings) as broker, caplog.at_level(logging.WARNING, "kohort.broker"):
        with pytest.raises((ssl.SSLError, ConnectionError)) as error:  # in TLS 1.3 only the first read tells
            call_once(broker.bootstrap_servers, context)
        if who != "not mapped":
            assert "alert" in str(error.value).lower()
        eventually(lambda: not broker.server.connection_count, "the connection is gone")
    said = {
        "nobody": "it sent no certificate, and ssl.client.auth is required",
        "a stranger": "its certificate is not signed by an authority in ssl.truststore",
        "not mapped": "no rule of ssl.principal.mapping.rules is for its certificate",
    }
    assert said[who] in caplog.text


def test_a_client_that_does_not_trust_us_is_explained(certificates, caplog):
    with (
        running(settings=certificates.listener("SSL")) as broker,
        caplog.at_level(logging.WARNING, "kohort.broker"),
    ):
        with pytest.raises(ssl.SSLCertVerificationError):
            TlsPeer(broker.bootstrap_servers, certificates.context(authority=certificates.strange_authority))
        eventually(lambda: "the client does not trust our certificate" in caplog.text, "the log says so")
