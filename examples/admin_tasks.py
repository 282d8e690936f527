"""What is done now and then: makes a topic, changes a setting, shows the lag of groups, moves a group back.

    python examples/admin_tasks.py --bootstrap 127.0.0.1:9092

AsyncAdmin has the same calls, to be awaited.
"""

import argparse

from kohort import Admin, Consumer, Producer


def show_lag(admin: Admin, group_id: str) -> None:
    committed = admin.group_offsets(group_id)
    ends = admin.end_offsets(*committed)
    for partition, at in sorted(committed.items()):
        print(f"{group_id} {partition}: at {at.offset}, {ends[partition] - at.offset} behind")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    options = parser.parse_args()
    with Admin(bootstrap_servers=options.bootstrap) as admin:
        admin.create_topic("returns", partitions=2, configs={"retention.ms": 7 * 86_400_000})
        admin.alter_topic_configs({"returns": {"retention.ms": 86_400_000}})
        print("retention.ms is", admin.topic_configs("returns")["returns"]["retention.ms"].value)

        with Producer(bootstrap_servers=options.bootstrap) as producer:
            for n in range(10):
                producer.send("returns", f"return {n}", partition=n % 2)
        with Consumer(
            bootstrap_servers=options.bootstrap, group_id="refunds", auto_offset_reset="earliest"
        ) as consumer:
            consumer.subscribe(["returns"])
            seen = 0
            while seen < 10:
                seen += sum(map(len, consumer.poll(1.0).values()))
        show_lag(admin, "refunds")

        # The group has no members now, so its offsets can be set: here to the beginning.
        partitions = [("returns", 0), ("returns", 1)]
        admin.alter_group_offsets("refunds", admin.beginning_offsets(*partitions))
        show_lag(admin, "refunds")


if __name__ == "__main__":
    main()
