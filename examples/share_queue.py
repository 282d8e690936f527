"""Works on a topic as a queue, together with every other process that runs this: a share group.

    python examples/share_queue.py --bootstrap 127.0.0.1:9092

A task that fails is given to a worker again, up to five times; one that cannot be read is put aside at once. Stop it
with Ctrl-C or SIGTERM: what it has not finished goes to the others.
"""

import argparse
import signal
import sys

from kohort import AcknowledgeType, Admin, ShareConsumer


def work(task: bytes) -> None:
    if task == b"flaky":
        raise ConnectionError("the mail server does not answer")
    print(f"{int(task)} squared is {int(task) ** 2}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--records", type=int, help="stop after so many")
    options = parser.parse_args()
    with Admin(bootstrap_servers=options.bootstrap) as admin:
        admin.alter_group_configs({"workers": {"share.auto.offset.reset": "earliest"}})
    settings = {
        "bootstrap.servers": options.bootstrap,
        "group.id": "workers",
        "share.acknowledgement.mode": "explicit",
    }
    seen = 0
    with ShareConsumer(settings) as consumer:
        consumer.subscribe(["tasks"])
        for record in consumer:
            try:
                work(record.value or b"")
                consumer.acknowledge(record)
            except ConnectionError as error:
                print(f"task {record.offset}, attempt {record.delivery_count}: {error}", flush=True)
                consumer.acknowledge(record, AcknowledgeType.RELEASE)
            except ValueError as error:
                print(f"task {record.offset} is no task: {error}", flush=True)
                consumer.acknowledge(record, AcknowledgeType.REJECT)
            seen += 1
            if seen == options.records:
                break


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    try:
        main()
    except KeyboardInterrupt:
        pass
