"""Copies a topic exactly once: `python copying.py host:port`. A test kills it and starts it again."""

from __future__ import annotations

import sys

from kohort import Consumer, Producer


def main(address: str) -> None:
    consumer: Consumer = Consumer(
        bootstrap_servers=address, group_id="copiers", group_instance_id="copier", isolation_level="read_committed",
        auto_offset_reset="earliest", enable_auto_commit=False, max_poll_records=20,
    )  # fmt: skip
    producer: Producer = Producer(bootstrap_servers=address, transactional_id="copier")
    producer.init_transactions()
    consumer.subscribe(["source"])
    while True:
        for partition, records in consumer.poll(1.0).items():
            with producer.transaction():
                for record in records:
                    producer.send("target", record.value, key=record.key)
                producer.send_offsets_to_transaction(
                    {partition: records[-1].offset + 1}, consumer.group_metadata()
                )


if __name__ == "__main__":
    main(sys.argv[1])
