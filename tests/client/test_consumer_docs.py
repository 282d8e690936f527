"""docs/consumer.md and the docstrings: every example is run against a broker, the tables are those of the code."""

from __future__ import annotations

import ast
import asyncio
import inspect
import logging
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kohort
from kohort import AsyncConsumer, Consumer, OffsetAndMetadata
from kohort.testing import Kafka
from tests.client.consuming import PATIENCE_S, joined, poll_until, quick, read

DOCS = Path(__file__).parents[2] / "docs" / "consumer.md"
ADDRESS = "127.0.0.1:9092"
CLASSES = ("Consumer", "AsyncConsumer", "Producer", "AsyncProducer", "Admin", "AsyncAdmin")


class Enough(Exception):
    """An example that goes on for ever has seen all there is."""


class Seen:
    """`work` and `print` for the examples."""

    def __init__(self, records: int) -> None:
        self.left, self.printed, self.values = records, list[str](), list[Any]()

    def work(self, record: Any) -> bool:
        self.values.append(record.value)
        self.left -= 1
        if self.left < 0:
            raise Enough
        return self.left == 0

    def work_for_ever(self, record: Any) -> None:
        if self.work(record):
            raise Enough

    def print(self, *things: Any) -> None:
        self.printed.append(" ".join(map(str, things)))


@pytest.fixture
def orders(kafka: Kafka) -> Kafka:
    """What the examples read: six records in three partitions, and a topic with documents."""
    kafka.create_topic("orders", partitions=3)
    kafka.produce(
        "orders", [{"value": f"{n}", "partition": n % 3, "timestamp": 1_700_000_000_000} for n in range(6)]
    )
    kafka.produce("documents", ['{"a": 1}', "no document", '{"b": 2}'])
    return kafka


def examples() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", DOCS.read_text("utf-8"), re.DOTALL | re.MULTILINE)


def titles() -> list[str]:
    """The heading above each example."""
    found, title = [], ""
    for line in DOCS.read_text("utf-8").splitlines():
        title = line.lstrip("# ") if line.startswith("#") else title
        if line == "```python":
            found.append(title)
    return found


def on(kafka: Kafka, example: str) -> str:
    """With this broker, and with as much time as a loaded machine needs."""
    return example.replace(ADDRESS, kafka.bootstrap_servers).replace("(5.0", f"({PATIENCE_S}")


@pytest.mark.parametrize("example", examples(), ids=titles())
def test_every_example_of_the_docs_works(orders: Kafka, example: str) -> None:
    assert ADDRESS in example
    endless = "for record in consumer:" in example
    seen = Seen(6)
    names = {"work": seen.work_for_ever if endless else seen.work, "print": seen.print}
    source = compile(on(orders, example), str(DOCS), "exec")
    if endless:
        with pytest.raises(Enough):
            exec(source, names)
    else:
        exec(source, names)
    if "work(" in example:
        assert sorted(seen.values) == [b"0", b"1", b"2", b"3", b"4", b"5"]
        assert orders.group("billing").members == []
    else:
        assert seen.printed


def test_the_examples_print_what_they_are_for(orders: Kafka) -> None:
    printed: dict[str, list[str]] = {}
    for title, example in zip(titles(), examples(), strict=True):
        if title in ("Positions", "Records as Arrow", "Deserializers and interceptors"):
            seen = Seen(6)
            exec(on(orders, example), {"print": seen.print})
            printed[title] = seen.printed
    assert printed["Positions"][1] == "[1]"
    assert printed["Records as Arrow"] == ["6 1"]
    assert printed["Deserializers and interceptors"][-1] == "[{'a': 1}, {'b': 2}] [(1, b'no document')]"


def test_consumer_and_producer_have_their_settings_in_the_docs() -> None:
    page = DOCS.read_text("utf-8")
    assert page.count("| `max.poll.interval.ms` | `300000` |") == 1
    assert page.count("| `bootstrap.servers` |") == 1
    producers = DOCS.with_name("producer.md").read_text("utf-8")
    assert producers.count("| `delivery.timeout.ms` | `120000` |") == 1
    assert "| `bootstrap.servers` |" not in producers


def producer_examples() -> list[str]:
    page = DOCS.with_name("producer.md").read_text("utf-8")
    return re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


def test_the_example_of_the_producers_page_works(kafka: Kafka) -> None:
    seen = Seen(0)
    exec(on(kafka, producer_examples()[0]), {"print": seen.print})
    assert seen.printed[0].startswith("RecordMetadata(topic='orders', partition=0, offset=0")


