"""Connections: order, pipelining, bad input, clients that do not read, limits."""

from __future__ import annotations

import logging
import socket
import struct
from contextlib import ExitStack

import pytest

from kohort.broker import running
from kohort.broker.net.connection import MOST_SPARES
from kohort.client.io.blocking_connection import BlockingConnection
from kohort.wire.compiler.compile import codec
from kohort.wire.errors import ErrorCode
from kohort.wire.frame import request_frame
from kohort.wire.messages.api_versions import ApiVersionsRequest
from kohort.wire.messages.fetch import FetchRequest
from kohort.wire.messages.metadata import MetadataRequest
from tests.broker.peer import (
    LONG_POLL_MS,
    PATIENCE_S,
    batch_of,
    create_topic,
    fetch_request,
    produce,
    produce_request,
    values_in,
)
from tests.clients.process import eventually


@pytest.fixture(scope="module", params=["uvloop", "asyncio"])
def broker(request):
    with running(settings={"socket.request.max.bytes": 1_000_000}, event_loop=request.param) as started:
        yield started


@pytest.fixture
def client(broker):
    with BlockingConnection(broker.bootstrap_servers) as connection:
        yield connection


def api_versions(client: BlockingConnection, version: int = 3):
    return client.call(ApiVersionsRequest("pytest", "1.0"), version=version)


def is_closed(client: BlockingConnection) -> bool:
    try:
        client.receive_frame()
    except TimeoutError:
        return False
    except OSError:
        return True
    return False


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


def test_a_parked_fetch_holds_back_what_the_connection_sent_after_it(broker, client):
    create_topic(client, "parked")
    client.send(fetch_request("parked", 0, max_wait_ms=LONG_POLL_MS), version=11)
    client.send(MetadataRequest(None), version=5)
    with BlockingConnection(broker.bootstrap_servers) as other:
        produce(other, "parked", batch_of(b"now"))
    assert values_in(client.receive().responses[0].partitions[0]) == [b"now"]
    assert client.receive().cluster_id


def test_a_frame_may_arrive_in_pieces_of_any_size(broker, client):
    create_topic(client, "pieces")
    whole = request_frame(
        codec(0, 7), 1, "c", codec(0, 7).encode_request(produce_request("pieces", batch_of(b"x" * 99)))
    )
    for size in (1, 2, 3, 5, 64):
        with BlockingConnection(broker.bootstrap_servers) as slow:
            for start in range(0, len(whole), size):
                slow.send_bytes(whole[start : start + size])
            assert len(slow.receive_frame()) > 10


def test_many_frames_in_one_write_with_a_large_one_in_the_middle(client):
    create_topic(client, "mixed", max_message_bytes=900_000)
    small, large = batch_of(b"s"), batch_of(b"L" * 800_000)
    for batch in (small, small, large, small, large, small):
        client.send(produce_request("mixed", batch), version=7)
    codes = [client.receive().responses[0].partition_responses[0].error_code for _ in range(6)]
    assert codes == [0] * 6


BAD_FRAMES = {
    "negative length": struct.pack(">i", -5),
    "above socket.request.max.bytes": struct.pack(">i", 1_000_001),
    "shorter than a header": struct.pack(">i", 3) + b"abc",
    "unknown API key": struct.pack(">ihhih", 10, 9999, 0, 1, -1),
    "unknown version": struct.pack(">ihhih", 10, 3, 99, 1, -1),
    "produce 0 is advertised, not served": struct.pack(">ihhih", 10, 0, 0, 1, -1),
    "client_id beyond the frame": struct.pack(">ihhih", 10, 3, 5, 1, 500),
    "client_id not UTF-8": struct.pack(">ihhih", 12, 3, 5, 1, 2) + b"\xff\xfe",
    "body beyond the frame": struct.pack(">ihhihi", 14, 3, 5, 1, -1, 2**31 - 1),
    "negative count": struct.pack(">ihhihi", 14, 3, 1, 1, -1, -7),
}


@pytest.mark.parametrize("name", BAD_FRAMES)
def test_bad_input_closes_that_connection_alone_and_says_who_and_why(broker, client, caplog, name):
    broker.server.broker.clock.shift_ms += 60_000  # the same reason is said once a minute
    with (
        caplog.at_level(logging.WARNING, "kohort.broker"),
        BlockingConnection(broker.bootstrap_servers) as bad,
    ):
        who = f"127.0.0.1:{bad._socket.getsockname()[1]}"
        bad.send_bytes(BAD_FRAMES[name])
        assert is_closed(bad)
    lines = [record.getMessage() for record in caplog.records if who in record.getMessage()]
    assert len(lines) == 1
    assert f"closing the connection of {who}: " in lines[0]
    assert api_versions(client).error_code == 0, "others never notice"


