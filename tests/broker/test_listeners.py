"""Where a broker listens and what its clients are told."""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort.broker import running
from kohort.broker.listeners import Address, as_settings, bind_address, parse
from kohort.client.io.blocking_connection import BlockingConnection
from kohort.settings import SettingError
from kohort.testing import Kafka
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.describe_cluster import DescribeClusterRequest
from kohort.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from kohort.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.peer import batch_of, create_topic, fetch, produce, values_in

TWO = {
    "listeners": "PLAINTEXT://127.0.0.1:0,OTHER://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT",
}


def refusal(settings: dict[str, str], **more: str) -> str:
    with pytest.raises(SettingError) as error:
        parse(settings, **more)
    return str(error.value)


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def told_by(address: str) -> set[str]:
    """Where the node is, in all the answers that say so."""
    with BlockingConnection(address) as client:
        nodes = [
            *client.call(MetadataRequest(None), version=12).brokers,
            *client.call(DescribeClusterRequest()).brokers,
            *client.call(FindCoordinatorRequest(coordinator_keys=["g"]), version=4).coordinators,
            client.call(FindCoordinatorRequest("g"), version=3),
        ]
    return {str(Address(node.host, node.port)) for node in nodes}


# --- what the settings say


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:9092", "127.0.0.1", 9092),
        ("[::1]:9092", "::1", 9092),
        ("::1:9092", "::1", 9092),
        ("broker.example:1", "broker.example", 1),
        (":9092", "", 9092),
    ],
)
def test_addresses(text: str, host: str, port: int) -> None:
    assert Address.parse(text, "listeners") == Address(host, port)


def test_an_address_is_printed_with_brackets_where_it_needs_them() -> None:
    assert [str(Address(host, 1)) for host in ("::1", "127.0.0.1", "h")] == ["[::1]:1", "127.0.0.1:1", "h:1"]


def test_without_settings_it_is_loopback() -> None:
    ((only,), warnings) = parse({})
    assert (only.name, only.where, only.told) == ("PLAINTEXT", only.where, Address("127.0.0.1", 9092))
    assert only.where == only.told
    assert warnings == []


def test_no_host_is_all_interfaces_and_the_name_of_this_machine_as_in_kafka() -> None:
    ((only,), _) = parse({"listeners": "PLAINTEXT://:9092"})
    assert only.told == Address(socket.getfqdn(), 9092)
    assert bind_address(only.where)[1] in (("::", 9092), ("0.0.0.0", 9092))


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "[0:0:0:0:0:0:0:0]", "0"])
def test_all_interfaces_are_never_advertised(host: str) -> None:
    words = refusal({"listeners": f"PLAINTEXT://{host}:9092"})
    assert "advertised.listeners=PLAINTEXT://HOST:9092" in words
    assert "--advertise" in refusal({}, listen=f"{host}:9092")
    both = {"listeners": f"PLAINTEXT://{host}:9092", "advertised.listeners": f"PLAINTEXT://{host}:9092"}
    assert "cannot be advertised" in refusal(both)
    ((only,), _) = parse({**both, "advertised.listeners": "PLAINTEXT://broker.example:9092"})
    assert str(only.told) == "broker.example:9092"


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_the_protocol_of_a_listener_is_its_name_or_in_the_map(protocol: str) -> None:
    ((only,), _) = parse({"listeners": f"{protocol}://127.0.0.1:9093"})
    assert only.protocol == protocol
    named = {
        "listeners": "PLAINTEXT://127.0.0.1:9092,LAN://127.0.0.1:9093",
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,LAN:{protocol}",
    }
    (first, second), _ = parse(named)
    assert (first.protocol, second.protocol) == ("PLAINTEXT", protocol)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"listeners": "LAN://127.0.0.1:1"}, "No security protocol defined for listener LAN"),
        ({"listeners": "PLAINTEXT://127.0.0.1:1,PLAINTEXT://127.0.0.1:2"}, "a different name"),
        ({"listeners": ""}, "listeners is empty"),
        ({"listeners": "PLAINTEXT://127.0.0.1"}, "is not HOST:PORT"),
        ({"advertised.listeners": "LAN://h:1"}, "advertised.listeners names LAN"),
        ({"listener.security.protocol.map": "LAN"}, "is not NAME:PROTOCOL"),
        ({"listener.security.protocol.map": "LAN:TLS"}, "is not NAME:PROTOCOL"),
        ({"listeners": "C://h:1", "controller.listener.names": "C"}, "none that clients could use"),
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, str], words: str) -> None:
    assert words in refusal(settings)


