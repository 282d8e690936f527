"""Load for a broker that speaks Kafka's protocol, in a process of its own and as light as Python can be.

`python -m benchmarks.load produce|fetch --address … --pid …` prints one JSON line. Frames are encoded once and
sent again and again; produce answers have a fixed size and are only counted, fetch answers are walked by batch
header. Measured against a Go load on Apache Kafka: the same MB/s on produce, more on fetch.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import socket
import struct
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

import crc32c

from benchmarks import targets
from kohort.wire.records.batch import (
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LAST_OFFSET_DELTA_AT,
    LENGTH_END,
    MAGIC,
    BatchHeader,
    header_fields,
)

PRODUCE, FETCH, METADATA, CREATE_TOPICS, DELETE_TOPICS = 0, 1, 3, 19, 20
NOT_YET = {3, 5, 6}  # a new topic answers these until its leader is there
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
MB = 1 << 20
LOGIN = "KOHORT_BENCHMARK_LOGIN"
"""A variable of the environment: who the load is, on a broker with SASL."""


class Refused(Exception):
    """The broker answered an error code where load expects none."""


@dataclass(slots=True)
class Plan:
    address: str
    topic: str
    pid: int = 0
    partitions: int = 8
    connections: int = 8
    batch_records: int = 16
    value_size: int = 1024
    in_flight: int = 5
    seconds: float = 3.0
    limit_mb: int = 1000
    isolation: int = 0
    """isolation.level of fetches: 1 is read_committed."""


# --- encoding, by hand: only what the load sends ---


def string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack(">h", len(raw)) + raw


def request(api_key: int, version: int, body: bytes) -> bytes:
    head = struct.pack(">hhi", api_key, version, 7) + string("bench")
    return struct.pack(">i", len(head) + len(body)) + head + body


def varint(number: int) -> bytes:
    left, out = (number << 1) ^ (number >> 63), bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def record_batch(count: int, value_size: int) -> bytes:
    value = bytes(i * 7 & 0xFF for i in range(value_size))
    records = bytearray()
    for i in range(count):
        record = b"\0" + varint(0) + varint(i) + varint(-1) + varint(value_size) + value + varint(0)
        records += varint(len(record)) + record
    now_ms = int(time.time() * 1000)
    header = BatchHeader(
        0,
        HEADER_SIZE - LENGTH_END + len(records),
        -1,
        MAGIC,
        0,
        0,
        count - 1,
        now_ms,
        now_ms,
        -1,
        -1,
        -1,
        count,
    )
    crc = crc32c.crc32c(HEADER.pack(*header)[CRC_START:] + records)
    return HEADER.pack(*header._replace(crc=crc)) + records


def produce_frame(topic: str, partition: int, records: bytes) -> bytes:
    one = struct.pack(">iii", 1, partition, len(records)) + records
    return request(PRODUCE, 7, struct.pack(">hhii", -1, -1, 30_000, 1) + string(topic) + one)


def fetch_frame(topic: str, partition: int, isolation: int = 0) -> bytearray:
    """The offset of the only partition stands at `fetch_offset_at(topic)`."""
    head = struct.pack(">iiiibii", -1, 100, 1, 50 * MB, isolation, 0, -1)
    one = struct.pack(">iiiqqi", 1, partition, -1, 0, -1, MB)
    return bytearray(
        request(
            FETCH, 11, head + struct.pack(">i", 1) + string(topic) + one + struct.pack(">i", 0) + string("")
        )
    )


def fetch_offset_at(topic: str) -> int:
    return 4 + 8 + len(string("bench")) + 25 + 4 + len(string(topic)) + 12


# --- one request, one answer ---


class Connection:
    __slots__ = ("sock",)

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.sock = socket.create_connection((host, int(port)), 30)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A Python timeout makes the descriptor non-blocking, and MSG_WAITALL means nothing then.
        self.sock.settimeout(None)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 30, 0))
        if user := os.environ.get(LOGIN):
            self._login(user)

    def _login(self, user: str) -> None:
        """Authenticates with PLAIN; the password is the name."""
        token = f"\0{user}\0{user}".encode()
        for frame in (
            request(SASL_HANDSHAKE, 1, string("PLAIN")),
            request(SASL_AUTHENTICATE, 0, struct.pack(">i", len(token)) + token),
        ):
            if code := struct.unpack_from(">h", self.call(frame))[0]:
                raise Refused(f"the login answered {code}")

    def call(self, frame: bytes) -> bytes:
        self.sock.sendall(frame)
        size = struct.unpack(">i", self._read(4))[0]
        return self._read(size)[4:]

    def _read(self, size: int) -> bytes:
        got = self.sock.recv(size, socket.MSG_WAITALL)
        if len(got) < size:
            raise Refused("the broker closed the connection")
        return got

    def close(self) -> None:
        self.sock.close()


def create_topics(connection: Connection, topics: dict[str, int]) -> None:
    """CreateTopics v2; a topic that is there already stays as it is."""
    each = b"".join(string(name) + struct.pack(">ihii", count, 1, 0, 0) for name, count in topics.items())
    answer = connection.call(
        request(CREATE_TOPICS, 2, struct.pack(">i", len(topics)) + each + struct.pack(">ib", 60_000, 0))
    )
    at = 8
    for _ in topics:
        at += 2 + struct.unpack_from(">h", answer, at)[0]
        code, message = struct.unpack_from(">hh", answer, at)
        at += 4 + max(message, 0)
        if code not in (0, 36):
            raise Refused(f"CreateTopics answered {code}")


def delete_topics(connection: Connection, *names: str) -> None:
    body = struct.pack(">i", len(names)) + b"".join(map(string, names)) + struct.pack(">i", 30_000)
    connection.call(request(DELETE_TOPICS, 1, body))


def produce_once(
    connection: Connection, topic: str, partition: int, records: bytes, seconds: float = 20
) -> None:
    """Until it is taken: the leaders of a new topic need a moment."""
    frame, end = produce_frame(topic, partition, records), time.monotonic() + seconds
    while True:
        code = struct.unpack_from(">h", connection.call(frame), 4 + len(string(topic)) + 8)[0]
        if code == 0:
            return
        if code not in NOT_YET or time.monotonic() > end:
            raise Refused(f"Produce to {topic}-{partition} answered {code}")
        time.sleep(0.005)


def prepare(plan: Plan) -> None:
    connection = Connection(plan.address)
    create_topics(connection, {plan.topic: plan.partitions})
    for partition in range(plan.partitions):
        produce_once(connection, plan.topic, partition, record_batch(1, 16))
    connection.close()


# --- produce: one thread, sockets that do not block, so that no GIL is handed around ---


class Producer:
    """One connection that keeps `in_flight` copies of one frame on their way."""

    __slots__ = ("answer_size", "code_at", "frame", "inbox", "received", "sock", "to_send", "unsent")

    def __init__(self, plan: Plan, partition: int, batch: bytes) -> None:
        self.sock = Connection(plan.address).sock
        self.sock.setblocking(False)
        self.frame = memoryview(produce_frame(plan.topic, partition, batch) * plan.in_flight)
        self.answer_size = 4 + 4 + 4 + len(string(plan.topic)) + 4 + 4 + 2 + 24 + 4
        self.code_at = 4 + 4 + 4 + len(string(plan.topic)) + 8
        self.inbox = bytearray(64 * self.answer_size)
        self.received = 0  # bytes of an answer that is not whole yet
        self.unsent: memoryview = self.frame  # what the socket has not taken

    def send(self) -> bool:
        """True when everything is with the kernel."""
        while self.unsent:
            try:
                self.unsent = self.unsent[self.sock.send(self.unsent) :]
            except BlockingIOError:
                return False
        return True

    def answers(self) -> int:
        """How many answers came in."""
        got = self.sock.recv_into(memoryview(self.inbox)[self.received :])
        if not got:
            raise Refused("the broker closed a producing connection")
        whole, rest = divmod(self.received + got, self.answer_size)
        for i in range(whole):
            at = i * self.answer_size + self.code_at
            if self.inbox[at] or self.inbox[at + 1]:
                raise Refused(f"Produce answered {struct.unpack_from('>h', self.inbox, at)[0]}")
        self.inbox[:rest] = self.inbox[whole * self.answer_size : whole * self.answer_size + rest]
        self.received = rest
        return whole

    def again(self, count: int, frame_size: int) -> None:
        """Queue `count` more frames behind what is unsent: always a tail of the ready-made run of frames."""
        self.unsent = self.frame[len(self.frame) - len(self.unsent) - count * frame_size :]


def produce(plan: Plan) -> dict[str, float]:
    batch = record_batch(plan.batch_records, plan.value_size)
    prepare(plan)
    producers = [Producer(plan, i % plan.partitions, batch) for i in range(plan.connections)]
    return produce_by(plan, producers, len(batch))


def produce_by(plan: Plan, producers: Sequence[Producer], batch_size: int) -> dict[str, float]:
    frame_size = len(producers[0].frame) // plan.in_flight
    by_fd = {producer.sock.fileno(): producer for producer in producers}
    limit, taken, left = plan.limit_mb * MB // batch_size, 0, len(by_fd) * plan.in_flight
    with select.epoll() as poll:
        cpu_0, start = cpu_s(plan.pid), time.monotonic()
        end = start + plan.seconds
        for fd, producer in by_fd.items():
            poll.register(fd, select.EPOLLIN | (0 if producer.send() else select.EPOLLOUT))
        while left:
            running = taken < limit and time.monotonic() < end
            ready = poll.poll(30)
            if not ready:
                raise Refused("no answer for 30 s")
            for fd, events in ready:
                producer = by_fd[fd]
                was_unsent = len(producer.unsent)
                if events & select.EPOLLIN:
                    count = producer.answers()
                    taken += count
                    if running and count:
                        producer.again(count, frame_size)
                    else:
                        left -= count
                if producer.unsent:
                    done = producer.send()
                    if done != (was_unsent == 0):
                        poll.modify(fd, select.EPOLLIN | (0 if done else select.EPOLLOUT))
        seconds, cpu = time.monotonic() - start, cpu_s(plan.pid) - cpu_0
    for producer in producers:
        producer.sock.close()
    return figures(taken * batch_size, seconds, cpu)


# --- fetch: a thread for each connection, which sleeps in recv until a whole answer is there ---


def fetch(plan: Plan) -> dict[str, float]:
    got = [0] * plan.connections
    trouble: list[BaseException] = []
    cpu_0, start = cpu_s(plan.pid), time.monotonic()

    def run(i: int) -> None:
        try:
            got[i] = _fetch_until(plan, i % plan.partitions, start + plan.seconds)
        except BaseException as error:
            trouble.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(plan.connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if trouble:
        raise trouble[0]
    return figures(sum(got), time.monotonic() - start, cpu_s(plan.pid) - cpu_0)


def _fetch_until(plan: Plan, partition: int, end: float) -> int:
    """Reads the partition from its start to its end again and again; how many bytes of records came."""
    sock = Connection(plan.address).sock
    frame = fetch_frame(plan.topic, partition, plan.isolation)
    offset_at = fetch_offset_at(plan.topic)
    # size, correlation, throttle, error, session, topics, name, partitions, index; then the code;
    # then three offsets, aborted transactions, preferred replica; then the records.
    code_at = 4 + 4 + 4 + 2 + 4 + 4 + len(string(plan.topic)) + 4 + 4
    aborted_at = code_at + 2 + 24
    buffer = bytearray(4 * MB)
    view, offset, total = memoryview(buffer), 0, 0
    header, wait_all = header_fields("base_offset", "batch_length"), socket.MSG_WAITALL
    while time.monotonic() < end:
        struct.pack_into(">q", frame, offset_at, offset)
        sock.sendall(frame)
        if sock.recv_into(view[:4], 4, wait_all) < 4:
            raise Refused("the broker closed a fetching connection")
        size = struct.unpack_from(">i", buffer)[0]
        if sock.recv_into(view[4:], size, wait_all) < size:
            raise Refused("the broker closed a fetching connection")
        code = struct.unpack_from(">h", buffer, code_at)[0]
        if code:
            raise Refused(f"Fetch answered {code} at offset {offset}")
        records_at = aborted_at + 8 + 16 * max(struct.unpack_from(">i", buffer, aborted_at)[0], 0)
        length = struct.unpack_from(">i", buffer, records_at)[0]
        at = records_at + 4
        stop = at + length
        if length < HEADER_SIZE:
            offset = 0
            continue
        total += length
        last = -1
        while at + HEADER_SIZE <= stop:
            batch_size = header.unpack_from(buffer, at)[1] + LENGTH_END
            if at + batch_size > stop:
                break
            last, at = at, at + batch_size
        if last < 0:
            raise Refused(f"Fetch at {offset} returned no whole batch")
        last_delta = struct.unpack_from(">i", buffer, last + LAST_OFFSET_DELTA_AT)[0]
        offset = header.unpack_from(buffer, last)[0] + last_delta + 1
    sock.close()
    return total


def cpu_s(pid: int) -> float:
    return sum(targets.cpu_of(each) for each in targets.family(pid)) if pid else 0.0


def figures(size: int, seconds: float, cpu_s: float) -> dict[str, float]:
    mb = size / MB
    own = time.process_time()
    return {
        "mb": mb,
        "mb_per_s": mb / seconds,
        "cpu_s_per_gb": cpu_s / (mb / 1024),
        "load_cpu_s_per_gb": own / (mb / 1024),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load", description=__doc__)
    parser.add_argument("mode", choices=["produce", "fetch"])
    parser.add_argument("--address", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--pid", type=int, default=0, help="the broker, to count its CPU")
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--limit-mb", type=int, default=1000)
    parser.add_argument("--batch-records", type=int, default=16)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument(
        "--isolation", type=int, default=0, choices=[0, 1], help="of fetches: 1 is read_committed"
    )
    options = vars(parser.parse_args())
    mode = options.pop("mode")
    try:
        found = (produce if mode == "produce" else fetch)(Plan(**options))
    except (Refused, OSError) as error:
        sys.exit(f"load: {error}")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