@pytest.mark.parametrize("more", [b"x", b"more" * 1000], ids=["one", "many"])
def test_bytes_that_follow_a_request_in_its_frame_are_ignored_as_in_kafka(broker, more):
    """Sends too many bytes, as kafka-go does with DescribeAcls: a byte of tagged fields for each of its structs."""
    with BlockingConnection(broker.bootstrap_servers) as client:
        for api_key, version, body in (
            (3, 1, struct.pack(">i", 0)),
            (16, 0, b""),
            (29, 2, b"\0" + bytes([1, 0, 1, 0, 0, 1, 1, 0])),
        ):
            frame = struct.pack(">hhih", api_key, version, 7, -1) + body + more
            client.send_bytes(struct.pack(">i", len(frame)) + frame)
            (size,) = struct.unpack(">i", client._socket.recv(4, socket.MSG_WAITALL))
            answer = client._socket.recv(size, socket.MSG_WAITALL)
            assert struct.unpack_from(">i", answer) == (7,)


def test_what_was_asked_before_bad_input_is_still_answered(broker):
    with BlockingConnection(broker.bootstrap_servers) as client:
        client.send(MetadataRequest(None), version=5)
        client.send_bytes(struct.pack(">i", -1))
        assert client.receive().cluster_id
        assert is_closed(client)