def test_the_listener_of_controllers_is_left_out_with_a_warning() -> None:
    found, warnings = parse(
        {
            "listeners": "CONTROLLER://:9093,PLAINTEXT://127.0.0.1:9092",
            "advertised.listeners": "PLAINTEXT://h:9092,CONTROLLER://h:9093",
            "controller.listener.names": "CONTROLLER",
        }
    )
    assert [str(each.told) for each in found] == ["h:9092"]
    assert warnings == ["listener CONTROLLER is left out: one node needs no controllers"]


def test_the_command_line_beats_the_settings() -> None:
    found, _ = parse(TWO, listen="127.0.0.1:7", advertise="h:8")
    assert [(str(each.where), str(each.told)) for each in found] == [("127.0.0.1:7", "h:8")]


def test_the_example_in_the_docs() -> None:
    docs = (Path(__file__).parents[2] / "docs" / "serve.md").read_text("utf-8")
    (block,) = re.findall(r"^```properties\n(.*?)^```", docs, re.DOTALL | re.MULTILINE)
    found, warnings = parse(dict(line.split("=", 1) for line in block.splitlines()))
    assert [(each.name, str(each.where), str(each.told)) for each in found] == [
        ("PLAINTEXT", "127.0.0.1:9092", "127.0.0.1:9092"),
        ("LAN", ":9093", "broker.example:9093"),
    ]
    assert warnings == []


# --- over the wire


def test_several_listeners_tell_their_own_address_to_those_who_came_by_them() -> None:
    with running(settings=TWO) as broker:
        one, two = broker.server.listeners
        assert one.told.port != two.told.port
        assert broker.bootstrap_servers == str(one.told)
        for listener in (one, two):
            assert told_by(str(listener.told)) == {str(listener.told)}
        with BlockingConnection(str(one.told)) as client:
            create_topic(client, "t")
            produce(client, "t", batch_of(b"x"))
        with BlockingConnection(str(two.told)) as client:
            assert values_in(fetch(client, "t")) == [b"x"], "it is one broker"


def test_each_has_what_is_advertised_for_it() -> None:
    advertised = "OTHER://out.example:2,PLAINTEXT://in.example:0"
    with running(settings={**TWO, "advertised.listeners": advertised}) as broker:
        one, two = broker.server.listeners
        assert told_by(str(one.where)) == {f"in.example:{one.where.port}"}, "port 0: the one it listens on"
        assert told_by(str(two.where)) == {"out.example:2"}


def test_all_listeners_come_back_after_a_restart() -> None:
    with Kafka(settings=TWO) as kafka:
        assert kafka._running is not None
        before = kafka._running.server.listeners
        kafka.restart()
        assert kafka._running.server.listeners == before
        for listener in before:
            assert told_by(str(listener.told)) == {str(listener.told)}


@contextlib.contextmanager
def reserved_port() -> Iterator[int]:
    """A port that the system gives to no other socket meanwhile, but that can be bound on request."""
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        yield reserved.getsockname()[1]


def test_one_busy_port_of_several_frees_the_others() -> None:
    with socket.socket() as taken, reserved_port() as free:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        busy = taken.getsockname()[1]
        text = f"PLAINTEXT://127.0.0.1:{free},OTHER://127.0.0.1:{busy}"
        with pytest.raises(SettingError, match=f"{busy} is in use"):
            running(settings={**TWO, "listeners": text}).start()
        with running(listen=f"127.0.0.1:{free}"):
            pass


def test_ipv6() -> None:
    if not has_ipv6():
        with pytest.raises(SettingError, match=r"cannot listen on \[::1\]:0"):
            running(listen="[::1]:0").start()
        return
    with running(listen="PLAINTEXT://[::1]:0") as broker:
        assert broker.bootstrap_servers.startswith("[::1]:")
        assert told_by(broker.bootstrap_servers) == {broker.bootstrap_servers}
        assert broker.server.broker.host == "::1", "on the wire without brackets"
        with BlockingConnection(broker.bootstrap_servers) as client:
            client.call(MetadataRequest(None), version=12)
            peers = {connection.peer.rpartition(":")[0] for connection in broker.server.admission.connections}
        assert peers == {"[::1]"}


