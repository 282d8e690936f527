"""Reads orders as objects; a record that cannot be read goes to the topic orders.dlq, and reading goes on.

    python examples/dead_letters.py --bootstrap 127.0.0.1:9092

Stop it with Ctrl-C or SIGTERM. It begins where it ended: every record is worked on or is in orders.dlq.
"""

import argparse
import signal
import sys
from dataclasses import dataclass

from kohort import Consumer, DeserializationFailed, Producer
from kohort.serde import JsonDeserializer, dead_letter


@dataclass
class Order:
    id: int
    article: str
    count: int = 1


def work(order: Order) -> None:
    print(f"order {order.id}: {order.count} of {order.article}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    options = parser.parse_args()
    settings = {
        "bootstrap.servers": options.bootstrap,
        "group.id": "billing",
        "auto.offset.reset": "earliest",
    }
    with (
        Consumer(settings, value_deserializer=JsonDeserializer(Order)) as consumer,
        # Without serializers: it sends bytes as they are.
        Producer(bootstrap_servers=options.bootstrap) as producer,
    ):
        consumer.subscribe(["orders"])
        while True:
            try:
                polled = consumer.poll(1.0)
            except DeserializationFailed as failed:
                dead_letter(failed, consumer, producer, "orders.dlq")
                continue
            for records in polled.values():
                for record in records:
                    if record.value is not None:  # None: a tombstone
                        work(record.value)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    try:
        main()
    except KeyboardInterrupt:
        pass
