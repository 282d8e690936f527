"""Connections: broker gone, slow, half-closed, garbage, older versions, wrong address, names with several addresses.

Every request gets one answer or failure that says what happened, and by its timeout at the latest.
"""

from __future__ import annotations

import itertools
import logging
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from kohort.client.core.effects import ANY_NODE, FailureKind, Lane, Send
from kohort.client.io.network import parse_address
from kohort.client.io.reactor import FoundAddresses, SelectorReactor
from kohort.settings import SettingError
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.api_versions import ApiVersionsResponse
from kohort.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from kohort.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.client.driving import HEARTBEAT, PATIENCE_MS, driven
from tests.client.scripted import (
    API_VERSIONS,
    CLOSE,
    HALF_CLOSE,
    METADATA,
    RESET,
    SILENCE,
    Held,
    Part,
    Raw,
    Received,
    Reply,
    ScriptedBroker,
    ScriptedCluster,
    WrongId,
    all_versions,
)

FETCH, PRODUCE = FetchRequest.API_KEY, ProduceRequest.API_KEY
OK = HeartbeatResponse()


@contextmanager
def same_port(*hosts: str) -> Iterator[tuple[int, list[socket.socket]]]:
    """A port that is ours at all these addresses: bound, and open at none."""
    for _ in range(50):
        with ExitStack() as bound:
            port, sockets = 0, []
            try:
                for host in hosts:
                    sock = bound.enter_context(socket.socket())
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    sock.bind((host, port))
                    port = sock.getsockname()[1]
                    sockets.append(sock)
            except OSError:
                continue  # somebody has it at one of them
            yield port, sockets
            return
    raise AssertionError(f"no port is free at all of {hosts}")


def cluster_with_heartbeats(nodes: int = 1, **more: Any) -> ScriptedCluster:
    cluster = ScriptedCluster(nodes, **more)
    cluster.on(HEARTBEAT, OK)
    return cluster


# --- requests and answers ------------------------------------------------------------------------


def test_a_request_gets_its_answer_in_the_newest_version_of_both() -> None:
    with cluster_with_heartbeats() as cluster, driven(cluster.bootstrap_servers, client_id="me") as client:
        answer = client.call()
        assert answer.failure is None
        assert answer.response == OK
        assert answer.version == 4
        received = cluster[1].requests_of(HEARTBEAT)[0]
        assert (received.client_id, received.message.group_id) == ("me", "g")
        hello = cluster[1].requests[0]
        assert (hello.api_key, hello.version, hello.message.client_software_name) == (
            API_VERSIONS,
            4,
            "kohort",
        )


def test_several_requests_are_under_way_at_once_and_answered_in_order() -> None:
    with cluster_with_heartbeats() as cluster, driven(cluster.bootstrap_servers) as client:
        held = Held(OK)
        cluster[1].script(HEARTBEAT, held)
        sends = [client.asker.ask(HeartbeatRequest("g", i)) for i in range(50)]
        client.eventually(lambda: len(cluster[1].requests_of(HEARTBEAT)) == 1)
        assert client.asker.answers == []
        held.release()
        assert client.run(lambda: len(client.asker.answers) == 50)
        assert [answer.send for answer in client.asker.answers] == sends
        assert [r.message.generation_id for r in cluster[1].requests_of(HEARTBEAT)] == list(range(50))
        assert cluster[1].connection_count == 1


def test_the_group_lane_does_not_queue_behind_a_long_poll() -> None:
    with cluster_with_heartbeats() as cluster, driven(cluster.bootstrap_servers) as client:
        held = Held(FetchResponse())
        cluster[1].on(FETCH, held)
        client.know_nodes()
        client.asker.ask(FetchRequest(max_wait_ms=500), 1)
        client.eventually(lambda: cluster[1].requests_of(FETCH))
        answer = client.call(node_id=1, lane=Lane.GROUP)
        assert answer.response == OK
        held.release()
        assert client.run(lambda: len(client.asker.answers) == 2)
        assert cluster[1].connection_count == 2


def test_bootstrap_and_node_of_the_same_address_share_a_connection() -> None:
    with cluster_with_heartbeats() as cluster, driven(cluster.bootstrap_servers) as client:
        client.know_nodes()
        assert client.call(node_id=1).response == OK
        assert cluster[1].connection_count == 1
        assert client.engine.network.is_ready(1)
        assert not client.engine.network.is_ready(1, Lane.GROUP)
        assert client.engine.network.versions_of(1)[HEARTBEAT] == (0, 4)


