"""Group requests in bytes, encoded by hand: only what the load sends, and what it must read of the answers."""

from __future__ import annotations

import struct
import time
from typing import Any

from benchmarks.load import Connection, Refused, request, string
from kohort.wire.compiler.compile import codec
from kohort.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions

OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, JOIN, HEARTBEAT, LEAVE, SYNC = 8, 9, 10, 11, 12, 13, 14
CONSUMER_HEARTBEAT = 68
NOT_YET = {3, 14, 15, 16}  # until the topic and the coordinator are there
MEMBER_ID_REQUIRED, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS = 79, 22, 27
NULL = struct.pack(">h", -1)
SESSION_MS, LONGEST_SESSION_MS = 45_000, 1_800_000
TOPIC = "committed"
CODE_AT = 4 + 4 + 4  # behind size, correlation id and throttle time, in JoinGroup, SyncGroup, Heartbeat


# --- encoding, by hand: only what the load sends ---


def blob(raw: bytes) -> bytes:
    return struct.pack(">i", len(raw)) + raw


def join_frame(group: str, member_id: str, metadata: bytes, session_ms: int = SESSION_MS) -> bytes:
    timeouts = struct.pack(">ii", session_ms, 60_000)
    protocols = struct.pack(">i", 1) + string("range") + blob(metadata)
    return request(
        JOIN, 5, string(group) + timeouts + string(member_id) + NULL + string("consumer") + protocols
    )


def sync_frame(group: str, generation: int, member_id: str, assigned: list[str]) -> bytes:
    each = b"".join(string(member) + blob(bytes(64)) for member in assigned)
    head = string(group) + struct.pack(">i", generation) + string(member_id) + NULL
    return request(SYNC, 3, head + struct.pack(">i", len(assigned)) + each)


def generation_at(group: str) -> int:
    """Where the generation stands in a SyncGroup or Heartbeat frame."""
    return 4 + 8 + len(string("bench")) + len(string(group))


def heartbeat_frame(group: str, generation: int, member_id: str) -> bytes:
    return request(HEARTBEAT, 3, string(group) + struct.pack(">i", generation) + string(member_id) + NULL)


def leave_frame(group: str, member_ids: list[str]) -> bytes:
    each = b"".join(string(member) + NULL for member in member_ids)
    return request(LEAVE, 3, string(group) + struct.pack(">i", len(member_ids)) + each)


def commit_frame(group: str, partitions: list[int], offset: int) -> bytes:
    head = string(group) + struct.pack(">i", -1) + string("") + NULL + struct.pack(">i", 1) + string(TOPIC)
    each = b"".join(struct.pack(">iqi", partition, offset, -1) + string("") for partition in partitions)
    return request(OFFSET_COMMIT, 7, head + struct.pack(">i", len(partitions)) + each)


def commit_answer(partitions: list[int]) -> bytes:
    each = b"".join(struct.pack(">ih", partition, 0) for partition in partitions)
    return blob(struct.pack(">iii", 7, 0, 1) + string(TOPIC) + struct.pack(">i", len(partitions)) + each)


# --- one request, one answer ---


def find_coordinator(connection: Connection, group: str, seconds: float = 60) -> None:
    """Until it is there; the first to ask makes a broker create `__consumer_offsets`."""
    frame, end = request(FIND_COORDINATOR, 2, string(group) + b"\0"), time.monotonic() + seconds
    while code := struct.unpack_from(">h", connection.call(frame), 4)[0]:
        if code not in NOT_YET or time.monotonic() > end:
            raise Refused(f"FindCoordinator answered {code}")
        time.sleep(0.02)


def committed(connection: Connection, group: str, partition: int) -> tuple[int, int]:
    """OffsetFetch v5: the error code and the offset."""
    body = string(group) + struct.pack(">i", 1) + string(TOPIC) + struct.pack(">ii", 1, partition)
    answer = connection.call(request(OFFSET_FETCH, 5, body))
    code = struct.unpack_from(">h", answer, len(answer) - 2)[0]
    return (code, -1) if code else (0, struct.unpack_from(">q", answer, 4 + 4 + len(string(TOPIC)) + 8)[0])


