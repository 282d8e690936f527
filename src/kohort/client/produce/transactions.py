"""Runs the transactions of a producer: finds the coordinator, adds partitions and offsets, ends them. Sans-IO.

It belongs to the sender. At most one of its requests is in flight, and what that is follows from the state:

    initializing        InitProducerId
    in a transaction    AddPartitionsToTxn for partitions with batches to send; AddOffsetsToTxn and TxnOffsetCommit
    committing          the same until all batches are written, then EndTxn; nothing at all if nothing was added
    aborting            batches never sent are dropped, those in flight are waited for, then EndTxn

There are two protocols. With the first (TV1) partitions are added by requests of their own, and after a failure the
epoch is raised by InitProducerId. With the second (TV2, KIP-890: the cluster's feature transaction.version is 2) the
broker adds a partition with its first batch, and the answer to EndTxn brings a new epoch each time.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kohort.client.config import ProducerConfig
from kohort.client.core.backoff import Backoff
from kohort.client.core.cluster import Node
from kohort.client.core.effects import ANY_NODE, Answer, Failure, FailureKind, Outbox, Send
from kohort.client.core.metadata import Metadata
from kohort.client.core.operation import Operation
from kohort.client.errors import (
    AuthorizationFailed,
    IllegalState,
    TransactionAborted,
    TransactionFailed,
)
from kohort.client.produce.accumulator import PartitionQueue
from kohort.client.produce.idempotence import TransactionalNumbers
from kohort.client.produce.produce_errors import FATAL, code_of, outcome_of
from kohort.client.produce.transaction_errors import (
    MAY_BE_ALLOWED_LATER,
    Verdict,
    abortable,
    code_in,
    fatal,
    verdict_of,
)
from kohort.client.produce.transaction_state import FOLLOWING, ProducerTransactionState
from kohort.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kohort.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnClientTopic,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from kohort.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kohort.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kohort.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from kohort.wire.struct import Message

_log = logging.getLogger("kohort.client.transactions")

GROUP_KEY, TRANSACTION_KEY = 0, 1
"""FindCoordinator's key types."""
_FEATURE = "transaction.version"
_LAST_PRODUCE_OF_TV1, _LAST_END_OF_TV1, _LAST_OFFSET_COMMIT_OF_TV1 = 11, 4, 4
_LAST_ADD_OF_CLIENTS = 3
_FIRST_INIT_WITH_EPOCH = 3
_SOON_MS = 20
"""How soon the first partition is added again while the transaction before is still being completed."""

_S = ProducerTransactionState
Coordinated = tuple[int, str]
"""The key type and key of a coordinator: the transactional id, or a group."""


@dataclass(slots=True, eq=False)
class _Offsets:
    """Positions of a group that become part of the transaction."""

    left: dict[TopicPartition, OffsetAndMetadata]
    group: GroupMetadata
    operation: Operation[None]
    added: bool = False
    is_unsure: bool = False
    """AddOffsetsToTxn was sent and not answered: the coordinator may have added the group."""


@dataclass(frozen=True, slots=True)
class _Pending:
    """A call that its caller has not seen the end of: init, commit or abort. It can only be repeated."""

    call: str
    operation: Operation[None] = field(default_factory=Operation)


