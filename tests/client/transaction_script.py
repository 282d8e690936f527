"""Replays transcripts of a transactional producer: lines at the margin are events, indented lines are what followed.

Events:
    set transaction.timeout.ms=1000       before anything else
    features 2                            the cluster's transaction.version, from now on
    init | begin | commit | abort         the user's calls; the same again: the call is repeated
    send a b/1                            records, to partition 0 or another
    offsets g 5                           send_offsets_to_transaction: offset 5 of in-0 for group g
    at +100                               time passes, with a tick at every deadline
    find 1 | find ERROR                   the oldest FindCoordinator is answered; likewise:
    id 7 0 | id ERROR                     InitProducerId
    added | added ERROR [ERROR …]         AddPartitionsToTxn: an error for each partition
    grouped [ERROR] | positioned [ERROR]  AddOffsetsToTxn | TxnOffsetCommit
    written [ERROR] | ended [ERROR | 7 1] Produce | EndTxn, with the next id and epoch
    lost init | slow end | refused find KIND words    the oldest such request has no answer
    seen commit_transaction               the caller has seen the end of its call
    show                                  repr of the transactions
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from kohort.client.core.effects import ANY_NODE, Answer, Failure, FailureKind, Send
from kohort.client.core.operation import Operation
from kohort.client.produce.batch import RecordHandle
from kohort.client.produce.transactions import ProducerTransactions
from kohort.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from kohort.wire.compiler.compile import codec
from kohort.wire.errors import ErrorCode, KohortError
from kohort.wire.messages import APIS
from kohort.wire.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from kohort.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnClientPartitionResult,
    AddPartitionsToTxnClientTopicResult,
    AddPartitionsToTxnResponse,
)
from kohort.wire.messages.end_txn import EndTxnResponse
from kohort.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from kohort.wire.messages.init_producer_id import InitProducerIdResponse
from kohort.wire.messages.produce import PartitionProduceData
from kohort.wire.messages.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kohort.wire.records.batch import iter_records, read_header
from tests.client.producing import Core, parts

TRANSCRIPTS = Path(__file__).parent / "transaction_transcripts"
PURPOSES = {
    "find": "transactions.find",
    "init": "transactions.init",
    "add": "transactions.add_partitions",
    "group": "transactions.add_offsets",
    "position": "transactions.commit_offsets",
    "end": "transactions.end",
    "produce": "sender.produce",
}


class TransactionScript:
    """One method for each event of a transcript."""

    def __init__(self) -> None:
        self.settings: dict[str, object] = {"transactional_id": "t", "retry_backoff_ms": 100}
        self.core_: Core | None = None
        self.lines: list[str] = []
        self.records: dict[str, RecordHandle] = {}
        self.offset = 0

    @property
    def core(self) -> Core:
        if self.core_ is None:
            self.core_ = Core(2, **self.settings)  # type: ignore[arg-type]
        return self.core_

    @property
    def transactions(self) -> ProducerTransactions:
        assert self.core.sender.transactions is not None
        return self.core.sender.transactions

    def run(self, line: str) -> list[str]:
        self.lines = []
        verb, *words = line.split()
        getattr(self, "do_" + verb)(words)
        if verb != "set":
            self.pump()
        return self.lines

    def pump(self) -> None:
        for _ in range(20):
            new = self.core.tick()
            self.lines += [self.words_for(send) for send in new]
            if not new:
                break
        for name, handle in list(self.records.items()):
            if handle._position[0].done:
                del self.records[name]
                said = handle._outcome
                self.lines.append(
                    f"record {name}: {shown(said) if isinstance(said, Exception) else said.offset}"
                )

    def words_for(self, send: Send) -> str:
        last = APIS[send.api_key].last if send.max_version is None else send.max_version
        where = "any node" if send.node_id == ANY_NODE else f"node {send.node_id}"
        message: Any = send.make(last)
        codec(send.api_key, last).encode_request(message)  # it fits its version
        name = f"{type(message).__name__.removesuffix('Request')} v{last} to {where}"
        if send.purpose == "sender.produce":
            return f"{name}: {message.transactional_id} {', '.join(map(batch, parts(send)))}"
        return f"{name}: {fields(message)}"

    # --- the user ---------------------------------------------------------------------------------

    def do_set(self, words: list[str]) -> None:
        self.settings.update((name.replace(".", "_"), value) for name, value in (w.split("=") for w in words))

    def do_features(self, words: list[str]) -> None:
        epoch = self.core.metadata.features_epoch + 1
        self.core.metadata.learn_features(epoch, {"transaction.version": int(words[0])})

    def do_init(self, words: list[str]) -> None:
        self.call("init_transactions", self.transactions.init)

    def do_begin(self, words: list[str]) -> None:
        try:
            self.transactions.begin()
        except KohortError as error:
            self.lines.append(f"begin_transaction: {shown(error)}")

    def do_send(self, words: list[str]) -> None:
        try:
            self.transactions.check_may_send()
        except KohortError as error:
            self.lines.append(f"send: {shown(error)}")
            return
        for name, _, partition in (word.partition("/") for word in words):
            self.records[name] = self.core.send(name.encode(), int(partition or 0))

    def do_offsets(self, words: list[str]) -> None:
        offsets = {TopicPartition("in", 0): OffsetAndMetadata(int(words[1]))}
        group = GroupMetadata(words[0], 3, "m-1")
        self.call("send_offsets_to_transaction", lambda: self.transactions.send_offsets(offsets, group))

    def do_commit(self, words: list[str]) -> None:
        self.core.accumulator.flush()
        self.call("commit_transaction", self.transactions.commit)

    def do_abort(self, words: list[str]) -> None:
        self.call("abort_transaction", self.transactions.abort)

    def do_seen(self, words: list[str]) -> None:
        self.transactions.acknowledge(words[0])

    def call(self, name: str, begin: Any) -> None:
        def ended(operation: Operation[None]) -> None:
            self.lines.append(f"{name}: {shown(operation.error) if operation.error is not None else 'done'}")

        try:
            begin().on_done(ended)
        except KohortError as error:
            self.lines.append(f"{name}: {shown(error)}")

    def do_show(self, words: list[str]) -> None:
        self.lines.append(repr(self.transactions))

    def do_at(self, words: list[str]) -> None:
        until = self.core.now_ms + int(words[0])
        for _ in range(100):
            due = self.core.sender.next_deadline_ms()
            if due is None or due > until:
                break
            before = len(self.lines)
            waited = max(0, due - self.core.now_ms)
            self.core.now_ms += waited
            self.pump()
            if len(self.lines) > before:
                self.lines.insert(before, f"(after {int(words[0]) - (until - self.core.now_ms)} ms)")
        else:
            raise AssertionError("it is due again and again")
        self.core.now_ms = until

    # --- the brokers ------------------------------------------------------------------------------

    def oldest(self, what: str) -> Send:
        return next(send for send in self.core.under_way if send.purpose == PURPOSES[what])

    def answer(self, what: str, response: Any) -> None:
        send = self.oldest(what)
        last = APIS[send.api_key].last if send.max_version is None else send.max_version
        self.core.answer(send, response, last)

    def do_find(self, words: list[str]) -> None:
        node = int(words[0]) if words[0].isdigit() else -1
        found = Coordinator("", node, "b", 9092, 0 if node >= 0 else ErrorCode[words[0]].value)
        self.answer("find", FindCoordinatorResponse(coordinators=[found]))

    def do_id(self, words: list[str]) -> None:
        response = (
            InitProducerIdResponse(producer_id=int(words[0]), producer_epoch=int(words[1]))
            if words[0].isdigit()
            else InitProducerIdResponse(error_code=ErrorCode[words[0]].value)
        )
        self.answer("init", response)

    def do_added(self, words: list[str]) -> None:
        request: Any = self.oldest("add").make(3)
        codes = [ErrorCode[word].value for word in words] or [0]
        topics = []
        for topic in request.v3_and_below_topics:
            results = [
                AddPartitionsToTxnClientPartitionResult(partition, codes[min(at, len(codes) - 1)])
                for at, partition in enumerate(topic.partitions)
            ]
            topics.append(AddPartitionsToTxnClientTopicResult(topic.name, results))
        self.answer("add", AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics))

    def do_grouped(self, words: list[str]) -> None:
        self.answer("group", AddOffsetsToTxnResponse(0, ErrorCode[words[0]].value if words else 0))

    def do_positioned(self, words: list[str]) -> None:
        code = ErrorCode[words[0]].value if words else 0
        topic = TxnOffsetCommitResponseTopic("in", [TxnOffsetCommitResponsePartition(0, code)])
        self.answer("position", TxnOffsetCommitResponse(0, [topic]))

    def do_written(self, words: list[str]) -> None:
        send = self.oldest("produce")
        code = ErrorCode[words[0]] if words else ErrorCode.NONE
        self.core.reply(send, code, version=11, base_offset=-1 if words else self.offset)
        self.offset += 1

    def do_ended(self, words: list[str]) -> None:
        response = EndTxnResponse()
        if words and words[0].isdigit():
            response.producer_id, response.producer_epoch = int(words[0]), int(words[1])
        elif words:
            response.error_code = ErrorCode[words[0]].value
        self.answer("end", response)

    def do_lost(self, words: list[str]) -> None:
        self.fail(words[0], Failure(FailureKind.DISCONNECTED, "connection reset"))

    def do_slow(self, words: list[str]) -> None:
        self.fail(words[0], Failure(FailureKind.TIMED_OUT, "no answer in time"))

    def do_refused(self, words: list[str]) -> None:
        self.fail(words[0], Failure(FailureKind[words[1]], " ".join(words[2:])))

    def fail(self, what: str, failure: Failure) -> None:
        send = self.oldest(what)
        self.core.under_way.remove(send)
        send.on_answer(Answer(send, failure=failure), self.core.now_ms)


def batch(data: PartitionProduceData) -> str:
    """The records of a batch with its numbers: `0: a b (id 7 epoch 0 sequence 2)`."""
    assert data.records is not None
    encoded = bytes(data.records)  # type: ignore[call-overload]
    header = read_header(encoded)
    assert header.is_transactional
    values = " ".join((record.value or b"").decode() for record in iter_records(encoded))
    numbers = f"id {header.producer_id} epoch {header.producer_epoch} sequence {header.base_sequence}"
    return f"{data.index}: {values} ({numbers})"


def shown(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def fields(message: Any) -> str:
    """The fields that differ from their defaults."""
    plain = type(message)()
    said = []
    for name in message.FIELDS:
        value = getattr(message, name)
        if value == getattr(plain, name):
            continue
        if isinstance(value, list) and value and not isinstance(value[0], str):
            value = [
                f"{topic.name}/{getattr(p, 'partition_index', p)}"
                for topic in value
                for p in topic.partitions
            ]
        said.append(f"{name.removeprefix('v3_and_below_')}={value}")
    return " ".join(said)


def replay(text: str) -> str:
    """Runs the events of a transcript and returns it with what followed now."""
    script = TransactionScript()
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith(" "):
            continue
        lines.append(line)
        if line and not line.startswith("#"):
            lines += ["    " + said for said in script.run(line)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for path in sorted(TRANSCRIPTS.glob("*.txt")):
        if len(sys.argv) == 1 or any(name in path.stem for name in sys.argv[1:]):
            path.write_text(replay(path.read_text()))
