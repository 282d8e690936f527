"""The exit codes of `kohort`, which scripts may rely on."""

from __future__ import annotations

from enum import IntEnum

from kohort.client.errors import AuthenticationFailed, AuthorizationFailed, PartlyFailed, TimedOut
from kohort.errors import KohortError
from kohort.wire.errors import ErrorCode, KafkaError

_NOT_FOUND = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.RESOURCE_NOT_FOUND,
}


class ExitCode(IntEnum):
    """How a command ended."""

    DONE = 0
    FAILED = 1
    """Something could not be done, or a setting is wrong."""
    WRONG_USAGE = 2
    """The arguments are wrong; nothing was done."""
    NOT_FOUND = 3
    """There is no such topic, group, member, user, ACL or quota."""
    NO_ANSWER = 4
    """No broker answered in time."""
    NOT_ALLOWED = 5
    """The cluster refused the password, the certificate or the permission."""
    INTERRUPTED = 130
    """Ctrl-C."""


def code_of(error: KohortError) -> ExitCode:
    """Returns the exit code for an error that ends a command."""
    if isinstance(error, PartlyFailed):
        codes = {code_of(each) for each in error.errors.values()}
        return codes.pop() if len(codes) == 1 else ExitCode.FAILED
    if isinstance(error, (AuthenticationFailed, AuthorizationFailed)):
        return ExitCode.NOT_ALLOWED
    if isinstance(error, TimedOut):
        return ExitCode.NO_ANSWER
    if isinstance(error, KafkaError) and error.code in _NOT_FOUND:
        return ExitCode.NOT_FOUND
    return ExitCode.FAILED
