"""Replays transcripts of a member of the consumer protocol; the events are those of transcript.py, and besides:

beat 3 [orders/0 orders/1 | nothing] [interval=5000]   the oldest heartbeat is answered: epoch, assignment if named
beat ERROR what the broker says                        … or refused
broker-pattern ord.*                                   a SubscriptionPattern
left [ERROR]                                           the heartbeat that leaves is answered
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from kohort.client.config import CONSUMER, read_config
from kohort.client.core.effects import Answer, Failure, Send
from kohort.client.core.metadata import Metadata
from kohort.client.group.consumer_membership import ConsumerMembership
from kohort.client.group.coordinator import GroupCoordinator
from kohort.client.offsets.subscription import SubscriptionState
from kohort.client.types import SubscriptionPattern
from kohort.wire.compiler.compile import codec
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kohort.wire.messages.metadata import MetadataResponseTopic
from kohort.wire.struct import ZERO_UUID, Message
from tests.client.membership_stage import HIGHEST
from tests.client.transcript import Script, place

HEARTBEAT = 68
FOLDER = Path(__file__).parent / "consumer_transcripts"


class ConsumerScript(Script):
    """One method for each event of a transcript."""

    def __init__(self) -> None:
        super().__init__()
        self.versions[HEARTBEAT] = 1
        self.settings["group.protocol"] = "consumer"

    def build(self) -> None:
        self.config, _ = read_config(CONSUMER, self.settings, {})
        self.subscription = SubscriptionState(self.config.reset())
        self.metadata = Metadata(self.out, self.config, lambda: 0.5)
        self.coordinator = GroupCoordinator(self.out, self.config, self.metadata, lambda: 0.5)
        self.membership_: Any = ConsumerMembership(
            self.out, self.config, self.coordinator, self.subscription, self.metadata, "uuid-1",
            lambda now_ms: not self.committing, lambda: 0.5,
        )  # fmt: skip

    # ---- topics have ids

    def metadata_response(self, send: Send) -> Message:
        request: Any = send.make(HIGHEST[3])
        known = {topic_id(name): name for name in self.topics}
        asked = [t for t in request.topics or () if t.name is None]
        unknown = [t.topic_id for t in asked if t.topic_id not in known]
        for topic in [t for t in asked if t.topic_id in known]:
            topic.name = known[topic.topic_id]
        if request.topics is not None:
            request.topics = [t for t in request.topics if t.name is not None]
        response: Any = super().metadata_response(replaced(send, request))
        for topic in response.topics:
            topic.topic_id = ZERO_UUID if topic.error_code else topic_id(topic.name)
        response.topics += [MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, one) for one in unknown]
        made: Message = response
        return made

    def want(self) -> None:
        pattern = self.subscription.pattern is not None
        topics = None if pattern else self.subscription.topics
        self.metadata.want(topics, now_ms=self.now_ms)

    # ---- events

    def run(self, line: str) -> list[str]:
        return super().run(line.replace("broker-pattern", "broker_pattern", 1))

    def do_broker_pattern(self, words: list[str]) -> None:
        self.membership.subscription.subscribe_broker_pattern(SubscriptionPattern(words[0]))
        self.want()

    def do_beat(self, words: list[str]) -> None:
        response = ConsumerGroupHeartbeatResponse(member_id="uuid-1", heartbeat_interval_ms=5_000)
        if words[0] in ErrorCode.__members__:
            response.error_code = ErrorCode[words[0]].value
            response.error_message = " ".join(words[1:]) or None
        else:
            options = dict(w.split("=", 1) for w in words if "=" in w)
            response.member_epoch = int(words[0])
            response.heartbeat_interval_ms = int(options.get("interval", 5_000))
            given = [place(w) for w in words[1:] if "/" in w]
            if given or "nothing" in words:
                by_id: dict[bytes, list[int]] = {}
                for topic, partition in given:
                    by_id.setdefault(topic_id(topic), []).append(partition)
                response.assignment = Assignment([TopicPartitions(*each) for each in by_id.items()])
        self.answer("beat", response)

    def do_left(self, words: list[str]) -> None:
        code = ErrorCode[words[0]].value if words else 0
        self.answer("left", ConsumerGroupHeartbeatResponse(error_code=code, member_epoch=-1))

    def answer(self, word: str, response: Message | None, failure: Failure | None = None) -> None:
        purpose = {"beat": "membership.heartbeat", "left": "membership.leave"}.get(word)
        if purpose is None:
            super().answer(word, response, failure)
            return
        send = next(s for s in self.waiting if s.purpose == purpose)
        self.waiting.remove(send)
        if response is not None:
            which = codec(HEARTBEAT, self.versions[HEARTBEAT])
            raw = b"".join(bytes(chunk) for chunk in which.encode_response(response))
            response = which.decode_response(memoryview(raw))
        send.on_answer(Answer(send, self.versions[HEARTBEAT], response, failure), self.now_ms)
        self.pump()

    # ---- what is shown

    def show_send(self, send: Send) -> str:
        if send.api_key != HEARTBEAT:
            return super().show_send(send)
        version = self.versions[HEARTBEAT]
        try:
            made = send.make(version)
        except ValueError as error:
            return f"-> heartbeat v{version} cannot be made: {error}"
        which = codec(HEARTBEAT, version)
        raw = b"".join(bytes(chunk) for chunk in which.encode_request(made))
        request: Any = which.decode_request(memoryview(raw))
        assert (send.lane, request.member_id, request.group_id) == (1, "uuid-1", "g")
        said = [f"epoch {request.member_epoch}"]
        for name in request.FIELDS[3:]:
            value = getattr(request, name)
            if name == "topic_partitions" and value is not None:
                owned = [f"{topic_name(t.topic_id)}-{p}" for t in value for p in t.partitions]
                said.append(f"owns {', '.join(owned) or 'nothing'}")
            elif value not in (None, -1):
                said.append(f"{name}={value}")
        return f"-> heartbeat to node {send.node_id}: {' '.join(said)}"


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"\0")


def topic_name(topic_id: bytes) -> str:
    return topic_id.rstrip(b"\0").decode()


def replaced(send: Send, request: Any) -> Send:
    """A send that makes this request."""
    return Send(send.node_id, send.api_key, lambda v: request, "", 0, on_answer=send.on_answer)


def replay(text: str) -> str:
    """Runs the events of a transcript and returns it with what followed now."""
    stage = ConsumerScript()
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith(" "):
            continue
        lines.append(line)
        if line and not line.startswith("#"):
            lines += ["    " + said for said in stage.run(line)]
    return "\n".join(lines) + "\n"


def rerecord(names: list[str]) -> None:
    """`python -m tests.client.consumer_transcript --rerecord [part of a name …]` writes what a member does now."""
    for path in sorted(FOLDER.glob("*.txt")):
        if not names or any(name in path.stem for name in names):
            path.write_text(replay(path.read_text()))


if __name__ == "__main__" and sys.argv[1:2] == ["--rerecord"]:
    rerecord(sys.argv[2:])
