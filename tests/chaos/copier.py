"""Applications with transactions that live on through crashes of the broker, each request by hand."""

from __future__ import annotations

import threading
import time

from kohort.client.io.blocking_connection import BlockingConnection
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.broker.peer import fetch, values_in
from tests.broker.transactional import TV1, TV2, TransactionalPeer, offsets_of

_PATIENCE_S = 120.0


class TransactionalWorker(threading.Thread):
    """Does its work again and again; after a crash of the broker, or a refused request, it begins with a new producer.

    Its calls raise OSError if the broker is gone, and AssertionError if a request is refused.
    """

    def __init__(self, address: str, transactional_id: str, version: int) -> None:
        super().__init__(name=transactional_id, daemon=True)
        self._address, self._transactional_id, self._version = address, transactional_id, version
        self._ending = threading.Event()
        self.lives = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._ending.is_set():
                try:
                    self._live()
                except (OSError, AssertionError):
                    time.sleep(0.01)  # the broker is down, or still loading
        except BaseException as error:
            self.failure = error

    def _live(self) -> None:
        with BlockingConnection(self._address) as connection:
            peer = TransactionalPeer(connection, self._transactional_id, self._version)
            assert peer.init() is ErrorCode.NONE
            self.lives += 1
            while not self._ending.is_set():
                self.work(peer)

    def work(self, peer: TransactionalPeer) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        self._ending.set()
        self.join(_PATIENCE_S)
        assert not self.is_alive(), f"{self.name} hangs"
        assert self.failure is None, self.failure


class Copier(TransactionalWorker):
    """Copies a topic partition by partition, as consume-transform-produce does: records and positions together."""

    def __init__(self, address: str, source: str, target: str) -> None:
        super().__init__(address, "copier", TV1)
        self._source, self._target = source, target
        self._rounds = 0

    def work(self, peer: TransactionalPeer) -> None:
        client, source = peer.connection, self._source
        found = client.call(FindCoordinatorRequest(coordinator_keys=["copiers"]), version=4)
        assert found.coordinators[0].error_code == 0
        positions = offsets_of(client, "copiers", source, 0, 1, stable=True)
        assert ErrorCode.UNSTABLE_OFFSET_COMMIT not in positions
        next_ones = {}
        for partition, committed in enumerate(positions):
            start = max(committed, 0)
            values = values_in(fetch(client, source, start, partition, partition_max_bytes=1))[:3]
            if values:
                peer.write(self._target, *[value for value in values if value], partition=partition)
                next_ones[source, partition] = start + len(values)
        if not next_ones:
            time.sleep(0.01)
            return
        peer.send_offsets("copiers", next_ones)
        self._rounds += 1
        assert peer.end(commit=self._rounds % 5 != 0) is ErrorCode.NONE


class PairWriter(TransactionalWorker):
    """Writes each number into two partitions in one transaction of version 2; some it aborts.

    `promised` are the numbers whose commit was answered, `dropped` those whose abort was.
    """

    def __init__(self, address: str, topic: str) -> None:
        super().__init__(address, "pairs", TV2)
        self._topic = topic
        self.promised: set[int] = set()
        self.dropped: set[int] = set()
        self._number = 0

    def work(self, peer: TransactionalPeer) -> None:
        number = self._number
        self._number += 1
        for partition in (0, 1):
            peer.write(self._topic, b"%d" % number, partition=partition)
        commits = number % 4 != 0
        assert peer.end(commit=commits) is ErrorCode.NONE
        (self.promised if commits else self.dropped).add(number)
