"""AsyncAdmin: the same calls on an event loop. What they do is tested with Admin; here is that they are the same."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable

import pytest

from kohort import Admin, AsyncAdmin, ClosedClient, KafkaError, NewTopic, OffsetAndMetadata, TimedOut
from kohort.client.metrics import MeasuredClient
from kohort.testing import Kafka
from tests.client.scripted import SILENCE, ScriptedCluster

LIST_GROUPS = 16


def calls_of(client: type) -> dict[str, Callable[..., object]]:
    """The calls that ask the cluster. Those of MeasuredClient wait for nothing, and are the same object in both."""
    shared = vars(MeasuredClient)
    members = inspect.getmembers(client, callable)
    return {name: each for name, each in members if not name.startswith("_") and name not in shared}


def test_every_call_of_admin_is_a_coroutine_of_async_admin_with_the_same_arguments() -> None:
    blocking, waiting = calls_of(Admin), calls_of(AsyncAdmin)
    assert list(blocking) == list(waiting)
    for name, call in blocking.items():
        assert inspect.iscoroutinefunction(waiting[name]), name
        assert inspect.signature(call) == inspect.signature(waiting[name]), name
        assert call.__doc__, f"{name} says nothing of what it does"
        if name != "close":
            assert call.__doc__ == waiting[name].__doc__, name


async def test_topics_settings_records_and_groups(kafka: Kafka) -> None:
    async with AsyncAdmin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        await admin.create_topic("orders", partitions=2, configs={"retention.ms": 60_000})
        await admin.create_topics([NewTopic("returns", 1)])
        assert await admin.list_topics() == ["orders", "returns"]
        assert len((await admin.describe_topics("orders"))["orders"].partitions) == 2
        await admin.create_partitions({"orders": 3})
        await admin.alter_topic_configs({"orders": {"retention.ms": 30_000}})
        assert (await admin.topic_configs("orders"))["orders"]["retention.ms"].value == "30000"
        node = (await admin.describe_cluster()).nodes[0].node_id
        await admin.alter_broker_configs({node: {"log.retention.ms": 90_000}}, validate_only=True)
        assert (await admin.broker_configs(node))[str(node)]
        kafka.produce("orders", [{"value": str(n), "partition": 0, "timestamp": 1000 + n} for n in range(4)])
        assert await admin.end_offsets(("orders", 0), ("orders", 1)) == {("orders", 0): 4, ("orders", 1): 0}
        assert await admin.delete_records({("orders", 0): 1}) == {("orders", 0): 1}
        assert await admin.beginning_offsets(("orders", 0)) == {("orders", 0): 1}
        found = await admin.offsets_for_times({("orders", 0): 1002, ("orders", 1): 1002})
        assert found[("orders", 0)].offset == 2
        assert found[("orders", 1)] is None
        await admin.alter_group_offsets("billing", {("orders", 0): 3, ("orders", 1): 0})
        assert (await admin.group_offsets("billing", ("orders", 0))) == {("orders", 0): OffsetAndMetadata(3)}
        await admin.delete_group_offsets("billing", ("orders", 1))
        assert [g.group_id for g in await admin.list_groups()] == ["billing"]
        assert (await admin.describe_groups("billing"))["billing"].state == "Empty"
        await admin.remove_members("billing")
        await admin.delete_groups("billing")
        await admin.delete_topics("orders", "returns")
        with pytest.raises(KafkaError, match="nowhere"):
            await admin.describe_topics("nowhere")


async def test_many_tasks_use_one_client(kafka: Kafka) -> None:
    async with AsyncAdmin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        await asyncio.gather(*(admin.create_topic(f"t{n}") for n in range(20)))
        assert await admin.list_topics() == sorted(f"t{n}" for n in range(20))


async def test_a_call_that_is_cancelled_leaves_the_client_usable() -> None:
    with ScriptedCluster() as cluster:
        cluster.on(LIST_GROUPS, SILENCE)
        async with AsyncAdmin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            call = asyncio.create_task(admin.list_groups())
            while not cluster[1].requests_of(LIST_GROUPS):
                await asyncio.sleep(0.001)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert [node.node_id for node in (await admin.describe_cluster()).nodes] == [1]


async def test_close_ends_the_calls_that_wait() -> None:
    with ScriptedCluster() as cluster:
        cluster.on(LIST_GROUPS, SILENCE)
        admin = AsyncAdmin(bootstrap_servers=cluster.bootstrap_servers)
        call = asyncio.create_task(admin.list_groups())
        while not cluster[1].requests_of(LIST_GROUPS):
            await asyncio.sleep(0.001)
        await admin.close()
        await admin.close()
        with pytest.raises(ClosedClient):
            await call
        with pytest.raises(ClosedClient):
            await admin.list_topics()


async def test_a_broker_that_is_not_there_is_named(unused_port: int) -> None:
    async with AsyncAdmin(bootstrap_servers=f"127.0.0.1:{unused_port}") as nobody:
        with pytest.raises(TimedOut):
            await nobody.list_topics(timeout=0.3)
