"""ConsumerGroup: a live consumer group, with the counts that make its questions cheap."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from kohort.coordinator.consumer.state import (
    STABLE,
    UNRELEASED,
    ConsumerGroupState,
    ConsumerMember,
    ConsumerState,
)
from kohort.coordinator.modern.group import ModernGroup
from kohort.coordinator.replay import TopicPartition
from kohort.wire.messages.consumer_group_regular_expression_value import ConsumerGroupRegularExpressionValue


class ConsumerGroup(ModernGroup, ConsumerState):
    """A live group: what its records say, durable or on their way, and the soft state of ModernGroup."""

    def __init__(self, group_id: str) -> None:
        self.static_members: dict[str, str] = {}
        """Instance id -> member id."""
        self.owners: dict[bytes, dict[int, str]] = {}
        """Topic id -> partition -> the member that owns it, or has yet to give it up."""
        self.subscribers: Counter[str] = Counter()
        """Topic -> how many members name it."""
        self.regex_subscribers: Counter[str] = Counter()
        self.matched: Counter[str] = Counter()
        """Topic -> how many of the group's regular expressions match it."""
        self.stable_at: Counter[int] = Counter()
        """Epoch -> how many members are STABLE at it."""
        self.revoking: dict[str, None] = {}
        """The members that have yet to give up partitions."""
        self.classic_members = 0
        self.classic_protocols: Counter[str] = Counter()
        self.rebalance_deadlines: dict[str, tuple[int, int]] = {}
        """Member -> when it must have left the epoch in which it gives up partitions, and that epoch."""
        self.join_deadlines: dict[str, int] = {}
        """A classic member -> when it must have joined again."""
        self.sync_deadlines: dict[str, int] = {}
        self.pending_commits: list[tuple[TopicPartition, ...]] = []
        """The partitions of each commit that is on its way to the log."""
        self.regex_refresh_due = False
        """Whether topics were created since the regular expressions were matched."""
        ConsumerState.__init__(self)
        self.init_soft(group_id)

    # ---- changes

    def put_member(self, member_id: str, member: ConsumerMember | None) -> None:
        old = self.members.get(member_id)
        if old is not None:
            self._count(old, -1)
            self._release(old)
            if old.instance_id is not None and self.static_members.get(old.instance_id) == member_id:
                del self.static_members[old.instance_id]
        super().put_member(member_id, member)
        self.revoking.pop(member_id, None)
        if member is not None:
            if member.pending:
                self.revoking[member_id] = None
            self._count(member, 1)
            self._take(member)
            if member.instance_id is not None:
                self.static_members[member.instance_id] = member_id

    def _count(self, member: ConsumerMember, change: int) -> None:
        for name in member.topic_names:
            _add(self.subscribers, name, change)
        if member.topic_regex:
            _add(self.regex_subscribers, member.topic_regex, change)
        if member.state is STABLE:
            _add(self.stable_at, member.epoch, change)
        if member.classic is not None:
            self.classic_members += change
            for protocol in member.classic.supported_protocols:
                _add(self.classic_protocols, protocol.name, change)

    def _take(self, member: ConsumerMember) -> None:
        for owned in (member.assigned, member.pending):
            for topic_id, partitions in owned.items():
                of_topic = self.owners.setdefault(topic_id, {})
                for partition in partitions:
                    of_topic[partition] = member.member_id

    def _release(self, member: ConsumerMember) -> None:
        for owned in (member.assigned, member.pending):
            for topic_id, partitions in owned.items():
                of_topic = self.owners.get(topic_id, {})
                for partition in partitions:
                    if of_topic.get(partition) == member.member_id:
                        del of_topic[partition]
                if not of_topic:
                    self.owners.pop(topic_id, None)

    def put_regex(self, regex: str, value: ConsumerGroupRegularExpressionValue | None) -> None:
        old = self.regexes.get(regex)
        for change, resolved in ((-1, old), (1, value)):
            for name in resolved.topics if resolved is not None else ():
                _add(self.matched, name, change)
        super().put_regex(regex, value)

    # ---- questions

    @property
    def pending_offsets(self) -> set[TopicPartition]:
        return {key for keys in self.pending_commits for key in keys}

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscribers or topic in self.matched

    def subscribed_topics(self) -> Iterator[str]:
        yield from self.subscribers
        yield from self.matched.keys() - self.subscribers.keys()

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """Returns the topics that a member subscribes to; an expression that is not resolved matches nothing."""
        resolved = self.regexes.get(member.topic_regex) if member.topic_regex else None
        return member.topic_names if resolved is None else member.topic_names.union(resolved.topics)

    def is_homogeneous(self) -> bool:
        """Whether all members subscribe alike: to the same names, or to one and the same regular expression."""
        size = len(self.members)
        if not self.regex_subscribers:
            return all(count == size for count in self.subscribers.values())
        return not self.subscribers and next(iter(self.regex_subscribers.values())) == size

    def is_free(self, topic_id: bytes, partition: int, member_id: str) -> bool:
        """Whether no other member owns a partition, or has yet to give it up."""
        of_topic = self.owners.get(topic_id)
        return of_topic is None or of_topic.get(partition, member_id) == member_id

    def waits_for_others(self, member: ConsumerMember) -> bool:
        """Whether a partition of the member's target is still with somebody else."""
        if member.state is not UNRELEASED:
            return False
        nothing: Mapping[int, int] = {}
        return any(
            partition not in member.assigned.get(topic_id, nothing)
            and not self.is_free(topic_id, partition, member.member_id)
            for topic_id, partitions in self.targets.get(member.member_id, {}).items()
            for partition in partitions
        )

    def state_name(self) -> str:
        size = len(self.members)
        if not size:
            return ConsumerGroupState.EMPTY
        if self.group_epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        is_stable = self.stable_at[self.assignment_epoch] == size
        return ConsumerGroupState.STABLE if is_stable else ConsumerGroupState.RECONCILING

    def supports_classic(self, protocols: frozenset[str]) -> bool:
        """Whether a member with these protocols may join with the classic protocol."""
        return any(self.classic_protocols[name] == self.classic_members for name in protocols)


def _add(counts: Counter[str] | Counter[int], key: str | int, change: int) -> None:
    count = counts[key] + change  # type: ignore[index]
    if count:
        counts[key] = count  # type: ignore[index]
    else:
        counts.pop(key, None)  # type: ignore[arg-type]
