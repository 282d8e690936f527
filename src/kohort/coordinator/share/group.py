"""ShareGroup: a live share group."""

from __future__ import annotations

from collections import Counter

from kohort.coordinator.modern.group import ModernGroup
from kohort.coordinator.share.state import ShareGroupMember, ShareState


class ShareGroup(ModernGroup, ShareState):
    """A live group: what its records say, durable or on their way, and the soft state of ModernGroup."""

    def __init__(self, group_id: str) -> None:
        self.subscribers: Counter[str] = Counter()
        """Topic -> how many members name it."""
        self.initializing_since: dict[bytes, int] = {}
        """Topic id -> when its state was asked for; after a while it is asked for again."""
        ShareState.__init__(self)
        self.init_soft(group_id)

    def put_member(self, member_id: str, member: ShareGroupMember | None) -> None:
        old = self.members.get(member_id)
        if old is not None:
            self.subscribers.subtract(old.topic_names)
        super().put_member(member_id, member)
        if member is not None:
            self.subscribers.update(member.topic_names)
        self.subscribers = +self.subscribers

    def is_homogeneous(self) -> bool:
        """Whether all members subscribe to the same topics."""
        size = len(self.members)
        return all(count == size for count in self.subscribers.values())

    def has_unassigned(self) -> bool:
        """Whether what is initialized of the subscribed topics is not what the members have as their target."""
        if not self.members:
            return False
        assigned: dict[bytes, set[int]] = {}
        for target in self.targets.values():
            for topic_id, partitions in target.items():
                assigned.setdefault(topic_id, set()).update(partitions)
        return any(
            topic.name in self.subscribers and assigned.get(topic_id, set()) != set(topic.partitions)
            for topic_id, topic in self.state_partitions.initialized.items()
        )
