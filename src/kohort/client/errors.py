"""The exceptions that users of the client see; all are KohortError.

KohortError
├── KafkaError                  what a broker answered; `.code`
│   ├── CommitFailed              the group moved on: this consumer does not own what it wants to commit
│   ├── RebalanceInProgress       the group is rebalancing: poll, then commit again
│   ├── RetriableCommitFailed     an asynchronous commit got no answer, or one that may be better next time
│   ├── FencedInstanceId          another consumer runs with the same group.instance.id
│   ├── AuthorizationFailed       of a topic, a group or the cluster
│   ├── TransactionFailed         the transaction cannot be committed: abort it, then repeat it with the same producer
│   ├── FatalProducerError        this transactional producer can do nothing any more: close it and make another
│   │   └── ProducerFenced          another producer has taken over its transactional.id
│   └── OffsetOutOfRange          the position is not in the log and auto.offset.reset is none
│       └── LogTruncation           the log was cut back behind the position after a change of leader
├── PartlyFailed                some of several things went wrong; `.errors` and `.results` say which
├── TransactionAborted          the record was not written, because its transaction was aborted before
├── NoOffsetForPartition        nothing is committed and auto.offset.reset is none
├── TimedOut                    the caller's time is up; says what was being waited for
├── Wakeup                      `wakeup()` was called
├── CorruptRecord               a batch that is not what was written; stops its partition until a seek
├── SerializationFailed / DeserializationFailed   a user's (de)serializer raised
├── SettingError (in settings.py)   a setting that is unknown or wrong, or that this client does not have; a ValueError
├── ConcurrentUse               two threads in one consumer
├── WrongArgument               what a call was given; a ValueError and a TypeError too, says what is right
├── ClosedClient                used after `close`, or in a forked child
├── AuthenticationFailed        wrong credentials or a TLS handshake that failed
└── IllegalState                a call that the subscription does not allow; says which one does
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kohort.client.core.effects import Failure, FailureKind
from kohort.client.types import OffsetAndMetadata, TopicPartition
from kohort.wire.errors import ErrorCode, KafkaError, KohortError


class CommitFailed(KafkaError):
    """The commit was refused because this consumer is not a (current) member any more."""

    what_to_do = (
        "Poll again: the consumer joins anew. Records since the last commit are worked on again by "
        "whoever owns them now. If it repeats, handle fewer records per poll (max.poll.records) or raise "
        "max.poll.interval.ms; `kohort groups why GROUP` says which member was too slow."
    )


class RebalanceInProgress(KafkaError):
    """The commit was refused because the group is rebalancing; poll finishes the rebalance."""

    what_to_do = "Call poll, which finishes the rebalance, then commit what is still assigned."


class RetriableCommitFailed(KafkaError):
    """An asynchronous commit that may or may not have been carried out; committing again, or later, is safe."""

    what_to_do = "Nothing, if you commit again later: each commit holds all that the ones before it said."


class FencedInstanceId(KafkaError):
    """Another consumer has joined with the same group.instance.id."""

    what_to_do = "Give each consumer a group.instance.id of its own, and close this one."


class AuthorizationFailed(KafkaError):
    """Not allowed to touch a topic, a group or the cluster."""

    what_to_do = (
        "Let the administrator allow READ, WRITE or DESCRIBE on what the text names, or connect as "
        "another user."
    )


class TransactionFailed(KafkaError):
    """The open transaction cannot be committed any more; the producer is well, and goes on after an abort."""

    what_to_do = (
        "Call abort_transaction(), seek the consumer back to its committed offsets if there is one, and do the "
        "transaction again; the same producer can be used."
    )


class FatalProducerError(KafkaError):
    """A transactional producer got an answer after which it can do nothing any more, not even abort."""

    what_to_do = (
        "Close this producer and make a new one: its init_transactions() aborts what this one left open. The text "
        "names the cause."
    )


class ProducerFenced(FatalProducerError):
    """Another producer has taken over the transactional.id, or the broker has ended a transaction that took long."""

    what_to_do = (
        "Close this producer. If two programs use one transactional.id, give each its own; if the transaction took "
        "longer than transaction.timeout.ms, raise that, and go on with a new producer."
    )


class TransactionAborted(KohortError):
    """A record was not written, because its transaction was aborted before it was sent."""

    what_to_do = (
        "Nothing, if you aborted the transaction; else the error of the transaction says why it failed."
    )


class OffsetOutOfRange(KafkaError):
    """Positions that are not in the log, and no reset policy."""

    what_to_do = (
        "Seek to an offset in the log (beginning_offsets, end_offsets), or set auto.offset.reset to "
        "earliest or latest."
    )

    def __init__(self, message: str, partitions: Mapping[TopicPartition, int]) -> None:
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        self.partitions = dict(partitions)


class LogTruncation(OffsetOutOfRange):
    """The leader's log does not hold what was read before these positions, and there is no reset policy.

    `divergent` says, where the leader knows it, up to which offset both agree: seek there to read on.
    """

    what_to_do = (
        "Seek to `error.divergent[partition]`, up to where both logs agree, and expect records after it "
        "to be gone."
    )

    def __init__(
        self,
        message: str,
        partitions: Mapping[TopicPartition, int],
        divergent: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> None:
        super().__init__(message, partitions)
        self.divergent = dict(divergent)


class NoOffsetForPartition(KohortError):
    """No committed offset and no reset policy for these partitions."""

    what_to_do = "Seek, commit an offset first, or set auto.offset.reset to earliest or latest."

    def __init__(self, message: str, partitions: tuple[TopicPartition, ...]) -> None:
        super().__init__(message)
        self.partitions = partitions


class PartlyFailed(KohortError):
    """Of several things that were asked for, some failed; what succeeded stays done."""

    what_to_do = (
        "Look at `.errors`, an error for each thing that failed, and repeat only those; `.results` has "
        "what is done."
    )

    def __init__(self, errors: Mapping[Any, KafkaError], results: Mapping[Any, Any]) -> None:
        super().__init__("; ".join(f"{item}: {error}" for item, error in errors.items()))
        self.errors = dict(errors)
        self.results = dict(results)


class TimedOut(KohortError, TimeoutError):
    """The time that the caller gave is up."""

    what_to_do = (
        "The text names the obstacle. If it is a broker that does not answer, check bootstrap.servers, "
        "the broker's advertised.listeners and the firewall (`kohort doctor`); if the work just takes "
        "long, give the call a longer timeout."
    )


class Wakeup(KohortError):
    """Another thread called `wakeup()`."""

    what_to_do = "Nothing: `wakeup()` was called to end this call. Leave the loop, and close the consumer."


class CorruptRecord(KafkaError):
    """A damaged batch; reading goes on after a seek past it."""

    what_to_do = (
        "Seek past `error.offset` to go on without the damaged batch, and look at the disk of the broker "
        "that has it."
    )

    def __init__(self, message: str, partition: TopicPartition, offset: int) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)
        self.partition = partition
        self.offset = offset


class SerializationFailed(KohortError):
    """A key or value serializer raised; the cause is attached."""

    what_to_do = (
        "Correct what is sent, or the serializer; the exception of the serializer is the cause (`__cause__`)."
    )


class DeserializationFailed(KohortError):
    """A key or value deserializer raised; the cause is attached. Seek past the record to go on.

    The record is here as it was read, to be kept elsewhere: `partition` (with its `topic`), `offset`, `timestamp`,
    `timestamp_type`, `key` and `value` as bytes or None, and `headers`; `origin` is "key" or "value", which failed.
    """

    what_to_do = (
        "Keep the record elsewhere (a dead-letter topic), then `consumer.seek(error.partition, "
        "error.offset + 1)`."
    )

    def __init__(
        self,
        message: str,
        partition: TopicPartition,
        offset: int,
        *,
        origin: str = "value",
        timestamp: int = -1,
        timestamp_type: int = 0,
        key: bytes | None = None,
        value: bytes | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
    ) -> None:
        super().__init__(message)
        self.topic = partition.topic
        self.partition = partition
        self.offset = offset
        self.origin = origin
        self.timestamp = timestamp
        self.timestamp_type = timestamp_type
        self.key = key
        self.value = value
        self.headers = list(headers)


class ConcurrentUse(KohortError):
    """A consumer is for one thread at a time; only `wakeup` may come from another."""

    what_to_do = (
        "Give each thread a consumer of its own, or put one thread in front of it; only `wakeup()` may "
        "come from another."
    )


class WrongArgument(KohortError, ValueError, TypeError):
    """A call was given something that it cannot use; nothing has happened, and the client goes on as before."""

    what_to_do = (
        "Correct the argument as the text says; nothing has happened, and the client goes on as before."
    )


class ClosedClient(KohortError):
    """The client was closed, or belongs to the parent process."""

    what_to_do = "Make a new client. After a fork, make it in the child."


class AuthenticationFailed(KohortError):
    """The broker did not accept the credentials, or the TLS handshake failed."""

    what_to_do = (
        "Check sasl.mechanism, sasl.username and sasl.password, or with TLS ssl.ca.location and the name "
        "in the broker's certificate."
    )


class IllegalState(KohortError):
    """The call does not fit what the client is subscribed to or assigned."""

    what_to_do = (
        "Use the call that the text names: subscribe and assign do not mix, and commits need a group.id."
    )


AUTHORIZATION = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)


def known_code(code: int) -> ErrorCode:
    """Returns the error code; UNKNOWN_SERVER_ERROR for one of a newer broker, which has no name here."""
    return ErrorCode(code) if code in ErrorCode._value2member_map_ else ErrorCode.UNKNOWN_SERVER_ERROR


def error_for_failure(failure: Failure, doing: str) -> KohortError:
    """Makes the exception for a request that got no answer; `doing` says what it was for: "committing orders-0"."""
    message = f"{doing}: {failure.kind.value}" + (f": {failure.message}" if failure.message else "")
    if failure.kind is FailureKind.AUTHENTICATION:
        return AuthenticationFailed(message)
    if failure.kind is FailureKind.UNSUPPORTED_VERSION:
        return KafkaError(ErrorCode.UNSUPPORTED_VERSION, message)
    if failure.kind is FailureKind.UNENCODABLE:
        return KafkaError(ErrorCode.INVALID_REQUEST, message)
    if failure.kind is FailureKind.TIMED_OUT:
        return KafkaError(ErrorCode.REQUEST_TIMED_OUT, message)
    if failure.kind is FailureKind.DISCONNECTED:
        return KafkaError(ErrorCode.NETWORK_EXCEPTION, message)
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, message)


def error_for(code: int, message: str) -> KafkaError:
    """Makes the exception for a broker's error code, with words that say what to do."""
    known = known_code(code)
    if known is ErrorCode.FENCED_INSTANCE_ID:
        return FencedInstanceId(known, message)
    if known in AUTHORIZATION:
        return AuthorizationFailed(known, message)
    return KafkaError(known, message)


SENT_WITHIN_SEND = (
    "send() was called by the handler of a signal that came in the middle of a send() of the same producer: "
    "have the handler set a flag, and send when send() has returned"
)
