"""Our own client, through the same vocabulary as the others."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from kohort import Admin, AsyncConsumer, Consumer, KafkaError, PartlyFailed, Producer, Record, TopicPartition
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
    protocol_settings,
    request_timeout_ms,
)

TIMEOUT_S = 150.0  # only for what hangs: a machine may be slow
T = TypeVar("T")


def told(call: Callable[[], T]) -> T:
    """The broker's errors as Refused."""
    try:
        return call()
    except PartlyFailed as failed:
        first = next(iter(failed.errors.values()))
        raise Refused(first.code, str(first)) from None
    except KafkaError as failed:
        raise Refused(failed.code, str(failed)) from None


def from_record(record: Record) -> Received:
    at = (record.topic, record.partition, record.offset)
    return Received(*at, record.key, record.value, list(record.headers), record.timestamp)


class Kohort(Client):
    name = "kohort"
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    assignors = ("range", "roundrobin", "sticky", "cooperative-sticky")

    def __init__(self, bootstrap_servers: str) -> None:
        self._servers = bootstrap_servers
        self._admin = Admin(bootstrap_servers=bootstrap_servers, default_api_timeout_ms=int(TIMEOUT_S * 1000))

    def close(self) -> None:
        self._admin.close()

    # records
    def _producer_settings(self, compression: str, acks: str, idempotent: bool) -> dict[str, object]:
        return {
            "bootstrap.servers": self._servers,
            "acks": acks,
            "compression.type": compression,
            "enable.idempotence": idempotent,
            "linger.ms": 50,
            "max.request.size": 8 << 20,
        }

    def send(
        self,
        records: Sequence[tuple[Partition, Sent]],
        *,
        compression: str = "none",
        acks: str = "all",
        idempotent: bool = False,
    ) -> list[int]:
        with Producer(self._producer_settings(compression, acks, idempotent)) as producer:
            deliveries = [
                producer.send(
                    topic, sent.value, sent.key, sent.headers, partition=index, timestamp_ms=sent.timestamp_ms
                )
                for (topic, index), sent in records
            ]
            producer.flush(TIMEOUT_S)
            return [told(lambda d=delivery: d.result(TIMEOUT_S)).offset for delivery in deliveries]  # type: ignore[misc]

    def _reader_settings(self, max_wait_ms: int) -> dict[str, object]:
        return {
            "bootstrap.servers": self._servers,
            "fetch.max.wait.ms": max_wait_ms,
            "request.timeout.ms": request_timeout_ms(max_wait_ms),
        }

    def read(
        self,
        offsets: dict[Partition, int],
        count: int,
        *,
        waiting: threading.Event | None = None,
        max_wait_ms: int = 500,
    ) -> list[Received]:
        received: list[Received] = []
        deadline = time.monotonic() + TIMEOUT_S
        with Consumer(self._reader_settings(max_wait_ms)) as consumer:
            consumer.assign(offsets)
            for part, offset in offsets.items():
                consumer.seek(part, offset)
            if waiting is not None:
                consumer.poll(0.5)
                waiting.set()
            while len(received) < count and time.monotonic() < deadline:
                polled = consumer.poll(deadline - time.monotonic(), max_records=count - len(received))
                received += [from_record(record) for records in polled.values() for record in records]
        assert len(received) == count, f"{len(received)} of {count} records came"
        return received

    def offsets(self, topic: str, timestamp_ms: int, partition: int = 0) -> tuple[int, int, int]:
        at = TopicPartition(topic, partition)
        with Consumer(bootstrap_servers=self._servers) as consumer:
            found = consumer.offsets_for_times({at: timestamp_ms})[at]
            low, high = consumer.beginning_offsets(at)[at], consumer.end_offsets(at)[at]
        return low, high, -1 if found is None else found.offset

    # topics
    def create_topic(self, topic: str, partitions: int = 1, config: dict[str, str] | None = None) -> None:
        told(lambda: self._admin.create_topic(topic, partitions, 1, config))

    def delete_topic(self, topic: str) -> None:
        told(lambda: self._admin.delete_topics(topic))

    def topics(self) -> dict[str, int]:
        return {name: len(topic.partitions) for name, topic in self._admin.describe_topics().items()}

    def create_partitions(self, topic: str, total: int) -> None:
        told(lambda: self._admin.create_partitions({topic: total}))

    def delete_records(self, topic: str, before_offset: int, partition: int = 0) -> int:
        at = TopicPartition(topic, partition)
        return told(lambda: self._admin.delete_records({at: before_offset}))[at]

    def topic_config(self, topic: str) -> dict[str, str]:
        found = told(lambda: self._admin.topic_configs(topic))[topic]
        return {name: entry.value or "" for name, entry in found.items()}

    def set_topic_config(self, topic: str, key: str, value: str) -> None:
        told(lambda: self._admin.alter_topic_configs({topic: {key: value}}))

    # groups
    def member(self, group: str, topics: list[str] | str, client_id: str, **options: Any) -> Member:
        return KohortMember(self._servers, group, topics, client_id, options).start()

    def groups(self) -> dict[str, str]:
        return {group.group_id: group.state.lower() for group in self._admin.list_groups()}

    def group_names(self) -> set[str]:
        return set(self.groups())

    def group(self, group: str) -> GroupView:
        found = told(lambda: self._admin.describe_groups(group))[group]
        members = tuple(
            GroupMember(one.member_id, one.client_id, one.group_instance_id, frozenset(one.assignment))
            for one in found.members
        )
        return GroupView(found.state.lower(), found.protocol, members)

    def committed(self, group: str) -> dict[Partition, int]:
        return {part: at.offset for part, at in told(lambda: self._admin.group_offsets(group)).items()}

    def alter_offsets(self, group: str, offsets: dict[Partition, int]) -> None:
        told(lambda: self._admin.alter_group_offsets(group, offsets))

    def delete_offsets(self, group: str, parts: list[Partition]) -> None:
        told(lambda: self._admin.delete_group_offsets(group, *parts))

    def delete_group(self, group: str) -> None:
        told(lambda: self._admin.delete_groups(group))

    def remove_member(
        self, group: str, member_id: str | None = None, group_instance_id: str | None = None
    ) -> None:
        members = [] if member_id is None else [member_id]
        instances = [] if group_instance_id is None else [group_instance_id]
        told(lambda: self._admin.remove_members(group, *members, instances=instances))


