"""Handles OffsetCommit, OffsetFetch and OffsetDelete."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from kohort.broker.apis.group_membership import CallReply
from kohort.broker.broker import Broker
from kohort.broker.call import Call
from kohort.broker.groups.commit_frames import LaidOutRequest
from kohort.coordinator.commit_layout import CommitLayout, LaidOutOffsets
from kohort.coordinator.effects import CommitResponse, FetchedOffset, FetchResponse, OffsetDeleteResponse
from kohort.coordinator.events import OffsetCommit, OffsetDelete, OffsetFetch, OffsetToCommit, Token
from kohort.log.topic import Topic
from kohort.security.acls import AclOperation, AclResource
from kohort.security.authorizer import Granted
from kohort.wire.compiler.compile import codec
from kohort.wire.errors import ErrorCode
from kohort.wire.messages import offset_commit as commit
from kohort.wire.messages import offset_delete as delete
from kohort.wire.messages import offset_fetch as fetch
from kohort.wire.struct import ZERO_UUID

if TYPE_CHECKING:
    from kohort.broker.groups.coordinator import Groups

NO_OFFSET = -1
# Requests ask by these; a look-up in an Enum is slow.
_READ, _DESCRIBE = AclOperation.READ, AclOperation.DESCRIBE
_GROUP, _TOPIC = AclResource.GROUP, AclResource.TOPIC
NONE = ErrorCode.NONE
_tuple = tuple.__new__  # a NamedTuple without its Python-level constructor


def offset_commit(broker: Broker, call: Call) -> commit.OffsetCommitResponse | None:
    request: commit.OffsetCommitRequest | LaidOutRequest = call.request
    if isinstance(request, LaidOutRequest):
        prepared = request.layout.prepared
        if prepared is None or not prepared.holds(broker.store.topics):
            prepared = request.layout.prepared = _prepared(broker, call, request.message())
        if prepared is not None and (broker.guard is None or _may_commit(broker, call, prepared)):
            prepared.commit(broker.groups, call, request.offsets)
            return None
        call.request = request = request.message()
    if not broker.may(call, _READ, _GROUP, request.group_id):
        count = sum(len(topic.partitions) for topic in request.topics)
        refused = CommitResponse((ErrorCode.GROUP_AUTHORIZATION_FAILED,) * count)
        return _committed(request, refused)
    call.park()
    offsets, _ = _resolved(broker, request, call.version, None if broker.guard is None else call)
    broker.groups.submit(_event(CommitAnswer(call), request, offsets, call.version))
    return None


def _may_commit(broker: Broker, call: Call, prepared: PreparedCommit) -> bool:
    """Asks for each commit: an ACL may have changed since the last one. If none has, the last answer counts."""
    if prepared in call.connection.granted:
        return True
    may_read = broker.may(call, _READ, _GROUP, prepared.layout.group_id) and all(
        broker.may(call, _READ, _TOPIC, name) for name in prepared.names
    )
    if may_read and isinstance(granted := call.connection.granted, Granted):
        granted.keep(prepared)
    return may_read


def _resolved(
    broker: Broker, request: commit.OffsetCommitRequest, version: int, asker: Call | None = None
) -> tuple[tuple[OffsetToCommit, ...], list[Topic | None]]:
    """Returns the offsets, with the errors of their partitions, and the topics that they belong to.

    With an `asker`, topics that it may not read are refused.
    """
    by_id = version >= 10
    offsets: list[OffsetToCommit] = []
    topics: list[Topic | None] = []
    for each in request.topics:
        topic = broker.store.topics_by_id.get(each.topic_id) if by_id else broker.store.topics.get(each.name)
        topics.append(topic)
        name, count, unknown = each.name, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        topic_id = ZERO_UUID
        if topic is not None:
            name, count, topic_id = topic.name, len(topic.partitions), topic.topic_id
        elif by_id:
            unknown = ErrorCode.UNKNOWN_TOPIC_ID
        is_known = unknown is not ErrorCode.UNKNOWN_TOPIC_ID
        if asker is not None and is_known and not broker.may(asker, _READ, _TOPIC, name):
            count, unknown = 0, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        for part in each.partitions:
            index = part.partition_index
            refused = NONE if 0 <= index < count else unknown
            fields = (
                name, index, part.committed_offset, part.committed_leader_epoch, part.committed_metadata, refused,
                topic_id,
            )  # fmt: skip
            offsets.append(_tuple(OffsetToCommit, fields))
    return tuple(offsets), topics


def _event(
    answer: Token, request: commit.OffsetCommitRequest, offsets: Sequence[OffsetToCommit], version: int
) -> OffsetCommit:
    return OffsetCommit(
        answer,
        request.group_id,
        offsets,
        request.generation_id_or_member_epoch,
        request.member_id,
        request.group_instance_id,
        request.retention_time_ms if version <= 4 else -1,
        version >= 9,
    )


class PreparedCommit:
    """What all commits in a layout have in common, as long as their topics exist."""

    __slots__ = ("answer", "event", "layout", "names", "topics")

    def __init__(
        self, layout: CommitLayout, topics: tuple[Topic, ...], event: OffsetCommit, answer: bytes
    ) -> None:
        self.layout = layout
        self.topics = topics
        self.names = [topic.name for topic in topics]
        self.event = event
        self.answer = answer

    def holds(self, topics: Mapping[str, Topic]) -> bool:
        return tuple(map(topics.get, self.names)) == self.topics

    def commit(self, groups: Groups, call: Call, offsets: tuple[int, ...]) -> None:
        layout, event = self.layout, self.event
        if event.retention_time_ms == -1:
            response = groups.commit(
                layout, offsets, event.generation_id, event.member_id, event.group_instance_id
            )
            if response is not None:
                self.reply(call, response)
                return
        call.park()
        groups.submit_commit(
            OffsetCommit(
                partial(self.reply, call),
                event.group_id,
                LaidOutOffsets(layout, offsets),
                event.generation_id,
                event.member_id,
                event.group_instance_id,
                event.retention_time_ms,
                event.group_may_be_unknown,
            )
        )

    def reply(self, call: Call, response: CommitResponse) -> None:
        if response is self.layout.accepted:
            call.reply_encoded(self.answer)
        else:
            call.reply(_committed(call.request.message(), response))


def _prepared(broker: Broker, call: Call, request: commit.OffsetCommitRequest) -> PreparedCommit | None:
    """Prepares the commits in a layout; None if one of the partitions does not exist, or comes twice."""
    offsets, topics = _resolved(broker, request, call.version)
    distinct = {(each.topic, each.partition) for each in offsets if not each.refused}
    if len(distinct) < len(offsets):
        return None
    known = tuple(topic for topic in topics if topic is not None)
    event = _event(None, request, offsets, call.version)
    layout = CommitLayout(request.group_id, offsets)
    return PreparedCommit(layout, known, event, _all_is_well(call.version, _asked(request)))


class CommitAnswer:
    """Answers a commit.

    A consumer commits the same partitions again and again, nearly always without an error: that answer is encoded once.
    """

    __slots__ = ("call",)

    def __init__(self, call: Call) -> None:
        self.call = call

    def __call__(self, response: CommitResponse) -> None:
        call = self.call
        if any(response.errors):
            call.reply(_committed(call.request, response))
            return
        call.reply_encoded(_all_is_well(call.version, _asked(call.request)))


Asked = tuple[tuple[str, bytes, tuple[int, ...]], ...]


def _asked(request: commit.OffsetCommitRequest) -> Asked:
    return tuple(
        (each.name, each.topic_id, tuple([part.partition_index for part in each.partitions]))
        for each in request.topics
    )


@lru_cache(maxsize=1024)
def _all_is_well(version: int, asked: Asked) -> bytes:
    """Returns the encoded answer to a commit of these partitions without an error."""
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


def offset_fetch(broker: Broker, call: Call) -> fetch.OffsetFetchResponse | None:
    if call.version >= 8:
        _Fetches(broker, call).start()
        return None
    request: fetch.OffsetFetchRequest = call.request
    if not broker.may(call, _DESCRIBE, _GROUP, request.group_id):
        refused = FetchResponse(ErrorCode.GROUP_AUTHORIZATION_FAILED, request.group_id)
        return _fetched_one(request, refused, call.version)
    topics = None
    denied: list[tuple[str, tuple[int, ...]]] = []
    if request.topics is not None:
        asked = [(t.name, tuple(t.partition_indexes)) for t in request.topics]
        denied = [each for each in asked if not _may_describe(broker, call, each[0])]
        topics = tuple(each for each in asked if each not in denied)

    def convert(response: FetchResponse) -> fetch.OffsetFetchResponse:
        return _fetched_one(request, _only_described(broker, call, response, denied), call.version)

    call.park()
    answer = CallReply(call, convert)
    broker.groups.submit(OffsetFetch(answer, request.group_id, topics, request.require_stable))
    return None


def _may_describe(broker: Broker, call: Call, topic: str, *, audits_denial: bool = True) -> bool:
    return broker.guard is None or broker.may(call, _DESCRIBE, _TOPIC, topic, audits_denial=audits_denial)


def _only_described(
    broker: Broker, call: Call, response: FetchResponse, denied: Sequence[tuple[str, tuple[int, ...]]]
) -> FetchResponse:
    """Leaves out the topics that the caller may not know of; those that it named are refused."""
    if broker.guard is None or response.error:
        return response
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    topics = [each for each in response.topics if _may_describe(broker, call, each[0], audits_denial=False)]
    for name, indexes in denied:
        topics.append((name, tuple(FetchedOffset(index, NO_OFFSET, -1, "", refused) for index in indexes)))
    return FetchResponse(response.error, response.group_id, tuple(topics))


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


def _of_this_topic(each: FetchedOffset, topic_id: bytes) -> FetchedOffset:
    """Returns no offset in place of one that was committed for an older topic of the same name."""
    if each.topic_id in (ZERO_UUID, topic_id):
        return each
    return FetchedOffset(each.partition, error=each.error)


class _Fetches:
    """One OffsetFetch of many groups (v8+), answered when the last of them is."""

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
        if not self.broker.may(self.call, _DESCRIBE, _GROUP, group.group_id):
            self._done(index, FetchResponse(ErrorCode.GROUP_AUTHORIZATION_FAILED, group.group_id), [])
            return
        topics = None
        unknown: list[fetch.OffsetFetchRequestTopics] = []
        denied: list[tuple[str, tuple[int, ...]]] = []
        if group.topics is not None:
            wanted = []
            for each in group.topics:
                name = self._name_of(each)
                if name is None:
                    unknown.append(each)
                elif not _may_describe(self.broker, self.call, name):
                    denied.append((name, tuple(each.partition_indexes)))
                else:
                    wanted.append((name, tuple(each.partition_indexes)))
            topics = tuple(wanted)

        def on_reply(response: FetchResponse) -> None:
            self._done(index, _only_described(self.broker, self.call, response, denied), unknown)

        member_id, member_epoch = (
            (group.member_id, group.member_epoch) if self.call.version >= 9 else (None, -1)
        )
        self.broker.groups.submit(
            OffsetFetch(on_reply, group.group_id, topics, require_stable, member_id, member_epoch)
        )

    def _done(
        self, index: int, response: FetchResponse, unknown: list[fetch.OffsetFetchRequestTopics]
    ) -> None:
        named = self.call.request.groups[index].topics is not None
        self.answers[index] = self._convert(response, unknown, named=named)
        self.missing -= 1
        if not self.missing:
            answers = [answer for answer in self.answers if answer is not None]
            self.call.reply(fetch.OffsetFetchResponse(groups=answers))

    def _name_of(self, each: fetch.OffsetFetchRequestTopics) -> str | None:
        if not self.by_id:
            return each.name
        topic = self.broker.store.topics_by_id.get(each.topic_id)
        return topic.name if topic is not None else None

    def _convert(
        self, response: FetchResponse, unknown: list[fetch.OffsetFetchRequestTopics], *, named: bool
    ) -> fetch.OffsetFetchResponseGroup:
        answer = fetch.OffsetFetchResponseGroup(response.group_id, error_code=response.error)
        if response.error:
            return answer
        for name, offsets in response.topics:
            topic = self.broker.store.topics.get(name)
            topic_id = topic.topic_id if topic is not None else ZERO_UUID
            if self.by_id and topic is None:
                continue  # a deleted topic has no id to name it by
            if self.by_id and named:
                offsets = tuple(_of_this_topic(each, topic_id) for each in offsets)
            parts = [fetch.OffsetFetchResponsePartitions(*_fields(each)) for each in offsets]
            answer.topics.append(fetch.OffsetFetchResponseTopics(name, topic_id, parts))
        for each in unknown:
            parts = [
                fetch.OffsetFetchResponsePartitions(p, NO_OFFSET, -1, "", ErrorCode.UNKNOWN_TOPIC_ID)
                for p in each.partition_indexes
            ]
            answer.topics.append(fetch.OffsetFetchResponseTopics("", each.topic_id, parts))
        return answer


def offset_delete(broker: Broker, call: Call) -> delete.OffsetDeleteResponse | None:
    request: delete.OffsetDeleteRequest = call.request
    if not broker.may(call, AclOperation.DELETE, AclResource.GROUP, request.group_id):
        return delete.OffsetDeleteResponse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    denied = {each.name for each in request.topics if not broker.may(call, _READ, _TOPIC, each.name)}
    known: list[tuple[str, tuple[int, ...]]] = []
    for each in request.topics:
        topic = broker.store.topics.get(each.name)
        if topic is not None and each.name not in denied:
            indexes = (p.partition_index for p in each.partitions)
            known.append((each.name, tuple(i for i in indexes if 0 <= i < len(topic.partitions))))
    call.park()
    answer = CallReply(call, lambda response: _deleted(request, response, denied))
    broker.groups.submit(OffsetDelete(answer, request.group_id, tuple(known)))
    return None


def _deleted(
    request: delete.OffsetDeleteRequest, response: OffsetDeleteResponse, denied: Collection[str]
) -> delete.OffsetDeleteResponse:
    if response.error:
        return delete.OffsetDeleteResponse(response.error)
    errors = {(name, index): error for name, parts in response.topics for index, error in parts}
    answer = delete.OffsetDeleteResponse()
    for each in request.topics:
        parts = [
            delete.OffsetDeleteResponsePartition(
                p.partition_index,
                ErrorCode.TOPIC_AUTHORIZATION_FAILED
                if each.name in denied
                else errors.get((each.name, p.partition_index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            )
            for p in each.partitions
        ]
        answer.topics.append(delete.OffsetDeleteResponseTopic(each.name, parts))
    return answer
