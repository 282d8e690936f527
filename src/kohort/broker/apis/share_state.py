"""Handles the five APIs of share state (83–87), by which nodes ask the share coordinator."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from kohort.security.acls import AclOperation
from kohort.share.partition import StateBatch
from kohort.share.state import SharePartitionKey
from kohort.share.state_events import (
    DeleteState,
    InitializeState,
    ReadState,
    ReadStateSummary,
    ShareStateRequest,
    StateAnswer,
    StateToken,
    WriteState,
)
from kohort.wire.errors import ErrorCode
from kohort.wire.messages import delete_share_group_state as delete
from kohort.wire.messages import initialize_share_group_state as initialize
from kohort.wire.messages import read_share_group_state as read
from kohort.wire.messages import read_share_group_state_summary as summary
from kohort.wire.messages import write_share_group_state as write
from kohort.wire.struct import Message

if TYPE_CHECKING:
    from kohort.broker.broker import Broker
    from kohort.broker.call import Call


class _Api(NamedTuple):
    """How one of the APIs becomes requests of the share coordinator, and its answers a response."""

    asked: Callable[[StateToken, SharePartitionKey, Any], ShareStateRequest]
    result: Callable[[int, StateAnswer], Any]
    topic: Callable[[bytes, list[Any]], Any]
    response: Callable[[list[Any]], Message]


def initialize_share_group_state(broker: Broker, call: Call) -> Message | None:
    return _serve(broker, call, _INITIALIZE)


def read_share_group_state(broker: Broker, call: Call) -> Message | None:
    return _serve(broker, call, _READ)


def write_share_group_state(broker: Broker, call: Call) -> Message | None:
    return _serve(broker, call, _WRITE)


def delete_share_group_state(broker: Broker, call: Call) -> Message | None:
    return _serve(broker, call, _DELETE)


def read_share_group_state_summary(broker: Broker, call: Call) -> Message | None:
    return _serve(broker, call, _SUMMARY)


def _serve(broker: Broker, call: Call, api: _Api) -> Message | None:
    request = call.request
    places = [(topic.topic_id, each) for topic in request.topics for each in topic.partitions]
    if not broker.may_in_cluster(call, AclOperation.CLUSTER_ACTION):
        refused = StateAnswer(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return _answer(api, places, [refused] * len(places))
    if not request.group_id or not places:
        return api.response([])
    answers: list[StateAnswer | None] = [None] * len(places)
    left = len(places)
    call.park()

    def slot(index: int) -> Callable[[StateAnswer], None]:
        def answered(answer: StateAnswer) -> None:
            nonlocal left
            answers[index] = answer
            left -= 1
            if not left:
                call.reply(_answer(api, places, answers))

        return answered

    for index, (topic_id, partition) in enumerate(places):
        key = SharePartitionKey(request.group_id, topic_id, partition.partition)
        broker.share_states.submit(api.asked(slot(index), key, partition))
    return None


def _answer(api: _Api, places: list[tuple[bytes, Any]], answers: list[Any]) -> Message:
    topics: dict[bytes, list[Any]] = {}
    for (topic_id, partition), answer in zip(places, answers, strict=True):
        topics.setdefault(topic_id, []).append(api.result(partition.partition, answer))
    return api.response([api.topic(topic_id, results) for topic_id, results in topics.items()])


def _read_result(index: int, answer: StateAnswer) -> read.PartitionResult:
    if answer.state is None:
        return read.PartitionResult(index, answer.error, answer.message)
    state = answer.state
    batches = [read.StateBatch(*batch) for batch in state.batches]
    return read.PartitionResult(index, 0, None, state.state_epoch, state.start_offset, batches)


def _summary_result(index: int, answer: StateAnswer) -> summary.PartitionResult:
    if answer.state is None:
        return summary.PartitionResult(index, answer.error, answer.message)
    state = answer.state
    return summary.PartitionResult(
        index,
        0,
        None,
        state.state_epoch,
        state.leader_epoch,
        state.start_offset,
        state.delivery_complete_count,
    )


def _asked_to_write(request: StateToken, key: SharePartitionKey, partition: Any) -> WriteState:
    batches = tuple(
        StateBatch(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count)
        for b in partition.state_batches
    )
    return WriteState(
        request,
        key,
        partition.state_epoch,
        partition.leader_epoch,
        partition.start_offset,
        partition.delivery_complete_count,
        batches,
    )


_INITIALIZE = _Api(
    lambda request, key, p: InitializeState(request, key, p.state_epoch, p.start_offset),
    lambda index, answer: initialize.PartitionResult(index, answer.error, answer.message),
    initialize.InitializeStateResult,
    initialize.InitializeShareGroupStateResponse,
)
_READ = _Api(
    lambda request, key, p: ReadState(request, key, p.leader_epoch),
    _read_result,
    read.ReadStateResult,
    read.ReadShareGroupStateResponse,
)
_WRITE = _Api(
    _asked_to_write,
    lambda index, answer: write.PartitionResult(index, answer.error, answer.message),
    write.WriteStateResult,
    write.WriteShareGroupStateResponse,
)
_DELETE = _Api(
    lambda request, key, p: DeleteState(request, key),
    lambda index, answer: delete.PartitionResult(index, answer.error, answer.message),
    delete.DeleteStateResult,
    delete.DeleteShareGroupStateResponse,
)
_SUMMARY = _Api(
    lambda request, key, p: ReadStateSummary(request, key, p.leader_epoch),
    _summary_result,
    summary.ReadStateSummaryResult,
    summary.ReadShareGroupStateSummaryResponse,
)
