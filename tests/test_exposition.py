"""Metrics as Prometheus reads them."""

from __future__ import annotations

import urllib.error

import pytest

from kohort.exposition import Family, MetricsServer, exposition, metrics_address
from kohort.settings import SettingError
from tests.web import visit


def test_a_family_is_its_help_its_type_and_its_samples() -> None:
    family = Family("orders_total", "counter", "Orders so far.")
    family.add(3, shop="north", item="bread")
    family.add(0.25, shop="south")
    assert exposition([family, Family("empty", "gauge", "Nothing.")]) == (
        "# HELP orders_total Orders so far.\n"
        "# TYPE orders_total counter\n"
        'orders_total{shop="north",item="bread"} 3\n'
        'orders_total{shop="south"} 0.25\n'
    )


def test_large_offsets_are_written_in_full() -> None:
    assert exposition([Family("at", "gauge", "x", [({}, 9_007_199_254_740_993)])]).endswith(
        "\nat 9007199254740993\n"
    )


def test_labels_are_escaped() -> None:
    family = Family("g", "gauge", "x")
    family.add(1, name='a "b"\\c\nd')
    assert 'g{name="a \\"b\\"\\\\c\\nd"} 1\n' in exposition([family])


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


def test_it_is_served_at_metrics_on_loopback() -> None:
    server = MetricsServer(("127.0.0.1", 0), lambda: "up 1\n")
    try:
        assert server.address.startswith("http://127.0.0.1:")
        with visit(server.address) as answer:
            assert answer.read() == b"up 1\n"
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        with pytest.raises(urllib.error.HTTPError, match="the metrics are at /metrics") as missing:
            visit(server.address + "s")
        missing.value.close()
        port = int(server.address.split(":")[2].split("/")[0])
        with pytest.raises(SettingError, match="choose another port"):
            MetricsServer(("127.0.0.1", port), lambda: "")
    finally:
        server.close()
