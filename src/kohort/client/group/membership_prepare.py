"""What comes before a join: the coordinator, a fresh look at a pattern, the commit, callbacks, the backoff."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.client.group import membership_join
from kohort.client.group.assignors import RebalanceProtocol
from kohort.client.group.callbacks import CallbackKind
from kohort.client.group.membership_state import NO_GENERATION, State
from kohort.client.offsets.subscription import Mode

if TYPE_CHECKING:
    from kohort.client.group.membership import Membership


def prepare(m: Membership, now_ms: int) -> None:
    """Begins a join. The user is in poll: what earlier polls returned counts as worked off."""
    m.become(State.PREPARING)
    if m.subscription.mode is Mode.PATTERN and not m.prepared:
        # Fewer rebalances when a topic is created: all members look before they join.
        if m.joined_topics is not None:
            m.metadata.request_update("a pattern is matched again before the join")
        m.fresh_after = m.metadata.cluster.version if m.metadata.is_due else None
    go_on(m, now_ms)


def go_on(m: Membership, now_ms: int) -> None:
    """Takes a join as far as it goes without waiting."""
    if m.state is State.ASSIGNING:
        membership_join.assign(m, now_ms)
    if m.state is not State.PREPARING:
        return
    if m.coordinator.ensure(now_ms) is None:
        m.look_at_coordinator_error()
        return
    if not m.prepared and not _prepares(m, now_ms):
        return
    if now_ms >= m.retry_at_ms:
        membership_join.send_join(m, now_ms)


def _prepares(m: Membership, now_ms: int) -> bool:
    """Pattern, commit, callbacks; False while something of it is to be waited for."""
    if m.fresh_after is not None:
        if m.metadata.cluster.version <= m.fresh_after:
            return False
        m.fresh_after = None
    if m.generation_id != NO_GENERATION:
        if m.protocol is RebalanceProtocol.EAGER:
            for state in m.subscription.partitions.values():
                state.revoking = True
        if not m.before_join(now_ms):
            return False
    _tell(m)
    if m.callback is not None:
        m.call_back(lambda then_ms: _told(m, then_ms))
        return False
    m.prepared = True
    return True


def _tell(m: Membership) -> None:
    owned = frozenset(m.subscription.partitions)
    if m.generation_id == NO_GENERATION:
        if owned:
            m.give_up(CallbackKind.LOST if m.lost else CallbackKind.REVOKED, owned)
    elif m.protocol is RebalanceProtocol.EAGER:
        m.give_up(CallbackKind.REVOKED, owned)
    else:
        gone = frozenset(p for p in owned if p.topic not in m.subscription.topics)
        if gone:
            m.give_up(CallbackKind.REVOKED, gone)


def _told(m: Membership, now_ms: int) -> None:
    # While the callback ran the coordinator may have dropped this member: then the rest is lost as well.
    m.prepared = m.generation_id != NO_GENERATION or not m.subscription.partitions
    m.become(State.PREPARING)
    go_on(m, now_ms)
