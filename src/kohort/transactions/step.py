"""The context of one step of a transaction shard: what the handlers use to reply, to write and to set timers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kohort.transactions.effects import (
    AppendStates,
    SetTransactionTimer,
    StateToWrite,
    TransactionEffect,
    TransactionReply,
    TransactionResponse,
    refused,
)
from kohort.transactions.events import (
    ListTransactions,
    RequestToken,
    TransactionRequest,
    TransactionTimer,
    nobody,
)
from kohort.transactions.metadata import NO_EPOCH, TransactionMetadata, encode_id, encode_metadata
from kohort.transactions.state import DEAD, EMPTY, TRANSITIONS, TransactionState
from kohort.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kohort.transactions.shard import TransactionShard


@dataclass(slots=True)
class StateWrite:
    """A transition on its way to the log; `request` is answered with `response` once it is durable."""

    transactional_ids: tuple[str, ...]
    state: TransactionState
    records: tuple[StateToWrite, ...]
    last_epoch: int = NO_EPOCH
    request: TransactionRequest | None = None
    response: TransactionResponse | None = None


class TransactionStep:
    """The shard, the time and the effects of one step."""

    __slots__ = ("effects", "now_ms", "shard")

    def __init__(self, shard: TransactionShard, now_ms: int) -> None:
        self.shard = shard
        self.now_ms = now_ms
        self.effects: list[TransactionEffect] = []

    def reply(self, request: RequestToken, response: TransactionResponse) -> None:
        if request is not nobody:
            self.effects.append(TransactionReply(request, response))

    def refuse(self, request: TransactionRequest | ListTransactions, error: ErrorCode) -> None:
        self.reply(request.request, refused(request, error))

    def transit(
        self,
        transactional_id: str,
        new: TransactionMetadata,
        *,
        last_epoch: int = NO_EPOCH,
        request: TransactionRequest | None = None,
        response: TransactionResponse | None = None,
    ) -> None:
        """Begins a transition: it is pending until its record is durable."""
        now = self.shard.durable.known.get(transactional_id)
        before = EMPTY if now is None else now.state
        assert (before, new.state) in TRANSITIONS, f"{before.label} does not become {new.state.label}"
        record = StateToWrite(encode_id(transactional_id), encode_metadata(new))
        self._append(StateWrite((transactional_id,), new.state, (record,), last_epoch, request, response))

    def bury(self, transactional_ids: tuple[str, ...]) -> None:
        """Writes tombstones of transactional ids that have expired."""
        records = tuple(StateToWrite(encode_id(each), None) for each in transactional_ids)
        self._append(StateWrite(transactional_ids, DEAD, records))

    def _append(self, write: StateWrite) -> None:
        shard = self.shard
        shard.pending.update(dict.fromkeys(write.transactional_ids, write.state))
        token = shard.next_token
        shard.next_token = token + 1
        shard.writes[token] = write
        self.effects.append(AppendStates(token, write.records))

    def set_timer(self, kind: TransactionTimer, delay_ms: int) -> None:
        """Sets the timer of a kind, unless it is set."""
        if kind not in self.shard.timers:
            self.shard.timers[kind] = deadline_ms = self.now_ms + delay_ms
            self.effects.append(SetTransactionTimer(kind, deadline_ms))
