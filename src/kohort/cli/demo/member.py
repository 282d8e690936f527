"""One member of the demo's group, in a process of its own, so that it can be killed.

It reports on standard output, as lines of JSON, which partitions it owns and which offsets it has processed, and takes
commands on standard input: `stuck SECONDS` and `leave`. It leaves when the other end is gone.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from typing import Any

from kohort.client.consumer import Consumer

POLL_S = 0.2


def main() -> int:
    bootstrap, topic, group, name, settings = sys.argv[1:]
    given = {"auto.offset.reset": "earliest", "auto.commit.interval.ms": 500, **json.loads(settings)}
    owned: list[int] = []
    with Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "client.id": name, **given}
    ) as consumer:
        consumer.subscribe([topic])
        while True:
            command = _next_command()
            if command == "leave":
                return 0
            if command.startswith("stuck"):
                time.sleep(float(command.split()[1]))
            polled = consumer.poll(POLL_S, max_records=2000)
            _tell("worked", {str(tp.partition): [r[0].offset, r[-1].offset + 1] for tp, r in polled.items()})
            now = sorted(partition.partition for partition in consumer.assignment())
            if now != owned:
                owned = now
                print(json.dumps({"owned": owned}), flush=True)


def _next_command() -> str:
    """The next command; empty if there is none."""
    if not select.select([0], [], [], 0)[0]:
        return ""
    return os.read(0, 100).decode().strip() or "leave"


def _tell(what: str, value: Any) -> None:
    """Reports what was processed, before the next poll may commit it: so nothing is committed that was not reported."""
    if value:
        print(json.dumps({what: value}), flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (KeyboardInterrupt, BrokenPipeError):
        sys.exit(130)
