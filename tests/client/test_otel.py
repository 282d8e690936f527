"""`kohort.otel`: the spans of send, poll, process and commit, with OpenTelemetry's own SDK and a real broker."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from kohort import Admin, AsyncConsumer, AsyncProducer, KafkaError, KohortError, Producer
from kohort import otel as tracing
from kohort.testing import Kafka
from kohort.wire.errors import ErrorCode
from tests.client.consuming import PATIENCE_S, poll_until, quick


class Traced:
    """A tracer provider, and the spans that have ended, by name."""

    def __init__(self) -> None:
        self.exporter, self.provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def span(self, name: str) -> ReadableSpan:
        (found,) = self.spans(name)
        return found


@pytest.fixture
def traced() -> Iterator[Traced]:
    made = Traced()
    yield made
    made.provider.shutdown()


def attributes(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


def test_a_record_is_followed_from_send_to_process_and_commit(
    traced: Traced, bootstrap_servers: str, new_topic: Callable[..., str], group: str
):
    topic = new_topic()
    with Producer(bootstrap_servers=bootstrap_servers, client_id="maker") as producer:
        tracing.instrument(producer, traced.provider)
        with traced.provider.get_tracer("test").start_as_current_span("order"):
            told: list[int] = []
            sent = producer.send(
                topic,
                b"one",
                key=b"k",
                headers=[("h", b"1")],
                on_delivery=lambda at, error: told.append(at.offset),
            )
            sent.result(PATIENCE_S)
    assert told == [0]
    order, send = traced.span("order"), traced.span(f"send {topic}")
    assert send.kind is SpanKind.PRODUCER
    assert send.parent is not None
    assert send.parent.span_id == order.context.span_id
    assert attributes(send) == {
        "messaging.system": "kafka",
        "messaging.client.id": "maker",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": topic,
        "messaging.destination.partition.id": "0",
        "messaging.kafka.message.key": "k",
        "messaging.kafka.offset": 0,
    }

    with quick(bootstrap_servers, group, client_id="reader") as consumer:
        tracing.instrument(consumer, traced.provider)
        consumer.subscribe([topic])
        record = next(iter(consumer))
        names = [name for name, _ in record.headers]
        assert names == ["h", "traceparent"]
        with tracing.process(record, traced.provider) as span:
            span.set_attribute("order.id", 42)
            assert trace.get_current_span() is span
        consumer.commit({(topic, 0): record.offset + 1})
    poll, process, commit = (traced.span(f"{what} {topic}") for what in ("poll", "process", "commit"))
    assert poll.kind is SpanKind.CLIENT
    assert [link.context.span_id for link in poll.links] == [send.context.span_id]
    assert attributes(poll) == {
        "messaging.system": "kafka",
        "messaging.client.id": "reader",
        "messaging.consumer.group.name": group,
        "messaging.operation.name": "poll",
        "messaging.operation.type": "receive",
        "messaging.destination.name": topic,
        "messaging.destination.partition.id": "0",
        "messaging.batch.message_count": 1,
    }
    assert process.kind is SpanKind.CONSUMER
    assert process.context.trace_id == send.context.trace_id == order.context.trace_id
    assert process.parent is not None
    assert process.parent.span_id == send.context.span_id
    assert attributes(process)["order.id"] == 42
    assert attributes(process)["messaging.kafka.offset"] == 0
    assert attributes(commit)["messaging.operation.type"] == "settle"
    assert attributes(commit)["messaging.consumer.group.name"] == group
    assert all(span.status.status_code is StatusCode.UNSET for span in (send, poll, process, commit))


async def send_and_read(traced: Traced, bootstrap_servers: str, topic: str, group: str) -> None:
    async with (
        AsyncProducer(bootstrap_servers=bootstrap_servers) as producer,
        AsyncConsumer(
            bootstrap_servers=bootstrap_servers, group_id=group, auto_offset_reset="earliest"
        ) as consumer,
    ):
        tracing.instrument(producer, traced.provider)
        tracing.instrument(consumer, traced.provider)
        await producer.send_and_wait(topic, b"one")
        with pytest.raises(KohortError):
            await producer.send(topic, b"x", partition=99)
        await consumer.subscribe([topic])
        for _ in range(100):
            if await consumer.poll(1.0):
                break
        await consumer.commit()


def test_the_async_clients_make_the_same_spans(
    traced: Traced, bootstrap_servers: str, new_topic: Callable[..., str], group: str
):
    topic = new_topic()
    asyncio.run(send_and_read(traced, bootstrap_servers, topic, group))
    good, bad = sorted(traced.spans(f"send {topic}"), key=lambda span: span.status.status_code.value)
    assert bad.status.status_code is StatusCode.ERROR
    assert "error.type" in attributes(bad)
    assert [link.context.span_id for link in traced.span(f"poll {topic}").links] == [good.context.span_id]
    assert traced.span("commit").kind is SpanKind.CLIENT


def test_failures_are_said_in_the_span(traced: Traced, kafka: Kafka):
    kafka.create_topic("orders")
    kafka.fail("Produce", ErrorCode.MESSAGE_TOO_LARGE)
    with Producer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        tracing.instrument(producer, traced.provider)
        with pytest.raises(KafkaError):
            producer.send("orders", None).result(PATIENCE_S)
        with pytest.raises(KohortError):
            producer.send("orders", b"x", partition=7)
    refused, wrong = traced.spans("send orders")
    assert attributes(refused)["error.type"] == "MESSAGE_TOO_LARGE"
    assert attributes(refused)["messaging.kafka.message.tombstone"] is True
    assert refused.status.status_code is wrong.status.status_code is StatusCode.ERROR

    kafka.produce("orders", ["one"])
    with quick(kafka.bootstrap_servers, "billing") as consumer:
        tracing.instrument(consumer, traced.provider)
        consumer.subscribe(["orders"])
        (record,) = poll_until(consumer, lambda: traced.spans("poll orders"), "it is read")
        assert not traced.span("poll orders").links, "nobody has traced its sender"
        with pytest.raises(ZeroDivisionError), tracing.process(record, traced.provider):
            raise ZeroDivisionError("no such order")
        kafka.fail("OffsetCommit", ErrorCode.GROUP_AUTHORIZATION_FAILED)
        with pytest.raises(KohortError):
            consumer.commit()
    assert attributes(traced.span("process orders"))["error.type"] == "ZeroDivisionError"
    assert attributes(traced.span("commit"))["error.type"] == "GROUP_AUTHORIZATION_FAILED"


def test_many_records_of_several_topics_make_one_span_with_bounded_links(
    traced: Traced, bootstrap_servers: str, new_topic: Callable[..., str]
):
    topics = [new_topic(), new_topic()]
    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        tracing.instrument(producer, traced.provider)
        for n in range(200):
            producer.send(topics[n % 2], b"x")
    with quick(bootstrap_servers) as consumer:
        tracing.instrument(consumer, traced.provider)
        consumer.assign([(topic, 0) for topic in topics])
        records = 0
        while records < 200:
            records += sum(map(len, consumer.poll(1.0).values()))
    polls = [span for span in traced.exporter.get_finished_spans() if span.name.startswith("poll")]
    assert sum(int(str(attributes(span)["messaging.batch.message_count"])) for span in polls) == 200
    assert max(len(span.links) for span in polls) <= tracing.MAX_LINKS


def test_a_record_that_is_sent_on_carries_one_context(
    traced: Traced, bootstrap_servers: str, new_topic: Callable[..., str]
):
    topic = new_topic()
    with Producer(bootstrap_servers=bootstrap_servers) as producer, quick(bootstrap_servers) as consumer:
        tracing.instrument(producer, traced.provider)
        consumer.assign([(topic, 0)])
        producer.send(topic, b"one").result(PATIENCE_S)
        first = next(iter(consumer))
        producer.send(topic, b"two", headers=first.headers).result(PATIENCE_S)
        second = next(iter(consumer))
    assert [name for name, _ in second.headers] == ["traceparent"]
    assert second.headers != first.headers


def test_what_cannot_be_instrumented_is_said(traced: Traced, bootstrap_servers: str):
    with (
        Admin(bootstrap_servers=bootstrap_servers) as admin,
        Producer(bootstrap_servers=bootstrap_servers) as producer,
    ):
        with pytest.raises(KohortError, match="instrument consumers and producers"):
            tracing.instrument(admin, traced.provider)
        tracing.instrument(producer, traced.provider)
        with pytest.raises(KohortError, match="instrumented already"):
            tracing.instrument(producer, traced.provider)


def test_without_a_tracer_provider_a_client_stays_as_it_is(
    bootstrap_servers: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)  # whatever other tests have set
    with (
        Producer(bootstrap_servers=bootstrap_servers) as producer,
        caplog.at_level(logging.WARNING, "kohort.otel"),
    ):
        assert tracing.instrument(producer) is producer
        assert "send" not in vars(producer)
    assert "no tracer provider is set" in caplog.text


PROGRAM = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "opentelemetry":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
import kohort
from kohort import Admin, AsyncConsumer, AsyncProducer, Consumer, Producer
Producer(bootstrap_servers="127.0.0.1:1").close(0)
assert not any(name.startswith(("opentelemetry", "prometheus_client")) for name in sys.modules)
try:
    import kohort.otel
except kohort.KohortError as error:
    print(error)
"""


def test_clients_need_no_opentelemetry_and_load_none():
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "pip install 'kohort[otel]'" in ran.stdout
