"""The reader for PySpark 4.0 and 4.1, with the calls of their Spark in their order; interop runs it on those."""

from __future__ import annotations

import itertools
import json
import logging
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kohort import Admin, TopicPartition
from kohort.broker.running import running
from kohort.spark.driver.remembering_stream import RememberingStreamReader, UnknownStart
from kohort.spark.executor.tasks import RangePartition
from tests.clients.process import eventually
from tests.spark.reading import fill, options_for

_names = itertools.count()


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with running() as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def admin(bootstrap: str) -> Iterator[Admin]:
    with Admin(bootstrap_servers=bootstrap) as client:
        yield client


@pytest.fixture
def topic(admin: Admin) -> str:
    name = f"t{next(_names)}"
    admin.create_topic(name, 1)
    return name


class Spark:
    """A Spark before 4.2, as far as it calls a reader; checkpoint and sink are lists."""

    def __init__(self, make: Callable[[], RememberingStreamReader]) -> None:
        self._make = make
        self.offsets: list[str] = []
        self.done = 0
        self.read: list[tuple[int, int]] = []
        self.plans = True
        """Whether a batch asks for its tasks: the optimizer may have found that it needs none."""

    def start(self, *, wrapped: bool = False) -> RememberingStreamReader:
        self.reader = self._make()
        self.target = self._latest() if wrapped else None
        if self.offsets:
            last = json.loads(self.offsets[-1])
            assert self.reader.partitions(last, last) == []
        if len(self.offsets) > self.done:
            self._run(self.offsets[-2] if len(self.offsets) > 1 else self._initial(), self.offsets[-1])
        return self.reader

    def trigger(self, *, fails: bool = False) -> bool:
        """Runs a micro-batch if there is one to run; one that fails leaves its offsets behind."""
        if self.target is not None:
            before = self.offsets[-1] if self.offsets else self._initial()
            self._latest()  # for the progress alone
            end = self.target
        else:
            end = self._latest()
        if self.offsets and self.offsets[-1] == end:
            return False
        self.offsets.append(end)
        if len(self.offsets) > 1:
            self.reader.commit(json.loads(self.offsets[-2]))
        before = self.offsets[-2] if len(self.offsets) > 1 else self._initial()
        if not fails:
            self._run(before, end)
        elif self.plans:
            self.reader.partitions(json.loads(before), json.loads(end))
        return True

    def _run(self, start: str, end: str) -> None:
        if self.plans:
            for task in self.reader.partitions(json.loads(start), json.loads(end)):
                assert isinstance(task, RangePartition)
                self.read.append((task.wanted.start, task.wanted.end))
        self.done = len(self.offsets)

    def _latest(self) -> str:
        return json.dumps(self.reader.latestOffset())

    def _initial(self) -> str:
        return json.dumps(self.reader.initialOffset())


@pytest.fixture
def spark(bootstrap: str, topic: str) -> Iterator[Callable[..., Spark]]:
    readers: list[RememberingStreamReader] = []

    def make(**given: Any) -> Spark:
        def reader() -> RememberingStreamReader:
            options = options_for(bootstrap, topic, **{"startingOffsets": "earliest", **given})
            # Spark makes it from the data source in the process of the stream.
            readers.append(pickle.loads(pickle.dumps(RememberingStreamReader(options, ("value",)))))
            return readers[-1]

        return Spark(reader)

    yield make
    for each in readers:
        each.stop()


@pytest.fixture
def write(bootstrap: str, topic: str) -> Callable[[int], None]:
    return lambda count: fill(bootstrap, topic, range(count))


def committed(admin: Admin, group: str) -> list[int]:
    return [at.offset for at in admin.group_offsets(group).values()]


def is_committed(admin: Admin, group: str, offset: int) -> None:
    eventually(lambda: committed(admin, group) == [offset], f"{offset} is committed", 30)


@pytest.mark.parametrize("mode", ["member", "assign", "shared"])
def test_triggers_with_a_limit_and_a_restart(
    spark: Any, write: Any, admin: Admin, topic: str, mode: str
) -> None:
    group = f"g-{topic}"
    write(25)
    query = spark(maxOffsetsPerTrigger=10, kafka__group__id=group, groupMode=mode)
    query.start()
    assert [query.trigger() for _ in range(4)] == [True, True, True, False]
    assert query.read == [(0, 10), (10, 20), (20, 25)]
    is_committed(admin, group, 25)
    query.reader.stop()
    write(15)
    query.start()
    assert [query.trigger() for _ in range(3)] == [True, True, False]
    assert query.read[3:] == [(25, 35), (35, 40)]
    is_committed(admin, group, 40)


def test_a_batch_that_was_planned_is_not_committed_before_spark_asks_for_the_next(
    spark: Any, write: Any, admin: Admin, topic: str
) -> None:
    group = f"g-{topic}"
    write(5)
    query = spark(kafka__group__id=group)
    query.start()
    query.trigger()
    write(5)
    query.trigger(fails=True)
    query.reader.stop()
    assert committed(admin, group) == [5]
    query.start()
    assert query.read == [(0, 5), (5, 10)]
    query.reader.stop()  # it may have failed again
    assert committed(admin, group) == [5]
    query.start()
    assert query.trigger() is False
    query.reader.stop()
    assert committed(admin, group) == [10]