def test_a_name_that_is_none() -> None:
    for host in ("no.such.host.invalid", "a" * 70):
        with pytest.raises(SettingError, match=f"cannot listen on {host}:1"):
            running(listen=f"{host}:1").start()


# --- the testing kit


@pytest.mark.parametrize("listeners", ["PLAINTEXT://127.0.0.1:0", ["PLAINTEXT://localhost:0"]])
def test_listeners_of_the_kits_broker_are_honoured(listeners: object) -> None:
    with Kafka(listeners=listeners) as kafka:
        host = "localhost" if isinstance(listeners, list) else "127.0.0.1"
        assert kafka.bootstrap_servers.startswith(f"{host}:")
        assert told_by(kafka.bootstrap_servers) == {kafka.bootstrap_servers}
        kafka.produce("t", ["x"])
        kafka.restart()
        assert [record.value for record in kafka.consume_all("t")] == [b"x"]


def test_a_port_of_the_kits_broker_is_taken_as_it_is_told() -> None:
    with reserved_port() as port, Kafka(listeners=f"PLAINTEXT://127.0.0.1:{port}") as kafka:
        assert kafka.bootstrap_servers == f"127.0.0.1:{port}"
        with pytest.raises(SettingError, match="in use"):
            Kafka(listeners=f"PLAINTEXT://127.0.0.1:{port}").start()


# --- a listener that is not advertised


HIDDEN = TWO | {"advertised.listeners": "PLAINTEXT://127.0.0.1:0"}


def test_a_listener_that_is_left_out_is_told_in_a_warning_and_not_in_the_setting():
    found, warnings = parse(HIDDEN)
    assert [each.is_advertised for each in found] == [True, False]
    assert "OTHER is not in advertised.listeners" in warnings[0]
    assert as_settings(found)["advertised.listeners"] == "PLAINTEXT://127.0.0.1:0"
    assert found[1].at(7).advertised is None


def test_a_listener_on_all_interfaces_may_be_left_out():
    found, _ = parse(HIDDEN | {"listeners": "PLAINTEXT://127.0.0.1:0,OTHER://0.0.0.0:0"})
    assert not found[1].is_advertised


@pytest.mark.parametrize(
    ("version", "error"),
    [
        (0, "LEADER_NOT_AVAILABLE"),
        (5, "LEADER_NOT_AVAILABLE"),
        (6, "LISTENER_NOT_FOUND"),
        (13, "LISTENER_NOT_FOUND"),
    ],
)
def test_clients_of_a_listener_that_is_left_out_are_told_of_no_leader(hidden: str, version: int, error: str):
    with BlockingConnection(hidden) as client:
        answer = client.call(MetadataRequest([MetadataRequestTopic(name="t")]), version=version)
    assert answer.brokers == []
    (partition,) = answer.topics[0].partitions
    assert (ErrorCode(partition.error_code).name, partition.leader_id) == (error, -1)
    assert answer.topics[0].error_code == 0
    assert partition.replica_nodes == ([] if version == 0 else [1])
    if version >= 5:
        assert partition.offline_replicas == [1]


def test_clients_of_a_listener_that_is_left_out_find_nobody(hidden: str):
    with BlockingConnection(hidden) as client:
        assert client.call(DescribeClusterRequest()).brokers == []
        for kind in (0, 1):
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=["g"])
            (found,) = client.call(request, version=4).coordinators
            assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert (found.node_id, found.host, found.port) == (-1, "", -1)
        assert client.call(FindCoordinatorRequest("g"), version=3).error_code == found.error_code
        topics = client.call(DescribeTopicPartitionsRequest([TopicRequest("t")])).topics
        assert (topics[0].partitions[0].leader_id, topics[0].partitions[0].offline_replicas) == (-1, [1])
        assert produce(client, "t", batch_of(b"who knows the address may write")).error_code == 0


@pytest.fixture(scope="module")
def hidden() -> Iterator[str]:
    """The address of a listener that is not advertised, of a broker with a topic."""
    with running(None, settings=HIDDEN) as broker:
        with BlockingConnection(broker.bootstrap_servers) as client:
            create_topic(client, "t")
        assert told_by(broker.bootstrap_servers) == {broker.bootstrap_servers}
        yield str(broker.server.listeners[1].where)
