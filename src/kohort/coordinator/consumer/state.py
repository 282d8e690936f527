"""ConsumerState: a consumer group as its records say it, and ConsumerMember: one of its members."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple

from kohort.coordinator.frozen import frozen
from kohort.coordinator.modern.state import ModernState
from kohort.wire.messages.consumer_group_current_member_assignment_value import (
    ConsumerGroupCurrentMemberAssignmentValue,
    TopicPartitions,
)
from kohort.wire.messages.consumer_group_member_metadata_value import (
    ClassicMemberMetadata,
    ConsumerGroupMemberMetadataValue,
)
from kohort.wire.messages.consumer_group_regular_expression_value import ConsumerGroupRegularExpressionValue

LEAVING: Final = -1
"""The epoch that a member leaves with, and of a member whose assignment has ended."""
AWAY: Final = -2
"""The epoch of a static member that is away for a while."""

Owned = Mapping[bytes, Mapping[int, int]]
"""Topic id -> partition -> the epoch at which it was assigned; a topic without partitions is not in it."""
NOTHING_OWNED: Owned = {}


class ReconciliationState(IntEnum):
    """How far a member is on its way to the target; the numbers are those of the records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


STABLE, UNREVOKED, UNRELEASED, UNKNOWN = ReconciliationState
_STATES: Final = {state.value: state for state in ReconciliationState}


class ConsumerGroupState:
    """The states of a consumer group, as ConsumerGroupDescribe prints them."""

    EMPTY: Final = "Empty"
    ASSIGNING: Final = "Assigning"
    RECONCILING: Final = "Reconciling"
    STABLE: Final = "Stable"


class ConsumerMember(NamedTuple):
    """A member, as its records of type 5 and 8 say it."""

    member_id: str
    epoch: int = 0
    previous_epoch: int = -1
    state: ReconciliationState = STABLE
    assigned: Owned = NOTHING_OWNED
    pending: Owned = NOTHING_OWNED
    """What it has yet to give up."""
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    topic_regex: str = ""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicMemberMetadata | None = None
    """What a member that uses the classic protocol has sent in JoinGroup."""

    @property
    def is_classic(self) -> bool:
        return self.classic is not None

    def moved_to(
        self, epoch: int, state: ReconciliationState, assigned: Owned, pending: Owned
    ) -> ConsumerMember:
        return self._replace(
            epoch=epoch, previous_epoch=self.epoch, state=state, assigned=assigned, pending=pending
        )

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is STABLE and self.epoch == epoch

    def subscription_value(self) -> ConsumerGroupMemberMetadataValue:
        return ConsumerGroupMemberMetadataValue(
            self.instance_id,
            self.rack_id,
            self.client_id,
            self.client_host,
            tuple(sorted(self.topic_names)),
            self.topic_regex,
            self.rebalance_timeout_ms,
            self.server_assignor,
            self.classic,
        )

    def assignment_value(self) -> ConsumerGroupCurrentMemberAssignmentValue:
        return ConsumerGroupCurrentMemberAssignmentValue(
            self.epoch, self.previous_epoch, self.state.value, _listed(self.assigned), _listed(self.pending)
        )


def _listed(owned: Owned) -> tuple[TopicPartitions, ...]:
    return tuple(
        TopicPartitions(topic_id, tuple(sorted(epochs)), tuple(epochs[p] for p in sorted(epochs)))
        for topic_id, epochs in sorted(owned.items())
    )


def _owned(listed: tuple[TopicPartitions, ...], member_epoch: int) -> Owned:
    """Reads partitions; before Kafka 4.3 they have no epochs, and count as assigned at the member's."""
    owned: dict[bytes, dict[int, int]] = {}
    for topic_id, partitions, epochs in listed:
        if epochs is None or len(epochs) != len(partitions):
            epochs = (member_epoch,) * len(partitions)
        owned[topic_id] = dict(zip(partitions, epochs, strict=True))
    return owned


@frozen
class RegexChange:
    """The topics that a regular expression matches (record 16); None if no member subscribes to it any more."""

    regex: str
    value: ConsumerGroupRegularExpressionValue | None

    def apply_to(self, state: ConsumerState) -> None:
        state.exists = state.exists or self.value is not None
        state.put_regex(self.regex, self.value)


@frozen
class PartitionMetadataChange:
    """The record of type 4, which Kafka wrote before 4.1: it is ended when it is found."""

    exists: bool

    def apply_to(self, state: ConsumerState) -> None:
        state.exists = state.exists or self.exists
        state.has_partition_metadata = self.exists


class ConsumerState(ModernState[ConsumerMember]):
    """A consumer group as its records say it."""

    def __init__(self) -> None:
        super().__init__()
        self.regexes: dict[str, ConsumerGroupRegularExpressionValue] = {}
        self.has_partition_metadata = False

    def take_over(self, other: ModernState[ConsumerMember]) -> None:
        assert isinstance(other, ConsumerState)
        for regex in list(self.regexes):
            self.put_regex(regex, None)
        for regex, value in other.regexes.items():
            self.put_regex(regex, value)
        self.has_partition_metadata = other.has_partition_metadata
        super().take_over(other)

    def facts(self) -> tuple[Any, ...]:
        return (*super().facts(), self.regexes, self.has_partition_metadata)

    def put_regex(self, regex: str, value: ConsumerGroupRegularExpressionValue | None) -> None:
        if value is None:
            self.regexes.pop(regex, None)
        else:
            self.regexes[regex] = value

    def with_subscription(
        self, member_id: str, member: ConsumerMember | None, value: ConsumerGroupMemberMetadataValue | None
    ) -> ConsumerMember | None:
        if value is None:
            return None
        return (member or ConsumerMember(member_id))._replace(
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topic_names=frozenset(value.subscribed_topic_names),
            topic_regex=value.subscribed_topic_regex or "",
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            server_assignor=value.server_assignor,
            classic=value.classic_member_metadata,
        )

    def with_assignment(
        self,
        member_id: str,
        member: ConsumerMember | None,
        value: ConsumerGroupCurrentMemberAssignmentValue | None,
    ) -> ConsumerMember | None:
        if value is None:
            # The tombstone of the member itself follows.
            return member and member._replace(
                epoch=LEAVING, previous_epoch=LEAVING, assigned=NOTHING_OWNED, pending=NOTHING_OWNED
            )
        return (member or ConsumerMember(member_id))._replace(
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=_STATES.get(value.state, UNKNOWN),
            assigned=_owned(value.assigned_partitions, value.member_epoch),
            pending=_owned(value.partitions_pending_revocation, value.member_epoch),
        )

    def state_name(self) -> str:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.group_epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    def preferred_assignor(self) -> str | None:
        """Returns the assignor that most members name; of several, the first in the alphabet."""
        counts: dict[str, int] = {}
        for member in self.members.values():
            if member.server_assignor is not None:
                counts[member.server_assignor] = counts.get(member.server_assignor, 0) + 1
        return min(counts, key=lambda name: (-counts[name], name), default=None)
