"""Transactional producers in the simulator; and bugs planted in the core, one by one, that it must find."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from kohort.coordinator.replay import Durable
from kohort.log.partition import Partition
from kohort.log.storage.producers import ProducerStates
from kohort.sim import Broken, FaultRates, run_transactions
from kohort.sim.transaction_node import TransactionNode
from kohort.sim.transaction_witness import SimulatedTransaction, TransactionWitness, visible
from kohort.sim.world import VirtualClock
from kohort.transactions import adding, ending, expiry, init, shard
from kohort.transactions.effects import AddPartitionsAnswer
from kohort.transactions.events import AddPartitionsToTxn, EndTxn, InitProducerId
from kohort.transactions.step import TransactionStep
from kohort.wire.errors import ErrorCode
from kohort.wire.records.batch import ControlKind

Mutation = Callable[[pytest.MonkeyPatch], None]
MUTATIONS: dict[str, Mutation] = {}
SEEDS = range(1, 9)


def mutation(plant: Mutation) -> Mutation:
    MUTATIONS[plant.__name__] = plant
    return plant


def nothing(*args: Any, **kwargs: Any) -> None:
    return None


@pytest.mark.parametrize("seed", [1, 2])
def test_every_invariant_holds(seed: int) -> None:
    report = run_transactions(seed, minutes=0.5)
    assert report.committed > 10
    assert report.aborted > 2


def test_without_faults_all_transactions_end_as_their_producers_want() -> None:
    report = run_transactions(3, minutes=0.05, faults=FaultRates.none())
    assert report.committed + report.aborted >= report.transactions - 4  # those that the end has cut off


def test_one_seed_is_one_run() -> None:
    assert run_transactions(5, minutes=0.2) == run_transactions(5, minutes=0.2)


@pytest.mark.chaos
@pytest.mark.timeout(0)
def test_very_many_transactions_under_all_faults_keep_the_invariants() -> None:
    done, seed = 0, 100_000
    while done < 100_000:
        report = run_transactions(seed, producers=(2, 4, 8)[seed % 3], minutes=10)
        done, seed = done + report.transactions, seed + 1
        print(f"{done} transactions; {report}", flush=True)


class Forgetful:
    """A client of transaction version 1 that writes its second transaction's record before the marker of the first.

    It has not added the partition again. Kafka's partition does not ask the coordinator either while a transaction of
    this id and epoch is open in it (`UnifiedLog.maybeStartTransactionVerification`).
    """

    PLACE = ("u", 0)

    def __init__(self, commits: bool) -> None:
        self.clock, self.witness, self.answers = VirtualClock(), TransactionWitness(), list[Any]()
        self.node = TransactionNode(self.clock, Random(1), FaultRates.none(), self.witness)
        self.first = SimulatedTransaction(0, {self.PLACE}, "committed" if commits else "aborted")
        self.second = SimulatedTransaction(
            1, {self.PLACE}, "aborted" if commits else "committed", self.first, {self.PLACE}
        )
        self.witness.transactions = [self.first, self.second]
        heard, node = self.answers.append, self.node
        node.submit(InitProducerId(heard, "p", 10_000))
        self.clock.run_until(100)
        producer = (self.answers[-1].producer_id, self.answers[-1].producer_epoch)

        def write(number: int) -> None:
            value = b"%d u" % number
            node.produce("p", producer, self.PLACE, number, value, adds=False, done=heard)

        node.submit(AddPartitionsToTxn(heard, "p", *producer, frozenset({self.PLACE})))
        self.clock.run_until(200)
        write(0)
        self.clock.run_until(300)
        node.submit(EndTxn(lambda answer: write(1), "p", *producer, commits, False))
        self.clock.run_until(400)


@pytest.mark.parametrize("commits", [True, False])
def test_a_record_in_a_partition_that_was_not_added_has_the_fate_of_the_transaction_before(
    commits: bool,
) -> None:
    client = Forgetful(commits)
    assert client.answers[-1] is ErrorCode.NONE
    assert visible(client.node, client.PLACE) == Counter([0, 1] if commits else [])
    client.witness.check_end(client.node)
    client.second.forgotten.clear()
    with pytest.raises(Broken, match="transaction 1 "):  # one that has added it is owed more
        client.witness.check_end(client.node)


def test_a_record_in_a_partition_that_was_not_added_can_be_a_part_of_no_other_transaction() -> None:
    client = Forgetful(commits=True)
    client.second.before = SimulatedTransaction(2, {client.PLACE})
    with pytest.raises(Broken, match="transaction 2 before it is not visible"):
        client.witness.check_end(client.node)
    for before in (None, SimulatedTransaction(0, {("t", 0)})):
        client.second.before = before
        with pytest.raises(Broken, match="nothing was open there"):
            client.witness.check_end(client.node)


@mutation
def a_load_does_not_resume_what_was_decided(patch: pytest.MonkeyPatch) -> None:
    begin = ending.begin_completion

    def only_live(step: TransactionStep, transactional_id: str) -> None:
        if transactional_id in step.shard.last_epochs:  # which a load does not know
            begin(step, transactional_id)

    patch.setattr(ending, "begin_completion", only_live)


@mutation
def a_marker_that_failed_counts_as_written(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ending, "_MARKED", frozenset(ErrorCode))


@mutation
def complete_does_not_wait_for_the_markers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        ending,
        "send_markers",
        lambda step, name: ending._complete(step, name, step.shard.durable.known[name]),
    )


@mutation
def a_failed_marker_is_not_tried_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ending, "retry", nothing)
    patch.setitem(shard._TIMERS, shard.TransactionTimer.RETRY, nothing)


@mutation
def a_timeout_aborts_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(shard._TIMERS, shard.TransactionTimer.ABORT, expiry.set_timers)


@mutation
def a_fence_does_not_raise_the_epoch(patch: pytest.MonkeyPatch) -> None:
    fence = ending.fence

    def weak(step: TransactionStep, name: str, now: Any, *more: Any) -> None:
        fence(step, name, now._replace(producer_epoch=now.producer_epoch - 1), *more)

    patch.setattr(init, "fence", weak)
    patch.setattr(expiry, "fence", weak)


@mutation
def init_gives_the_same_epoch_again(patch: pytest.MonkeyPatch) -> None:
    become = init._become_empty

    def same(step: Any, request: Any, producer_id: int, epoch: int, last: int, previous: int) -> None:
        become(step, request, producer_id, max(epoch - 1, 0), last, previous)

    patch.setattr(init, "_become_empty", same)


@mutation
def init_leaves_an_open_transaction_open(patch: pytest.MonkeyPatch) -> None:
    def forget(step: TransactionStep, name: str, now: Any, request: Any = None, answer: Any = None) -> None:
        init._become_empty(step, request, now.producer_id, now.producer_epoch + 1, -1, now.producer_id)

    patch.setattr(init, "fence", forget)
    patch.setattr("kohort.transactions.step.TRANSITIONS", _Anything())


class _Anything:
    def __contains__(self, what: object) -> bool:
        return True


@mutation
def an_end_is_answered_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    transit = TransactionStep.transit

    def hasty(self: TransactionStep, name: str, new: Any, **more: Any) -> None:
        request, response = more.pop("request", None), more.pop("response", None)
        transit(self, name, new, **more)
        if request is not None:
            self.reply(request.request, response)

    patch.setattr(TransactionStep, "transit", hasty)


@mutation
def a_pending_transition_is_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    decide = ending.decide
    patch.setattr(ending, "decide", lambda now, is_pending, request: decide(now, False, request))
    patch.setattr("kohort.transactions.step.TRANSITIONS", _Anything())


@mutation
def partitions_that_are_added_replace_the_others(patch: pytest.MonkeyPatch) -> None:
    transit = TransactionStep.transit

    def forgetful(self: TransactionStep, name: str, new: Any, **more: Any) -> None:
        request = more.get("request")
        if isinstance(request, adding.AddPartitionsToTxn):
            new = new._replace(partitions=request.partitions)
        transit(self, name, new, **more)

    patch.setattr(TransactionStep, "transit", forgetful)


@mutation
def verifying_finds_every_partition(patch: pytest.MonkeyPatch) -> None:
    add = adding.add_partitions

    def lenient(step: TransactionStep, request: Any) -> None:
        if request.verify_only:
            step.reply(request.request, AddPartitionsAnswer(ErrorCode.NONE))
        else:
            add(step, request)

    patch.setitem(shard._REQUESTS, adding.AddPartitionsToTxn, lenient)


@mutation
def an_older_epoch_may_add_partitions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(adding, "_refusal", nothing)


@mutation
def aborted_offsets_become_visible(patch: pytest.MonkeyPatch) -> None:
    end = Durable.end_transaction
    patch.setattr(
        Durable,
        "end_transaction",
        lambda self, producer_id, commit: None if not commit else end(self, producer_id, commit),
    )


@mutation
def a_commit_is_marked_as_an_abort(patch: pytest.MonkeyPatch) -> None:
    append = Partition.append_marker

    def wrong(self: Partition, kind: ControlKind, **more: Any) -> int:
        return append(self, ControlKind.ABORT if self.index == 1 else kind, **more)

    patch.setattr(Partition, "append_marker", wrong)


@mutation
def a_decided_transaction_can_be_decided_again(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(ending.V5, shard.TransactionState.PREPARE_COMMIT, (ending._PREPARE, ending._PREPARE))
    patch.setitem(
        ending.V4_AND_BELOW, shard.TransactionState.PREPARE_COMMIT, (ending._PREPARE, ending._PREPARE)
    )
    decide = ending.decide
    patch.setattr(ending, "decide", lambda now, is_pending, request: decide(now, False, request))
    patch.setattr("kohort.transactions.step.TRANSITIONS", _Anything())


@mutation
def a_batch_needs_no_coordinator(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "begin_verification", nothing)
    patch.setattr(ProducerStates, "_check_verified", nothing)
    patch.setattr(ProducerStates, "check_offsets", nothing)


@mutation
def a_marker_does_not_raise_the_epoch(patch: pytest.MonkeyPatch) -> None:
    append = Partition.append_marker

    def low(self: Partition, kind: ControlKind, **more: Any) -> int:
        entry = self.producers._producers.get(more["producer_id"])
        epoch = more["producer_epoch"] if entry is None else entry.producer_epoch
        return append(self, kind, **{**more, "producer_epoch": epoch, "transaction_version": 0})

    patch.setattr(Partition, "append_marker", low)
    patch.setattr(Partition, "begin_verification", nothing)
    patch.setattr(ProducerStates, "_check_verified", nothing)


def run_all() -> None:
    for seed in SEEDS:
        run_transactions(seed, minutes=0.5)


@pytest.mark.parametrize("name", sorted(MUTATIONS))
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTATIONS[name](monkeypatch)
    # Broken is an AssertionError; some bugs are noticed by an assertion of the core itself.
    with pytest.raises((AssertionError, KeyError)):
        run_all()


def test_what_is_broken_names_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    a_marker_that_failed_counts_as_written(monkeypatch)
    with pytest.raises(Broken, match=r"seed \d+"):
        run_all()
