"""Transactions of Kafka's own Java client (4.3.1, which uses transaction.version 2), and its tool."""

from __future__ import annotations

import json

import pytest
from benchmarks.targets import Target

from .conftest import Run

pytestmark = pytest.mark.interop


def test_what_the_java_client_does_in_transactions(java: Run, broker: Target) -> None:
    lines = [json.loads(line) for line in java("Transactions", broker.address, timeout_s=120).splitlines()]
    said = {line["step"]: line.get("result", line.get("error")) for line in lines}
    assert said == {
        "version": "FinalizedVersionRange[min_version_level:2, max_version_level:2]",
        "commit and abort": [70, 100],
        "bumped": "CompleteCommit true",
        "copy": "{copied=70} 70",
        "fenced": ["ProducerFencedException", "71"],
        "open": "Ongoing [out-1] 1",
        "aborted by hand": False,
    }


def test_kafkas_tools_show_transactions(java: Run, broker: Target) -> None:
    tool = ("org.apache.kafka.tools.TransactionsCommand", "--bootstrap-server", broker.address)
    listed = java(*tool, "list")
    assert "TransactionalId" in listed
    for transactional_id in ("a", "copy", "twice"):
        assert transactional_id in {line.split()[0] for line in listed.splitlines() if line.strip()}
    described = java(*tool, "describe", "--transactional-id", "copy")
    assert "CompleteCommit" in described
    features = java("org.apache.kafka.tools.FeatureCommand", "--bootstrap-server", broker.address, "describe")
    assert "transaction.version" in features


def test_kafkas_dump_tool_reads_our_states(java: Run, broker: Target) -> None:
    logs = [path for path in broker.data.glob("__transaction_state-*/*.log") if path.stat().st_size]
    assert logs
    tool, files = "org.apache.kafka.tools.DumpLogSegments", ",".join(map(str, logs))
    said = java(tool, "--transaction-log-decoder", "--files", files)
    assert '"transactionalId":"copy"' in said
    for status in (0, 1, 2, 3, 4, 5):
        assert f'"transactionStatus":{status},' in said
