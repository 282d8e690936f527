"""The errors that say why a consumer cannot be in its group, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable

from kohort.client.config import ConsumerConfig
from kohort.client.core.effects import Failure, FailureKind
from kohort.client.errors import AuthenticationFailed, error_for
from kohort.client.offsets.subscription import SubscriptionState
from kohort.wire.errors import ErrorCode, KohortError

NO_CONSUMER_PROTOCOL = (
    "the broker does not have the group protocol of group.protocol=consumer (KIP-848; Kafka has it since 4.0, if the "
    "feature group.version is 1): set group.protocol to classic, or use a newer broker"
)


def refusal(code: int, request: str, config: ConsumerConfig, assignors: Iterable[str]) -> KohortError:
    """The error for a code that trying again does not cure."""
    group = f"group {config.group_id}"
    match code:
        case ErrorCode.FENCED_INSTANCE_ID:
            words = (
                f"another consumer joined {group} with group.instance.id {config.group_instance_id!r} and took this "
                "one's place: give each consumer an id of its own; this one must be closed"
            )
        case ErrorCode.GROUP_MAX_SIZE_REACHED:
            words = (
                f"{group} has as many members as the broker allows: run fewer consumers, or raise "
                "group.max.size there"
            )
        case ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            words = (
                f"the other members of {group} know none of this consumer's assignors ({', '.join(assignors)}), or "
                "the group is not one of consumers: give all members one partition.assignment.strategy in common, "
                "or use another group.id"
            )
        case ErrorCode.INVALID_SESSION_TIMEOUT:
            words = (
                f"session.timeout.ms is {config.session_timeout_ms}, which the broker does not allow: choose a value "
                "between its group.min.session.timeout.ms and group.max.session.timeout.ms"
            )
        case ErrorCode.GROUP_AUTHORIZATION_FAILED:
            words = f"not allowed to be a member of {group}: give this user READ on it"
        case ErrorCode.INVALID_GROUP_ID:
            words = f"the broker does not take group.id {config.group_id!r}: use another name"
        case ErrorCode.UNSUPPORTED_VERSION:
            words = f"the broker is too old for what {request} asks" + (
                ": leave out group.instance.id" if config.group_instance_id is not None else ""
            )
        case _:
            words = f"{request} of {group} was answered with {code_name(code)}"
    return error_for(code, words)


def heartbeat_refusal(
    code: int, said: str, config: ConsumerConfig, subscription: SubscriptionState
) -> KohortError:
    """The error for a heartbeat of the consumer protocol that was refused; `said` is what the broker says of it."""
    group = f"group {config.group_id}"
    instance = f"group.instance.id {config.group_instance_id!r}"
    match code:
        case ErrorCode.UNSUPPORTED_VERSION:
            words = NO_CONSUMER_PROTOCOL
        case ErrorCode.UNSUPPORTED_ASSIGNOR:
            words = (
                f"the broker has no assignor {config.group_remote_assignor!r} for {group}: set group.remote.assignor "
                "to one of its group.consumer.assignors, or leave it out"
            )
        case ErrorCode.INVALID_REGULAR_EXPRESSION:
            pattern = (
                "" if subscription.broker_pattern is None else f" {subscription.broker_pattern.pattern!r}"
            )
            words = (
                f"the broker cannot read the SubscriptionPattern{pattern}: it takes regular expressions of RE2, which "
                "have no look-around and no back references. Unsubscribe, and subscribe to another one"
            )
        case ErrorCode.GROUP_MAX_SIZE_REACHED:
            words = (
                f"{group} has as many members as the broker allows: run fewer consumers, or raise "
                "group.consumer.max.size there"
            )
        case ErrorCode.UNRELEASED_INSTANCE_ID:
            words = (
                f"another consumer is a member of {group} with {instance}: close it first, or give each consumer an id "
                "of its own. If it was killed, its place is free when the broker has heard nothing of it for "
                "group.consumer.session.timeout.ms"
            )
        case ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            topics = ", ".join(sorted(subscription.topics))
            words = (
                f"not allowed to see a topic of the subscription ({topics}): this user needs DESCRIBE on it"
            )
        case ErrorCode.GROUP_ID_NOT_FOUND:
            words = (
                f"{group} takes no member of group.protocol=consumer: it is a group of another kind, or the broker's "
                "group.consumer.migration.policy keeps classic groups as they are. Use another group.id, or "
                "group.protocol=classic"
            )
        case _:
            return refusal(code, "a heartbeat" + (f" ({said})" if said else ""), config, ())
    return error_for(code, words + (f" (the broker says: {said})" if said else ""))


def heartbeat_not_sent(failure: Failure, config: ConsumerConfig) -> KohortError:
    """The error for a heartbeat of the consumer protocol that cannot be sent at all."""
    if failure.kind is FailureKind.UNSUPPORTED_VERSION:
        words = failure.message if "SubscriptionPattern" in failure.message else NO_CONSUMER_PROTOCOL
        return error_for(ErrorCode.UNSUPPORTED_VERSION, words)
    return no_answer(failure, "a heartbeat", config)


def no_answer(failure: Failure, request: str, config: ConsumerConfig) -> KohortError:
    """The error for a failure that trying again does not cure."""
    if failure.kind is FailureKind.AUTHENTICATION:
        return AuthenticationFailed(failure.message)
    if failure.kind is FailureKind.UNSUPPORTED_VERSION:
        return error_for(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{request} of group {config.group_id} cannot be sent: {failure.message}",
        )
    return KohortError(f"{request} of group {config.group_id}: {failure.kind.value}: {failure.message}")


def code_name(code: int) -> str:
    """The name of an error code. A broker may be newer than our list of errors: then it is "error 999"."""
    return ErrorCode(code).name if code in ErrorCode._value2member_map_ else f"error {code}"


def seconds(ms: int) -> str:
    """Milliseconds for people, as in "312 s" or "0.5 s"."""
    return f"{ms // 1000} s" if ms >= 10_000 or ms % 1000 == 0 else f"{ms / 1000:.1f} s"
