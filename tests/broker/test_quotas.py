"""Quotas in a running broker: APIs 48 and 49, throttle times in answers, muted connections, who is not slowed down."""

from __future__ import annotations

import select
import time
from typing import Any

import confluent_kafka
import pytest

from kohort.broker import running
from kohort.broker.clock import Clock
from kohort.broker.metrics import THROTTLES, BrokerMetrics
from kohort.broker.net.connection import Connection
from kohort.client.io.blocking_connection import BlockingConnection
from kohort.security.quotas import QuotaKind
from kohort.wire.compiler.compile import codec
from kohort.wire.errors import ErrorCode
from kohort.wire.frame import request_frame
from kohort.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterQuotaEntity,
    AlterQuotaEntry,
    QuotaOp,
)
from kohort.wire.messages.api_versions import ApiVersionsRequest
from kohort.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kohort.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kohort.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kohort.wire.messages.describe_client_quotas import DescribeClientQuotasRequest, QuotaFilterComponent
from kohort.wire.messages.fetch import FetchResponse
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from kohort.wire.messages.heartbeat import HeartbeatRequest
from kohort.wire.messages.list_offsets import ListOffsetsRequest
from kohort.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kohort.wire.struct import Message
from tests.broker.peer import batch_of, create_topic, fetch_request, produce, produce_request, values_in
from tests.broker.secured import allow, login, secured
from tests.broker.test_groups import commit_request, stable
from tests.broker.tls_peer import TlsPeer
from tests.certificates import make_certificates
from tests.clients.process import eventually

FOREVER_MS = 60_000
SLOW, FREE = "slow", "free"
Entity = dict[str, str | None]


@pytest.fixture(scope="module", params=["uvloop", "asyncio"])
def broker(request):
    with running(event_loop=request.param) as started:
        yield started


@pytest.fixture
def free(broker):
    with connect(broker, FREE) as connection:
        yield connection
        for entry in describe(connection).entries:
            entity = {each.entity_type: each.entity_name for each in entry.entity}
            alter(connection, entity, dict.fromkeys((value.key for value in entry.values), None))


def connect(broker: running, client_id: str = SLOW) -> BlockingConnection:
    return BlockingConnection(broker.bootstrap_servers, client_id=client_id)


def alter_entry(entity: Entity, values: dict[str, float | None]) -> AlterQuotaEntry:
    ops = [QuotaOp(key, 0.0 if value is None else value, value is None) for key, value in values.items()]
    return AlterQuotaEntry([AlterQuotaEntity(*pair) for pair in entity.items()], ops)


def alter(
    client: BlockingConnection,
    entity: Entity,
    values: dict[str, Any],
    *,
    validate_only: bool = False,
    version: int = 1,
) -> Any:
    request = AlterClientQuotasRequest([alter_entry(entity, values)], validate_only)
    return client.call(request, version=version).entries[0]


def describe(
    client: BlockingConnection,
    *components: tuple[str, int, str | None],
    strict: bool = False,
    version: int = 1,
) -> Any:
    asked = [QuotaFilterComponent(*component) for component in components]
    return client.call(DescribeClientQuotasRequest(asked, strict), version=version)


def described(client: BlockingConnection, *components: tuple[str, int, str | None]) -> list[Any]:
    return [
        (
            {each.entity_type: each.entity_name for each in entry.entity},
            {v.key: v.value for v in entry.values},
        )
        for entry in describe(client, *components).entries
    ]


def connections(broker: running) -> list[Connection]:
    async def look() -> list[Connection]:
        return list(broker.server.admission.connections)

    return broker.call(look())


def is_muted(broker: running, client: BlockingConnection) -> bool:
    port = client._socket.getsockname()[1]
    return any(each._mute is not None for each in connections(broker) if each.peer.endswith(f":{port}"))


def has_answer(client: BlockingConnection) -> bool:
    return bool(select.select([client._socket], [], [], 0)[0])


