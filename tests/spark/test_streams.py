"""`spark.readStream.format("kohort")` on a real Spark: triggers, checkpoints, the group as others see it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kohort import Admin, Consumer, TopicPartition
from kohort.spark import lag
from tests.clients.process import BrokerProcess, eventually


class Sink:
    """What arrived, by micro-batch."""

    def __init__(self) -> None:
        self.batches: dict[int, list[int]] = {}

    def __call__(self, frame: Any, batch_id: int) -> None:
        self.batches[batch_id] = [int(row.value) for row in frame.select("value").collect()]

    @property
    def sizes(self) -> list[int]:
        return [len(self.batches[n]) for n in sorted(self.batches)]

    @property
    def all(self) -> list[int]:
        batches = list(self.batches.values())  # in one go: Spark's thread may be adding one
        return sorted(value for values in batches for value in values)


@pytest.fixture
def stream(spark: Any, broker: BrokerProcess, checkpoint: str) -> Iterator[Callable[..., Any]]:
    """`stream(sink, subscribe=topic, trigger={"availableNow": True})` starts a query."""
    queries: list[Any] = []

    def start(
        sink: Sink, trigger: dict[str, Any] | None = None, folder: str = checkpoint, **options: Any
    ) -> Any:
        reader = spark.readStream.format("kohort").option("kafka.bootstrap.servers", broker.bootstrap_servers)
        for name, value in options.items():
            reader = reader.option(name.replace("__", "."), value)
        writer = reader.load().writeStream.foreachBatch(sink).option("checkpointLocation", folder)
        queries.append((writer.trigger(**trigger) if trigger else writer).start())
        return queries[-1]

    yield start
    for query in queries:
        query.stop()


NOW = {"availableNow": True}
PATIENCE_S = 180
# So long that nobody is taken for dead on a machine that stands still, nor out of the group without having left.
LONG_SESSION = {"kafka__session__timeout__ms": 300_000}


def offsets_in(checkpoint: str) -> list[str]:
    """The third lines of the offset log, in order."""
    files = [path for path in (Path(checkpoint) / "offsets").iterdir() if path.name.isdigit()]
    return [path.read_text().splitlines()[2] for path in sorted(files, key=lambda path: int(path.name))]


def committed(admin: Admin, group: str) -> dict[int, int]:
    return {partition.partition: at.offset for partition, at in admin.group_offsets(group).items()}


def arrives(query: Any, condition: Callable[[], Any], what: str) -> None:
    """Waits for something that a query does; if the query ends, that is shown."""

    def look() -> Any:
        error = query.exception()
        assert error is None, str(error)[-3000:]
        return condition()

    eventually(look, what, PATIENCE_S)


def ended(query: Any) -> None:
    assert query.awaitTermination(PATIENCE_S)


def is_left(admin: Admin, group: str) -> None:
    """Spark ends a query before its member has left. A next query would wait for that, but not for long."""
    eventually(lambda: admin.describe_groups(group)[group].state == "Empty", "the group is left in order", 60)


def test_available_now_with_a_limit_and_again(
    stream: Any, new_topic: Any, produce: Any, checkpoint: str, admin: Admin, new_name: Any
) -> None:
    topic, group, sink = new_topic(partitions=2), new_name("group"), Sink()
    produce(topic, range(12), partition=0)
    produce(topic, range(12, 15), partition=1)
    given = {"subscribe": topic, "kafka__group__id": group, "startingOffsets": "earliest", **LONG_SESSION}
    ended(stream(sink, NOW, maxOffsetsPerTrigger=10, **given))
    assert sink.sizes == [10, 5]
    assert sink.all == list(range(15))
    assert offsets_in(checkpoint) == [f'{{"{topic}":{{"0":8,"1":2}}}}', f'{{"{topic}":{{"0":12,"1":3}}}}']
    assert committed(admin, group) == {0: 12, 1: 3}  # also what the last batch has read
    is_left(admin, group)

    produce(topic, range(15, 20), partition=1)
    ended(stream(sink, NOW, **{**given, "startingOffsets": "latest"}))  # which has no effect on a restart
    assert sink.all == list(range(20))
    is_left(admin, group)
    ended(stream(sink, NOW, **given))
    assert len(offsets_in(checkpoint)) == 3  # a query with nothing to read writes nothing
    is_left(admin, group)
    ended(stream(sink, {"once": True}, maxOffsetsPerTrigger=1, **given))
    assert sink.all == list(range(20))


def test_a_running_query_is_a_member_whose_lag_shows(
    stream: Any, new_topic: Any, produce: Any, admin: Admin, new_name: Any, broker: BrokerProcess
) -> None:
    topic, group, sink = new_topic(partitions=2), new_name("group"), Sink()
    query = stream(sink, subscribe=topic, kafka__group__id=group, **LONG_SESSION)

    def members() -> Any:
        return admin.describe_groups(group)[group].members

    arrives(query, members, "the driver is a member")
    assert members()[0].group_instance_id == f"kohort-spark-{group}"
    arrives(query, lambda: committed(admin, group) == {0: 0, 1: 0}, "the start is committed")
    produce(topic, range(5), partition=1)
    arrives(query, lambda: sink.all == list(range(5)), "the records arrive")
    arrives(query, lambda: committed(admin, group) == {0: 0, 1: 5}, "also of the last batch on an idle topic")
    (progress,) = (
        each for each in query.recentProgress if each["numInputRows"]
    )  # others are of idle triggers
    source = json.loads(progress.json)["sources"][0] if hasattr(progress, "json") else progress["sources"][0]
    assert source["endOffset"] == {topic: {"0": 0, "1": 5}}
    assert source["latestOffset"] == {topic: {"0": 0, "1": 5}}
    assert lag(query) == {TopicPartition(topic, 0): 0, TopicPartition(topic, 1): 0}
    with Consumer(bootstrap_servers=broker.bootstrap_servers, group_id=group) as tool:
        seen = tool.committed((topic, 1))[TopicPartition(topic, 1)]
        assert seen is not None
        assert seen.offset == 5
    query.stop()
    is_left(admin, group)
    assert not members()
    assert committed(admin, group) == {0: 0, 1: 5}


def test_a_second_query_in_the_group_fails_and_the_first_goes_on(
    stream: Any, new_topic: Any, produce: Any, admin: Admin, new_name: Any, tmp_path: Path
) -> None:
    topic, group, first, second = new_topic(), new_name("group"), Sink(), Sink()
    given = {"subscribe": topic, "kafka__group__id": group, **LONG_SESSION}
    query = stream(first, **given)
    arrives(query, lambda: committed(admin, group) == {0: 0}, "the first one has begun")
    other = stream(second, folder=str(tmp_path / "other"), **given)
    with pytest.raises(Exception, match="already has a query"):
        other.awaitTermination(PATIENCE_S)
    produce(topic, range(3))
    arrives(query, lambda: first.all == [0, 1, 2], "the first one goes on")
    assert query.exception() is None


def test_a_wrong_option_ends_the_query_with_its_text(stream: Any, new_topic: Any) -> None:
    query = stream(Sink(), subscribe=new_topic(), endingOffsets="latest")
    with pytest.raises(Exception, match="ending offset not valid in streaming queries"):
        query.awaitTermination(PATIENCE_S)


def test_records_that_are_gone_end_the_query(stream: Any, new_topic: Any, produce: Any, admin: Admin) -> None:
    topic, sink = new_topic(), Sink()
    produce(topic, range(10))
    given = {"subscribe": topic, "startingOffsets": f'{{"{topic}":{{"0":2}}}}'}
    admin.delete_records({(topic, 0): 6})
    with pytest.raises(Exception, match=r"Could not read records in offset \[2, 10\)"):
        stream(sink, NOW, **given).awaitTermination(PATIENCE_S)
    ended(stream(sink, NOW, failOnDataLoss=False, **given))
    assert sink.all == [6, 7, 8, 9]


def test_new_partitions_under_a_running_query(
    stream: Any, new_topic: Any, produce: Any, admin: Admin, new_name: Any
) -> None:
    topic, sink, group = new_topic(), Sink(), new_name("group")
    query = stream(sink, subscribe=topic, kafka__group__id=group, **LONG_SESSION)
    arrives(query, lambda: committed(admin, group) == {0: 0}, "the query has begun")
    admin.create_partitions({topic: 2})
    produce(topic, range(4), partition=1)
    arrives(query, lambda: sink.all == [0, 1, 2, 3], "the new partition is read from its beginning")
    arrives(query, lambda: committed(admin, group) == {0: 0, 1: 4}, "and committed")
