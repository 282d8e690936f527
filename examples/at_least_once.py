"""Works on each record and commits it afterwards: a crash repeats records, and loses none.

    python examples/at_least_once.py --bootstrap 127.0.0.1:9092

It commits every 100 records, and what is done before partitions go to another member.
"""

import argparse

from kohort import Consumer, Record, TopicPartition


def work(record: Record) -> None:
    print(f"{record.topic}-{record.partition}@{record.offset}: {record.value!r}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--records", type=int, help="stop after so many records")
    options = parser.parse_args()
    done: dict[TopicPartition, int] = {}  # the offset after the last record that was worked on

    with Consumer(
        bootstrap_servers=options.bootstrap,
        group_id="at-least-once",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:

        def on_revoked(partitions: list[TopicPartition]) -> None:
            consumer.commit({partition: done.pop(partition) for partition in partitions if partition in done})

        consumer.subscribe(["orders"], on_revoked=on_revoked, on_lost=lambda partitions: done.clear())
        for count, record in enumerate(consumer, 1):
            work(record)
            done[TopicPartition(record.topic, record.partition)] = record.offset + 1
            if count % 100 == 0:
                consumer.commit(done)
            if count == options.records:
                break  # closing the consumer calls on_revoked, which commits the rest


if __name__ == "__main__":
    main()
