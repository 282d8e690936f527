"""Load with TLS for a broker that speaks Kafka's protocol, like `benchmarks.load`, in one thread.

`python -m benchmarks.tls_load produce|fetch --address … --authority FILE` prints one JSON line.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import select
import ssl
import struct
import sys
import time

from benchmarks import load
from benchmarks.load import MB, Plan, Refused
from kohort.wire.records.batch import HEADER_SIZE, LAST_OFFSET_DELTA_AT, LENGTH_END, header_fields

_HEADER = header_fields("base_offset", "batch_length")


class TlsConnection(load.Connection):
    """One request, one answer, over TLS."""

    __slots__ = ()

    def __init__(self, address: str, context: ssl.SSLContext) -> None:
        super().__init__(address)
        self.sock = context.wrap_socket(self.sock, server_hostname="localhost")

    def _read(self, size: int) -> bytes:
        got = bytearray()
        while len(got) < size:
            piece = self.sock.recv(size - len(got))
            if not piece:
                raise Refused("the broker closed the connection")
            got += piece
        return bytes(got)


class TlsProducer(load.Producer):
    """Keeps `in_flight` copies of one frame on their way. OpenSSL takes 16 KB at a time."""

    __slots__ = ()

    def __init__(self, plan: Plan, partition: int, batch: bytes, context: ssl.SSLContext) -> None:
        super().__init__(plan, partition, batch)
        self.sock.close()
        self.sock = TlsConnection(plan.address, context).sock
        self.sock.setblocking(False)

    def send(self) -> bool:
        try:
            while self.unsent:
                self.unsent = self.unsent[self.sock.send(self.unsent) :]
        except ssl.SSLWantWriteError:
            return False
        return True

    def answers(self) -> int:
        count = 0
        with contextlib.suppress(ssl.SSLWantReadError):
            while True:
                count += super().answers()
        return count


def produce(plan: Plan, context: ssl.SSLContext) -> dict[str, float]:
    connection = TlsConnection(plan.address, context)
    load.create_topics(connection, {plan.topic: plan.partitions})
    for partition in range(plan.partitions):
        load.produce_once(connection, plan.topic, partition, load.record_batch(1, 16))
    connection.close()
    batch = load.record_batch(plan.batch_records, plan.value_size)
    producers = [TlsProducer(plan, i % plan.partitions, batch, context) for i in range(plan.connections)]
    return load.produce_by(plan, producers, len(batch))


class Fetcher:
    """One connection that reads its partition from the start to the end again and again, 1 MB at a time."""

    def __init__(self, plan: Plan, partition: int, context: ssl.SSLContext) -> None:
        self.sock = TlsConnection(plan.address, context).sock
        self.sock.setblocking(False)
        self._frame, self._offset_at = (
            load.fetch_frame(plan.topic, partition),
            load.fetch_offset_at(plan.topic),
        )
        self._code_at = 4 + 4 + 4 + 2 + 4 + 4 + len(load.string(plan.topic)) + 4 + 4
        self._buffer = memoryview(bytearray(4 * MB))
        self._filled, self.received = 0, 0

    def ask(self, offset: int) -> None:
        struct.pack_into(">q", self._frame, self._offset_at, offset)
        self.sock.send(self._frame)  # small: the socket always takes it
        self._filled = 0

    def on_readable(self) -> None:
        """Takes what is there; a whole answer is counted, and the next one is asked for."""
        sock, buffer = self.sock, self._buffer
        with contextlib.suppress(ssl.SSLWantReadError):
            while True:
                got = sock.recv_into(buffer[self._filled :])
                if not got:
                    raise Refused("the broker closed a fetching connection")
                self._filled += got
                if self._filled >= 4 and self._filled == 4 + struct.unpack_from(">i", buffer)[0]:
                    self._answered()

    def _answered(self) -> None:
        buffer, records_at = self._buffer, self._code_at + 2 + 24 + 4 + 4
        code = struct.unpack_from(">h", buffer, self._code_at)[0]
        if code:
            raise Refused(f"Fetch answered {code}")
        length = struct.unpack_from(">i", buffer, records_at)[0]
        if length < HEADER_SIZE:
            self.ask(0)
            return
        self.received += length
        at, stop, last = records_at + 4, records_at + 4 + length, -1
        while at + HEADER_SIZE <= stop:
            size = _HEADER.unpack_from(buffer, at)[1] + LENGTH_END
            if at + size > stop:
                break
            last, at = at, at + size
        if last < 0:
            raise Refused("Fetch returned no whole batch")
        last_delta = struct.unpack_from(">i", buffer, last + LAST_OFFSET_DELTA_AT)[0]
        self.ask(_HEADER.unpack_from(buffer, last)[0] + last_delta + 1)


def fetch(plan: Plan, context: ssl.SSLContext) -> dict[str, float]:
    fetchers = [Fetcher(plan, i % plan.partitions, context) for i in range(plan.connections)]
    by_fd = {fetcher.sock.fileno(): fetcher for fetcher in fetchers}
    with select.epoll() as poll:
        cpu_0, start = load.cpu_s(plan.pid), time.monotonic()
        for fd, fetcher in by_fd.items():
            poll.register(fd, select.EPOLLIN)
            fetcher.ask(0)
        while time.monotonic() < start + plan.seconds:
            ready = poll.poll(30)
            if not ready:
                raise Refused("no answer for 30 s")
            for fd, _ in ready:
                by_fd[fd].on_readable()
        seconds, cpu = time.monotonic() - start, load.cpu_s(plan.pid) - cpu_0
    return load.figures(sum(fetcher.received for fetcher in fetchers), seconds, cpu)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tls_load", description=__doc__)
    parser.add_argument("mode", choices=["produce", "fetch"])
    parser.add_argument("--address", required=True)
    parser.add_argument("--authority", required=True, help="whose certificates are trusted, in PEM")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--pid", type=int, default=0, help="the broker, to count its CPU")
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--limit-mb", type=int, default=1000)
    parser.add_argument("--batch-records", type=int, default=128)
    options = vars(parser.parse_args())
    mode, context = options.pop("mode"), ssl.create_default_context(cafile=options.pop("authority"))
    try:
        found = (produce if mode == "produce" else fetch)(Plan(**options), context)
    except (Refused, OSError) as error:
        sys.exit(f"load: {error}")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