def frame_size(request: Message, version: int, client_id: str = SLOW) -> int:
    """What a quota counts of a request: all but its length, as Kafka 4.3.1 does."""
    api_codec = codec(request.API_KEY, version)
    return len(request_frame(api_codec, 1, client_id, api_codec.encode_request(request))) - 4


# --- the two APIs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_are_set_described_and_removed(free, version):
    pair: Entity = {"client-id": None, "user": "alice"}
    set_ = alter(free, pair, {"producer_byte_rate": 1e6, "request_percentage": 12.5}, version=version)
    assert (set_.error_code, set_.error_message) == (0, None)
    alter(free, {"user": "bob"}, {"controller_mutation_rate": 0.5})
    assert {each.entity_type: each.entity_name for each in set_.entity} == pair
    answer = describe(free, ("user", 0, "alice"), version=version)
    assert (answer.error_code, answer.throttle_time_ms, len(answer.entries)) == (0, 0, 1)
    assert described(free, ("user", 0, "alice")) == [
        (pair, {"producer_byte_rate": 1e6, "request_percentage": 12.5})
    ]
    alter(free, pair, {"producer_byte_rate": None, "consumer_byte_rate": 5.0})
    assert described(free, ("client-id", 1, None)) == [
        (pair, {"consumer_byte_rate": 5.0, "request_percentage": 12.5})
    ]
    alter(free, pair, {"request_percentage": None, "consumer_byte_rate": None})
    assert described(free) == [({"user": "bob"}, {"controller_mutation_rate": 0.5})]


def test_validate_only_changes_nothing(free):
    assert alter(free, {"user": "a"}, {"producer_byte_rate": 1.0}, validate_only=True).error_code == 0
    assert alter(free, {"user": "a"}, {"producer_byte_rate": -1.0}, validate_only=True).error_code == 42
    assert described(free) == []


@pytest.mark.parametrize(
    ("entity", "values"),
    [
        ({}, {"producer_byte_rate": 1.0}),
        ({"group": "g"}, {"producer_byte_rate": 1.0}),
        ({"user": ""}, {"producer_byte_rate": 1.0}),
        ({"ip": "127.0.0.1", "user": "u"}, {"connection_creation_rate": 1.0}),
        ({"ip": "no such host"}, {"connection_creation_rate": 1.0}),
        ({"ip": None}, {"producer_byte_rate": 1.0}),
        ({"user": "u"}, {"producer_byte_rate": 0.0}),
        ({"user": "u"}, {"producer_byte_rate": 1.5}),
    ],
)
def test_a_wrong_change_is_refused_and_others_of_the_request_are_made(free, entity, values):
    request = AlterClientQuotasRequest(
        [alter_entry(entity, values), alter_entry({"user": "good"}, {"request_percentage": 0.5})]
    )
    wrong, good = free.call(request).entries
    assert wrong.error_code == ErrorCode.INVALID_REQUEST
    assert wrong.error_message
    assert [(each.entity_type, each.entity_name) for each in wrong.entity] == list(entity.items())
    assert good.error_code == 0
    assert described(free) == [({"user": "good"}, {"request_percentage": 0.5})]


def test_an_entity_or_a_key_twice_is_refused(free):
    same = alter_entry({"user": "u"}, {"producer_byte_rate": 1.0})
    (answer,) = free.call(AlterClientQuotasRequest([same, same])).entries
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    twice = AlterQuotaEntry([AlterQuotaEntity("user", "u")], [QuotaOp("producer_byte_rate", 1.0)] * 2)
    (answer,) = free.call(AlterClientQuotasRequest([twice])).entries
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert described(free) == []


@pytest.mark.parametrize(
    ("components", "code"), [([("user", 0, None)], 42), ([("", 2, None)], 42), ([("group", 2, None)], 35)]
)
def test_a_wrong_filter_is_refused(free, components, code):
    answer = describe(free, *components)
    assert (answer.error_code, answer.entries) == (code, None)
    assert answer.error_message


