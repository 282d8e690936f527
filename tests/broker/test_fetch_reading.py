"""What a fetch answers, against rules written down one by one: any offsets, epochs and limits, in a session or not."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from kohort.log.partition import Partition
from kohort.wire.errors import ErrorCode, KafkaError
from kohort.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from tests.broker.handlers import Node

COUNT = 2  # of partitions; the fetches also ask for one that is not there

appends = st.tuples(st.just("append"), st.integers(0, COUNT - 1), st.sampled_from([1, 3, 3]))
deletions = st.tuples(st.just("delete"), st.integers(0, COUNT - 1), st.integers(0, 4))
asked = st.builds(
    FetchPartition,
    partition=st.integers(0, COUNT),
    current_leader_epoch=st.sampled_from([-1, -1, 0, 1]),
    fetch_offset=st.sampled_from([-1, 0, 1, 2, 3, 3, 4]),
    last_fetched_epoch=st.sampled_from([-1, -1, -1, 0, 1]),
    partition_max_bytes=st.sampled_from([0, 100, 300, 1 << 20]),
)
fetches = st.tuples(
    st.just("fetch"),
    st.lists(asked, max_size=5, unique_by=lambda part: part.partition),
    st.sets(st.integers(0, COUNT)),  # forgotten by a session
    st.sampled_from([50, 250, 1 << 20]),
)
steps = st.lists(appends | deletions | fetches, max_size=12)

AT_THE_END = FetchPartition(0, fetch_offset=3, partition_max_bytes=100)
ONLY_THE_START_MOVES = [
    ("append", 0, 3),
    ("fetch", [AT_THE_END], set(), 100),
    ("fetch", [], set(), 100),
    ("delete", 0, 2),
    ("fetch", [], set(), 100),
]


def told_of(data: Any) -> tuple[Any, ...]:
    diverging = (data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
    records = bytes(data.records)
    return (
        data.partition_index,
        data.error_code,
        data.high_watermark,
        data.log_start_offset,
        records,
        diverging,
    )


def expected(
    partitions: list[Partition], part: FetchPartition, total: int, max_bytes: int
) -> tuple[Any, ...]:
    def failed(code: ErrorCode) -> tuple[Any, ...]:
        return part.partition, code, -1, -1, b"", (-1, -1)

    if part.partition >= len(partitions):
        return failed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    partition = partitions[part.partition]
    if part.current_leader_epoch > partition.leader_epoch:
        return failed(ErrorCode.UNKNOWN_LEADER_EPOCH)
    known = (part.partition, 0, partition.high_watermark, partition.log_start_offset)
    if part.last_fetched_epoch >= 0:
        epoch, end = partition.end_of_epoch(part.last_fetched_epoch)
        if epoch != part.last_fetched_epoch or end < part.fetch_offset:
            return (*known, b"", (epoch, end)) if epoch >= 0 else failed(ErrorCode.OFFSET_OUT_OF_RANGE)
    room = max(min(part.partition_max_bytes, max_bytes - total), 0)
    try:
        piece = partition.read(part.fetch_offset, room, at_least_one=not total)
    except KafkaError as error:
        return failed(error.code)
    return (*known, b"".join(piece.chunks()), (-1, -1))


class Reader:
    """Fetches by a session or without one, and knows what must be answered."""

    def __init__(self, node: Node, version: int, in_session: bool) -> None:
        self.node, self.version, self.in_session = node, version, in_session
        self.topic_id = node.create("t", COUNT)
        self.partitions = node.store.topics["t"].partitions
        self.session_id, self.epoch = 0, 0 if in_session else -1
        self.wanted: dict[int, FetchPartition] = {}  # in the order in which the session reads
        self.told: dict[int, tuple[int, int]] = {}

    def fetch(self, parts: list[FetchPartition], forgotten: set[int], max_bytes: int) -> None:
        is_first = self.epoch <= 0
        names = ("", self.topic_id) if self.version >= 13 else ("t", bytes(16))
        request = FetchRequest(
            max_bytes=max_bytes,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=[FetchTopic(*names, parts)] if parts else [],
            forgotten_topics_data=[] if is_first else [ForgottenTopic(*names, sorted(forgotten))],
        )
        answer = self.node.call(request, self.version)
        if is_first:
            self.wanted, self.told = {}, {}
        self.wanted.update({part.partition: part for part in parts})
        for index in () if is_first else forgotten:
            self.wanted.pop(index, None)
            self.told.pop(index, None)
        found = [told_of(data) for topic in answer.responses for data in topic.partitions]
        assert found == self._expected(is_first, max_bytes)
        if self.in_session:
            self.session_id = answer.session_id
            self.epoch = self.epoch + 1 if self.session_id else 0

    def _expected(self, is_first: bool, max_bytes: int) -> list[tuple[Any, ...]]:
        total, answers = 0, []
        for part in list(self.wanted.values()):
            told = expected(self.partitions, part, total, max_bytes)
            total += len(told[4])
            has_news = told[1] or told[4] or told[5] != (-1, -1) or self.told.get(part.partition) != told[2:4]
            if is_first or has_news:
                answers.append(told)
            self.told[part.partition] = told[2:4]
            if told[4]:
                self.wanted[part.partition] = self.wanted.pop(part.partition)
        return answers


@example(17, True, ONLY_THE_START_MOVES)
@settings(max_examples=200, deadline=None)
@given(st.sampled_from([12, 13, 17, 18]), st.booleans(), steps)
def test_every_partition_is_answered_by_the_rules(version, in_session, taken):
    with Node() as node:
        reader = Reader(node, version, in_session)
        for step in taken:
            if step[0] == "append":
                node.append("t", *range(step[2]), index=step[1])
            elif step[0] == "delete":
                partition = reader.partitions[step[1]]
                partition.delete_records(min(step[2], partition.high_watermark))
            else:
                reader.fetch(*step[1:])