def test_one_batch_only(spark: Any, write: Any, admin: Admin, topic: str) -> None:
    """Once, and AvailableNow by default: Spark says nothing after the batch, and the next run commits it."""
    group = f"g-{topic}"
    write(5)
    query = spark(kafka__group__id=group)
    query.start()
    query.trigger()
    query.reader.stop()
    assert committed(admin, group) == [0]
    query.start()
    assert query.trigger() is False
    query.reader.stop()
    assert committed(admin, group) == [5]
    assert query.read == [(0, 5)]


def test_available_now_with_sparks_wrapper(spark: Any, write: Any, admin: Admin, topic: str) -> None:
    group = f"g-{topic}"
    write(5)
    query = spark(kafka__group__id=group)
    query.start(wrapped=True)
    write(2)  # too late for this run
    assert [query.trigger() for _ in range(2)] == [True, False]
    query.reader.stop()
    assert query.read == [(0, 5)]
    assert committed(admin, group) == [5]
    query.start(wrapped=True)
    assert [query.trigger() for _ in range(2)] == [True, False]
    query.reader.stop()
    assert query.read == [(0, 5), (5, 7)]
    assert committed(admin, group) == [7]


def test_the_wrapper_goes_on_after_a_batch_that_failed(
    spark: Any, write: Any, admin: Admin, topic: str
) -> None:
    group = f"g-{topic}"
    write(5)
    query = spark(kafka__group__id=group)
    query.start(wrapped=True)
    query.trigger(fails=True)
    query.reader.stop()
    assert committed(admin, group) == [0]
    write(5)
    query.start(wrapped=True)
    assert [query.trigger() for _ in range(2)] == [True, False]
    query.reader.stop()
    assert query.read == [(0, 5), (5, 10)]
    assert committed(admin, group) == [10]


def test_the_wrapper_with_a_checkpoint_does_not_look_at_starting_offsets(
    bootstrap: str, spark: Any, write: Any, admin: Admin, topic: str
) -> None:
    """They do not name the new partition. That is an error of a new query only."""
    group = f"g-{topic}"
    write(5)
    given = {"startingOffsets": f'{{"{topic}":{{"0":-2}}}}'}
    query = spark(kafka__group__id=group, **given)
    query.start(wrapped=True)
    assert [query.trigger() for _ in range(2)] == [True, False]
    query.reader.stop()
    admin.create_partitions({topic: 2})
    fill(bootstrap, topic, range(3), partition=1)
    query.start(wrapped=True)
    assert [query.trigger() for _ in range(2)] == [True, False]
    query.reader.stop()
    assert query.read == [(0, 5), (0, 3)]
    assert committed(admin, group) == [5, 3]
    new = spark(**given)
    new.start(wrapped=True)
    with pytest.raises(ValueError, match="don't match what are assigned"):
        new.trigger()


def test_the_wrapper_never_leads_back_behind_the_checkpoint(spark: Any, write: Any) -> None:
    """Without a group nothing but the checkpoint knows where the query stands, and it comes too late."""
    write(25)
    query = spark(maxOffsetsPerTrigger=10)
    query.start()
    assert [query.trigger() for _ in range(4)] == [True, True, True, False]
    with pytest.raises(UnknownStart, match=r"leave out one|Leave out one"):
        query.start(wrapped=True)


def test_a_batch_whose_tasks_nobody_asks_for(spark: Any, write: Any, admin: Admin, topic: str) -> None:
    """The optimizer may find that nothing of the source is needed; the query goes on, one commit later."""
    group = f"g-{topic}"
    write(25)
    query = spark(maxOffsetsPerTrigger=10, kafka__group__id=group)
    query.plans = False
    query.start()
    assert [query.trigger() for _ in range(4)] == [True, True, True, False]
    query.reader.stop()
    assert committed(admin, group) == [20]


def test_a_first_batch_that_is_cut_is_told(spark: Any, write: Any, caplog: pytest.LogCaptureFixture) -> None:
    write(25)
    query = spark(maxOffsetsPerTrigger=10)
    with caplog.at_level(logging.WARNING, "kohort.spark"):
        query.start()
        query.trigger()
        query.trigger()
    told = [record.getMessage() for record in caplog.records if "maxOffsetsPerTrigger" in record.getMessage()]
    assert len(told) == 1
    assert "ends 15 offsets before the end" in told[0]


def test_too_few_offsets_wait_but_for_the_first_batch(spark: Any, write: Any) -> None:
    query = spark(minOffsetsPerTrigger=10)
    write(3)
    query.start()
    assert query.trigger() is True
    write(3)
    assert query.trigger() is False
    write(7)
    assert query.trigger() is True
    assert query.read == [(0, 3), (3, 13)]


def test_a_new_partition_is_read_from_its_first_record(
    spark: Any, write: Any, admin: Admin, bootstrap: str, topic: str
) -> None:
    write(3)
    query = spark()
    query.start()
    query.trigger()
    admin.create_partitions({topic: 2})
    fill(bootstrap, topic, range(2), partition=1)
    eventually(query.trigger, "the new partition is seen", 30)
    assert query.read == [(0, 3), (0, 2)]
    assert TopicPartition(topic, 1) in query.reader._position.at
