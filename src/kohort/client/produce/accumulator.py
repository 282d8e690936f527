"""Holds records until they are sent: for each partition one open batch and a queue of closed ones.

`fast_send` puts most records into open batches by itself, with a comparison and three appends; it calls the accumulator
once per batch, and when a batch needs more memory. The lock protects the open batches, the memory count and the set of
ready partitions. A closed batch belongs to the sender.

Memory is counted in steps: a batch asks for more of buffer.memory when it has filled what it has, so that `fast_send`
only compares a size with the batch's limit.

A batch of batch.size bytes is full and does not linger any more. It goes on growing until the sender looks at it: a
program that sends as fast as it can would otherwise make hundreds of small batches before the producer's thread gets
the GIL.

A batch that has grown to the most that it may is encoded by the caller: the sender is behind, so it should have less to
do, and while the compiled loop runs without the GIL the sender gets it at once, instead of after the 5 ms for which a
busy thread may keep it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from enum import Enum
from typing import Any, Generic

from kohort.client.config import ProducerConfig
from kohort.client.core.backoff import Jitter
from kohort.client.core.cluster import NO_NODE, Cluster
from kohort.client.errors import SENT_WITHIN_SEND, IllegalState
from kohort.client.produce.batch import (
    HEADER_OVERHEAD,
    RECORD_OVERHEAD,
    Batch,
    H,
    Headers,
    OnDelivery,
    handle_of,
    merge,
)
from kohort.client.produce.partitioners import STICKY
from kohort.wire.records.batch import HEADER_SIZE
from kohort.wire.records.compression import Buffer

GROWTH, MOST_GROWTH = 16_384, 524_288
"""How many bytes of buffer.memory a batch asks for first, and at most; between these for three times what it has."""
WORTH_ENCODING = 262_144
"""Bytes; a batch that has grown to this size is encoded by the caller whose record did not fit any more."""


class NoRoom(Enum):
    """Why the accumulator did not take a record."""

    MEMORY = "buffer.memory is used up"
    CLOSED = "the producer is closed"
    FORGOTTEN = "the topic was not used for a long time; look it up again"


def record_size(key: bytes | None, value: bytes | None, headers: Headers | None) -> int:
    """The most bytes that a record takes in a batch."""
    size = RECORD_OVERHEAD + (len(key) if key is not None else 0) + (len(value) if value is not None else 0)
    for name, content in headers or ():
        # A character of a name takes up to four bytes.
        size += HEADER_OVERHEAD + len(name.encode("utf-8", "surrogateescape")) + len(content or b"")
    return size


MERGED_BATCH_BYTES = 1_000_000
"""The largest batch that grows or is merged while it waits: librdkafka's batch.size, just below what topics take
(max.message.bytes is 1048588)."""
REQUEST_OVERHEAD = 512
"""Bytes of a request besides its batches: a batch stays so much smaller than max.request.size."""


def merge_limit(config: ProducerConfig) -> int:
    """The size up to which batches grow and are merged while they wait; 0 if batch.size is 0."""
    if not config.batch_size:
        return 0
    return min(MERGED_BATCH_BYTES, config.max_request_size - REQUEST_OVERHEAD, config.buffer_memory // 4)


class PartitionQueue:
    """The batches of one partition that are not done, its leader and its sequence numbers.

    The accumulator owns `closed` and the leader, the sender owns `in_flight` and `sent`, Idempotence owns the rest.
    """

    __slots__ = (
        "topic", "index", "topic_queues", "closed", "in_flight", "sent", "producer_id", "producer_epoch",
        "next_sequence", "last_acked_sequence", "last_acked_offset", "unresolved", "leader_id", "leader_epoch",
    )  # fmt: skip

    def __init__(self, topic: TopicQueues, index: int) -> None:
        self.topic = topic.name
        self.index = index
        self.topic_queues = topic
        self.closed: deque[Batch] = deque()
        self.in_flight: list[Batch] = []  # sent at least once and not done, in the order of first sending
        self.sent = 0  # batches so far
        self.producer_id = -1
        self.producer_epoch = -1
        self.next_sequence = 0
        self.last_acked_sequence = -1
        self.last_acked_offset = -1
        self.unresolved: int | None = None  # the sequence after a batch that ended without an answer
        self.leader_id = NO_NODE
        self.leader_epoch = -1

    @property
    def open(self) -> Batch:
        """The batch that takes records; the topic's `full` if there is none."""
        return self.topic_queues.open[self.index]

    def __repr__(self) -> str:
        return f"{self.topic}-{self.index}"


class TopicQueues:
    """The partitions of a topic that records are sent to, and the one that takes records without a key."""

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
        "merge_limit",
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
        self.merge_limit = MERGED_BATCH_BYTES  # less after a broker refused a batch that large
        # Takes the place of the open batch of a partition that has none; it never has room.
        self.full: Batch = Batch(None, 0)  # type: ignore[arg-type]
        self.full.limit = -1


