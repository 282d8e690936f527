"""Load for the group side of a broker, in a process of its own: heartbeats, commits, rebalances.

`python -m benchmarks.group_load heartbeat|consumer_heartbeat|commit|rebalance|idle|fill --address … --pid …` prints
one JSON line. Frames are encoded before the clock starts, answers of a fixed size are compared with the one that is
expected, and one thread serves all connections through epoll.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import select
import socket
import statistics
import struct
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.group_frames import (
    CODE_AT,
    HEARTBEAT,
    ILLEGAL_GENERATION,
    JOIN,
    LONGEST_SESSION_MS,
    MEMBER_ID_REQUIRED,
    REBALANCE_IN_PROGRESS,
    SYNC,
    TOPIC,
    Joined,
    blob,
    commit_answer,
    commit_frame,
    commit_once,
    consumer_heartbeat_frame,
    find_coordinator,
    generation_at,
    heartbeat_frame,
    join_alone,
    join_consumer_group,
    join_frame,
    leave_frame,
    sync_frame,
)
from benchmarks.load import Connection, Refused, create_topics
from benchmarks.targets import cpu_of, family


@dataclass(slots=True)
class Plan:
    address: str
    pid: int = 0
    seconds: float = 3.0
    connections: int = 16
    partitions: int = 10
    members: int = 500
    rounds: int = 5
    count: int = 10_000  # groups to leave idle, or commits to fill the log with


# --- heartbeat, commit: one request in flight on each connection ---


@dataclass(slots=True)
class Caller:
    """A connection, the frames it sends in turn, and the answer that each must get."""

    connection: Connection
    frames: list[bytes]
    expected: bytes


def heartbeat(plan: Plan) -> dict[str, float]:
    callers, leaves = [], []
    for i in range(plan.connections):
        group, connection = f"beat-{os.getpid()}-{i}", Connection(plan.address)
        find_coordinator(connection, group)
        generation, member_id = join_alone(connection, group)
        answer = blob(struct.pack(">iih", 7, 0, 0))
        callers.append(Caller(connection, [heartbeat_frame(group, generation, member_id)], answer))
        leaves.append(leave_frame(group, [member_id]))
    figures = back_and_forth(plan, callers)
    for caller, frame in zip(callers, leaves, strict=True):
        caller.connection.sock.setblocking(True)
        caller.connection.call(frame)
    return figures


def consumer_heartbeat(plan: Plan) -> dict[str, float]:
    """Heartbeats of KIP-848 that change nothing: each member has joined, and has acknowledged its partitions."""
    callers, leaves = [], []
    for i in range(plan.connections):
        group, connection = f"beat-848-{os.getpid()}-{i}", Connection(plan.address)
        if not i:
            create_topics(connection, {TOPIC: plan.partitions})
        find_coordinator(connection, group)
        epoch = join_consumer_group(connection, group)
        plain = consumer_heartbeat_frame(group, epoch)
        answer = connection.call(plain)
        callers.append(Caller(connection, [plain], blob(struct.pack(">i", 7) + answer)))
        leaves.append(consumer_heartbeat_frame(group, -1))
    figures = back_and_forth(plan, callers)
    for caller, frame in zip(callers, leaves, strict=True):
        caller.connection.sock.setblocking(True)
        caller.connection.call(frame)
    return figures


def commit(plan: Plan) -> dict[str, float]:
    callers, partitions = [], list(range(plan.partitions))
    for i in range(plan.connections):
        group, connection = f"commit-{os.getpid()}-{i}", Connection(plan.address)
        if not i:
            create_topics(connection, {TOPIC: plan.partitions})
        find_coordinator(connection, group)
        commit_once(connection, group, partitions)
        frames = [commit_frame(group, partitions, offset) for offset in range(1, 65)]
        callers.append(Caller(connection, frames, commit_answer(partitions)))
    return back_and_forth(plan, callers)


def back_and_forth(plan: Plan, callers: list[Caller]) -> dict[str, float]:
    expected, size = callers[0].expected, len(callers[0].expected) + 1
    by_fd: dict[int, tuple[Callable[[int], bytes], Callable[[bytes], int], Iterator[bytes], Caller]] = {}
    done = 0
    with select.epoll() as poll:
        for caller in callers:
            sock = caller.connection.sock
            sock.setblocking(False)
            by_fd[sock.fileno()] = (sock.recv, sock.send, itertools.cycle(caller.frames), caller)
            poll.register(sock.fileno(), select.EPOLLIN)
        cpu_0, own_0, start = _cpu_s(plan.pid), time.process_time(), time.monotonic()
        end, left = start + plan.seconds, len(by_fd)
        for _, send, frames, _ in by_fd.values():
            send(next(frames))
        while left:
            running = time.monotonic() < end
            ready = poll.poll(30)
            if not ready:
                raise Refused("no answer for 30 s")
            for fd, _ in ready:
                recv, send, frames, caller = by_fd[fd]
                if (got := recv(size)) != expected:
                    _check(caller, got)
                if running:
                    send(next(frames))
                else:
                    left -= 1
            done += len(ready)
        seconds, cpu, own = time.monotonic() - start, _cpu_s(plan.pid) - cpu_0, time.process_time() - own_0
    return {
        "per_s": done / seconds,
        "cpu_us": cpu * 1e6 / done,
        "load_cpu_us": own * 1e6 / done,
        "count": done,
    }


def _check(caller: Caller, got: bytes) -> None:
    """An answer that is not what was expected: perhaps only a part of it came."""
    sock = caller.connection.sock
    while got and len(got) < len(caller.expected) and caller.expected.startswith(got):
        select.select([sock], [], [], 30)
        got += sock.recv(len(caller.expected) - len(got))
    if got != caller.expected:
        raise Refused(f"the broker answered {got.hex() or 'by closing the connection'}")


# --- rebalance: one group, each member on its own connection ---


class Member:
    """Joins, syncs, and is done; told of another rebalance it joins again."""

    __slots__ = (
        "connection",
        "generation",
        "group",
        "inbox",
        "joins",
        "member_id",
        "sock",
        "syncs",
        "waits_for",
    )

    def __init__(self, connection: Connection, group: str) -> None:
        self.connection, self.group = connection, group
        self.sock = connection.sock
        self.sock.setblocking(False)
        self.member_id, self.generation = "", -1
        self.joins, self.syncs = b"", bytearray()  # ready-made frames; the generation is put in
        self.inbox = bytearray()  # an answer that is not whole yet
        self.waits_for: int | None = None  # the API whose answer is to come

    def make_ready(self, metadata: bytes) -> None:
        self.joins = join_frame(self.group, self.member_id, metadata)
        self.syncs = bytearray(sync_frame(self.group, 0, self.member_id, []))

    def join(self) -> None:
        self.send(JOIN, self.joins)

    def sync(self, assignments: bytearray | None) -> None:
        frame = self.syncs if assignments is None else assignments
        struct.pack_into(">i", frame, generation_at(self.group), self.generation)
        self.send(SYNC, frame)

    def beat(self) -> None:
        self.send(HEARTBEAT, heartbeat_frame(self.group, self.generation, self.member_id))

    def send(self, api_key: int, frame: bytes | bytearray) -> None:
        self.waits_for = api_key
        sent = self.sock.send(frame)
        if sent < len(frame):  # a leader's assignments
            self.sock.settimeout(30)
            self.sock.sendall(frame[sent:])
            self.sock.setblocking(False)


class Crowd:
    """All members of one group, served by one thread."""

    BEAT_S = 0.2  # who has synced while others have not asks so often whether it must join again

    def __init__(self, plan: Plan) -> None:
        self.group = f"crowd-{os.getpid()}"
        self.members = [self._connected(plan.address) for _ in range(plan.members)]
        self._by_fd = {member.sock.fileno(): member for member in self.members}
        self._poll = select.epoll()
        for fd in self._by_fd:
            self._poll.register(fd, select.EPOLLIN)
        self._buffer = bytearray(1 << 18)
        self._assignments = ("", 0, bytearray())  # the leader, how many it assigns to, its frame
        self._metadata = b""
        self._unsettled = 0

    def _connected(self, address: str) -> Member:
        connection = Connection(address)
        find_coordinator(
            connection, self.group
        )  # also: the broker has accepted it, so its backlog does not overflow
        return Member(connection, self.group)

    def settle(self, metadata: bytes, *, beats: bool, limit_s: float = 120) -> float:
        """All join with this metadata; the seconds until all have synced in one generation.

        New members need `beats`: a generation may begin without them. Of those who all join again nobody syncs before
        everyone has joined, and a beat at the end would only measure heartbeats too.
        """
        self._metadata = metadata
        for member in self.members:
            member.make_ready(metadata)
        self._unsettled = len(self.members)
        start = time.monotonic()
        next_beat = start + self.BEAT_S
        for member in self.members:
            member.join()
        while True:
            for fd, _ in self._poll.poll(self.BEAT_S):
                self._receive(self._by_fd[fd])
            if not self._unsettled and len({member.generation for member in self.members}) == 1:
                return time.monotonic() - start
            if beats and time.monotonic() > next_beat:
                next_beat = time.monotonic() + self.BEAT_S
                self._beat()
            if time.monotonic() > start + limit_s:
                raise Refused(
                    f"{self._unsettled} of {len(self.members)} members not settled in {limit_s:.0f} s"
                )

    def _beat(self) -> None:
        if any(member.waits_for == HEARTBEAT for member in self.members):
            return  # a machine under load has not answered the last ones
        for member in self.members:
            if member.waits_for is None:
                self._unsettled += 1
                member.beat()

    def _receive(self, member: Member) -> None:
        size = member.sock.recv_into(self._buffer)
        if not size:
            raise Refused("the broker closed a member's connection")
        raw = self._buffer[:size]
        if member.inbox:
            member.inbox += raw
            raw = member.inbox
        if len(raw) < 4 or len(raw) < 4 + struct.unpack_from(">i", raw)[0]:
            member.inbox = raw
            return
        member.inbox = bytearray()
        self._answered(member, raw)

    def _answered(self, member: Member, raw: bytearray) -> None:
        code = struct.unpack_from(">h", raw, CODE_AT)[0]
        was, member.waits_for = member.waits_for, None
        if was == JOIN and code in (0, MEMBER_ID_REQUIRED):
            self._joined(member, Joined(raw))
        elif code == 0:
            self._unsettled -= 1
        elif code in (REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION):
            member.join()
        else:
            raise Refused(f"API {was} answered {code}")

    def _joined(self, member: Member, joined: Joined) -> None:
        if joined.member_id != member.member_id:
            member.member_id = joined.member_id
            member.make_ready(self._metadata)
        if joined.code == MEMBER_ID_REQUIRED:
            member.join()
            return
        member.generation = joined.generation
        member.sync(self._assignments_by(joined) if joined.leader == joined.member_id else None)

    def _assignments_by(self, leader: Joined) -> bytearray:
        """Encoded once for as long as nobody comes or goes: the broker is measured, not an assignor."""
        if self._assignments[:2] != (leader.leader, leader.member_count):
            frame = sync_frame(self.group, 0, leader.member_id, leader.member_ids())
            self._assignments = (leader.leader, leader.member_count, bytearray(frame))
        return self._assignments[2]

    def leave(self) -> None:
        connection = self.members[0].connection
        connection.sock.setblocking(True)
        connection.call(leave_frame(self.group, [member.member_id for member in self.members]))


def rebalance(plan: Plan) -> dict[str, float]:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    crowd = Crowd(plan)
    first_s = crowd.settle(bytes(64), beats=True)
    taken, cpu = [], []
    for number in range(1, plan.rounds + 1):
        cpu_0 = _cpu_s(plan.pid)
        taken.append(crowd.settle(bytes([number % 256]) + bytes(63), beats=False))
        cpu.append(_cpu_s(plan.pid) - cpu_0)
    crowd.leave()
    return {"first_s": first_s, "rejoin_s": statistics.median(taken), "rejoin_cpu_s": statistics.mean(cpu)}


# --- what stays in a broker: idle groups, a long log of commits ---


def idle(plan: Plan) -> dict[str, float]:
    """Makes groups of one silent member each; their sessions last for half an hour."""
    connection, start = Connection(plan.address), time.monotonic()
    find_coordinator(connection, "idle")
    for i in range(plan.count):
        join_alone(connection, f"idle-{os.getpid()}-{i}", LONGEST_SESSION_MS)
    return {"groups": plan.count, "seconds": time.monotonic() - start}


def fill(plan: Plan) -> dict[str, float]:
    """Commits of one partition each, all of the group `filled`, a few hundred in flight; the last offset is `last`."""
    connection, start, at_once = Connection(plan.address), time.monotonic(), 250
    create_topics(connection, {TOPIC: plan.partitions})
    find_coordinator(connection, "filled")
    commit_once(connection, "filled", [0])
    which = [i % plan.partitions for i in range(at_once)]
    expected = b"".join(commit_answer([partition]) for partition in which)
    rounds = plan.count // at_once
    for number in range(rounds + 1):
        if number < rounds:
            connection.sock.sendall(b"".join(commit_frame("filled", [p], number) for p in which))
        if number:  # always one run of frames ahead
            got = connection.sock.recv(len(expected), socket.MSG_WAITALL)
            if got != expected:
                raise Refused(f"OffsetCommit answered {got[:64].hex()} …")
    return {"commits": rounds * at_once, "last": rounds - 1, "seconds": time.monotonic() - start}


def _cpu_s(pid: int) -> float:
    return sum(cpu_of(each) for each in family(pid)) if pid else 0.0


MODES = {
    "heartbeat": heartbeat,
    "consumer_heartbeat": consumer_heartbeat,
    "commit": commit,
    "rebalance": rebalance,
    "idle": idle,
    "fill": fill,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.group_load", description=__doc__)
    parser.add_argument("mode", choices=list(MODES))
    parser.add_argument("--address", required=True)
    parser.add_argument("--pid", type=int, default=0, help="the broker, to count its CPU")
    parser.add_argument("--seconds", type=float, default=3)
    for option in ("connections", "partitions", "members", "rounds", "count"):
        parser.add_argument(f"--{option}", type=int, default=argparse.SUPPRESS)
    options = vars(parser.parse_args())
    mode = options.pop("mode")
    try:
        figures = MODES[mode](Plan(**options))
    except (Refused, OSError) as error:
        sys.exit(f"group_load: {error}")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
