"""A broker that stops answers waiting requests before it closes their connections; it waits for no rebalance."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import pytest

from kohort.broker import running
from kohort.client.io.blocking_connection import BlockingConnection
from kohort.testing import Kafka
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.describe_groups import DescribeGroupsRequest
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from kohort.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kohort.wire.messages.sync_group import SyncGroupRequest
from tests.broker.peer import (
    LONG_POLL_MS,
    PATIENCE_S,
    batch_of,
    create_topic,
    fetch_request,
    produce,
    values_in,
)
from tests.clients.process import BrokerProcess, eventually

LONG_MS = 1_800_000  # longer than any test


def join_request(group: str, member_id: str = "") -> JoinGroupRequest:
    protocols = [JoinGroupRequestProtocol("range", b"x")]
    return JoinGroupRequest(group, LONG_MS, LONG_MS, member_id, protocol_type="consumer", protocols=protocols)


def describe(client: BlockingConnection, group: str) -> tuple[str, int]:
    found = client.call(DescribeGroupsRequest([group]), version=5).groups[0]
    return found.group_state, len(found.members)


@contextlib.contextmanager
def rebalancing(address: str, members: int) -> Iterator[list[BlockingConnection]]:
    """A group whose first member does not join again: the other members wait in JoinGroup."""
    with contextlib.ExitStack() as stack:
        ask, first = (
            stack.enter_context(BlockingConnection(address, timeout_s=PATIENCE_S)) for _ in range(2)
        )
        first.call(FindCoordinatorRequest("g"), version=2)
        joined = first.call(join_request("g"), version=3)
        synced = first.call(SyncGroupRequest("g", joined.generation_id, joined.member_id), version=3)
        assert (joined.error_code, synced.error_code) == (0, 0)
        others = [
            stack.enter_context(BlockingConnection(address, timeout_s=PATIENCE_S)) for _ in range(members)
        ]
        for other in others:
            other.send(join_request("g"), version=3)
        eventually(
            lambda: describe(ask, "g") == ("PreparingRebalance", members + 1), "all wait in the rebalance"
        )
        yield others


def answers(waiting: list[BlockingConnection]) -> set[ErrorCode]:
    return {ErrorCode(each.receive().error_code) for each in waiting}


def test_sigterm_during_a_rebalance_tells_the_members_that_wait(tmp_path):
    broker = BrokerProcess(tmp_path, "group.initial.rebalance.delay.ms=0")
    with broker, rebalancing(broker.bootstrap_servers, members=3) as waiting:
        stopping = threading.Thread(target=broker.terminate)
        stopping.start()
        assert answers(waiting) == {ErrorCode.NOT_COORDINATOR}
        stopping.join()
        assert not broker.is_running


@pytest.mark.parametrize("durability", ["memory", "disk"])
def test_members_of_a_broker_in_this_process(tmp_path, durability):
    broker = running(tmp_path if durability == "disk" else None)
    with broker, rebalancing(broker.bootstrap_servers, members=12) as waiting:
        broker.stop()
        assert answers(waiting) == {ErrorCode.NOT_COORDINATOR}


@pytest.mark.parametrize("how", ["stop", "close"])
def test_the_testing_kits_broker(how):
    kafka = Kafka()
    with kafka, rebalancing(kafka.bootstrap_servers, members=3) as waiting:
        getattr(kafka, how)()
        assert answers(waiting) == {ErrorCode.NOT_COORDINATOR}


def test_members_that_wait_for_the_leaders_assignment():
    with running() as broker, contextlib.ExitStack() as stack:
        leader, follower, ask = (
            stack.enter_context(BlockingConnection(broker.bootstrap_servers, timeout_s=PATIENCE_S))
            for _ in range(3)
        )
        ask.call(FindCoordinatorRequest("g"), version=2)
        first = leader.call(join_request("g"), version=3)
        follower.send(join_request("g"), version=3)
        eventually(lambda: describe(ask, "g") == ("PreparingRebalance", 2), "the second member joins")
        leader.call(join_request("g", first.member_id), version=3)
        joined = follower.receive()
        follower.send(SyncGroupRequest("g", joined.generation_id, joined.member_id), version=3)

        async def is_parked() -> bool:
            groups = [
                shard.groups["g"] for shard in broker.server.broker.groups.runtime.shards if shard.groups
            ]
            return groups[0].members[joined.member_id].awaiting_sync is not None

        eventually(lambda: broker.call(is_parked()), "the follower waits")
        broker.stop()
        assert follower.receive().error_code == ErrorCode.NOT_COORDINATOR


def test_a_long_poll_is_answered_with_what_there_is(tmp_path):
    with (
        running(tmp_path) as broker,
        BlockingConnection(broker.bootstrap_servers, timeout_s=PATIENCE_S) as client,
    ):
        create_topic(client, "t")
        produce(client, "t", batch_of(b"one"))
        client.send(fetch_request("t", 0, max_wait_ms=LONG_POLL_MS, min_bytes=1_000_000), version=11)

        async def is_parked() -> bool:
            return bool(broker.server.broker.store.topics["t"].partitions[0]._waiters)

        eventually(lambda: broker.call(is_parked()), "the fetch waits")
        broker.stop()
        assert values_in(client.receive().responses[0].partitions[0]) == [b"one"]


@pytest.mark.parametrize("event_loop", ["uvloop", "asyncio"])
def test_a_connection_that_comes_with_the_stop_is_closed(event_loop: str) -> None:
    """asyncio's own server would forget one that it accepts while it is closed, and the client would wait."""
    with running(event_loop=event_loop) as broker:
        client = BlockingConnection(broker.bootstrap_servers, timeout_s=PATIENCE_S)
        broker.call(broker.go_away())
        with client, pytest.raises(ConnectionError):
            client.call(DescribeGroupsRequest(["g"]), version=5)
        broker.call(broker.come_back())
