"""What transcripts cannot show well: the tables, the hash, limits, JSON, the runtime."""

from dataclasses import replace

import pytest

from kohort.coordinator import events as ev
from kohort.coordinator.classic.state import ANSWERS, TRANSITIONS, GroupState, diagram
from kohort.coordinator.effects import (
    Append,
    CommitResponse,
    HeartbeatResponse,
    JoinResponse,
    Reply,
    Response,
)
from kohort.coordinator.history import LONGEST_REASON, LOST, GroupHistory, Rebalance
from kohort.coordinator.runtime import Done, Runtime
from kohort.coordinator.settings import Settings, partition_for
from kohort.coordinator.shard import Shard
from kohort.wire.errors import ErrorCode


@pytest.mark.parametrize(
    ("group_id", "java_hash"),
    [("", 0), ("a", 97), ("hello", 99162322), ("ä", 228), ("😀", 0xD83D * 31 + 0xDE00)],
)
def test_the_partition_of_a_group_is_that_of_java(group_id: str, java_hash: int) -> None:
    assert partition_for(group_id, 50) == java_hash % 50


def test_the_smallest_java_hash_is_partition_0() -> None:
    """ "polygenelubricants".hashCode() is -2^31, whose absolute value Java cannot hold."""
    assert partition_for("polygenelubricants", 50) == 0
    assert partition_for("polygenelubricants", 7) == 0


def test_every_state_has_an_answer_and_is_reached() -> None:
    assert set(ANSWERS) == set(GroupState)
    assert {after for _, after in TRANSITIONS} == set(GroupState)


def test_the_diagram_shows_every_transition() -> None:
    lines = diagram().splitlines()
    assert len(lines) == 2 + len(TRANSITIONS)
    assert "    CompletingRebalance --> Stable: the leader's assignment is durable" in lines


def active_shard(**settings: int) -> Shard:
    shard = Shard(0, Settings(**settings))
    for event in (ev.BeginLoad(0), ev.EndLoad(0)):
        shard.step(event, 0)
    return shard


def join(request: str = "r", **changes: object) -> ev.JoinGroup:
    base = ev.JoinGroup(
        request, "g", "", "consumer", (("range", b""),), 10_000, 60_000, "uuid", client_id="c"
    )
    return replace(base, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "request_",
    [
        join(group_id=None),
        ev.SyncGroup("r", None, "m", 1),
        ev.Heartbeat("r", None, "m", 1),
        ev.LeaveGroup("r", None, (ev.Leaver("m"),)),
        ev.OffsetFetch("r", None, None),
        ev.OffsetDelete("r", None, ()),
        ev.DescribeGroup("r", None),
        ev.DeleteGroup("r", None),
    ],
    ids=lambda r: type(r).__name__,
)
def test_a_null_group_id_is_invalid_everywhere(request_: ev.GroupRequest) -> None:
    (reply,) = active_shard().step(request_, 0)
    assert isinstance(reply, Reply)
    assert reply.response.error is ErrorCode.INVALID_GROUP_ID  # type: ignore[union-attr]


def test_a_member_id_too_long_for_a_record_is_refused_at_once() -> None:
    shard = active_shard(group_initial_rebalance_delay_ms=0)
    reply = shard.step(join(client_id="c" * 32_767), 0)[0]
    assert reply == Reply("r", JoinResponse(ErrorCode.INVALID_REQUEST))


def test_the_same_protocol_named_twice_counts_once() -> None:
    shard = active_shard(group_initial_rebalance_delay_ms=0)
    shard.step(join(protocols=(("range", b"first"), ("range", b"second")), requires_member_id=False), 0)
    assert shard.groups["g"].votes == {"range": 1}
    assert shard.groups["g"].protocol_name == "range"


def test_negative_and_huge_numbers_harm_nobody() -> None:
    shard = active_shard(group_initial_rebalance_delay_ms=0)
    shard.step(join(rebalance_timeout_ms=-(2**31), requires_member_id=False), 0)
    assert shard.groups["g"].sync_deadline_ms == 0
    for generation in (-1, -(2**31), 2**31 - 1):
        (reply,) = shard.step(ev.Heartbeat("h", "g", "c-uuid", generation), 0)
        assert reply == Reply("h", HeartbeatResponse(ErrorCode.ILLEGAL_GENERATION))


def test_a_heartbeat_sets_no_timer() -> None:
    shard = active_shard(group_initial_rebalance_delay_ms=0)
    shard.step(join(requires_member_id=False), 0)
    for now_ms in range(1, 9_000, 100):
        effects = shard.step(ev.Heartbeat("h", "g", "c-uuid", 1), now_ms)
        assert effects == [Reply("h", HeartbeatResponse(ErrorCode.NONE))]


def test_history_survives_json_and_a_restart() -> None:
    entry = Rebalance(
        40, 1_000, 3, "a", "a joined", generation_after=4, join_ms=5, went=(("b", "left"),), came=("a",)
    )
    assert Rebalance.from_json(entry.to_json()) == entry
    assert entry.slot(32) == 8
    history = GroupHistory(32)
    history.restore([entry, replace(entry, number=39, outcome="Stable")])
    assert [e.outcome for e in history.entries] == ["Stable", LOST]
    history.began(2_000, 4, "b", "b joined")
    assert [e.number for e in history.entries] == [39, 40, 41]


def test_a_reason_that_names_thousands_is_cut() -> None:
    history = GroupHistory(32)
    history.began(0, 1, "a", "; ".join(f"member-{number} left" for number in range(5_000)))
    assert history.latest is not None
    assert history.latest.reason.startswith("member-0 left; member-1 left")
    assert len(history.latest.reason) == LONGEST_REASON + len(" …")


