"""Requests to a broker from within its own process: without a socket, past all faults, and not remembered."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kohort.broker.apis.table import TABLE
from kohort.broker.call import Call, Encoded
from kohort.wire.struct import Message

if TYPE_CHECKING:
    from kohort.broker.broker import Broker


class _LocalConnection:
    """As much of a connection as handlers look at."""

    peer = address = "testing"

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()


class _LocalCall(Call):
    """Its answer is a message, not bytes."""

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
    """The answer to a request in its newest version; on the broker's loop."""
    call, row = _LocalCall(request), TABLE[request.API_KEY]
    answer = row.handler(broker, call)
    if row.is_async:
        return await answer
    return answer if answer is not None else await call.answer_message
