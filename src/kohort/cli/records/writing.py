"""Sends records and keeps count of which were written: few by `Producer.send`, many by `Producer.send_arrow`."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from itertools import repeat
from typing import Any

from kohort.cli.records.envelope import Envelope, Headers
from kohort.client.errors import WrongArgument
from kohort.client.producer import ArrowDelivery, Delivery, Producer
from kohort.errors import KohortError
from kohort.wire.errors import ErrorCode, KafkaError

FEW = 50_000
"""So many records go one by one before columns are used: loading pyarrow takes a third of a second."""
_ENOUGH_FOR_COLUMNS = 256
_LARGE_VALUE = 128 * 1024
"""A value that may be refused for its size is sent alone, so that the others of its columns are not refused with it."""
_PARTS_ON_THEIR_WAY = 32
_SHOWN_FAILURES = 10


class RecordWriter:
    """Writes records to a topic; `written` and `failed` count them, and stderr says which failed."""

    def __init__(
        self,
        producer: Producer[Any, Any],
        topic: str,
        *,
        partition: int | None = None,
        headers: Headers | None = None,
        few: int = FEW,
    ) -> None:
        """Takes what is the same for all records."""
        self._send = producer.send
        self._producer, self._topic, self._partition, self._headers = producer, topic, partition, headers
        self._few = few if headers is None and find_spec("pyarrow") is not None else None
        self._on_their_way: deque[tuple[str, int, list[Delivery] | ArrowDelivery, int]] = deque()
        self.sent = 0
        self.written = 0
        self.failed = 0

    def send_all(
        self, source: str, first: int, values: Sequence[bytes | None], keys: Sequence[bytes | None] | None
    ) -> None:
        """Sends records of a source; `first` is the number of the first of them there."""
        many = self._few is not None and self.sent >= self._few and len(values) >= _ENOUGH_FOR_COLUMNS
        if many and max((len(value) for value in values if value), default=0) <= _LARGE_VALUE:
            self._send_columns(source, first, values, keys)
        else:
            each_key = repeat(None) if keys is None else keys
            rows = zip(
                values, each_key, repeat(self._headers), repeat(self._partition), repeat(None), strict=False
            )
            self._send_one_by_one(source, first, rows)
        self._look_at_old_ones()

    def send_envelopes(self, source: str, first: int, envelopes: Iterable[Envelope]) -> None:
        """Sends records that may have headers, a partition or a time of their own."""
        rows = (
            (
                each.value,
                each.key,
                each.headers or self._headers,
                self._partition if each.partition is None else each.partition,
                each.timestamp,
            )
            for each in envelopes
        )
        self._send_one_by_one(source, first, rows)
        self._look_at_old_ones()

    def finish(self) -> None:
        """Waits until all records are written or have failed."""
        self._producer.flush()
        while self._on_their_way:
            self._look_at_oldest()
        if self.failed > _SHOWN_FAILURES:
            print(f"kohort: {self.failed - _SHOWN_FAILURES} more were not written", file=sys.stderr)

    # --- two ways to send -----------------------------------------------------------------------------

    def _send_one_by_one(self, source: str, first: int, rows: Iterable[tuple[Any, ...]]) -> None:
        send, topic = self._send, self._topic
        deliveries: list[Delivery] = []
        start = first
        for at, row in enumerate(rows):
            try:
                deliveries.append(send(topic, *row))
            except KohortError as error:
                self._keep(source, start, deliveries)
                deliveries, start = [], first + at + 1
                self._refused(source, first + at, error)
        self._keep(source, start, deliveries)

    def _keep(self, source: str, first: int, deliveries: list[Delivery]) -> None:
        self.sent += len(deliveries)
        if deliveries:
            self._on_their_way.append((source, first, deliveries, len(deliveries)))

    def _send_columns(
        self, source: str, first: int, values: Sequence[bytes | None], keys: Sequence[bytes | None] | None
    ) -> None:
        import pyarrow

        columns = {"value": pyarrow.array(values, pyarrow.binary())}
        if keys is not None:
            columns["key"] = pyarrow.array(keys, pyarrow.binary())
        if self._partition is not None:
            columns["partition"] = pyarrow.array([self._partition] * len(values), pyarrow.int32())
        delivery = self._producer.send_arrow(self._topic, pyarrow.record_batch(columns))
        self.sent += len(values)
        self._on_their_way.append((source, first, delivery, len(values)))

    # --- how it went ----------------------------------------------------------------------------------

    def _look_at_old_ones(self) -> None:
        while len(self._on_their_way) > _PARTS_ON_THEIR_WAY:
            self._look_at_oldest()

    def _look_at_oldest(self) -> None:
        source, first, sent, count = self._on_their_way.popleft()
        if isinstance(sent, ArrowDelivery):
            try:
                sent.result()
            except KohortError as error:
                self._failed(source, first, error, count)
            else:
                self.written += count
            return
        for at, delivery in enumerate(sent):
            reason = delivery.exception()
            if reason is None:
                self.written += 1
            else:
                self._failed(source, first + at, reason)

    def _refused(self, source: str, number: int, error: KohortError) -> None:
        """Goes on after a record that cannot be sent; what would befall all records ends the work."""
        too_large = isinstance(error, KafkaError) and error.code is ErrorCode.MESSAGE_TOO_LARGE
        if not (too_large or isinstance(error, WrongArgument)):
            raise error
        self._failed(source, number, error)

    def _failed(self, source: str, first: int, error: Exception, count: int = 1) -> None:
        self.failed += count
        if self.failed - count < _SHOWN_FAILURES:
            which = (
                f"record {first} was"
                if count == 1
                else f"some of records {first} to {first + count - 1} were"
            )
            print(f"kohort: {source}: {which} not written: {error}", file=sys.stderr)
