"""Gives records one by one (`for record in consumer`), and keeps positions and commits true to what was given out."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from typing import Any

from kohort.client.offsets.subscription import Position, SubscriptionState
from kohort.client.records import Record, Records
from kohort.client.types import TopicPartition

Polled = dict[TopicPartition, Records[Any, Any]]


class Iteration:
    """An iteration over the records of a consumer.

    A poll moves the positions behind everything that it returned. While the iteration has not given all of that out, it
    tells the subscription where it really stands; if it ends early, it seeks back to there.
    """

    def __init__(self, subscription: SubscriptionState) -> None:
        self._subscription = subscription
        subscription.follow_iteration(self.stands_at)
        self._waiting: Polled = {}
        self._last: Record[Any, Any] | None = None

    def over(self, poll: Callable[[], Polled]) -> Generator[Record[Any, Any], None, None]:
        self.end()
        try:
            while True:
                polled = poll()
                self._waiting = polled  # at once: from here on Ctrl-C loses nothing
                yield from self._give(polled)
        finally:
            self.end()

    async def over_async(
        self, poll: Callable[[], Awaitable[Polled]]
    ) -> AsyncGenerator[Record[Any, Any], None]:
        self.end()
        try:
            while True:
                polled = await poll()
                self._waiting = polled
                for record in self._give(polled):
                    yield record
        finally:
            self.end()

    def _give(self, polled: Polled) -> Generator[Record[Any, Any], None, None]:
        self._waiting = waiting = dict(polled)
        for partition, records in polled.items():
            for record in records:
                if partition not in waiting:
                    break  # the user has sought elsewhere
                self._last = record
                yield record
            self._last = None
            waiting.pop(partition, None)

    def drop(self, *partitions: TopicPartition) -> None:
        """Gives out no more of these partitions (or of any): the user chose another place in them."""
        for partition in partitions or tuple(self._waiting):
            self._waiting.pop(partition, None)

    def stands_at(self, partition: TopicPartition) -> Position | None:
        """Returns the position after what was given out; None if nothing of the partition is held back."""
        records = self._waiting.get(partition)
        if records is None:
            return None
        last = self._last
        if last is None or (last.topic, last.partition) != partition:
            return Position(records[0].offset)
        if last.offset == records[-1].offset:
            return None  # everything is given out: the position behind the poll is right
        return Position(last.offset + 1, -1 if last.leader_epoch is None else last.leader_epoch)

    def end(self) -> None:
        """Seeks back to what was not given out."""
        for partition in list(self._waiting):
            at = self.stands_at(partition)
            state = self._subscription.partitions.get(partition)
            if at is not None and state is not None and state.position is not None:
                leader = state.position
                state.seek(Position(at.offset, at.offset_epoch, leader.leader_id, leader.leader_epoch))
        self._waiting, self._last = {}, None
