"""Carries one request on its way through the broker, from its frame to its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Protocol

from kohort.broker.listeners import Address
from kohort.log.storage.files import Slice
from kohort.wire.compiler.compile import Chunk, Codec
from kohort.wire.frame import response_frame
from kohort.wire.struct import Message

if TYPE_CHECKING:
    from kohort.security.quotas import MutationQuota


class CallerConnection(Protocol):
    """What a call and its handler use of the connection that the request came by."""

    peer: str
    """The client's address and port, for people."""
    address: str
    """The client's address alone."""
    principal: str
    """Who the client is: `User:alice`."""
    granted: AbstractSet[object]
    """What it was allowed since an ACL last changed: (operation, type, name)."""
    told: Address | None
    """Where this node is, for clients of the listener that this one came by."""
    loop: asyncio.AbstractEventLoop
    answers_at_end: bool
    """Whether a client that sends no more still gets the answers to what it sent."""

    is_authenticated: bool
    """Whether the client is who `principal` says; on a listener without SASL it always is."""

    def answered(self, call: Call) -> None: ...
    def mute(self, ms: int) -> None: ...
    def failed(self, call: Call, errors: Sequence[int]) -> None: ...
    def close(self) -> None: ...
    def close_because(self, reason: str) -> None: ...


class Encoded:
    """An answer that its handler has made into a whole frame: bytes, and slices of files that are pinned.

    `errors` are the error codes in it, for the metrics.
    """

    __slots__ = ("chunks", "errors")

    def __init__(self, chunks: list[Chunk], errors: Sequence[int] = ()) -> None:
        self.chunks = chunks
        self.errors = errors


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
        connection: CallerConnection,
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
        """Reads nothing more from this connection until the answer is there, as Kafka does.

        `on_close` is called if the client goes away first: then no answer is wanted any more. `on_stop` is called when
        the broker stops; it answers.
        """
        self.parked = True
        self.on_close = on_close
        self.on_stop = on_stop

    def reply(self, message: Message | Encoded) -> None:
        """Answers later than the handler returned, in the connection's order."""
        self.answer(message)
        self.connection.answered(self)

    def reply_encoded(self, body: bytes) -> None:
        """Answers as `reply` does, with a body that is already encoded."""
        assert self.chunks is None, "a call is answered once"
        self.chunks = [response_frame(self.codec, self.correlation_id, body)]
        self.connection.answered(self)

    def reply_nothing(self) -> None:
        """Ends a call that gets no answer (acks=0)."""
        self.chunks = []
        self.connection.answered(self)

    def answer(self, message: Message | Encoded) -> None:
        """Answers with what the handler returned; the connection goes on by itself."""
        assert self.chunks is None, "a call is answered once"
        if isinstance(message, Encoded):
            self.chunks = message.chunks
            if message.errors:
                self.connection.failed(self, message.errors)
            return
        body = b"".join(self.codec.encode_response(message))
        self.chunks = [response_frame(self.codec, self.correlation_id, body)]

    # --- quotas: a broker that has some makes a QuotaCall of each request --------------------------

    def waits(self) -> None:
        """Hears that the handler has returned and the answer comes later."""

    def timed(self, work: Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
        """Returns the same work, which may be timed."""
        return work

    def mutation_quota(self, *, strict: bool, throttles: bool = True) -> MutationQuota | None:
        """Returns the quota that partitions are made and deleted under; None if there is none.

        With `throttles` the client has to wait, after the answer, for what is above it.
        """
        return None

    def most_fetch_bytes(self) -> int | None:
        """Returns how many bytes a Fetch may have at most; None if no quota says so."""
        return None

    def throttle_fetch(self, size: int) -> int:
        """Charges for an answer to a Fetch; if that is too much, returns for how many ms the client is throttled."""
        return 0


def release(chunks: Iterable[Chunk]) -> None:
    """Unpins the files behind an answer that is not going to be sent."""
    for chunk in chunks:
        if chunk.__class__ is Slice:
            chunk.file.unpin()
