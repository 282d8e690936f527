"""EndTxn in every state, against the table of the specification; pending or not."""

from __future__ import annotations

import pytest

from kohort.transactions.ending import EndDecision, decide
from kohort.transactions.events import EndTxn
from kohort.transactions.metadata import TransactionMetadata
from kohort.transactions.state import TransactionState
from kohort.wire.errors import ErrorCode

PREPARE, BUMP = EndDecision
CT, ITS, PF = ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.INVALID_TXN_STATE, ErrorCode.PRODUCER_FENCED
IPM, NONE = ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.NONE

# state: v4 commit, abort; v5 commit, abort; v5 with the epoch before commit, abort
ROWS = {
    "Ongoing": (PREPARE, PREPARE, PREPARE, PREPARE, PF, PF),
    "PrepareCommit": (CT, ITS, PF, PF, CT, ITS),
    "PrepareAbort": (ITS, CT, PF, PF, ITS, CT),
    "Empty": (ITS, ITS, ITS, BUMP, PF, PF),
    "CompleteCommit": (NONE, ITS, ITS, BUMP, NONE, ITS),
    "CompleteAbort": (ITS, NONE, ITS, BUMP, ITS, NONE),
}
STATES = {state.label: state for state in TransactionState}


def known(state: str, *, client_version: int = 2) -> TransactionMetadata:
    return TransactionMetadata(7, 5, 1000, STATES[state], frozenset(), 0, 0, client_version=client_version)


def end(epoch: int, *, commit: bool, v5: bool, producer_id: int = 7) -> EndTxn:
    return EndTxn(None, "a", producer_id, epoch, commit, v5)


@pytest.mark.parametrize("state", ROWS)
def test_each_row_of_the_table(state: str) -> None:
    now = known(state)
    asked = [(5, False), (5, True), (4, True)]
    found = tuple(
        decide(now, False, end(epoch, commit=commit, v5=v5))
        for epoch, v5 in asked
        for commit in (True, False)
    )
    assert found == ROWS[state]


@pytest.mark.parametrize("state", ROWS)
def test_what_is_wrong_in_every_state(state: str) -> None:
    now = known(state)
    for v5 in (False, True):
        assert decide(None, False, end(5, commit=True, v5=v5)) is IPM
        assert decide(now, False, end(5, commit=True, v5=v5, producer_id=8)) is IPM
        assert decide(now, False, end(6, commit=True, v5=v5)) is PF
        assert decide(now, True, end(5, commit=True, v5=v5)) is CT
    assert decide(now, False, end(4, commit=True, v5=False)) is PF
    # With v5 pending comes before all that may be wrong, with v4 after it.
    assert decide(now, True, end(9, commit=True, v5=True, producer_id=8)) is CT
    assert decide(now, True, end(9, commit=True, v5=False)) is PF
    assert decide(now, True, end(5, commit=True, v5=False, producer_id=8)) is IPM


@pytest.mark.parametrize("state", ROWS)
def test_an_epoch_that_no_end_raised_has_no_retry(state: str) -> None:
    assert decide(known(state, client_version=0), False, end(4, commit=True, v5=True)) is PF
