"""`kohort.prometheus.register`: clients in a registry of prometheus_client, named as dashboards know them."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable

import pytest
from prometheus_client import CollectorRegistry, Counter, generate_latest

from kohort import Admin, KohortError, Producer
from kohort.client.metrics import TABLES
from kohort.prometheus import register, series_name
from tests.client.consuming import quick, read


def test_names_are_those_of_micrometer():
    assert (
        series_name("consumer-coordinator-metrics", "join-time-max")
        == "kafka_consumer_coordinator_join_time_max"
    )
    assert (
        series_name("consumer-fetch-manager-metrics", "records-lag")
        == "kafka_consumer_fetch_manager_records_lag"
    )
    assert series_name("producer-topic-metrics", "byte-total") == "kafka_producer_topic_byte_total"
    assert series_name("admin-client-metrics", "connection-count") == "kafka_admin_client_connection_count"


def test_clients_are_in_the_registry_until_they_are_closed(
    bootstrap_servers: str, new_topic: Callable[..., str], group: str
):
    topic, registry = new_topic(), CollectorRegistry(auto_describe=True)
    own = Counter("orders_seen", "a metric of the program's own", registry=registry)
    with Producer(bootstrap_servers=bootstrap_servers, client_id="maker") as producer:
        register(producer, registry)
        register(producer, registry)  # it is there already
        producer.send(topic, b"one").result(30)
        labels = {"client_id": "maker", "topic": topic}
        assert registry.get_sample_value("kafka_producer_topic_record_send_total", labels) == 1
        with quick(bootstrap_servers, group, client_id="reader-1") as consumer:
            register(consumer, registry)
            consumer.subscribe([topic])
            assert read(consumer, 1) == [b"one"]
            labels = {"client_id": "reader-1", "topic": topic, "partition": "0"}
            assert registry.get_sample_value("kafka_consumer_fetch_manager_records_lag", labels) == 0
            joins = registry.get_sample_value(
                "kafka_consumer_coordinator_join_total", {"client_id": "reader-1"}
            )
            assert joins == 1
            own.inc()
            text = generate_latest(registry).decode()
        assert "reader-1" not in generate_latest(registry).decode()
        assert "maker" in generate_latest(registry).decode()
    assert "kafka_" not in generate_latest(registry).decode()
    assert "orders_seen_total" in text
    _is_well_formed(text)


def test_a_sum_over_topics_counts_nothing_twice(
    bootstrap_servers: str, new_topic: Callable[..., str], group: str
):
    topics, registry = [new_topic(), new_topic()], CollectorRegistry()
    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        for topic in topics:
            producer.send(topic, b"x").result(30)
    with quick(bootstrap_servers, group) as consumer:
        register(consumer, registry)
        consumer.subscribe(topics)
        read(consumer, 2)
        consumed = [
            sample.value
            for family in registry.collect()
            for sample in family.samples
            if sample.name == "kafka_consumer_fetch_manager_records_consumed_total"
        ]
    assert consumed == [1, 1]


def _is_well_formed(text: str) -> None:
    """Each series has a help and a type, none comes twice; promtool says the same, where it is installed."""
    lines = text.splitlines()
    series = [line.rsplit(" ", 1)[0] for line in lines if not line.startswith("#")]
    assert len(series) == len(set(series))
    promtool = shutil.which("promtool")
    if promtool is None:
        return
    checked = subprocess.run(
        [promtool, "check", "metrics"], input=text, capture_output=True, text=True, timeout=60, check=False
    )
    # Kafka's own names end so; promtool would keep "_count" for histograms, and spell units out.
    said = (checked.stdout + checked.stderr).splitlines()
    told = [line for line in said if not re.match(r"\w+_(connection_count|ns_total) ", line)]
    assert told == []


def test_clients_that_could_not_be_told_apart_are_refused(bootstrap_servers: str):
    registry = CollectorRegistry()
    with (
        Admin(bootstrap_servers=bootstrap_servers) as one,
        Admin(bootstrap_servers=bootstrap_servers) as two,
        Admin(bootstrap_servers=bootstrap_servers, client_id="another") as three,
        Producer(bootstrap_servers=bootstrap_servers) as producer,
    ):
        register(one, registry)
        with pytest.raises(KohortError, match=r"another admin-client with client\.id=kohort is registered"):
            register(two, registry)
        register(three, registry)
        register(producer, registry)  # of another kind, so its series have other names
        one.close()
        register(two, registry)


def test_a_client_that_is_closed_already_leaves_nothing_behind(bootstrap_servers: str):
    registry = CollectorRegistry()
    with Admin(bootstrap_servers=bootstrap_servers) as admin:
        pass
    register(admin, registry)
    assert generate_latest(registry) == b""


def test_no_two_metrics_share_the_name_of_a_series():
    names = [
        series_name(table.group.format(client=client), row.name)
        for client, tables in TABLES.items()
        for table in tables
        for row in table.rows
        if table.group != "kafka-metrics-count" and not table.tags
    ]
    assert len(names) == len(set(names))
