"""`kohort serve --metrics`: a real broker, a real group, and what Prometheus would read."""

from __future__ import annotations

import re
from pathlib import Path

from kohort import Admin, Consumer, Producer
from tests.cli.test_serve import Serve, run
from tests.web import visit


def scrape(address: str) -> dict[str, float]:
    with visit(address) as answer:
        lines = answer.read().decode().splitlines()
    return {name: float(value) for name, value in (x.rsplit(" ", 1) for x in lines if not x.startswith("#"))}


def test_topics_and_groups_under_the_names_that_dashboards_know(tmp_path: Path) -> None:
    with Serve(
        tmp_path, "--listen", "127.0.0.1:0", "--metrics", "0", "--set", "group.initial.rebalance.delay.ms=0"
    ) as served:
        bootstrap = served.address()
        assert served.process.stdout is not None
        told = re.match(r"metrics: (http://127\.0\.0\.1:\d+/metrics)$", served.process.stdout.readline())
        assert told
        assert scrape(told[1])["kafka_brokers"] == 1
        with Admin(bootstrap_servers=bootstrap) as admin:
            admin.create_topic("orders", 2)
        with Producer(bootstrap_servers=bootstrap) as producer:
            for _ in range(10):
                producer.send("orders", b"x", partition=0)
        with Consumer(bootstrap_servers=bootstrap, group_id="shop", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["orders"])
            seen = 0
            while seen < 10:
                seen += sum(map(len, consumer.poll(60.0).values()))
            consumer.commit({("orders", 0): 7})
            found = scrape(told[1])
            assert found['kohort_groups{state="Stable"}'] == 1
            assert found['kafka_consumergroup_members{consumergroup="shop"}'] == 1
            consumer.seek(("orders", 0), 7)  # what is committed when it closes
        found = scrape(told[1])
        assert found['kohort_groups{state="Empty"}'] == 1
        assert found['kohort_group_rebalances_total{consumergroup="shop"}'] == 2
        assert found['kafka_topic_partitions{topic="orders"}'] == 2
        assert found['kafka_topic_partition_current_offset{topic="orders",partition="0"}'] == 10
        assert found['kafka_topic_partition_oldest_offset{topic="orders",partition="0"}'] == 0
        assert found['kohort_topic_partition_bytes{topic="orders",partition="0"}'] > 0
        assert 'kafka_topic_partition_current_offset{topic="orders",partition="1"}' not in found
        of = 'consumergroup="shop",topic="orders"'
        assert found[f'kafka_consumergroup_current_offset{{{of},partition="0"}}'] == 7
        assert found[f'kafka_consumergroup_lag{{{of},partition="0"}}'] == 3
        assert found[f"kafka_consumergroup_lag_sum{{{of}}}"] == 3
        assert served.stop()[0] == 0


def test_a_wrong_address_stops_the_start_and_frees_the_directory(tmp_path: Path) -> None:
    refused = run("serve", tmp_path, "--listen", "127.0.0.1:0", "--metrics", "nowhere")
    assert refused.returncode != 0
    assert "for example --metrics 9464" in refused.stderr
    with Serve(tmp_path, "--listen", "127.0.0.1:0") as served:
        served.address()
        assert served.stop()[0] == 0
