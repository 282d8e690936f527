"""Charges requests to quotas, and throttles clients that have exceeded one.

A broker without quotas has no `BrokerQuotas`, and its requests are plain `Call`s. As soon as there is a quota, each
request becomes a `QuotaCall`, whatever connection it comes by: it charges when it is answered, writes the time into
the answer and mutes the connection for as long.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Callable, Coroutine, Generator
from copy import copy
from functools import cache
from time import perf_counter_ns
from types import coroutine
from typing import TYPE_CHECKING, Any

from kohort.broker.call import Call, CallerConnection, Encoded
from kohort.security.quotas import (
    IP,
    ClientLimits,
    EntityKey,
    MutationQuota,
    QuotaBook,
    QuotaKind,
    QuotaWindow,
)
from kohort.wire.compiler.compile import Codec
from kohort.wire.compiler.notation import api
from kohort.wire.messages import APIS
from kohort.wire.messages.fetch import FetchRequest
from kohort.wire.messages.produce import ProduceRequest
from kohort.wire.struct import Message

if TYPE_CHECKING:
    from kohort.broker.broker import Broker

log = logging.getLogger("kohort.broker")

_PRODUCE, _FETCH, _WRITE_TXN_MARKERS = 0, 1, 27
_PERCENT_OF_A_SECOND = 100 / 1_000_000_000  # of one thread, for a nanosecond
_NO_LIMITS = ClientLimits()


class BrokerQuotas:
    """The quotas of one node that are in force. Belongs to the event loop's thread."""

    def __init__(self, broker: Broker) -> None:
        config = broker.config
        self._broker = broker
        self._book = QuotaBook(
            QuotaWindow(config.quota_window_num, config.quota_window_size_seconds * 1000),
            QuotaWindow(
                config.controller_quota_window_num, config.controller_quota_window_size_seconds * 1000
            ),
        )
        self._hosts: dict[str, str] = {}  # the addresses of hosts that quotas name
        for entity, values in broker.store.quotas().items():
            self.put(entity, values)

    def __bool__(self) -> bool:
        return bool(self._book)

    @property
    def sensor_count(self) -> int:
        return self._book.sensor_count

    def now_ms(self) -> int:
        return self._broker.clock.steady_ms()

    def put(self, entity: EntityKey, values: dict[str, float]) -> None:
        """Puts the quotas of an entity into force. A host is looked up off the loop, and counts as its address then."""
        name = dict(entity).get(IP)
        if name is None:
            self._book.put(entity, values)
        elif (address := canonical(name)) is not None:
            self._book.put(((IP, address),), values)
        elif not values:
            for known_as in (name, self._hosts.pop(name, name)):
                self._book.put(((IP, known_as),), {})
        else:
            self._book.put(((IP, name),), values)  # matches nobody, and is there as long as the quota is
            self._look_up(name, values)

    def _look_up(self, host: str, values: dict[str, float]) -> None:
        def found(addresses: asyncio.Future[str | None]) -> None:
            address = None if addresses.cancelled() else addresses.result()
            if address is None:
                log.warning("the quota of the host %s is not in force: nobody knows its address", host)
            elif self._broker.quotas is self and self._broker.store.quotas().get(((IP, host),)) == values:
                # It has not been changed meanwhile.
                self._book.put(((IP, self._hosts.get(host, host)),), {})
                self._book.put(((IP, host),), {})
                self._hosts[host] = address
                self._book.put(((IP, address),), values)

        loop = asyncio.get_running_loop()
        loop.run_in_executor(None, address_of, host).add_done_callback(found)

    def forget_unused(self) -> None:
        self._book.forget_unused(self.now_ms())

    def hold_ms(self, address: str) -> int:
        """Counts a new connection; returns for how long it is held, unread, before it is closed, or 0."""
        if not self._book.limits_connections:
            return 0
        ms = self._book.connect(canonical(address) or address, self.now_ms())
        if ms:
            self.note(QuotaKind.CONNECTION, ms)
        return ms

    def call(
        self,
        connection: CallerConnection,
        codec: Codec,
        correlation_id: int,
        client_id: str | None,
        request: Any,
        size: int,
        began_ns: int,
    ) -> QuotaCall:
        """Makes the call of a request, with the bytes of its frame, and when its decoding began."""
        limits = _NO_LIMITS
        if connection.is_authenticated:
            user = connection.principal.partition(":")[2]
            limits = self._book.limits(user, client_id or "", self.now_ms())
        call = QuotaCall(connection, codec, correlation_id, client_id, request)
        call.begin(self, limits, size, began_ns)
        return call

    def note(self, kind: QuotaKind, ms: int) -> None:
        """Counts a throttle for the metrics."""
        meter = self._broker.meter
        if meter is not None:
            meter.throttles[kind].add(ms / 1000)


