"""The states of a transactional producer, and which may follow which."""

from __future__ import annotations

from enum import Enum


class ProducerTransactionState(Enum):
    """How far a transactional producer is; the values are for people."""

    UNINITIALIZED = "not initialized"
    INITIALIZING = "initializing"
    READY = "ready"
    IN_TRANSACTION = "in a transaction"
    COMMITTING = "committing"
    ABORTING = "aborting"
    ABORTABLE_ERROR = "in a transaction that failed"
    FATAL = "failed for good"


_S = ProducerTransactionState

FOLLOWING: dict[ProducerTransactionState, frozenset[ProducerTransactionState]] = {
    _S.UNINITIALIZED: frozenset({_S.INITIALIZING}),
    _S.INITIALIZING: frozenset({_S.READY, _S.UNINITIALIZED, _S.FATAL}),
    _S.READY: frozenset({_S.IN_TRANSACTION, _S.FATAL}),
    _S.IN_TRANSACTION: frozenset({_S.COMMITTING, _S.ABORTING, _S.ABORTABLE_ERROR, _S.FATAL}),
    _S.COMMITTING: frozenset({_S.READY, _S.ABORTABLE_ERROR, _S.FATAL}),
    _S.ABORTING: frozenset({_S.READY, _S.FATAL}),
    _S.ABORTABLE_ERROR: frozenset({_S.ABORTING, _S.FATAL}),
    _S.FATAL: frozenset(),
}
"""The states that may follow a state; `ProducerTransactions` goes through no others."""
