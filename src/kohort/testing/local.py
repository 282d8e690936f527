"""Requests to a broker from its own process: without a socket; faults do not apply, and nothing remembers them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kohort.broker.apis.table import TABLE
from kohort.broker.call import Call, Encoded
from kohort.wire.struct import Message

if TYPE_CHECKING:
    from kohort.broker.broker import Broker


class _Everything(frozenset[object]):
    """Has whatever is looked for: who owns the process may do everything, whatever the ACLs are."""

    def __contains__(self, item: object) -> bool:
        return True


class _LocalConnection:
    """The part of a connection that handlers look at."""

    peer = address = "testing"
    principal = "User:ANONYMOUS"
    granted = _Everything()

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()

    def failed(self, call: Call, errors: Sequence[int]) -> None:
        """Counts nothing."""


class _LocalCall(Call):
    """A call whose answer is a message, not bytes."""

    __slots__ = ("answer_message",)

    def __init__(self, request: Message) -> None:
        codec = TABLE[request.API_KEY].codec(TABLE[request.API_KEY].last)
        connection: Any = _LocalConnection()
        super().__init__(connection, codec, 0, "kohort.testing", request)
        self.answer_message: asyncio.Future[Message] = connection.loop.create_future()

    def reply(self, message: Message | Encoded) -> None:
        assert isinstance(message, Message), "a fetch is not asked here"
        self.answer_message.set_result(message)


async def ask(broker: Broker, request: Message) -> Any:
    """Returns the answer to a request in its newest version; on the broker's loop."""
    call, row = _LocalCall(request), TABLE[request.API_KEY]
    answer = row.handler(broker, call)
    if row.is_async:
        return await answer
    return answer if answer is not None else await call.answer_message
