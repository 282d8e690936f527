"""A member of a group as a program, to be killed: python -m tests.clients.crashing_member CLIENT SERVERS GROUP TOPIC

Tells each record that it has received and committed on a line of standard output.
"""

from __future__ import annotations

import sys
import time

from tests.clients.clients import CLIENTS

LONGEST_LIFE_S = 240.0
SESSION_TIMEOUT_MS = 6000


def main() -> None:
    name, servers, group, topic = sys.argv[1:]
    (client,) = [client for client in CLIENTS if client.name == name]
    member = client(servers).member(group, [topic], f"crashing-{name}", session_timeout_ms=SESSION_TIMEOUT_MS)
    told = 0
    deadline = time.monotonic() + LONGEST_LIFE_S
    while time.monotonic() < deadline and member.failure is None:
        received = member.received[told:]
        told += len(received)
        for record in received:
            print(record.partition, record.offset, flush=True)
        time.sleep(0.02)


if __name__ == "__main__":
    main()