class QuotaCall(Call):
    """A request that is charged to quotas when it is answered.

    The time of a request is what it takes the loop: from its decoding until its handler returns or waits, and the
    encoding of its answer. What it waits for takes others no time.
    """

    __slots__ = ("_began_ns", "_limits", "_mutations", "_quotas", "_size", "_spent_ns")

    def begin(self, quotas: BrokerQuotas, limits: ClientLimits, size: int, began_ns: int) -> None:
        self._quotas, self._limits, self._size = quotas, limits, size
        self._began_ns, self._spent_ns = began_ns, 0
        self._mutations: MutationQuota | None = None

    # --- time --------------------------------------------------------------------------------------

    def waits(self) -> None:
        if self._began_ns:
            self._spent_ns += perf_counter_ns() - self._began_ns
            self._began_ns = 0

    def park(
        self, on_close: Callable[[], None] | None = None, on_stop: Callable[[], None] | None = None
    ) -> None:
        super().park(on_close, on_stop)
        self.waits()

    def timed(self, work: Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
        return _timed(self, work)

    def _charge_time(self, now_ms: int) -> int:
        request = self._limits.request
        if request is None or self._is_exempt():
            return 0
        self.waits()
        spent_ns, self._spent_ns = self._spent_ns, 0
        return request.charge(spent_ns * _PERCENT_OF_A_SECOND, now_ms)

    def _count_rest(self, since_ns: int) -> None:
        """Counts what follows the decision; it is for the next request to feel."""
        request = self._limits.request
        if request is not None and not self._is_exempt():
            request.count((perf_counter_ns() - since_ns) * _PERCENT_OF_A_SECOND, self._quotas.now_ms())

    def _is_exempt(self) -> bool:
        """Tells whether its time is not charged: what Kafka's brokers send each other, and what gets no answer."""
        request, key = self.request, self.codec.api_key
        if key == _PRODUCE:
            assert isinstance(request, ProduceRequest)
            return request.acks == 0
        return key == _WRITE_TXN_MARKERS or (key == _FETCH and is_of_replica(request))

    # --- answers -----------------------------------------------------------------------------------

    def answer(self, message: Message | Encoded) -> None:
        if isinstance(message, Encoded):  # of a Fetch, which has been charged
            super().answer(message)
            return
        ms = self._throttle()
        if ms and "throttle_time_ms" in message.FIELDS:
            message = copy(message)  # a handler may answer with the same message again
            message.throttle_time_ms = ms  # type: ignore[attr-defined]
        since_ns = perf_counter_ns()
        super().answer(message)
        self._count_rest(since_ns)

    def reply_encoded(self, body: bytes) -> None:
        ms = self._throttle()
        if ms and _throttle_comes_first(self.codec.api_key, self.codec.version):
            body = ms.to_bytes(4, "big") + body[4:]
        super().reply_encoded(body)

    def reply_nothing(self) -> None:
        self._throttle()
        super().reply_nothing()

    def _throttle(self) -> int:
        """Charges, mutes the connection for the longest time that a quota asks for, and returns it."""
        limits, now_ms = self._limits, self._quotas.now_ms()
        kind, ms = QuotaKind.REQUEST, self._charge_time(now_ms)
        if self.codec.api_key == _PRODUCE and limits.produce is not None:
            of_bytes = limits.produce.charge(self._size, now_ms)
            if of_bytes > ms:
                kind, ms = QuotaKind.PRODUCE, of_bytes
        if self._mutations is not None:
            of_mutations = self._mutations.throttle_ms(now_ms)
            if of_mutations > ms:
                kind, ms = QuotaKind.MUTATION, of_mutations
        self._mute(kind, ms)
        return ms

    def _mute(self, kind: QuotaKind, ms: int) -> None:
        if ms:
            self._quotas.note(kind, ms)
            self.connection.mute(ms)

    # --- what handlers ask -------------------------------------------------------------------------

    def mutation_quota(self, *, strict: bool, throttles: bool = True) -> MutationQuota | None:
        bucket = self._limits.bucket
        if bucket is None:
            return None
        quota = MutationQuota(bucket, self._limits.mutation_rate, strict=strict)
        if throttles:
            self._mutations = quota
        return quota

    def most_fetch_bytes(self) -> int | None:
        return None if is_of_replica(self.request) else self._limits.most_fetch_bytes

    def throttle_fetch(self, size: int) -> int:
        """Charges for an answer; one that is throttled is not sent, so its bytes are taken back."""
        if is_of_replica(self.request):
            return 0
        now_ms, fetch = self._quotas.now_ms(), self._limits.fetch
        kind, ms = QuotaKind.REQUEST, self._charge_time(now_ms)
        if fetch is not None:
            of_bytes = fetch.charge(size, now_ms)
            if of_bytes > ms:
                kind, ms = QuotaKind.FETCH, of_bytes
            if ms:
                fetch.count(-size, now_ms)
        self._mute(kind, ms)
        return ms


@coroutine
def _timed(call: QuotaCall, work: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """Runs what a handler awaits step by step, and times the steps, not the waiting between them."""
    step: Callable[[Any], Any] = work.send
    given: Any = None
    while True:
        call._began_ns = perf_counter_ns()
        try:
            waits_for = step(given)
        except StopIteration as end:
            return end.value
        call.waits()
        try:
            step, given = work.send, (yield waits_for)
        except BaseException as error:
            step, given = work.throw, error


def is_of_replica(request: Message) -> bool:
    """Tells whether a Fetch claims to come from another broker."""
    if not isinstance(request, FetchRequest):
        return False  # a ShareFetch: followers do not send it
    return request.replica_id >= 0 or request.replica_state.replica_id >= 0


@cache
def _throttle_comes_first(api_key: int, version: int) -> bool:
    fields = api(APIS[api_key].module).response.fields
    first = next(field for field in fields if version in field.versions)
    return first.name == "throttle_time_ms"


# --- addresses -------------------------------------------------------------------------------------------


def canonical(address: str) -> str | None:
    """Returns an address in one form; None if the text is not one."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return None
    mapped = getattr(parsed, "ipv4_mapped", None)
    return str(mapped or parsed)


def address_of(host: str) -> str | None:
    """Returns the address of a host; None if nobody knows it. This blocks."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return None
    of_v4 = [each for each in found if each[0] == socket.AF_INET]  # as Java prefers them
    return canonical(str((of_v4 or found)[0][4][0])) if found else None
