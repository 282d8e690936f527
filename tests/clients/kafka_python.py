"""kafka-python."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import kafka
from kafka import errors as kafka_errors
from kafka.admin import ConfigResource, ConfigResourceType, MemberToRemove
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

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
T = TypeVar("T")
ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


def told(call: Callable[[], T]) -> T:
    """The broker's errors as Refused."""
    try:
        return call()
    except kafka_errors.CommitFailedError as failed:  # the library's word for a commit after a rebalance
        raise Refused(22, str(failed)) from None
    except kafka_errors.KafkaError as failed:
        if getattr(failed, "errno", None) is None:
            raise
        raise Refused(failed.errno, str(failed)) from None


def check(codes: Any) -> None:
    for error in codes.values():
        if error is not kafka_errors.NoError:
            raise Refused(error.errno)


def from_record(record: Any) -> Received:
    at = (record.topic, record.partition, record.offset)
    return Received(*at, record.key, record.value, [tuple(h) for h in record.headers], record.timestamp)


class KafkaPython(Client):
    name = "kafka-python"
    # It finds python-snappy, lz4 and zstandard if they are installed. They are not among our dependencies.
    codecs = ("none", "gzip")
    assignors = tuple(ASSIGNORS)

    def __init__(self, bootstrap_servers: str) -> None:
        self._common = {"bootstrap_servers": bootstrap_servers, "retry_backoff_ms": 20}
        self._admin = kafka.KafkaAdminClient(**self._common)

    def close(self) -> None:
        self._admin.close()

    # records
    def send(
        self,
        records: Sequence[tuple[Partition, Sent]],
        *,
        compression: str = "none",
        acks: str = "all",
        idempotent: bool = False,
    ) -> list[int]:
        producer = kafka.KafkaProducer(
            **self._common,
            acks=acks if acks == "all" else int(acks),
            compression_type=None if compression == "none" else compression,
            enable_idempotence=idempotent,
            linger_ms=50,
            max_request_size=8 << 20,
        )
        try:
            futures = [
                producer.send(
                    topic,
                    value=sent.value,
                    key=sent.key,
                    headers=sent.headers,
                    partition=index,
                    timestamp_ms=sent.timestamp_ms,
                )
                for (topic, index), sent in records
            ]
            producer.flush(TIMEOUT_S)
            return [told(lambda f=future: f.get(TIMEOUT_S)).offset for future in futures]  # type: ignore[misc]
        finally:
            producer.close(timeout=TIMEOUT_S)

    def read(
        self,
        offsets: dict[Partition, int],
        count: int,
        *,
        waiting: threading.Event | None = None,
        max_wait_ms: int = 500,
    ) -> list[Received]:
        options = {"max_partition_fetch_bytes": 8 << 20, "consumer_timeout_ms": int(TIMEOUT_S * 1000)}
        options |= {"fetch_max_wait_ms": max_wait_ms, "request_timeout_ms": request_timeout_ms(max_wait_ms)}
        consumer = kafka.KafkaConsumer(**self._common, **options)
        try:
            consumer.assign([kafka.TopicPartition(*part) for part in offsets])
            for part, offset in offsets.items():
                consumer.seek(kafka.TopicPartition(*part), offset)
            if waiting is not None:
                consumer.poll(500)
                waiting.set()
            return [from_record(next(consumer)) for _ in range(count)]
        finally:
            consumer.close()

    def offsets(self, topic: str, timestamp_ms: int, partition: int = 0) -> tuple[int, int, int]:
        consumer = kafka.KafkaConsumer(**self._common)
        try:
            at = kafka.TopicPartition(topic, partition)
            found = consumer.offsets_for_times({at: timestamp_ms})[at]
            low, high = consumer.beginning_offsets([at])[at], consumer.end_offsets([at])[at]
            return low, high, -1 if found is None else found.offset
        finally:
            consumer.close()

    # topics
    def create_topic(self, topic: str, partitions: int = 1, config: dict[str, str] | None = None) -> None:
        wanted = {"num_partitions": partitions, "replication_factor": 1, "configs": config or {}}
        told(lambda: self._admin.create_topics({topic: wanted}))

    def delete_topic(self, topic: str) -> None:
        told(lambda: self._admin.delete_topics([topic]))

    def topics(self) -> dict[str, int]:
        return {topic["name"]: len(topic["partitions"]) for topic in self._admin.describe_topics()}

    def create_partitions(self, topic: str, total: int) -> None:
        told(lambda: self._admin.create_partitions({topic: total}))

    def delete_records(self, topic: str, before_offset: int, partition: int = 0) -> int:
        at = kafka.TopicPartition(topic, partition)
        return int(told(lambda: self._admin.delete_records({at: before_offset}))[at]["low_watermark"])

    def topic_config(self, topic: str) -> dict[str, str]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        found = told(lambda: self._admin.describe_configs([resource], config_filter="all"))["topic"][topic]
        return {key: entry["value"] for key, entry in found.items()}

    def set_topic_config(self, topic: str, key: str, value: str) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, {key: value})
        result = told(lambda: self._admin.alter_configs([resource]))["topic"][topic]
        if result != "OK":
            raise Refused(int(result.split("]")[0].removeprefix("[Error ")), result)

    # groups
    def member(self, group: str, topics: list[str] | str, client_id: str, **options: Any) -> Member:
        return KafkaPythonMember(self._common, group, topics, client_id, options).start()

    def groups(self) -> dict[str, str]:
        return {group["group_id"]: group["group_state"].lower() for group in self._admin.list_groups()}

    def group(self, group: str) -> GroupView:
        found = told(lambda: self._admin.describe_groups([group]))[group]
        members = []
        for member in found["members"]:
            topics = (member["member_assignment"] or {}).get("assigned_partitions", [])
            parts = frozenset((topic["topic"], index) for topic in topics for index in topic["partitions"])
            identity = (member["member_id"], member["client_id"], member["group_instance_id"])
            members.append(GroupMember(*identity, parts))
        return GroupView(found["group_state"].lower(), found["protocol_data"], tuple(members))

    def committed(self, group: str) -> dict[Partition, int]:
        found = told(lambda: self._admin.list_group_offsets(group))[group]
        return {(part.topic, part.partition): value.offset for part, value in found.items()}

    def alter_offsets(self, group: str, offsets: dict[Partition, int]) -> None:
        wanted = {
            kafka.TopicPartition(*part): kafka.OffsetAndMetadata(offset, "", -1)
            for part, offset in offsets.items()
        }
        check(told(lambda: self._admin.alter_group_offsets(group, wanted)))

    def delete_offsets(self, group: str, parts: list[Partition]) -> None:
        wanted = [kafka.TopicPartition(*part) for part in parts]
        check(told(lambda: self._admin.delete_group_offsets(group, wanted)))

    def delete_group(self, group: str) -> None:
        result = told(lambda: self._admin.delete_groups([group]))[group]
        if result != "OK":
            raise Refused(getattr(kafka_errors, result).errno)

    def remove_member(
        self, group: str, member_id: str | None = None, group_instance_id: str | None = None
    ) -> None:
        member = MemberToRemove(member_id, group_instance_id, "taken out by an operator")
        check(told(lambda: self._admin.remove_group_members(group, [member])))


