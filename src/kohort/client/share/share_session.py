"""The client's half of share sessions: a leader remembers which partitions a member reads, and what it has acquired.

There is one `ShareSessionHandler` per node. Its epoch counts the requests: 0 opens a session (and cannot acknowledge),
then come 1, 2, …, and -1 closes it. ShareFetch and ShareAcknowledge share the counter, so only one of them is under way
to a node at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kohort.client.config import ShareConsumerConfig
from kohort.client.share.acknowledgements import AcknowledgedRun, Acknowledgements, TopicIdPartition
from kohort.client.types import TopicPartition
from kohort.wire.errors import ErrorCode
from kohort.wire.messages import share_acknowledge, share_fetch

INITIAL_EPOCH, FINAL_EPOCH, MAX_EPOCH = 0, -1, 2**31 - 1

LOST_SHARE_SESSION = frozenset({
    ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH, ErrorCode.SHARE_SESSION_LIMIT_REACHED,
})  # fmt: skip
"""After these the next request opens a session anew."""

SINCE_RENEW = 2
"""The version of both requests that knows RENEW and record_limit."""

ACQUIRE_MODES = {"batch_optimized": 0, "record_limit": 1}

Acknowledged = Mapping[TopicIdPartition, Acknowledgements]


class SessionChange(NamedTuple):
    """What a ShareFetch says of the session's partitions."""

    added: tuple[TopicIdPartition, ...]
    forgotten: tuple[TopicIdPartition, ...]


@dataclass(slots=True)
class ShareSessionHandler:
    """The session with one node: the epoch of the next request, and the partitions that it holds."""

    node_id: int
    epoch: int = INITIAL_EPOCH
    partitions: dict[TopicPartition, TopicIdPartition] = field(default_factory=dict)

    @property
    def is_new(self) -> bool:
        """Whether the next request opens the session: the leader has acquired nothing for us."""
        return self.epoch == INITIAL_EPOCH

    def change(self, wanted: Iterable[TopicIdPartition]) -> SessionChange:
        """Returns what to say so that the session holds these partitions and no others."""
        before = {} if self.is_new else self.partitions
        self.partitions = {each.place: each for each in wanted}
        added = tuple(each for place, each in self.partitions.items() if before.get(place) != each)
        forgotten = tuple(each for place, each in before.items() if self.partitions.get(place) != each)
        return SessionChange(added, forgotten)

    def answered(self, code: int) -> bool:
        """The node has answered a request of this session. Returns whether that was no error."""
        if code in LOST_SHARE_SESSION:
            self.lose()
        else:
            self.epoch = self.epoch + 1 if self.epoch < MAX_EPOCH else 1
        return code == ErrorCode.NONE

    def lose(self) -> None:
        """The next request opens a session anew; the leader has released, or will, what this one had acquired."""
        self.epoch, self.partitions = INITIAL_EPOCH, {}


# --- the messages -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ShareFetchPlan:
    """One ShareFetch."""

    epoch: int
    change: SessionChange
    acknowledged: Acknowledged
    reads: bool
    """False: it only changes the session or acknowledges."""

    @property
    def renews(self) -> bool:
        return any(each.has_renewals for each in self.acknowledged.values())

    def request(
        self, config: ShareConsumerConfig, member_id: str, version: int
    ) -> share_fetch.ShareFetchRequest:
        """Builds the request in the version that the node speaks; ValueError if that version lacks what is said."""
        mode = ACQUIRE_MODES[config.share_acquire_mode]
        if version < SINCE_RENEW and mode:
            raise ValueError(
                f"share.acquire.mode={config.share_acquire_mode} needs a broker of Apache Kafka 4.2 or later "
                f"(ShareFetch v{SINCE_RENEW})"
            )
        check_renewals(self.renews, version, "ShareFetch")
        reads = self.reads and not self.renews
        return share_fetch.ShareFetchRequest(
            config.group_id,
            member_id,
            self.epoch,
            max_wait_ms=config.fetch_max_wait_ms if reads else 0,
            min_bytes=config.fetch_min_bytes if reads else 0,
            max_bytes=config.fetch_max_bytes if reads else 0,
            max_records=config.max_poll_records if reads else 0,
            batch_size=config.max_poll_records if reads else 0,
            share_acquire_mode=mode,
            is_renew_ack=self.renews,
            topics=self._topics(),
            forgotten_topics_data=_forgotten(self.change.forgotten),
        )

    def _topics(self) -> list[share_fetch.FetchTopic]:
        topics: dict[bytes, share_fetch.FetchTopic] = {}
        for partition in dict.fromkeys((*self.change.added, *self.acknowledged)):
            topic = topics.setdefault(partition.topic_id, share_fetch.FetchTopic(partition.topic_id))
            said = self.acknowledged.get(partition)
            batches = [share_fetch.AcknowledgementBatch(*each) for each in _ranges(said)]
            topic.partitions.append(share_fetch.FetchPartition(partition.partition, batches))
        return list(topics.values())


def acknowledge_request(
    group_id: str, member_id: str, epoch: int, acknowledged: Acknowledged, version: int
) -> share_acknowledge.ShareAcknowledgeRequest:
    """Builds a ShareAcknowledge in the version that the node speaks."""
    renews = any(each.has_renewals for each in acknowledged.values())
    check_renewals(renews, version, "ShareAcknowledge")
    topics: dict[bytes, share_acknowledge.AcknowledgeTopic] = {}
    for partition, said in acknowledged.items():
        topic = topics.setdefault(partition.topic_id, share_acknowledge.AcknowledgeTopic(partition.topic_id))
        batches = [share_acknowledge.AcknowledgementBatch(*each) for each in _ranges(said)]
        topic.partitions.append(share_acknowledge.AcknowledgePartition(partition.partition, batches))
    return share_acknowledge.ShareAcknowledgeRequest(
        group_id, member_id, epoch, renews, list(topics.values())
    )


def check_renewals(renews: bool, version: int, request: str) -> None:
    if renews and version < SINCE_RENEW:
        raise ValueError(
            f"AcknowledgeType.RENEW needs a broker of Apache Kafka 4.2 or later ({request} v{SINCE_RENEW})"
        )


def _ranges(said: Acknowledgements | None) -> list[AcknowledgedRun]:
    return said.ranges() if said is not None else []


def _forgotten(partitions: Iterable[TopicIdPartition]) -> list[share_fetch.ForgottenTopic]:
    topics: dict[bytes, share_fetch.ForgottenTopic] = {}
    for partition in partitions:
        topic = topics.setdefault(partition.topic_id, share_fetch.ForgottenTopic(partition.topic_id))
        topic.partitions.append(partition.partition)
    return list(topics.values())