def commit_once(connection: Connection, group: str, partitions: list[int], seconds: float = 60) -> None:
    frame, expected, end = (
        commit_frame(group, partitions, 0),
        commit_answer(partitions),
        time.monotonic() + seconds,
    )
    while (answer := connection.call(frame)) != expected[8:]:
        if time.monotonic() > end:
            raise Refused(f"OffsetCommit answered {answer.hex()}")
        time.sleep(0.02)


def join_alone(connection: Connection, group: str, session_ms: int = SESSION_MS) -> tuple[int, str]:
    """The only member of a new group, synced: its generation and id."""
    member_id, end = "", time.monotonic() + 60
    while True:
        joined = Joined(
            b"\0" * 4 + b"\0" * 4 + connection.call(join_frame(group, member_id, bytes(2), session_ms))
        )
        if joined.code == 0:
            break
        member_id = joined.member_id
        if joined.code in NOT_YET and time.monotonic() < end:
            time.sleep(0.02)
        elif joined.code != MEMBER_ID_REQUIRED:
            raise Refused(f"JoinGroup answered {joined.code}")
    answer = connection.call(sync_frame(group, joined.generation, joined.member_id, [joined.member_id]))
    if code := struct.unpack_from(">h", answer, 4)[0]:
        raise Refused(f"SyncGroup answered {code}")
    return joined.generation, joined.member_id


class Joined:
    """A JoinGroup v5 answer, with its size and correlation id in front."""

    __slots__ = ("_members_at", "_raw", "code", "generation", "leader", "member_count", "member_id")

    def __init__(self, raw: bytes | bytearray) -> None:
        self._raw = raw
        self.code, self.generation = struct.unpack_from(">hi", raw, CODE_AT)
        _, at = self._text(CODE_AT + 6)
        self.leader, at = self._text(at)
        self.member_id, at = self._text(at)
        self.member_count = struct.unpack_from(">i", raw, at)[0]
        self._members_at = at + 4

    def member_ids(self) -> list[str]:
        at, found = self._members_at, []
        for _ in range(self.member_count):
            member_id, at = self._text(at)
            _, at = self._text(at)
            at += 4 + struct.unpack_from(">i", self._raw, at)[0]
            found.append(member_id)
        return found

    def _text(self, at: int) -> tuple[str, int]:
        size = max(struct.unpack_from(">h", self._raw, at)[0], 0)
        return self._raw[at + 2 : at + 2 + size].decode(), at + 2 + size


# --- KIP-848: the bytes come from the codec, because these frames are made once ---

_MEMBER_ID = "bench-member"  # the same in every group, so that all answers have the same bytes


def consumer_heartbeat_frame(group: str, epoch: int, owned: dict[bytes, list[int]] | None = None) -> bytes:
    """A ConsumerGroupHeartbeat v0 with nothing but its epoch, or with all that a member says when it joins."""
    message = ConsumerGroupHeartbeatRequest(group, _MEMBER_ID, epoch)
    if owned is not None:
        message.rebalance_timeout_ms, message.subscribed_topic_names = 60_000, [TOPIC]
        message.topic_partitions = [TopicPartitions(*each) for each in owned.items()]
    body = b"".join(map(bytes, codec(CONSUMER_HEARTBEAT, 0).encode_request(message)))
    return request(CONSUMER_HEARTBEAT, 0, b"\0" + body)


def join_consumer_group(connection: Connection, group: str) -> int:
    """The only member of a new group, with its partitions acknowledged: its epoch."""
    epoch, owned, end = 0, dict[bytes, list[int]](), time.monotonic() + 60
    while time.monotonic() < end:
        got = connection.call(consumer_heartbeat_frame(group, epoch, owned))
        answer: Any = codec(CONSUMER_HEARTBEAT, 0).decode_response(memoryview(got), 1)
        if answer.error_code in NOT_YET:
            time.sleep(0.02)
            continue
        if answer.error_code:
            raise Refused(f"ConsumerGroupHeartbeat answered {answer.error_code}")
        given = {each.topic_id: each.partitions for each in answer.assignment.topic_partitions}
        if given and given == owned and epoch == answer.member_epoch:
            return epoch
        epoch, owned = answer.member_epoch, given
        time.sleep(0.05)
    raise Refused("no assignment in 60 s")
