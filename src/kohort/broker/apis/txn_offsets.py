"""Handles TxnOffsetCommit: offsets that a transaction commits, for a group.

They are pending until the transaction's marker comes. Before its first offsets are written to a partition of
`__consumer_offsets`, the transaction's coordinator is asked, as before the first batch of a Produce.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.broker.apis.transactions import may_write, offsets_partition
from kohort.broker.broker import Broker
from kohort.broker.call import Call
from kohort.broker.verification import PartitionsQuestion, TopicIndex, commit_error
from kohort.coordinator.effects import CommitResponse
from kohort.coordinator.events import OffsetToCommit, TxnOffsetCommit
from kohort.security.acls import AclOperation, AclResource
from kohort.wire.errors import ErrorCode
from kohort.wire.messages import txn_offset_commit as commit
from kohort.wire.struct import ZERO_UUID

if TYPE_CHECKING:
    from kohort.log.storage.transactions import Verification

_ADDS_SINCE = 5
_KNOWS_LOADING = 2


def txn_offset_commit(broker: Broker, call: Call) -> commit.TxnOffsetCommitResponse | None:
    request: commit.TxnOffsetCommitRequest = call.request
    if not may_write(broker, call, request.transactional_id):
        return _all(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not broker.may(call, AclOperation.READ, AclResource.GROUP, request.group_id):
        return _all(request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not request.group_id:
        return _all(request, ErrorCode.INVALID_GROUP_ID)
    offsets = _offsets(broker, call)
    if all(each.refused for each in offsets):
        return _committed(call, CommitResponse(tuple(each.refused for each in offsets)))
    call.park()
    place = offsets_partition(broker, request.group_id)
    found = broker.partition(*place)
    if isinstance(found, ErrorCode) or not broker.groups.is_active(place[1]):
        _submit(broker, call, offsets, None)  # which tells that it is loading, or not here
        return None
    adds = call.version >= _ADDS_SINCE
    guard = found.begin_verification(
        request.producer_id, request.producer_epoch, -1, adds=adds, now_ms=broker.now_ms()
    )
    if guard is None:
        _submit(broker, call, offsets, None)
        return None

    def answered(error: ErrorCode, missing: frozenset[TopicIndex]) -> None:
        error = error or (ErrorCode.TRANSACTION_ABORTABLE if missing else ErrorCode.NONE)
        if error:
            told = commit_error(error, call.version)
            call.reply(_committed(call, CommitResponse(tuple(o.refused or told for o in offsets))))
        else:
            _submit(broker, call, offsets, guard)

    PartitionsQuestion(
        broker.transactions,
        call.connection.loop,
        broker.config,
        request.transactional_id,
        (request.producer_id, request.producer_epoch),
        adds=adds,
        done=answered,
        meter=broker.meter,
    ).ask(frozenset({place}))
    return None


def _offsets(broker: Broker, call: Call) -> tuple[OffsetToCommit, ...]:
    request: commit.TxnOffsetCommitRequest = call.request
    offsets = []
    for topic in request.topics:
        known = broker.store.topics.get(topic.name)
        topic_id = ZERO_UUID if known is None else known.topic_id
        may_read = broker.may(call, AclOperation.READ, AclResource.TOPIC, topic.name)
        for part in topic.partitions:
            refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            if may_read:
                found = broker.partition(topic.name, part.partition_index)
                refused = found if isinstance(found, ErrorCode) else ErrorCode.NONE
            offsets.append(
                OffsetToCommit(
                    topic.name,
                    part.partition_index,
                    part.committed_offset,
                    part.committed_leader_epoch,
                    part.committed_metadata,
                    refused,
                    topic_id,
                )
            )
    return tuple(offsets)


def _submit(
    broker: Broker, call: Call, offsets: tuple[OffsetToCommit, ...], guard: Verification | None
) -> None:
    request: commit.TxnOffsetCommitRequest = call.request

    def answered(response: CommitResponse) -> None:
        call.reply(_committed(call, response))

    broker.groups.submit(
        TxnOffsetCommit(
            answered,
            request.group_id,
            offsets,
            request.producer_id,
            request.producer_epoch,
            request.generation_id,
            request.member_id,
            request.group_instance_id,
            guard,
        )
    )


def _committed(call: Call, response: CommitResponse) -> commit.TxnOffsetCommitResponse:
    errors = iter(response.errors)
    answer = commit.TxnOffsetCommitResponse()
    for topic in call.request.topics:
        parts = []
        for part in topic.partitions:
            error = next(errors)
            if call.version < _KNOWS_LOADING and error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                error = ErrorCode.COORDINATOR_NOT_AVAILABLE
            parts.append(commit.TxnOffsetCommitResponsePartition(part.partition_index, error))
        answer.topics.append(commit.TxnOffsetCommitResponseTopic(topic.name, parts))
    return answer


def _all(request: commit.TxnOffsetCommitRequest, error: ErrorCode) -> commit.TxnOffsetCommitResponse:
    answer = commit.TxnOffsetCommitResponse()
    for topic in request.topics:
        parts = [commit.TxnOffsetCommitResponsePartition(p.partition_index, error) for p in topic.partitions]
        answer.topics.append(commit.TxnOffsetCommitResponseTopic(topic.name, parts))
    return answer
