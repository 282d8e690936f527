"""A consumer in a group that goes wrong: every group API answered with every error it may have, members thrown out."""

from __future__ import annotations

import re
import threading
import time

import pytest

from kohort import (
    AuthorizationFailed,
    CommitFailed,
    Consumer,
    FencedInstanceId,
    KafkaError,
    RebalanceInProgress,
    TimedOut,
    TopicPartition,
)
from kohort.broker.broker import Broker
from kohort.broker.call import Call
from kohort.testing import Kafka
from kohort.testing.faults import Match
from kohort.testing.groups import end_session
from kohort.wire.errors import ErrorCode
from tests.client.consuming import PATIENCE_S, Told, joined, poll_until, quick, read, times_out, within
from tests.clients.process import eventually

COORDINATOR_MOVED = ("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE")
T0 = TopicPartition("t", 0)


@pytest.fixture
def three(kafka: Kafka) -> Kafka:
    """A topic with three records."""
    kafka.create_topic("t")
    kafka.produce("t", ["a", "b", "c"])
    return kafka


# --- what a consumer recovers from by itself -----------------------------------------------------------

RECOVERED = [
    ("FindCoordinator", "COORDINATOR_NOT_AVAILABLE"),
    ("FindCoordinator", "COORDINATOR_LOAD_IN_PROGRESS"),
    ("JoinGroup", "COORDINATOR_LOAD_IN_PROGRESS"),
    ("JoinGroup", "NOT_COORDINATOR"),
    ("JoinGroup", "COORDINATOR_NOT_AVAILABLE"),
    ("JoinGroup", "UNKNOWN_MEMBER_ID"),
    ("JoinGroup", "ILLEGAL_GENERATION"),
    ("JoinGroup", "REBALANCE_IN_PROGRESS"),
    ("SyncGroup", "COORDINATOR_LOAD_IN_PROGRESS"),
    ("SyncGroup", "NOT_COORDINATOR"),
    ("SyncGroup", "COORDINATOR_NOT_AVAILABLE"),
    ("SyncGroup", "ILLEGAL_GENERATION"),
    ("SyncGroup", "REBALANCE_IN_PROGRESS"),
    ("OffsetFetch", "COORDINATOR_LOAD_IN_PROGRESS"),
    ("OffsetFetch", "NOT_COORDINATOR"),
    ("OffsetFetch", "COORDINATOR_NOT_AVAILABLE"),
    ("OffsetFetch", "UNSTABLE_OFFSET_COMMIT"),
    ("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS"),
    ("OffsetCommit", "NOT_COORDINATOR"),
    ("OffsetCommit", "COORDINATOR_NOT_AVAILABLE"),
    ("OffsetCommit", "REQUEST_TIMED_OUT"),
    ("OffsetCommit", "UNKNOWN_TOPIC_OR_PARTITION"),
    ("ListOffsets", "NOT_LEADER_OR_FOLLOWER"),
    ("ListOffsets", "UNKNOWN_TOPIC_OR_PARTITION"),
    ("ListOffsets", "FENCED_LEADER_EPOCH"),
    ("ListOffsets", "UNKNOWN_LEADER_EPOCH"),
    ("Fetch", "NOT_LEADER_OR_FOLLOWER"),
    ("Fetch", "UNKNOWN_TOPIC_OR_PARTITION"),
    ("Fetch", "FENCED_LEADER_EPOCH"),
    ("Fetch", "UNKNOWN_LEADER_EPOCH"),
    ("Fetch", "KAFKA_STORAGE_ERROR"),
    ("Fetch", "FETCH_SESSION_ID_NOT_FOUND"),
    ("Fetch", "INVALID_FETCH_SESSION_EPOCH"),
    ("Fetch", "FETCH_SESSION_TOPIC_ID_ERROR"),
    ("Fetch", "INCONSISTENT_TOPIC_ID"),
    ("Fetch", "UNKNOWN_TOPIC_ID"),
    ("Fetch", "OFFSET_NOT_AVAILABLE"),
    ("Fetch", "UNKNOWN_SERVER_ERROR"),
    ("Metadata", "LEADER_NOT_AVAILABLE"),
    ("Metadata", "UNKNOWN_TOPIC_OR_PARTITION"),
]