def test_who_may_not_is_told_so():
    settings = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
    with running(settings=settings) as broker, connect(broker) as client:
        assert alter(client, {"user": "u"}, {"producer_byte_rate": 1.0}).error_code == 31
        answer = describe(client)
        assert (answer.error_code, answer.entries) == (31, None)


def test_quotas_survive_a_restart_and_are_in_force_then(tmp_path):
    with running(tmp_path) as broker, connect(broker, FREE) as client:
        alter(client, {"client-id": SLOW}, {"producer_byte_rate": 1.0, "consumer_byte_rate": 1.0})
        alter(client, {"client-id": SLOW}, {"consumer_byte_rate": None})
        alter(client, {"user": "gone"}, {"consumer_byte_rate": 1.0})
        alter(client, {"user": "gone"}, {"consumer_byte_rate": None})
        create_topic(client, "orders")
    with running(tmp_path) as broker, connect(broker, FREE) as client, connect(broker) as slow:
        assert described(client) == [({"client-id": SLOW}, {"producer_byte_rate": 1.0})]
        answer = slow.call(produce_request("orders", batch_of(b"x")), version=9)
        assert answer.responses[0].partition_responses[0].error_code == 0
        assert answer.throttle_time_ms > 0


# --- bytes ------------------------------------------------------------------------------------------------


def test_a_produce_above_the_quota_is_answered_at_once_and_then_the_connection_is_muted(broker, free):
    create_topic(free, "big")
    with connect(broker) as slow:
        assert slow.call(MetadataRequest([])).throttle_time_ms == 0  # it is open when the quota is set
        alter(free, {"client-id": SLOW}, {"producer_byte_rate": 1000.0})
        request = produce_request("big", batch_of(bytes(20_000)))
        answer = slow.call(request, version=9)
        assert answer.responses[0].partition_responses[0].error_code == 0
        expected_ms = round((frame_size(request, 9) / 10 - 1000) / 1000 * 10_000)
        assert answer.throttle_time_ms == pytest.approx(expected_ms, abs=2)
        assert expected_ms > 10_000
        slow.send(MetadataRequest([]))
        for _ in range(
            100
        ):  # another client is served meanwhile, and another connection of the same one, too
            assert free.call(MetadataRequest([])).throttle_time_ms == 0
            produce(free, "big", batch_of(b"x"))
        with connect(broker) as same:
            assert same.call(MetadataRequest([])).throttle_time_ms == 0
        assert is_muted(broker, slow)
        assert not has_answer(slow)


def test_a_muted_connection_is_read_on_when_its_time_is_over(broker, free):
    create_topic(free, "short")
    alter(free, {"client-id": "short"}, {"producer_byte_rate": 10_000.0})
    with connect(broker, "short") as slow:
        began = time.monotonic()
        request = produce_request("short", batch_of(bytes(101_500)))
        slow.send(request, version=9)
        slow.send(MetadataRequest([]))
        slow.send(MetadataRequest([]))
        throttle_ms = slow.receive().throttle_time_ms
        assert 100 <= throttle_ms < 1000
        assert slow.receive().throttle_time_ms == 0
        assert time.monotonic() - began >= throttle_ms / 1000 - 0.01
        slow.receive()
        assert not is_muted(broker, slow)
        slow.call(MetadataRequest([]))


def test_pipelined_produces_are_all_answered_and_the_longest_throttle_counts(broker, free):
    create_topic(free, "many", partitions=3)
    alter(free, {"client-id": "many"}, {"producer_byte_rate": 1000.0})
    with connect(broker, "many") as slow:
        slow.send(produce_request("many", batch_of(bytes(9_000))), version=9)
        assert slow.receive().throttle_time_ms == 0
        slow.send(produce_request("many", batch_of(bytes(9_000)), 1), version=9)
        slow.send(produce_request("many", batch_of(bytes(9_000)), 2), version=9)
        first = slow.receive().throttle_time_ms
        assert first > 5000
        assert is_muted(broker, slow)
        assert not has_answer(slow)