class ProducerTransactions:
    """See the module's docstring. All but `begin` and the checks is called on the thread that drives the sender."""

    def __init__(
        self,
        out: Outbox,
        config: ProducerConfig,
        metadata: Metadata,
        numbers: TransactionalNumbers,
        backoff: Backoff,
        *,
        stop: Callable[[Exception], None],
        drop_unsent: Callable[[Exception], None],
        is_idle: Callable[[], bool],
    ) -> None:
        """`stop` ends the sender for good, `drop_unsent` fails the batches that were never sent."""
        assert config.transactional_id is not None, "the producer is transactional"
        self.transactional_id = config.transactional_id
        self.state = ProducerTransactionState.UNINITIALIZED
        self.error: Exception | None = None
        """Why the open transaction, or the producer, has failed."""
        self.obstacle = ""
        """Why the last request was of no use, for the text of a timeout."""
        self.is_second_version = False
        self._out, self._config, self._metadata, self._numbers = out, config, metadata, numbers
        self._backoff = backoff
        self._stop, self._drop_unsent, self._is_idle = stop, drop_unsent, is_idle
        self._features_epoch = -1
        self._pending: _Pending | None = None
        self._coordinators: dict[Coordinated, int] = {}
        self._partitions: set[TopicPartition] = set()  # of the open transaction
        self._new: dict[TopicPartition, None] = {}  # to be added
        self._adding: list[TopicPartition] = []  # asked for, and not answered yet
        self._offsets: deque[_Offsets] = deque()
        self._is_started = False  # the coordinator knows of the transaction, so that it must be ended
        self._is_ending = False  # EndTxn was sent: no batch may follow
        self._is_ended = False  # EndTxn was answered; the epoch is still to be raised
        self._attempt = 0
        self._asking: int | None = None  # the attempt that is in flight
        self._failures = 0
        self._not_before_ms = 0

    def __repr__(self) -> str:
        version = 2 if self.is_second_version else 1
        return (
            f"<{self.transactional_id}: {self.state.value}, TV{version}, id {self._numbers.producer_id} epoch "
            f"{self._numbers.epoch}, {len(self._partitions)} partitions>"
        )

    # --- what users call --------------------------------------------------------------------------

    def init(self) -> Operation[None]:
        pending = self._repeated("init_transactions")
        if pending is not None:
            return pending
        if self.state is not _S.UNINITIALIZED:
            raise IllegalState("init_transactions() is called once, before the first transaction")
        self._go_to(_S.INITIALIZING)
        return self._begin_call("init_transactions")

    def begin(self) -> None:
        """Opens a transaction. It only sets the state, so that any thread may call it: nothing is in flight then."""
        self._repeated("begin_transaction")
        if self.state is _S.ABORTABLE_ERROR and self.error is not None:
            raise self.error
        if self.state is not _S.READY:
            raise IllegalState(
                "init_transactions() must be called before the first transaction"
                if self.state in (_S.UNINITIALIZED, _S.INITIALIZING)
                else "a transaction is open already: end it by commit_transaction() or abort_transaction()"
            )
        self._go_to(_S.IN_TRANSACTION)

    def check_may_send(self) -> None:
        """Raises if no record may be sent now."""
        if self.state is _S.IN_TRANSACTION:
            return
        self._check_open("send()")

    def send_offsets(
        self, offsets: dict[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> Operation[None]:
        self._repeated("send_offsets_to_transaction")
        self._check_open("send_offsets_to_transaction()")
        asked = _Offsets(dict(offsets), group, Operation())
        if offsets:
            self._offsets.append(asked)
        else:
            asked.operation.finish(None)
        return asked.operation

    def commit(self) -> Operation[None]:
        pending = self._repeated("commit_transaction")
        if pending is not None:
            return pending
        self._check_open("commit_transaction()")
        self._go_to(_S.COMMITTING)
        return self._begin_call("commit_transaction")

    def abort(self) -> Operation[None]:
        pending = self._repeated("abort_transaction")
        if pending is not None:
            return pending
        if self.state is not _S.ABORTABLE_ERROR:
            self._check_open("abort_transaction()")
        self._go_to(_S.ABORTING)
        self._forget_what_waits(self._aborted())
        return self._begin_call("abort_transaction")

    def acknowledge(self, call: str) -> None:
        """Takes note that the caller has seen the end of its call; until then it can only be repeated."""
        if self._pending is not None and self._pending.call == call:
            self._pending = None

    @property
    def is_open(self) -> bool:
        """Whether there is a transaction that an abort would end."""
        return self.state in (_S.IN_TRANSACTION, _S.ABORTABLE_ERROR)

    @property
    def pending(self) -> Operation[None] | None:
        """The end of the call that can only be repeated, because its time was up."""
        return None if self._pending is None else self._pending.operation

    def _repeated(self, call: str) -> Operation[None] | None:
        """Returns the operation of a call that is repeated because its time was up; raises if another must be."""
        if self.state is _S.FATAL and self.error is not None:
            raise self.error
        if self._pending is None:
            return None
        if self._pending.call != call:
            raise IllegalState(
                f"{self._pending.call}() did not end in time: call it again, before {call}(), to learn how it ends"
            )
        return self._pending.operation

    def _begin_call(self, call: str) -> Operation[None]:
        self._pending = _Pending(call)
        return self._pending.operation

    def _check_open(self, call: str) -> None:
        if self.state in (_S.ABORTABLE_ERROR, _S.FATAL) and self.error is not None:
            raise self.error
        if self.state in (_S.UNINITIALIZED, _S.INITIALIZING):
            raise IllegalState(
                f"{call} of a transactional producer needs a transaction: call init_transactions() once, then "
                "begin_transaction()"
            )
        if self.state is not _S.IN_TRANSACTION:
            raise IllegalState(
                f"{call} of a transactional producer needs a transaction, but it is {self.state.value}: call "
                "begin_transaction() first, or use `with producer.transaction():`"
            )

    # --- for the sender ---------------------------------------------------------------------------

    @property
    def last_produce_version(self) -> int | None:
        """The newest version of Produce that belongs to the protocol in use; None: any."""
        return None if self.is_second_version else _LAST_PRODUCE_OF_TV1

    def may_send(self, queue: PartitionQueue) -> bool:
        """Tells whether a batch may go to this partition; if it is not in the transaction yet, it is added."""
        partition = TopicPartition(queue.topic, queue.index)
        if partition in self._partitions:
            return not self._is_ending
        if self.state not in (_S.IN_TRANSACTION, _S.COMMITTING) or self._is_ending:
            return False
        if self.is_second_version:
            self._partitions.add(partition)
            self._is_started = True
            return True
        if partition not in self._adding:
            self._new[partition] = None
        return False

    def batch_failed(self, error: Exception) -> None:
        """Takes note that records of the open transaction will never be written."""
        code = code_in(error)
        words = str(error)
        if code in FATAL:
            self._fail_for_good(fatal(code, "records were not written", words), error)
        elif self.state in (_S.IN_TRANSACTION, _S.COMMITTING):
            self._fail_transaction(abortable(code, "records were not written", words), error)

    def tick(self, now_ms: int) -> int | None:
        """Sends the next request if there is one to send; else returns when to look again."""
        if self.state is _S.ABORTING and not self._is_idle():
            self._drop_unsent(self._aborted())
        if self._asking is not None:
            return None
        ask = self._next()
        if ask is None:
            return None
        if now_ms < self._not_before_ms:
            return self._not_before_ms
        ask()
        return None

    # --- what to ask next -------------------------------------------------------------------------

    def _next(self) -> Callable[[], None] | None:
        if self.state is _S.INITIALIZING:
            return self._init
        if self._new or self._adding:
            return self._add_partitions
        if self._offsets:
            return self._add_offsets
        if self.state in (_S.COMMITTING, _S.ABORTING) and self._is_idle():
            if self._is_ended:
                return self._init  # raises the epoch
            if self._is_started:
                return self._end
            self._complete()
        return None

    def _send(
        self,
        to: Coordinated,
        api_key: int,
        make: Callable[[int], Message],
        purpose: str,
        take: Callable[[Answer, int], None],
        max_version: int | None = None,
    ) -> bool:
        """Asks the coordinator; looks for it, and returns False, if it is not known."""
        node_id = self._coordinators.get(to)
        if node_id is None:
            self._find(to)
            return False
        self._put(node_id, api_key, make, purpose, partial(self._taken, to, take), max_version)
        return True

    def _put(
        self,
        node_id: int,
        api_key: int,
        make: Callable[[int], Message],
        purpose: str,
        take: Callable[[Answer, int], None],
        max_version: int | None = None,
    ) -> None:
        self._attempt += 1
        self._asking = self._attempt
        self._out.append(
            Send(
                node_id,
                api_key,
                make,
                f"transactions.{purpose}",
                self._config.request_timeout_ms,
                max_version=max_version,
                on_answer=partial(self._answered, self._attempt, take),
            )
        )

    def _answered(
        self, attempt: int, take: Callable[[Answer, int], None], answer: Answer, now_ms: int
    ) -> None:
        if attempt != self._asking:
            return
        self._asking = None
        if self.state is not _S.FATAL:
            take(answer, now_ms)

    def _taken(
        self, to: Coordinated, take: Callable[[Answer, int], None], answer: Answer, now_ms: int
    ) -> None:
        if answer.failure is None:
            take(answer, now_ms)
        else:
            self._unanswered(to, answer.failure, now_ms)

    def _unanswered(self, to: Coordinated, failure: Failure, now_ms: int) -> None:
        if failure.is_retriable:
            self._coordinators.pop(to, None)
            self._wait(f"{failure.kind.value}: {failure.message}", now_ms)
            return
        is_refused = failure.kind is FailureKind.AUTHENTICATION
        doing = (
            "the broker did not accept the credentials"
            if is_refused
            else "a request of the transaction was not answered"
        )
        self._fail_for_good(fatal(outcome_of(failure).code, doing, failure.message))

    def _wait(self, obstacle: str, now_ms: int, most_ms: int | None = None) -> None:
        self._failures += 1
        self.obstacle = obstacle
        wait_ms = self._backoff.after(self._failures)
        self._not_before_ms = now_ms + (wait_ms if most_ms is None else min(wait_ms, most_ms))
        _log.debug("%s: %s; asks again", self.transactional_id, obstacle)

    def _is_refused(
        self, code: ErrorCode, to: Coordinated, doing: str, now_ms: int, most_ms: int | None = None
    ) -> bool:
        """Does what an error of the coordinator asks for; returns False if there is none."""
        if code is ErrorCode.NONE:
            self._failures = 0
            self._not_before_ms = 0
            self.obstacle = ""
            return False
        verdict = verdict_of(code)
        if verdict in (Verdict.AGAIN, Verdict.LOOK_UP):
            if verdict is Verdict.LOOK_UP:
                self._coordinators.pop(to, None)
            self._wait(f"{doing}: {code.name}", now_ms, most_ms)
        elif verdict is Verdict.ABORT and self.state is not _S.ABORTING:
            self._fail_transaction(abortable(code, doing))
        else:
            self._fail_for_good(fatal(code, doing))
        return True

    @property
    def _own(self) -> Coordinated:
        return TRANSACTION_KEY, self.transactional_id

    # --- the coordinator --------------------------------------------------------------------------

    def _find(self, to: Coordinated) -> None:
        key_type, key = to

        def make(version: int) -> FindCoordinatorRequest:
            if version >= 4:
                return FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
            if version == 0 and key_type != GROUP_KEY:
                raise ValueError("the broker is too old for transactions (FindCoordinator v1)")
            return FindCoordinatorRequest(key=key, key_type=key_type)

        self._put(ANY_NODE, FindCoordinatorRequest.API_KEY, make, "find", partial(self._found, to))

    def _found(self, to: Coordinated, answer: Answer, now_ms: int) -> None:
        if answer.failure is not None:
            self._unanswered(to, answer.failure, now_ms)
            return
        response: FindCoordinatorResponse = answer.response
        found: Any = response
        if answer.version >= 4:
            if len(response.coordinators) != 1:
                self._wait("the answer names no coordinator", now_ms)
                return
            found = response.coordinators[0]
        key_type, key = to
        what = f"group {key}" if key_type == GROUP_KEY else f"transactional.id {key}"
        code = code_of(found.error_code)
        if key_type == GROUP_KEY and not self._offsets:
            return  # nobody wants to know any more
        if code in MAY_BE_ALLOWED_LATER and self.state is _S.INITIALIZING:
            self._fail_init(code, f"the coordinator of {what} could not be found")
        elif not self._is_refused(code, to, f"the coordinator of {what} could not be found", now_ms):
            self._coordinators[to] = found.node_id
            self._metadata.learn(Node(found.node_id, found.host, found.port))
            _log.info("the coordinator of %s is node %d", what, found.node_id)

    # --- InitProducerId ---------------------------------------------------------------------------

    def _init(self) -> None:
        raises = self.state is not _S.INITIALIZING
        producer_id, epoch = (self._numbers.producer_id, self._numbers.epoch) if raises else (-1, -1)

        def make(version: int) -> InitProducerIdRequest:
            if raises and version < _FIRST_INIT_WITH_EPOCH:
                raise ValueError(
                    "the broker is too old to go on after a failed transaction (InitProducerId v3)"
                )
            timeout_ms = self._config.transaction_timeout_ms
            return InitProducerIdRequest(self.transactional_id, timeout_ms, producer_id, epoch)

        self._send(self._own, InitProducerIdRequest.API_KEY, make, "init", self._inited)

    def _inited(self, answer: Answer, now_ms: int) -> None:
        response: InitProducerIdResponse = answer.response
        code = code_of(response.error_code)
        doing = f"transactional.id {self.transactional_id} could not be initialized"
        if code in MAY_BE_ALLOWED_LATER and self.state is _S.INITIALIZING:
            self._fail_init(code, doing)
            return
        if verdict_of(code) is Verdict.ABORT:
            self._fail_for_good(fatal(code, doing))
            return
        if self._is_refused(code, self._own, doing, now_ms):
            return
        self._numbers.take_id(response.producer_id, response.producer_epoch)
        if self.state is _S.INITIALIZING:
            self._look_at_features()
            self._go_to(_S.READY)
            self._finish()
        else:
            self._complete()

    def _fail_init(self, code: ErrorCode, doing: str) -> None:
        """Lets the caller try again once it is allowed to."""
        self._go_to(_S.UNINITIALIZED)
        error = fatal(code, doing)
        self._finish(AuthorizationFailed(code, error.message))

    def _look_at_features(self) -> None:
        """Chooses the protocol, where no transaction is open: by what the cluster said last."""
        if self._metadata.features_epoch > self._features_epoch:
            self._features_epoch = self._metadata.features_epoch
            self.is_second_version = self._metadata.features.get(_FEATURE, 0) >= 2

    # --- partitions -------------------------------------------------------------------------------

    def _add_partitions(self) -> None:
        if not self._adding:
            self._adding, self._new = list(self._new), {}
        topics: dict[str, AddPartitionsToTxnClientTopic] = {}
        for name, index in self._adding:
            topics.setdefault(name, AddPartitionsToTxnClientTopic(name)).partitions.append(index)
        numbers = self._numbers.producer_id, self._numbers.epoch
        self._send(
            self._own,
            AddPartitionsToTxnRequest.API_KEY,
            lambda version: AddPartitionsToTxnRequest(
                [], self.transactional_id, *numbers, list(topics.values())
            ),
            "add_partitions",
            self._added_partitions,
            _LAST_ADD_OF_CLIENTS,
        )

    def _added_partitions(self, answer: Answer, now_ms: int) -> None:
        response: AddPartitionsToTxnResponse = answer.response
        codes = {
            TopicPartition(topic.name, each.partition_index): code_of(each.partition_error_code)
            for topic in response.results_by_topic_v3_and_below
            for each in topic.results_by_partition
        }
        wrong = {p: codes.get(p, ErrorCode.UNKNOWN_SERVER_ERROR) for p in self._adding}
        wrong = {p: code for p, code in wrong.items() if code is not ErrorCode.NONE}
        partition, code = _worst(wrong)
        # Nothing else is waited for when the transaction before is still being completed.
        soon = _SOON_MS if code is ErrorCode.CONCURRENT_TRANSACTIONS and not self._partitions else None
        if verdict_of(code) not in (Verdict.AGAIN, Verdict.LOOK_UP) or code is ErrorCode.NONE:
            adding, self._adding = self._adding, []
            if code is ErrorCode.NONE:
                self._partitions.update(adding)
                self._is_started = True
            elif self.state is _S.ABORTING and verdict_of(code) is Verdict.ABORT:
                return  # it was not added, and is not needed any more
        self._is_refused(code, self._own, f"{partition} could not be added to the transaction", now_ms, soon)

    # --- offsets ----------------------------------------------------------------------------------

    def _add_offsets(self) -> None:
        asked = self._offsets[0]
        if asked.added or self.is_second_version:
            self._commit_offsets(asked)
            return
        numbers = self._numbers.producer_id, self._numbers.epoch
        was_sent = self._send(
            self._own,
            AddOffsetsToTxnRequest.API_KEY,
            lambda version: AddOffsetsToTxnRequest(self.transactional_id, *numbers, asked.group.group_id),
            "add_offsets",
            partial(self._added_offsets, asked),
        )
        asked.is_unsure = asked.is_unsure or was_sent

    def _added_offsets(self, asked: _Offsets, answer: Answer, now_ms: int) -> None:
        code = code_of(answer.response.error_code)
        soon = _SOON_MS if code is ErrorCode.CONCURRENT_TRANSACTIONS and not self._partitions else None
        if code is ErrorCode.NONE or verdict_of(code) not in (Verdict.AGAIN, Verdict.LOOK_UP):
            asked.is_unsure = False
        if code is ErrorCode.NONE:
            asked.added = self._is_started = True
        doing = f"group {asked.group.group_id} could not be added to the transaction"
        if self.state in (_S.ABORTING, _S.ABORTABLE_ERROR) and not asked.is_unsure:
            self._offsets.popleft()
            if verdict_of(code) is Verdict.ABORT:
                return  # it was not added, and is not needed any more
        self._is_refused(code, self._own, doing, now_ms, soon)

    def _commit_offsets(self, asked: _Offsets) -> None:
        self._is_started = True  # with TV2 by this request
        group, topics = asked.group, dict[str, TxnOffsetCommitRequestTopic]()
        for (name, index), at in asked.left.items():
            epoch = -1 if at.leader_epoch is None else at.leader_epoch
            topic = topics.setdefault(name, TxnOffsetCommitRequestTopic(name))
            topic.partitions.append(TxnOffsetCommitRequestPartition(index, at.offset, epoch, at.metadata))
        request = TxnOffsetCommitRequest(
            self.transactional_id, group.group_id, self._numbers.producer_id, self._numbers.epoch,
            group.generation_id, group.member_id, group.group_instance_id, list(topics.values()),
        )  # fmt: skip
        self._send(
            (GROUP_KEY, group.group_id),
            TxnOffsetCommitRequest.API_KEY,
            lambda version: request,
            "commit_offsets",
            partial(self._committed_offsets, asked),
            None if self.is_second_version else _LAST_OFFSET_COMMIT_OF_TV1,
        )

    def _committed_offsets(self, asked: _Offsets, answer: Answer, now_ms: int) -> None:
        if asked not in self._offsets:
            return  # whatever came of it is aborted
        response: TxnOffsetCommitResponse = answer.response
        codes = {
            TopicPartition(topic.name, each.partition_index): code_of(each.error_code)
            for topic in response.topics
            for each in topic.partitions
        }
        wrong = {p: codes.get(p, ErrorCode.UNKNOWN_SERVER_ERROR) for p in asked.left}
        wrong = {p: code for p, code in wrong.items() if code is not ErrorCode.NONE}
        asked.left = {p: at for p, at in asked.left.items() if p in wrong}
        partition, code = _worst(wrong)
        to = GROUP_KEY, asked.group.group_id
        doing = f"the offset of {partition} could not be committed for group {asked.group.group_id}"
        if not self._is_refused(code, to, doing, now_ms):
            self._offsets.popleft()
            asked.operation.finish(None)

    # --- the end ----------------------------------------------------------------------------------

    def _end(self) -> None:
        self._is_ending = True
        request = EndTxnRequest(
            self.transactional_id, self._numbers.producer_id, self._numbers.epoch, self.state is _S.COMMITTING
        )
        self._send(
            self._own,
            EndTxnRequest.API_KEY,
            lambda version: request,
            "end",
            self._ended,
            None if self.is_second_version else _LAST_END_OF_TV1,
        )

    def _ended(self, answer: Answer, now_ms: int) -> None:
        response: EndTxnResponse = answer.response
        code = code_of(response.error_code)
        what = "committed" if self.state is _S.COMMITTING else "aborted"
        if self._is_refused(code, self._own, f"the transaction could not be {what}", now_ms):
            return
        if response.producer_id != -1:
            self._numbers.take_id(response.producer_id, response.producer_epoch)
        if self._numbers.lost:
            self._is_ended = True  # the next request raises the epoch
        else:
            self._complete()

    def _complete(self) -> None:
        """Ends the transaction here: the coordinator has ended it, or knows nothing of it."""
        self._forget_transaction()
        self._look_at_features()
        self.error = None
        self._go_to(_S.READY)
        self._finish()

    def _forget_transaction(self) -> None:
        self._partitions.clear()
        self._new.clear()
        self._adding.clear()
        self._is_started = self._is_ending = self._is_ended = False

    def _finish(self, error: Exception | None = None) -> None:
        if self._pending is None:
            return
        if error is None:
            self._pending.operation.finish(None)
        else:
            self._pending.operation.fail(error)

    # --- failures ---------------------------------------------------------------------------------

    def _aborted(self) -> TransactionAborted:
        error = TransactionAborted("the transaction was aborted before this was sent")
        error.__cause__ = self.error
        return error

    def _fail_transaction(self, error: TransactionFailed, cause: Exception | None = None) -> None:
        error.__cause__ = cause
        if self.state not in (_S.IN_TRANSACTION, _S.COMMITTING):
            return
        _log.warning("%s: the transaction has failed and must be aborted: %s", self.transactional_id, error)
        self.error = error
        was_committing = self.state is _S.COMMITTING
        self._is_ending = False
        self._go_to(_S.ABORTABLE_ERROR)
        self._forget_what_waits(error)
        if was_committing:
            self._finish(error)

    def _forget_what_waits(self, error: Exception) -> None:
        """Drops what the coordinator does not know yet; what it may know is asked again until it answers."""
        self._new.clear()
        for asked in self._offsets:
            asked.operation.fail(error)
        self._offsets = deque(asked for asked in self._offsets if asked.is_unsure)
        self._drop_unsent(self._aborted())

    def _fail_for_good(self, error: Exception, cause: Exception | None = None) -> None:
        if self.state is _S.FATAL:
            return
        if cause is not None:
            error.__cause__ = cause
        _log.error("%s: this producer can do nothing any more: %s", self.transactional_id, error)
        self.error = error
        self._go_to(_S.FATAL)
        for asked in self._offsets:
            asked.operation.fail(error)
        self._offsets.clear()
        self._forget_transaction()
        self._finish(error)
        self._stop(error)

    def _go_to(self, state: ProducerTransactionState) -> None:
        assert state in FOLLOWING[self.state], f"{state.name} does not follow {self.state.name}"
        _log.debug("%s: %s, then %s", self.transactional_id, self.state.value, state.value)
        self.state = state


def _worst(wrong: dict[TopicPartition, ErrorCode]) -> tuple[TopicPartition | str, ErrorCode]:
    """Returns the partition whose error decides: one that cannot be cured before one that can."""
    if not wrong:
        return "every partition", ErrorCode.NONE

    def rank(partition: TopicPartition) -> tuple[bool, int]:
        code = wrong[partition]
        order = (Verdict.FATAL, Verdict.ABORT, Verdict.LOOK_UP, Verdict.AGAIN)
        # OPERATION_NOT_ATTEMPTED says only that another partition was refused.
        return code is ErrorCode.OPERATION_NOT_ATTEMPTED, order.index(verdict_of(code))

    worst = min(wrong, key=rank)
    return worst, wrong[worst]
