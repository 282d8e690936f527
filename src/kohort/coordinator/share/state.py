"""ShareState: a share group as its records say it, ShareGroupMember: one of its members."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from kohort.coordinator.assignors.spec import PartitionsByTopic
from kohort.coordinator.frozen import frozen
from kohort.coordinator.modern.state import ModernState
from kohort.wire.messages.share_group_current_member_assignment_value import (
    ShareGroupCurrentMemberAssignmentValue,
    TopicPartitions,
)
from kohort.wire.messages.share_group_member_metadata_value import ShareGroupMemberMetadataValue

LEAVING: Final = -1
"""The epoch that a member leaves with."""
NOTHING_ASSIGNED: PartitionsByTopic = {}


class ShareGroupMember(NamedTuple):
    """A member, as its records of type 10 and 14 say it. It never has to give up anything, so it has no states."""

    member_id: str
    epoch: int = 0
    previous_epoch: int = -1
    assigned: Mapping[bytes, frozenset[int]] = NOTHING_ASSIGNED
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()

    def subscription_value(self) -> ShareGroupMemberMetadataValue:
        names = tuple(sorted(self.topic_names))
        return ShareGroupMemberMetadataValue(self.rack_id, self.client_id, self.client_host, names)

    def assignment_value(self) -> ShareGroupCurrentMemberAssignmentValue:
        assigned = tuple(TopicPartitions(t, tuple(sorted(ps))) for t, ps in sorted(self.assigned.items()))
        return ShareGroupCurrentMemberAssignmentValue(self.epoch, self.previous_epoch, 0, assigned)


class NamedTopicPartitions(NamedTuple):
    name: str
    partitions: frozenset[int]


StateTopics = Mapping[bytes, NamedTopicPartitions]
NO_TOPICS: StateTopics = {}


class StatePartitions(NamedTuple):
    """Which partitions of a group have state in the share coordinator, by topic id (record 15)."""

    initializing: StateTopics = NO_TOPICS
    initialized: StateTopics = NO_TOPICS
    deleting: Mapping[bytes, str] = {}

    def begun(self, topics: StateTopics) -> StatePartitions:
        """Returns the same with partitions whose state is being made."""
        deleting = {t: name for t, name in self.deleting.items() if t not in topics}
        return StatePartitions(with_topics(self.initializing, topics), self.initialized, deleting)

    def succeeded(self, topics: StateTopics) -> StatePartitions:
        initializing = without_topics(self.initializing, topics)
        return StatePartitions(initializing, with_topics(self.initialized, topics), self.deleting)

    def failed(self, topics: StateTopics) -> StatePartitions:
        return self._replace(initializing=without_topics(self.initializing, topics))

    def deletes(self, topic_ids: frozenset[bytes]) -> StatePartitions:
        """Returns the same with topics whose state is being deleted."""
        names = {t: topic.name for t, topic in self.initialized.items() if t in topic_ids}
        kept = {t: topic for t, topic in self.initialized.items() if t not in topic_ids}
        return StatePartitions(self.initializing, kept, {**self.deleting, **names})

    def deleted(self, topic_ids: frozenset[bytes]) -> StatePartitions:
        return self._replace(deleting={t: name for t, name in self.deleting.items() if t not in topic_ids})

    def forgotten(self, topic_ids: frozenset[bytes]) -> StatePartitions:
        """Returns the same without topics that do not exist any more."""
        return StatePartitions(
            {t: topic for t, topic in self.initializing.items() if t not in topic_ids},
            {t: topic for t, topic in self.initialized.items() if t not in topic_ids},
            {t: name for t, name in self.deleting.items() if t not in topic_ids},
        )


def with_topics(topics: StateTopics, more: StateTopics) -> StateTopics:
    found = dict(topics)
    for topic_id, topic in more.items():
        known = found.get(topic_id)
        partitions = topic.partitions if known is None else known.partitions | topic.partitions
        found[topic_id] = NamedTopicPartitions(topic.name, partitions)
    return found


def without_topics(topics: StateTopics, gone: StateTopics) -> StateTopics:
    found = {}
    for topic_id, topic in topics.items():
        left = topic.partitions - (gone[topic_id].partitions if topic_id in gone else frozenset())
        if left:
            found[topic_id] = NamedTopicPartitions(topic.name, left)
    return found


@frozen
class StatePartitionsChange:
    """Which partitions have state; None if the group has ended."""

    value: StatePartitions | None

    def apply_to(self, state: ShareState) -> None:
        state.exists = state.exists or self.value is not None
        state.state_partitions = self.value or StatePartitions()


class ShareState(ModernState[ShareGroupMember]):
    """A share group as its records say it."""

    def __init__(self) -> None:
        super().__init__()
        self.state_partitions = StatePartitions()

    def take_over(self, other: ModernState[ShareGroupMember]) -> None:
        assert isinstance(other, ShareState)
        self.state_partitions = other.state_partitions
        super().take_over(other)

    def facts(self) -> tuple[Any, ...]:
        return (*super().facts(), self.state_partitions)

    def with_subscription(
        self, member_id: str, member: ShareGroupMember | None, value: ShareGroupMemberMetadataValue | None
    ) -> ShareGroupMember | None:
        if value is None:
            return None
        return (member or ShareGroupMember(member_id))._replace(
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topic_names=frozenset(value.subscribed_topic_names),
        )

    def with_assignment(
        self,
        member_id: str,
        member: ShareGroupMember | None,
        value: ShareGroupCurrentMemberAssignmentValue | None,
    ) -> ShareGroupMember | None:
        if value is None:
            # The tombstone of the member itself follows.
            return member and member._replace(
                epoch=LEAVING, previous_epoch=LEAVING, assigned=NOTHING_ASSIGNED
            )
        return (member or ShareGroupMember(member_id))._replace(
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            assigned={t: frozenset(partitions) for t, partitions in value.assigned_partitions},
        )

    def state_name(self) -> str:
        """Returns the state as ShareGroupDescribe prints it; a group that has ended is Dead."""
        return "Stable" if self.members else "Empty"
