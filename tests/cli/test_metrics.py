"""`kohort serve --metrics`: a real broker, a real group, and what Prometheus would read."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from kohort import Admin, Consumer, Producer
from tests.cli.test_serve import Serve, run
from tests.clients.process import eventually
from tests.deploy.promtool import run_promtool
from tests.web import visit

Scraped = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scrape(address: str) -> Scraped:
    with visit(address) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}


def value(found: Scraped, name: str, **labels: str) -> float:
    return found[name, frozenset(labels.items())]


def metrics_of(served: Serve) -> str:
    assert served.process.stdout is not None
    told = re.match(r"metrics: (http://127\.0\.0\.1:\d+/metrics)$", served.process.stdout.readline())
    assert told
    return told[1]


def journal_writes_after_a_commit(address: str, consumer: Consumer) -> float:
    consumer.commit({("orders", 0): 7})
    return value(scrape(address), "kohort_journal_write_seconds_count")


def test_topics_and_groups_under_the_names_that_dashboards_know(tmp_path: Path) -> None:
    with Serve(
        tmp_path, "--listen", "127.0.0.1:0", "--metrics", "0", "--set", "group.initial.rebalance.delay.ms=0"
    ) as served:
        bootstrap = served.address()
        address = metrics_of(served)
        assert value(scrape(address), "kafka_brokers") == 1
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
            # Until the journal's first file is there, partitions are synced one by one.
            eventually(lambda: journal_writes_after_a_commit(address, consumer), "the journal is written")
            found = scrape(address)
            assert value(found, "kohort_groups", state="Stable") == 1
            assert value(found, "kafka_consumergroup_members", consumergroup="shop") == 1
            consumer.seek(("orders", 0), 7)  # what is committed when it closes
        found = scrape(address)
        assert value(found, "kohort_groups", state="Empty") == 1
        assert value(found, "kohort_group_rebalances_total", consumergroup="shop") == 2
        assert value(found, "kafka_topic_partitions", topic="orders") == 2
        of = {"topic": "orders", "partition": "0"}
        assert value(found, "kafka_topic_partition_current_offset", **of) == 10
        assert value(found, "kafka_topic_partition_oldest_offset", **of) == 0
        assert value(found, "kohort_topic_partition_bytes", **of) > 0
        second = frozenset({"topic": "orders", "partition": "1"}.items())
        assert ("kafka_topic_partition_current_offset", second) not in found
        assert value(found, "kafka_consumergroup_current_offset", consumergroup="shop", **of) == 7
        assert value(found, "kafka_consumergroup_lag", consumergroup="shop", **of) == 3
        assert value(found, "kafka_consumergroup_lag_sum", consumergroup="shop", topic="orders") == 3
        assert value(found, "kohort_journal_write_seconds_count") > 0
        assert value(found, "kohort_disk_free_bytes") > 0
        assert value(found, "process_cpu_seconds_total") > 0
        with visit(address) as answer:
            checked = run_promtool("check", "metrics", text=answer.read().decode())
        assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
        with visit(address.removesuffix("metrics") + "readyz") as answer:
            assert json.loads(answer.read())["listeners"] == [bootstrap]
        assert served.stop()[0] == 0


def test_a_wrong_address_stops_the_start_and_frees_the_directory(tmp_path: Path) -> None:
    refused = run("serve", tmp_path, "--listen", "127.0.0.1:0", "--metrics", "nowhere")
    assert refused.returncode != 0
    assert "for example --metrics 9464" in refused.stderr
    with Serve(tmp_path, "--listen", "127.0.0.1:0") as served:
        served.address()
        assert served.stop()[0] == 0


def test_without_metrics_nothing_of_them_is_loaded() -> None:
    program = (
        "import sys, kohort.cli.serve\n"
        "from kohort.broker.running import running\n"
        "with running(): pass\n"
        "print([name for name in sys.modules if name.startswith('prometheus_client')\n"
        "       or name in ('kohort.exposition', 'kohort.broker.meter', 'kohort.cli.systemd', 'http.server')])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert (ran.stdout, ran.returncode) == ("[]\n", 0), ran.stderr
