"""AsyncConsumer: the same calls on an event loop. What they do is tested with Consumer; here is how they wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import confluent_kafka
import pytest

from kohort import (
    Admin,
    AsyncConsumer,
    ClosedClient,
    ConcurrentUse,
    OffsetAndMetadata,
    Record,
    TopicPartition,
    Wakeup,
)
from kohort.testing import Kafka
from tests.client.consuming import PATIENCE_S, within

NewTopic = Callable[..., str]
NewConsumer = Callable[..., AsyncConsumer]
Write = Callable[..., None]


@pytest.fixture
async def new_consumer(bootstrap_servers: str) -> AsyncIterator[NewConsumer]:
    made: list[AsyncConsumer] = []

    def make(group_id: str | None = None, **settings: object) -> AsyncConsumer:
        given: dict[str, object] = {"auto_offset_reset": "earliest", "heartbeat_interval_ms": 200, **settings}
        made.append(AsyncConsumer(bootstrap_servers=bootstrap_servers, group_id=group_id, **given))
        return made[-1]

    yield make
    for consumer in made:
        await consumer.close(timeout=5)


@pytest.fixture
def write(bootstrap_servers: str) -> Write:
    def make(topic: str, values: list[str], partition: int = 0) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 0})
        for value in values:
            producer.produce(topic, value=value.encode(), partition=partition)
        assert producer.flush(PATIENCE_S) == 0

    return make


async def read(consumer: AsyncConsumer, count: int) -> list[Record]:
    records: list[Record] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(records) < count:
            for some in (await consumer.poll(0.5)).values():
                records += some
    return records


async def poll_until(consumer: AsyncConsumer, condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await consumer.poll(0.05)


async def test_records_come_by_iteration_and_are_committed(
    new_consumer: NewConsumer, new_topic: NewTopic, write: Write, admin: Admin, group: str
) -> None:
    topic = new_topic()
    write(topic, ["a", "b", "c"])
    consumer = new_consumer(group)
    await consumer.subscribe([topic])
    seen = []
    async for record in consumer:
        seen.append(record.value)
        if len(seen) == 2:
            await consumer.commit()
            break
    assert seen == [b"a", b"b"]
    partition = TopicPartition(topic, 0)
    assert (await consumer.committed(partition))[partition] == OffsetAndMetadata(2, "", 0)
    assert [record.value for record in await read(consumer, 1)] == [b"c"]


async def test_callbacks_may_be_coroutine_functions(
    new_consumer: NewConsumer, new_topic: NewTopic, write: Write, admin: Admin, group: str
) -> None:
    topic = new_topic(partitions=2)
    for partition in (0, 1):
        write(topic, ["a", "b", "c", "d", "e"], partition)
    consumer = new_consumer(group)
    told: list[tuple[str, int]] = []

    async def assigned(partitions: list[TopicPartition]) -> None:
        await asyncio.sleep(0)
        for partition in partitions:
            await consumer.seek(partition, 5)
        told.append(("assigned", len(partitions)))

    async def revoked(partitions: list[TopicPartition]) -> None:
        await consumer.commit({partitions[0]: 1})
        told.append(("revoked", len(partitions)))

    await consumer.subscribe([topic], on_assigned=assigned, on_revoked=revoked)
    await poll_until(consumer, consumer.assignment)
    assert await consumer.position((topic, 1)) == 5
    await consumer.close()
    assert told == [("assigned", 2), ("revoked", 2)]
    assert {at.offset for at in admin.group_offsets(group).values()} == {1, 5}


async def test_heartbeats_go_on_while_other_tasks_run(kafka: Kafka) -> None:
    kafka.create_topic("t")
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "g", "session.timeout.ms": 45_000}
    async with AsyncConsumer(settings, heartbeat_interval_ms=50) as consumer:
        await consumer.subscribe(["t"])
        await poll_until(consumer, consumer.assignment)
        for _ in range(5):  # more than a session; nobody polls
            kafka.clear()
            await kafka.wait_for_request_async("Heartbeat", count=2, timeout=PATIENCE_S)  # one is handled
            kafka.advance(15_000)
        assert kafka.group("g").state == "Stable"
        assert consumer.group_metadata().generation_id == 1


async def test_two_members_on_one_loop_share(
    new_consumer: NewConsumer, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(partitions=4)
    one = new_consumer(group, partition_assignment_strategy="cooperative-sticky")
    two = new_consumer(group, partition_assignment_strategy="cooperative-sticky")
    await one.subscribe([topic])
    await two.subscribe([topic])
    async with asyncio.timeout(PATIENCE_S):
        while not (len(one.assignment()) == len(two.assignment()) == 2):
            await asyncio.gather(one.poll(0.05), two.poll(0.05))
    assert not one.assignment() & two.assignment()


async def test_a_poll_that_is_cancelled_loses_nothing(
    new_consumer: NewConsumer, new_topic: NewTopic, write: Write
) -> None:
    topic = new_topic()
    consumer = new_consumer()
    await consumer.assign([(topic, 0)])
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await consumer.poll(30)
    await asyncio.to_thread(write, topic, ["after"])
    assert [record.value for record in await read(consumer, 1)] == [b"after"]


async def test_wakeup_and_one_task_at_a_time(new_consumer: NewConsumer, new_topic: NewTopic) -> None:
    consumer = new_consumer()
    await consumer.assign([(new_topic(), 0)])
    waiting = asyncio.create_task(consumer.poll(30))
    await asyncio.sleep(0.05)
    with pytest.raises(ConcurrentUse, match="one task at a time"):
        await consumer.poll(0)
    consumer.wakeup()
    with pytest.raises(Wakeup):
        await waiting
    assert await consumer.poll(0.05) == {}


async def test_arrow_offsets_and_lag(new_consumer: NewConsumer, new_topic: NewTopic, write: Write) -> None:
    topic = new_topic()
    partition = TopicPartition(topic, 0)
    write(topic, ["a", "b", "c"])
    consumer = new_consumer()
    await consumer.assign([partition])
    batch = await consumer.poll_arrow(PATIENCE_S, columns=("value",))
    assert batch is not None
    assert batch.to_pydict() == {"value": [b"a", b"b", b"c"]}
    assert await consumer.lag() == {partition: 0}
    assert await consumer.end_offsets(partition) == {partition: 3}
    assert await consumer.beginning_offsets(partition) == {partition: 0}
    assert (await consumer.list_topics())[topic] == (partition,)


async def test_close_ends_in_time_and_for_good(new_consumer: NewConsumer, unused_port: int) -> None:
    nobody = AsyncConsumer(bootstrap_servers=f"127.0.0.1:{unused_port}", group_id="g")
    await nobody.subscribe(["t"])
    assert await nobody.poll(0.1) == {}
    with within(0.5):
        await nobody.close(timeout=0.5)
    with pytest.raises(ClosedClient):
        await nobody.poll(0)
