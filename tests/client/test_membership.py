"""What transcripts cannot show well: the table of states, the settings, callbacks, clocks, the leader's snapshot."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kohort.client.config import CONSUMER, read_config
from kohort.client.core.backoff import Backoff
from kohort.client.core.cluster import Cluster, Node, PartitionInfo, TopicInfo
from kohort.client.core.effects import Answer, Lane, Outbox
from kohort.client.core.metadata import Metadata
from kohort.client.errors import IllegalState
from kohort.client.group.assignors import Assignor, RebalanceProtocol, load_assignors
from kohort.client.group.assignors.assignor import TopicPartitions
from kohort.client.group.callbacks import CallbackKind, Callbacks, names
from kohort.client.group.coordinator import GroupCoordinator
from kohort.client.group.heartbeats import Heartbeats
from kohort.client.group.leadership import difference, snapshot, topic_partitions
from kohort.client.group.member_state import TRANSITIONS, MemberState
from kohort.client.group.membership import Membership
from kohort.client.group.refusals import code_name, refusal, seconds
from kohort.client.offsets.subscription import SubscriptionState
from kohort.client.types import GroupMetadata, TopicPartition
from kohort.settings import SettingError
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.join_group import JoinGroupResponse
from tests.client.transcript import Script

T0, T1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def stage(*lines: str) -> Script:
    made = Script()
    for line in ("cluster orders=2", "subscribe orders", *lines):
        made.run(line)
    return made


STABLE = ("poll", "find 1", "join m-1 4", "sync orders/0 orders/1", "called")


def make(assignors: list[str | type[Assignor] | Assignor]) -> Membership:
    config, _ = read_config(CONSUMER, {"bootstrap.servers": "b:1", "group.id": "g"}, {})
    out: Outbox = []
    metadata = Metadata(out, config, lambda: 0.5)
    coordinator = GroupCoordinator(out, config, metadata, lambda: 0.5)
    return Membership(
        out,
        config,
        coordinator,
        SubscriptionState(),
        metadata,
        load_assignors(assignors),
        lambda now_ms: True,
        lambda: 0.5,
    )


# --- the table -------------------------------------------------------------------------------------------


def test_every_state_is_in_the_table_and_can_be_reached() -> None:
    assert set(TRANSITIONS) == set(MemberState)
    reached = {MemberState.UNJOINED}
    while more := {after for state in reached for after in TRANSITIONS[state]} - reached:
        reached |= more
    assert reached == set(MemberState)


def test_nothing_follows_being_fenced() -> None:
    assert TRANSITIONS[MemberState.FENCED] == frozenset()


def test_a_transition_that_is_not_in_the_table_is_our_own_mistake() -> None:
    made = make(["range"])
    with pytest.raises(AssertionError, match="UNJOINED"):
        made.become(replace(made.status, state=MemberState.SYNCING))


def test_the_status_is_one_value_that_is_replaced_as_a_whole() -> None:
    s = stage(*STABLE)
    stable = s.membership.status
    s.run("rejoin somebody asked for it")
    assert stable.rejoin_reason is None
    assert s.membership.status == replace(stable, rejoin_reason="somebody asked for it")
    assert "STABLE" in repr(stable)
    assert "generation_id=4" in repr(stable)


# --- construction ------------------------------------------------------------------------------------------


def test_the_protocol_is_one_that_every_assignor_supports() -> None:
    assert make(["range", "cooperative-sticky"]).protocol is RebalanceProtocol.EAGER
    assert make(["cooperative-sticky"]).protocol is RebalanceProtocol.COOPERATIVE


def test_a_mix_without_a_common_protocol_fails_at_construction() -> None:
    class OnlyCooperative(Assignor):
        name = "only-cooperative"
        protocols = (RebalanceProtocol.COOPERATIVE,)

    with pytest.raises(SettingError, match="only-cooperative"):
        make(["range", OnlyCooperative])


# --- what others ask ---------------------------------------------------------------------------------------


def test_group_metadata_says_who_this_is() -> None:
    assert make(["range"]).group_metadata() == GroupMetadata("g", -1, "", None)
    assert stage(*STABLE).membership.group_metadata() == GroupMetadata("g", 4, "m-1", None)


def test_its_repr_prints_everything_one_wants_to_know() -> None:
    shown = repr(stage(*STABLE).membership)
    for word in ("STABLE", "m-1", "generation 4", "follower by range", "orders-0, orders-1", "node 1"):
        assert word in shown


def test_a_tick_that_comes_again_does_nothing_more() -> None:
    s = stage(*STABLE)
    s.now_ms = 3_000
    for _ in range(3):
        s.membership.tick(3_000)
        s.membership.tick_background(3_000)
    assert [send.purpose for send in s.out] == ["membership.heartbeat"]


def test_all_requests_of_the_group_go_on_its_own_lane() -> None:
    s = stage("poll", "find 1")
    assert [(send.purpose, send.lane) for send in s.waiting] == [("membership.join", Lane.GROUP)]


def test_before_the_first_poll_nothing_is_sent() -> None:
    s = stage("at +10000")
    assert s.waiting == []
    assert s.membership.rebalance_due
    assert s.membership.wants_poll


def test_rebalance_is_due_from_the_heartbeat_on_and_wants_a_poll() -> None:
    s = stage(*STABLE)
    assert (s.membership.is_stable, s.membership.rebalance_due) == (True, False)
    for line in ("at +3000", "heartbeat REBALANCE_IN_PROGRESS"):
        s.run(line)
    assert s.membership.rebalance_due
    assert s.membership.wants_poll
    s.run("poll")
    assert s.membership.state is MemberState.CALLING_BACK


@pytest.mark.parametrize(
    ("lines", "may_commit", "in_progress"),
    [
        ((), False, False),
        (("poll", "find 1"), False, True),
        (("poll", "find 1", "join m-1 4"), False, True),
        (("poll", "find 1", "join m-1 4", "sync orders/0"), True, False),
        (STABLE, True, False),
        ((*STABLE, "rejoin x", "poll"), True, False),
        ((*STABLE, "rejoin x", "poll", "called"), False, True),
        ((*STABLE, "at +3000", "heartbeat UNKNOWN_MEMBER_ID"), False, False),
    ],
)
def test_commits_are_taken_while_the_generation_is_whole(
    lines: tuple[str, ...], may_commit: bool, in_progress: bool
) -> None:
    m = stage(*lines).membership
    assert (m.may_commit, m.rebalance_in_progress) == (may_commit, in_progress)


def test_the_clock_of_left_because_goes_on_until_the_next_poll() -> None:
    s = Script()
    for line in ("set max.poll.interval.ms=300000", "cluster orders=1", "subscribe orders", *STABLE):
        s.run(line)
    s.now_ms = 300_000
    s.membership.tick_background(300_000)
    expected = "poll was not called for 312 s (max.poll.interval.ms is 300 s)"
    assert s.membership.why_left(312_000) == expected
    s.membership.poll(312_000)
    assert s.membership.why_left(400_000) == expected


def test_after_a_join_that_failed_for_good_a_rebalance_is_in_progress() -> None:
    m = stage(*STABLE, "rejoin x", "poll", "called", "join GROUP_MAX_SIZE_REACHED").membership
    assert (m.state, m.may_commit, m.rebalance_in_progress) == (MemberState.UNJOINED, False, True)


def test_a_reset_after_which_nothing_is_lost_revokes() -> None:
    s = stage(*STABLE)
    s.membership.reset_generation("somebody knows better", lost=False)
    s.run("poll")
    assert s.membership.callback is not None
    assert s.membership.callback.kind is CallbackKind.REVOKED


def test_a_user_that_closes_inside_of_a_callback() -> None:
    s = stage("poll", "find 1", "join m-1 4", "sync orders/0")
    assert s.membership.callback is not None
    s.membership.leave("closed in on_assigned", 0)
    s.membership.called_back(None, 0)
    assert s.membership.state is MemberState.LEAVING


def test_an_error_code_that_is_newer_than_this_client_is_raised() -> None:
    s = stage("poll", "find 1")
    (send,) = s.waiting
    send.on_answer(Answer(send, 9, JoinGroupResponse(error_code=999)), 0)
    assert "error 999" in str(s.membership.take_error())
    assert code_name(999) == "error 999"


def test_a_fenced_member_can_be_closed_without_an_error() -> None:
    s = Script()
    for line in ("set group.instance.id=i", "cluster orders=1", "subscribe orders", *STABLE):
        s.run(line)
    for line in ("at +3000", "heartbeat FENCED_INSTANCE_ID"):
        s.run(line)
    operation = s.membership.leave("closed", s.now_ms)
    s.membership.called_back(None, s.now_ms)
    assert operation.done
    assert s.membership.take_error() is None


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (ErrorCode.FENCED_INSTANCE_ID, "group.instance.id"),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, "group.max.size"),
        (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "partition.assignment.strategy"),
        (ErrorCode.INVALID_SESSION_TIMEOUT, "group.min.session.timeout.ms and group.max.session.timeout.ms"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "READ"),
        (ErrorCode.INVALID_GROUP_ID, "use another name"),
    ],
)
def test_every_refusal_says_what_to_do(code: ErrorCode, words: str) -> None:
    config, _ = read_config(CONSUMER, {"bootstrap.servers": "b:1", "group.id": "g"}, {})
    assert words in str(refusal(code, "JoinGroup", config, ["range"]))


def test_durations_are_written_for_people() -> None:
    assert [seconds(ms) for ms in (312_000, 312_400, 5_000, 500)] == ["312 s", "312 s", "5 s", "0.5 s"]


# --- callbacks ---------------------------------------------------------------------------------------------


def test_callbacks_run_in_order_with_what_belongs_before_and_after_each() -> None:
    seen: list[str] = []
    callbacks = Callbacks()
    callbacks.add(CallbackKind.REVOKED, [T1, T0], after=lambda: seen.append("after revoked"))
    callbacks.add(CallbackKind.ASSIGNED, [], before=lambda: seen.append("before assigned"))
    callbacks.begin()
    assert str(callbacks.current) == "revoked orders-0, orders-1"
    assert seen == []
    assert not callbacks.done(ValueError("first"))
    assert seen == ["after revoked", "before assigned"]
    assert str(callbacks.current) == "assigned nothing"
    assert callbacks.done(ValueError("second"))
    assert str(callbacks.take_error()) == "first"
    assert callbacks.take_error() is None


def test_what_the_assignor_raises_on_its_assignment_does_not_stop_the_callback() -> None:
    class Touchy(Assignor):
        name = "touchy"

        def on_assignment(self, assignment: object, generation_id: int) -> None:
            raise RuntimeError("cannot take it")

        def assign(self, cluster: TopicPartitions, members: object) -> dict:  # type: ignore[type-arg]
            raise IllegalState("is no leader here")

    s = stage()
    s.membership.assignors = (Touchy(),)
    s.assignors = "touchy"
    for line in ("poll", "find 1", "join m-1 1", "sync orders/0"):
        s.run(line)
    assert s.membership.callback is not None
    s.run("called")
    assert s.membership.is_stable
    assert str(s.membership.take_error()) == "cannot take it"


def test_keyboard_interrupt_is_not_kept_as_an_error() -> None:
    callbacks = Callbacks()
    callbacks.add(CallbackKind.LOST, [T0])
    assert callbacks.done(KeyboardInterrupt())
    assert callbacks.take_error() is None


def test_no_partitions_are_nothing() -> None:
    assert names([]) == "nothing"


# --- clocks ------------------------------------------------------------------------------------------------


def classic_clocks() -> Heartbeats:
    return Heartbeats(
        interval_ms=3_000,
        session_timeout_ms=10_000,
        max_poll_interval_ms=60_000,
        backoff=Backoff(100, 1_000, lambda: 0.5),
    )


def test_a_heartbeat_is_due_after_the_interval_and_only_one_is_under_way() -> None:
    clocks = classic_clocks()
    clocks.joined(1_000)
    assert not clocks.is_due(3_999)
    assert clocks.is_due(4_000)
    clocks.send(4_000)
    assert not clocks.is_due(9_000)
    clocks.received(9_000)
    assert clocks.is_due(9_000)
    assert clocks.session_deadline_ms == 19_000


def test_failed_heartbeats_come_again_after_a_growing_backoff() -> None:
    clocks = classic_clocks()
    clocks.joined(0)
    waits = []
    for _ in range(5):
        clocks.send(0)
        clocks.failed(0)
        waits.append(clocks.next_ms)
    assert waits == [100, 200, 400, 800, 1_000]


# --- the leader --------------------------------------------------------------------------------------------


def cluster(racks: tuple[str | None, ...], replicas: dict[int, tuple[int, ...]]) -> Cluster:
    nodes = {i: Node(i, f"b{i}", 9092, rack) for i, rack in enumerate(racks)}
    partitions = {p: PartitionInfo(its[0], 0, its, its) for p, its in replicas.items()}
    return Cluster(nodes=nodes, topics={"orders": TopicInfo("orders", partitions=partitions)}, version=1)


def test_the_assignor_gets_counts_and_racks() -> None:
    known = topic_partitions(cluster(("r0", "r1", None), {0: (0, 1), 1: (1, 2)}))
    assert known.counts == {"orders": 2}
    assert known.racks == {T0: frozenset({"r0", "r1"}), T1: frozenset({"r1"})}
    assert topic_partitions(cluster((None,), {0: (0,)})).racks == {}


def test_a_change_of_racks_matters_only_to_a_leader_with_a_rack() -> None:
    before, after = cluster(("r0", "r1"), {0: (0,)}), cluster(("r0", "r1"), {0: (1,)})
    assert snapshot(before, ["orders"], True) != snapshot(after, ["orders"], True)
    assert snapshot(before, ["orders"], False) == snapshot(after, ["orders"], False)


def test_a_change_is_told_in_words() -> None:
    one = snapshot(cluster((None,), {0: (0,)}), ["orders"], False)
    two = snapshot(cluster((None,), {0: (0,), 1: (0,)}), ["orders"], False)
    assert difference(one, two) == "orders has 2 partitions instead of 1"
    assert difference(one, {}) == "orders has 0 partitions instead of 1"