def test_the_example_of_transactions_works(kafka: Kafka) -> None:
    kafka.create_topic("orders")
    with kohort.Producer(bootstrap_servers=kafka.bootstrap_servers) as plain:
        for value in (b"one", b"two"):
            plain.send("orders", value)
    names: dict[str, Any] = {}

    def running() -> bool:
        found = names["consumer"].committed(("orders", 0))[kohort.TopicPartition("orders", 0)]
        return found is None or found.offset < 2

    names["running"] = running
    _, example = producer_examples()
    exec(on(kafka, example), names)
    names["producer"].close()
    names["consumer"].close()
    with kohort.Consumer(
        bootstrap_servers=kafka.bootstrap_servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    ) as reader:
        reader.assign(("totals", 0))
        assert read(reader, 2) == [b"ONE", b"TWO"]


def test_every_error_in_the_docs_exists() -> None:
    table = DOCS.read_text("utf-8").partition("| error | what happened")[2].partition("\n\n")[0]
    named = {
        name for row in table.splitlines()[2:] for name in re.findall(r"`([A-Z]\w+)`", row.split("|")[1])
    }
    assert len(named) >= 12
    for name in named:
        assert issubclass(getattr(kohort, name), kohort.KohortError)


def test_the_log_in_the_docs_is_what_a_consumer_logs(kafka: Kafka, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kohort.client")
    others = {thread.ident for thread in threading.enumerate()} - {threading.get_ident()}
    kafka.create_topic("orders", partitions=2)
    with quick(kafka.bootstrap_servers, "billing", client_id="billing-1") as consumer:
        consumer.subscribe(["orders"])
        joined(consumer)
        consumer.position(("orders", 0), timeout=PATIENCE_S)
        consumer.position(("orders", 1), timeout=PATIENCE_S)
        consumer.poll(0)
        kafka.rebalance("billing")
        poll_until(
            consumer, lambda: kafka.group("billing").generation == 2 and consumer.assignment(), "again"
        )
        consumer.position(("orders", 1), timeout=PATIENCE_S)
    shown = re.findall(r"^```text\n(.*?)^```", DOCS.read_text("utf-8"), re.DOTALL | re.MULTILINE)[0]
    logged = [
        f"{record.name}: {record.getMessage()}".replace(kafka.bootstrap_servers, ADDRESS)
        for record in caplog.records
        if record.name.startswith("kohort.client") and record.levelno == logging.INFO
        if record.thread not in others  # of other tests' consumers
    ]
    assert [re.sub(r"(billing-1-[0-9a-f]{8})[0-9a-f-]*", r"\1", line)[:60] for line in logged] == [
        re.sub(r"billing-1-ef6c3aab", member_of(logged), line)[:60] for line in shown.splitlines()
    ]


def member_of(logged: list[str]) -> str:
    found = re.search(r"billing-1-[0-9a-f]{8}", "\n".join(logged))
    assert found is not None
    return found[0]


# --- docstrings --------------------------------------------------------------------------------------------


def code_in(docstring: str | None) -> list[str]:
    """The paragraphs of a docstring that are Python and call something."""
    found = []
    for paragraph in inspect.cleandoc(docstring or "").split("\n\n"):
        try:
            tree = ast.parse(paragraph)
        except SyntaxError:
            continue
        if any(isinstance(node, ast.Call) for node in ast.walk(tree)):
            found.append(paragraph)
    return found


def run(source: str, names: dict[str, Any]) -> None:
    """As it stands; with `await` in it, in a coroutine."""
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code = compile(source, "docstring", "exec", flags=flags)
    result = eval(code, names)
    if inspect.iscoroutine(result):
        asyncio.run(as_coroutine(result))


async def as_coroutine(coroutine: Any) -> None:
    async with asyncio.timeout(PATIENCE_S):
        await coroutine


@pytest.mark.parametrize("name", CLASSES)
def test_the_example_of_each_public_class_works(kafka: Kafka, name: str) -> None:
    (example,) = code_in(getattr(kohort, name).__doc__)
    if not name.endswith("Admin"):
        kafka.create_topic("orders")
    kafka.produce("other", ["one"])
    reads = name.endswith("Consumer")
    if reads:  # it begins with what comes after it: its group has been there before
        kafka.produce("orders", ["one"])
        with quick(kafka.bootstrap_servers, "orders", enable_auto_commit=False) as before:
            before.assign([("orders", 0)])
            before.commit({("orders", 0): 0}, timeout=PATIENCE_S)
    if name.endswith("Admin"):
        with quick(kafka.bootstrap_servers, "billing", enable_auto_commit=False) as before:
            before.commit({("other", 0): 1}, timeout=PATIENCE_S)
    printed: list[tuple[Any, ...]] = []

    def print_and_end(*things: Any) -> None:
        printed.append(things)
        if reads:
            raise Enough

    names = {name: getattr(kohort, name), "print": print_and_end}
    source = example.replace(ADDRESS, kafka.bootstrap_servers)
    if reads:
        with pytest.raises(Enough):
            run(source, names)
        assert printed == [("orders", 0, 0, None, b"one")]
    else:
        run(source, names)
        assert printed == ([(("other", 0), 1)] if name.endswith("Admin") else [(0,)])


def method_examples(cls: type) -> list[tuple[str, str]]:
    methods: list[tuple[str, Callable[..., Any]]] = inspect.getmembers(cls, inspect.isfunction)
    return [
        (name, code)
        for name, method in methods
        for code in code_in(method.__doc__)
        if not name.startswith("_")
    ]


@pytest.mark.parametrize(("method", "example"), method_examples(Consumer), ids=str)
def test_the_examples_of_the_consumers_calls_work(orders: Kafka, method: str, example: str) -> None:
    orders.create_topic("orders-new")
    with quick(orders.bootstrap_servers, "g") as consumer:
        if method != "subscribe":
            consumer.subscribe(["orders"])
            joined(consumer)
        run(example, {"consumer": consumer, "re": re, "OffsetAndMetadata": OffsetAndMetadata})
        joined(consumer)


@pytest.mark.parametrize(("method", "example"), method_examples(AsyncConsumer), ids=str)
async def test_the_examples_of_the_asyncio_consumers_calls_work(
    orders: Kafka, method: str, example: str
) -> None:
    orders.create_topic("orders-new")

    async def my_coroutine_function(partitions: list[Any]) -> None:
        await asyncio.sleep(0)

    settings = {"bootstrap.servers": orders.bootstrap_servers, "group.id": "g"}
    async with AsyncConsumer(settings) as consumer, asyncio.timeout(PATIENCE_S):
        if method != "subscribe":
            await consumer.subscribe(["orders"])
            while not consumer.assignment():
                await consumer.poll(0.05)
        names = {
            "consumer": consumer,
            "re": re,
            "OffsetAndMetadata": OffsetAndMetadata,
            "my_coroutine_function": my_coroutine_function,
        }
        code = compile(example, "docstring", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        result = eval(code, names)
        if inspect.iscoroutine(result):
            await result
        while not consumer.assignment():
            await consumer.poll(0.05)


def test_the_public_classes_have_an_example_each() -> None:
    for name in CLASSES:
        assert len(code_in(getattr(kohort, name).__doc__)) == 1, name


# --- import --------------------------------------------------------------------------------------------------

HEAVY = (
    "numba",
    "llvmlite",
    "pyarrow",
    "numpy",
    "pyspark",
    "asyncio",
    "concurrent.futures",
    "ssl",
    "uvloop",
    "pytest",
)


@pytest.mark.parametrize(
    ("statement", "spared"),
    [
        ("import kohort", HEAVY),
        (
            "from kohort import Consumer",
            ("numba", "llvmlite", "pyarrow", "pyspark", "asyncio", "uvloop", "pytest"),
        ),
        (
            "from kohort import Consumer, AsyncConsumer, Producer, AsyncProducer, Admin, AsyncAdmin",
            ("numba", "pyarrow", "pyspark"),
        ),
    ],
)
def test_what_an_import_pulls_in(statement: str, spared: tuple[str, ...]) -> None:
    code = f"import sys; {statement}; print(*sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=180
    )
    assert set(loaded.stdout.split()).isdisjoint(spared)


def test_reading_records_needs_neither_pyarrow_nor_numba(orders: Kafka) -> None:
    code = f"""
import sys
from kohort import Consumer
with Consumer(bootstrap_servers="{orders.bootstrap_servers}", group_id="g", auto_offset_reset="earliest") as consumer:
    consumer.subscribe(["orders"])
    count = 0
    while count < 6:
        count += sum(map(len, consumer.poll(5).values()))
print(*sorted(sys.modules))
"""
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=180
    )
    assert set(loaded.stdout.split()).isdisjoint({"pyarrow", "pyspark", "numba"})