@pytest.mark.parametrize(("api", "error"), RECOVERED)
def test_an_error_that_passes_is_not_the_users_business(three: Kafka, api: str, error: str) -> None:
    fault = three.fail(api, with_error=error, times=2)
    with quick(three.bootstrap_servers, "g", enable_auto_commit=False) as consumer:
        consumer.subscribe(["t"])
        assert read(consumer, 3) == [b"a", b"b", b"c"]
        consumer.commit(timeout=PATIENCE_S)
    assert fault.hits == 2
    assert three.committed("g", "t") == {0: 3}


@pytest.mark.parametrize("api", ["FindCoordinator", "JoinGroup", "SyncGroup", "OffsetFetch", "OffsetCommit"])
@pytest.mark.parametrize("after_handling", [False, True])
def test_a_lost_request_or_answer_is_not_the_users_business(
    three: Kafka, api: str, after_handling: bool
) -> None:
    fault = three.disconnect(api, times=2, after_handling=after_handling)
    with quick(three.bootstrap_servers, "g", enable_auto_commit=False) as consumer:
        consumer.subscribe(["t"])
        assert read(consumer, 3) == [b"a", b"b", b"c"]
        consumer.commit(timeout=PATIENCE_S)
    assert fault.hits == 2
    assert three.committed("g", "t") == {0: 3}
    assert three.group("g").members == []


@pytest.mark.parametrize("error", [*COORDINATOR_MOVED, "COORDINATOR_LOAD_IN_PROGRESS"])
def test_a_heartbeat_that_does_not_arrive_changes_nothing(three: Kafka, error: str) -> None:
    told = Told()
    with quick(three.bootstrap_servers, "g") as consumer:
        consumer.subscribe(["t"], **told.callbacks)
        joined(consumer)
        fault = three.fail("Heartbeat", with_error=error, times=2)
        poll_until(consumer, lambda: fault.hits == 2, "two heartbeats fail")
        three.clear()
        three.wait_for_request("Heartbeat", count=2, timeout=PATIENCE_S)
        assert consumer.group_metadata().generation_id == 1
        assert told.kinds == ["assigned"]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("ILLEGAL_GENERATION", ["assigned", "lost", "assigned"]),
        ("REBALANCE_IN_PROGRESS", ["assigned", "revoked", "assigned"]),
    ],
)
def test_a_heartbeat_that_tells_of_a_rebalance_makes_it_rejoin(
    three: Kafka, error: str, expected: list[str]
) -> None:
    told = Told()
    with quick(three.bootstrap_servers, "g") as consumer:
        consumer.subscribe(["t"], **told.callbacks)
        joined(consumer)
        three.fail("Heartbeat", with_error=error)
        poll_until(consumer, lambda: told.kinds == expected, "it has rejoined")
        assert three.group("g").state == "Stable"


# --- what is raised, and what it says -------------------------------------------------------------------

RAISED = [
    ("JoinGroup", "GROUP_MAX_SIZE_REACHED", r"run fewer consumers, or raise group\.max\.size"),
    ("JoinGroup", "INCONSISTENT_GROUP_PROTOCOL", r"partition\.assignment\.strategy in common"),
    ("JoinGroup", "INVALID_SESSION_TIMEOUT", r"group\.min\.session\.timeout\.ms"),
    ("JoinGroup", "GROUP_AUTHORIZATION_FAILED", "give this user READ"),
    ("JoinGroup", "INVALID_GROUP_ID", "use another name"),
    ("SyncGroup", "GROUP_AUTHORIZATION_FAILED", "give this user READ"),
    ("FindCoordinator", "GROUP_AUTHORIZATION_FAILED", "READ|DESCRIBE"),
    ("OffsetFetch", "GROUP_AUTHORIZATION_FAILED", "group g"),
    ("Fetch", "TOPIC_AUTHORIZATION_FAILED", "READ"),
    ("ListOffsets", "TOPIC_AUTHORIZATION_FAILED", "t"),
    ("Metadata", "TOPIC_AUTHORIZATION_FAILED", "not allowed to see t: this user needs READ"),
    ("Metadata", "INVALID_TOPIC_EXCEPTION", "no topic of such a name: t"),
]


