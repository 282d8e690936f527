"""docs/client-metrics.md: its examples work, and its tables are those of the code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kohort.cli.client_metrics import with_metrics
from kohort.testing import Kafka

PAGE = Path(__file__).parents[2] / "docs" / "client-metrics.md"
TEXT = PAGE.read_text("utf-8")
ADDRESS = "127.0.0.1:9092"


def block(word: str) -> str:
    (found,) = [
        text for text in re.findall(r"^```python\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE) if word in text
    ]
    return found


def test_the_tables_are_those_of_the_code():
    assert with_metrics(TEXT) == TEXT, "run python -m kohort.cli.client_metrics docs/client-metrics.md"
    assert TEXT.count("| `records-lag` | `consumer-fetch-manager-metrics` |") == 1
    assert TEXT.count("| `buffer-available-bytes` |") == 1
    assert TEXT.count("| `connection-count` |") == 4


def test_the_page_has_three_examples():
    assert TEXT.count("```python") == 3


def test_the_example_of_metrics_works(kafka: Kafka):
    printed: list[tuple[Any, ...]] = []
    code = block("from kohort import Consumer, Producer\n\nwith").replace(ADDRESS, kafka.bootstrap_servers)
    exec(code, {"print": lambda *things: printed.append(things)})
    assert printed[0] == (1.0,)
    assert printed[2:4] == [(0.0,), (1.0,)]
    assert {"join-total", "commit-latency-max"} <= {things[0] for things in printed[4:]}


def test_the_example_of_prometheus_works(kafka: Kafka):
    printed: list[str] = []
    code = block("CollectorRegistry").replace(ADDRESS, kafka.bootstrap_servers)
    exec(code, {"print": printed.append})
    assert 'kafka_producer_topic_record_send_total{client_id="shop",topic="orders"} 1.0' in printed[0]


def test_the_example_of_tracing_works(kafka: Kafka):
    """It sets the tracer provider of its process, so it gets one of its own."""
    pytest.importorskip("opentelemetry.sdk")
    code = block("TracerProvider").replace(ADDRESS, kafka.bootstrap_servers)
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    (record,) = kafka.consume_all("orders")
    assert "traceparent" in str(record.headers)
    assert kafka.committed("traced", "orders") == {0: 1}
