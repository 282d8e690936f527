"""The blocking share consumer; share/share_calls.py says what its calls do, this module how a thread waits for them."""

from __future__ import annotations

import os
import threading
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Unpack

from kohort.client.config import SECURITY_OBJECTS, SHARE_CONSUMER, ShareConsumerConfig, read_config
from kohort.client.core.steps import Steps, T
from kohort.client.errors import ClosedClient, ConcurrentUse, CorruptRecord, DeserializationFailed
from kohort.client.io.driving import deadline_after, run_steps
from kohort.client.io.engine import Engine
from kohort.client.io.measured import MeasuredClient
from kohort.client.io.member_ids import new_member_id
from kohort.client.io.tls import security_for
from kohort.client.records import Deserializer, K, Record, V
from kohort.client.share.acknowledgements import AcknowledgeType
from kohort.client.share.share_calls import CommitCallback, ShareConsumerCalls
from kohort.client.share.share_core import ShareConsumerCore
from kohort.client.share.share_iteration import ShareIteration
from kohort.client.types import TopicPartition
from kohort.wire.errors import KohortError

if TYPE_CHECKING:
    from kohort.client.io.async_engine import AsyncEngine
    from kohort.client.keywords import ShareConsumerKeywords

SHARE_OBJECTS = ("key.deserializer", "value.deserializer", *SECURITY_OBJECTS)

CommitResults = dict[TopicPartition, KohortError | None]


def build_share_core(
    config: ShareConsumerConfig, objects: Mapping[str, Any], engine: Engine | AsyncEngine
) -> ShareConsumerCore:
    """Makes the parts of a share consumer and hands them to the engine, which is closed if they do not fit."""
    try:
        core = ShareConsumerCore(config, engine.jitter, new_member_id(), engine.out, engine.metadata)
        core.deserialize_with(objects.get("key.deserializer"), objects.get("value.deserializer"))
    except BaseException:
        engine.close()
        raise
    engine.add(core)
    return core


def share_keywords(
    keywords: ShareConsumerKeywords, key: Deserializer[Any] | None, value: Deserializer[Any] | None
) -> dict[str, object]:
    """Returns all keywords; those that give a share consumer its types are apart in its signature."""
    deserializers = {"key_deserializer": key, "value_deserializer": value}
    return {**keywords, **{name: each for name, each in deserializers.items() if each is not None}}