@pytest.mark.parametrize(("api", "error", "words"), RAISED)
def test_an_error_for_the_user_is_raised_by_poll_and_says_what_to_do(
    three: Kafka, api: str, error: str, words: str
) -> None:
    fault = three.fail(api, with_error=error, times=None)
    with quick(three.bootstrap_servers, "g") as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(KafkaError, match=words) as raised:
            consumer.poll(PATIENCE_S)
        assert raised.value.code is ErrorCode[error]
        if "AUTHORIZATION" in error:
            assert isinstance(raised.value, AuthorizationFailed)
        fault.remove()  # somebody did what it says
        assert read(consumer, 3) == [b"a", b"b", b"c"]


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        ("UNKNOWN_MEMBER_ID", CommitFailed, "no member of it any more.*processed twice.*call poll"),
        ("ILLEGAL_GENERATION", CommitFailed, "finished another rebalance.*processed twice.*call poll"),
        ("REBALANCE_IN_PROGRESS", RebalanceInProgress, r"rebalancing\. Call poll\(\).*processed twice"),
        ("FENCED_INSTANCE_ID", FencedInstanceId, r"same group\.instance\.id"),
        ("GROUP_AUTHORIZATION_FAILED", AuthorizationFailed, "READ on the group"),
        ("TOPIC_AUTHORIZATION_FAILED", AuthorizationFailed, "topics t: it needs READ"),
        ("OFFSET_METADATA_TOO_LARGE", KafkaError, r"offset\.metadata\.max\.bytes"),
        ("INVALID_COMMIT_OFFSET_SIZE", KafkaError, "commit fewer partitions at once"),
        ("UNKNOWN_SERVER_ERROR", KafkaError, "committing t-0"),
    ],
)
def test_a_commit_that_is_refused_says_what_it_means(
    three: Kafka, error: str, kind: type[Exception], words: str
) -> None:
    consumer = quick(three.bootstrap_servers, "g", enable_auto_commit=False)
    with consumer:
        consumer.subscribe(["t"])
        read(consumer, 3)
        three.fail("OffsetCommit", with_error=error)
        with pytest.raises(kind, match=re.compile(words, re.DOTALL)) as raised:
            consumer.commit(timeout=PATIENCE_S)
        assert raised.value.code is ErrorCode[error]  # type: ignore[attr-defined]


def test_a_commit_that_never_gets_through_ends_with_the_callers_time(three: Kafka) -> None:
    with quick(three.bootstrap_servers, "g", enable_auto_commit=False) as consumer:
        consumer.subscribe(["t"])
        read(consumer, 3)
        with three.fail("OffsetCommit", with_error="COORDINATOR_LOAD_IN_PROGRESS", times=None):
            times_out(lambda timeout: consumer.commit(timeout=timeout), "COORDINATOR_LOAD_IN_PROGRESS", 0.5)
        consumer.commit(timeout=PATIENCE_S)
        with three.delay("OffsetFetch", ms=60_000), within(0.3), pytest.raises(TimedOut):
            consumer.committed(T0, timeout=0.3)
        consumer.close(timeout=0)  # its connection to the coordinator waits for that answer


@pytest.mark.kafka(group_max_size=1)
def test_the_broker_takes_only_so_many_members(three: Kafka) -> None:
    with quick(three.bootstrap_servers, "g") as first, quick(three.bootstrap_servers, "g") as second:
        first.subscribe(["t"])
        joined(first)
        second.subscribe(["t"])
        with pytest.raises(KafkaError, match=r"group\.max\.size") as raised:
            second.poll(PATIENCE_S)
        assert raised.value.code is ErrorCode.GROUP_MAX_SIZE_REACHED
        first.close()
        assert joined(second).assignment() == {T0}


