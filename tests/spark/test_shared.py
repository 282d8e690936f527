"""groupMode=shared: queries and plain consumers split the partitions of a group, and take over from each other."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from kohort import Admin, Consumer, TopicPartition
from kohort.broker.running import running
from kohort.spark.driver.member import SharedMember
from kohort.spark.driver.stream import StreamDriver
from kohort.spark.executor.tasks import RangePartition
from kohort.spark.offsets import Offsets, from_json, to_json
from tests.clients.process import eventually
from tests.spark.reading import fill, options_for

PARTITIONS = 4


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with running(
        group_consumer_heartbeat_interval_ms=100, group_consumer_min_heartbeat_interval_ms=100
    ) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def admin(bootstrap: str) -> Iterator[Admin]:
    with Admin(bootstrap_servers=bootstrap) as client:
        yield client


_names = itertools.count()


@pytest.fixture
def topic(admin: Admin) -> str:
    name = f"shared{next(_names)}"
    admin.create_topic(name, PARTITIONS)
    return name


class Query:
    """What Spark does with a driver, again and again: plan, read, write down. `checkpoint` is what is durable."""

    def __init__(self, bootstrap: str, topic: str, checkpoint: str | None = None, **given: Any) -> None:
        options = {"kafka__group__id": topic, "groupMode": "shared", "startingOffsets": "earliest"}
        # Only who is meant to be taken for dead has a short session: a machine may stand still for a while.
        if "kafka__group__protocol" not in given:  # else the broker decides
            options |= {"kafka__session__timeout__ms": "300000", "kafka__heartbeat__interval__ms": "100"}
        options |= given
        self.driver = StreamDriver(options_for(bootstrap, topic, **options))
        self.checkpoint = checkpoint
        self._seen: list[tuple[int, int]] = []
        self._end = threading.Event()
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def read(self) -> Counter[tuple[int, int]]:
        """How often each record was read until now. A copy: the query goes on meanwhile."""
        assert self.error is None
        return Counter(list(self._seen))

    @property
    def owned(self) -> set[int]:
        group = self.driver.group
        assert isinstance(group, SharedMember)
        return {partition.partition for partition in group.owned()}

    def _run(self) -> None:
        try:
            start = from_json(self.checkpoint) if self.checkpoint is not None else self.driver.initial()
            while not self._end.wait(0.02):
                end = self.driver.next(start, limited=True)
                if end != start:
                    self._batch(start, end)
                    start = end
                    self.checkpoint = to_json(end)
        except BaseException as error:
            self.error = error

    def _batch(self, start: Offsets, end: Offsets) -> None:
        for task in self.driver.tasks(start, end):
            assert isinstance(task, RangePartition)
            wanted = task.wanted
            self._seen += [(wanted.partition.partition, offset) for offset in range(wanted.start, wanted.end)]

    def kill(self) -> None:
        """The driver ends without a word: its connections are cut."""
        self._end.set()
        self._thread.join(30)
        self.driver.group._stopping = True  # type: ignore[attr-defined]
        self.driver.group.session.close()

    def stop(self) -> None:
        self._end.set()
        self._thread.join(30)
        self.driver.close()
        assert self.error is None


@pytest.fixture
def query(bootstrap: str, topic: str) -> Iterator[Any]:
    queries: list[Query] = []

    def make(**given: Any) -> Query:
        queries.append(Query(bootstrap, topic, **given))
        return queries[-1]

    yield make
    for each in queries:
        if each._thread.is_alive():
            each.stop()


def write(bootstrap: str, topic: str, count: int) -> None:
    for partition in range(PARTITIONS):
        fill(bootstrap, topic, range(count), partition)


def everything(count: int) -> set[tuple[int, int]]:
    return {(partition, offset) for partition in range(PARTITIONS) for offset in range(count)}


def committed(admin: Admin, topic: str, count: int) -> bool:
    """Spark tells of the last batch with the next trigger: a query that is stopped before leaves it uncommitted."""
    return {at.offset for at in admin.group_offsets(topic).values()} == {count}


def split(*members: set[int]) -> bool:
    """All partitions are somebody's, none is two members', nobody has none."""
    return all(members) and sorted(p for member in members for p in member) == list(range(PARTITIONS))


@pytest.mark.parametrize(
    "protocol", [{}, {"kafka__group__protocol": "consumer"}], ids=["classic", "consumer"]
)
def test_two_queries_share_and_hand_over_without_reading_twice(
    query: Any, bootstrap: str, topic: str, admin: Admin, protocol: dict[str, str]
) -> None:
    first = query(**protocol)
    write(bootstrap, topic, 50)
    eventually(lambda: set(first.read) == everything(50), "the first query reads everything")
    second = query(**protocol)
    eventually(lambda: split(first.owned, second.owned), "each has some partitions")
    write(bootstrap, topic, 50)
    eventually(lambda: set(first.read + second.read) == everything(100), "both together read everything")
    assert second.read
    eventually(lambda: committed(admin, topic, 100), "all is committed")
    first.stop()
    eventually(lambda: second.owned == set(range(PARTITIONS)), "the second one takes over")
    write(bootstrap, topic, 50)
    eventually(lambda: set(first.read + second.read) == everything(150), "nothing is left out")
    assert max((first.read + second.read).values()) == 1


def test_what_is_ours_and_not_in_the_offsets_is_begun_where_the_group_is(
    query: Any, bootstrap: str, topic: str, admin: Admin
) -> None:
    """A rebalance between two looks once left partitions out of the offsets for good."""
    first = query()
    write(bootstrap, topic, 10)
    eventually(lambda: set(first.read) == everything(10), "the query reads everything")
    eventually(lambda: committed(admin, topic, 10), "all is committed")
    first._end.set()
    first._thread.join(30)
    begun = first.driver.next({}, limited=True)
    assert begun == {TopicPartition(topic, partition): 10 for partition in range(PARTITIONS)}
    first.driver.close()


def test_a_query_and_a_plain_consumer(query: Any, bootstrap: str, topic: str, admin: Admin) -> None:
    write(bootstrap, topic, 20)
    first = query()
    eventually(lambda: set(first.read) == everything(20), "the query reads everything")
    seen: Counter[tuple[int, int]] = Counter()
    with Consumer(bootstrap_servers=bootstrap, group_id=topic, auto_offset_reset="none") as plain:
        plain.subscribe([topic])

        def poll() -> set[int]:
            for records in plain.poll(0.05).values():
                seen.update((record.partition, record.offset) for record in records)
            return {partition.partition for partition in plain.assignment()}

        eventually(lambda: split(poll(), first.owned), "they share")
        write(bootstrap, topic, 20)
        eventually(
            lambda: poll() and set(first.read + seen) == everything(40), "both together read everything"
        )
        assert seen
    eventually(lambda: first.owned == set(range(PARTITIONS)), "the query has all of them again")
    write(bootstrap, topic, 20)
    eventually(lambda: set(first.read + seen) == everything(60), "and reads on where the consumer has been")
    assert max((first.read + seen).values()) == 1


def test_a_killed_query_is_taken_over_at_least_once(query: Any, bootstrap: str, topic: str) -> None:
    first, second = query(kafka__session__timeout__ms="6000"), query()
    eventually(lambda: split(first.owned, second.owned), "each has some partitions")
    write(bootstrap, topic, 50)
    eventually(lambda: set(first.read + second.read) == everything(50), "both together read everything")
    first.kill()
    write(bootstrap, topic, 50)
    eventually(lambda: set(first.read + second.read) == everything(100), "the second reads on", 90)


def test_a_restart_goes_on_where_the_group_is_by_now(
    query: Any, bootstrap: str, topic: str, admin: Admin
) -> None:
    """The checkpoint of a query that was away is behind what others have read meanwhile."""
    first = query()
    write(bootstrap, topic, 10)
    eventually(lambda: set(first.read) == everything(10), "the first query reads everything")
    eventually(lambda: committed(admin, topic, 10), "all is committed")
    first.stop()
    other = query()
    write(bootstrap, topic, 10)
    eventually(lambda: set(other.read) | set(first.read) == everything(20), "the other one reads on")
    eventually(lambda: committed(admin, topic, 20), "all is committed")
    other.stop()
    again = query(checkpoint=first.checkpoint)
    write(bootstrap, topic, 10)
    together = lambda: first.read + other.read + again.read  # noqa: E731
    eventually(lambda: set(together()) == everything(30), "everything is read")
    assert max(together().values()) == 1
    again.stop()
    assert from_json(again.checkpoint) == {TopicPartition(topic, n): 30 for n in range(PARTITIONS)}
