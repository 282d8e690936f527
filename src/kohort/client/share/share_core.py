"""Puts the parts of a share consumer together, without I/O; the fronts and the simulator drive it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from kohort.client.config import ShareConsumerConfig
from kohort.client.core.backoff import Jitter
from kohort.client.core.effects import Outbox, Part
from kohort.client.core.metadata import Metadata
from kohort.client.core.metrics import MetricSource
from kohort.client.errors import error_for
from kohort.client.group.coordinator import GroupCoordinator
from kohort.client.records import Deserializer
from kohort.client.share.acknowledgements import TopicIdPartition
from kohort.client.share.in_flight import InFlightRecords, Origin
from kohort.client.share.share_fetcher import Acknowledgement, ShareFetcher
from kohort.client.share.share_membership import ShareMembership
from kohort.client.share.share_metrics import SHARE_FETCHES, SHARE_GROUP
from kohort.settings import SettingError
from kohort.wire.errors import ErrorCode, KafkaError


class ShareConsumerCore:
    """The parts of one share consumer: metadata, coordinator, membership, fetcher, and the records in flight."""

    def __init__(
        self,
        config: ShareConsumerConfig,
        jitter: Jitter,
        member_id: str,
        out: Outbox | None = None,
        metadata: Metadata | None = None,
    ) -> None:
        """Makes the parts. An engine brings its own outbox and metadata, and drives the metadata itself."""
        self.config = config
        self.out: Outbox = [] if out is None else out
        self.metadata = Metadata(self.out, config, jitter) if metadata is None else metadata
        self.coordinator = GroupCoordinator(self.out, config, self.metadata, jitter)
        self.membership = ShareMembership(
            self.out, config, self.coordinator, self.metadata, member_id, jitter
        )
        self.fetcher = ShareFetcher(self.out, config, self.metadata, member_id, jitter, self._assigned)
        self.in_flight = InFlightRecords()
        self._seen = -1
        self._topic_error: KafkaError | None = None
        self._parts: tuple[Part, ...] = (self.coordinator, self.membership, self.fetcher)

    def _assigned(self) -> Iterable[TopicIdPartition]:
        return self.membership.assignment

    # --- driven from outside ------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        self._look_at_cluster()
        for part in self._parts:
            part.tick(now_ms)

    def tick_background(self, now_ms: int) -> None:
        """Does what must go on while the user works and nobody polls: heartbeats."""
        self.coordinator.tick(now_ms)
        self.membership.tick_background(now_ms)

    def next_deadline_ms(self) -> int | None:
        deadlines = [part.next_deadline_ms() for part in self._parts]
        return min((ms for ms in deadlines if ms is not None), default=None)

    def background_deadline_ms(self) -> int | None:
        deadlines = (self.coordinator.next_deadline_ms(), self.membership.next_deadline_ms())
        return min((ms for ms in deadlines if ms is not None), default=None)

    def metric_sources(self) -> Iterator[MetricSource]:
        yield MetricSource(SHARE_GROUP, self.membership.metrics)
        yield MetricSource(SHARE_FETCHES, self.fetcher.metrics)

    def _look_at_cluster(self) -> None:
        """Looks, where metadata has changed, whether a subscribed topic may not be read."""
        cluster = self.metadata.cluster
        if cluster.version == self._seen:
            return
        self._seen = cluster.version
        for code, words in _REFUSED.items():
            topics = sorted(name for name, error in cluster.errors.items() if error is code)
            if topics:
                self._topic_error = error_for(code, words.format(", ".join(topics)))

    # --- subscriptions ------------------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str], now_ms: int) -> None:
        wanted = frozenset(topics)
        allow = self.config.allow_auto_create_topics
        self.metadata.want(wanted, allow_auto_create=allow, now_ms=now_ms)
        self.membership.subscribe(wanted, now_ms)

    def unsubscribe(self, now_ms: int) -> None:
        self.metadata.want(frozenset(), now_ms=now_ms)

    # --- records ------------------------------------------------------------------------------------------

    def deserialize_with(self, key: Deserializer[Any] | None, value: Deserializer[Any] | None) -> None:
        """Makes polls give objects instead of bytes from now on."""
        for kind, function in (("key", key), ("value", value)):
            if function is not None and not callable(function):
                raise SettingError(
                    f"{kind}.deserializer must be a callable of topic and bytes, not {function!r}"
                )
        self.fetcher.deserializers = (key, value)

    def collect(self, now_ms: int) -> None:
        """Puts what is buffered in flight: up to max.poll.records, and the first answer in any case.

        Raises the error of records that cannot be handed out, if they come first; they are acknowledged then.
        """
        buffered, room = self.fetcher.buffered, self.config.max_poll_records
        while buffered:
            fetch = buffered[0]
            size = fetch.decode()
            if self.in_flight.count and (size > room or fetch.fails_next):
                return
            origin = Origin(fetch.node_id, fetch.partition)
            self.in_flight.add(origin, (), fetch.take_others())
            failed = fetch.take_failure()
            if failed is not None:
                self.in_flight.add_failed(origin, failed)
                raise failed.error
            records = fetch.take()
            self.in_flight.add(origin, records)
            if records and fetch.lock_timeout_ms is not None:
                self.in_flight.lock_timeout_ms = fetch.lock_timeout_ms
            room -= len(records)
            if records:
                self.fetcher.metrics.handed_out(len(records), now_ms)
            if fetch.is_used_up:
                buffered.popleft()

    # --- what a caller waits for --------------------------------------------------------------------------

    @property
    def has_news(self) -> bool:
        """Whether a poll that waits should look: records, an answer to acknowledgements, or an error."""
        return bool(
            self.fetcher.buffered
            or self.fetcher.has_answered
            or self.fetcher.has_error
            or self.membership.has_error
            or self._topic_error is not None
        )

    def take_answered(self) -> Acknowledgement | None:
        """Returns what came of some acknowledgements, once; renewed records are the user's again."""
        result = self.fetcher.take_answered()
        if result is not None:
            self.in_flight.answered(result.origin, result.said, result.error is None, result.lock_timeout_ms)
        return result

    def raise_errors(self) -> None:
        """Raises the first error that was not raised yet."""
        if self._topic_error is not None:
            refused, self._topic_error = self._topic_error, None
            self.metadata.request_update("the user was told of topics that cannot be read")
            raise refused
        for part in (self.membership, self.fetcher):
            error = part.take_error()
            if error is not None:
                raise error


_REFUSED = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not allowed to see {0}: this user needs READ on it",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "the broker has no topic of such a name: {0}. Letters, digits, '.', '_' and '-' "
    "make a name, at most 249 of them",
}
