"""Gives records one by one (`for record in consumer`), and keeps back from acceptance what was not given out."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from typing import Any

from kohort.client.records import Record
from kohort.client.share.in_flight import InFlightRecords
from kohort.client.share.share_calls import SharePolled


class ShareIteration:
    """An iteration over the records of a share consumer.

    Until a record is given out it is held back: no commit in between accepts it. If the iteration ends early, what it
    holds back is released, so that others get it at once.
    """

    def __init__(self, in_flight: InFlightRecords) -> None:
        self._in_flight = in_flight

    def over(self, poll: Callable[[], SharePolled]) -> Generator[Record[Any, Any], None, None]:
        self.end()
        try:
            while True:
                yield from self._give(poll())
        finally:
            self.end()

    async def over_async(
        self, poll: Callable[[], Awaitable[SharePolled]]
    ) -> AsyncGenerator[Record[Any, Any], None]:
        self.end()
        try:
            while True:
                for record in self._give(await poll()):
                    yield record
        finally:
            self.end()

    def _give(self, polled: SharePolled) -> Generator[Record[Any, Any], None, None]:
        records = [record for of_partition in polled.values() for record in of_partition]
        mine = dict.fromkeys((record.topic, record.partition, record.offset) for record in records)
        self._in_flight.held_back = mine
        for record in records:
            if self._in_flight.held_back is not mine:
                return  # another poll, or close, has ended this iteration
            mine.pop((record.topic, record.partition, record.offset), None)
            yield record

    def end(self) -> None:
        self._in_flight.release_held_back()
