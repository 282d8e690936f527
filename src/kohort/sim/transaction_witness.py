"""Watches transactions from outside: what was promised, what is visible, and what may never happen.

The invariants are numbered as in the specification: (1) a reader at read_committed sees all of a transaction or
nothing, offsets too; (2) the last stable offset never falls, nor passes an open transaction; (3) an answered commit
survives any crash; (4) Prepare decides once; (5) after InitProducerId no record of an older epoch; (6) each begun
transaction gets a marker; (7) no data without Ongoing; (9) epochs rise. And nothing hangs.

A client of transaction version 1 that forgets to add a partition is owed less. Its transactions have one epoch, and
EndTxn is answered before the markers are written: until the marker is in that partition, the transaction before is open
there, and the record becomes a part of it, as in Kafka. What must hold then is that it shares the fate of that one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kohort.sim.invariants import require
from kohort.transactions.effects import StateToWrite
from kohort.transactions.metadata import TopicPartition, TransactionMetadata, decode_id, decode_metadata
from kohort.transactions.state import AT_REST, COMPLETED, ONGOING, TRANSITIONS
from kohort.wire.group_records import decode_offset_commit
from kohort.wire.records.batch import ControlKind, control_kind, iter_records

if TYPE_CHECKING:
    from kohort.sim.transaction_node import TransactionNode


@dataclass(slots=True)
class SimulatedTransaction:
    """What a client knows of one of its transactions."""

    number: int
    places: set[TopicPartition] = field(default_factory=set)
    """Where it was told that a record is written."""
    outcome: str = "unknown"
    """`committed` and `aborted` if EndTxn was answered, `given up` if EndTxn with commit was never sent."""
    before: SimulatedTransaction | None = None
    """The transaction of the same producer and epoch that ended before this one began."""
    forgotten: set[TopicPartition] = field(default_factory=set)
    """Where it sent a record and had not added the partition."""


class TransactionWitness:
    """Hears of all that is written, and checks it at once or at the end."""

    def __init__(self) -> None:
        self.transactions: list[SimulatedTransaction] = []
        self.states: dict[str, TransactionMetadata] = {}
        self.open: dict[TopicPartition, dict[int, int]] = {}
        self.least_epoch: dict[int, int] = {}
        self.last_stable: dict[TopicPartition, int] = {}
        self.ends = 0

    def begin(self, before: SimulatedTransaction | None) -> SimulatedTransaction:
        transaction = SimulatedTransaction(len(self.transactions), before=before)
        self.transactions.append(transaction)
        return transaction

    # ---- at once

    def state_written(self, record: StateToWrite) -> None:
        name = decode_id(record.key)
        assert name is not None
        if record.value is None:
            require(self.states.pop(name).state in AT_REST, f"{name} expired with an open transaction")
            return
        new = decode_metadata(record.value)
        assert new is not None
        old = self.states.get(name)
        self.states[name] = new
        if old is None:
            return
        step = f"{name}: {old.state.label} {old.producer_id}/{old.producer_epoch} -> {new.state.label} "
        step += f"{new.producer_id}/{new.producer_epoch}"
        require((old.state, new.state) in TRANSITIONS, f"(4) {step} is no transition")
        if old.state in COMPLETED:
            require(new.state is COMPLETED[old.state], f"(4) {step}: Prepare decides once")
            self.ends += 1
        if old.producer_id == new.producer_id:
            require(new.producer_epoch >= old.producer_epoch, f"(9) {step}: the epoch falls")
        if new.client_version >= 2 and new.state.is_prepared:
            require(new.producer_epoch > old.producer_epoch, f"(9) {step}: the epoch does not rise")

    def initialized(self, producer_id: int, producer_epoch: int) -> None:
        """A client was told its id and epoch: whoever has an older one can write no more."""
        self.least_epoch[producer_id] = max(self.least_epoch.get(producer_id, 0), producer_epoch)

    def written(
        self, node: TransactionNode, place: TopicPartition, producer: tuple[int, int], offset: int
    ) -> None:
        producer_id, epoch = producer
        self.open.setdefault(place, {}).setdefault(producer_id, offset)
        least = self.least_epoch.get(producer_id, 0)
        require(epoch >= least, f"(5) {place}: a record of epoch {epoch} after {producer_id} has {least}")
        owner = [state for state in self.states.values() if state.producer_id == producer_id]
        require(
            any(
                (each.state is ONGOING or each.state.is_prepared) and place in each.partitions
                for each in owner
            ),
            f"(7) {place} has a record of {producer_id}/{epoch}, and no transaction is open: {owner}",
        )

    def marked(self, place: TopicPartition, producer_id: int) -> None:
        self.open.get(place, {}).pop(producer_id, None)

    def check_stable(self, node: TransactionNode) -> None:
        for place, partition in node.partitions.items():
            now, before = partition.last_stable_offset, self.last_stable.get(place, 0)
            require(now >= before, f"(2) the last stable offset of {place} fell from {before} to {now}")
            self.last_stable[place] = now
            first = min(self.open.get(place, {}).values(), default=None)
            require(first is None or now <= first, f"(2) {place}: {now} is behind the open offset {first}")

    # ---- at the end

    def check_end(self, node: TransactionNode) -> None:
        """After a calm time without producers: all is ended, and what is visible is what was promised."""
        for name, state in self.states.items():
            require(state.state in AT_REST, f"(6) {name} stays in {state.state.label}")
        for place, partition in node.partitions.items():
            at, end = partition.last_stable_offset, partition.high_watermark
            require(at == end, f"(6) {place} is stable up to {at} of {end}: a transaction hangs")
        require(not node.offsets.open_transactions, "(6) offsets of a transaction stay pending")
        seen = {place: visible(node, place) for place in node.partitions}
        for transaction in self.transactions:
            self._check_one(transaction, seen)

    def _check_one(self, transaction: SimulatedTransaction, seen: dict[TopicPartition, Counter[int]]) -> None:
        number, places = transaction.number, transaction.places
        where = {place for place in seen if seen[place][number]}
        twice = {place for place in seen if seen[place][number] > 1}
        told = f"transaction {number} ({transaction.outcome}) was written to {sorted(places)}"
        require(not twice, f"(1) {told}, and is twice in {sorted(twice)}")
        for place in sorted(transaction.forgotten & (where | places)):
            before = transaction.before
            told_of_it = f"{told}, and forgot to add {place}, where it is {_visible(place in where)}"
            require(
                before is not None and place in before.places, f"(7) {told_of_it}: nothing was open there"
            )
            assert before is not None
            is_seen = seen[place][before.number] > 0
            require(
                (place in where) == is_seen,
                f"(1) {told_of_it}, and transaction {before.number} before it is {_visible(is_seen)}",
            )
        where, places = where - transaction.forgotten, places - transaction.forgotten
        match transaction.outcome:
            case "committed":
                require(where >= places, f"(3) {told}, but is visible in {sorted(where)}")
            case "aborted" | "given up":
                require(not where, f"(1) {told}, and is visible in {sorted(where)}")
            case _:
                require(
                    not where or where >= places, f"(1) {told}, and only a part is visible: {sorted(where)}"
                )


def _visible(is_seen: bool) -> str:
    return "visible" if is_seen else "not visible"


def visible(node: TransactionNode, place: TopicPartition) -> Counter[int]:
    """Counts the numbers of the transactions that a reader at read_committed sees, by a naive look at the log."""
    from kohort.sim.transaction_node import OFFSETS, batches_in

    waiting: dict[int, list[int]] = {}
    seen: Counter[int] = Counter()
    for batch, header in batches_in(node.partitions[place]):
        records = list(iter_records(batch))
        if not header.is_control:
            for record in records:
                value = record.value or b""
                number = decode_offset_commit(value).offset if place == OFFSETS else int(value.split(b" ")[0])
                waiting.setdefault(header.producer_id, []).append(number)
            continue
        numbers = waiting.pop(header.producer_id, [])
        if control_kind(records[0].key) is ControlKind.COMMIT:
            seen.update(set(numbers) if place == OFFSETS else numbers)
    return seen
