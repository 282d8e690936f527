"""A simulated node with transactions: the coordinator's runtime, real partitions in memory, and a disk that fails.

What it holds survives a crash as far as it was durable: the records of `__transaction_state` by their own simulated
writes, the partitions by a recovery that reads their batches again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, cast

from kohort.broker.groups.coordinator import log_records_of
from kohort.coordinator.records import CommittedOffset, offset_records
from kohort.coordinator.replay import Durable
from kohort.log.config import TopicConfig
from kohort.log.durability.sync import Syncer
from kohort.log.partition import Partition
from kohort.log.storage.memory import MemoryDirectory
from kohort.log.storage.recovery import CleanState
from kohort.log.storage.transactions import Verification
from kohort.sim.faults import FaultRates
from kohort.sim.invariants import Broken
from kohort.sim.world import VirtualClock
from kohort.transactions.effects import (
    AddPartitionsAnswer,
    AppendStates,
    ProducerIdNeeded,
    SendMarkers,
    StateLoadFailed,
    StateToWrite,
    TransactionResponse,
)
from kohort.transactions.events import (
    AddPartitionsToTxn,
    MarkersAnswered,
    RequestToken,
    StateLoadBegun,
    StateLoadEnded,
    StateRecord,
    StatesRead,
    TransactionRequest,
)
from kohort.transactions.metadata import TopicPartition
from kohort.transactions.runtime import StateWritten, TransactionRuntime
from kohort.transactions.settings import TransactionSettings
from kohort.wire.errors import ErrorCode, KafkaError
from kohort.wire.records.batch import (
    BatchHeader,
    BatchRecord,
    ControlKind,
    check_batch,
    encode_batch,
    encode_pairs_batch,
    iter_batches,
)

if TYPE_CHECKING:
    from kohort.sim.transaction_witness import TransactionWitness

OFFSETS: TopicPartition = ("__consumer_offsets", 0)
GROUP = "copiers"
PLACES: tuple[TopicPartition, ...] = (("t", 0), ("t", 1), ("u", 0), OFFSETS)
STATE_PARTITIONS = 2
Done = Callable[[ErrorCode], None]
_RETRY_MS = 20


class TransactionNode:
    """One broker, as far as transactions go."""

    def __init__(
        self, clock: VirtualClock, chance: Random, faults: FaultRates, witness: TransactionWitness
    ) -> None:
        self.clock, self.chance, self.faults, self.witness = clock, chance, faults, witness
        self.settings = TransactionSettings(state_log_num_partitions=STATE_PARTITIONS)
        self.life = 0
        self.next_producer_id = 1000
        self.state_log: list[list[StateToWrite]] = [[] for _ in range(STATE_PARTITIONS)]
        self._under_way: list[list[tuple[StateToWrite, ...]]] = [[] for _ in range(STATE_PARTITIONS)]
        self._durable_at_ms = [0] * STATE_PARTITIONS
        self.partitions = {place: _partition(place) for place in PLACES}
        self.offsets = Durable()
        self.runtime = self._load()

    # ---- lives

    def crash(self) -> None:
        """Loses all that is not durable; a write that was under way may be there afterwards."""
        self.life += 1
        for log, under_way in zip(self.state_log, self._under_way, strict=True):
            while under_way and self.chance.random() < 0.5:
                self._keep(log, under_way.pop(0))
            under_way.clear()
        for place, partition in self.partitions.items():
            self.partitions[place] = self._recovered(place, partition)
        self.offsets = self._replayed_offsets()
        self.runtime = self._load()

    def _recovered(self, place: TopicPartition, old: Partition) -> Partition:
        new = _partition(place)
        new.leader_epoch = self.life
        for batch, header in batches_in(old):
            new.append_as_is(memoryview(bytearray(batch)), header, self.clock.now_ms)
        return new

    def _replayed_offsets(self) -> Durable:
        durable = Durable()
        for chunk in log_records_of(self.partitions[OFFSETS]):
            for record in chunk:
                durable.apply(record)
        return durable

    def _load(self) -> TransactionRuntime:
        self.runtime = runtime = TransactionRuntime(self.settings, self)
        for index, log in enumerate(self.state_log):
            runtime.handle(index, StateLoadBegun(self.life), self.clock.now_ms)
            records = [StateRecord(n, key, value) for n, (key, value) in enumerate(log)]
            runtime.handle(index, StatesRead(self.life, records), self.clock.now_ms)
            runtime.handle(index, StateLoadEnded(self.life), self.clock.now_ms)
        self.arm()
        return runtime

    def later(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Does something after a time, unless the node has crashed by then."""
        life = self.life

        def act() -> None:
            if self.life == life:
                action()
                self.arm()

        self.clock.after(delay_ms, act)

    def arm(self) -> None:
        deadline_ms = self.runtime.next_deadline_ms()
        if deadline_ms is not None and deadline_ms <= self.clock.now_ms:
            self.runtime.fire_due(self.clock.now_ms)
            deadline_ms = self.runtime.next_deadline_ms()
        if deadline_ms is not None and not self._timer_is_set(deadline_ms):
            self._armed = (self.life, deadline_ms)
            self.later(max(deadline_ms - self.clock.now_ms, 1), lambda: None)

    _armed: tuple[int, int] = (-1, 0)

    def _timer_is_set(self, deadline_ms: int) -> bool:
        life, at_ms = self._armed
        return life == self.life and self.clock.now_ms < at_ms <= deadline_ms

    # ---- what the runtime asks for: TransactionHost

    def on_transaction_reply(self, request: RequestToken, response: TransactionResponse) -> None:
        assert callable(request)
        request(response)

    def append_states(self, partition: int, write: AppendStates, done: StateWritten) -> None:
        chance, faults, now_ms = self.chance, self.faults, self.clock.now_ms
        delay_ms = chance.randint(500, 3000) if chance.random() < faults.slow_disk else chance.randint(0, 3)
        at_ms = max(now_ms + delay_ms, self._durable_at_ms[partition])
        self._durable_at_ms[partition] = at_ms
        if chance.random() < faults.failed_write:
            self.later(at_ms - now_ms, lambda: done(ErrorCode.NOT_ENOUGH_REPLICAS, self.clock.now_ms))
            return
        self._under_way[partition].append(write.records)

        def durable() -> None:
            records = self._under_way[partition].pop(0)
            assert records is write.records, "writes became durable out of order"
            self._keep(self.state_log[partition], records)
            done(ErrorCode.NONE, self.clock.now_ms)

        self.later(at_ms - now_ms, durable)

    def _keep(self, log: list[StateToWrite], records: tuple[StateToWrite, ...]) -> None:
        log.extend(records)
        for record in records:
            self.witness.state_written(record)

    def send_markers(self, partition: int, markers: SendMarkers) -> None:
        errors: dict[TopicPartition, ErrorCode] = {}

        def write(place: TopicPartition) -> None:
            errors[place] = self._mark(place, markers)
            if len(errors) == len(markers.partitions):
                answered = MarkersAnswered(
                    markers.transactional_id,
                    markers.producer_id,
                    markers.producer_epoch,
                    tuple(errors.items()),
                )
                self.runtime.handle(partition, answered, self.clock.now_ms)

        for place in markers.partitions:
            slow = self.chance.random() < self.faults.slow_disk
            self.later(
                self.chance.randint(100, 2000) if slow else self.chance.randint(0, 3), _bound(write, place)
            )

    def _mark(self, place: TopicPartition, markers: SendMarkers) -> ErrorCode:
        if self.chance.random() < self.faults.failed_write:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        partition = self.partitions[place]
        try:
            partition.append_marker(
                ControlKind.COMMIT if markers.commit else ControlKind.ABORT,
                producer_id=markers.producer_id,
                producer_epoch=markers.producer_epoch,
                coordinator_epoch=markers.coordinator_epoch,
                transaction_version=markers.transaction_version,
                now_ms=self.clock.now_ms,
            )
        except KafkaError as error:
            return error.code
        if place == OFFSETS:
            self.offsets.end_transaction(markers.producer_id, markers.commit)
        self.witness.marked(place, markers.producer_id)
        return ErrorCode.NONE

    def allocate_producer_id(self, partition: int, needed: ProducerIdNeeded) -> None:
        self.next_producer_id += 1
        request = replace(needed.request, fresh_producer_id=self.next_producer_id)
        self.later(0, lambda: self.runtime.handle(partition, request, self.clock.now_ms))

    def on_state_load_failed(self, partition: int, failed: StateLoadFailed) -> None:
        raise Broken(f"__transaction_state-{partition} cannot be loaded: {failed.message}")

    # ---- requests

    def submit(self, request: TransactionRequest) -> None:
        self.runtime.submit(request, self.clock.now_ms)
        self.arm()

    def produce(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        place: TopicPartition,
        sequence: int,
        value: bytes,
        *,
        adds: bool,
        done: Done,
    ) -> None:
        """Appends one record, or the offset that it stands for, as the handlers of Produce and TxnOffsetCommit do."""
        partition, now_ms = self.partitions[place], self.clock.now_ms
        base_sequence = -1 if place == OFFSETS else sequence
        guard = partition.begin_verification(*producer, base_sequence, adds=adds, now_ms=now_ms)
        if guard is None:
            done(self._append(place, producer, sequence, value, None))
            return
        give_up_ms = now_ms + 100

        def ask() -> None:
            request = AddPartitionsToTxn(answered, transactional_id, *producer, frozenset({place}), not adds)
            self.submit(request)

        def answered(answer: AddPartitionsAnswer) -> None:
            if answer.error or answer.missing:
                if (
                    answer.error is ErrorCode.CONCURRENT_TRANSACTIONS
                    and adds
                    and self.clock.now_ms < give_up_ms
                ):
                    self._ask_when_settled(transactional_id, ask)
                else:
                    done(answer.error or ErrorCode.TRANSACTION_ABORTABLE)
                return
            # Some time passes between the coordinator's answer and the append.
            self.later(
                self.chance.randint(0, 2), lambda: done(self._append(place, producer, sequence, value, guard))
            )

        ask()

    def _ask_when_settled(self, transactional_id: str, ask: Callable[[], None]) -> None:
        """Asks again when the coordinator tells that the end before is there, or after a pause, as the broker does."""
        runtime, asked = self.runtime, False

        def once() -> None:
            nonlocal asked
            if not asked:
                asked = True
                runtime.forget_settled(transactional_id, once)
                ask()

        runtime.when_settled(transactional_id, once)
        self.later(_RETRY_MS, once)

    def _append(
        self,
        place: TopicPartition,
        producer: tuple[int, int],
        sequence: int,
        value: bytes,
        guard: Verification | None,
    ) -> ErrorCode:
        partition, now_ms = self.partitions[place], self.clock.now_ms
        try:
            if place == OFFSETS:
                number = int(value.split(b" ")[0])
                keys, offsets = [("t", 0)], [CommittedOffset(number, -1, "", now_ms)]
                records = offset_records(GROUP, keys, offsets)
                batch, header = encode_pairs_batch(records, now_ms, *producer)
                base = partition.append_offsets(memoryview(batch), header, now_ms, guard)
                self.offsets.apply_commit(GROUP, keys, offsets, base, producer[0])
            else:
                record = BatchRecord(0, now_ms, b"k", value, [])
                batch = encode_batch(
                    [record],
                    producer_id=producer[0],
                    producer_epoch=producer[1],
                    base_sequence=sequence,
                    transactional=True,
                )
                header = check_batch(batch)
                if partition.check(header, guard) is not None:
                    return ErrorCode.NONE
                base = partition.append(memoryview(batch), header, now_ms)
        except KafkaError as error:
            return error.code
        self.witness.written(self, place, producer, base)
        return ErrorCode.NONE


def batches_in(partition: Partition) -> list[tuple[bytes, BatchHeader]]:
    """Returns the batches of a partition in memory, in order."""
    offset, found = partition.log_start_offset, []
    while offset < partition.log_end_offset:
        data = b"".join(partition.read(offset, 1 << 20, at_least_one=True).chunks())
        for position, header in iter_batches(data):
            found.append((bytes(data[position : position + header.size]), header))
            offset = header.last_offset + 1
    return found


def _partition(place: TopicPartition) -> Partition:
    topic, index = place
    return Partition.open(
        MemoryDirectory(f"memory:{topic}-{index}"),
        topic,
        index,
        TopicConfig(),
        durability="memory",
        syncer=cast(Syncer, None),  # nothing in memory is synced
        clean=CleanState(),
    )


def _bound(action: Callable[[TopicPartition], None], place: TopicPartition) -> Callable[[], None]:
    return lambda: action(place)
