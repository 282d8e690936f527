"""Where records wait until they are sent: per partition one open batch and a queue of closed ones.

Most records go the way of `fast_send`: a comparison and three appends. What is here is called per batch.
The lock protects the open batches, the memory count and who is ready; a closed batch belongs to the sender.

Memory is counted in steps: a batch asks for more of buffer.memory whenever it has filled what it has, so `fast_send`
only compares a size with the batch's limit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from enum import Enum
from typing import Any, Generic

from kohort.client.core.backoff import Jitter
from kohort.client.core.cluster import NO_NODE, Cluster
from kohort.client.errors import SENT_WITHIN_SEND, IllegalState
from kohort.client.produce.batch import (
    HEADER_OVERHEAD,
    RECORD_OVERHEAD,
    Batch,
    Headers,
    OnDelivery,
    P,
    placed_in,
)
from kohort.client.produce.merging import MOST_BYTES, carrier_of, may_ride
from kohort.client.produce.partition_queue import PartitionQueue
from kohort.client.produce.partitioners import STICKY
from kohort.wire.records.batch import HEADER_SIZE
from kohort.wire.records.compression import Buffer

GROWTH, MOST_GROWTH = 16_384, 262_144
"""Bytes of buffer.memory that a batch asks for first, then it doubles them; and the most that it asks for at a time."""


class NoRoom(Enum):
    """Why a record was not taken."""

    MEMORY = "buffer.memory is used up"
    CLOSED = "the producer is closed"
    FORGOTTEN = "the topic was not used for long; look it up again"


def record_size(key: bytes | None, value: bytes | None, headers: Headers | None) -> int:
    """What a record takes in a batch, at most."""
    size = RECORD_OVERHEAD + (len(key) if key is not None else 0) + (len(value) if value is not None else 0)
    for name, content in headers or ():
        # A name's characters may take up to four bytes; its own encoding says how many.
        size += HEADER_OVERHEAD + len(name.encode("utf-8", "surrogateescape")) + len(content or b"")
    return size


class TopicQueues:
    """A topic that records are sent to."""

    __slots__ = (
        "name",
        "topic_id",
        "queues",
        "open",
        "available",
        "sticky",
        "sticky_bytes",
        "used_ms",
        "full",
        "forgotten",
        "most_together",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.topic_id = bytes(16)
        self.queues: list[PartitionQueue] = []
        self.open: list[Batch] = []  # of each partition
        self.available: list[int] = []  # partitions that have a leader
        self.sticky = 0
        self.sticky_bytes = 0
        self.used_ms = 0
        self.forgotten = False
        self.most_together = MOST_BYTES  # less once a broker found that too large
        # Stands for the open batch where there is none: it has no room, so `fast_send` looks no further.
        self.full: Batch = Batch(None, 0)  # type: ignore[arg-type]
        self.full.limit = -1


class Accumulator(Generic[P]):
    """`placed` is the class of the deliveries; `wake` is called when the sender is needed."""

    def __init__(
        self,
        placed: type[P],
        lock: AbstractContextManager[Any],
        jitter: Jitter,
        wake: Callable[[], None],
        *,
        batch_size: int,
        most_together: int,
        buffer_memory: int,
        linger_ms: int,
    ) -> None:
        self.topics: dict[str, TopicQueues] = {}
        self.ready: dict[PartitionQueue, None] = {}
        """Partitions with closed batches, the longest waiting first."""
        self.incomplete: dict[Batch, None] = {}
        """All that are not done, the oldest first."""
        self.unencoded: set[Batch] = set()
        """Batches of columns that the sender has not come to: while there are any, a caller encodes its own."""
        self.used_bytes = 0
        self.waiting_for_memory = 0
        """Callers that wait for memory: no batch lingers while there are any."""
        self.fresh = False
        """A batch was closed since the sender looked."""
        self.full: list[Batch] = []
        """Open batches that are to be closed when the sender looks; until then they grow."""
        self.closed = self.in_send = False
        self.linger_ms = linger_ms
        self.placed = placed
        self.lock = lock
        self._jitter = jitter
        self._wake = wake
        self._batch_size, self._most_together = max(1, batch_size), most_together
        self._buffer_memory = buffer_memory
        self._lingering: deque[Batch] = deque()

    # --- records ----------------------------------------------------------------------------------

    def append(
        self,
        topic: TopicQueues,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Headers | None,
        callback: OnDelivery | None,
        now_ms: int,
    ) -> P | NoRoom:
        """The record's place in the open batch of a partition (STICKY: the topic's current one).

        Gives that batch more memory, or closes it and begins another, where that is needed.
        """
        size = record_size(key, value, headers)
        with self.lock:
            no_room = self._refusal(topic)
            if no_room is not None:
                return no_room
            most = max(self._batch_size, min(self._most_together, topic.most_together))
            batch = topic.queues[topic.sticky if partition == STICKY else partition].open
            wanted = batch.size + size
            if batch.limit < 0 or wanted > most:
                if batch.limit >= 0:
                    self._close(batch)
                # Closing may have moved the topic on to another partition, which may have an open batch of its own.
                queue = topic.queues[topic.sticky if partition == STICKY else partition]
                batch = queue.open
                wanted = batch.size + size
                if batch.limit >= 0 and wanted > most:
                    self._close(batch)
                    batch = queue.open
                if batch.limit < 0:
                    batch = Batch(queue, now_ms)
                    batch.size = HEADER_SIZE
                    wanted = HEADER_SIZE + size
            fills = batch.size <= self._batch_size < wanted
            up_to = self._batch_size if wanted <= self._batch_size else most
            if wanted > batch.charge and not self._charge(batch, wanted, up_to):
                return NoRoom.MEMORY
            if not batch.values:
                topic.open[batch.queue.index] = batch
                topic.used_ms = now_ms
                self.incomplete[batch] = None
                self._lingering.append(batch)
                if len(self._lingering) == 1:  # else the sender will look at an older one before
                    self._wake()
            if fills:
                self.full.append(batch)
                self._wake()
            return self._put(batch, key, value, timestamp, headers, callback, wanted)

    def append_columns(
        self,
        queue: PartitionQueue,
        columns: Any,
        count: int,
        size: int,
        now_ms: int,
        encoded: Buffer | None = None,
    ) -> Batch | NoRoom:
        """A closed batch of its own for records that are columns already; `size` is what they may take, encoded.

        If they are encoded already, it is without the producer's numbers.
        """
        with self.lock:
            no_room = self._refusal(queue.topic_queues)
            if no_room is not None:
                return no_room
            if queue.open.limit >= 0:
                self._close(queue.open)
            batch = Batch(queue, now_ms)
            if not self._charge(batch, size, size):
                return NoRoom.MEMORY
            batch.columns, batch.encoded = columns, encoded
            if encoded is None:
                self.unencoded.add(batch)
            else:
                batch.was_reset = True  # it gets its numbers when it is sent
            batch.size = size
            batch.count = count
            queue.topic_queues.used_ms = now_ms
            self.incomplete[batch] = None
            self._close(batch)
            return batch

    def _refusal(self, topic: TopicQueues) -> NoRoom | None:
        if self.in_send:
            raise IllegalState(SENT_WITHIN_SEND)
        if self.closed:
            return NoRoom.CLOSED
        return NoRoom.FORGOTTEN if topic.forgotten else None

    def _put(
        self,
        batch: Batch,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Headers | None,
        callback: OnDelivery | None,
        size: int,
    ) -> P:
        """The one way of records into a batch besides `fast_send`, which spells it out."""
        batch.size = size
        index = len(batch.values)
        if batch.keys is None and key is not None:
            batch.keys = [None] * index
        if batch.keys is not None:
            batch.keys.append(key)
        batch.values.append(value)
        batch.timestamps.append(timestamp)
        sizes = (len(key) if key is not None else -1, len(value) if value is not None else -1)
        placed = placed_in(self.placed, batch, index, timestamp, *sizes)
        if headers:
            batch.headers = batch.headers or {}
            batch.headers[index] = headers
        if callback is not None:
            batch.callbacks = batch.callbacks or []
            batch.callbacks.append((placed, callback))
        return placed

    def _charge(self, batch: Batch, wanted: int, most: int) -> bool:
        """Memory for a batch of `wanted` bytes and, if there is more, for some records to come: `most` bytes in all."""
        free = self._buffer_memory - self.used_bytes
        if wanted - batch.charge > free:
            return False
        step = min(max(GROWTH, batch.charge), MOST_GROWTH)
        comfortable = max(wanted, min(batch.charge + step, most))
        granted = min(comfortable - batch.charge, free)
        self.used_bytes += granted
        batch.charge += granted
        batch.limit = batch.charge
        return True

    # --- batches ----------------------------------------------------------------------------------

    def _close(self, batch: Batch) -> None:
        """No more records: the batch waits for the sender. Gives back the memory that it did not need."""
        queue, topic = batch.queue, batch.queue.topic_queues
        batch.limit = -1
        batch.count = batch.count or len(batch.values)
        self.used_bytes -= batch.charge - batch.size
        batch.charge = batch.size
        if queue.open is batch:
            topic.open[queue.index] = topic.full
        queue.closed.append(batch)
        self.ready[queue] = None
        if queue.index == topic.sticky:
            topic.sticky_bytes += batch.size
            # Less than a full batch is not worth another partition: its next records would begin small batches.
            if topic.sticky_bytes * 8 >= self._batch_size * 7:
                self._move_on(topic)
        self.fresh = True
        self._wake()

    def _move_on(self, topic: TopicQueues) -> None:
        among: list[int] | range = topic.available or range(len(topic.queues))
        topic.sticky = among[int(self._jitter() * len(among))]
        topic.sticky_bytes = 0

    def close_due(self, now_ms: int) -> None:
        """Closes the open batches that are full or have lingered; all while callers wait for memory, or at the end."""
        at_once = self.closed or self.waiting_for_memory > 0
        with self.lock:
            for batch in self.full:
                if batch.limit >= 0:
                    self._close(batch)
            self.full.clear()
            lingering = self._lingering
            while lingering:
                batch = lingering[0]
                if batch.limit >= 0:
                    if not at_once and batch.created_ms + self.linger_ms > now_ms:
                        return
                    self._close(batch)
                lingering.popleft()

    def next_linger_ms(self) -> int | None:
        """When the oldest open batch has lingered. May be early, if it was closed since."""
        with self.lock:
            return self._lingering[0].created_ms + self.linger_ms if self._lingering else None

    def wait_for_memory(self, more: int) -> None:
        """A caller begins (1) or ends (-1) to wait for memory."""
        with self.lock:
            self.waiting_for_memory += more
            self.fresh = True

    def has_room(self, size: int) -> bool:
        return self.closed or self.used_bytes + size <= self._buffer_memory

    def oldest(self) -> Batch | None:
        """The first of the batches that are not done."""
        with self.lock:
            return next(iter(self.incomplete), None)

    def flush(self) -> list[Batch]:
        """Closes all open batches; what must be done before all records sent so far are."""
        with self.lock:
            for batch in self._lingering:
                if batch.limit >= 0:
                    self._close(batch)
            self._lingering.clear()
            return list(self.incomplete)

    def take_first(self, queue: PartitionQueue, most_bytes: int) -> Batch:
        """The first closed batch of a partition, out of its queue; with those that may ride with it."""
        with self.lock:
            batch = queue.closed.popleft()
            self.unencoded.discard(batch)
            together = [batch]
            if may_ride(batch):
                size = batch.size
                while queue.closed and may_ride(queue.closed[0]):
                    size += queue.closed[0].size
                    if size > most_bytes:
                        break
                    together.append(queue.closed.popleft())
            self.ready.pop(queue, None)
            if queue.closed:
                self.ready[queue] = None  # behind the others
        return batch if len(together) == 1 else carrier_of(together)

    def put_back(self, batch: Batch) -> None:
        """A batch that was sent and must be sent again: before all that were sent after it, or never."""
        queue = batch.queue
        with self.lock:
            at = 0
            for other in queue.closed:
                if not other.order or other.order > batch.order:
                    break
                at += 1
            queue.closed.insert(at, batch)
            self.ready[queue] = None

    def drop(self, batch: Batch) -> None:
        """Takes a batch out of its queue, if it waits there."""
        with self.lock:
            if batch.limit >= 0:
                self._close(batch)
            self.unencoded.discard(batch)
            if batch in batch.queue.closed:
                batch.queue.closed.remove(batch)
            if not batch.queue.closed:
                self.ready.pop(batch.queue, None)

    def replace(self, batch: Batch, parts: list[Batch]) -> None:
        """The parts take the place of a batch that was split, and its memory."""
        with self.lock:
            self.incomplete.pop(batch, None)
            for part in parts:
                self.incomplete[part] = None
            parts[0].charge, batch.charge = batch.charge, 0

    def release(self, batch: Batch) -> None:
        """The batch is done: its memory is free."""
        with self.lock:
            self.used_bytes -= batch.charge
            batch.charge = 0
            self.incomplete.pop(batch, None)

    def shut(self) -> None:
        """No more records."""
        with self.lock:
            self.closed = True
            for topic in self.topics.values():
                for queue in topic.queues:
                    # `fast_send` finds no room from now on either.
                    if queue.open.limit >= 0:
                        self._close(queue.open)

    # --- topics -----------------------------------------------------------------------------------

    def learn(self, cluster: Cluster, now_ms: int) -> None:
        """Takes over what is new in the metadata of the topics that it knows or that are wanted for the first time."""
        for name, info in cluster.topics.items():
            if not info.partitions:
                continue
            topic = self.topics.get(name)
            fresh = topic is None
            if topic is None:
                topic = TopicQueues(name)
                topic.used_ms = now_ms
            with self.lock:
                topic.topic_id = info.topic_id
                for index in range(len(topic.queues), max(info.partitions) + 1):
                    topic.open.append(topic.full)
                    topic.queues.append(PartitionQueue(topic, index))
                for index, partition in info.partitions.items():
                    queue = topic.queues[index]
                    queue.leader_id, queue.leader_epoch = partition.leader_id, partition.leader_epoch
                topic.available = [q.index for q in topic.queues if q.leader_id != NO_NODE]
                if fresh:
                    self._move_on(topic)
                    self.topics[name] = topic

    def forget_idle(self, idle_ms: int, now_ms: int) -> list[str]:
        """Lets go of the topics that had no records for so long; their names."""
        gone = []
        with self.lock:
            for name, topic in list(self.topics.items()):
                unused = topic.used_ms + idle_ms <= now_ms
                if unused and not any(q.open.limit >= 0 or q.closed or q.in_flight for q in topic.queues):
                    topic.forgotten = True
                    del self.topics[name]
                    gone.append(name)
        return gone
