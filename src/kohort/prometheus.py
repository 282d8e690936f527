"""Shows the metrics of clients in a registry of prometheus_client.

    from prometheus_client import start_http_server
    from kohort import Consumer, prometheus

    start_http_server(9000, "127.0.0.1")
    consumer = Consumer(bootstrap_servers="127.0.0.1:9092", group_id="billing", client_id="billing-1")
    prometheus.register(consumer)

A series is named as Micrometer names Kafka's metrics, which the dashboards for Java clients know:
`records-lag` of `consumer-fetch-manager-metrics` is `kafka_consumer_fetch_manager_records_lag`, with the labels
`client_id`, `topic` and `partition`. What Kafka counts both of a client and of its topics is here by topic alone, so
that sums are right. A metric without a value so far is left out.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator

from prometheus_client.core import REGISTRY, CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from kohort.client.metrics import TABLES, MeasuredClient, MetricName
from kohort.errors import KohortError

_lock = threading.Lock()
_collectors: weakref.WeakKeyDictionary[CollectorRegistry, ClientCollector] = weakref.WeakKeyDictionary()

_OWN_COUNT = "kafka-metrics-count"
_TOTAL = "_total"


def register(client: MeasuredClient, registry: CollectorRegistry = REGISTRY) -> None:
    """Shows the metrics of this client in the registry, until the client is closed.

    Clients of one kind need different `client.id`s to be told apart: KohortError if another one has the same.
    """
    identity = _identity(client)
    with _lock:
        collector = _collectors.get(registry)
        if collector is None:
            collector = _collectors[registry] = ClientCollector()
            registry.register(collector)
        other = collector.clients.get(identity)
        if other is client:
            return
        if other is not None:
            kind, client_id = identity
            raise KohortError(
                f"another {kind} with client.id={client_id} is registered: give each its own client.id, so that their "
                "series can be told apart"
            )
        collector.clients[identity] = client
    client.on_close(lambda: _unregister(identity, registry))


def _unregister(identity: tuple[str, str], registry: CollectorRegistry) -> None:
    with _lock:
        collector = _collectors.get(registry)
        if (
            collector is not None
            and collector.clients.pop(identity, None) is not None
            and not collector.clients
        ):
            del _collectors[registry]
            registry.unregister(collector)


def _identity(client: MeasuredClient) -> tuple[str, str]:
    """Returns the kind of a client and its client.id."""
    first = next(name for name in client.metrics() if name.group != _OWN_COUNT)
    kind = next(prefix for prefix in TABLES if first.group.startswith(f"{prefix}-"))
    return kind, first.tags["client-id"]


class ClientCollector(Collector):
    """Makes families of what all registered clients have counted, each time somebody asks the registry."""

    def __init__(self) -> None:
        self.clients: dict[tuple[str, str], MeasuredClient] = {}

    def describe(self) -> list[Metric]:
        """Names nothing in advance: clients come and go."""
        return []

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for client in self.clients.copy().values():
            for name, value in client.metrics().items():
                if value == value and _FINEST.get((name.group, name.name)) == len(name.tags) - 1:
                    _add(families, name, value)
        yield from families.values()


def series_name(group: str, name: str) -> str:
    """Returns the name of a series: of `consumer-metrics` and `connection-count`, kafka_consumer_connection_count."""
    return f"kafka_{group.replace('-metrics', '')}_{name}".replace("-", "_")


def _add(families: dict[str, Metric], name: MetricName, value: float) -> None:
    series = series_name(name.group, name.name)
    labels = sorted(name.tags)
    family = families.get(series)
    if family is None:
        names = [label.replace("-", "_") for label in labels]
        if series.endswith(_TOTAL):
            family = CounterMetricFamily(series.removesuffix(_TOTAL), name.description, labels=names)
        else:
            family = GaugeMetricFamily(series, name.description, labels=names)
        families[series] = family
    assert isinstance(family, CounterMetricFamily | GaugeMetricFamily)
    family.add_metric([name.tags[label] for label in labels], value)


def _finest() -> dict[tuple[str, str], int]:
    """Returns by how many tags besides client-id the finest metric of each group and name is told apart."""
    found: dict[tuple[str, str], int] = {}
    for prefix, tables in TABLES.items():
        for table in tables:
            group = table.group.format(client=prefix)
            for row in table.rows if group != _OWN_COUNT else ():
                key = (group, row.name)
                found[key] = max(found.get(key, 0), len(table.tags))
    return found


_FINEST = _finest()