@pytest.mark.parametrize("size", [10, 16 << 10, (16 << 10) + 1, 3 << 20, 70 << 20])
def test_an_answer_of_any_size_arrives_whole(size: int) -> None:
    data = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    reply = FetchResponse(responses=[FetchableTopicResponse("t", partitions=[PartitionData(records=data)])])
    with cluster_with_heartbeats() as cluster, driven(cluster.bootstrap_servers) as client:
        cluster[1].on(FETCH, reply)
        client.asker.ask(FetchRequest(), max_version=12)
        answer = client.call()  # and the one behind it is found
        assert answer.response == OK
        records = client.asker.answers[0].response.responses[0].partitions[0].records
        assert records == data


def test_a_request_larger_than_the_socket_takes_at_once_is_sent_whole() -> None:
    blob = bytes(range(256)) * (2 << 10)
    with (
        cluster_with_heartbeats() as cluster,
        driven(cluster.bootstrap_servers, send_buffer_bytes=8192) as client,
    ):
        client.asker.ask(HeartbeatRequest("small", 1))
        client.asker.ask(ProduceRequest(acks=0, topic_data=[_produced(blob)]), max_version=8, answered=False)
        cluster[1].on(PRODUCE, SILENCE)
        answer = client.call(HeartbeatRequest("after", 2))
        assert answer.response == OK
        assert [a.failure for a in client.asker.answers] == [None] * 3
        produced = cluster[1].requests_of(PRODUCE)[0].message
        assert bytes(produced.topic_data[0].partition_data[0].records) == blob


def _produced(records: bytes) -> TopicProduceData:
    return TopicProduceData(name="t", partition_data=[PartitionProduceData(0, records)])


def test_a_request_without_an_answer_is_done_when_its_bytes_are_handed_over() -> None:
    with cluster_with_heartbeats() as cluster, driven(cluster.bootstrap_servers) as client:
        cluster[1].on(PRODUCE, SILENCE)
        answer = client.call(ProduceRequest(acks=0), answered=False)
        assert (answer.failure, answer.response) == (None, None)
        assert client.call().response == OK


# --- versions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("newest", [0, 1, 2, 3])
def test_a_broker_that_knows_only_an_older_api_versions(newest: int) -> None:
    versions = all_versions(api_versions=newest, heartbeat=2)
    with cluster_with_heartbeats(versions=versions) as cluster, driven(cluster.bootstrap_servers) as client:
        answer = client.call()
        assert (answer.version, answer.response) == (2, OK)
        assert [r.version for r in cluster[1].requests_of(API_VERSIONS)] == [4, newest]


def test_a_broker_that_refuses_api_versions_without_saying_what_it_has() -> None:
    with cluster_with_heartbeats() as cluster, driven(cluster.bootstrap_servers) as client:
        cluster[1].script(API_VERSIONS, ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION))
        assert client.call().response == OK
        assert [r.version for r in cluster[1].requests_of(API_VERSIONS)] == [4, 0]


@pytest.mark.parametrize("served", [None, (90, 99)])
def test_an_api_that_the_broker_does_not_serve_in_our_versions(served: tuple[int, int] | None) -> None:
    versions = all_versions()
    del versions[HEARTBEAT]
    if served is not None:
        versions[HEARTBEAT] = served
    with ScriptedCluster(versions=versions) as cluster, driven(cluster.bootstrap_servers) as client:
        failure = client.call().failure
        assert failure is not None
        assert failure.kind is FailureKind.UNSUPPORTED_VERSION
        assert "serves no version of Heartbeat" in failure.message


def test_a_sender_that_cannot_use_the_version_says_so() -> None:
    def refuse(version: int) -> HeartbeatRequest:
        raise ValueError(f"version {version} has no room for it")

    with cluster_with_heartbeats() as cluster, driven(cluster.bootstrap_servers) as client:
        on_answer = client.asker.answer
        client.asker.out.append(
            Send(ANY_NODE, HEARTBEAT, refuse, "asker.ask", 1000, max_version=3, on_answer=on_answer)
        )
        assert client.run(lambda: bool(client.asker.answers))
        failure = client.asker.last.failure
        assert failure is not None
        assert (failure.kind, failure.message) == (
            FailureKind.UNSUPPORTED_VERSION,
            "version 3 has no room for it",
        )


# --- brokers that fail ---------------------------------------------------------------------------


def http(request: Received) -> Reply:
    return Raw(b"HTTP/1.1 400 Bad Request\r\n\r\n")


