"""A member of a share group that somebody kills: `python share_worker.py SERVERS GROUP TOPIC FILE MODE`.

It writes to FILE, at once, each offset of which it knows that the broker has taken its acknowledgement: `accepted` in
explicit mode once `commit_sync` has said so. Now and then it releases a record instead, so that it comes again.
"""

from __future__ import annotations

import sys

from kohort import AcknowledgeType, ShareConsumer


def main() -> None:
    servers, group, topic, file, mode = sys.argv[1:]
    with (
        open(file, "a", buffering=1) as out,
        ShareConsumer(
            bootstrap_servers=servers,
            group_id=group,
            max_poll_records=7,
            fetch_max_wait_ms=100,
            share_acknowledgement_mode="explicit",
            share_acquire_mode=mode,
        ) as consumer,
    ):
        consumer.subscribe([topic])
        while True:
            said: dict[tuple[str, int], list[tuple[int, str, int | None]]] = {}
            for partition, records in consumer.poll(0.5).items():
                for record in records:
                    again = record.offset % 11 == 3 and record.delivery_count == 1
                    consumer.acknowledge(record, AcknowledgeType.RELEASE if again else AcknowledgeType.ACCEPT)
                    word = "released" if again else "accepted"
                    said.setdefault(partition, []).append((record.offset, word, record.delivery_count))
            for partition, error in consumer.commit_sync(30).items():
                for offset, word, count in said.get(partition, ()):
                    out.write(f"{word if error is None else 'failed'} {partition[1]} {offset} {count}\n")


if __name__ == "__main__":
    main()
