"""One request on its way through the broker, from its frame to its answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kohort.wire.compiler.compile import Chunk, Codec
from kohort.wire.frame import response_frame
from kohort.wire.struct import Message

if TYPE_CHECKING:
    from kohort.broker.net.connection import Connection


class Encoded:
    """An answer that its handler has made into a whole frame: bytes, and slices of files that are pinned."""

    __slots__ = ("chunks",)

    def __init__(self, chunks: list[Chunk]) -> None:
        self.chunks = chunks


class Call:
    """A decoded request and the place in the connection's order where its answer goes.

    A handler returns the answer, or returns None and calls `reply` later, once.
    """

    __slots__ = (
        "client_id",
        "codec",
        "connection",
        "correlation_id",
        "on_close",
        "on_stop",
        "parked",
        "request",
        "chunks",
    )

    def __init__(
        self,
        connection: Connection,
        codec: Codec,
        correlation_id: int,
        client_id: str | None,
        request: Any,
    ) -> None:
        self.connection = connection
        self.codec = codec
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.request = request  # Any: each handler knows which message its API decodes to
        self.chunks: list[Chunk] | None = None  # the answer, once it is there
        self.parked = False
        self.on_close: Callable[[], None] | None = None
        self.on_stop: Callable[[], None] | None = None

    @property
    def version(self) -> int:
        return self.codec.version

    @property
    def peer(self) -> str:
        """The client's address, for people."""
        return self.connection.peer

    def park(
        self, on_close: Callable[[], None] | None = None, on_stop: Callable[[], None] | None = None
    ) -> None:
        """Nothing more is read from this connection until the answer is there, as in Kafka.

        `on_close` is called if the client goes away first: then no answer is wanted any more. `on_stop` is called when
        the broker stops, and answers.
        """
        self.parked = True
        self.on_close = on_close
        self.on_stop = on_stop

    def reply(self, message: Message | Encoded) -> None:
        """Answers later; in the connection's order."""
        self.answer(message)
        self.connection.answered(self)

    def reply_encoded(self, body: bytes) -> None:
        """As `reply`, for who has the body already."""
        assert self.chunks is None, "a call is answered once"
        self.chunks = [response_frame(self.codec, self.correlation_id, body)]
        self.connection.answered(self)

    def reply_nothing(self) -> None:
        """Ends a call that gets no answer (acks=0)."""
        self.chunks = []
        self.connection.answered(self)

    def answer(self, message: Message | Encoded) -> None:
        assert self.chunks is None, "a call is answered once"
        if isinstance(message, Encoded):
            self.chunks = message.chunks
            return
        body = b"".join(self.codec.encode_response(message))
        self.chunks = [response_frame(self.codec, self.correlation_id, body)]