class KohortMember(Member):
    def __init__(
        self, servers: str, group: str, topics: list[str] | str, client_id: str, options: dict[str, Any]
    ) -> None:
        super().__init__(group, client_id, patient=options.get("patient", False))
        self.topics = re.compile(topics) if isinstance(topics, str) else topics
        self.settings: dict[str, object] = {
            "bootstrap.servers": servers,
            "group.id": group,
            "client.id": client_id,
            **protocol_settings(
                options,
                {
                    "partition.assignment.strategy": options.get("assignor", "range"),
                    "session.timeout.ms": options.get("session_timeout_ms", SESSION_TIMEOUT_MS),
                    "heartbeat.interval.ms": 200,
                },
            ),
            "max.poll.interval.ms": options.get("max_poll_interval_ms", 60_000),
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "metadata.max.age.ms": 500,
        }
        if "group_instance_id" in options:
            self.settings["group.instance.id"] = options["group_instance_id"]
        self.commits_when_revoked = options.get("commits_when_revoked", False)  # and not after each poll

    def run(self) -> None:
        with Consumer(self.settings) as consumer:
            on_revoked = (lambda partitions: consumer.commit()) if self.commits_when_revoked else None
            consumer.subscribe(
                self.topics, on_assigned=lambda _: self.assigned(consumer), on_revoked=on_revoked
            )
            while not self.leaving.is_set():
                self.may_poll()
                polled = consumer.poll(0.1, max_records=100)
                received = [from_record(record) for records in polled.values() for record in records]
                self.note(received, consumer.assignment())
                offsets = {} if self.commits_when_revoked else self.to_commit(received)
                if offsets and self._commit(consumer, offsets):
                    self.note_commit(offsets)

    def assigned(self, consumer: Consumer | AsyncConsumer) -> None:
        self.generation = consumer.group_metadata().generation_id

    def _commit(self, consumer: Consumer, offsets: dict[Partition, int]) -> bool:
        """Whether it was acknowledged; False when it is to be made again later."""
        try:
            told(lambda: consumer.commit(offsets))
        except Refused as refused:
            if not may_commit_later(self, refused):
                raise
            return False
        return True