class ShareConsumer(MeasuredClient, Generic[K, V]):
    """Reads topics as a member of a share group, which gives each record to one member and hears what became of it.

    with ShareConsumer({"bootstrap.servers": "127.0.0.1:9092", "group.id": "mails"}) as consumer:
        consumer.subscribe(["mails"])
        for record in consumer:
            send(record.value)

    The next poll accepts what the last one returned. With `share.acknowledgement.mode=explicit` the user says of each
    record what became of it, by `acknowledge`. Settings have Kafka's names, in a dict or as keywords; besides these
    there are `key.deserializer` and `value.deserializer` (callables of topic and bytes). For one thread at a time; only
    `wakeup` may come from another. All timeouts are in seconds.
    """

    _engine: Engine

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        /,
        *,
        key_deserializer: Deserializer[K] | None = None,
        value_deserializer: Deserializer[V] | None = None,
        **keywords: Unpack[ShareConsumerKeywords],
    ) -> None:
        given = share_keywords(keywords, key_deserializer, value_deserializer)
        self._config, objects = read_config(SHARE_CONSUMER, settings, given, SHARE_OBJECTS)
        self._engine = Engine(self._config, security=security_for(self._config, objects))
        self._core = build_share_core(self._config, objects, self._engine)
        self._calls = ShareConsumerCalls(
            self._core, self._engine.now_ms, lambda: self._engine.network.last_error
        )
        self._engine.measure(self._calls.metric_sources)
        self._iteration = ShareIteration(self._core.in_flight)
        self._owner: dict[str, int] = {}  # the thread inside; setdefault looks and takes it in one step
        self._depth = 0
        self._closed = False
        self._pid = os.getpid()
        self._engine.start_background(f"kohort-heartbeat-{self._config.group_id}")

    def __enter__(self) -> ShareConsumer[K, V]:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"<ShareConsumer {self._config.client_id} of {self._config.group_id}, "
            f"{len(self._core.membership.assignment)} partitions>"
        )

    # --- what to read ---------------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str]) -> None:
        """Joins the share group for these topics, and for no others any more."""
        self._run(self._calls.subscribe(topics))

    def unsubscribe(self) -> None:
        """Reads nothing any more, and leaves the group. Records in flight can still be acknowledged and committed."""
        self._run(self._calls.unsubscribe())

    def subscription(self) -> frozenset[str]:
        """Returns the topics that are subscribed to."""
        return self._core.membership.topics

    # --- records --------------------------------------------------------------------------------------

    def poll(self, timeout: float = 1.0) -> dict[TopicPartition, list[Record[K, V]]]:
        """Returns records by partition as soon as there are any; nothing if none came in time. Keeps the membership.

        In implicit mode it accepts what the poll before it returned. In explicit mode each record of that must be
        acknowledged; those that were renewed are returned again. The broker locks the records for this consumer for
        `acquisition_lock_timeout_ms()`, then it delivers them again.
        """
        self._iteration.end()
        return self._poll(timeout)

    def _poll(self, timeout: float) -> dict[TopicPartition, list[Record[Any, Any]]]:
        steps = self._calls.poll(self._deadline(timeout))
        try:
            return self._run(steps)
        except KohortError:
            raise
        except BaseException:  # the handler of a signal has raised: the next poll returns what this one took
            self._calls.give_back()
            raise

    def __iter__(self) -> Generator[Record[K, V], None, None]:
        """Yields records one by one, without end. What was not given out is released when the iteration ends."""
        return self._iteration.over(lambda: self._poll(1.0))

    # --- acknowledgements -----------------------------------------------------------------------------

    def acknowledge(
        self,
        record: Record[Any, Any] | DeserializationFailed | CorruptRecord,
        type: AcknowledgeType = AcknowledgeType.ACCEPT,
    ) -> None:
        """Says what became of a record of the last poll; the next poll, commit or close tells the broker.

        ACCEPT: done. RELEASE: to be delivered again, here or elsewhere. REJECT: never again. RENEW: still at it, lock
        it anew. Only with `share.acknowledgement.mode=explicit`. In place of a record it takes the error that poll has
        raised for one, which is released (DeserializationFailed) or rejected (CorruptRecord) otherwise.
        """
        self._enter()  # without the `with` of other calls: this one is called for each record
        try:
            self._calls.acknowledge(record, type)
        finally:
            self._leave()

    def commit_sync(self, timeout: float | None = None) -> CommitResults:
        """Sends all acknowledgements and waits for the answers; returns for each partition None or what failed.

        In implicit mode it accepts first all that was returned.
        """
        return self._run(self._calls.commit_sync(self._deadline(timeout)))

    def commit_async(self) -> None:
        """Sends all acknowledgements without waiting; the acknowledgement commit callback hears of the answers."""
        self._run(self._calls.commit_async())

    def set_acknowledgement_commit_callback(self, callback: CommitCallback | None) -> None:
        """Has `callback(offsets, error)` called, by a later call, when acknowledgements are answered or have failed.

        `offsets` is a dict of a partition and a set of its offsets; `error` is None if the acknowledgements hold.
        """
        with self._one_thread():
            self._calls.set_callback(callback)

    def acquisition_lock_timeout_ms(self) -> int | None:
        """Returns how long records are locked for this consumer, as the broker said last; None before any came."""
        return self._core.in_flight.lock_timeout_ms

    # --- the end --------------------------------------------------------------------------------------

    def wakeup(self) -> None:
        """Makes the call that waits now, or the next one that would, raise Wakeup. From any thread."""
        self._engine.wakeup()

    def close(self, timeout: float = 30.0) -> None:
        """Sends what was acknowledged, releases all other records, leaves the group; bounded by the timeout."""
        if self._closed:
            return
        if os.getpid() != self._pid:
            self._closed = True
            return  # the parent's connections are not ours to use
        deadline_ms = self._deadline(timeout)  # a wrong one leaves the consumer open
        with self._one_thread():
            self._iteration.end()
            try:
                run_steps(self._engine, self._calls.close(deadline_ms), wakeable=False)
            finally:
                self._closed = True
                self._engine.close()

    # --- how this front waits ---------------------------------------------------------------------------

    def _deadline(self, timeout: float | None) -> int:
        return deadline_after(self._engine, self._config, timeout)

    def _run(self, steps: Steps[T]) -> T:
        with self._one_thread():
            return run_steps(self._engine, steps)

    @contextmanager
    def _one_thread(self) -> Iterator[None]:
        """Guards the consumer: a callback may call it again, another thread may not."""
        self._enter()
        try:
            yield
        finally:
            self._leave()

    def _enter(self) -> None:
        if self._closed:
            raise ClosedClient("this share consumer is closed")
        if os.getpid() != self._pid:
            raise ClosedClient(
                "this share consumer belongs to the parent process: make a new one after a fork"
            )
        me = threading.get_ident()
        if self._owner.setdefault("thread", me) != me:
            raise ConcurrentUse(
                "another thread is using this share consumer: it is for one thread at a time (only wakeup() may come "
                "from another one)"
            )
        self._depth += 1

    def _leave(self) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._owner.clear()
