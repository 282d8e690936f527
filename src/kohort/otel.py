"""Makes OpenTelemetry spans of what a client does: send, poll and commit, joined by the headers of the records.

    from kohort import Producer, otel

    producer = otel.instrument(Producer(bootstrap_servers="127.0.0.1:9092"))
    producer.send("orders", b"one")     # the span "send orders"; the record carries the header `traceparent`

    consumer = otel.instrument(Consumer(bootstrap_servers="127.0.0.1:9092", group_id="billing"))
    for record in consumer:             # the span "poll orders", with a link to each span that sent a record
        with otel.process(record):      # the span "process orders", in the trace of the sender
            work(record)

Each client is switched on by itself: the others stay as they are, and pay nothing. A client that is not switched on
never imports OpenTelemetry. Spans follow the messaging conventions (messaging.system=kafka). Only the package
`opentelemetry-api` is needed here; the program brings the SDK and sets a tracer provider before it instruments clients.
"""

from __future__ import annotations

import functools
import inspect
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from kohort.client.config import ConsumerConfig
from kohort.client.metrics import MeasuredClient
from kohort.errors import KohortError

try:
    from opentelemetry import propagate, trace
    from opentelemetry.propagators.textmap import Getter, Setter
    from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, Tracer
except ImportError as missing:
    raise KohortError("tracing needs the package opentelemetry-api: pip install 'kohort[otel]'") from missing

if TYPE_CHECKING:
    from kohort.client.records import Record

C = TypeVar("C", bound=MeasuredClient)
Headers = list[tuple[str, bytes | None]]

MAX_LINKS = 128
"""The most links of a span: the SDK's own limit (OTEL_SPAN_LINK_COUNT_LIMIT)."""

_log = logging.getLogger("kohort.otel")


def instrument(client: C, tracer_provider: trace.TracerProvider | None = None) -> C:
    """Has this client make spans from now on; returns the client.

    A producer makes a span for each `send`, which ends when the record is written or has failed. A consumer makes one
    for each `poll` that returned records and one for each `commit`. If no tracer provider is given or set, the client
    stays as it is, and a warning says so.
    """
    if tracer_provider is None and isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        _log.warning("no tracer provider is set, so %r makes no spans: set one before instrument()", client)
        return client
    tracer = trace.get_tracer("kohort", tracer_provider=tracer_provider)
    config = client._engine.config
    common: dict[str, Any] = {"messaging.system": "kafka", "messaging.client.id": config.client_id}
    if isinstance(config, ConsumerConfig):
        if config.group_id is not None:
            common["messaging.consumer.group.name"] = config.group_id
        _replace(client, "poll", functools.partial(_traced_poll, tracer, common))
        _replace(client, "commit", functools.partial(_traced_commit, tracer, common))
    elif hasattr(client, "send"):
        _replace(client, "send", functools.partial(_traced_send, tracer, common))
    else:
        raise KohortError(f"{type(client).__name__} makes no spans: instrument consumers and producers")
    return client


def _replace(client: MeasuredClient, name: str, traced: Callable[..., Any]) -> None:
    """Puts the traced call into the instance, where it is found before the method of the class."""
    if name in vars(client):
        raise KohortError(f"{client!r} is instrumented already")
    setattr(client, name, traced(getattr(client, name)))


# --- send -----------------------------------------------------------------------------------------


