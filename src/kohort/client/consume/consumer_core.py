"""Puts the parts of a consumer together, without I/O; the fronts and the simulator drive it.

Events go in as commands, `tick` and the answers to what was sent. What must follow is in `out`, in `has_news`, in the
callback of the membership and in the operations that commands return.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from kohort.client.config import ConsumerConfig
from kohort.client.consume.fetcher import Fetcher
from kohort.client.core.backoff import Jitter
from kohort.client.core.cluster import Cluster
from kohort.client.core.effects import Outbox, Part
from kohort.client.core.metadata import Metadata
from kohort.client.core.metrics import MetricSource
from kohort.client.errors import DeserializationFailed, error_for
from kohort.client.group.assignors import Assignor, load_assignors
from kohort.client.group.coordinator import GroupCoordinator
from kohort.client.group.group_membership import GroupMembership, make_membership
from kohort.client.group.group_metrics import GROUP
from kohort.client.offsets.commit_metrics import COMMITS
from kohort.client.offsets.commits import Commits
from kohort.client.offsets.commits import log as commits_log
from kohort.client.offsets.positions import Positions
from kohort.client.offsets.subscription import Mode, PartitionState, Position, SubscriptionState
from kohort.client.records import Deserializer, Records, make_records
from kohort.client.types import TopicPartition
from kohort.settings import SettingError
from kohort.wire.errors import ErrorCode, KafkaError

DEFAULT_ASSIGNORS = ("range", "cooperative-sticky")

_REFUSED = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not allowed to see {0}: this user needs READ on it",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "the broker has no topic of such a name: {0}. Letters, digits, '.', '_' and '-' "
    "make a name, at most 249 of them",
}


class ConsumerCore:
    """The parts of one consumer: metadata, coordinator, membership, commits, positions, fetcher."""

    def __init__(
        self,
        config: ConsumerConfig,
        jitter: Jitter,
        assignors: list[Assignor] | None = None,
        out: Outbox | None = None,
        metadata: Metadata | None = None,
        member_id: str = "",
    ) -> None:
        """Makes the parts. An engine brings its own outbox and metadata, and drives the metadata itself.

        `member_id` is the member's own id for life, which the consumer protocol wants (a UUID).
        """
        self.config = config
        self.out: Outbox = [] if out is None else out
        self.subscription = SubscriptionState(config.reset())
        self.metadata = Metadata(self.out, config, jitter) if metadata is None else metadata
        self.coordinator = GroupCoordinator(self.out, config, self.metadata, jitter)
        self.membership: GroupMembership | None = None
        if config.group_id is not None:
            self.membership = make_membership(
                self.out,
                config,
                self.coordinator,
                self.subscription,
                self.metadata,
                lambda: assignors if assignors is not None else load_assignors(DEFAULT_ASSIGNORS),
                member_id,
                lambda now_ms: self.commits.before_join(now_ms),
                jitter,
            )
        self.commits = Commits(
            self.out,
            config,
            self.coordinator,
            self.subscription,
            self.metadata,
            self.membership,
            jitter=jitter,
            warn=self._warn_of_coordinator,
        )
        self.metadata.lane_of_look_ups = self.commits.lane_of_look_ups
        self.positions = Positions(self.out, config, self.subscription, self.metadata, self.commits, jitter)
        self.fetcher = Fetcher(self.out, config, self.subscription, self.metadata, jitter)
        self._deserializers: tuple[Deserializer[Any] | None, Deserializer[Any] | None] = (None, None)
        self._seen = -1  # the version of the cluster that was looked at last
        self._topic_error: KafkaError | None = None
        self._parts: list[Part] = [self.coordinator, self.commits, self.positions, self.fetcher]
        if self.membership is not None:
            self._parts.append(self.membership)

    def _warn_of_coordinator(self, now_ms: int, text: str) -> None:
        node_id = self.coordinator.node_id
        last_id = self.coordinator.last_node_id if node_id is None else node_id
        node = "the coordinator" if last_id is None else self.metadata.name_of(last_id)
        self.metadata.warnings.warn(commits_log, node, now_ms, text)

    # --- driven from outside ------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """Does everything that is due, in the order of one poll: group, positions, fetches."""
        self._look_at_cluster(self.metadata.cluster, now_ms)
        self.coordinator.tick(now_ms)
        if self.membership is not None and self.subscription.is_group:
            self.membership.tick(now_ms)
        self.commits.tick(now_ms)
        self.positions.tick(now_ms)
        self.fetcher.tick(now_ms)

    def tick_background(self, now_ms: int) -> None:
        """Does what must go on while the user works and nobody polls: heartbeats."""
        self.coordinator.tick(now_ms)
        if self.membership is not None:
            self.membership.tick_background(now_ms)

    def next_deadline_ms(self) -> int | None:
        deadlines = [part.next_deadline_ms() for part in self._parts]
        return min((ms for ms in deadlines if ms is not None), default=None)

    def background_deadline_ms(self) -> int | None:
        return self.membership.next_background_deadline_ms() if self.membership is not None else None

    def metric_sources(self) -> Iterator[MetricSource]:
        """Yields what the parts count."""
        if self.membership is not None:
            yield MetricSource(GROUP, self.membership.metrics)
        yield MetricSource(COMMITS, self.commits.metrics)
        yield from self.fetcher.metrics.sources()

    # --- what a caller of poll waits for ------------------------------------------------------------

    @property
    def has_news(self) -> bool:
        """Whether a poll that waits should look: there are records, a callback or an error."""
        membership = self.membership
        return (
            self.fetcher.has_data
            or self.fetcher.has_error
            or self._topic_error is not None
            or self.positions.has_error
            or self.commits.has_callbacks
            or (membership is not None and (membership.callback is not None or membership.has_error))
        )

    def raise_errors(self) -> None:
        """Raises the first error that was not raised yet; a fenced consumer gets its error every time."""
        if self.commits.fenced is not None:
            raise self.commits.fenced
        if self._topic_error is not None:
            refused, self._topic_error = self._topic_error, None
            self.metadata.request_update("the user was told of topics that cannot be read")
            raise refused
        for part in (self.membership, self.positions, self.fetcher):
            error = part.take_error() if part is not None else None
            if error is not None:
                raise error

    # --- records --------------------------------------------------------------------------------------

    def deserialize_with(self, key: Deserializer[Any] | None, value: Deserializer[Any] | None) -> None:
        """Makes `take` give objects instead of bytes from now on."""
        for kind, function in (("key", key), ("value", value)):
            if function is not None and not callable(function):
                raise SettingError(
                    f"{kind}.deserializer must be a callable of topic and bytes, not {function!r}"
                )
        self._deserializers = (key, value)

    def buffered_positions(self) -> dict[TopicPartition, tuple[PartitionState, Position | None]]:
        """Returns the present positions of the partitions of which `take` may hand out records."""
        states = self.subscription.partitions
        return {p: (state, state.position) for p in self.fetcher.buffered if (state := states.get(p))}

    def take(self, max_records: int, now_ms: int) -> dict[TopicPartition, Records[Any, Any]]:
        """Returns what poll returns.

        A record that cannot be deserialized stays the next one until the user seeks past it.
        """
        taken = self.fetcher.take(max_records, now_ms)
        if self._deserializers == (None, None):
            return taken
        done: dict[TopicPartition, Records[Any, Any]] = {}
        failures: list[DeserializationFailed] = []
        for partition, records in taken.items():
            made, failed = make_records(records, *self._deserializers)
            if failed is not None:
                state = self.subscription.partitions[partition]
                assert state.position is not None
                state.seek(replace(state.position, offset=failed.offset, offset_epoch=-1))
                failures.append(failed)
            if len(made):
                done[partition] = made
        if failures and not done:
            raise failures[0]
        return done

    # --- subscriptions --------------------------------------------------------------------------------

    def want_metadata(self, now_ms: int) -> None:
        """Tells the metadata which topics matter now."""
        subscription = self.subscription
        allow = self.config.allow_auto_create_topics
        match subscription.mode:
            case Mode.PATTERN:
                self.metadata.want(None, now_ms=now_ms)
            case Mode.TOPICS:
                self.metadata.want(
                    subscription.topics | subscription.group_topics, allow_auto_create=allow, now_ms=now_ms
                )
            case Mode.BROKER_PATTERN:
                self.metadata.want(frozenset(), now_ms=now_ms)  # the membership adds what is assigned, by id
            case Mode.ASSIGNED:
                topics = frozenset(partition.topic for partition in subscription.partitions)
                self.metadata.want(topics, allow_auto_create=allow, now_ms=now_ms)
            case Mode.NONE:
                self.metadata.want(frozenset(), now_ms=now_ms)

    def subscribe_pattern(self, pattern: re.Pattern[str]) -> None:
        """Subscribes to a pattern.

        If it follows another pattern it is matched at once: topics that only the old one matched are not read any more.
        """
        knows_all_topics = self.subscription.mode is Mode.PATTERN
        self.subscription.subscribe_pattern(pattern)
        if knows_all_topics:
            self._match(self.metadata.cluster)

    def _match(self, cluster: Cluster) -> None:
        self.subscription.match(
            name
            for name, topic in cluster.topics.items()
            if not (self.config.exclude_internal_topics and topic.is_internal)
        )

    def _look_at_cluster(self, cluster: Cluster, now_ms: int) -> None:
        """Looks whether metadata has changed: the pattern may match other topics, leaders may have moved."""
        if cluster.version == self._seen:
            return
        self._seen = cluster.version
        self._topic_error = _refused_topics(cluster)
        if self.subscription.mode is Mode.PATTERN and cluster.version > 0:
            self._match(cluster)
        self.positions.maybe_validate(now_ms)


def _refused_topics(cluster: Cluster) -> KafkaError | None:
    """Makes the error for topics that only the user can make readable; None if there are none."""
    for code, words in _REFUSED.items():
        topics = sorted(name for name, error in cluster.errors.items() if error is code)
        if topics:
            return error_for(code, words.format(", ".join(topics)))
    return None
