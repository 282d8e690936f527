"""Reads the records of a topic from a time on, up to those that are there now, without a group.

    python examples/seek_by_time.py --bootstrap 127.0.0.1:9092 --since 2026-11-01T06:00:00+00:00

Without a group nothing is committed: it may be run as often as you like, beside the consumers of the topic.
"""

import argparse
from datetime import UTC, datetime

from kohort import Consumer


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="orders")
    parser.add_argument(
        "--since", type=datetime.fromisoformat, required=True, help="2026-11-01T06:00:00+00:00"
    )
    options = parser.parse_args()
    since_ms = int(options.since.timestamp() * 1000)
    with Consumer(bootstrap_servers=options.bootstrap, enable_auto_commit=False) as consumer:
        partitions = consumer.partitions_for(options.topic)
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        for partition, found in consumer.offsets_for_times(dict.fromkeys(partitions, since_ms)).items():
            consumer.seek(partition, ends[partition] if found is None else found.offset)
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            for partition, records in consumer.poll(1.0).items():
                for record in records:
                    if record.offset < ends[partition]:
                        at = datetime.fromtimestamp(record.timestamp / 1000, UTC)
                        print(f"{at.isoformat()} {partition}@{record.offset}: {record.value!r}")


if __name__ == "__main__":
    main()
