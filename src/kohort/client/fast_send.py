"""The way of most records: bytes, to a topic that is known, into an open batch that has room. About 0.6 µs.

One function, spelled out, with everything that it needs in its closure: a call, a look-up or a check more is felt here.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from kohort.client.accumulator import Accumulator
from kohort.client.batch import RECORD_OVERHEAD, OnDelivery, P
from kohort.client.errors import SENT_WITHIN_SEND, IllegalState
from kohort.client.outgoing import Outgoing
from kohort.client.partitioners import STICKY
from kohort.client.signals import let_go

_SIZE_BESIDE = RECORD_OVERHEAD + 1  # a record without a key adds -1 for it


def fast_send(
    accumulator: Accumulator[P], outgoing: Outgoing, time_ns: Callable[[], int], slowly: Callable[..., Any]
) -> Callable[..., Any]:
    """The `send` of a producer whose records need no serializer; calls `slowly` for whatever is not simple."""
    find, lock, placed_class = accumulator.topics.get, _at_hand(accumulator.lock), accumulator.placed
    partitioner, null_keys_stick = outgoing.partitioner, outgoing.null_keys_stick

    def send(
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Any:
        queues = find(topic)
        if queues is None or headers is not None:
            return slowly(topic, value, key, headers, partition, timestamp_ms, on_delivery)
        if type(value) is not bytes:
            if type(value) is not str:
                return slowly(topic, value, key, headers, partition, timestamp_ms, on_delivery)
            value = value.encode()
        at = partition
        if key is None:
            key_size = -1
            if at is None and not null_keys_stick:
                at = partitioner(topic, None, len(queues.queues))
        else:
            if type(key) is not bytes:
                if type(key) is not str:
                    return slowly(topic, value, key, headers, partition, timestamp_ms, on_delivery)
                key = key.encode()
            key_size = len(key)
            if at is None:
                at = partitioner(topic, key, len(queues.queues))
        if at is None or at == STICKY:
            at = queues.sticky
        elif 0 <= at < len(queues.queues):
            partition = at  # chosen: if there is no room, it is not chosen again
        else:
            return slowly(topic, value, key, headers, partition, timestamp_ms, on_delivery)
        if timestamp_ms is None:
            timestamp_ms = time_ns() // 1_000_000
        elif timestamp_ms < 0:
            return slowly(topic, value, key, headers, partition, timestamp_ms, on_delivery)
        value_size = len(value)
        try:
            with lock:
                if accumulator.in_send:
                    raise IllegalState(SENT_WITHIN_SEND)
                accumulator.in_send = True
                try:
                    batch = queues.open[at]
                    size = batch.size + key_size + value_size + _SIZE_BESIDE
                    if size <= batch.limit:
                        try:
                            batch.size = size
                            values = batch.values
                            index = len(values)
                            if key is not None:
                                if batch.keys is None:
                                    batch.keys = [None] * index
                                batch.keys.append(key)
                            elif batch.keys is not None:
                                batch.keys.append(None)
                            values.append(value)
                            batch.timestamps.append(timestamp_ms)
                            placed = placed_class()
                            placed._batch = batch
                            placed._index = index
                            placed._timestamp = timestamp_ms
                            placed._key_size = key_size
                            placed._value_size = value_size
                            if on_delivery is None:
                                return placed
                            if batch.callbacks is None:
                                batch.callbacks = []
                            batch.callbacks.append((placed, on_delivery))
                            return placed
                        except (
                            BaseException
                        ):  # Ctrl-C strikes anywhere: no column may be longer than the others
                            batch.even_out()
                            raise
                finally:
                    accumulator.in_send = False
        except IllegalState:
            raise
        except BaseException:
            let_go(accumulator.lock)  # Ctrl-C may have come between taking it and the first line
            raise
        return slowly(topic, value, key, headers, partition, timestamp_ms, on_delivery)

    return send


def _at_hand(lock: AbstractContextManager[Any]) -> AbstractContextManager[Any]:
    """The same lock. `with` binds the two methods of an object each time; here it finds them bound: 0.08 µs less.

    Not `acquire` and `release`, which are faster still: a Ctrl-C between `acquire` and `try` would leave it locked.
    """
    methods = {"__slots__": (), "__enter__": lock.__enter__, "__exit__": lock.__exit__}
    at_hand: AbstractContextManager[Any] = type("AtHand", (), methods)()
    return at_hand