def test_with_acks_0_only_bytes_mute(broker, free):
    create_topic(free, "silent")
    alter(free, {"client-id": "hasty"}, {"request_percentage": 1e-9})
    with connect(broker, "hasty") as hasty:
        for _ in range(3):
            hasty.send(produce_request("silent", batch_of(b"x"), acks=0), version=9, answered=False)
        assert hasty.call(MetadataRequest([])).throttle_time_ms == 1000
    alter(free, {"client-id": "bulky"}, {"producer_byte_rate": 1.0})
    with connect(broker, "bulky") as bulky:
        bulky.send(produce_request("silent", batch_of(bytes(100)), acks=0), version=9, answered=False)
        eventually(lambda: is_muted(broker, bulky), "a muted connection")


def fetched(client: BlockingConnection, version: int = 11, **more: Any) -> FetchResponse:
    answer: FetchResponse = client.call(fetch_request("stream", 0, **more), version=version)
    return answer


def records_in(answer: FetchResponse) -> int:
    return sum(len(values_in(part)) for topic in answer.responses for part in topic.partitions)


@pytest.fixture
def stream(broker, free):
    if create_topic(free, "stream").error_code == 0:
        for _ in range(40):
            produce(free, "stream", batch_of(bytes(900)))
    return free


@pytest.mark.parametrize("version", [4, 11, 12])
def test_a_fetch_above_the_quota_gets_no_partitions_and_its_bytes_are_not_counted(broker, stream, version):
    client_id = f"reader-{version}"
    alter(stream, {"client-id": client_id}, {"consumer_byte_rate": 1000.0})
    with connect(broker, client_id) as reader:
        first = fetched(reader, version, max_bytes=9500)
        assert (first.throttle_time_ms, records_in(first)) == (0, 9)
    throttle_ms = []
    for _ in range(3):
        with connect(broker, client_id) as reader:
            throttled = fetched(reader, version, max_bytes=9500)
            assert throttled.responses == []
            assert (throttled.error_code, throttled.session_id) == (0, 0)
            assert is_muted(broker, reader)
            throttle_ms.append(throttled.throttle_time_ms)
    assert 8500 < throttle_ms[2] <= throttle_ms[0] < 9500
    assert fetched(stream, version).throttle_time_ms == 0


def test_a_fetch_is_cut_to_ten_seconds_of_the_quota_and_waits_for_no_more(broker, stream):
    alter(stream, {"client-id": "cut"}, {"consumer_byte_rate": 1000.0})
    with connect(broker, "cut") as reader:
        answers = []
        while not answers or answers[-1].throttle_time_ms:
            # Together with their header 10,000 bytes of records are a little too much for the first time, as in Kafka.
            answers.append(fetched(reader, max_wait_ms=FOREVER_MS, min_bytes=1 << 20))
            assert answers[-1].throttle_time_ms < 100
        assert len(answers) < 10
        assert len(answers[-1].responses[0].partitions[0].records) == 10_000


def test_a_throttled_fetch_begins_no_session_and_goes_on_with_one(broker, stream):
    with connect(broker, "session") as reader:
        begun = fetched(reader, session_epoch=0, max_bytes=1)
        assert begun.session_id != 0
    alter(stream, {"client-id": "session"}, {"request_percentage": 1e-9})
    with connect(broker, "session") as reader:
        full = fetched(reader, session_epoch=0)
        assert (full.throttle_time_ms, full.session_id, full.responses) == (1000, 0, [])
    with connect(broker, "session") as reader:
        request = fetch_request("stream", 0, session_id=begun.session_id, session_epoch=1)
        incremental = reader.call(request, version=11)
        assert incremental.throttle_time_ms == 1000
        assert (incremental.session_id, incremental.responses) == (begun.session_id, [])
    alter(stream, {"client-id": "session"}, {"request_percentage": None})
    with connect(broker, "session") as reader:
        request = fetch_request("stream", 0, session_id=begun.session_id, session_epoch=2, max_bytes=1)
        request.topics = []
        went_on = reader.call(request, version=11)
        assert (went_on.error_code, went_on.session_id) == (0, begun.session_id)
        assert records_in(went_on) == 1, "what the throttled answers did not tell is told now"