def test_a_member_whose_assignors_nobody_else_has_is_told(three: Kafka) -> None:
    strategy = {"partition_assignment_strategy": "roundrobin"}
    with (
        quick(three.bootstrap_servers, "g", partition_assignment_strategy="range") as first,
        quick(three.bootstrap_servers, "g", **strategy) as second,
    ):
        first.subscribe(["t"])
        joined(first)
        second.subscribe(["t"])
        with pytest.raises(KafkaError, match=r"none of this consumer's assignors \(roundrobin\)") as raised:
            second.poll(PATIENCE_S)
        assert raised.value.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_session_that_the_broker_does_not_allow(three: Kafka) -> None:
    with quick(three.bootstrap_servers, "g", session_timeout_ms=100) as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(KafkaError, match=r"session\.timeout\.ms is 100") as raised:
            consumer.poll(PATIENCE_S)
        assert raised.value.code is ErrorCode.INVALID_SESSION_TIMEOUT


def test_a_fenced_static_member_is_told_every_time_and_can_be_closed(three: Kafka) -> None:
    told = Told()
    first = quick(three.bootstrap_servers, "g", group_instance_id="me")
    second = quick(three.bootstrap_servers, "g", group_instance_id="me")
    first.subscribe(["t"], **told.callbacks)
    joined(first)
    second.subscribe(["t"])
    joined(second)
    for _ in range(2):
        with pytest.raises(FencedInstanceId, match=r"give each consumer an id of its own|Give every running"):
            poll_until(first, lambda: False, "it hears of it")
    with pytest.raises(FencedInstanceId):
        first.commit({T0: 1}, timeout=PATIENCE_S)
    assert told.kinds == ["assigned", "lost"]
    with within(0):
        first.close()
    assert len(three.group("g").members) == 1
    second.close()


# --- members that are thrown out --------------------------------------------------------------------------


def test_a_member_that_was_given_up_loses_its_partitions_and_comes_back(three: Kafka) -> None:
    told = Told()
    with quick(three.bootstrap_servers, "g", enable_auto_commit=False) as consumer:
        consumer.subscribe(["t"], **told.callbacks)
        joined(consumer)
        before = consumer.group_metadata()
        three.advance(45_001)  # the session is over
        with pytest.raises(CommitFailed, match="processed twice"):
            consumer.commit({T0: 1}, timeout=PATIENCE_S)
        poll_until(consumer, lambda: told.kinds == ["assigned", "lost", "assigned"], "it has it again")
        after = consumer.group_metadata()
        assert after.member_id != before.member_id
        consumer.commit({T0: 1}, timeout=PATIENCE_S)


class GivenUp(Match):
    """Any request, and the coordinator gives the member up that sends it: on the broker's thread, so just before."""

    def fits(self, broker: Broker, call: Call) -> bool:
        end_session(broker, call.request.member_id)
        return True


def test_a_member_that_the_coordinator_removed_while_it_synced_joins_anew(three: Kafka) -> None:
    told = Told()
    with quick(three.bootstrap_servers, "g") as consumer:
        consumer.subscribe(["t"], **told.callbacks)
        three.delay("SyncGroup", ms=1, times=1).match = GivenUp()
        assert read(consumer, 3) == [b"a", b"b", b"c"]
        assert told.kinds == ["assigned"]  # there was nothing to lose
        assert len(three.group("g").members) == 1


def test_a_member_that_was_removed_hears_so_by_its_heartbeat(three: Kafka) -> None:
    told = Told()
    with quick(three.bootstrap_servers, "g") as consumer:
        consumer.subscribe(["t"], **told.callbacks)
        joined(consumer)
        three.kill_member(three.group("g").members[0])
        poll_until(consumer, lambda: told.kinds == ["assigned", "lost", "assigned"], "it has rejoined")


