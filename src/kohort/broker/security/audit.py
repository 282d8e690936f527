"""Writes the audit log: who was denied what (INFO) and who was allowed what (DEBUG), as Kafka's authorizer logger.

Kafka writes a line for every denial. A client that is denied and tries for ever would fill the disk, so the same denial
is written once a minute, with the number of those that were left out, and one client gets a few lines a minute.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from kohort.broker.call import Call
from kohort.broker.clock import Clock
from kohort.security.acls import AclResource
from kohort.security.authorizer import Authorizer, Question
from kohort.wire.messages import APIS

audit_log = logging.getLogger("kohort.authorizer")

AGAIN_AFTER_MS = 60_000
MOST_LINES = 30
"""Of one principal at one address, in a minute."""
MOST_REMEMBERED = 1_000
_LONGEST_NAME = 300


@dataclass(slots=True)
class _Repeated:
    told_ms: int
    since: int = 0  # how often it was denied since then


@dataclass(slots=True)
class _Caller:
    minute_ms: int
    lines: int = 0


class AuditLog:
    """Remembers what it has written lately; its size is bounded, whatever names clients use."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._denials: dict[Question, _Repeated] = {}
        self._callers: dict[tuple[str, str], _Caller] = {}

    def denied(self, authorizer: Authorizer, question: Question, call: Call) -> None:
        """Writes that somebody was denied what it named."""
        now_ms = self._clock.steady_ms()
        question = (*question[:4], question[4][:_LONGEST_NAME])
        known = self._denials.get(question)
        if known is not None and now_ms - known.told_ms < AGAIN_AFTER_MS:
            known.since += 1
            return
        caller = self._caller(question[:2], now_ms)
        caller.lines += 1
        if caller.lines > MOST_LINES:
            if caller.lines == MOST_LINES + 1:
                audit_log.info(
                    "Principal = %s from host = %s is denied much: its further denials are not written for a minute",
                    *map(_printable, question[:2]),
                )
            return
        left_out = f" ({known.since} more since the last line)" if known is not None and known.since else ""
        audit_log.info("%s%s", _line("Denied", authorizer, question, call), left_out)
        self._denials.pop(question, None)
        self._denials[question] = _Repeated(now_ms)
        if len(self._denials) > MOST_REMEMBERED:
            del self._denials[next(iter(self._denials))]

    def allowed(self, authorizer: Authorizer, question: Question, call: Call) -> None:
        """Writes that somebody was allowed something; whoever sets the logger to DEBUG wants every line."""
        audit_log.debug("%s", _line("Allowed", authorizer, question, call))

    def _caller(self, who: tuple[str, str], now_ms: int) -> _Caller:
        caller = self._callers.pop(who, None)
        if caller is None or now_ms - caller.minute_ms >= AGAIN_AFTER_MS:
            caller = _Caller(now_ms)
        self._callers[who] = caller
        if len(self._callers) > MOST_REMEMBERED:
            del self._callers[next(iter(self._callers))]
        return caller


def _line(result: str, authorizer: Authorizer, question: Question, call: Call) -> str:
    """Returns Kafka's text, so that what reads Kafka's audit log reads this one."""
    principal, host, operation, resource_type, name = question
    return (
        f"Principal = {_printable(principal)} is {result} operation = {operation.name} from host = {host} "
        f"on resource = {_TYPE_NAMES[resource_type]}:LITERAL:{_printable(name)} "
        f"for request = {APIS[call.codec.api_key].name} with resourceRefCount = 1 "
        f"based on rule {authorizer.rule(*question)}"
    )


_TYPE_NAMES = {kind: kind.name.title().replace("_", "") for kind in AclResource}
"""As Kafka writes them: Topic, TransactionalId."""


def _printable(text: str) -> str:
    """Returns a text that a client chose in a form that cannot forge another line."""
    text = text[:_LONGEST_NAME]
    return text if text.isprintable() else ascii(text)
