"""OffsetCommit, OffsetFetch, OffsetDelete."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from kohort.broker.broker import Broker
from kohort.broker.call import Call
from kohort.broker.group_membership import Answer
from kohort.coordinator.effects import CommitResponse, FetchedOffset, FetchResponse, OffsetDeleteResponse
from kohort.coordinator.events import OffsetCommit, OffsetDelete, OffsetFetch, OffsetToCommit
from kohort.wire.compile import codec
from kohort.wire.errors import ErrorCode
from kohort.wire.messages import offset_commit as commit
from kohort.wire.messages import offset_delete as delete
from kohort.wire.messages import offset_fetch as fetch
from kohort.wire.struct import ZERO_UUID

NO_OFFSET = -1
NONE = ErrorCode.NONE
_tuple = tuple.__new__  # a NamedTuple without its Python-level constructor


def offset_commit(broker: Broker, call: Call) -> None:
    request: commit.OffsetCommitRequest = call.request
    by_id = call.version >= 10
    offsets: list[OffsetToCommit] = []
    for each in request.topics:
        topic = broker.store.topics_by_id.get(each.topic_id) if by_id else broker.store.topics.get(each.name)
        name, count, unknown = each.name, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic is not None:
            name, count = topic.name, len(topic.partitions)
        elif by_id:
            unknown = ErrorCode.UNKNOWN_TOPIC_ID
        for part in each.partitions:
            index = part.partition_index
            refused = NONE if 0 <= index < count else unknown
            fields = (
                name, index, part.committed_offset, part.committed_leader_epoch, part.committed_metadata, refused,
            )  # fmt: skip
            offsets.append(_tuple(OffsetToCommit, fields))
    call.park()
    broker.groups.submit(
        OffsetCommit(
            CommitAnswer(call),
            request.group_id,
            tuple(offsets),
            request.generation_id_or_member_epoch,
            request.member_id,
            request.group_instance_id,
            request.retention_time_ms if call.version <= 4 else -1,
            group_may_be_unknown=call.version >= 9,
        )
    )


class CommitAnswer:
    """Answers a commit. A consumer commits the same partitions again and again, and nearly always all is well:

    that answer is encoded once.
    """

    __slots__ = ("call",)

    def __init__(self, call: Call) -> None:
        self.call = call

    def __call__(self, response: CommitResponse) -> None:
        call = self.call
        if any(response.errors):
            call.reply(_committed(call.request, response))
            return
        asked = tuple(
            (each.name, each.topic_id, tuple([part.partition_index for part in each.partitions]))
            for each in call.request.topics
        )
        call.reply_encoded(_all_is_well(call.version, asked))


@lru_cache(maxsize=1024)
def _all_is_well(version: int, asked: tuple[tuple[str, bytes, tuple[int, ...]], ...]) -> bytes:
    """The body of the answer to a commit of these partitions that went well."""
    answer = commit.OffsetCommitResponse()
    for name, topic_id, partitions in asked:
        parts = [commit.OffsetCommitResponsePartition(index, NONE) for index in partitions]
        answer.topics.append(commit.OffsetCommitResponseTopic(name, topic_id, parts))
    return b"".join(codec(answer.API_KEY, version).encode_response(answer))


def _committed(request: commit.OffsetCommitRequest, response: CommitResponse) -> commit.OffsetCommitResponse:
    errors = iter(response.errors)
    answer = commit.OffsetCommitResponse()
    for each in request.topics:
        parts = [
            commit.OffsetCommitResponsePartition(p.partition_index, next(errors)) for p in each.partitions
        ]
        answer.topics.append(commit.OffsetCommitResponseTopic(each.name, each.topic_id, parts))
    return answer


def offset_fetch(broker: Broker, call: Call) -> None:
    if call.version >= 8:
        _Fetches(broker, call).start()
        return
    request: fetch.OffsetFetchRequest = call.request
    topics = None
    if request.topics is not None:
        topics = tuple((t.name, tuple(t.partition_indexes)) for t in request.topics)
    call.park()
    answer = Answer(call, lambda response: _fetched_one(request, response, call.version))
    broker.groups.submit(OffsetFetch(answer, request.group_id, topics, request.require_stable))


def _fetched_one(
    request: fetch.OffsetFetchRequest, response: FetchResponse, version: int
) -> fetch.OffsetFetchResponse:
    if response.error and version < 2:
        # Version 1 has no error for the whole: each partition carries it.
        topics = [
            fetch.OffsetFetchResponseTopic(
                t.name,
                [
                    fetch.OffsetFetchResponsePartition(p, NO_OFFSET, -1, "", response.error)
                    for p in t.partition_indexes
                ],
            )
            for t in request.topics or ()
        ]
        return fetch.OffsetFetchResponse(0, topics)
    topics = [
        fetch.OffsetFetchResponseTopic(
            name,
            [fetch.OffsetFetchResponsePartition(*_fields(each)) for each in offsets],
        )
        for name, offsets in response.topics
    ]
    return fetch.OffsetFetchResponse(0, topics, response.error)


def _fields(each: FetchedOffset) -> tuple[Any, ...]:
    return each.partition, each.offset, each.leader_epoch, each.metadata, each.error


class _Fetches:
    """One OffsetFetch about many groups (v8+): answered when the last of them is."""

    __slots__ = ("answers", "broker", "by_id", "call", "missing")

    def __init__(self, broker: Broker, call: Call) -> None:
        self.broker, self.call = broker, call
        self.by_id = call.version >= 10
        groups = call.request.groups
        self.answers: list[fetch.OffsetFetchResponseGroup | None] = [None] * len(groups)
        self.missing = len(groups)

    def start(self) -> None:
        request: fetch.OffsetFetchRequest = self.call.request
        self.call.park()
        if not self.missing:
            self.call.reply(fetch.OffsetFetchResponse())
        for index, group in enumerate(request.groups):
            self._start_one(index, group, request.require_stable)

    def _start_one(self, index: int, group: fetch.OffsetFetchRequestGroup, require_stable: bool) -> None:
        topics = None
        unknown: list[fetch.OffsetFetchRequestTopics] = []
        if group.topics is not None:
            wanted = []
            for each in group.topics:
                name = self._name_of(each)
                if name is None:
                    unknown.append(each)
                else:
                    wanted.append((name, tuple(each.partition_indexes)))
            topics = tuple(wanted)

        def on_reply(response: FetchResponse) -> None:
            self.answers[index] = self._convert(response, unknown)
            self.missing -= 1
            if not self.missing:
                answers = [answer for answer in self.answers if answer is not None]
                self.call.reply(fetch.OffsetFetchResponse(groups=answers))

        self.broker.groups.submit(OffsetFetch(on_reply, group.group_id, topics, require_stable))

    def _name_of(self, each: fetch.OffsetFetchRequestTopics) -> str | None:
        if not self.by_id:
            return each.name
        topic = self.broker.store.topics_by_id.get(each.topic_id)
        return topic.name if topic is not None else None

    def _convert(
        self, response: FetchResponse, unknown: list[fetch.OffsetFetchRequestTopics]
    ) -> fetch.OffsetFetchResponseGroup:
        answer = fetch.OffsetFetchResponseGroup(response.group_id, error_code=response.error)
        if response.error:
            return answer
        for name, offsets in response.topics:
            topic = self.broker.store.topics.get(name)
            topic_id = topic.topic_id if topic is not None else ZERO_UUID
            if self.by_id and topic is None:
                continue  # a topic that is gone cannot be named by its id
            parts = [fetch.OffsetFetchResponsePartitions(*_fields(each)) for each in offsets]
            answer.topics.append(fetch.OffsetFetchResponseTopics(name, topic_id, parts))
        for each in unknown:
            parts = [
                fetch.OffsetFetchResponsePartitions(p, NO_OFFSET, -1, "", ErrorCode.UNKNOWN_TOPIC_ID)
                for p in each.partition_indexes
            ]
            answer.topics.append(fetch.OffsetFetchResponseTopics("", each.topic_id, parts))
        return answer


def offset_delete(broker: Broker, call: Call) -> None:
    request: delete.OffsetDeleteRequest = call.request
    known: list[tuple[str, tuple[int, ...]]] = []
    for each in request.topics:
        topic = broker.store.topics.get(each.name)
        if topic is not None:
            indexes = (p.partition_index for p in each.partitions)
            known.append((each.name, tuple(i for i in indexes if 0 <= i < len(topic.partitions))))
    call.park()
    answer = Answer(call, lambda response: _deleted(request, response))
    broker.groups.submit(OffsetDelete(answer, request.group_id, tuple(known)))


def _deleted(
    request: delete.OffsetDeleteRequest, response: OffsetDeleteResponse
) -> delete.OffsetDeleteResponse:
    if response.error:
        return delete.OffsetDeleteResponse(response.error)
    errors = {(name, index): error for name, parts in response.topics for index, error in parts}
    answer = delete.OffsetDeleteResponse()
    for each in request.topics:
        parts = [
            delete.OffsetDeleteResponsePartition(
                p.partition_index,
                errors.get((each.name, p.partition_index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            )
            for p in each.partitions
        ]
        answer.topics.append(delete.OffsetDeleteResponseTopic(each.name, parts))
    return answer