@pytest.mark.parametrize(
    ("reply", "kind", "words"),
    [
        (CLOSE, FailureKind.DISCONNECTED, "closed the connection"),
        (RESET, FailureKind.DISCONNECTED, "Connection reset"),
        (HALF_CLOSE, FailureKind.DISCONNECTED, "closed the connection"),
        (Part(OK, 6), FailureKind.DISCONNECTED, "closed the connection"),
        (WrongId(OK), FailureKind.BAD_ANSWER, "was expected"),
        (Raw(b"\0\0\0\x05\0\0\0\x04\0"), FailureKind.BAD_ANSWER, "protocol"),
        (Raw(b"\xff\xff\xff\xff garbage"), FailureKind.BAD_ANSWER, "-1 bytes"),
        (Raw(b"\0\0\0\0"), FailureKind.BAD_ANSWER, "0 bytes"),
    ],
)
def test_a_failure_ends_the_request_at_once_and_the_next_one_connects_again(
    reply: Reply, kind: FailureKind, words: str
) -> None:
    with cluster_with_heartbeats() as cluster, driven(cluster.bootstrap_servers) as client:
        client.know_nodes()
        cluster[1].script(HEARTBEAT, reply)
        failure = client.call(node_id=1).failure
        assert failure is not None
        assert failure.kind is kind
        assert words in failure.message
        assert cluster[1].address in failure.message
        assert client.call(node_id=1).response == OK
        assert cluster[1].connection_count == 2


def test_when_a_connection_ends_all_its_requests_fail_once() -> None:
    with cluster_with_heartbeats() as cluster, driven(cluster.bootstrap_servers) as client:
        client.know_nodes()
        held = Held(CLOSE)
        cluster[1].script(HEARTBEAT, held)
        for _ in range(10):
            client.asker.ask(node_id=1)
        client.eventually(lambda: cluster[1].requests_of(HEARTBEAT))
        held.release()
        assert client.run(lambda: len(client.asker.answers) == 10)
        assert None not in [answer.failure for answer in client.asker.answers]


def test_an_answer_to_nothing_closes_the_connection() -> None:
    with cluster_with_heartbeats() as cluster, driven(cluster.bootstrap_servers) as client:
        client.know_nodes()
        cluster[1].script(HEARTBEAT, Raw(b"\0\0\0\6\0\0\0\x63\0\0" * 2))
        assert client.call(node_id=1).failure is not None
        assert client.call(node_id=1).response == OK


def test_a_slow_broker_fails_the_late_request_and_those_behind_it() -> None:
    with cluster_with_heartbeats() as cluster, driven(cluster.bootstrap_servers) as client:
        client.know_nodes()
        cluster[1].script(HEARTBEAT, SILENCE, SILENCE)
        client.asker.ask(node_id=1, timeout_ms=50)
        client.asker.ask(node_id=1, timeout_ms=30_000)
        assert client.run(lambda: len(client.asker.answers) == 2)
        kinds = {answer.send.timeout_ms: answer.failure for answer in client.asker.answers}
        late, behind = kinds[50], kinds[30_000]
        assert late is not None
        assert behind is not None
        assert (late.kind, behind.kind) == (FailureKind.TIMED_OUT, FailureKind.DISCONNECTED)
        assert "no answer for 50 ms" in late.message
        # The broker may be slower than that: the silence must have been for these two.
        client.eventually(lambda: len(cluster[1].requests_of(HEARTBEAT)) == 2)
        assert client.call(node_id=1).response == OK


def test_an_answer_that_arrived_while_user_code_was_at_work_is_not_too_late() -> None:
    with cluster_with_heartbeats() as cluster, driven(cluster.bootstrap_servers) as client:
        client.know_nodes()
        client.asker.ask(node_id=1, timeout_ms=60_000)
        client.engine.pump()
        assert client.engine.reactor.wait(PATIENCE_MS), "nothing arrived"
        # Nobody drove for longer than the timeout: the judge must look at the socket first.
        client.engine.pump(client.engine.now_ms() + 120_000)
        assert [answer.response for answer in client.asker.answers] == [OK]


def test_a_broker_that_accepts_and_says_nothing_is_given_up() -> None:
    with ScriptedCluster() as cluster:
        cluster[1].on(API_VERSIONS, SILENCE)
        with driven(cluster.bootstrap_servers, request_timeout_ms=50) as client:
            client.failure("still negotiating after 50 ms", timeout_ms=200)
            while cluster[1].connection_count < 2:  # once, if we stood still for all of that time
                client.failure("still negotiating after 50 ms", timeout_ms=200)


