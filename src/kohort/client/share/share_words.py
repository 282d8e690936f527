"""The errors that a share consumer gives its user: what a broker's code means here, and what to do about it."""

from __future__ import annotations

from kohort.client.config import ShareConsumerConfig
from kohort.client.core.effects import Failure, FailureKind
from kohort.client.errors import AuthenticationFailed, error_for, error_for_failure
from kohort.client.group.refusals import code_name
from kohort.wire.errors import ErrorCode, KohortError

_NOT_SUPPORTED = (
    "the broker has no share groups: they need Apache Kafka 4.2 or later, or Kohort, with the feature share.version "
    "at 1 (`kafka-features.sh upgrade --feature share.version=1`)"
)


def heartbeat_refused(code: int, message: str | None, config: ShareConsumerConfig) -> KohortError:
    """Makes the error for a heartbeat that asking again does not cure."""
    group = f"share group {config.group_id}"
    said = f" (the broker says: {message})" if message else ""
    match code:
        case ErrorCode.UNSUPPORTED_VERSION:
            words = f"{_NOT_SUPPORTED}{said}"
        case ErrorCode.GROUP_AUTHORIZATION_FAILED:
            words = f"not allowed to be a member of {group}: give this user READ on it"
        case ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            words = (
                f"not allowed to see a topic that {group} subscribes to: give this user DESCRIBE on it{said}"
            )
        case ErrorCode.GROUP_MAX_SIZE_REACHED:
            words = f"{group} has as many members as the broker allows: run fewer, or raise group.share.max.size there"
        case ErrorCode.GROUP_ID_NOT_FOUND | ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            words = f"group {config.group_id} is no share group: give the share consumers a group.id of their own{said}"
        case ErrorCode.INVALID_GROUP_ID:
            words = f"the broker does not take group.id {config.group_id!r}: use another name{said}"
        case _:
            words = f"ShareGroupHeartbeat of {group} was answered with {code_name(code)}{said}"
    return error_for(code, words)


def heartbeat_failed(failure: Failure, config: ShareConsumerConfig) -> KohortError:
    """Makes the error for a heartbeat that could not be sent or answered, which trying again does not cure."""
    if failure.kind is FailureKind.AUTHENTICATION:
        return AuthenticationFailed(failure.message)
    if failure.kind is FailureKind.UNSUPPORTED_VERSION:
        return error_for(ErrorCode.UNSUPPORTED_VERSION, _NOT_SUPPORTED)
    return error_for_failure(failure, f"the heartbeat of share group {config.group_id}")


def request_refused(code: int, message: str | None, node: str, config: ShareConsumerConfig) -> KohortError:
    """Makes the error for a ShareFetch or ShareAcknowledge that was refused as a whole."""
    said = f" (the broker says: {message})" if message else ""
    match code:
        case ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            words = (
                f"{node} has as many share sessions as it allows: run fewer share consumers, or raise "
                "group.share.max.share.sessions there"
            )
        case ErrorCode.SHARE_SESSION_NOT_FOUND | ErrorCode.INVALID_SHARE_SESSION_EPOCH:
            words = (
                f"the share session with {node} was lost ({code_name(code)}): the records that were not acknowledged "
                "will be delivered again, to this consumer or another"
            )
        case ErrorCode.GROUP_AUTHORIZATION_FAILED:
            words = f"not allowed to read as share group {config.group_id}: give this user READ on it"
        case ErrorCode.UNSUPPORTED_VERSION:
            words = f"{_NOT_SUPPORTED}{said}"
        case _:
            words = f"{node} refused share group {config.group_id} with {code_name(code)}{said}"
    return error_for(code, words)


def acknowledgement_refused(code: int, message: str | None, partition: object) -> KohortError:
    """Makes the error for the acknowledgements of one partition."""
    said = f" (the broker says: {message})" if message else ""
    match code:
        case ErrorCode.INVALID_RECORD_STATE:
            words = (
                f"records of {partition} are not this consumer's any more: their locks ran out before they were "
                "acknowledged, and they are delivered again. None of this acknowledgement holds. Handle fewer records "
                "per poll (max.poll.records), renew their locks (AcknowledgeType.RENEW), or raise "
                f"share.record.lock.duration.ms of the group{said}"
            )
        case ErrorCode.NOT_LEADER_OR_FOLLOWER | ErrorCode.FENCED_LEADER_EPOCH:
            words = (
                f"the leader of {partition} has changed, or the connection to it was lost, since these records were "
                "delivered: they will be delivered again"
            )
        case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION | ErrorCode.UNKNOWN_TOPIC_ID:
            words = f"{partition} is not there any more: its topic was deleted, or made anew{said}"
        case ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            words = f"not allowed to acknowledge records of {partition}: this user needs READ on its topic"
        case _:
            words = f"acknowledging records of {partition} was answered with {code_name(code)}{said}"
    return error_for(code, words)


def fetch_refused(code: int, message: str | None, partition: object) -> KohortError:
    """Makes the error for a partition that cannot be read."""
    said = f" (the broker says: {message})" if message else ""
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        words = f"not allowed to read {partition}: this user needs READ on its topic"
    elif code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
        words = f"not allowed to read {partition} as this group: this user needs READ on the group{said}"
    else:
        words = f"reading {partition} was answered with {code_name(code)}{said}"
    return error_for(code, words)
