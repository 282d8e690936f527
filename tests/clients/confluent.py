"""confluent-kafka (librdkafka)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import confluent_kafka
import confluent_kafka.admin

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
)

ck: Any = confluent_kafka  # its stubs know neither what it exports nor what may be None
cka: Any = confluent_kafka.admin
TIMEOUT_S = 150.0  # only for what hangs: a machine may be slow
NO_DATA_YET = {
    ck.KafkaError.UNKNOWN_TOPIC_OR_PART,
    ck.KafkaError._PARTITION_EOF,
    ck.KafkaError._MAX_POLL_EXCEEDED,
    ck.KafkaError._TRANSPORT,  # it connects again by itself
    ck.KafkaError._ALL_BROKERS_DOWN,
}


def refused(error: Any) -> Refused:
    return Refused(error.code(), error.str())


def done(futures: dict[Any, Any]) -> list[Any]:
    """The results of an admin call; its errors as Refused."""
    try:
        return [future.result(TIMEOUT_S) for future in futures.values()]
    except ck.KafkaException as failed:
        raise refused(failed.args[0]) from None


def from_message(message: Any) -> Received:
    if message.error() is not None:
        raise refused(message.error())
    headers = [(key, value) for key, value in message.headers() or []]
    at = (message.topic(), message.partition(), message.offset())
    return Received(*at, message.key(), message.value(), headers, message.timestamp()[1])


class Confluent(Client):
    name = "confluent-kafka"
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")  # all of them are built into librdkafka
    assignors = ("range", "roundrobin", "cooperative-sticky")

    def __init__(self, bootstrap_servers: str) -> None:
        self._common: dict[str, Any] = {
            "bootstrap.servers": bootstrap_servers,
            "log_level": 0,
            "topic.metadata.refresh.fast.interval.ms": 50,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
        }
        self._admin = cka.AdminClient(self._common)

    def close(self) -> None:
        pass

    # records
    def send(
        self,
        records: Sequence[tuple[Partition, Sent]],
        *,
        compression: str = "none",
        acks: str = "all",
        idempotent: bool = False,
    ) -> list[int]:
        settings = {
            "acks": acks,
            "compression.type": compression,
            "enable.idempotence": idempotent,
            "linger.ms": 50,
            "message.max.bytes": 8 << 20,
        }
        producer = ck.Producer(self._common | settings | {"message.timeout.ms": int(TIMEOUT_S * 1000)})
        reports: list[tuple[Any, Any]] = []
        for (topic, index), sent in records:
            producer.produce(
                topic,
                sent.value,
                sent.key,
                index,
                on_delivery=lambda error, message: reports.append((error, message)),
                timestamp=sent.timestamp_ms or 0,
                headers=sent.headers or None,
            )
        producer.flush(TIMEOUT_S)
        assert len(reports) == len(records), f"{len(reports)} of {len(records)} deliveries were reported"
        for error, _ in reports:
            if error is not None:
                raise refused(error)
        return [message.offset() for _, message in reports]

    def read(
        self,
        offsets: dict[Partition, int],
        count: int,
        *,
        waiting: threading.Event | None = None,
        max_wait_ms: int = 500,
    ) -> list[Received]:
        settings = {"group.id": "not-used", "enable.auto.commit": False, "fetch.message.max.bytes": 8 << 20}
        settings |= {"fetch.wait.max.ms": max_wait_ms}
        consumer = ck.Consumer(self._common | settings)
        try:
            consumer.assign(
                [ck.TopicPartition(topic, index, offset) for (topic, index), offset in offsets.items()]
            )
            if waiting is not None:
                consumer.poll(0.5)
                waiting.set()
            taken = consumer.consume(count, TIMEOUT_S)
            return [from_message(message) for message in taken]
        finally:
            consumer.close()

    def offsets(self, topic: str, timestamp_ms: int, partition: int = 0) -> tuple[int, int, int]:
        """Earliest, latest, and the first offset at or after the time (-1: none)."""
        consumer = ck.Consumer(self._common | {"group.id": "not-used"})
        try:
            at = ck.TopicPartition(topic, partition)
            low, high = consumer.get_watermark_offsets(at, TIMEOUT_S, cached=False)
            found = consumer.offsets_for_times(
                [ck.TopicPartition(topic, partition, timestamp_ms)], TIMEOUT_S
            )[0]
            return low, high, max(found.offset, -1)
        finally:
            consumer.close()

    # topics
    def create_topic(self, topic: str, partitions: int = 1, config: dict[str, str] | None = None) -> None:
        done(self._admin.create_topics([cka.NewTopic(topic, partitions, 1, config=config or {})]))

    def delete_topic(self, topic: str) -> None:
        done(self._admin.delete_topics([topic]))

    def topics(self) -> dict[str, int]:
        """Name to number of partitions."""
        found = self._admin.list_topics(timeout=TIMEOUT_S).topics
        return {topic: len(metadata.partitions) for topic, metadata in found.items()}

    def create_partitions(self, topic: str, total: int) -> None:
        done(self._admin.create_partitions([cka.NewPartitions(topic, total)]))

    def delete_records(self, topic: str, before_offset: int, partition: int = 0) -> int:
        """Returns the new first offset."""
        result = done(self._admin.delete_records([ck.TopicPartition(topic, partition, before_offset)]))
        return int(result[0].low_watermark)

    def topic_config(self, topic: str) -> dict[str, str]:
        entries = done(self._admin.describe_configs([cka.ConfigResource(cka.ResourceType.TOPIC, topic)]))[0]
        return {entry.name: entry.value for entry in entries.values()}

    def set_topic_config(self, topic: str, key: str, value: str) -> None:
        entry = cka.ConfigEntry(key, value, incremental_operation=cka.AlterConfigOpType.SET)
        resource = cka.ConfigResource(cka.ResourceType.TOPIC, topic, incremental_configs=[entry])
        done(self._admin.incremental_alter_configs([resource]))

    # groups
    def member(self, group: str, topics: list[str] | str, client_id: str, **options: Any) -> Member:
        return ConfluentMember(self._common, group, topics, client_id, options).start()

    def groups(self) -> dict[str, str]:
        """Group to state."""
        listed = self._admin.list_consumer_groups(request_timeout=TIMEOUT_S).result(TIMEOUT_S)
        assert not listed.errors, listed.errors
        return {group.group_id: group.state.name.lower() for group in listed.valid}

    def group(self, group: str) -> GroupView:
        found = done(self._admin.describe_consumer_groups([group], request_timeout=TIMEOUT_S))[0]
        members = []
        for member in found.members:
            parts = member.assignment.topic_partitions if member.assignment else []
            assigned = frozenset((part.topic, part.partition) for part in parts)
            members.append(
                GroupMember(member.member_id, member.client_id, member.group_instance_id, assigned)
            )
        return GroupView(found.state.name.lower(), found.partition_assignor, tuple(members))

    def committed(self, group: str) -> dict[Partition, int]:
        asked = [ck.ConsumerGroupTopicPartitions(group)]
        found = done(self._admin.list_consumer_group_offsets(asked))[0].topic_partitions
        for part in found:
            if part.error is not None:
                raise refused(part.error)
        return {(part.topic, part.partition): part.offset for part in found}

    def alter_offsets(self, group: str, offsets: dict[Partition, int]) -> None:
        parts = [ck.TopicPartition(topic, index, offset) for (topic, index), offset in offsets.items()]
        asked = [ck.ConsumerGroupTopicPartitions(group, parts)]
        for part in done(self._admin.alter_consumer_group_offsets(asked))[0].topic_partitions:
            if part.error is not None:
                raise refused(part.error)

    def delete_group(self, group: str) -> None:
        done(self._admin.delete_consumer_groups([group]))


class ConfluentMember(Member):
    def __init__(
        self,
        common: dict[str, Any],
        group: str,
        topics: list[str] | str,
        client_id: str,
        options: dict[str, Any],
    ) -> None:
        super().__init__(group, client_id, patient=options.get("patient", False))
        self._topics = [topics] if isinstance(topics, str) else topics  # "^…" is a pattern to librdkafka
        self._settings = common | {
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
            "topic.metadata.refresh.interval.ms": 500,
        }
        if "group_instance_id" in options:
            self._settings["group.instance.id"] = options["group_instance_id"]

    def run(self) -> None:
        consumer = ck.Consumer(self._settings)
        try:
            consumer.subscribe(self._topics)
            while not self.leaving.is_set():
                self.may_poll()
                messages = consumer.consume(100, 0.1)
                received = [
                    from_message(m) for m in messages if not m.error() or m.error().code() not in NO_DATA_YET
                ]
                self.note(received, ((part.topic, part.partition) for part in consumer.assignment()))
                offsets = self.to_commit(received)
                if offsets and self._commit(consumer, offsets):
                    self.note_commit(offsets)
        finally:
            consumer.close()

    def _commit(self, consumer: Any, offsets: dict[Partition, int]) -> bool:
        """Whether it was acknowledged; False when it is to be made again later."""
        parts = [ck.TopicPartition(topic, index, offset) for (topic, index), offset in offsets.items()]
        try:
            errors = [part.error for part in consumer.commit(offsets=parts, asynchronous=False)]
        except ck.KafkaException as failed:
            errors = [failed.args[0]]
        for error in errors:
            if error is not None:
                if not may_commit_later(self, refused(error)):
                    raise refused(error)
                return False
        return True
