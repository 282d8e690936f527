"""Reads the outcome of each batch from an answer to Produce: what is retried, and the text of errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kohort.client.config import ProducerConfig
from kohort.client.core.cluster import Node
from kohort.client.core.effects import Answer, Failure, FailureKind
from kohort.client.errors import error_for
from kohort.client.produce.accumulator import PartitionQueue
from kohort.client.produce.batch import Batch, BatchMemberFailed
from kohort.client.types import TopicPartition
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.produce import BatchIndexAndErrorMessage, ProduceResponse
from kohort.wire.struct import ZERO_UUID

OUTDATED_METADATA = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""Errors after which the leader may be another node."""

RETRIABLE = OUTDATED_METADATA | {
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}

FATAL = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
"""Errors that every other batch of this producer would get too."""

_ASKED_IN_VAIN = 4
"""The number of attempts after which new metadata should have helped."""

_ADVICE = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "this client may not write to the topic: allow it WRITE there",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "this client may not write idempotently: allow it IDEMPOTENT_WRITE, or set "
    "enable.idempotence=false",
    ErrorCode.NOT_ENOUGH_REPLICAS: "too few replicas are in sync (the topic's min.insync.replicas)",
    ErrorCode.INVALID_TIMESTAMP: "the time of a record is too far from the broker's (message.timestamp.before.max.ms, "
    "message.timestamp.after.max.ms)",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "choose another compression.type",
    ErrorCode.INVALID_REQUIRED_ACKS: "the broker does not take this value of acks",
    ErrorCode.UNSUPPORTED_VERSION: "the broker serves no version of Produce that this client speaks (3 to 13)",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "the topic or partition is not there, or may not be seen: create it, or "
    "check its name",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the answer of a broker, or the lack of one, means for one batch."""

    code: ErrorCode = ErrorCode.NONE
    message: str = ""
    base_offset: int = -1
    append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[BatchIndexAndErrorMessage] = ()
    failure: FailureKind | None = None


def outcome_of(failure: Failure) -> Outcome:
    """Gives a request without an answer the error code that Kafka's clients use."""
    code = {
        FailureKind.DISCONNECTED: ErrorCode.NETWORK_EXCEPTION,
        FailureKind.TIMED_OUT: ErrorCode.REQUEST_TIMED_OUT,
        FailureKind.UNSUPPORTED_VERSION: ErrorCode.UNSUPPORTED_VERSION,
        FailureKind.AUTHENTICATION: ErrorCode.SASL_AUTHENTICATION_FAILED,
        FailureKind.UNENCODABLE: ErrorCode.INVALID_REQUEST,
        FailureKind.BAD_ANSWER: ErrorCode.NETWORK_EXCEPTION,
    }[failure.kind]
    return Outcome(code, failure.message, failure=failure.kind)


Leader = tuple[TopicPartition, int, int, list[Node]]
"""A partition, its new leader and epoch, and the nodes that the answer names (KIP-951)."""


def outcomes_of(
    answer: Answer, batches: Sequence[Batch]
) -> tuple[dict[PartitionQueue, Outcome], list[Leader]]:
    """Reads the outcome of each partition from an answer to Produce, and the leaders that have changed."""
    if answer.failure is not None:
        lost = outcome_of(answer.failure)
        return {batch.queue: lost for batch in batches}, []
    response: ProduceResponse | None = answer.response
    if response is None:  # acks=0
        return {batch.queue: Outcome() for batch in batches}, []
    silent = Outcome(ErrorCode.UNKNOWN_SERVER_ERROR, "the broker's answer does not name the partition")
    outcomes = {batch.queue: silent for batch in batches}
    queues: dict[tuple[str | bytes, int], PartitionQueue] = {}
    for queue in outcomes:
        queues[queue.topic, queue.index] = queues[queue.topic_queues.topic_id, queue.index] = queue
    leaders: list[Leader] = []
    for topic in response.responses:
        name = topic.name if topic.topic_id == ZERO_UUID else topic.topic_id
        for said in topic.partition_responses:
            found = queues.get((name, said.index))
            if found is None:
                continue
            outcomes[found] = Outcome(
                code_of(said.error_code), said.error_message or "", said.base_offset, said.log_append_time_ms,
                said.log_start_offset, said.record_errors,
            )  # fmt: skip
            leader = said.current_leader
            if said.error_code and leader.leader_id >= 0 and leader.leader_epoch >= 0:
                nodes = [Node(n.node_id, n.host, n.port, n.rack) for n in response.node_endpoints]
                at = TopicPartition(found.topic, found.index)
                leaders.append((at, leader.leader_id, leader.leader_epoch, nodes))
    return outcomes, leaders


def code_of(code: int) -> ErrorCode:
    """Returns the error code; UNKNOWN_SERVER_ERROR for a number that this version does not know."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def is_worth_a_warning(batch: Batch, outcome: Outcome) -> bool:
    """Tells whether to log a warning that a batch is sent again: once for each batch.

    If the leader has moved, or the topic was just created, new metadata helps; a warning follows only if it does not.
    """
    expected = outcome.code in OUTDATED_METADATA and outcome.failure is None
    return batch.attempts == (_ASKED_IN_VAIN if expected else 1)


def words_for_retry(batch: Batch, outcome: Outcome) -> str:
    why = f"{outcome.code.name}: {outcome.message}" if outcome.message else outcome.code.name
    return (
        f"{batch.queue}: a batch of {batch.count} records was not written ({why}); attempt "
        f"{batch.attempts + 1} follows"
    )


def words_for(batch: Batch, outcome: Outcome, config: ProducerConfig) -> str:
    """Describes to the user why a batch was not written."""
    said = f" (the broker says: {outcome.message})" if outcome.message else ""
    what = f"{batch.count} record{'s' if batch.count > 1 else ''} for {batch.queue}"
    if outcome.code is ErrorCode.MESSAGE_TOO_LARGE:
        size = len(batch.encoded) if batch.encoded is not None else batch.size
        return (
            f"a batch of {what} takes {size} bytes, which is more than the topic's max.message.bytes or the broker's "
            f"message.max.bytes; max.request.size here is {config.max_request_size}{said}"
        )
    tries = f" after {batch.attempts + 1} attempts" if batch.attempts else ""
    advice = _ADVICE.get(outcome.code)
    return f"{what} not written{tries}{f': {advice}' if advice else ''}{said}"


def record_errors(outcome: Outcome) -> dict[int, Exception] | None:
    """Returns the errors of single records: the refused ones have their own, all others BatchMemberFailed."""
    if not outcome.record_errors:
        return None
    bad: dict[int, Exception] = {}
    alone = len(outcome.record_errors) == 1
    for each in outcome.record_errors:
        message = each.batch_index_error_message or outcome.message
        bad[each.batch_index] = error_for(outcome.code if alone else ErrorCode.INVALID_RECORD, message)
    return _Rest(bad)


class _Rest(dict[int, Exception]):
    """The errors of the refused records, and BatchMemberFailed for all others."""

    def get(self, index: int, default: Exception | None = None) -> Exception:  # type: ignore[override]
        if index in self:
            return self[index]
        return BatchMemberFailed(
            f"not written, because {len(self)} other record{'s' if len(self) > 1 else ''} of the same batch "
            f"{'were' if len(self) > 1 else 'was'} refused ({default})"
        )
