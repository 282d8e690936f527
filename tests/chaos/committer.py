"""Commits as fast as the broker takes them, outside of any generation, as assign-mode consumers do."""

from __future__ import annotations

from kohort.client.io.blocking_connection import BlockingConnection
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.chaos.producers import Worker

PIPELINED = 8
LOADING = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)


class RawCommitter(Worker):
    """Commits 1, 2, 3, … for all partitions of a topic; `acknowledged` is the last that was answered."""

    def __init__(self, bootstrap_servers: str, group: str, topic: str, partitions: int) -> None:
        super().__init__(bootstrap_servers)
        self.group, self.topic, self.partitions = group, topic, partitions
        self.sent = 0
        self.acknowledged = 0

    def work(self) -> None:
        self.connected(self._commit)

    def _commit(self, broker: BlockingConnection) -> None:
        waiting: list[int] = []
        while waiting or self._goes_on(waiting):
            while self._goes_on(waiting):
                self.sent += 1
                self.stopping.wait(0.001)  # a start reads all of it again
                waiting.append(self.sent)
                broker.send(self._request(self.sent), version=8)
            codes = {
                ErrorCode(part.error_code) for topic in broker.receive().topics for part in topic.partitions
            }
            offset = waiting.pop(0)
            if codes == {ErrorCode.NONE}:
                self.acknowledged = offset
            else:
                assert codes <= set(LOADING), codes

    def _goes_on(self, waiting: list[int]) -> bool:
        """At the end only until the last that was sent is acknowledged: a kill may have taken it, or its answer."""
        if self.stopping.is_set():
            return not waiting and self.acknowledged < self.sent
        return len(waiting) < PIPELINED

    def _request(self, offset: int) -> OffsetCommitRequest:
        parts = [OffsetCommitRequestPartition(index, offset) for index in range(self.partitions)]
        return OffsetCommitRequest(
            self.group, topics=[OffsetCommitRequestTopic(self.topic, partitions=parts)]
        )
