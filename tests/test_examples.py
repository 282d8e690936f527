"""examples/: every program runs against a broker and does what it says; the table in its README names them all."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kohort.testing import Kafka
from tests.clients.process import eventually
from tests.serde.registry_server import running_registry
from tests.web import visit

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
README = (EXAMPLES / "README.md").read_text("utf-8")

Run = Callable[..., list[str]]


@pytest.fixture
def run(kafka: Kafka, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs an example as a program, in this process, and returns the lines that it printed."""

    def main(name: str, *arguments: object) -> list[str]:
        path = EXAMPLES / f"{name}.py"
        monkeypatch.setattr(
            sys, "argv", [str(path), "--bootstrap", kafka.bootstrap_servers, *map(str, arguments)]
        )
        capsys.readouterr()
        runpy.run_path(str(path), run_name="__main__")
        return capsys.readouterr().out.splitlines()

    return main


def test_the_table_names_every_example_and_every_link_leads_somewhere():
    named = re.findall(r"^\| \[(\S+)\]\((\S+)\) \|", README, re.MULTILINE)
    files = {path.name for path in EXAMPLES.glob("*.py")} | {"pipelines/"}
    assert {shown for shown, _ in named} == files
    for target in re.findall(r"\]\((\S+?)\)", README):
        path, _, heading = target.partition("#")
        page = EXAMPLES / path
        assert page.exists(), target
        if heading:
            titles = re.findall(r"^#+ (.*)", page.read_text("utf-8"), re.MULTILINE)
            assert heading in [title.lower().replace(" ", "-").replace("`", "") for title in titles], target


def test_every_example_says_how_it_is_run():
    for path in EXAMPLES.glob("*.py"):
        started = "python -m pytest" if path.name.startswith("test_") else "python"
        assert f"\n    {started} examples/{path.name}" in path.read_text("utf-8"), path.name


def test_consume_transform_produce(kafka: Kafka, run: Run):
    orders = [{"id": n, "count": 2, "price": n} for n in range(3)]
    kafka.produce("orders", [json.dumps(order) for order in orders])
    assert run("consume_transform_produce", "--records", 3)[-1] == "3 bills written"
    assert [(record.key, json.loads(record.value or b"")) for record in kafka.consume_all("bills")] == [
        (b"0", {"order": 0, "amount": 0}),
        (b"1", {"order": 1, "amount": 2}),
        (b"2", {"order": 2, "amount": 4}),
    ]
    assert kafka.committed("billing", "orders") == {0: 3}


def test_async_consumer(kafka: Kafka, run: Run):
    kafka.produce("orders", ["a", "b", "c"])
    assert sorted(run("async_consumer", "--records", 3)) == [
        "orders-0@0: b'a'",
        "orders-0@1: b'b'",
        "orders-0@2: b'c'",
    ]
    assert kafka.committed("workers", "orders") == {0: 3}


def test_at_least_once(kafka: Kafka, run: Run):
    kafka.produce("orders", [str(n) for n in range(150)])
    assert len(run("at_least_once", "--records", 120)) == 120
    assert kafka.committed("at-least-once", "orders") == {0: 120}
    assert run("at_least_once", "--records", 1) == ["orders-0@120: b'120'"], "it goes on where it ended"


def test_static_member(kafka: Kafka, run: Run):
    kafka.produce("orders", ["a", "b"])
    assert run("static_member", "--records", 1) == ["worker-1 is in generation 1", "orders-0@0"]
    assert run("static_member", "--records", 1) == ["worker-1 is in generation 1", "orders-0@1"]
    assert len(kafka.group("static").members) == 1


def test_pausing(kafka: Kafka, run: Run):
    kafka.create_topic("orders", partitions=2)
    kafka.produce("orders", [{"value": str(n), "partition": n % 2} for n in range(600)])
    done = run("pausing", "--records", 600)
    assert sorted(done) == sorted(f"orders-{n % 2}@{n // 2}" for n in range(600))
    assert kafka.committed("pausing", "orders") == {0: 300, 1: 300}


def test_seek_by_time(kafka: Kafka, run: Run):
    kafka.create_topic("orders", partitions=2)
    start_ms = 1_700_000_000_000  # 2023-11-14T22:13:20Z
    kafka.produce(
        "orders", [{"value": str(n), "partition": 0, "timestamp": start_ms + n * 1000} for n in range(5)]
    )
    assert run("seek_by_time", "--since", "2023-11-14T22:13:23+00:00") == [
        "2023-11-14T22:13:23+00:00 orders-0@3: b'3'",
        "2023-11-14T22:13:24+00:00 orders-0@4: b'4'",
    ]