class _Assigned(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
    """Tells an assignment at once: the poll that brought it may still wait for records."""

    def __init__(self, member: Member, consumer: Any) -> None:
        self.member, self.consumer = member, consumer

    def on_partitions_revoked(self, revoked: Any) -> None:
        pass

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.member.note([], ((part.topic, part.partition) for part in self.consumer.assignment()))


class KafkaPythonMember(Member):
    def __init__(
        self,
        common: dict[str, Any],
        group: str,
        topics: list[str] | str,
        client_id: str,
        options: dict[str, Any],
    ) -> None:
        super().__init__(group, client_id, patient=options.get("patient", False))
        self._topics = topics
        self._settings = common | {
            "group_id": group,
            "client_id": client_id,
            "partition_assignment_strategy": [ASSIGNORS[options.get("assignor", "range")]],
            "session_timeout_ms": options.get("session_timeout_ms", SESSION_TIMEOUT_MS),
            "heartbeat_interval_ms": 200,
            "max_poll_interval_ms": options.get("max_poll_interval_ms", 60_000),
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "metadata_max_age_ms": 500,
            "group_instance_id": options.get("group_instance_id"),
        }

    def run(self) -> None:
        consumer = kafka.KafkaConsumer(**self._settings)
        by_pattern = isinstance(self._topics, str)
        try:
            listener = _Assigned(self, consumer)
            if by_pattern:
                consumer.subscribe(pattern=self._topics, listener=listener)
            else:
                consumer.subscribe(self._topics, listener=listener)
            while not self.leaving.is_set():
                self.may_poll()
                # Longer where a join is likely, so that it is finished by the poll that began it.
                poll_ms = 3000 if by_pattern or not consumer.assignment() else 100
                polled = consumer.poll(poll_ms, max_records=100)
                if consumer._coordinator._join_task is not None:
                    # 3.0.12 forgets to finish a join that it began because of new metadata when the poll ends
                    # meanwhile: need_rejoin() is False by then, and neither assignment nor heartbeats follow.
                    consumer._coordinator.request_rejoin()
                received = [from_record(record) for records in polled.values() for record in records]
                self.note(received, ((part.topic, part.partition) for part in consumer.assignment()))
                offsets = self.to_commit(received)
                if offsets and self._commit(consumer, offsets):
                    self.note_commit(offsets)
        finally:
            consumer.close(autocommit=False)

    def _commit(self, consumer: Any, offsets: dict[Partition, int]) -> bool:
        """Whether it was acknowledged; False when it is to be made again later."""
        wanted = {
            kafka.TopicPartition(*part): kafka.OffsetAndMetadata(offset, "", -1)
            for part, offset in offsets.items()
        }
        try:
            told(lambda: consumer.commit(wanted))
        except Refused as refused:
            if not may_commit_later(self, refused):
                raise
            return False
        return True
