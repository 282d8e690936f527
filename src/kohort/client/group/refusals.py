"""The errors that say why a consumer cannot be in its group, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable

from kohort.client.config import ConsumerConfig
from kohort.client.core.effects import Failure, FailureKind
from kohort.client.errors import AuthenticationFailed, error_for
from kohort.wire.errors import ErrorCode, KohortError


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