def test_a_server_that_does_not_speak_kafka_is_named_as_such() -> None:
    with ScriptedCluster() as cluster:
        cluster[1].on(API_VERSIONS, http)
        with driven(cluster.bootstrap_servers) as client:
            failure = client.failure("not an answer of Kafka's protocol", timeout_ms=100)
            assert "HTTP/1.1" in failure.message


def test_a_broker_that_is_gone_and_comes_back_is_used_again() -> None:
    with cluster_with_heartbeats() as cluster, driven(cluster.bootstrap_servers) as client:
        client.know_nodes()
        cluster[1].stop()
        failure = client.call(node_id=1).failure
        assert failure is not None
        assert failure.kind is FailureKind.DISCONNECTED
        cluster[1].start()
        for _ in range(100):
            if client.call(node_id=1).failure is None:
                return
        raise AssertionError(client.asker.last)


def test_an_idle_connection_that_the_broker_closed_costs_nothing() -> None:
    with cluster_with_heartbeats() as cluster, driven(cluster.bootstrap_servers) as client:
        client.know_nodes()
        cluster[1].drop_connections()
        client.run(lambda: not client.engine.network.is_ready(1))
        assert client.call(node_id=1).response == OK
        assert client.engine.network.last_error == ""


def test_a_node_that_fails_makes_the_metadata_be_asked_for_again() -> None:
    with cluster_with_heartbeats(2) as cluster, driven(cluster[1].address) as client:
        client.know_nodes()
        asked = len(cluster[1].requests_of(METADATA))
        cluster[2].script(HEARTBEAT, CLOSE)
        client.call(node_id=2)
        client.eventually(lambda: len(cluster[1].requests_of(METADATA)) > asked)


def test_a_node_that_is_not_known_is_a_failure_at_once() -> None:
    with cluster_with_heartbeats() as cluster, driven(cluster.bootstrap_servers) as client:
        failure = client.call(node_id=99).failure
        assert failure is not None
        assert "node 99 is not known" in failure.message


def test_reconnecting_backs_off(monkeypatch: pytest.MonkeyPatch, unused_port: int) -> None:
    address = ("127.0.0.1", unused_port)
    settings = {"reconnect_backoff_ms": 40, "reconnect_backoff_max_ms": 80}
    with driven(f"127.0.0.1:{unused_port}", **settings) as client:
        attempts: list[int] = []
        connect = socket.socket.connect_ex

        def count(sock: socket.socket, to: Any) -> int:
            if to == address:
                attempts.append(client.engine.now_ms())
            return connect(sock, to)

        monkeypatch.setattr(socket.socket, "connect_ex", count)
        client.asker.ask()
        client.eventually(lambda: len(attempts) >= 6)
        gaps = [after - before for before, after in itertools.pairwise(attempts)]
        assert gaps[0] >= 32
        assert all(gap >= 64 for gap in gaps[1:])


# --- which node ----------------------------------------------------------------------------------


def test_any_node_goes_on_to_one_that_answers(unused_port: int) -> None:
    with cluster_with_heartbeats() as cluster:
        dead = f"127.0.0.1:{unused_port}"
        with driven(f"{dead},{cluster.bootstrap_servers},{dead}") as client:
            for _ in range(5):
                assert client.call().response == OK


def test_any_node_prefers_the_least_loaded() -> None:
    with cluster_with_heartbeats(2) as cluster, driven(cluster[1].address) as client:
        client.know_nodes()
        held = Held(OK)
        cluster[1].script(HEARTBEAT, held)
        client.call(node_id=2)
        client.asker.ask(node_id=1)
        for _ in range(3):
            client.call()
        assert len(cluster[2].requests_of(HEARTBEAT)) == 4
        held.release()


def test_when_every_known_node_is_gone_the_bootstrap_servers_are_asked_again() -> None:
    with (
        cluster_with_heartbeats(1) as old,
        cluster_with_heartbeats(1) as new,
        ScriptedBroker(metadata=old.metadata) as door,
        driven(door.address, retry_backoff_ms=0) as client,
    ):
        client.know_nodes()
        assert client.call(node_id=1).response == OK
        old[1].stop()
        door.on(METADATA, new.metadata)
        client.call(node_id=1)
        assert client.run(lambda: client.engine.metadata.cluster.nodes[1].port == new[1].port)
        assert client.call(node_id=1).response == OK


