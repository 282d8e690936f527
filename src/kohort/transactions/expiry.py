"""Ends what has lasted too long: open transactions, and transactional ids that nobody uses."""

from __future__ import annotations

from kohort.transactions.ending import fence, is_timed_out
from kohort.transactions.events import TransactionTimer
from kohort.transactions.state import AT_REST, DEAD, ONGOING, TransactionState
from kohort.transactions.step import TransactionStep

_MOST_IN_A_BATCH = 1000


def set_timers(step: TransactionStep) -> None:
    """Sets the timers that the shard has work for; a shard without transactional ids has none."""
    settings, known = step.shard.settings, step.shard.durable.known
    if known:
        step.set_timer(TransactionTimer.EXPIRE, settings.remove_expired_interval_ms)
    if any(each.state is ONGOING for each in known.values()):
        step.set_timer(TransactionTimer.ABORT, settings.abort_timed_out_interval_ms)


def set_timers_after(step: TransactionStep, state: TransactionState) -> None:
    """Does the same after an id has come to a state, without a look at all others."""
    settings = step.shard.settings
    if state is not DEAD:
        step.set_timer(TransactionTimer.EXPIRE, settings.remove_expired_interval_ms)
    if state is ONGOING:
        step.set_timer(TransactionTimer.ABORT, settings.abort_timed_out_interval_ms)


def abort_timed_out(step: TransactionStep) -> None:
    """Aborts open transactions past their timeout, with a raised epoch."""
    shard = step.shard
    for transactional_id, now in list(shard.durable.known.items()):
        if transactional_id not in shard.pending and is_timed_out(now, step.now_ms):
            fence(step, transactional_id, now)
    set_timers(step)


def expire_ids(step: TransactionStep) -> None:
    """Writes tombstones of ids without an open transaction that nobody has used for long."""
    shard = step.shard
    oldest_ms = step.now_ms - shard.settings.id_expiration_ms
    expired = [
        transactional_id
        for transactional_id, now in shard.durable.known.items()
        if now.state in AT_REST and transactional_id not in shard.pending and now.update_ms <= oldest_ms
    ]
    for start in range(0, len(expired), _MOST_IN_A_BATCH):
        step.bury(tuple(expired[start : start + _MOST_IN_A_BATCH]))
    set_timers(step)
