"""What a broker's error code means for a transactional producer: ask again, abort, or give up; and the words for it."""

from __future__ import annotations

from enum import Enum

from kohort.client.errors import FatalProducerError, ProducerFenced, TransactionFailed
from kohort.wire.errors import ErrorCode, KafkaError


class Verdict(Enum):
    """What follows an error code in the answer to a request of a transaction."""

    AGAIN = "ask again"
    LOOK_UP = "look the coordinator up, and ask again"
    ABORT = "abort the transaction"
    FATAL = "give up"


_LOOK_UP = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
_AGAIN = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)
_ABORT = frozenset(
    {
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    }
)
FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
"""The coordinator knows a newer epoch of this transactional.id."""

MAY_BE_ALLOWED_LATER = frozenset(
    {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
)
"""Errors of `init_transactions` after which it may be called again; anywhere else they are fatal."""

_GROUP_MOVED_ON = (
    "the group moved on, this consumer does not own its partitions: take group_metadata() after each poll"
)
_ADVICE = {
    ErrorCode.PRODUCER_FENCED: "another producer has taken over the transactional.id, or the transaction took longer "
    "than transaction.timeout.ms",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "allow this client WRITE and DESCRIBE on the transactional.id",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "allow this client IDEMPOTENT_WRITE on the cluster",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "allow this client WRITE on the topics that it writes to, and READ on those "
    "whose offsets it commits",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "allow this client READ on the group",
    ErrorCode.UNKNOWN_MEMBER_ID: _GROUP_MOVED_ON,
    ErrorCode.ILLEGAL_GENERATION: _GROUP_MOVED_ON,
    ErrorCode.STALE_MEMBER_EPOCH: _GROUP_MOVED_ON,
    ErrorCode.FENCED_INSTANCE_ID: "another consumer runs with the same group.instance.id",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "lower transaction.timeout.ms, or raise the broker's "
    "transaction.max.timeout.ms",
    ErrorCode.INVALID_TXN_STATE: "the broker has ended the transaction, perhaps because it took longer than "
    "transaction.timeout.ms",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "the coordinator has forgotten the transactional.id or gave it to another "
    "producer (transactional.id.expiration.ms)",
    ErrorCode.UNSUPPORTED_VERSION: "the broker is too old for this",
}


def verdict_of(code: ErrorCode) -> Verdict:
    """Returns what follows an error of the coordinator; those of Produce are looked at by the sender."""
    if code in _LOOK_UP:
        return Verdict.LOOK_UP
    if code in _AGAIN:
        return Verdict.AGAIN
    return Verdict.ABORT if code in _ABORT else Verdict.FATAL


def _words(code: ErrorCode, doing: str, said: str) -> str:
    advice = _ADVICE.get(ErrorCode.PRODUCER_FENCED if code in FENCED else code)
    return f"{doing}{f': {advice}' if advice else ''}{f' ({said})' if said else ''}"


def abortable(code: ErrorCode, doing: str, said: str = "") -> TransactionFailed:
    return TransactionFailed(code, _words(code, doing, said))


def fatal(code: ErrorCode, doing: str, said: str = "") -> FatalProducerError:
    """Makes the error after which the producer can do nothing any more."""
    if code in FENCED:
        return ProducerFenced(ErrorCode.PRODUCER_FENCED, _words(code, doing, said))
    return FatalProducerError(code, _words(code, doing, said))


def code_in(error: Exception) -> ErrorCode:
    """Returns the code of the error of a batch; one that has expired has the code of a timeout."""
    return error.code if isinstance(error, KafkaError) else ErrorCode.REQUEST_TIMED_OUT