def test_history_is_restored_on_load_for_groups_that_exist() -> None:
    shard = Shard(0, Settings())
    entry = Rebalance(7, 1_000, 3, "a", "a joined", outcome="Stable")
    shard.step(ev.BeginLoad(0), 0)
    shard.step(ev.RestoreHistory(0, "gone", (entry,)), 0)
    shard.step(ev.EndLoad(0), 0)
    assert shard.histories == {}


def test_history_is_bounded() -> None:
    history = GroupHistory(3)
    for generation in range(10):
        history.began(generation, generation, "a", "why")
        history.join_completed(generation, generation + 1, [f"m{i}" for i in range(500)])
    assert len(history.entries) == 3
    assert len(history.entries[-1].came) <= 51


class ImmediateLog:
    """A log that calls back before `append` returns, as memory does."""

    def __init__(self) -> None:
        self.written: list[Append] = []

    def append(self, partition: int, write: Append, done: Done) -> None:
        self.written.append(write)
        done(ErrorCode.NONE, len(self.written), 0)


def test_the_runtime_carries_a_join_to_its_answer() -> None:
    replies: dict[object, Response] = {}
    log = ImmediateLog()
    settings = Settings(group_initial_rebalance_delay_ms=500)
    runtime = Runtime(settings, log, replies.__setitem__)
    for partition in range(50):
        runtime.handle(partition, ev.BeginLoad(0), 0)
        runtime.handle(partition, ev.EndLoad(0), 0)
    runtime.submit(join(requires_member_id=False), 100)
    assert replies == {}
    assert len(log.written) == 1
    assert runtime.next_deadline_ms() == 600
    runtime.fire_due(599)
    assert replies == {}
    runtime.fire_due(600)
    response = replies["r"]
    assert isinstance(response, JoinResponse)
    assert (response.generation_id, response.leader) == (1, "c-uuid")
    runtime.submit(ev.SyncGroup("s", "g", "c-uuid", 1, (("c-uuid", b"all"),)), 700)
    assert replies["s"].assignment == b"all"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "changes",
    [
        {"protocols": (("p" * 40_000, b""),)},
        {"protocol_type": "t" * 40_000},
        {"group_instance_id": "ä" * 20_000},
        {"client_host": "h" * 40_000},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_no_record_can_hold_is_refused_at_the_door(changes: dict[str, object]) -> None:
    shard = active_shard()
    assert shard.step(join(**changes), 0) == [Reply("r", JoinResponse(ErrorCode.INVALID_REQUEST))]
    assert shard.groups == {}


def test_a_group_id_that_no_record_can_hold_is_invalid() -> None:
    (reply,) = active_shard().step(ev.OffsetCommit("r", "g" * 40_000, (ev.OffsetToCommit("t", 0, 1),)), 0)
    assert reply == Reply("r", CommitResponse((ErrorCode.INVALID_GROUP_ID,)))


@pytest.mark.parametrize("retention_ms", [2**63 - 1, -(2**63), 0])
def test_a_retention_at_its_limits_is_written(retention_ms: int) -> None:
    shard = active_shard()
    offsets = (ev.OffsetToCommit("t", 0, -(2**63), -1, None), ev.OffsetToCommit("t", 2**31 - 1, 2**63 - 1))
    effects = shard.step(ev.OffsetCommit("r", "g", offsets, retention_time_ms=retention_ms), 1_000)
    (append,) = effects
    assert isinstance(append, Append)
    assert shard.step(ev.DurableWritten(append.token, 0), 1_000) == [
        Reply("r", CommitResponse((ErrorCode.NONE, ErrorCode.NONE)))
    ]


def test_ten_thousand_protocols_are_no_trouble() -> None:
    shard = active_shard(group_initial_rebalance_delay_ms=0)
    protocols = tuple((f"protocol-{number}", b"") for number in range(10_000))
    for number in range(5):
        shard.step(
            join(f"r{number}", protocols=protocols, fresh_uuid=str(number), requires_member_id=False), 0
        )
    for number in (0, 1, 2, 3, 4, 0):
        shard.step(join(f"s{number}", member_id=f"c-{number}", protocols=protocols[::-1]), 0)
    assert shard.groups["g"].protocol_name == "protocol-9999"


def test_the_runtime_answers_a_heartbeat_at_once_while_it_has_the_partition() -> None:
    runtime = Runtime(
        Settings(group_initial_rebalance_delay_ms=0), ImmediateLog(), lambda request, response: None
    )
    partition = partition_for("g", 50)
    assert runtime.heartbeat_in_time("g", "c-uuid", 1, 0) is None
    runtime.handle(partition, ev.BeginLoad(0), 0)
    assert runtime.heartbeat_in_time("g", "c-uuid", 1, 0) is None
    runtime.handle(partition, ev.EndLoad(0), 0)
    runtime.submit(join(requires_member_id=False), 0)
    assert runtime.heartbeat_in_time("g", "c-uuid", 1, 5_000) is ErrorCode.NONE
    assert runtime.heartbeat_in_time("g", "c-uuid", 2, 5_000) is None, "the full way refuses it"
    runtime.fire_due(14_999)
    assert "c-uuid" in runtime.shards[partition].groups["g"].members
    runtime.fire_due(15_000)
    assert "c-uuid" not in runtime.shards[partition].groups["g"].members
    runtime.handle(partition, ev.Resign(1), 15_000)
    assert runtime.heartbeat_in_time("g", "c-uuid", 1, 15_000) is None
