"""Reads orders, and writes a bill for each to another topic; positions are committed when the bills are written.

    python examples/consume_transform_produce.py --bootstrap 127.0.0.1:9092

If it is killed, the orders since the last commit are read and billed again: at least once, never lost. The key of a
bill is the id of its order, so whoever reads bills can leave a second one out.
"""

import argparse
import json

from kohort import Consumer, Producer


def bill_for(order: dict[str, int]) -> dict[str, int]:
    return {"order": order["id"], "amount": order["count"] * order["price"]}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--records", type=int, help="stop after so many orders")
    options = parser.parse_args()
    done = 0
    with (
        Producer(bootstrap_servers=options.bootstrap, linger_ms=5) as producer,
        Consumer(
            bootstrap_servers=options.bootstrap,
            group_id="billing",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer,
    ):
        consumer.subscribe(["orders"])
        while options.records is None or done < options.records:
            deliveries = []
            for records in consumer.poll(1.0).values():
                for record in records:
                    bill = bill_for(json.loads(record.value or b"{}"))
                    sent = producer.send("bills", json.dumps(bill), key=str(bill["order"]))
                    deliveries.append(sent)
            producer.flush()
            for delivery in deliveries:
                delivery.result()  # raises if a bill was not written: then nothing is committed
            if deliveries:
                consumer.commit()
                done += len(deliveries)
                print(f"{done} bills written", flush=True)


if __name__ == "__main__":
    main()
