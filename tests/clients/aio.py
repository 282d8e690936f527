"""aiokafka, driven from tests that are not asynchronous: each adapter and each member has an event loop on a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Coroutine, Sequence
from typing import Any, ClassVar, TypeVar

import aiokafka
from aiokafka import errors as aio_errors
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment

from tests.clients.client import (
    SESSION_TIMEOUT_MS,
    Client,
    GroupMember,
    GroupView,
    Member,
    Partition,
    Received,
    Refused,
    Sent,
    may_commit_later,
    request_timeout_ms,
)

TIMEOUT_S = 150.0  # only for what hangs: a machine may be slow
AWAY_S = 20.0  # a patient member gives up a commit after this time and polls on
CLIENT_ERROR = -100  # an error of the library that is none of the broker's
T = TypeVar("T")
ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


async def told(call: Awaitable[T], timeout_s: float = TIMEOUT_S) -> T:
    """The broker's errors as Refused."""
    try:
        return await asyncio.wait_for(call, timeout_s)
    except aio_errors.CommitFailedError as failed:
        raise Refused(22, str(failed)) from None
    except aio_errors.IllegalStateError:
        raise
    except aio_errors.KafkaError as failed:
        code = getattr(failed, "errno", None)
        raise Refused(CLIENT_ERROR if code is None else code, repr(failed)) from None


def check(code: int) -> None:
    if code:
        raise Refused(code)


def from_record(record: Any) -> Received:
    at = (record.topic, record.partition, record.offset)
    return Received(*at, record.key, record.value, [tuple(h) for h in record.headers], record.timestamp)


class AioKafka(Client):
    name = "aiokafka"
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")  # by cramjam, which the broker uses too
    assignors = tuple(ASSIGNORS)
    shows: ClassVar = {"INVALID_RECORD": "UNKNOWN_SERVER_ERROR"}  # a code that its table does not have

    def __init__(self, bootstrap_servers: str) -> None:
        self._servers = bootstrap_servers
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._admin = self._run(self._start_admin())

    async def _start_admin(self) -> AIOKafkaAdminClient:
        admin = AIOKafkaAdminClient(bootstrap_servers=self._servers)
        await admin.start()
        return admin

    def close(self) -> None:
        self._run(self._admin.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(TIMEOUT_S)
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(told(work), self._loop).result(2 * TIMEOUT_S)

    # records
    def send(
        self,
        records: Sequence[tuple[Partition, Sent]],
        *,
        compression: str = "none",
        acks: str = "all",
        idempotent: bool = False,
    ) -> list[int]:
        async def work() -> list[int]:
            producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=self._servers,
                acks=acks if acks == "all" else int(acks),
                compression_type=None if compression == "none" else compression,
                enable_idempotence=idempotent,
                linger_ms=50,
                max_request_size=8 << 20,
            )
            async with producer:
                futures = [
                    await producer.send(
                        topic,
                        sent.value,
                        sent.key,
                        index,
                        timestamp_ms=sent.timestamp_ms,
                        headers=sent.headers,
                    )
                    for (topic, index), sent in records
                ]
                reports = await asyncio.gather(*futures, return_exceptions=True)
            offsets = []
            for report in reports:
                if isinstance(report, BaseException):
                    raise report
                offsets.append(-1 if report is None else report.offset)
            return offsets

        return self._run(work())

    def read(
        self,
        offsets: dict[Partition, int],
        count: int,
        *,
        waiting: threading.Event | None = None,
        max_wait_ms: int = 500,
    ) -> list[Received]:
        async def work() -> list[Received]:
            consumer = aiokafka.AIOKafkaConsumer(
                bootstrap_servers=self._servers,
                max_partition_fetch_bytes=8 << 20,
                fetch_max_wait_ms=max_wait_ms,
                request_timeout_ms=request_timeout_ms(max_wait_ms),
                enable_auto_commit=False,
            )
            async with consumer:
                consumer.assign([aiokafka.TopicPartition(*part) for part in offsets])
                for part, offset in offsets.items():
                    consumer.seek(aiokafka.TopicPartition(*part), offset)
                if waiting is not None:
                    await consumer.getmany(timeout_ms=500)
                    waiting.set()
                return [from_record(await consumer.getone()) for _ in range(count)]

        return self._run(work())

    def offsets(self, topic: str, timestamp_ms: int, partition: int = 0) -> tuple[int, int, int]:
        async def work() -> tuple[int, int, int]:
            at = aiokafka.TopicPartition(topic, partition)
            async with aiokafka.AIOKafkaConsumer(bootstrap_servers=self._servers) as consumer:
                found = (await consumer.offsets_for_times({at: timestamp_ms}))[at]
                low, high = (
                    (await consumer.beginning_offsets([at]))[at],
                    (await consumer.end_offsets([at]))[at],
                )
                return low, high, -1 if found is None else found.offset

        return self._run(work())

    # topics
    def create_topic(self, topic: str, partitions: int = 1, config: dict[str, str] | None = None) -> None:
        new = NewTopic(topic, partitions, 1, topic_configs=config or {})
        for _, code, *_ in self._run(self._admin.create_topics([new])).topic_errors:
            check(code)

    def delete_topic(self, topic: str) -> None:
        for _, code in self._run(self._admin.delete_topics([topic])).topic_error_codes:
            check(code)

    def topics(self) -> dict[str, int]:
        return {
            topic["topic"]: len(topic["partitions"]) for topic in self._run(self._admin.describe_topics())
        }

    def create_partitions(self, topic: str, total: int) -> None:
        self._run(self._admin.create_partitions({topic: NewPartitions(total)}))

    def delete_records(self, topic: str, before_offset: int, partition: int = 0) -> int:
        at = aiokafka.TopicPartition(topic, partition)
        return int(self._run(self._admin.delete_records({at: RecordsToDelete(before_offset)}))[at])

    def topic_config(self, topic: str) -> dict[str, str]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        (answer,) = self._run(self._admin.describe_configs([resource]))
        ((code, _, _, _, entries, *_),) = answer.resources
        check(code)
        return {entry[0]: entry[1] for entry in entries}

    def replace_topic_config(self, topic: str, config: dict[str, str]) -> None:
        """AlterConfigs: what is not named goes back to its default."""
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, config)
        (answer,) = self._run(self._admin.alter_configs([resource]))
        for code, *_ in answer.resources:
            check(code)

    # groups
    def member(self, group: str, topics: list[str] | str, client_id: str, **options: Any) -> Member:
        return AioMember(self._servers, group, topics, client_id, options).start()

    def group_names(self) -> set[str]:
        """Its ListGroups is of a version that does not tell the state."""
        return {group for group, _ in self._run(self._admin.list_consumer_groups())}

    def group(self, group: str) -> GroupView:
        (answer,) = self._run(self._admin.describe_consumer_groups([group]))
        (found,) = answer.groups
        code, _, state, _, protocol, members, *_ = found
        check(code)
        views = []
        for member_id, client_id, _, _, assignment, *_ in members:
            parts: list[Partition] = []
            if assignment:
                decoded = ConsumerProtocolMemberAssignment.decode(assignment)
                parts = [(topic, index) for topic, indexes in decoded.assignment for index in indexes]
            views.append(GroupMember(member_id, client_id, None, frozenset(parts)))
        return GroupView(state.lower(), protocol, tuple(views))

    def committed(self, group: str) -> dict[Partition, int]:
        found = self._run(self._admin.list_consumer_group_offsets(group))
        return {(part.topic, part.partition): value.offset for part, value in found.items()}