def test_a_rebalance_that_somebody_asks_for_commits_first(three: Kafka) -> None:
    told = Told()
    with quick(three.bootstrap_servers, "g") as consumer:
        consumer.subscribe(["t"], **told.callbacks)
        assert read(consumer, 3) == [b"a", b"b", b"c"]
        three.rebalance("g")
        poll_until(consumer, lambda: told.kinds == ["assigned", "revoked", "assigned"], "it has rejoined")
        assert three.committed("g", "t") == {0: 3}
        assert consumer.position(T0, timeout=PATIENCE_S) == 3


def test_who_does_not_poll_in_time_leaves_and_is_told_why(three: Kafka) -> None:
    told = Told()
    settings = {"max_poll_interval_ms": 300, "enable_auto_commit": False}
    with quick(three.bootstrap_servers, "g", **settings) as consumer:
        consumer.subscribe(["t"], **told.callbacks)
        read(consumer, 3)
        three.group("g").wait_empty(timeout=PATIENCE_S)  # the user's code works too long
        before = len(told.calls)  # more than one if the machine stood still so long before
        left = three.requests("LeaveGroup")[0].message
        assert "poll timeout has expired" in left.members[0].reason
        with pytest.raises(CommitFailed) as raised:
            consumer.commit(timeout=PATIENCE_S)
        words = str(raised.value)
        assert re.search(r"poll was not called for \d+\.\d s \(max\.poll\.interval\.ms is 0\.3 s\)", words), (
            words
        )
        assert "lower max.poll.records" in words
        again = poll_until(
            consumer, lambda: told.kinds[before:][:2] == ["lost", "assigned"], "it has it again"
        )
        assert told.kinds[:2] == ["assigned", "lost"]
        values = [record.value for record in again]
        values += read(consumer, 3 - len(values))
        assert values[:3] == [b"a", b"b", b"c"]  # nothing was committed


def test_heartbeats_go_on_while_the_user_works(three: Kafka) -> None:
    told = Told()
    with quick(three.bootstrap_servers, "g") as consumer:
        consumer.subscribe(["t"], **told.callbacks)
        read(consumer, 3)
        three.clear()
        three.wait_for_request("Heartbeat", count=5, timeout=PATIENCE_S)  # nobody polls meanwhile
        assert three.group("g").state == "Stable"
        assert consumer.poll(0.05) == {}
        assert told.kinds == ["assigned"]


def test_heartbeats_go_on_in_a_callback(three: Kafka) -> None:
    beats: list[int] = []

    def assigned(partitions: list[TopicPartition]) -> None:
        three.clear()
        three.wait_for_request("Heartbeat", count=3, timeout=PATIENCE_S)
        beats.append(len(three.requests("Heartbeat")))

    with quick(three.bootstrap_servers, "g") as consumer:
        consumer.subscribe(["t"], on_assigned=assigned)
        joined(consumer)
        assert beats
        assert beats[0] >= 3


def test_a_position_is_found_also_between_the_assignment_and_the_callback_that_tells_of_it(
    three: Kafka,
) -> None:
    """The background thread has heard of the assignment; the next poll calls back."""
    told = Told()
    with quick(three.bootstrap_servers, "g") as consumer:
        consumer.subscribe(["t"], **told.callbacks)
        slow = three.delay("SyncGroup", ms=100, times=1)
        eventually(lambda: slow.hits or consumer.poll(0), "it syncs")
        eventually(lambda: consumer._core.subscription.partitions, "it has its partition")
        assert (consumer.assignment() == {T0}) == bool(told.calls)  # both come with the next poll
        assert consumer.position(T0, timeout=PATIENCE_S / 2) == 0
        assert read(consumer, 3) == [b"a", b"b", b"c"]
        assert told.kinds == ["assigned"]
        assert consumer.assignment() == {T0}


