"""Follows orders through OpenTelemetry: the spans of send, poll, process and commit; needs kohort[otel] and the SDK.

    pip install opentelemetry-sdk
    python examples/tracing.py --bootstrap 127.0.0.1:9092

It prints its spans. A program of yours sends them to a collector instead, with an exporter of OpenTelemetry's.
"""

import argparse

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

from kohort import Consumer, Producer, otel


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    options = parser.parse_args()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(formatter=line_of)))
    trace.set_tracer_provider(provider)  # before instrument(), which uses it

    with Producer(bootstrap_servers=options.bootstrap) as producer:
        otel.instrument(producer)
        with trace.get_tracer("shop").start_as_current_span("checkout"):
            producer.send("checkouts", b"apples", key=b"order 1").result()

    with Consumer(
        bootstrap_servers=options.bootstrap,
        group_id="traced",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        otel.instrument(consumer)
        consumer.subscribe(["checkouts"])
        for record in consumer:
            with otel.process(record):  # in the trace of the checkout
                pass
            consumer.commit()
            break


def line_of(span: trace.Span) -> str:
    parent = f" in {span.parent.span_id:016x}" if span.parent else ""
    links = "".join(f" to {link.context.span_id:016x}" for link in span.links)
    return (
        f"{span.name}: trace {span.context.trace_id:032x}, span {span.context.span_id:016x}{parent}{links}\n"
    )


if __name__ == "__main__":
    main()
