"""Reads as a static member: a restart within session.timeout.ms causes no rebalance, and gets the same partitions.

    python examples/static_member.py --bootstrap 127.0.0.1:9092 --instance worker-1

Give each process a name of its own that survives restarts, such as the name of its pod in a StatefulSet.
"""

import argparse

from kohort import Consumer


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--instance", default="worker-1", help="the name of this process")
    parser.add_argument("--records", type=int, help="stop after so many records")
    options = parser.parse_args()
    with Consumer(
        bootstrap_servers=options.bootstrap,
        group_id="static",
        group_instance_id=options.instance,
        session_timeout_ms=30_000,  # a restart may take this long
        auto_offset_reset="earliest",
    ) as consumer:
        consumer.subscribe(["orders"])
        for count, record in enumerate(consumer, 1):
            if count == 1:
                member = consumer.group_metadata()
                print(f"{options.instance} is in generation {member.generation_id}", flush=True)
            print(f"{record.topic}-{record.partition}@{record.offset}", flush=True)
            if count == options.records:
                break  # close() commits, and does not leave the group: the member may come back


if __name__ == "__main__":
    main()
