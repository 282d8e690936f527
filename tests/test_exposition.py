"""Metrics as Prometheus reads them, and the server that serves them."""

from __future__ import annotations

import gzip
import http.client
import json
import logging
import socket
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry

from kohort.exposition import (
    HealthReport,
    HistogramValue,
    MetricSpec,
    MetricsServer,
    Samples,
    metrics_address,
    registry_of,
    text_of,
)
from kohort.settings import SettingError

ORDERS = MetricSpec("orders_total", "counter", "Orders so far.", ("shop", "item"))
SUM = MetricSpec("stock_sum", "untyped", "All that is there.")
TIME = MetricSpec("sale_seconds", "histogram", "How long a sale took.")


def samples() -> Samples:
    return {
        ORDERS: [(("north", "bread"), 3), (('a "b"\\c\nd', "x"), 0.25)],
        MetricSpec("empty", "gauge", "Nothing."): [],
        SUM: [((), 7)],
        TIME: [((), HistogramValue((0.1, 1), (2, 0, 1), 5.5))],
    }


def test_samples_become_prometheus_text():
    assert text_of(registry_of(samples)) == (
        "# HELP orders_total Orders so far.\n"
        "# TYPE orders_total counter\n"
        'orders_total{item="bread",shop="north"} 3.0\n'
        'orders_total{item="x",shop="a \\"b\\"\\\\c\\nd"} 0.25\n'
        "# HELP stock_sum All that is there.\n"
        "# TYPE stock_sum untyped\n"
        "stock_sum 7.0\n"
        "# HELP sale_seconds How long a sale took.\n"
        "# TYPE sale_seconds histogram\n"
        'sale_seconds_bucket{le="0.1"} 2.0\n'
        'sale_seconds_bucket{le="1"} 2.0\n'
        'sale_seconds_bucket{le="+Inf"} 3.0\n'
        "sale_seconds_count 3.0\n"
        "sale_seconds_sum 5.5\n"
    )


def test_a_registry_is_its_own_and_has_the_process_if_that_is_wanted():
    assert "process_cpu_seconds_total" not in text_of(registry_of(dict))
    assert "python_info" in text_of(registry_of(dict, of_process=True))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("9464", ("127.0.0.1", 9464)),
        ("0.0.0.0:9464", ("0.0.0.0", 9464)),
        (":0", ("127.0.0.1", 0)),
        ("[::1]:1", ("::1", 1)),
    ],
)
def test_an_address_is_a_port_or_host_and_port(text: str, expected: tuple[str, int]) -> None:
    assert metrics_address(text) == expected


@pytest.mark.parametrize("text", ["", "here", "127.0.0.1", "127.0.0.1:", "65536", "1.5", "-1"])
def test_a_wrong_address_says_how_to_write_one(text: str) -> None:
    with pytest.raises(SettingError, match="for example --metrics 9464"):
        metrics_address(text)


class Fetched:
    """One answer of the server."""

    def __init__(self, address: str, path: str, method: str = "GET", **headers: str) -> None:
        host, _, port = address.removeprefix("http://").removesuffix("/metrics").rpartition(":")
        connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=60)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.putrequest(method, path, skip_host="Host" in named, skip_accept_encoding=True)
        for name, value in named.items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        self.status, self.headers, self.body = answer.status, answer.headers, answer.read()
        connection.close()


@pytest.fixture(scope="module")
def served() -> Iterator[str]:
    server = MetricsServer(
        ("127.0.0.1", 0),
        registry_of(samples),
        readyz=lambda: HealthReport(("the disk is full",), {"node": 1}),
    )
    yield server.address
    server.close()


def test_metrics_are_served_on_loopback(served: str) -> None:
    assert served.startswith("http://127.0.0.1:")
    for path in ("/metrics", "/", "/metrics?x=1"):
        answer = Fetched(served, path)
        assert answer.status == 200
        assert b"stock_sum 7.0\n" in answer.body
        assert answer.headers["Content-Type"].startswith("text/plain; version=")
    assert Fetched(served, "/metrics", "HEAD").body == b""
    assert Fetched(served, "/metricss").status == 404
    assert Fetched(served, "/metrics", "POST").status == 501


def test_prometheus_gets_the_format_that_it_asks_for(served: str) -> None:
    asked = Fetched(served, "/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert asked.headers["Content-Type"].startswith("application/openmetrics-text")
    assert asked.body.endswith(b"# EOF\n")
    packed = Fetched(served, "/metrics", Accept_Encoding="gzip")
    assert packed.headers["Content-Encoding"] == "gzip"
    assert b"stock_sum" in gzip.decompress(packed.body)


def test_health_is_a_status_and_json_that_says_why(served: str) -> None:
    alive = Fetched(served, "/healthz")
    assert (alive.status, json.loads(alive.body)) == (200, {"status": "ok", "problems": []})
    ready = Fetched(served, "/readyz")
    assert ready.status == 503
    assert json.loads(ready.body) == {"status": "unavailable", "problems": ["the disk is full"], "node": 1}


@pytest.mark.parametrize(
    "host", ["localhost:9464", "127.0.0.1", "127.9.9.9:1", "[::1]:9", "localhost.", "", "LOCALHOST"]
)
def test_a_host_header_may_name_loopback_in_any_way(served: str, host: str) -> None:
    assert Fetched(served, "/metrics", Host=host).status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:9464", "10.0.0.1", "127.0.0.1.evil.example", "[::2]"]
)
def test_a_page_that_gave_its_own_name_our_address_reads_nothing(served: str, host: str) -> None:
    for path in ("/metrics", "/readyz"):
        refused = Fetched(served, path, Host=host)
        assert refused.status == 421
        assert b"stock_sum" not in refused.body


def test_on_another_address_any_name_will_do() -> None:
    server = MetricsServer(("0.0.0.0", 0), registry_of(samples))
    try:
        there = server.address.replace("0.0.0.0", "127.0.0.1")
        assert Fetched(there, "/metrics", Host="broker.example:9464").status == 200
    finally:
        server.close()


def test_ipv6_is_served_and_written_in_brackets() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6 on loopback")
    server = MetricsServer(("::1", 0), registry_of(samples))
    try:
        assert server.address.startswith("http://[::1]:")
        assert Fetched(server.address, "/metrics").status == 200
    finally:
        server.close()


def test_a_busy_port_says_what_to_do(served: str) -> None:
    port = int(served.split(":")[2].split("/")[0])
    with pytest.raises(SettingError, match="choose another port"):
        MetricsServer(("127.0.0.1", port), CollectorRegistry())


def test_a_collector_that_fails_is_logged_and_the_next_scrape_is_answered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fails = iter([True, False])

    def sometimes() -> Samples:
        if next(fails):
            raise RuntimeError("no samples now")
        return samples()

    server = MetricsServer(("127.0.0.1", 0), registry_of(sometimes))
    try:
        with caplog.at_level(logging.ERROR, "kohort.metrics"), pytest.raises(http.client.RemoteDisconnected):
            Fetched(server.address, "/metrics")
        assert Fetched(server.address, "/metrics").status == 200
    finally:
        server.close()
    assert "could not be answered" in caplog.text
