"""One Spark and one broker for all tests of this folder: a JVM takes some seconds to start."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kohort.spark
from kohort import Admin, Producer
from kohort.spark.worker_python import use_python
from tests.clients.process import BrokerProcess, fixed_port, show_broker_log

pytest_runtest_makereport = show_broker_log

HERE = Path(__file__).parent
HANGS_S = 600
"""What takes 30 s here, with several JVMs that start, takes minutes on a machine that others use too."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.timeout(HANGS_S))


LOOPBACK = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "OFF",
}


@pytest.fixture(scope="session")
def event_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which Spark writes what it did, for its history server."""
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, event_log: Path) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("spark")
    use_python(folder=folder)  # processes of xdist end without cleaning up
    settings = {
        **LOOPBACK,
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": event_log.as_uri(),
    }
    session = kohort.spark.session("kohort tests", "local[2]", **settings)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("broker")
    settings = ("durability=os", "group.initial.rebalance.delay.ms=0", "log.retention.check.interval.ms=1000")
    with BrokerProcess(folder, *settings, port=fixed_port()) as process:
        yield process


@pytest.fixture(scope="session")
def admin(broker: BrokerProcess) -> Iterator[Admin]:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as client:
        yield client


@pytest.fixture
def new_name() -> Callable[[str], str]:
    stem, counter = uuid.uuid4().hex[:8], itertools.count()
    return lambda what: f"{what}-{stem}-{next(counter)}"


@pytest.fixture
def new_topic(admin: Admin, new_name: Callable[[str], str]) -> Callable[..., str]:
    def make(partitions: int = 1, name: str | None = None, **configs: Any) -> str:
        topic = name or new_name("topic")
        given = {"retention_ms": -1, **configs}
        admin.create_topic(topic, partitions, configs={k.replace("_", "."): v for k, v in given.items()})
        return topic

    return make


@pytest.fixture
def produce(broker: BrokerProcess) -> Callable[..., None]:
    """`produce(topic, range(10), partition=0)` writes the numbers as values; more keywords go to `send`."""

    def write(topic: str, numbers: Any, **keywords: Any) -> None:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in numbers:
                producer.send(topic, value=b"%d" % number, **keywords)
            producer.flush()

    return write


@pytest.fixture
def read(spark: Any, broker: BrokerProcess) -> Callable[..., Any]:
    """`read(subscribe=topic, …)`: a frame of `format("kohort")`."""

    def load(schema: str | None = None, **options: Any) -> Any:
        reader = spark.read.format("kohort").option("kafka.bootstrap.servers", broker.bootstrap_servers)
        for name, value in options.items():
            reader = reader.option(name.replace("__", "."), value)
        return (reader.schema(schema) if schema else reader).load()

    return load


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")


@pytest.fixture
def fresh_port() -> Callable[[], int]:
    return fixed_port
