"""What a consumer uses of its membership, whichever protocol its group has, and the one place that chooses it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from kohort.client.config import ConsumerConfig
from kohort.client.core.backoff import Jitter
from kohort.client.core.effects import Outbox, Part
from kohort.client.core.metadata import Metadata
from kohort.client.core.operation import Operation
from kohort.client.group.assignors import Assignor, RebalanceProtocol
from kohort.client.group.callbacks import Callback
from kohort.client.group.consumer_membership import ConsumerMembership
from kohort.client.group.coordinator import GroupCoordinator
from kohort.client.group.group_metrics import GroupMetrics
from kohort.client.group.membership import Membership
from kohort.client.offsets.commits import CommittingMember
from kohort.client.offsets.subscription import SubscriptionState
from kohort.wire.struct import Message


class GroupMembership(CommittingMember, Part, Protocol):
    """A place in a group: `Membership` of a classic group, `ConsumerMembership` of one of the consumer protocol."""

    metrics: GroupMetrics

    @property
    def protocol(self) -> RebalanceProtocol:
        """Whether callbacks tell everything (eager) or the difference (cooperative)."""

    @property
    def broker_matches(self) -> bool:
        """Whether the broker can be asked to match a pattern (SubscriptionPattern)."""

    @property
    def member_id(self) -> str: ...
    @property
    def generation_id(self) -> int: ...
    @property
    def callback(self) -> Callback | None:
        """What the front has to run in the user's thread; it calls `called_back` afterwards."""

    @property
    def is_stable(self) -> bool:
        """Whether this member has its assignment, and nothing speaks for another one."""

    @property
    def wants_poll(self) -> bool:
        """Whether a join waits for `poll` to begin it."""

    @property
    def rebalance_due(self) -> bool:
        """Whether a poll that waits should return, so that the group settles sooner."""

    @property
    def has_error(self) -> bool: ...
    def take_error(self) -> Exception | None: ...
    def poll(self, now_ms: int) -> None: ...
    def poll_ended(self, now_ms: int) -> None: ...
    def called_back(self, error: BaseException | None, now_ms: int) -> None: ...
    def leave(self, reason: str, now_ms: int) -> Operation[None]: ...
    def removal(self, reason: str) -> Message | None: ...
    def tick_background(self, now_ms: int) -> None: ...
    def next_background_deadline_ms(self) -> int | None: ...


def make_membership(
    out: Outbox,
    config: ConsumerConfig,
    coordinator: GroupCoordinator,
    subscription: SubscriptionState,
    metadata: Metadata,
    assignors: Callable[[], Sequence[Assignor]],
    member_id: str,
    commit_first: Callable[[int], bool],
    jitter: Jitter,
) -> GroupMembership:
    """Makes the membership that `group.protocol` names. A classic one needs the assignors, the other one its id."""
    if config.group_protocol == "consumer":
        assert member_id, "a member of the consumer protocol brings its own id"
        return ConsumerMembership(
            out, config, coordinator, subscription, metadata, member_id, commit_first, jitter
        )
    return Membership(out, config, coordinator, subscription, metadata, assignors(), commit_first, jitter)
