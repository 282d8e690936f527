"""Reads orders, and shows the consumer's metrics to Prometheus, beside a metric of its own.

    python examples/metrics_to_prometheus.py --bootstrap 127.0.0.1:9092 --port 9000
    curl http://127.0.0.1:9000/metrics

The names are in docs/client-metrics.md.
"""

import argparse

from prometheus_client import Counter, start_http_server

from kohort import Consumer, prometheus

orders_seen = Counter("orders_seen", "Orders that this program has worked on.")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument(
        "--port", type=int, default=9000, help="where Prometheus asks; 0 for any that is free"
    )
    parser.add_argument("--records", type=int, help="stop after so many records")
    options = parser.parse_args()
    server, _ = start_http_server(options.port, addr="127.0.0.1")
    print(f"metrics: http://127.0.0.1:{server.server_port}/metrics", flush=True)
    with Consumer(
        bootstrap_servers=options.bootstrap,
        group_id="shown",
        client_id="shown-1",  # the label client_id: each consumer in one registry needs its own
        auto_offset_reset="earliest",
    ) as consumer:
        prometheus.register(consumer)  # until it is closed
        consumer.subscribe(["orders"])
        for count, _ in enumerate(consumer, 1):
            orders_seen.inc()
            if count == options.records:
                metrics = consumer.metrics()  # the same numbers, without Prometheus
                print("consumed:", int(metrics.value("records-consumed-total")))
                print("rebalances:", int(metrics.value("rebalance-total")))
                break
    server.shutdown()
    server.server_close()


if __name__ == "__main__":
    main()