# --- time -------------------------------------------------------------------------------------------------


CAP_MS = 30_000


@pytest.fixture(scope="module")
def patient():
    """A broker whose requests are throttled for half a minute at most, longer than this machine is slow."""
    with running(settings={"quota.window.size.seconds": CAP_MS // 1000}) as started:
        yield started


@pytest.fixture
def unlimited(patient):
    with connect(patient, FREE) as connection:
        yield connection


@pytest.mark.parametrize(
    ("request_of", "version"),
    [
        (lambda: MetadataRequest([]), 12),
        (lambda: ApiVersionsRequest("pytest", "1"), 3),
        (lambda: FindCoordinatorRequest("g", 0, ["g"]), 4),
        (lambda: ListOffsetsRequest(-1, 0, []), 6),
        (lambda: CreateTopicsRequest([CreatableTopic("again", 1, 1)], 10_000), 7),
        (lambda: DescribeClientQuotasRequest([]), 1),
        (lambda: fetch_request("nowhere", 0), 17),
        (lambda: produce_request("nowhere", batch_of(b"x")), 9),
    ],
)
def test_the_time_of_every_api_is_charged(patient, unlimited, request_of, version):
    alter(unlimited, {"client-id": "busy"}, {"request_percentage": 1e-9})
    with connect(patient, "busy") as busy:
        assert busy.call(request_of(), version=version).throttle_time_ms == CAP_MS
        assert is_muted(patient, busy)


@pytest.mark.parametrize("version", [0, 2])
def test_an_answer_without_the_field_mutes_too(patient, unlimited, version):
    alter(unlimited, {"client-id": "busy"}, {"request_percentage": 1e-9})
    with connect(patient, "busy") as busy:
        busy.call(MetadataRequest([]), version=version)
        assert is_muted(patient, busy)


@pytest.mark.parametrize("version", [0, 1, 4])
def test_heartbeats_in_time_are_charged(patient, unlimited, version):
    joined = stable(unlimited, f"beating-{version}")
    beat = HeartbeatRequest(f"beating-{version}", joined.generation_id, joined.member_id)
    assert unlimited.call(beat, version=version).error_code == 0
    alter(unlimited, {"client-id": "busy"}, {"request_percentage": 1e-9})
    with connect(patient, "busy") as busy:
        answer = busy.call(beat, version=version)
        assert (answer.error_code, answer.throttle_time_ms) == (0, CAP_MS if version >= 1 else 0)
        assert is_muted(patient, busy)
    assert unlimited.call(beat, version=version).throttle_time_ms == 0


@pytest.mark.parametrize("version", [2, 3, 9])
def test_recognized_commits_are_charged(patient, unlimited, version):
    create_topic(unlimited, "orders")
    group = f"committing-{version}"
    joined = stable(unlimited, group)
    for offset in range(4):
        assert unlimited.call(commit_request(group, offset, joined), version=version).throttle_time_ms == 0
    alter(unlimited, {"client-id": "busy"}, {"request_percentage": 1e-9})
    with connect(patient, "busy") as busy:
        answer = busy.call(commit_request(group, 7, joined), version=version)
        assert answer.topics[0].partitions[0].error_code == 0
        assert answer.throttle_time_ms == (CAP_MS if version >= 3 else 0)
        assert is_muted(patient, busy)
    assert unlimited.call(commit_request(group, 8, joined), version=version).throttle_time_ms == 0


# --- mutations --------------------------------------------------------------------------------------------


@pytest.fixture
def moved():
    """A broker whose clock a test moves, with a quota of one partition a second."""
    clock = Clock()
    with running(clock=clock) as started, connect(started, FREE) as client:
        alter(client, {"client-id": SLOW}, {"controller_mutation_rate": 1.0})
        yield started, clock


def create(broker: running, name: str, partitions: int, version: int = 7) -> Any:
    with connect(broker) as client:
        return client.call(
            CreateTopicsRequest([CreatableTopic(name, partitions, 1)], 10_000), version=version
        )


def test_creating_topics_is_refused_once_the_bucket_is_below_zero(moved):
    broker, clock = moved
    answer = create(broker, "first", 16)
    assert (answer.topics[0].error_code, answer.throttle_time_ms) == (0, 0)
    refused = create(broker, "second", 1)
    assert refused.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert 3000 < refused.throttle_time_ms <= 5000
    old = create(broker, "old", 1, version=5)
    assert old.topics[0].error_code == 0
    assert 4000 < old.throttle_time_ms <= 6000
    clock.shift_ms += 7000
    again = create(broker, "second", 1)
    assert (again.topics[0].error_code, again.throttle_time_ms) == (0, 0)


def test_one_request_may_end_below_zero_and_the_rest_of_it_is_refused(moved):
    broker, _ = moved
    names = [CreatableTopic(name, 10, 1) for name in ("a", "b", "c")]
    with connect(broker) as client:
        answer = client.call(CreateTopicsRequest(names, 10_000))
    assert [topic.error_code for topic in answer.topics] == [0, 0, ErrorCode.THROTTLING_QUOTA_EXCEEDED]


@pytest.mark.parametrize(("version", "is_strict"), [(6, True), (5, True), (4, False)])
def test_deleting_topics_costs_their_partitions(moved, version, is_strict):
    broker, _ = moved
    create(broker, "doomed", 16)
    with connect(broker) as client:
        by_state = version >= 6
        request = DeleteTopicsRequest(
            [DeleteTopicState("doomed")] if by_state else [], [] if by_state else ["doomed"], 10_000
        )
        answer = client.call(request, version=version)
    expected = ErrorCode.THROTTLING_QUOTA_EXCEEDED if is_strict else ErrorCode.NONE
    assert answer.responses[0].error_code == expected
    assert answer.throttle_time_ms > (3000 if is_strict else 15_000)


@pytest.mark.parametrize(("version", "is_strict"), [(3, True), (2, False)])
def test_adding_partitions_costs_those_that_are_added(moved, version, is_strict):
    broker, _ = moved
    create(broker, "growing", 16)
    with connect(broker) as client:
        request = CreatePartitionsRequest([CreatePartitionsTopic("growing", 18)], 10_000)
        answer = client.call(request, version=version)
    expected = ErrorCode.THROTTLING_QUOTA_EXCEEDED if is_strict else ErrorCode.NONE
    assert answer.results[0].error_code == expected
    assert 3000 < answer.throttle_time_ms <= (5000 if is_strict else 7000)


def test_a_topic_that_is_made_by_asking_for_it_costs_too(moved):
    broker, clock = moved
    create(broker, "first", 16)
    request = MetadataRequest([MetadataRequestTopic(name="asked")], True)
    with connect(broker) as client:
        for expected in (False, True):
            answer = client.call(request, version=8)
            assert (answer.topics[0].error_code, answer.throttle_time_ms) == (3, 0)
            assert ("asked" in broker.server.broker.store.topics) is expected
            clock.shift_ms += 6000


# --- connections ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ip", ["127.0.0.1", None, "localhost"])
def test_connections_that_come_too_fast_are_held_and_closed(ip):
    with running(listen="127.0.0.1:0") as broker, connect(broker, FREE) as client:
        alter(client, {"ip": ip}, {"connection_creation_rate": 2.0})
        assert described(client) == [({"ip": ip}, {"connection_creation_rate": 2.0})]
        kept = [connect(broker) for _ in range(20)]

        def next_is_held() -> bool:
            began = time.monotonic()
            with connect(broker) as another:
                try:
                    another.call(MetadataRequest([]))
                except ConnectionError:
                    return time.monotonic() - began > 0.2
            return False

        eventually(next_is_held, "a connection that is held")
        for each in kept:
            each.call(MetadataRequest([]))
            each.close()
        alter(client, {"ip": ip}, {"connection_creation_rate": None})
        with connect(broker) as another:
            another.call(MetadataRequest([]))


# --- users ------------------------------------------------------------------------------------------------


def test_a_quota_of_a_user_is_for_those_who_have_logged_in_as_this_user():
    with secured() as broker, login(broker.bootstrap_servers, "admin") as admin:
        alter(admin, {"user": "alice"}, {"request_percentage": 1e-9})
        alter(admin, {"user": "ANONYMOUS"}, {"request_percentage": 1e-9})
        # What comes before the authentication is charged to nobody, or nobody would get as far as that.
        with login(broker.bootstrap_servers, "alice") as alice, login(broker.bootstrap_servers, "bob") as bob:
            assert not is_muted(broker, alice)
            assert alice.call(MetadataRequest([]), 12).throttle_time_ms == 1000
            assert bob.call(MetadataRequest([]), 12).throttle_time_ms == 0


def test_real_clients_are_told_by_whom_they_are_throttled():
    """confluent-kafka, as alice: one throttled Produce and one throttled Fetch, for some 100 ms each."""
    told: list[confluent_kafka.ThrottleEvent] = []
    with secured() as broker, login(broker.bootstrap_servers, "admin") as admin:
        create_topic(admin, "orders")
        allow(admin, "WRITE TOPIC orders", "READ TOPIC orders", "READ GROUP g")
        alter(admin, {"user": "alice"}, {"producer_byte_rate": 10_000, "consumer_byte_rate": 10_000})
        config = {
            "bootstrap.servers": broker.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "alice",
            "throttle_cb": told.append,
        }
        producer = confluent_kafka.Producer({**config, "linger.ms": 0})
        producer.produce("orders", bytes(50_000))
        assert producer.flush(60) == 0
        producer.produce("orders", bytes(50_500))
        assert producer.flush(60) == 0
        eventually(
            lambda: producer.poll(0.01) is not None and told, "the producer hears that it is throttled"
        )
        consumer = confluent_kafka.Consumer({**config, "group.id": "g", "max.partition.fetch.bytes": 51_000})
        consumer.assign([confluent_kafka.TopicPartition("orders", 0, 0)])
        produced, read = len(told), 0

        def has_read_all() -> bool:
            nonlocal read
            message = consumer.poll(0.1)
            read += message is not None and message.error() is None
            return read == 2 and any(event.throttle_time for event in told[produced:])

        eventually(has_read_all, "the consumer reads all, and hears that it is throttled")
        consumer.close()
    assert all(event.throttle_time < 10 for event in told)


# --- metrics ----------------------------------------------------------------------------------------------


def test_throttle_times_are_counted_by_the_kind_of_quota():
    with running(is_metered=True) as broker, connect(broker, FREE) as free:
        create_topic(free, "orders")
        alter(free, {"client-id": SLOW}, {"producer_byte_rate": 1.0, "request_percentage": 1e-9})
        with connect(broker) as slow:
            slow.call(produce_request("orders", batch_of(bytes(100))), version=9)
        with connect(broker) as slow:
            slow.call(MetadataRequest([]))
        with connect(broker) as slow:
            slow.call(MetadataRequest([]))

        async def look() -> list[Any]:
            return BrokerMetrics(broker.server).samples()[THROTTLES]

        counted = {labels[0]: sum(times.counts) for labels, times in broker.call(look())}
        assert counted == {**dict.fromkeys(QuotaKind, 0), "producer_byte_rate": 1, "request_percentage": 2}


# --- muted connections ------------------------------------------------------------------------------------


def muted_client(broker: running, free: BlockingConnection) -> BlockingConnection:
    create_topic(free, "muting")
    alter(free, {"client-id": "muted"}, {"producer_byte_rate": 1.0})
    client = connect(broker, "muted")
    assert client.call(produce_request("muting", batch_of(b"x" * 500)), version=9).throttle_time_ms > 30_000
    assert is_muted(broker, client)
    return client


def test_a_long_poll_behind_a_throttled_produce_is_answered_and_the_mute_stays(tmp_path):
    with running(tmp_path) as broker, connect(broker, FREE) as free:
        create_topic(free, "muting")
        alter(free, {"client-id": "muted"}, {"producer_byte_rate": 1.0})
        with connect(broker, "muted") as client:
            produced = produce_request("muting", batch_of(b"x" * 500))
            frames = []
            for request, version in ((produced, 9), (fetch_request("muting", 1, max_wait_ms=FOREVER_MS), 11)):
                made = codec(request.API_KEY, version)
                frames.append(request_frame(made, len(frames) + 1, "muted", made.encode_request(request)))
            client.send_bytes(b"".join(frames))  # they arrive together, before the first is durable
            client._expected += [(1, 0, 9), (2, 1, 11)]
            assert client.receive().throttle_time_ms > 30_000
            produce(free, "muting", batch_of(b"y"))
            assert values_in(client.receive().responses[0].partitions[0]) == [b"y"]
            assert is_muted(broker, client)
            client.send(MetadataRequest([]))
            produce(free, "muting", batch_of(b"z"))
            assert not has_answer(client)


@pytest.mark.parametrize("event_loop", ["uvloop", "asyncio"])
def test_a_connection_with_tls_is_muted_and_read_on(tmp_path, event_loop):
    certificates = make_certificates(tmp_path)
    with (
        running(settings=certificates.listener("SSL"), event_loop=event_loop) as broker,
        TlsPeer(broker.bootstrap_servers, certificates.context()) as client,
    ):
        create_topic(client, "muting")
        alter(client, {"user": "ANONYMOUS"}, {"producer_byte_rate": 10_000.0})
        began = time.monotonic()
        client.send(produce_request("muting", batch_of(bytes(101_500))), version=9)
        client.send(MetadataRequest([]))
        client.send(MetadataRequest([]))
        throttle_ms = client.receive().throttle_time_ms
        assert 100 <= throttle_ms < 1000
        client.receive()
        assert time.monotonic() - began >= throttle_ms / 1000 - 0.01
        client.receive()
        alter(client, {"user": "ANONYMOUS"}, {"producer_byte_rate": 1.0})
        assert client.call(produce_request("muting", batch_of(b"x")), version=9).throttle_time_ms > 30_000
        assert is_muted(broker, client)
        port = client._socket.getsockname()[1]
        client.close()
        eventually(
            lambda: not any(each.peer.endswith(f":{port}") for each in connections(broker)), "it is gone"
        )


def test_a_muted_connection_that_its_client_closes_is_noticed(broker, free):
    with muted_client(broker, free) as client:
        port = client._socket.getsockname()[1]
        assert any(each.peer.endswith(f":{port}") for each in connections(broker))
    eventually(lambda: not any(each.peer.endswith(f":{port}") for each in connections(broker)), "it is gone")


def test_a_muted_connection_is_closed_when_it_is_idle_for_long():
    with running(settings={"connections.max.idle.ms": 400}) as broker:
        with connect(broker, FREE) as free:
            muted = muted_client(broker, free)
        with muted, pytest.raises(ConnectionError):
            muted.receive_frame()


def test_a_broker_stops_without_waiting_for_muted_connections():
    with running() as broker, connect(broker, FREE) as free:
        muted = muted_client(broker, free)
        free.close()
        broker.call(broker.server.stop(keep_store=True, patience_s=600), timeout_s=60)
        with muted, pytest.raises(ConnectionError):
            muted.receive_frame()


def test_a_broker_without_quotas_has_none_and_loses_the_last_one(broker, free):
    assert broker.server.broker.quotas is None
    alter(free, {"user": "u"}, {"producer_byte_rate": 1.0})
    assert broker.server.broker.quotas
    alter(free, {"user": "u"}, {"producer_byte_rate": None})
    assert broker.server.broker.quotas is None
