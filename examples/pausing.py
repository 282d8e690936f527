"""Pauses a partition whose worker is behind, and goes on with the others.

    python examples/pausing.py --bootstrap 127.0.0.1:9092

Each partition has a queue and a thread. The consumer polls all the time, so it stays a member of its group however
long a record takes; it only does not get more of a partition whose queue is full.
"""

import argparse
import queue
import threading

from kohort import Consumer, Record, TopicPartition

MOST_QUEUED = 100


class Worker:
    """The thread that works on one partition."""

    def __init__(self) -> None:
        self.queue: queue.Queue[Record | None] = queue.Queue()
        self.done: int | None = None  # the offset after the last record that was worked on
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        while (record := self.queue.get()) is not None:
            print(f"{record.topic}-{record.partition}@{record.offset}", flush=True)
            self.done = record.offset + 1

    def end(self) -> int | None:
        """Waits for the records that are queued, and returns what can be committed."""
        self.queue.put(None)
        self.thread.join()
        return self.done


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--records", type=int, help="stop after so many records")
    options = parser.parse_args()
    workers: dict[TopicPartition, Worker] = {}

    with Consumer(
        bootstrap_servers=options.bootstrap,
        group_id="pausing",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:

        def start(partitions: list[TopicPartition]) -> None:
            workers.update({partition: Worker() for partition in partitions})

        def finish(partitions: list[TopicPartition]) -> None:
            done = {partition: workers.pop(partition).end() for partition in partitions}
            consumer.commit({partition: at for partition, at in done.items() if at is not None})

        def stop(partitions: list[TopicPartition]) -> None:
            for partition in partitions:
                workers.pop(partition).end()  # another member has them already: nothing is committed

        consumer.subscribe(["orders"], on_assigned=start, on_revoked=finish, on_lost=stop)
        taken = 0
        while options.records is None or taken < options.records:
            for partition, records in consumer.poll(0.1).items():
                for record in records:
                    workers[partition].queue.put(record)
                taken += len(records)
            full = {partition for partition, worker in workers.items() if worker.queue.qsize() > MOST_QUEUED}
            consumer.pause(full - consumer.paused())
            consumer.resume(consumer.paused() - full)


if __name__ == "__main__":
    main()
