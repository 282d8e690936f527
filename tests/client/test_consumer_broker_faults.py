"""A consumer whose broker is gone, slow, half-closed, talks nonsense or an older dialect: it recovers, or says what is
wrong, and never waits longer than its caller."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from kohort import AsyncConsumer, Consumer, CorruptRecord, KafkaError, KohortError, TimedOut, TopicPartition
from kohort.testing import Kafka
from kohort.wire.messages.fetch import FetchRequest
from kohort.wire.messages.list_offsets import ListOffsetsRequest
from tests.client.brokers import Log, log_cluster
from tests.client.consuming import PATIENCE_S, QUICK, Told, poll_until, quick, read, times_out, within
from tests.client.scripted import (
    API_VERSIONS,
    CLOSE,
    HALF_CLOSE,
    METADATA,
    RESET,
    SILENCE,
    Raw,
    Reply,
    ScriptedCluster,
    all_versions,
)

FETCH, LIST_OFFSETS = FetchRequest.API_KEY, ListOffsetsRequest.API_KEY
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Connections are taken, and nothing is ever said."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


# --- gone ------------------------------------------------------------------------------------------------


def test_a_wrong_address_ends_each_call_in_its_time_and_is_named(unused_port: int) -> None:
    with quick(f"127.0.0.1:{unused_port}", "g") as consumer:
        consumer.subscribe(["t"])
        with within(0.3):
            assert consumer.poll(0.3) == {}
        times_out(lambda timeout: consumer.end_offsets(T0, timeout=timeout), f"127.0.0.1:{unused_port}")
        times_out(lambda timeout: consumer.committed(T0, timeout=timeout), f"127.0.0.1:{unused_port}")
        times_out(lambda timeout: consumer.partitions_for("t", timeout=timeout), f"127.0.0.1:{unused_port}")
        times_out(lambda timeout: consumer.list_topics(timeout=timeout), f"127.0.0.1:{unused_port}")
        with within(0.5):
            consumer.close(timeout=0.5)


def test_a_name_that_nobody_knows_is_named() -> None:
    with quick("no-such-host.invalid:9092") as consumer:
        times_out(lambda timeout: consumer.list_topics(timeout=timeout), "no-such-host", 2)


def test_all_addresses_of_a_name_are_tried(
    monkeypatch: pytest.MonkeyPatch, kafka: Kafka, unused_port: int
) -> None:
    """The first address of the name is a dead one."""
    kafka.produce("t", ["a"])
    port = int(kafka.bootstrap_servers.rpartition(":")[2])
    dead = ("127.0.0.2", port)  # loopback too, but nobody listens there
    real = socket.getaddrinfo

    def addresses(host: str, *args: object, **more: object) -> object:
        if host != "brokers.test":
            return real(host, *args, **more)  # type: ignore[arg-type]
        kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
        return [(*kind, dead), (*kind, ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", addresses)
    with quick(f"brokers.test:{port}") as consumer:
        consumer.assign([T0])
        assert read(consumer, 1) == [b"a"]


def test_a_broker_that_goes_and_comes_back_is_read_on_without_loss(kafka: Kafka) -> None:
    kafka.produce("t", ["a", "b"])
    told = Told()
    with quick(kafka.bootstrap_servers, "g") as consumer:
        consumer.subscribe(["t"], **told.callbacks)
        assert read(consumer, 2) == [b"a", b"b"]
        kafka.stop()
        with within(0.3):
            assert consumer.poll(0.3) == {}
        with within(0.3), pytest.raises(TimedOut):
            consumer.commit(timeout=0.3)
        kafka.start()
        kafka.produce("t", ["c"])
        assert read(consumer, 1) == [b"c"]
        consumer.commit(timeout=PATIENCE_S)
        assert kafka.committed("g", "t") == {0: 3}
        assert told.kinds == ["assigned"]  # the group was loaded from the log: nobody had to join


async def test_a_broker_that_goes_and_comes_back_with_asyncio(kafka: Kafka) -> None:
    kafka.produce("t", ["a"])
    async with AsyncConsumer(
        {**QUICK, "bootstrap.servers": kafka.bootstrap_servers, "group.id": "g"}
    ) as consumer:
        await consumer.subscribe(["t"])
        seen: list[bytes] = []

        async def read_until(count: int) -> None:
            deadline = time.monotonic() + PATIENCE_S
            while len(seen) < count:
                assert time.monotonic() < deadline
                seen.extend([r.value for some in (await consumer.poll(0.2)).values() for r in some])

        await read_until(1)
        kafka.stop()
        assert await consumer.poll(0.2) == {}
        with pytest.raises(TimedOut):
            await consumer.commit(timeout=0.2)
        kafka.start()
        kafka.produce("t", ["b"])
        await read_until(2)
        assert seen == [b"a", b"b"]


def test_a_broker_that_restarts_again_and_again_while_it_is_read(kafka: Kafka) -> None:
    kafka.create_topic("t", partitions=2)
    with quick(kafka.bootstrap_servers, "g", auto_commit_interval_ms=20) as consumer:
        consumer.subscribe(["t"])
        seen: list[bytes] = []
        for turn in range(5):
            kafka.produce("t", [f"{turn}-{n}" for n in range(10)])
            kafka.restart()
            seen += read(consumer, 10)
        assert sorted(seen) == sorted(f"{turn}-{n}".encode() for turn in range(5) for n in range(10))


# --- slow, half-closed, nonsense ---------------------------------------------------------------------------


def test_a_broker_that_says_nothing_is_given_up_in_time(silent_port: int) -> None:
    with quick(f"127.0.0.1:{silent_port}", "g") as consumer:
        consumer.subscribe(["t"])
        with within(0.3):
            assert consumer.poll(0.3) == {}
        with within(0.3), pytest.raises(TimedOut):
            consumer.end_offsets(T0, timeout=0.3)
        with within(0.3):
            consumer.close(timeout=0.3)


def test_a_slow_broker_delays_and_loses_nothing(kafka: Kafka) -> None:
    kafka.produce("t", ["a", "b"])
    with (
        kafka.delay("Fetch", ms=150),
        kafka.delay("OffsetCommit", ms=150),
        quick(kafka.bootstrap_servers, "g") as c,
    ):
        c.subscribe(["t"])
        assert read(c, 2) == [b"a", b"b"]
        c.commit(timeout=PATIENCE_S)
    assert kafka.committed("g", "t") == {0: 2}


def test_an_answer_that_is_too_late_is_asked_for_again(kafka: Kafka) -> None:
    kafka.produce("t", ["a"])
    slow = kafka.delay("Fetch", ms=30_000, times=1)
    with quick(kafka.bootstrap_servers, request_timeout_ms=500) as consumer:
        consumer.assign([T0])
        assert read(consumer, 1) == [b"a"]
    assert slow.hits == 1


FAULTS: list[tuple[str, Reply]] = [
    ("closed", CLOSE),
    ("reset", RESET),
    ("half-closed", HALF_CLOSE),
    ("text", Raw(b"HTTP/1.1 400 Bad Request\r\n\r\n")),
    ("a length that cannot be", Raw(b"\xff\xff\xff\xff" * 4)),
    ("an answer to nothing", Raw(b"\x00\x00\x00\x08" + b"\x00" * 8)),
]


@pytest.mark.parametrize("api_key", [API_VERSIONS, METADATA, LIST_OFFSETS, FETCH])
@pytest.mark.parametrize("fault", [fault for _, fault in FAULTS], ids=[name for name, _ in FAULTS])
def test_a_connection_that_breaks_at_any_request_is_made_again(api_key: int, fault: Reply) -> None:
    log, seen = Log([b"a", b"b"]), list[bytes]()
    with (
        log_cluster({T0: log}) as cluster,
        quick(cluster.bootstrap_servers, request_timeout_ms=300) as consumer,
    ):
        cluster[1].script(api_key, fault, fault)
        consumer.assign([T0])
        deadline = time.monotonic() + PATIENCE_S
        while seen != [b"a", b"b"]:
            assert time.monotonic() < deadline, seen
            try:
                seen += [record.value for some in consumer.poll(0.2).values() for record in some]
            except KafkaError as error:  # nonsense may be told, with the address; the next poll goes on
                assert f"{cluster[1].address}: not an answer of Kafka's protocol" in str(error)  # noqa: PT017


@pytest.mark.parametrize("api_key", [METADATA, FETCH])
def test_a_request_without_an_answer_times_out_and_is_sent_again(api_key: int) -> None:
    log = Log([b"a", b"b"])
    with (
        log_cluster({T0: log}) as cluster,
        quick(cluster.bootstrap_servers, request_timeout_ms=200) as consumer,
    ):
        cluster[1].script(api_key, SILENCE)
        consumer.assign([T0])
        assert read(consumer, 2) == [b"a", b"b"]


def test_a_server_that_only_ever_talks_nonsense_is_named_when_the_time_is_up() -> None:
    with ScriptedCluster(1) as cluster, quick(cluster.bootstrap_servers) as consumer:
        cluster[1].on(API_VERSIONS, Raw(b"SSH-2.0-OpenSSH_9.6\r\n"))
        times_out(lambda timeout: consumer.list_topics(timeout=timeout), cluster[1].address, 0.5)


# --- older brokers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "newest",
    [
        {"api_versions": 0, "metadata": 4, "fetch": 4, "list_offsets": 1},
        {"api_versions": 2, "metadata": 8, "fetch": 7, "list_offsets": 5},
        {"metadata": 9, "fetch": 11, "list_offsets": 6},
        {"metadata": 12, "fetch": 12, "list_offsets": 7},
        {"fetch": 13},
    ],
    ids=str,
)
def test_an_older_broker_is_spoken_to_in_its_versions(newest: dict[str, int]) -> None:
    log = Log([b"a", b"b", b"c"])
    with log_cluster({T0: log}, versions=all_versions(**newest)) as cluster:
        with quick(cluster.bootstrap_servers) as consumer:
            consumer.assign([T0])
            assert read(consumer, 3) == [b"a", b"b", b"c"]
        asked = {request.api_key: request.version for request in cluster[1].requests}
        for module, api_key in (("fetch", FETCH), ("metadata", METADATA), ("list_offsets", LIST_OFFSETS)):
            if module in newest:
                assert asked[api_key] == newest[module]


def test_a_broker_that_is_too_old_says_so() -> None:
    versions = all_versions()
    del versions[FETCH]
    with ScriptedCluster(1, versions=versions) as cluster, quick(cluster.bootstrap_servers) as consumer:
        cluster.add_topic("t", leaders=[1])
        consumer.assign([T0])
        consumer.seek(T0, 0)
        with within(0), pytest.raises(KohortError, match=r"(?i)fetch"):
            poll_until(consumer, lambda: False, "it is told")


# --- damage ------------------------------------------------------------------------------------------------


def test_a_corrupt_batch_stops_its_partition_until_a_seek_and_the_others_go_on() -> None:
    good, bad = Log([b"a", b"b"]), Log([b"x", b"y", b"z"], records_per_batch=1)
    bad.damage(1)
    with log_cluster({T0: good, T1: bad}) as cluster, quick(cluster.bootstrap_servers) as consumer:
        consumer.assign([T0, T1])
        seen: list[bytes] = []
        errors: list[CorruptRecord] = []
        deadline = time.monotonic() + PATIENCE_S
        while len(errors) < 3 or len(seen) < 3:
            assert time.monotonic() < deadline
            try:
                seen += [r.value for some in consumer.poll(0.2).values() for r in some]
            except CorruptRecord as error:
                errors.append(error)
        assert sorted(seen) == [b"a", b"b", b"x"]
        assert {(e.partition, e.offset) for e in errors} == {(T1, 1)}
        assert "t-1" in str(errors[0])
        assert "offset 1" in str(errors[0])
        assert "Seek past it" in str(errors[0])
        consumer.seek(T1, 2)
        assert read(consumer, 1) == [b"z"]


def test_without_check_crcs_damage_is_not_looked_for() -> None:
    bad = Log([b"x", b"y"], records_per_batch=1)
    bad.damage(1)
    with log_cluster({T0: bad}) as cluster, quick(cluster.bootstrap_servers, check_crcs=False) as consumer:
        consumer.assign([T0])
        values = read(consumer, 2)
        assert values[0] == b"x"
        assert values[1] != b"y"


# --- one name, other things --------------------------------------------------------------------------------


def test_the_names_of_brokers_are_looked_up_without_blocking_the_poll(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A name server that does not answer must not hold up a poll."""
    let_go = threading.Event()

    def hangs(*args: object, **more: object) -> object:
        let_go.wait(PATIENCE_S)
        raise socket.gaierror(-3, "try again")

    monkeypatch.setattr(socket, "getaddrinfo", hangs)
    try:
        with quick("slow.test:9092", "g") as consumer:
            consumer.subscribe(["t"])
            with within(0.3):
                assert consumer.poll(0.3) == {}
            with within(0.3):
                consumer.close(timeout=0.3)
    finally:
        let_go.set()


def test_two_consumers_in_one_thread(kafka: Kafka) -> None:
    kafka.create_topic("t", partitions=2)
    made: list[Consumer] = [quick(kafka.bootstrap_servers, "g") for _ in range(2)]
    try:
        for consumer in made:
            consumer.subscribe(["t"])
        deadline = time.monotonic() + PATIENCE_S
        while [len(consumer.assignment()) for consumer in made] != [1, 1]:
            assert time.monotonic() < deadline
            for consumer in made:
                consumer.poll(0.02)
    finally:
        for consumer in made:
            consumer.close(timeout=PATIENCE_S)
