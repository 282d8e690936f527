"""Our asyncio client, driven from tests that are not asynchronous. Its admin calls are those of the other front."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import Any

from kohort import AsyncConsumer, AsyncProducer, KafkaError, TopicPartition
from tests.clients.client import (
    Member,
    Partition,
    Received,
    Refused,
    Sent,
    may_commit_later,
)
from tests.clients.ours import TIMEOUT_S, Kohort, KohortMember, from_record


class KohortAsync(Kohort):
    name = "asyncio-kohort"  # no name of a client begins with another's

    def send(
        self,
        records: Sequence[tuple[Partition, Sent]],
        *,
        compression: str = "none",
        acks: str = "all",
        idempotent: bool = False,
    ) -> list[int]:
        async def work() -> list[int]:
            async with AsyncProducer(self._producer_settings(compression, acks, idempotent)) as producer:
                deliveries = [
                    await producer.send(
                        topic,
                        sent.value,
                        sent.key,
                        sent.headers,
                        partition=index,
                        timestamp_ms=sent.timestamp_ms,
                    )
                    for (topic, index), sent in records
                ]
                await producer.flush(TIMEOUT_S)
                try:
                    return [(await delivery).offset for delivery in deliveries]
                except KafkaError as failed:
                    raise Refused(failed.code, str(failed)) from None

        return asyncio.run(work())

    def read(
        self,
        offsets: dict[Partition, int],
        count: int,
        *,
        waiting: threading.Event | None = None,
        max_wait_ms: int = 500,
    ) -> list[Received]:
        async def work() -> list[Received]:
            received: list[Received] = []
            deadline = time.monotonic() + TIMEOUT_S
            async with AsyncConsumer(self._reader_settings(max_wait_ms)) as consumer:
                await consumer.assign(offsets)
                for part, offset in offsets.items():
                    await consumer.seek(part, offset)
                if waiting is not None:
                    await consumer.poll(0.5)
                    waiting.set()
                while len(received) < count and time.monotonic() < deadline:
                    polled = await consumer.poll(
                        deadline - time.monotonic(), max_records=count - len(received)
                    )
                    received += [from_record(record) for records in polled.values() for record in records]
            assert len(received) == count, f"{len(received)} of {count} records came"
            return received

        return asyncio.run(work())

    def offsets(self, topic: str, timestamp_ms: int, partition: int = 0) -> tuple[int, int, int]:
        async def work() -> tuple[int, int, int]:
            at = TopicPartition(topic, partition)
            async with AsyncConsumer(bootstrap_servers=self._servers) as consumer:
                found = (await consumer.offsets_for_times({at: timestamp_ms}))[at]
                low, high = await consumer.beginning_offsets(at), await consumer.end_offsets(at)
            return low[at], high[at], -1 if found is None else found.offset

        return asyncio.run(work())

    def member(self, group: str, topics: list[str] | str, client_id: str, **options: Any) -> Member:
        return KohortAsyncMember(self._servers, group, topics, client_id, options).start()


class KohortAsyncMember(KohortMember):
    def run(self) -> None:
        asyncio.run(self._consume())

    async def _consume(self) -> None:
        async with AsyncConsumer(self.settings) as consumer:
            on_revoked = (lambda partitions: consumer.commit()) if self.commits_when_revoked else None
            await consumer.subscribe(
                self.topics, on_assigned=lambda _: self.assigned(consumer), on_revoked=on_revoked
            )
            while not self.leaving.is_set():
                await asyncio.to_thread(self.may_poll)
                polled = await consumer.poll(0.1, max_records=100)
                received = [from_record(record) for records in polled.values() for record in records]
                self.note(received, consumer.assignment())
                offsets = {} if self.commits_when_revoked else self.to_commit(received)
                if offsets and await self._commit_now(consumer, offsets):
                    self.note_commit(offsets)

    async def _commit_now(self, consumer: AsyncConsumer, offsets: dict[Partition, int]) -> bool:
        """Whether it was acknowledged; False when it is to be made again later."""
        try:
            await consumer.commit(offsets)
        except KafkaError as failed:
            if not may_commit_later(self, Refused(failed.code, str(failed))):
                raise
            return False
        return True
