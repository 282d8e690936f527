"""Reads orders with asyncio, and works on those of each poll at the same time.

    python examples/async_consumer.py --bootstrap 127.0.0.1:9092

Heartbeats go on while the tasks run. Positions are committed when all of a poll are done.
"""

import argparse
import asyncio

from kohort import AsyncConsumer, Record


async def work(record: Record) -> None:
    await asyncio.sleep(0.01)  # a call to another service, for example
    print(f"{record.topic}-{record.partition}@{record.offset}: {record.value!r}", flush=True)


async def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--records", type=int, help="stop after so many records")
    options = parser.parse_args()
    done = 0
    async with AsyncConsumer(
        bootstrap_servers=options.bootstrap,
        group_id="workers",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=100,
    ) as consumer:
        await consumer.subscribe(["orders"])
        while options.records is None or done < options.records:
            polled = await consumer.poll(1.0)
            async with asyncio.TaskGroup() as tasks:
                for records in polled.values():
                    for record in records:
                        tasks.create_task(work(record))
            if polled:
                await consumer.commit()
                done += sum(map(len, polled.values()))


if __name__ == "__main__":
    asyncio.run(main())
