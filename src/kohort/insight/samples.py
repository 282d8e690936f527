"""One look at a cluster: its nodes, its topics, its groups with their members, committed offsets and lag."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from kohort.client.admin import Admin
from kohort.client.admin_types import (
    ClusterDescription,
    GroupDescription,
    MemberDescription,
    Node,
    PartitionDescription,
    SharePartitionOffset,
    TopicDescription,
)
from kohort.client.errors import PartlyFailed
from kohort.client.types import OffsetAndMetadata, TopicPartition
from kohort.errors import KohortError
from kohort.wire.errors import ErrorCode, KafkaError

V = TypeVar("V")

DEAD = "Dead"
"""The state of a group that does not exist."""
SHARE = "share"
"""The type of groups that commit no offsets: their brokers know where they start, and how far they are behind."""
MOST_PROBLEMS = 50


@dataclass(frozen=True, slots=True)
class PartitionSample:
    """A partition that a group reads: what the group has committed, and where the log begins and ends."""

    topic: str
    partition: int
    committed: int | None
    """None if a member owns the partition and nothing is committed yet."""
    metadata: str
    begin: int | None
    """None, like `end`, if the topic is gone or no leader answered; `ClusterSample.problems` says so."""
    end: int | None
    owners: tuple[str, ...]
    """The ids of the members that it is assigned to: one, and several only in a share group."""
    share_lag: int | None = None
    """In a share group, as its broker says: records behind the first one that is not done may be done as well."""

    @property
    def lag(self) -> int | None:
        """The number of records that are still to be read; None if nothing is committed or the end is not known."""
        if self.share_lag is not None:
            return self.share_lag
        if self.end is None or self.committed is None:
            return None
        return max(0, self.end - self.committed)


@dataclass(frozen=True, slots=True)
class GroupSample:
    """A group: its state, its members, and the partitions that it reads."""

    group_id: str
    state: str
    group_type: str
    protocol_type: str
    protocol: str
    coordinator: Node | None
    members: tuple[MemberDescription, ...]
    partitions: tuple[PartitionSample, ...]
    epoch: int | None = None
    assignment_epoch: int | None = None
    """Those of `GroupDescription`: None for a classic group."""

    @property
    def lag(self) -> int:
        """The lag of all partitions whose lag is known."""
        return sum(each.lag or 0 for each in self.partitions)


@dataclass(frozen=True, slots=True)
class TopicSample:
    """A topic: its partitions, and where their logs begin and end."""

    name: str
    topic_id: str
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]
    begins: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClusterSample:
    """All that one look has found, and in `problems` what it could not find, one sentence each."""

    at_ms: int
    cluster: ClusterDescription
    groups: dict[str, GroupSample]
    topics: dict[str, TopicSample]
    problems: tuple[str, ...] = ()


def sample_cluster(
    admin: Admin, now_ms: int, *, groups: Collection[str] | None = None, timeout: float = 10.0
) -> ClusterSample:
    """Looks at all topics and groups, or at these groups and the topics that they read.

    The number of requests grows with the number of nodes, and with that of groups by two for each 200. What is gone
    between two requests or does not answer is named in `problems`; the rest is sampled all the same. KohortError if the
    cluster does not answer at all. `timeout` is in seconds, for each of about six steps.
    """
    return _Look(admin, timeout).sample(now_ms, groups)


class _Look:
    """One look: the steps, and the problems that they meet."""

    def __init__(self, admin: Admin, timeout: float) -> None:
        self._admin, self._timeout = admin, timeout
        self._problems: list[str] = []

    def sample(self, now_ms: int, wanted: Collection[str] | None) -> ClusterSample:
        cluster = self._admin.describe_cluster(timeout=self._timeout)
        group_ids = self._listed() if wanted is None else list(dict.fromkeys(wanted))
        described = self._described(group_ids)
        offsets = self._offsets([each for each, group in described.items() if group.group_type != SHARE])
        starts = {
            each: self._share_offsets(each) for each, group in described.items() if group.group_type == SHARE
        }
        read = None
        if wanted is not None:
            read = {p.topic for found in (offsets, starts) for own in found.values() for p in own} | {
                partition.topic
                for group in described.values()
                for member in group.members
                for partition in member.assignment
            }
        topics = self._topics(read)
        groups = {
            group_id: _group_sample(group, offsets.get(group_id, {}), starts.get(group_id, {}), topics)
            for group_id, group in described.items()
        }
        self._name_what_is_gone(groups, topics)
        return ClusterSample(now_ms, cluster, groups, topics, tuple(_bounded(self._problems)))

    # --- groups ---------------------------------------------------------------------------------------

    def _listed(self) -> list[str]:
        try:
            return [each.group_id for each in self._admin.list_groups(timeout=self._timeout)]
        except KohortError as error:
            self._problems.append(f"the groups could not be listed: {error}")
            return []

    def _described(self, group_ids: Sequence[str]) -> dict[str, GroupDescription]:
        found = self._of_groups(
            lambda: self._admin.describe_groups(*group_ids, timeout=self._timeout), group_ids, "described"
        )
        gone = [group_id for group_id, group in found.items() if group.state == DEAD]
        self._problems += [f"group {group_id} does not exist any more" for group_id in gone]
        return {group_id: group for group_id, group in found.items() if group.state != DEAD}

    def _offsets(self, group_ids: Sequence[str]) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
        return self._of_groups(
            # Stable offsets would wait for open transactions.
            lambda: self._admin.offsets_of_groups(*group_ids, require_stable=False, timeout=self._timeout),
            group_ids,
            "read for offsets",
        )

    def _share_offsets(self, group_id: str) -> dict[TopicPartition, SharePartitionOffset]:
        try:
            return self._admin.share_group_offsets(group_id, timeout=self._timeout)
        except PartlyFailed as partly:
            return partly.results
        except KohortError as error:
            if not isinstance(error, KafkaError) or error.code is not ErrorCode.UNSUPPORTED_VERSION:
                self._problems.append(f"group {group_id} could not be read for offsets: {error}")
            return {}

    def _of_groups(
        self, ask: Callable[[], dict[str, V]], group_ids: Sequence[str], what: str
    ) -> dict[str, V]:
        if not group_ids:
            return {}
        try:
            return ask()
        except PartlyFailed as partly:
            self._problems += [
                f"group {group_id} could not be {what}: {error}" for group_id, error in partly.errors.items()
            ]
            return partly.results
        except KohortError as error:
            which = f"group {group_ids[0]}" if len(group_ids) == 1 else f"{len(group_ids)} groups"
            self._problems.append(f"{which} could not be {what}: {error}")
            return {}

    def _name_what_is_gone(
        self, groups: Mapping[str, GroupSample], topics: Mapping[str, TopicSample]
    ) -> None:
        for group in groups.values():
            gone = sorted({each.topic for each in group.partitions} - topics.keys())
            self._problems += [
                f"group {group.group_id} has offsets of topic {topic}, which does not exist" for topic in gone
            ]

    # --- topics ---------------------------------------------------------------------------------------

    def _topics(self, names: Collection[str] | None) -> dict[str, TopicSample]:
        described = self._topic_descriptions(names)
        led = [
            TopicPartition(topic.name, each.partition)
            for topic in described.values()
            for each in topic.partitions
            if each.leader >= 0
        ]
        self._problems += [
            f"{topic.name}-{each.partition} has no leader"
            for topic in described.values()
            for each in topic.partitions
            if each.leader < 0
        ]
        begins, ends = self._boundaries(led)
        return {
            name: TopicSample(
                name,
                topic.topic_id,
                topic.is_internal,
                topic.partitions,
                begins.get(name, {}),
                ends.get(name, {}),
            )
            for name, topic in described.items()
        }

    def _topic_descriptions(self, names: Collection[str] | None) -> dict[str, TopicDescription]:
        if names is not None and not names:
            return {}
        try:
            return self._admin.describe_topics(*sorted(names or ()), timeout=self._timeout)
        except PartlyFailed as partly:
            return partly.results  # groups that have offsets of the others name them
        except KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._problems.append(f"the topics could not be described: {error}")
        except KohortError as error:
            self._problems.append(f"the topics could not be described: {error}")
        return {}

    def _boundaries(
        self, partitions: Sequence[TopicPartition]
    ) -> tuple[dict[str, dict[int, int]], dict[str, dict[int, int]]]:
        """Where the logs begin and end, by topic and partition."""
        both: list[dict[str, dict[int, int]]] = []
        failed: dict[TopicPartition, KohortError] = {}
        for ask in (self._admin.beginning_offsets, self._admin.end_offsets):
            by_topic: dict[str, dict[int, int]] = {}
            asked = [each for each in partitions if each not in failed]
            found, errors = self._boundary(ask, asked) if asked else ({}, {})
            failed |= errors
            for (topic, index), offset in found.items():
                by_topic.setdefault(topic, {})[index] = offset
            both.append(by_topic)
        self._problems += [f"{partition} gave no offsets: {error}" for partition, error in failed.items()]
        return both[0], both[1]

    def _boundary(
        self, ask: Callable[..., dict[TopicPartition, int]], asked: Sequence[TopicPartition]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, KohortError]]:
        try:
            return ask(asked, timeout=self._timeout), {}
        except PartlyFailed as partly:
            return partly.results, dict(partly.errors)
        except KohortError as error:
            return {}, dict.fromkeys(asked, error)


def _group_sample(
    group: GroupDescription,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    starts: Mapping[TopicPartition, SharePartitionOffset],
    topics: Mapping[str, TopicSample],
) -> GroupSample:
    owners: dict[TopicPartition, list[str]] = {}
    for member in group.members:
        for partition in member.assignment:
            owners.setdefault(partition, []).append(member.member_id)
    partitions = []
    for partition in sorted({*offsets, *starts, *owners}):
        at, topic = offsets.get(partition), topics.get(partition.topic)
        start = starts.get(partition)
        if start is not None:
            at = OffsetAndMetadata(start.start_offset)
        partitions.append(
            PartitionSample(
                partition.topic,
                partition.partition,
                None if at is None else at.offset,
                "" if at is None else at.metadata,
                None if topic is None else topic.begins.get(partition.partition),
                None if topic is None else topic.ends.get(partition.partition),
                tuple(owners.get(partition, ())),
                None if start is None else start.lag,
            )
        )
    return GroupSample(
        group.group_id, group.state, group.group_type, group.protocol_type, group.protocol, group.coordinator,
        group.members, tuple(partitions), group.epoch, group.assignment_epoch,
    )  # fmt: skip


def _bounded(problems: Sequence[str]) -> Iterator[str]:
    """Yields the first problems, and how many more there are: a cluster in trouble has one for each partition."""
    yield from problems[:MOST_PROBLEMS]
    if len(problems) > MOST_PROBLEMS:
        yield f"and {len(problems) - MOST_PROBLEMS} more problems"