def _traced_send(tracer: Tracer, common: dict[str, Any], send: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(send)
    def traced(
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Iterable[tuple[str, bytes | None]] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: Callable[..., object] | None = None,
    ) -> Any:
        attributes = _attributes(common, "send", "send", topic)
        if isinstance(key, str | bytes):
            attributes["messaging.kafka.message.key"] = _text(key)
        if value is None:
            attributes["messaging.kafka.message.tombstone"] = True
        span = tracer.start_span(f"send {topic}", kind=SpanKind.PRODUCER, attributes=attributes)
        with_context: Headers = [pair for pair in headers or () if pair[0] not in _fields()]
        propagate.inject(with_context, trace.set_span_in_context(span), setter=_INTO_HEADERS)

        def delivered(metadata: Any, error: Exception | None) -> None:
            _end_send(span, metadata, error)
            if on_delivery is not None:
                on_delivery(metadata, error)

        try:
            sent = send(topic, value, key, with_context, partition, timestamp_ms, delivered)
        except BaseException as error:
            _failed(span, error)
            raise
        return _awaited(span, sent) if inspect.iscoroutine(sent) else sent

    return traced


async def _awaited(span: Span, sent: Any) -> Any:
    """Awaits the `send` of an AsyncProducer; what it raises ends the span."""
    try:
        return await sent
    except BaseException as error:
        _failed(span, error)
        raise


def _end_send(span: Span, metadata: Any, error: Exception | None) -> None:
    if error is not None:
        _failed(span, error)
        return
    span.set_attribute("messaging.destination.partition.id", str(metadata.partition))
    if metadata.offset >= 0:
        span.set_attribute("messaging.kafka.offset", metadata.offset)
    span.end()


# --- poll and process -----------------------------------------------------------------------------


def _traced_poll(tracer: Tracer, common: dict[str, Any], poll: Callable[..., Any]) -> Callable[..., Any]:
    def receive(began_ns: int, polled: Mapping[Any, Any]) -> None:
        """Makes the span of a poll that returned records, when it has returned: links are given at the start."""
        if not polled:
            return
        topics = sorted({partition.topic for partition in polled})
        attributes = _attributes(common, "poll", "receive", topics[0] if len(topics) == 1 else None)
        attributes["messaging.batch.message_count"] = sum(map(len, polled.values()))
        if len(polled) == 1:
            (partition,) = polled
            attributes["messaging.destination.partition.id"] = str(partition.partition)
        name = f"poll {topics[0]}" if len(topics) == 1 else "poll"
        links = _links(record for records in polled.values() for record in records)
        tracer.start_span(
            name, kind=SpanKind.CLIENT, attributes=attributes, links=links, start_time=began_ns
        ).end()

    if inspect.iscoroutinefunction(poll):

        @functools.wraps(poll)
        async def traced_async(*args: Any, **keywords: Any) -> Any:
            began_ns = time.time_ns()
            polled = await poll(*args, **keywords)
            receive(began_ns, polled)
            return polled

        return traced_async

    @functools.wraps(poll)
    def traced(*args: Any, **keywords: Any) -> Any:
        began_ns = time.time_ns()
        polled = poll(*args, **keywords)
        receive(began_ns, polled)
        return polled

    return traced


def _links(records: Iterable[Record[Any, Any]]) -> list[Link]:
    """Makes a link to each span that sent one of these records, up to MAX_LINKS."""
    found: dict[tuple[int, int], Link] = {}
    for record in records:
        if not record.header_pairs:
            continue
        context = _sender_of(record)
        if context is not None and len(found) < MAX_LINKS:
            found.setdefault((context.trace_id, context.span_id), Link(context))
    return list(found.values())


def _sender_of(record: Record[Any, Any]) -> trace.SpanContext | None:
    """Returns the context of the span that sent this record; None if its headers hold none."""
    context = propagate.extract(record.header_pairs, getter=_FROM_HEADERS)
    span = trace.get_current_span(context).get_span_context()
    return span if span.is_valid else None


@contextmanager
def process(record: Record[Any, Any], tracer_provider: trace.TracerProvider | None = None) -> Iterator[Span]:
    """Makes the span of the work with one record; it belongs to the trace of the span that sent the record.

    with otel.process(record) as span:
        span.set_attribute("order.id", 42)
    """
    tracer = trace.get_tracer("kohort", tracer_provider=tracer_provider)
    attributes = _attributes({"messaging.system": "kafka"}, "process", "process", record.topic)
    attributes["messaging.destination.partition.id"] = str(record.partition)
    attributes["messaging.kafka.offset"] = record.offset
    if isinstance(record.key, str | bytes):
        attributes["messaging.kafka.message.key"] = _text(record.key)
    if record.value is None:
        attributes["messaging.kafka.message.tombstone"] = True
    context = propagate.extract(record.header_pairs, getter=_FROM_HEADERS)
    with tracer.start_as_current_span(
        f"process {record.topic}", context, kind=SpanKind.CONSUMER, attributes=attributes, end_on_exit=False,
        record_exception=False, set_status_on_exception=False,
    ) as span:  # fmt: skip
        try:
            yield span
        except BaseException as error:
            _failed(span, error)
            raise
        span.end()


# --- commit ---------------------------------------------------------------------------------------


def _traced_commit(tracer: Tracer, common: dict[str, Any], commit: Callable[..., Any]) -> Callable[..., Any]:
    def start(offsets: Mapping[Any, Any] | None) -> Span:
        topics = sorted({topic for topic, _ in offsets}) if isinstance(offsets, Mapping) else []
        topic = topics[0] if len(topics) == 1 else None
        attributes = _attributes(common, "commit", "settle", topic)
        name = f"commit {topic}" if topic else "commit"
        return tracer.start_span(name, kind=SpanKind.CLIENT, attributes=attributes)

    if inspect.iscoroutinefunction(commit):

        @functools.wraps(commit)
        async def traced_async(offsets: Any = None, timeout: float | None = None) -> None:
            span = start(offsets)
            try:
                await commit(offsets, timeout)
            except BaseException as error:
                _failed(span, error)
                raise
            span.end()

        return traced_async

    @functools.wraps(commit)
    def traced(offsets: Any = None, timeout: float | None = None) -> None:
        span = start(offsets)
        try:
            commit(offsets, timeout)
        except BaseException as error:
            _failed(span, error)
            raise
        span.end()

    return traced


# --- what they share ------------------------------------------------------------------------------


def _attributes(common: Mapping[str, Any], name: str, kind: str, topic: str | None) -> dict[str, Any]:
    attributes = {**common, "messaging.operation.name": name, "messaging.operation.type": kind}
    if topic is not None:
        attributes["messaging.destination.name"] = topic
    return attributes


def _failed(span: Span, error: BaseException) -> None:
    code = getattr(error, "code", None)
    name = getattr(code, "name", None)
    span.set_attribute("error.type", name if isinstance(name, str) else type(error).__qualname__)
    span.set_status(Status(StatusCode.ERROR, str(error)))
    span.end()


def _text(key: str | bytes) -> str:
    return key if isinstance(key, str) else key.decode("utf-8", "backslashreplace")


def _fields() -> set[str]:
    """Returns the names of the headers that carry the context: `traceparent`, `tracestate`, `baggage`."""
    return propagate.get_global_textmap().fields


class _IntoHeaders(Setter[Headers]):
    def set(self, carrier: Headers, key: str, value: str) -> None:
        carrier.append((key, value.encode()))


class _FromHeaders(Getter[Iterable[tuple[str, bytes | None]]]):
    def get(self, carrier: Iterable[tuple[str, bytes | None]], key: str) -> list[str] | None:
        found = [
            value.decode("utf-8", "replace") for name, value in carrier if name == key and value is not None
        ]
        return found or None

    def keys(self, carrier: Iterable[tuple[str, bytes | None]]) -> list[str]:
        return [name for name, _ in carrier]


_INTO_HEADERS, _FROM_HEADERS = _IntoHeaders(), _FromHeaders()