def test_to_parquet(kafka: Kafka, run: Run, tmp_path: Path):
    parquet = pytest.importorskip("pyarrow.parquet")
    kafka.produce("orders", ["a", "b", "c"])
    run("to_parquet", "--records", 3, "--directory", tmp_path / "orders")
    files = sorted((tmp_path / "orders").iterdir())
    assert [path.suffix for path in files] == [".parquet"] * len(files)
    values = [value for path in files for value in parquet.read_table(path)["value"].to_pylist()]
    assert values == [b"a", b"b", b"c"]
    assert kafka.committed("parquet", "orders") == {0: 3}


def test_share_queue(kafka: Kafka, run: Run):
    kafka.produce("tasks", ["2", "flaky", "no number", "3"])
    said = run("share_queue", "--records", 5)
    assert said[:4] == [
        "2 squared is 4",
        "task 1, attempt 1: the mail server does not answer",
        "task 2 is no task: invalid literal for int() with base 10: b'no number'",
        "3 squared is 9",
    ]
    assert said[4] == "task 1, attempt 2: the mail server does not answer"
    assert run("share_queue", "--records", 1) == ["task 1, attempt 3: the mail server does not answer"]


def test_typed_records(run: Run):
    with running_registry() as registry:
        printed = run("typed_records", "--registry", registry.url)
    assert printed == ["schema version 1 is registered", "order 1: 9.90", "order 2: 19.80", "order 3: 29.70"]


def test_admin_tasks(run: Run):
    assert run("admin_tasks") == [
        "retention.ms is 86400000",
        "refunds returns-0: at 5, 0 behind",
        "refunds returns-1: at 5, 0 behind",
        "refunds returns-0: at 0, 5 behind",
        "refunds returns-1: at 0, 5 behind",
    ]


def test_metrics_to_prometheus(kafka: Kafka):
    """It ends after three records; two are there while its page is read."""
    kafka.produce("orders", ["a", "b"])
    program = [sys.executable, str(EXAMPLES / "metrics_to_prometheus.py"), "--records", "3", "--port", "0"]
    with subprocess.Popen(
        [*program, "--bootstrap", kafka.bootstrap_servers], stdout=subprocess.PIPE, text=True
    ) as running:
        try:
            assert running.stdout is not None
            url = running.stdout.readline().removeprefix("metrics: ").strip()

            def seen() -> str | None:
                page = visit(url).read().decode()
                return page if "orders_seen_total 2.0" in page else None

            page = eventually(seen, "both records are seen")
            kafka.produce("orders", ["c"])
            printed, _ = running.communicate(timeout=60)
        finally:
            running.kill()
    assert 'kafka_consumer_coordinator_rebalance_total{client_id="shown-1"} 1.0' in page
    assert 'records_consumed_total{client_id="shown-1",topic="orders"} 2.0' in page
    assert printed.splitlines() == ["consumed: 3", "rebalances: 1"]


def test_tracing(kafka: Kafka):
    """It sets the tracer provider of its process, so it gets one of its own."""
    program = [sys.executable, str(EXAMPLES / "tracing.py"), "--bootstrap", kafka.bootstrap_servers]
    ran = subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    spans = {line.partition(":")[0]: line for line in ran.stdout.splitlines()}
    assert set(spans) == {"checkout", "send checkouts", "poll checkouts", "process checkouts", "commit"}

    def part(name: str, word: str) -> str:
        return spans[name].partition(f"{word} ")[2][: 32 if word == "trace" else 16]

    assert part("process checkouts", "trace") == part("checkout", "trace")
    assert part("process checkouts", "in") == part("poll checkouts", "to") == part("send checkouts", "span")


def test_billing(kafka_factory: Callable[..., Kafka]):
    """pytest would find these two tests; here they are called with a broker each."""
    tests = {
        name: each
        for name, each in runpy.run_path(str(EXAMPLES / "test_billing.py")).items()
        if "test_" in name
    }
    assert list(tests) == ["test_orders_are_billed_and_committed", "test_a_commit_is_tried_again"]
    for test in tests.values():
        test(kafka_factory())