class Accumulator(Generic[H]):
    """The batches that are not done, by partition; `waker` is called when the sender has something to do."""

    def __init__(
        self,
        handle_class: type[H],
        lock: AbstractContextManager[Any],
        jitter: Jitter,
        waker: Callable[[], None],
        *,
        batch_size: int,
        merge_limit: int,
        buffer_memory: int,
        linger_ms: int,
    ) -> None:
        self.topics: dict[str, TopicQueues] = {}
        self.ready: dict[PartitionQueue, None] = {}
        """Partitions with closed batches, the longest waiting first."""
        self.incomplete: dict[Batch, None] = {}
        """All batches that are not done, the oldest first."""
        self.unencoded: set[Batch] = set()
        """Arrow batches that wait to be encoded by the sender; while there are any, a caller encodes its own."""
        self.used_bytes = 0
        self.waiting_for_memory = 0
        """The number of callers that wait for memory; no batch lingers while there are any."""
        self.fresh = False
        """Whether a batch was closed since the sender last looked."""
        self.full: list[Batch] = []
        """Open batches of more than batch.size bytes: they grow until the sender looks, and closes them."""
        self.closed = self.in_send = False
        self.linger_ms = linger_ms
        self.encode: Callable[[Batch], Buffer] | None = None
        """Encodes a closed batch without the producer's numbers; the sender says how."""
        self.handle_class = handle_class
        self.lock = lock
        self._jitter = jitter
        self._waker = waker
        self._batch_size, self._merge_limit = max(1, batch_size), merge_limit
        self.buffer_memory = buffer_memory
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
    ) -> H | NoRoom:
        """Puts a record into the open batch of a partition (STICKY: the topic's current one), and returns its handle.

        Gives that batch more memory, or closes it and begins another, where that is needed. A batch that has grown to
        the most that it may is encoded here, by the caller.
        """
        size = record_size(key, value, headers)
        grown: Batch | None = None
        with self.lock:
            no_room = self._refusal(topic)
            if no_room is not None:
                return no_room
            most = max(self._batch_size, min(self._merge_limit, topic.merge_limit))
            batch = topic.queues[topic.sticky if partition == STICKY else partition].open
            wanted = batch.size + size
            if batch.limit < 0 or wanted > most:
                if batch.limit >= 0:
                    self._close(batch)
                    if batch.size >= WORTH_ENCODING:
                        grown = batch
                        batch.being_encoded = True
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
            made: H | NoRoom = NoRoom.MEMORY
            fills = batch.size <= self._batch_size < wanted
            up_to = self._batch_size if wanted <= self._batch_size else most
            if wanted <= batch.charge or self._charge(batch, wanted, up_to):
                if not batch.values:
                    topic.open[batch.queue.index] = batch
                    topic.used_ms = now_ms
                    self.incomplete[batch] = None
                    self._lingering.append(batch)
                    if len(self._lingering) == 1:  # else the sender will look at an older one before
                        self._waker()
                if fills:
                    self.full.append(batch)
                    self._waker()
                made = self._put(batch, key, value, timestamp, headers, callback, wanted)
        if grown is not None:
            self._encode_early(grown)
        return made

    def _encode_early(self, batch: Batch) -> None:
        """Encodes a batch that the sender leaves alone meanwhile. The sender does it, if it cannot be done here."""
        encoded: Buffer | None = None
        try:
            if self.encode is not None:
                encoded = self.encode(batch)
        except Exception:
            pass  # the sender finds the same, and fails the batch
        finally:
            with self.lock:
                batch.being_encoded = False
                if encoded is not None and not batch.done:
                    batch.encoded = encoded
                    batch.was_reset = True  # it is given its numbers when it is sent
                self.fresh = True
                self._waker()

    def append_columns(
        self,
        queue: PartitionQueue,
        columns: Any,
        count: int,
        size: int,
        now_ms: int,
        encoded: Buffer | None = None,
    ) -> Batch | NoRoom:
        """Makes a closed batch of records that are columns already; `size` is the most that they take when encoded.

        `encoded` is the batch as bytes, without the producer's numbers, if the caller has encoded it.
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
                batch.was_reset = True  # it is given its numbers when it is sent
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
    ) -> H:
        """Appends a record to the columns of a batch; `fast_send` has its own copy of this code, for speed."""
        batch.size = size
        index = len(batch.values)
        if batch.keys is None and key is not None:
            batch.keys = [None] * index
        if batch.keys is not None:
            batch.keys.append(key)
        batch.values.append(value)
        batch.timestamps.append(timestamp)
        sizes = (len(key) if key is not None else -1, len(value) if value is not None else -1)
        handle = handle_of(self.handle_class, batch, index, timestamp, *sizes)
        if headers:
            batch.headers = batch.headers or {}
            batch.headers[index] = headers
        if callback is not None:
            batch.callbacks = batch.callbacks or []
            batch.callbacks.append((handle, callback))
        return handle

    def _charge(self, batch: Batch, wanted: int, most: int) -> bool:
        """Takes memory for a batch of `wanted` bytes, and for the next records up to `most`, if there is enough."""
        free = self.buffer_memory - self.used_bytes
        if wanted - batch.charge > free:
            return False
        step = min(max(GROWTH, 3 * batch.charge), MOST_GROWTH)
        comfortable = max(wanted, min(batch.charge + step, most))
        granted = min(comfortable - batch.charge, free)
        self.used_bytes += granted
        batch.charge += granted
        batch.limit = batch.charge
        return True

    # --- batches ----------------------------------------------------------------------------------

    def _close(self, batch: Batch) -> None:
        """Closes a batch, which then waits for the sender, and frees the memory that it did not need."""
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
            # Changing the partition before a batch is nearly full would make many small batches.
            if topic.sticky_bytes * 8 >= self._batch_size * 7:
                self._move_on(topic)
        self.fresh = True
        self._waker()

    def _move_on(self, topic: TopicQueues) -> None:
        among: list[int] | range = topic.available or range(len(topic.queues))
        topic.sticky = among[int(self._jitter() * len(among))]
        topic.sticky_bytes = 0

    def close_due(self, now_ms: int) -> None:
        """Closes the open batches that are full or have lingered; all, if callers wait for memory, or at the end."""
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

    def looked(self) -> None:
        """Takes note that the sender looks at all batches that are closed by now."""
        self.fresh = False

    def next_linger_ms(self) -> int | None:
        """Returns when the oldest open batch will have lingered; too early if that batch was closed since."""
        with self.lock:
            return self._lingering[0].created_ms + self.linger_ms if self._lingering else None

    def wait_for_memory(self, more: int) -> None:
        """Counts a caller that begins (1) or stops (-1) waiting for memory."""
        with self.lock:
            self.waiting_for_memory += more
            self.fresh = True

    def has_room(self, size: int) -> bool:
        return self.closed or self.used_bytes + size <= self.buffer_memory

    def oldest(self) -> Batch | None:
        """Returns the oldest batch that is not done."""
        with self.lock:
            return next(iter(self.incomplete), None)

    def flush(self) -> list[Batch]:
        """Closes all open batches, and returns all that are not done."""
        with self.lock:
            for batch in self._lingering:
                if batch.limit >= 0:
                    self._close(batch)
            self._lingering.clear()
            return list(self.incomplete)

    def take_first(self, queue: PartitionQueue, most_bytes: int) -> Batch:
        """Takes the first closed batch of a partition out of its queue, merged with the next ones where possible."""
        with self.lock:
            batch = queue.closed.popleft()
            self.unencoded.discard(batch)
            batches = [batch]
            if batch.may_merge:
                size = batch.size
                while queue.closed and queue.closed[0].may_merge:
                    size += queue.closed[0].size
                    if size > most_bytes:
                        break
                    batches.append(queue.closed.popleft())
            self.ready.pop(queue, None)
            if queue.closed:
                self.ready[queue] = None  # behind the others
        return batch if len(batches) == 1 else merge(batches)

    def put_back(self, batch: Batch) -> None:
        """Queues a batch that must be sent again, before those that were sent after it and those never sent."""
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
        """Puts the parts of a batch that was split in its place; they take over its memory."""
        with self.lock:
            self.incomplete.pop(batch, None)
            for part in parts:
                self.incomplete[part] = None
            parts[0].charge, batch.charge = batch.charge, 0

    def release(self, batch: Batch) -> None:
        """Frees the memory of a batch that is done."""
        with self.lock:
            self.used_bytes -= batch.charge
            batch.charge = 0
            self.incomplete.pop(batch, None)

    def shut(self) -> None:
        """Closes all batches, and refuses all records from now on."""
        with self.lock:
            self.closed = True
            for topic in self.topics.values():
                for queue in topic.queues:
                    # From now on `fast_send` finds no open batch.
                    if queue.open.limit >= 0:
                        self._close(queue.open)

    # --- topics -----------------------------------------------------------------------------------

    def learn(self, cluster: Cluster, now_ms: int) -> None:
        """Takes over the metadata of all topics: new topics, new partitions, and leaders."""
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

    def lower_merge_limit(self, topic: TopicQueues, refused_size: int) -> None:
        """Halves the size up to which a topic's batches are merged, after a broker refused one of `refused_size`."""
        half = refused_size // 2
        topic.merge_limit = min(topic.merge_limit, half if half > self._batch_size else 0)

    def forget_idle(self, idle_ms: int, now_ms: int) -> list[str]:
        """Forgets the topics that had no records for `idle_ms`, and returns their names."""
        gone = []
        with self.lock:
            for name, topic in list(self.topics.items()):
                unused = topic.used_ms + idle_ms <= now_ms
                if unused and not any(q.open.limit >= 0 or q.closed or q.in_flight for q in topic.queues):
                    topic.forgotten = True
                    del self.topics[name]
                    gone.append(name)
        return gone