def test_a_throttled_node_is_left_alone_for_as_long_as_it_said() -> None:
    with cluster_with_heartbeats(1) as cluster, driven(cluster.bootstrap_servers) as client:
        client.know_nodes()
        throttled = [HeartbeatResponse(throttle_time_ms=120), HeartbeatResponse(throttle_time_ms=600_000)]
        cluster[1].script(HEARTBEAT, *throttled)
        client.call(node_id=1)
        client.call(node_id=1)
        first, second = cluster[1].requests_of(HEARTBEAT)
        assert second.at - first.at >= 0.119
        assert not client.engine.network.is_ready(1)


def test_an_unused_connection_is_closed() -> None:
    with (
        cluster_with_heartbeats(1) as cluster,
        driven(cluster.bootstrap_servers, connections_max_idle_ms=30) as client,
    ):
        client.know_nodes()
        assert client.run(lambda: not client.engine.network.is_ready(1))
        assert client.call(node_id=1).response == OK
        assert cluster[1].connection_count == 2


# --- addresses -----------------------------------------------------------------------------------


def names(table: dict[str, list[str]]) -> SelectorReactor:
    """A reactor whose names are these."""

    def look_up(host: str, port: int) -> FoundAddresses:
        if host not in table:
            return [], OSError(-2, "Name or service not known")
        return [(socket.AF_INET, (address, port)) for address in table[host]], None

    return SelectorReactor(look_up)


def test_all_addresses_of_a_name_are_tried_in_turn() -> None:
    hosts = ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
    with same_port(*hosts) as (port, _), ScriptedBroker(host="127.0.0.3", port=port) as broker:
        broker.on(HEARTBEAT, OK)
        with driven(f"kafka.test:{port}", reactor=names({"kafka.test": hosts})) as client:
            assert client.call().response == OK
            assert client.engine.network.last_error == ""


def test_an_address_that_does_not_react_is_left_for_the_next_one() -> None:
    hosts = ["127.0.0.2", "127.0.0.3"]
    with (
        same_port(*hosts) as (port, (full, _)),
        ScriptedBroker(host="127.0.0.3", port=port) as broker,
        ExitStack() as crowd,
    ):
        full.listen(0)
        for _ in range(4):  # nobody accepts, so the fifth that knocks hears nothing
            knocks = crowd.enter_context(socket.socket())
            knocks.setblocking(False)
            knocks.connect_ex(("127.0.0.2", port))
        broker.on(HEARTBEAT, OK)
        settings = {"socket_connection_setup_timeout_ms": 50, "reactor": names({"kafka.test": hosts})}
        with driven(f"kafka.test:{port}", **settings) as client:
            assert client.call().response == OK


def test_a_name_that_nobody_knows() -> None:
    with driven("nowhere.test:9092", reactor=names({})) as client:
        failure = client.failure("Name or service not known", timeout_ms=150)
        assert "nowhere.test:9092" in failure.message


def test_a_wrong_address_is_tried_until_the_time_is_up_and_then_named(
    caplog: pytest.LogCaptureFixture,
    unused_port: int,
) -> None:
    address = f"127.0.0.1:{unused_port}"
    began = time.monotonic()
    with caplog.at_level(logging.INFO), driven(address) as client:
        failure = client.failure("Connection refused", timeout_ms=150)
        assert address in failure.message
        assert client.engine.network.last_error == f"{address}: Connection refused"
    logged = [r for r in caplog.records if r.name == "kohort.client.network" and address in r.getMessage()]
    assert 1 <= len(logged) <= 1 + (time.monotonic() - began) / 5  # not one per attempt


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9092", ("127.0.0.1", 9092)),
        ("[::1]:9092", ("::1", 9092)),
        (" broker.test:1 ", ("broker.test", 1)),
        ("PLAINTEXT://broker.test:9092", ("broker.test", 9092)),
    ],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["broker", "broker:", ":9092", "broker:kafka", "broker:0", "broker:65536"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(SettingError, match="is not host:port"):
        parse_address(text)


# --- the end -------------------------------------------------------------------------------------


def test_closing_in_the_middle_of_anything_fails_what_is_under_way_and_frees_everything() -> None:
    with cluster_with_heartbeats(2) as cluster:
        cluster[1].on(HEARTBEAT, SILENCE)
        cluster[2].on(API_VERSIONS, SILENCE)
        with driven(cluster[1].address) as client:
            client.know_nodes()
            for node_id in (1, 2):
                client.asker.ask(node_id=node_id)
            client.eventually(lambda: cluster[1].requests_of(HEARTBEAT) and cluster[2].requests)
            network = client.engine.network
            network.close()
            client.engine.pump()
            failures = [answer.failure for answer in client.asker.answers]
            assert [f is not None and "the client is closed" in f.message for f in failures] == [True, True]
            assert client.call(node_id=1).failure is not None  # and nothing connects again
