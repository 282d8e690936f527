"""Clients and tools that need a group coordinator: the Java consumer, ConsumerPerformance, kafkajs."""

from __future__ import annotations

import json

import pytest
from benchmarks.targets import Target

from .conftest import Run
from .test_java_tools import TOOLS, produced

pytestmark = pytest.mark.interop


def test_java_consumer_goes_on_where_its_group_left_off(java: Run, broker: Target) -> None:
    line = json.loads(java("Client", broker.address, "group", timeout_s=90))
    assert line.get("result") == {"first": 300, "second": 0}, line


def test_consumer_performance(java: Run, broker: Target) -> None:
    produced(java, broker.address, "perf-read", 20_000, 200)
    words = f"--bootstrap-server {broker.address} --topic perf-read --num-records 20000 --timeout 30000 --hide-header"
    figures = java(f"{TOOLS}ConsumerPerformance", *words.split(), timeout_s=90).splitlines()[-1].split(", ")
    assert int(figures[4]) >= 20_000, figures


def test_kafkajs_consumer(kafkajs: Run, broker: Target) -> None:
    line = json.loads(kafkajs(broker.address, "group", timeout_s=90).splitlines()[-1])
    assert line.get("result") == {"read": 100, "first": "0", "last": "99", "committed": "100"}, line
