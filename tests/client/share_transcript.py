"""Replays transcripts of a share consumer: lines at the margin are events, indented lines are what followed.

Events:
    set share.acknowledgement.mode=explicit versions=fetch:1     before anything else
    cluster orders=1,2                  a topic whose partition 0 is led by node 1, partition 1 by node 2
    subscribe orders | unsubscribe
    poll 5000 | commit [async] | close [5000]     a call begins; it goes on until it returns or raises
    at +500 | work +5000                time passes: in a call, or while the user works (the background thread)
    find 1 | find ERROR                 the oldest FindCoordinator is answered; likewise:
    heartbeat 3 orders/0 orders/1 [interval=5000] | heartbeat 3 same | heartbeat ERROR | left
    fetched 1 [ERROR] orders/0:0-9x2,12-12 batches=0-4+5-9 [ack=ERROR] [error=ERROR] [leader=2] [lock=30000]
                                        acquired ranges with delivery counts; the batches of the log
    acked 1 [ERROR] orders/0 orders/1=ERROR
    lost fetch 1 | lost ack 1 | lost heartbeat | refused heartbeat KIND words
    accept|release|reject|renew orders/0@3 …      the user acknowledges
    wake                                wakeup() interrupts the call that waits
    show                                repr of the membership, and what is in flight
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

from kohort.client.config import SHARE_CONSUMER, read_config
from kohort.client.core.effects import ANY_NODE, Answer, Failure, FailureKind, Outbox, Send
from kohort.client.core.steps import CallUser, Look, Until
from kohort.client.errors import Wakeup
from kohort.client.records import Record
from kohort.client.share.acknowledgements import AcknowledgeType
from kohort.client.share.share_calls import ShareConsumerCalls
from kohort.client.share.share_core import ShareConsumerCore
from kohort.client.types import TopicPartition
from kohort.wire.compiler.compile import codec
from kohort.wire.errors import ErrorCode, KohortError
from kohort.wire.messages import share_acknowledge, share_fetch
from kohort.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from kohort.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kohort.wire.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from kohort.wire.records.batch import ControlKind, encode_batch, encode_control_batch
from kohort.wire.records.payload import BatchRecord
from kohort.wire.struct import Message
from tests.client.membership_stage import Lines

METADATA, FIND, HEARTBEAT, FETCH, ACKNOWLEDGE = 3, 10, 76, 78, 79
NAMES = {
    FIND: "FindCoordinator",
    HEARTBEAT: "Heartbeat",
    FETCH: "ShareFetch",
    ACKNOWLEDGE: "ShareAcknowledge",
}
WORDS = {"heartbeat": HEARTBEAT, "fetch": FETCH, "ack": ACKNOWLEDGE, "find": FIND}
TYPES = {kind.name.lower(): kind for kind in AcknowledgeType}


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b".")


class ShareScript:
    """One method for each event of a transcript."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {"bootstrap.servers": "b:1", "group.id": "g"}
        self.versions = {METADATA: 12, FIND: 6, HEARTBEAT: 1, FETCH: 2, ACKNOWLEDGE: 2}
        self.leaders: dict[str, list[int]] = {}
        self.topic_errors: dict[str, int] = {}
        self.now_ms = 0
        self.lines: list[str] = []
        self.out: Outbox = []
        self.waiting: list[Send] = []
        self.call: Any = None
        self.name = ""
        self.until: Until | None = None
        self._core: ShareConsumerCore | None = None

    @property
    def core(self) -> ShareConsumerCore:
        if self._core is None:
            config, _ = read_config(
                SHARE_CONSUMER, self.settings, {}, ("key.deserializer", "value.deserializer")
            )
            self._core = ShareConsumerCore(config, lambda: 0.5, "me", self.out)
            self._core.deserialize_with(None, self.deserializer)
            self.calls = ShareConsumerCalls(self._core, lambda: self.now_ms)
            self.calls.set_callback(self.told)
        return self._core

    def deserializer(self, topic: str, value: bytes) -> str:
        if value == b"!":
            raise ValueError("not a number")
        return value.decode()

    def told(self, offsets: dict[TopicPartition, frozenset[int]], error: KohortError | None) -> None:
        for partition, some in offsets.items():
            said = f"{type(error).__name__}: {error}" if error else "done"
            self.say(f"told of {partition} {ranges(sorted(some))}: {said}")

    def say(self, line: str) -> None:
        self.lines.append(line)

    def run(self, line: str) -> list[str]:
        self.lines = []
        handler = Lines(self.lines)
        logger = logging.getLogger("kohort.client")
        logger.addHandler(handler)
        before = logger.level
        logger.setLevel(logging.INFO)
        try:
            verb, *words = line.split()
            getattr(self, "do_" + verb)(words)
        finally:
            logger.removeHandler(handler)
            logger.setLevel(before)
        return self.lines

    # --- the engine ---------------------------------------------------------------------------------------

    def pump(self, background: bool = False) -> None:
        for _ in range(30):
            core = self.core
            if background:
                core.tick_background(self.now_ms)
            else:
                core.metadata.tick(self.now_ms)
                core.tick(self.now_ms)
            if not self.take_out():
                return
        raise AssertionError("it never comes to rest")

    def take_out(self) -> bool:
        sends, self.out[:] = list(self.out), []
        for send in sends:
            if send.api_key == METADATA:
                send.on_answer(Answer(send, 12, self.metadata(send)), self.now_ms)
                continue
            try:
                request = send.make(self.versions[send.api_key])
            except ValueError as error:
                failure = Failure(FailureKind.UNSUPPORTED_VERSION, str(error))
                send.on_answer(Answer(send, failure=failure), self.now_ms)
                continue
            self.waiting.append(send)
            version = self.versions[send.api_key]
            encoded = b"".join(map(bytes, codec(send.api_key, version).encode_request(request)))
            decoded = codec(send.api_key, version).decode_request(memoryview(encoded))
            self.say(show(send, decoded))
        return bool(sends)

    def metadata(self, send: Send) -> Message:
        request: Any = send.make(12)
        topics = []
        for wanted in request.topics or ():
            leaders = self.leaders.get(wanted.name)
            if leaders is None:
                code = self.topic_errors.get(wanted.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                topics.append(MetadataResponseTopic(code, wanted.name))
                continue
            partitions = [
                MetadataResponsePartition(0, i, leader, self.epoch) for i, leader in enumerate(leaders)
            ]
            topics.append(MetadataResponseTopic(0, wanted.name, topic_id(wanted.name), False, partitions))
        brokers = [MetadataResponseBroker(i, f"b{i}", 9092) for i in (1, 2, 3)]
        return MetadataResponse(0, brokers, "c", 1, topics)

    epoch = 4

    def begin(self, name: str, steps: Any) -> None:
        assert self.call is None, f"{self.name} is still under way"
        self.call, self.name, self.until = steps, name, None
        self.go_on(None)

    def go_on(self, value: Any, error: BaseException | None = None) -> None:
        """Runs the steps of the call until it waits, and goes on as soon as it need not."""
        while self.call is not None:
            try:
                step = self.call.send(value) if error is None else self.call.throw(error)
            except StopIteration as end:
                self.call = None
                self.pump()
                self.say(f"{self.name} returns {shown(end.value)}")
                return
            except KohortError as raised:
                self.call = None
                self.pump()
                self.say(f"{self.name} raises {type(raised).__name__}: {raised}")
                return
            value = error = None
            if isinstance(step, CallUser):
                value = step.function(*step.arguments)
            elif isinstance(step, Look):
                self.pump()
            else:
                self.until = step
                self.pump()
                if step.condition():
                    value = True
                elif self.now_ms >= step.deadline_ms:
                    value = False
                else:
                    return

    def look(self) -> None:
        """Something has happened: the call that waits may go on."""
        if self.call is None or self.until is None:
            self.pump()
            return
        self.pump()
        if self.until.condition():
            self.go_on(True)
        elif self.now_ms >= self.until.deadline_ms:
            self.go_on(False)

    # --- events -------------------------------------------------------------------------------------------

    def do_set(self, words: list[str]) -> None:
        for name, value in (word.split("=", 1) for word in words):
            if name == "versions":
                for one in value.split(","):
                    api, _, version = one.partition(":")
                    self.versions[WORDS[api]] = int(version)
            else:
                self.settings[name] = value

    def do_cluster(self, words: list[str]) -> None:
        for name, value in (word.split("=", 1) for word in words):
            if value in ErrorCode.__members__:
                self.leaders.pop(name, None)
                self.topic_errors[name] = ErrorCode[value]
            else:
                self.leaders[name] = [int(leader) for leader in value.split(",")]
        if self._core is not None:
            self.epoch += 10
            self.core.metadata.request_update("the test says so")
            self.core.metadata._not_before_ms = self.now_ms
            self.look()

    def do_subscribe(self, words: list[str]) -> None:
        assert self.core is not None
        self.begin("subscribe", self.calls.subscribe(words))

    def do_unsubscribe(self, words: list[str]) -> None:
        self.begin("unsubscribe", self.calls.unsubscribe())

    def do_poll(self, words: list[str]) -> None:
        assert self.core is not None
        self.begin("poll", self.calls.poll(self.now_ms + int(words[0])))

    def do_commit(self, words: list[str]) -> None:
        if words:
            self.begin("commit", self.calls.commit_async())
        else:
            self.begin("commit", self.calls.commit_sync(self.now_ms + 60_000))

    def do_close(self, words: list[str]) -> None:
        self.begin("close", self.calls.close(self.now_ms + int(words[0] if words else 30_000)))

    def do_wake(self, words: list[str]) -> None:
        self.go_on(None, Wakeup("wakeup() was called"))

    def do_at(self, words: list[str]) -> None:
        self.pass_time(words[0], background=False)

    def do_work(self, words: list[str]) -> None:
        self.pass_time(words[0], background=True)

    def pass_time(self, word: str, background: bool) -> None:
        until = self.now_ms + int(word) if word.startswith("+") else int(word)
        for _ in range(1000):
            due = self.core.background_deadline_ms() if background else self.core.next_deadline_ms()
            meta = None if background else self.core.metadata.next_deadline_ms()
            call = self.until.deadline_ms if self.call is not None and self.until is not None else None
            due = min((ms for ms in (due, meta, call) if ms is not None), default=None)
            if due is None or due > until:
                break
            self.now_ms = max(due, self.now_ms)
            before = len(self.lines)
            if background:
                self.pump(background)
            else:
                self.look()
            if len(self.lines) > before:
                self.lines.insert(before, f"(at {self.now_ms})")
        else:
            raise AssertionError("it is due again and again")
        self.now_ms = until

    def answer(
        self, api_key: int, response: Any, failure: Failure | None = None, node: int | None = None
    ) -> None:
        send = next(s for s in self.waiting if s.api_key == api_key and node in (None, s.node_id))
        self.waiting.remove(send)
        if response is not None:
            coder = codec(api_key, self.versions[api_key])
            response = coder.decode_response(
                memoryview(b"".join(map(bytes, coder.encode_response(response))))
            )
        send.on_answer(Answer(send, self.versions[api_key], response, failure), self.now_ms)
        self.look()

    def do_find(self, words: list[str]) -> None:
        node_id, code = (int(words[0]), 0) if words[0].isdigit() else (-1, ErrorCode[words[0]].value)
        found = Coordinator("g", node_id, f"b{node_id}", 9092, code, None)
        self.answer(FIND, FindCoordinatorResponse(coordinators=[found]))

    def do_heartbeat(self, words: list[str]) -> None:
        if words[0] in ErrorCode.__members__:
            message = " ".join(words[1:]) or None
            self.answer(HEARTBEAT, ShareGroupHeartbeatResponse(0, ErrorCode[words[0]].value, message))
            return
        interval = next((int(w[9:]) for w in words if w.startswith("interval=")), 5000)
        assignment = None
        if "same" not in words:
            topics: dict[str, list[int]] = {}
            for word in words[1:]:
                if "/" in word:
                    name, _, number = word.partition("/")
                    topics.setdefault(name, []).append(int(number))
            assignment = Assignment([TopicPartitions(topic_id(name), ns) for name, ns in topics.items()])
        self.answer(
            HEARTBEAT, ShareGroupHeartbeatResponse(0, 0, None, "me", int(words[0]), interval, assignment)
        )

    def do_left(self, words: list[str]) -> None:
        code = ErrorCode[words[0]].value if words else 0
        self.answer(HEARTBEAT, ShareGroupHeartbeatResponse(0, code, None, "me", -1))

    def do_fetched(self, words: list[str]) -> None:
        node, response = int(words[0]), share_fetch.ShareFetchResponse(acquisition_lock_timeout_ms=30_000)
        for word in words[1:]:
            if word in ErrorCode.__members__:
                response.error_code = ErrorCode[word].value
                response.acquisition_lock_timeout_ms = 0
            elif word.startswith("lock="):
                response.acquisition_lock_timeout_ms = int(word[5:])
            elif "=" not in word:
                name, _, rest = word.partition("/")
                number, _, acquired = rest.partition(":")
                data = share_fetch.PartitionData(int(number))
                data.current_leader = share_fetch.LeaderIdAndEpoch(-1, -1)
                data.acquired_records = [acquired_range(each) for each in acquired.split(",") if each]
                data.records = b"".join(
                    batch(each.first_offset, each.last_offset) for each in data.acquired_records
                )
                topic = share_fetch.ShareFetchableTopicResponse(topic_id(name), [data])
                response.responses.append(topic)
            else:
                self.detail(response, *word.split("=", 1))
        self.answer(FETCH, response, node=node)

    def detail(self, response: share_fetch.ShareFetchResponse, key: str, value: str) -> None:
        """Changes the partition that was named last."""
        data = response.responses[-1].partitions[-1]
        if key == "ack":
            data.acknowledge_error_code = ErrorCode[value].value
        elif key == "error":
            data.error_code = ErrorCode[value].value
        elif key == "leader":
            data.current_leader = share_fetch.LeaderIdAndEpoch(int(value), 9)
            response.node_endpoints = [share_fetch.NodeEndpoint(int(value), f"b{value}", 9092)]
        elif key == "batches":
            data.records = b"".join(made_batch(each) for each in value.split("+"))
        else:
            raise AssertionError(key)

    def do_acked(self, words: list[str]) -> None:
        response = share_acknowledge.ShareAcknowledgeResponse(acquisition_lock_timeout_ms=30_000)
        for word in words[1:]:
            if word in ErrorCode.__members__:
                response.error_code = ErrorCode[word].value
                continue
            place, _, code = word.partition("=")
            name, _, number = place.partition("/")
            data = share_acknowledge.PartitionData(int(number), ErrorCode[code].value if code else 0)
            data.current_leader = share_acknowledge.LeaderIdAndEpoch(-1, -1)
            topic = share_acknowledge.ShareAcknowledgeTopicResponse(topic_id(name), [data])
            response.responses.append(topic)
        self.answer(ACKNOWLEDGE, response, node=int(words[0]))

    def do_lost(self, words: list[str]) -> None:
        node = int(words[1]) if len(words) > 1 else None
        self.answer(WORDS[words[0]], None, Failure(FailureKind.DISCONNECTED, "connection reset"), node)

    def do_refused(self, words: list[str]) -> None:
        self.answer(WORDS[words[0]], None, Failure(FailureKind[words[1]], " ".join(words[2:])))

    def acknowledge(self, kind: AcknowledgeType, words: list[str]) -> None:
        for word in words:
            place, _, offsets = word.partition("@")
            name, _, number = place.partition("/")
            first, _, last = offsets.partition("-")
            for offset in range(int(first), int(last or first) + 1):
                try:
                    self.calls.acknowledge(Record(name, int(number), offset), kind)
                except KohortError as error:
                    self.say(f"{type(error).__name__}: {error}")

    def do_accept(self, words: list[str]) -> None:
        self.acknowledge(AcknowledgeType.ACCEPT, words)

    def do_release(self, words: list[str]) -> None:
        self.acknowledge(AcknowledgeType.RELEASE, words)

    def do_reject(self, words: list[str]) -> None:
        self.acknowledge(AcknowledgeType.REJECT, words)

    def do_renew(self, words: list[str]) -> None:
        self.acknowledge(AcknowledgeType.RENEW, words)

    def do_show(self, words: list[str]) -> None:
        self.say(repr(self.core.membership))
        self.say(f"in flight: {shown(self.core.in_flight.by_partition())}")


# --- records ----------------------------------------------------------------------------------------------


def acquired_range(text: str) -> share_fetch.AcquiredRecords:
    """`0-9x2`: offsets 0 to 9, delivered for the second time."""
    offsets, _, count = text.partition("x")
    first, _, last = offsets.partition("-")
    return share_fetch.AcquiredRecords(int(first), int(last or first), int(count or 1))


def batch(first: int, last: int, *, without: tuple[int, ...] = (), poison: int | None = None) -> bytes:
    records = [
        BatchRecord(offset, 1000 + offset, None, b"!" if offset == poison else str(offset).encode(), [])
        for offset in range(first, last + 1)
        if offset not in without
    ]
    return bytes(encode_batch(records, base_offset=first, partition_leader_epoch=4))


def made_batch(text: str) -> bytes:
    """`0-4`, `0-4bad` (a wrong CRC), `0-4cut` (half of it), `5-5control`, `0-9~3~4` (compacted), `0-9!3` (poison)."""
    for word in ("bad", "cut", "control"):
        if text.endswith(word):
            first, _, last = text.removesuffix(word).partition("-")
            made = bytearray(batch(int(first), int(last)))
            if word == "bad":
                made[-1] ^= 0xFF
            elif word == "control":
                kind, at = ControlKind.COMMIT, int(first)
                return bytes(
                    encode_control_batch(kind, producer_id=1, producer_epoch=0, timestamp=0, base_offset=at)
                )
            return bytes(made[: len(made) // 2] if word == "cut" else made)
    text, _, poison = text.partition("!")
    span, *without = text.split("~")
    first, _, last = span.partition("-")
    missing = tuple(map(int, without))
    return batch(int(first), int(last), without=missing, poison=int(poison) if poison else None)


# --- words ------------------------------------------------------------------------------------------------


def ranges(offsets: list[int]) -> str:
    """`0-4, 7`."""
    spans: list[list[int]] = []
    for offset in offsets:
        if spans and spans[-1][1] == offset - 1:
            spans[-1][1] = offset
        else:
            spans.append([offset, offset])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spans) or "none"


def shown(value: Any) -> str:
    if not isinstance(value, dict):
        return repr(value)
    parts = []
    for partition, said in value.items():
        if isinstance(said, list):
            counts = sorted({record.delivery_count for record in said})
            assert [record.value for record in said] == [str(record.offset) for record in said]
            times = "" if counts == [1] else f" (delivery {', '.join(map(str, counts))})"
            parts.append(f"{partition} {ranges([record.offset for record in said])}{times}")
        else:
            parts.append(f"{partition}: {said if said is None else f'{type(said).__name__}: {said}'}")
    return "; ".join(parts) or "nothing"


def show(send: Send, request: Any) -> str:
    where = "any node" if send.node_id == ANY_NODE else f"node {send.node_id}"
    return f"-> {NAMES[send.api_key]} to {where}: {SHOWN[send.api_key](request)}"


def show_find(request: Any) -> str:
    return f"key_type={request.key_type} {request.coordinator_keys}"


def show_heartbeat(request: Any) -> str:
    names = "" if request.subscribed_topic_names is None else f" topics {request.subscribed_topic_names}"
    rack = "" if request.rack_id is None else f" rack {request.rack_id}"
    return f"{request.member_id} epoch {request.member_epoch}{rack}{names}"


def show_fetch(request: Any) -> str:
    said = [f"epoch {request.share_session_epoch}"]
    if request.max_records:
        said.append(f"{request.max_records} records within {request.max_wait_ms} ms")
    else:
        said.append("no records")
    if request.share_acquire_mode:
        said.append(f"mode {request.share_acquire_mode}")
    if request.is_renew_ack:
        said.append("renews")
    added, acks = [], []
    for topic in request.topics:
        name = topic.topic_id.decode().rstrip(".")
        for partition in topic.partitions:
            if partition.acknowledgement_batches:
                acks.append(f"{name}/{partition.partition_index} {show_batches(partition)}")
            else:
                added.append(f"{name}/{partition.partition_index}")
    if added:
        said.append(f"reads {' '.join(added)}")
    if acks:
        said.append(f"acknowledges {', '.join(acks)}")
    for topic in request.forgotten_topics_data:
        name = topic.topic_id.decode().rstrip(".")
        said.append(f"forgets {' '.join(f'{name}/{each}' for each in topic.partitions)}")
    return "; ".join(said)


def show_acknowledge(request: Any) -> str:
    said = [f"epoch {request.share_session_epoch}"]
    if request.is_renew_ack:
        said.append("renews")
    for topic in request.topics:
        name = topic.topic_id.decode().rstrip(".")
        for partition in topic.partitions:
            words = f"{name}/{partition.partition_index} {show_batches(partition)}"
            said += [words]
    return "; ".join(said)


def show_batches(partition: Any) -> str:
    return " ".join(
        f"{each.first_offset}-{each.last_offset}:{','.join(map(str, each.acknowledge_types))}"
        for each in partition.acknowledgement_batches
    )


SHOWN = {FIND: show_find, HEARTBEAT: show_heartbeat, FETCH: show_fetch, ACKNOWLEDGE: show_acknowledge}

FOLDER = Path(__file__).parent / "share_transcripts"


def replay(text: str) -> str:
    """Runs the events of a transcript and returns it with what followed now."""
    script = ShareScript()
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith(" "):
            continue
        lines.append(line)
        if line and not line.startswith("#"):
            lines += ["    " + said for said in script.run(line)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__" and sys.argv[1:2] == ["--rerecord"]:
    # `python -m tests.client.share_transcript --rerecord [part of a name …]` writes what it does now into them.
    for path in sorted(FOLDER.glob("*.txt")):
        if not sys.argv[2:] or any(name in path.stem for name in sys.argv[2:]):
            path.write_text(replay(path.read_text()))