class AioMember(Member):
    def __init__(
        self, servers: str, group: str, topics: list[str] | str, client_id: str, options: dict[str, Any]
    ) -> None:
        super().__init__(group, client_id, patient=options.get("patient", False))
        self._topics = topics
        self._settings = {
            "bootstrap_servers": servers,
            "group_id": group,
            "client_id": client_id,
            "partition_assignment_strategy": (ASSIGNORS[options.get("assignor", "range")],),
            "session_timeout_ms": options.get("session_timeout_ms", SESSION_TIMEOUT_MS),
            "heartbeat_interval_ms": 200,
            "max_poll_interval_ms": options.get("max_poll_interval_ms", 60_000),
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "metadata_max_age_ms": 500,
            "group_instance_id": options.get("group_instance_id"),
        }

    def run(self) -> None:
        asyncio.run(self._consume())

    async def _begin(self) -> Any:
        """A consumer that is in the group. aiokafka gives up if the broker is away when it begins: a patient member
        begins anew, until it is told to leave."""
        while True:
            consumer = aiokafka.AIOKafkaConsumer(**self._settings)
            if isinstance(self._topics, str):
                consumer.subscribe(pattern=self._topics)
            else:
                consumer.subscribe(self._topics)
            try:
                await consumer.start()
            except aio_errors.KafkaError:
                await consumer.stop()
                if not self.patient or self.leaving.is_set():
                    raise
                await asyncio.to_thread(self.leaving.wait, 0.05)
            else:
                return consumer

    async def _consume(self) -> None:
        consumer = await self._begin()
        try:
            while not self.leaving.is_set():
                await asyncio.to_thread(self.may_poll)
                polled = await consumer.getmany(timeout_ms=100, max_records=100)
                received = [from_record(record) for records in polled.values() for record in records]
                self.note(received, ((part.topic, part.partition) for part in consumer.assignment()))
                offsets = self.to_commit(received)
                if offsets and await self._commit(consumer, offsets):
                    self.note_commit(offsets)
        finally:
            await consumer.stop()

    async def _commit(self, consumer: Any, offsets: dict[Partition, int]) -> bool:
        """Whether it was acknowledged; False when it is to be made again later."""
        wanted = {aiokafka.TopicPartition(*part): offset for part, offset in offsets.items()}
        try:
            await told(consumer.commit(wanted), AWAY_S if self.patient else TIMEOUT_S)
        except aio_errors.IllegalStateError:  # the partition was taken away since the poll
            return False
        except TimeoutError:  # the broker is away for long
            if not self.patient:
                raise
            return False
        except Refused as refused:
            if not may_commit_later(self, refused):
                raise
            return False
        return True