def test_random_bytes_never_hurt_the_others(broker, client):
    import random

    dice = random.Random(20261115)
    for _ in range(60):
        with BlockingConnection(broker.bootstrap_servers) as noisy:
            size = dice.randrange(4, 300)
            payload = dice.randbytes(size)
            noisy.send_bytes(struct.pack(">i", dice.choice((size, size // 2))) + payload)
    assert api_versions(client).error_code == 0


def test_an_api_versions_newer_than_ours_is_answered_in_version_0_with_key_18_alone(broker):
    with BlockingConnection(broker.bootstrap_servers) as client:
        client.send_bytes(struct.pack(">ihhih", 11, 18, 5, 77, -1) + b"\0")
        frame = client.receive_frame()
        correlation_id, error, count, key, first, last = struct.unpack(">ihihhh", frame)
        assert (correlation_id, error, count, key) == (77, ErrorCode.UNSUPPORTED_VERSION, 1, 18)
        assert (first, last) == (0, 4)
        assert api_versions(client).error_code == 0, "the client asks again on the same connection"


@pytest.mark.parametrize(("name", "version"), [("", "1"), ("x", ""), ("-x", "1"), ("a b", "1")])
def test_api_versions_3_without_a_software_name_or_version_is_an_invalid_request(client, name, version):
    answer = client.call(ApiVersionsRequest(name, version), version=3)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_api_versions_advertises_produce_from_0_because_old_librdkafka_looks_for_it(client):
    ranges = {key.api_key: (key.min_version, key.max_version) for key in api_versions(client).api_keys}
    assert ranges[0] == (0, 13)
    assert ranges[1] == (4, 18)


def test_a_client_that_does_not_read_stops_being_read_and_others_go_on(broker, client):
    create_topic(client, "unread", max_message_bytes=900_000)
    for _ in range(8):
        produce(client, "unread", batch_of(b"z" * 700_000), version=7)
    deaf = socket.create_connection(("127.0.0.1", int(broker.bootstrap_servers.rpartition(":")[2])))
    deaf.settimeout(1.0)
    body = codec(1, 11).encode_request(fetch_request("unread", 0, partition_max_bytes=1 << 26))
    frame = request_frame(codec(1, 11), 1, None, body)
    sent = 0
    try:
        # Answers of 5.6 MB each: far more than the socket buffers hold, were they all produced.
        for _ in range(200_000):
            sent += deaf.send(frame)
    except TimeoutError:
        pass
    else:
        pytest.fail("the broker went on reading from a client that does not read")
    finally:
        assert api_versions(client).error_code == 0
        deaf.close()


def test_large_frames_in_pieces_from_many_connections_at_once(broker, client):
    """More than there are spare buffers, frames of several sizes behind each other, one client goes away."""
    create_topic(client, "large-pieces", partitions=12)
    address = ("127.0.0.1", int(broker.bootstrap_servers.rpartition(":")[2]))
    senders = [socket.create_connection(address, PATIENCE_S) for _ in range(12)]
    frames = []
    for number in range(12):
        values = [b"%d" % number * size for size in (300_000, 10, 70_000, 400_000)]
        requests = [produce_request("large-pieces", batch_of(value), number) for value in values]
        frames.append(
            b"".join(request_frame(codec(0, 7), 1, None, codec(0, 7).encode_request(r)) for r in requests)
        )
    for start in range(0, max(map(len, frames)), 130_000):
        for sender, frame in zip(senders, frames, strict=True):
            sender.sendall(frame[start : start + 130_000])
    for sender in senders:
        with sender.makefile("rb") as answers:
            for _ in range(4):
                size = int.from_bytes(answers.read(4), "big")
                assert answers.read(size)
    senders[0].sendall(frames[0][:200_000])  # and goes away
    eventually(lambda: len(broker.server.spares) < MOST_SPARES, "buffers are taken")
    for sender in senders:
        sender.close()
    eventually(lambda: len(broker.server.spares) == MOST_SPARES, "they are given back")
    for number in range(12):
        data = client.call(
            fetch_request("large-pieces", 0, partition=number, partition_max_bytes=1 << 26), version=11
        )
        assert values_in(data.responses[0].partitions[0]) == [
            b"%d" % number * size for size in (300_000, 10, 70_000, 400_000)
        ]


def sends_no_more(client: BlockingConnection) -> None:
    client._socket.shutdown(socket.SHUT_WR)


def test_a_client_that_resets_during_a_long_poll_leaves_nothing_behind(broker, client):
    create_topic(client, "gone")
    partition = broker.server.broker.store.topics["gone"].partitions[0]
    with BlockingConnection(broker.bootstrap_servers) as leaver:
        leaver.send(fetch_request("gone", 0, max_wait_ms=LONG_POLL_MS), version=11)
        assert api_versions(client).error_code == 0
        eventually(lambda: partition.has_waiters, "the fetch waits")
        leaver._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    eventually(lambda: not partition.has_waiters, "it waits no more")
    assert produce(client, "gone", batch_of(b"x")).error_code == 0


def test_a_client_that_closes_during_a_long_poll_is_gone_when_that_is_over(broker, client):
    """The client may have closed only its sending half, so the answer is sent, although it is not read."""
    create_topic(client, "closed")
    partition = broker.server.broker.store.topics["closed"].partitions[0]
    before = broker.server.connection_count
    with BlockingConnection(broker.bootstrap_servers) as leaver:
        leaver.send(fetch_request("closed", 0, max_wait_ms=LONG_POLL_MS), version=11)
        eventually(lambda: partition.has_waiters, "the fetch waits")
    assert produce(client, "closed", batch_of(b"x")).error_code == 0
    eventually(lambda: not partition.has_waiters, "it waits no more")
    eventually(lambda: broker.server.connection_count <= before, "the connection is gone")


def test_a_long_poll_is_answered_though_the_client_sends_no_more(broker, client):
    create_topic(client, "half-closed")
    partition = broker.server.broker.store.topics["half-closed"].partitions[0]
    with BlockingConnection(broker.bootstrap_servers, timeout_s=PATIENCE_S) as half:
        half.send(fetch_request("half-closed", 0, max_wait_ms=LONG_POLL_MS), version=11)
        eventually(lambda: partition.has_waiters, "the fetch waits")
        sends_no_more(half)
        assert api_versions(client).error_code == 0
        assert produce(client, "half-closed", batch_of(b"late")).error_code == 0
        assert values_in(half.receive().responses[0].partitions[0]) == [b"late"]
        assert is_closed(half)


@pytest.mark.parametrize("event_loop", ["uvloop", "asyncio"])
def test_what_waits_for_the_disk_is_answered_though_the_client_sends_no_more(tmp_path, event_loop):
    with (
        running(tmp_path, event_loop=event_loop) as durable,
        BlockingConnection(durable.bootstrap_servers) as client,
    ):
        create_topic(client, "half-closed")
        for number in range(20):
            with BlockingConnection(durable.bootstrap_servers, timeout_s=PATIENCE_S) as half:
                half.send(produce_request("half-closed", batch_of(b"x")), version=7)
                sends_no_more(half)
                assert half.receive().responses[0].partition_responses[0].base_offset == number
                assert is_closed(half)


@pytest.mark.parametrize("name", ["max.connections", "listener.name.plaintext.max.connections"])
def test_over_max_connections_the_next_one_waits_until_one_goes(name, caplog):
    with running(settings={name: 2}) as small, BlockingConnection(small.bootstrap_servers) as one:
        with BlockingConnection(small.bootstrap_servers) as two:
            assert api_versions(one).error_code == api_versions(two).error_code == 0
            three = BlockingConnection(small.bootstrap_servers, timeout_s=PATIENCE_S)
            three.send(ApiVersionsRequest(), version=0)
            assert api_versions(one).error_code == api_versions(two).error_code == 0
            assert small.server.connection_count == 2
            eventually(
                lambda: f"all 2 connections are taken, and new clients wait; raise {name}" in caplog.text,
                name,
            )
        with three:
            assert three.receive().error_code == 0


def test_connections_begin_at_a_rate_and_the_others_wait():
    with (
        running(settings={"max.connection.creation.rate": 1}) as slow,
        ExitStack() as stack,
    ):
        # Ten seconds' worth may come at once.
        burst = [stack.enter_context(BlockingConnection(slow.bootstrap_servers)) for _ in range(10)]
        assert all(api_versions(each).error_code == 0 for each in burst)
        next_one = stack.enter_context(BlockingConnection(slow.bootstrap_servers, timeout_s=PATIENCE_S))
        next_one.send(ApiVersionsRequest(), version=0)
        assert api_versions(burst[0]).error_code == 0
        assert slow.server.connection_count == 10
        assert next_one.receive().error_code == 0


def test_an_address_may_have_a_limit_of_its_own():
    with (
        running(
            settings={"max.connections.per.ip": 0, "max.connections.per.ip.overrides": "localhost:1"}
        ) as small,
        BlockingConnection(small.bootstrap_servers) as one,
    ):
        assert api_versions(one).error_code == 0
        with BlockingConnection(small.bootstrap_servers) as two:
            assert is_closed(two)


def test_max_connections_per_ip():
    with (
        running(settings={"max.connections.per.ip": 1}) as small,
        BlockingConnection(small.bootstrap_servers) as one,
    ):
        assert api_versions(one).error_code == 0
        with BlockingConnection(small.bootstrap_servers) as two:
            assert is_closed(two)


def test_an_idle_connection_is_closed():
    with (
        running(settings={"connections.max.idle.ms": 100}) as quick,
        BlockingConnection(quick.bootstrap_servers) as idle,
    ):
        assert is_closed(idle)


def test_a_waiting_fetch_is_not_idle():
    with running() as broker, BlockingConnection(broker.bootstrap_servers) as client:
        create_topic(client, "t")
        client.send(fetch_request("t", 0, max_wait_ms=LONG_POLL_MS), version=11)
        partition = broker.server.broker.store.topics["t"].partitions[0]
        eventually(lambda: partition.has_waiters, "the fetch waits")
        broker.call(long_silence(broker.server))
        with BlockingConnection(broker.bootstrap_servers) as other:
            produce(other, "t", batch_of(b"x"))
        assert values_in(client.receive().responses[0].partitions[0]) == [b"x"]
        broker.call(long_silence(broker.server))
        assert is_closed(client), "now it waits for nothing"


async def long_silence(server) -> None:
    """Makes connections look as if they had been silent for an hour."""
    for connection in server.admission.connections:
        connection.last_active -= 3600
    server._close_idle()


def test_stopping_answers_what_was_sent_before(tmp_path):
    """A produce that waits for the disk is answered before the broker goes."""
    broker = running(tmp_path)
    broker.start()
    with BlockingConnection(broker.bootstrap_servers) as client:
        create_topic(client, "last")
        for _ in range(20):
            client.send(produce_request("last", batch_of(b"x")), version=7)
        offsets = [client.receive().responses[0].partition_responses[0].base_offset]
        broker.stop()
        try:
            while True:
                offsets.append(client.receive().responses[0].partition_responses[0].base_offset)
        except (ConnectionError, IndexError):
            pass
    with running(tmp_path) as again, BlockingConnection(again.bootstrap_servers) as client:
        data = client.call(fetch_request("last", 0), version=11).responses[0].partitions[0]
        assert data.high_watermark >= len(offsets)
        assert offsets == list(range(len(offsets)))


async def test_a_broker_starts_inside_an_event_loop_too():
    async with running() as one, running() as two:
        assert one.bootstrap_servers != two.bootstrap_servers
        with BlockingConnection(one.bootstrap_servers) as client:
            assert client.call(FetchRequest(session_epoch=-1), version=11).error_code == 0


@pytest.mark.parametrize(("version", "flags"), [(9, 3), (10, 3), (12, 2), (13, 2)])
def test_librdkafka_asks_for_all_topics_with_three_bytes_too_many(client, version, flags):
    create_topic(client, f"all-topics-{version}")
    body = bytes(4) + b"\1" + bytes(flags - 1) + b"\0"
    client.send_bytes(request_frame(codec(3, version), 1, "rdkafka", [body]))
    client._expected.append((1, 3, version))
    assert f"all-topics-{version}" in {topic.name for topic in client.receive().topics}