def test_a_topic_that_is_deleted_and_made_again_is_read_from_its_beginning(three: Kafka) -> None:
    from kohort import Admin

    with (
        Admin(bootstrap_servers=three.bootstrap_servers) as admin,
        quick(
            three.bootstrap_servers, "g", metadata_max_age_ms=100, allow_auto_create_topics=False
        ) as consumer,
    ):
        consumer.subscribe(["t"])
        assert read(consumer, 3) == [b"a", b"b", b"c"]
        admin.delete_topics("t")
        poll_until(consumer, lambda: not consumer.assignment(), "its partition is gone")
        three.create_topic("t", partitions=2)
        three.produce("t", [{"value": "x", "partition": 0}, {"value": "y", "partition": 1}])
        assert sorted(read(consumer, 2)) == [b"x", b"y"]


def test_a_topic_that_is_deleted_and_made_again_at_once(three: Kafka) -> None:
    from kohort import Admin

    with (
        Admin(bootstrap_servers=three.bootstrap_servers) as admin,
        quick(three.bootstrap_servers, metadata_max_age_ms=100) as consumer,
    ):
        consumer.assign([T0])
        assert read(consumer, 3) == [b"a", b"b", b"c"]
        admin.delete_topics("t")
        three.create_topic("t")
        three.produce("t", ["x"])
        assert read(consumer, 1) == [b"x"]


def test_all_waits_end_with_the_callers_time_while_the_group_does_not_settle(three: Kafka) -> None:
    consumer = quick(three.bootstrap_servers, "g")
    consumer.subscribe(["t"])
    with three.fail("JoinGroup", with_error="COORDINATOR_LOAD_IN_PROGRESS", times=None):
        for timeout in (0.0, 0.2):
            with within(timeout):
                assert consumer.poll(timeout) == {}
        with within(1):
            consumer.close(timeout=1)


def test_polls_without_any_time_get_there_too(three: Kafka) -> None:
    with quick(three.bootstrap_servers, "g") as consumer:
        consumer.subscribe(["t"])
        records: list[bytes] = []

        def poll() -> bool:
            for some in consumer.poll(0).values():
                records.extend(record.value for record in some)
            return len(records) == 3

        eventually(poll, "all records come", PATIENCE_S)
        assert records == [b"a", b"b", b"c"]


def test_a_poll_returns_early_when_a_rebalance_is_due(three: Kafka) -> None:
    with quick(three.bootstrap_servers, "g") as consumer:
        consumer.subscribe(["t"])
        read(consumer, 3)

        def rebalance() -> (
            None
        ):  # once it is in the poll: outside of polls there is at most the fetch after `read`
            three.wait_for_request("Fetch", count=3, timeout=PATIENCE_S)
            three.rebalance("g")

        three.clear()
        other = threading.Thread(target=rebalance)
        other.start()
        with within(PATIENCE_S / 2):
            assert consumer.poll(PATIENCE_S) == {}
        other.join()
        poll_until(consumer, lambda: three.group("g").generation == 2, "it rejoined")


def make_consumers(kafka: Kafka, count: int, **settings: object) -> list[Consumer]:
    return [quick(kafka.bootstrap_servers, "g", **settings) for _ in range(count)]


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_callback_that_raises_stops_neither_the_group_nor_the_others(three: Kafka, strategy: str) -> None:
    three.create_topic("u", partitions=4)
    one, two = make_consumers(three, 2, partition_assignment_strategy=strategy)

    def fail(partitions: list[TopicPartition]) -> None:
        raise RuntimeError("the user's own mistake")

    one.subscribe(["u"], on_assigned=fail, on_revoked=fail)
    with pytest.raises(RuntimeError, match="own mistake"):
        poll_until(one, lambda: False, "the callback fails")
    assert len(one.assignment()) == 4
    two.subscribe(["u"])
    failures = 0
    deadline = time.monotonic() + PATIENCE_S
    while not len(one.assignment()) == len(two.assignment()) == 2:
        assert time.monotonic() < deadline, "they do not come to share"
        two.poll(0.02)
        try:
            one.poll(0.02)
        except RuntimeError:
            failures += 1
    assert failures >= 1
    with pytest.raises(RuntimeError, match="own mistake"):
        one.close(timeout=PATIENCE_S)
    two.close(timeout=PATIENCE_S)
    three.group("g").wait_empty(timeout=PATIENCE_S)
