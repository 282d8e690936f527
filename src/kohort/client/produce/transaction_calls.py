"""The calls of a transactional producer, written once for both fronts (see `steps`). Sans-IO."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kohort.client.core import arguments
from kohort.client.core.operation import Operation
from kohort.client.core.steps import Steps, Until
from kohort.client.errors import IllegalState, TimedOut, WrongArgument
from kohort.client.produce.calls import ProducerCalls
from kohort.client.produce.transactions import ProducerTransactions
from kohort.client.types import ByPartition, GroupMetadata, OffsetAndMetadata


class TransactionCalls:
    """Has the sender begin a call on its own thread, and waits for its end."""

    def __init__(self, calls: ProducerCalls[Any]) -> None:
        self._calls = calls

    def init(self, deadline_ms: int) -> Steps[None]:
        yield from self._call("init_transactions", self._transactions().init, deadline_ms)

    def begin(self) -> None:
        self._transactions().begin()

    def send_offsets(
        self, offsets: ByPartition[int | OffsetAndMetadata], group: object, deadline_ms: int
    ) -> Steps[None]:
        transactions = self._transactions()
        chosen = arguments.offsets(offsets)
        if not isinstance(group, GroupMetadata):
            raise WrongArgument(
                f"send_offsets_to_transaction takes consumer.group_metadata(), not {arguments.shown(group)}"
            )
        if not group.group_id:
            raise WrongArgument("send_offsets_to_transaction needs a group: the consumer has no group.id")
        yield from self._call(
            "send_offsets_to_transaction", lambda: transactions.send_offsets(chosen, group), deadline_ms
        )

    def commit(self, deadline_ms: int) -> Steps[None]:
        transactions = self._transactions()
        self._calls.accumulator.flush()
        yield from self._call("commit_transaction", transactions.commit, deadline_ms)

    def abort(self, deadline_ms: int) -> Steps[None]:
        yield from self._call("abort_transaction", self._transactions().abort, deadline_ms)

    @property
    def is_open(self) -> bool:
        """Whether there is a transaction that an abort would end."""
        transactions = self._calls.sender.transactions
        return transactions is not None and transactions.is_open

    def _transactions(self) -> ProducerTransactions:
        transactions = self._calls.sender.transactions
        if transactions is None:
            raise IllegalState("this producer is not transactional: set transactional.id")
        return transactions

    def _call(self, name: str, begin: Callable[[], Operation[None]], deadline_ms: int) -> Steps[None]:
        calls, asked = self._calls, Operation[None]()

        def pass_on(ended: Operation[None]) -> None:
            if ended.error is None:
                asked.finish(None)
            else:
                asked.fail(ended.error)
            calls.part.changed()

        def command() -> None:
            try:
                begin().on_done(pass_on)
            except Exception as error:
                asked.fail(error)

        calls.part.commands.append(command)
        calls.part.wake()
        yield Until(lambda: asked.done and calls.part.is_quiet, deadline_ms)
        transactions = self._transactions()
        if not asked.done:
            obstacle = f" (last: {transactions.obstacle})" if transactions.obstacle else ""
            again = (
                "" if name.startswith("send") else ": call it again, nothing else can be done before it ends"
            )
            raise TimedOut(f"{name}() has not ended in time{again}{obstacle}")
        transactions.acknowledge(name)
        asked.value()
