"""Simulates transactional producers that crash, fall silent and come twice, on a node that crashes too.

`run_transactions(seed)` is one run: a stormy time, then a calm one in which everything must come to rest. Producers of
both transaction versions share the node. One seed is one run.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from random import Random
from typing import Any

from kohort.sim.faults import FaultRates
from kohort.sim.invariants import Broken
from kohort.sim.transaction_node import PLACES, TransactionNode
from kohort.sim.transaction_witness import SimulatedTransaction, TransactionWitness
from kohort.sim.world import VirtualClock
from kohort.transactions.effects import AddPartitionsAnswer, ProducerIdAnswer
from kohort.transactions.events import AddPartitionsToTxn, EndTxn, InitProducerId
from kohort.transactions.metadata import TopicPartition
from kohort.wire.errors import ErrorCode

_TIMEOUT_MS = 1000
_TRANSACTION_TIMEOUT_MS = 10_000
_CALM_MS = 60_000
_TRY_AGAIN = (
    None,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)

Answer = ProducerIdAnswer | AddPartitionsAnswer | ErrorCode
Ask = Callable[[Callable[[Answer], None]], None]
"""ask(done) hands a request to the node; done(answer) is called if the node lives on."""


@dataclass(frozen=True, slots=True)
class TransactionReport:
    seed: int
    transactions: int
    committed: int
    aborted: int
    crashes: int

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.transactions} transactions, {self.committed} committed, "
            f"{self.aborted} aborted, {self.crashes} crashes"
        )


class SimulatedProducer:
    """One life of a client with a transactional id."""

    def __init__(self, storm: TransactionStorm, transactional_id: str, adds: bool) -> None:
        self.storm, self.node, self.chance = storm, storm.node, storm.chance
        self.transactional_id, self.adds = transactional_id, adds
        self.producer = (-1, -1)
        self.sequences: dict[TopicPartition, int] = {}
        self.last: SimulatedTransaction | None = None
        """The last transaction with this id and epoch."""
        self.is_alive = True
        self.is_zombie = False
        """Whether another producer with its transactional id has been started."""
        self._program = self._live()
        self._asked = 0
        self._busy_until_ms = 0
        self._go_on(None)

    # ---- the network

    def _go_on(self, answer: Any) -> None:
        if not self.is_alive:
            return
        try:
            wanted = self._program.send(answer)
        except StopIteration:
            self.is_alive = False
            self.storm.gone(self)
            return
        if isinstance(wanted, int):
            self.storm.clock.after(wanted, lambda: self._go_on(None))
        else:
            self._send(wanted)

    def _send(self, ask: Ask) -> None:
        chance, faults, clock = self.chance, self.storm.faults, self.storm.clock
        self._asked += 1
        number = self._asked

        def back(answer: Any) -> None:
            if self._asked == number:
                self._asked += 1
                self._go_on(answer)

        def answered(answer: Answer) -> None:
            if chance.random() >= faults.lost:
                clock.after(self._delay_ms(), lambda: back(answer))

        def arrive() -> None:
            self.storm.on_node(lambda: ask(answered))

        if chance.random() >= faults.lost:
            # A connection keeps the order: what is late holds up what follows.
            at_ms = max(clock.now_ms + self._delay_ms(), self._busy_until_ms)
            self._busy_until_ms = at_ms
            clock.after(at_ms - clock.now_ms, arrive)
            if self.adds and chance.random() < faults.duplicated:
                clock.after(at_ms - clock.now_ms + chance.randint(1, 5000), arrive)
        clock.after(_TIMEOUT_MS, lambda: back(None))

    def _delay_ms(self) -> int:
        late = self.chance.random() < self.storm.faults.delayed
        return self.chance.randint(500, 5000) if late else self.chance.randint(0, 2)

    # ---- the program

    def _live(self) -> Generator[Any, Any, None]:
        for _ in range(self.chance.randint(1, 4)):
            if not (yield from self._init()):
                return
            for _ in range(self.chance.randint(1, 8)):
                if not (yield from self._transaction()):
                    break

    def _init(self) -> Generator[Any, Any, bool]:
        for _ in range(200):
            answer = yield lambda done: self.node.submit(
                InitProducerId(done, self.transactional_id, _TRANSACTION_TIMEOUT_MS)
            )
            if isinstance(answer, ProducerIdAnswer) and not answer.error:
                self._is_now(answer)
                self.storm.witness.initialized(*self.producer)
                return True
            yield 50
        return False

    def _is_now(self, answer: ProducerIdAnswer) -> None:
        self.producer = (answer.producer_id, answer.producer_epoch)
        self.sequences = {}
        self.last = None

    def _transaction(self) -> Generator[Any, Any, bool]:
        transaction = self.last = self.storm.witness.begin(self.last)
        places = self.chance.sample(PLACES, self.chance.randint(1, len(PLACES)))
        for place in places:
            if not (yield from self._write(transaction, place)):
                transaction.outcome = "given up"
                return False
            if self.chance.random() < self.storm.faults.stuck / 4:
                yield self.chance.randint(5_000, 30_000)
        return (yield from self._end(transaction, commit=self.chance.random() < 0.7))

    def _write(self, transaction: SimulatedTransaction, place: TopicPartition) -> Generator[Any, Any, bool]:
        producer = self.producer  # a request that comes late has what it was sent with
        # Some clients forget to add a partition. That is noticed, unless the transaction before is still open there.
        if not self.adds and self.chance.random() < self.storm.faults.stuck / 2:
            transaction.forgotten.add(place)
        elif not self.adds:
            error = yield from self._until_known(
                lambda done: self.node.submit(
                    AddPartitionsToTxn(done, self.transactional_id, *producer, frozenset({place}))
                )
            )
            if error:
                return False
        sequence = self.sequences.get(place, 0)
        value = b"%d %s" % (transaction.number, place[0].encode())
        error = yield from self._until_known(
            lambda done: self.node.produce(
                self.transactional_id, producer, place, sequence, value, adds=self.adds, done=done
            )
        )
        if error:
            return False
        self.sequences[place] = sequence + 1
        transaction.places.add(place)
        return True

    def _until_known(self, ask: Ask) -> Generator[Any, Any, ErrorCode]:
        """Asks until the answer is one that will not change."""
        for _ in range(100):
            answer = yield ask
            error = answer.error if isinstance(answer, AddPartitionsAnswer) else answer
            if error not in _TRY_AGAIN:
                return error
            yield 20
        return ErrorCode.REQUEST_TIMED_OUT

    def _end(self, transaction: SimulatedTransaction, commit: bool) -> Generator[Any, Any, bool]:
        if not commit:
            transaction.outcome = "given up"
        producer = self.producer
        for _ in range(100):
            answer = yield lambda done: self.node.submit(
                EndTxn(done, self.transactional_id, *producer, commit, self.adds)
            )
            if isinstance(answer, ProducerIdAnswer) and not answer.error:
                transaction.outcome = "committed" if commit else "aborted"
                if self.adds:
                    self._is_now(answer)
                return True
            if answer is not None and answer.error not in _TRY_AGAIN:
                return False
            yield 20
        return False


class TransactionStorm:
    """The producers, the node and the clock of one run."""

    def __init__(self, seed: int, producers: int, faults: FaultRates) -> None:
        self.clock = VirtualClock()
        self.chance = Random(seed)
        self.faults = faults
        self.witness = TransactionWitness()
        self.node = TransactionNode(self.clock, self.chance, faults, self.witness)
        self.producers: list[SimulatedProducer] = []
        self.is_stormy = True
        self.crashes = 0
        for number in range(producers):
            self.start(f"p{number}")
        self.clock.after(1000, self._each_second)

    def start(self, transactional_id: str) -> None:
        adds = self.chance.random() < 0.6
        self.producers.append(SimulatedProducer(self, transactional_id, adds))

    def gone(self, producer: SimulatedProducer) -> None:
        if producer in self.producers:
            self.producers.remove(producer)
        # A zombie has its successor already: if both came back, there would be twice as many every other minute.
        if self.is_stormy and not producer.is_zombie:
            self.clock.after(
                self.chance.randint(1, 500), lambda: self._start_again(producer.transactional_id)
            )

    def _start_again(self, transactional_id: str) -> None:
        if self.is_stormy:
            self.start(transactional_id)

    def on_node(self, action: Callable[[], None]) -> None:
        action()
        self.node.arm()
        self.witness.check_stable(self.node)

    def _each_second(self) -> None:
        if not self.is_stormy:
            return
        self.clock.after(1000, self._each_second)
        if self.chance.random() < self.faults.crash * 20:
            self.crashes += 1
            self.node.crash()
        for producer in list(self.producers):
            if self.chance.random() < self.faults.churn / 2:
                if self.chance.random() < 0.5:  # dies; else it lives on beside the next one, as a zombie
                    producer.is_alive = False
                    self.producers.remove(producer)
                if not producer.is_zombie:
                    producer.is_zombie = True
                    self.start(producer.transactional_id)

    def calm_down(self) -> None:
        """Ends all producers, and all faults."""
        self.is_stormy = False
        self.faults = self.node.faults = FaultRates.none()
        for producer in self.producers:
            producer.is_alive = False


def run_transactions(
    seed: int, producers: int = 4, minutes: float = 2, faults: FaultRates | None = None
) -> TransactionReport:
    """Runs producers for some minutes of virtual time; raises Broken if an invariant does not hold."""
    try:
        storm = TransactionStorm(seed, producers, faults if faults is not None else FaultRates())
        end_ms = int(minutes * 60_000)
        for at_ms in range(100, end_ms, 100):
            storm.clock.run_until(at_ms)
            storm.witness.check_stable(storm.node)
        storm.calm_down()
        storm.clock.run_until(end_ms + _CALM_MS)
        storm.witness.check_end(storm.node)
        # A reader after one more crash sees the same.
        storm.node.crash()
        storm.clock.run_until(end_ms + 2 * _CALM_MS)
        storm.witness.check_end(storm.node)
    except Broken as broken:
        raise Broken(f"{broken} (seed {seed})") from None
    outcomes = [transaction.outcome for transaction in storm.witness.transactions]
    return TransactionReport(
        seed, len(outcomes), outcomes.count("committed"), outcomes.count("aborted"), storm.crashes
    )
