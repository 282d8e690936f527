"""Handles ShareAcknowledge, and the acknowledgements that come with a ShareFetch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

from kohort.security.acls import AclOperation, AclResource
from kohort.share.partition import AcknowledgedRange
from kohort.share.record_state import ACCEPT, GAP, REJECT, RELEASE, RENEW
from kohort.share.sessions import FINAL_EPOCH, ShareSessionKey, TopicIdPartition
from kohort.share.state import SharePartitionKey
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.share_acknowledge import (
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)

if TYPE_CHECKING:
    from kohort.broker.broker import Broker
    from kohort.broker.call import Call

LONGEST_MEMBER_ID = 36
_READ, _TOPIC, _GROUP = AclOperation.READ, AclResource.TOPIC, AclResource.GROUP
_KINDS = {GAP, ACCEPT, RELEASE, REJECT, RENEW}

AcknowledgeErrors = dict[TopicIdPartition, ErrorCode]


class _Batch(Protocol):
    first_offset: int
    last_offset: int
    acknowledge_types: list[int]


def share_acknowledge(broker: Broker, call: Call) -> ShareAcknowledgeResponse | None:
    request: ShareAcknowledgeRequest = call.request
    error = refusal(broker, call, request.group_id, request.member_id)
    if error:
        return ShareAcknowledgeResponse(error_code=error)
    key = ShareSessionKey(request.group_id or "", request.member_id or "")
    error = broker.shares.sessions.acknowledge(key, request.share_session_epoch)
    if error:
        return ShareAcknowledgeResponse(error_code=error)
    acknowledgements = {
        (topic.topic_id, partition.partition_index): list(read_batches(partition.acknowledgement_batches))
        for topic in request.topics
        for partition in topic.partitions
    }

    def done(errors: AcknowledgeErrors) -> None:
        if request.share_session_epoch == FINAL_EPOCH:
            session = broker.shares.sessions.get(key)
            if session is not None:
                broker.shares.close_session(session)
        call.reply(_answer(broker, key.group_id, errors))

    call.park()
    is_renew = call.version >= 2 and request.is_renew_ack
    AcknowledgedPartitions(broker, call, key, acknowledgements, is_renew, done)
    return None


def _answer(broker: Broker, group_id: str, errors: AcknowledgeErrors) -> ShareAcknowledgeResponse:
    topics: dict[bytes, ShareAcknowledgeTopicResponse] = {}
    for (topic_id, index), error in errors.items():
        topic = topics.setdefault(topic_id, ShareAcknowledgeTopicResponse(topic_id))
        data = PartitionData(index, error)
        if error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            data.current_leader.leader_id = broker.node_id
            data.current_leader.leader_epoch = broker.store.leader_epoch
        topic.partitions.append(data)
    lock_ms = broker.shares.config_of(group_id).share_record_lock_duration_ms
    return ShareAcknowledgeResponse(acquisition_lock_timeout_ms=lock_ms, responses=list(topics.values()))


def refusal(broker: Broker, call: Call, group_id: str | None, member_id: str | None) -> ErrorCode:
    """Returns why a share request is refused as a whole; NONE if it is not."""
    if group_id is None:
        return ErrorCode.INVALID_REQUEST
    if not broker.may(call, _READ, _GROUP, group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    if not member_id or len(member_id) > LONGEST_MEMBER_ID:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def read_batches(batches: Iterable[_Batch]) -> Iterator[AcknowledgedRange]:
    for batch in batches:
        yield AcknowledgedRange(batch.first_offset, batch.last_offset, batch.acknowledge_types)


def are_valid(acknowledgements: list[AcknowledgedRange], is_renew: bool) -> bool:
    """Tells whether the acknowledgements of a partition make sense, whatever the state of its records is."""
    end = -1
    for first, last, types in acknowledgements:
        if first > last or first <= end or not types:
            return False
        if len(types) > 1 and last - first + 1 != len(types):
            return False
        if not _KINDS.issuperset(types) or (RENEW in types and not is_renew):
            return False
        end = last
    return True


class AcknowledgedPartitions:
    """Acknowledges records of several partitions, each for itself, and calls `done` when all are answered."""

    def __init__(
        self,
        broker: Broker,
        call: Call,
        key: ShareSessionKey,
        acknowledgements: dict[TopicIdPartition, list[AcknowledgedRange]],
        is_renew: bool,
        done: Callable[[AcknowledgeErrors], None],
    ) -> None:
        self._broker, self._call, self._key = broker, call, key
        self._errors: AcknowledgeErrors = dict.fromkeys(acknowledgements, ErrorCode.NONE)
        self._left = len(acknowledgements) + 1
        self._done = done
        for partition, batches in acknowledgements.items():
            self._acknowledge(partition, batches, is_renew)
        self._one_less()

    def _acknowledge(self, where: TopicIdPartition, batches: list[AcknowledgedRange], is_renew: bool) -> None:
        def answered(error: ErrorCode) -> None:
            self._errors[where] = error
            self._one_less()

        topic = self._broker.store.topics_by_id.get(where[0])
        if topic is None:
            answered(ErrorCode.UNKNOWN_TOPIC_ID)
        elif not are_valid(batches, is_renew):
            answered(ErrorCode.INVALID_REQUEST)
        elif not self._broker.may(self._call, _READ, _TOPIC, topic.name):
            answered(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        elif not 0 <= where[1] < len(topic.partitions):
            answered(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif not batches:
            answered(ErrorCode.NONE)
        else:
            led = self._broker.shares.get(SharePartitionKey(self._key.group_id, *where))
            if led is None:
                answered(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                led.acknowledge(self._key.member_id, batches, answered)

    def _one_less(self) -> None:
        self._left -= 1
        if not self._left:
            self._done(self._errors)
