"""What insight sees of an Apache Kafka of two nodes: samples, the past, and rebalances from `__consumer_offsets`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing

import confluent_kafka
import pytest

from kohort import Admin, NewTopic, TopicPartition
from kohort.cli.doctor.cluster import check_cluster
from kohort.cli.doctor.findings import RIGHT, WRONG
from kohort.insight.past import past_lag, unread_since
from kohort.insight.rebalances import RebalanceFeed, rebalances_of
from kohort.insight.samples import sample_cluster
from kohort.insight.trends import Trends
from tests.insight.groups import member, settle

from .apache_kafka import KafkaCluster, start_cluster

pytestmark = pytest.mark.interop
PARTITIONS = 4


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    started = start_cluster(tmp_path_factory.mktemp("cluster"), nodes=2)
    with Admin(bootstrap_servers=started.bootstrap_servers) as admin:
        eventually(lambda: len(admin.describe_cluster().nodes) == 2, "both nodes are there")
        admin.create_topics([NewTopic("orders", assignments={n: (1 + n % 2,) for n in range(PARTITIONS)})])
        eventually(lambda: admin.describe_topics("orders"), "the topic is there")
        producer = confluent_kafka.Producer({"bootstrap.servers": started.bootstrap_servers})
        for n in range(40):
            producer.produce("orders", b"%d" % n, partition=n % PARTITIONS)
        assert producer.flush(30) == 0
        admin.alter_group_offsets("first", {("orders", 0): 1})  # makes __consumer_offsets
    yield started
    started.kill()


def eventually(true: Callable[[], object], what: str, patience_s: float = 60) -> None:
    deadline_s = time.monotonic() + patience_s
    while True:
        try:
            if true():
                return
        except Exception:
            if time.monotonic() > deadline_s:
                raise
        assert time.monotonic() < deadline_s, what
        time.sleep(0.2)


def settings(cluster: KafkaCluster) -> dict[str, str]:
    return {"bootstrap.servers": cluster.bootstrap_servers}


def test_a_sample_of_both_nodes(cluster: KafkaCluster) -> None:
    with Admin(settings(cluster)) as admin:
        for n in range(30):
            admin.alter_group_offsets(f"plain-{n}", {("orders", n % 4): 3})
        now_ms = int(time.time() * 1000)
        sample = sample_cluster(admin, now_ms)
        assert sample.problems == ()
        plain = [sample.groups[f"plain-{n}"] for n in range(30)]
        assert {group.lag for group in plain} == {7}
        assert {group.coordinator.node_id for group in plain if group.coordinator} == {1, 2}
        assert sample.topics["orders"].ends == dict.fromkeys(range(PARTITIONS), 10)
        trends = Trends()
        trends.add(sample)
        trends.add_past("plain-1", unread_since(admin, {TopicPartition("orders", 1): 3}, now_ms))
    trend = trends.group("plain-1")
    assert trend is not None
    assert trend.lag_seconds is not None
    assert 0 < trend.lag_seconds < 600


def test_the_rebalances_of_a_classic_group(cluster: KafkaCluster) -> None:
    servers = cluster.bootstrap_servers
    with Admin(settings(cluster)) as admin:
        first = member(servers, "classic", "orders", client_id="first")
        settle(first, partitions=PARTITIONS)
        with RebalanceFeed(admin, settings(cluster), "classic") as feed:
            second = member(servers, "classic", "orders", client_id="second")
            settle(first, second, partitions=PARTITIONS)
            first.close()
            settle(second, partitions=PARTITIONS)
            second.commit({("orders", 0): 6})
            second.close()
            told: list[int | None] = []

            def is_told() -> bool:
                told.extend(each.generation_after for _, each in feed.poll(1.0))
                return len(told) >= 3

            eventually(is_told, "the feed tells of three rebalances")
        found = rebalances_of(admin, settings(cluster), "classic")
        later_ms = int(time.time() * 1000) + 60_000
        past = past_lag(admin, settings(cluster), "classic", later_ms, span_ms=120_000, points=60)
    assert found.source == feed.source == "__consumer_offsets"
    assert [(each.size, each.outcome) for each in found.rebalances] == [
        (1, "Stable"), (2, "Stable"), (1, "Stable"), (0, "Empty"),
    ]  # fmt: skip
    reasons = [each.reason for each in found.rebalances]
    assert reasons[1].startswith("1 member came: second at ")
    assert reasons[2].startswith("1 member went: first at ")
    assert reasons[3] == "the last member went"
    assert told == [each.generation_after for each in found.rebalances[1:]]
    assert found.unknown
    assert past[TopicPartition("orders", 0)][-1].lag == 4


def test_the_epochs_of_a_consumer_group(cluster: KafkaCluster) -> None:
    """A group of KIP-848, whose members are librdkafka's."""

    def one(client_id: str) -> confluent_kafka.Consumer:
        consumer = confluent_kafka.Consumer(
            {**settings(cluster), "group.id": "newer", "group.protocol": "consumer", "client.id": client_id,
             "auto.offset.reset": "earliest"}
        )  # fmt: skip
        consumer.subscribe(["orders"])
        return consumer

    with closing(one("one")) as first:
        eventually(
            lambda: first.poll(0.2) is not None and len(first.assignment()) == PARTITIONS, "one owns all"
        )
        with closing(one("two")) as second:

            def both() -> bool:
                first.poll(0.1)
                second.poll(0.1)
                return len(first.assignment()) == len(second.assignment()) == PARTITIONS // 2

            eventually(both, "two own half each")
    with Admin(settings(cluster)) as admin:
        found = rebalances_of(admin, settings(cluster), "newer")
    came = [each for each in found.rebalances if each.came]
    went = [each for each in found.rebalances if each.went]
    assert [len(each.came) for each in came] == [1, 1]
    assert "two at " in came[1].reason
    assert len(went) == 2
    assert found.rebalances[-1].outcome == "Empty"
    epochs = [each.generation_after or 0 for each in found.rebalances]
    assert epochs == sorted(epochs)
    assert found.rebalances[0].moved == came[0].came


def test_the_doctor_finds_this_cluster_in_order(cluster: KafkaCluster) -> None:
    findings = list(check_cluster(settings(cluster), measure_clock=True))
    wrong = [each for each in findings if each.verdict == WRONG]
    # Groups of the other tests have come and gone within minutes, and nobody reads for them.
    assert not [each for each in wrong if not each.name.startswith("group ")], wrong
    assert {"node 1", "node 2", "controller", "partitions"} <= {each.name for each in findings}
    (clock,) = [each for each in findings if each.name == "measured clock"]
    assert clock.verdict == RIGHT, clock
