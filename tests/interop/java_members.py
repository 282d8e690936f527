"""Consumers of Apache Kafka's Java client as members of a group, in the vocabulary of tests/clients."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks import outside

from tests.clients.client import Client, Member, Partition, Received, protocol_settings

ASSIGNORS = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}
LEAVE_S = 30.0


class JavaMachine:
    """One Java process for all members; java/Members.java runs each of them on a thread of its own."""

    def __init__(self, classes: Path) -> None:
        options = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
        self._process = subprocess.Popen(
            outside.java("Members", options=options, extra=classes),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.members: dict[str, JavaMember] = {}
        self._listener = threading.Thread(target=self._listen, name="java-members", daemon=True)
        self._listener.start()

    def say(self, **command: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def _listen(self) -> None:
        for line in self._process.stdout or ():
            told = json.loads(line)
            self.members[told["id"]].hear(told)

    def close(self) -> None:
        self._process.kill()
        self._process.wait(20)
        self._listener.join(20)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


class JavaMember(Member):
    """What it received has no keys and values: only where it was matters here."""

    def __init__(self, machine: JavaMachine, group: str, client_id: str) -> None:
        super().__init__(group, client_id)
        self._machine = machine
        self._left = threading.Event()
        self.id = f"{group} {client_id}"  # in the Java process
        machine.members[self.id] = self

    def hear(self, told: dict[str, Any]) -> None:
        records = [Received(t, p, offset, None, None, [], -1) for t, p, offset in told.get("records", ())]
        assignment: Iterable[Partition] = self.assignment
        if "assignment" in told:
            assignment = ((topic, index) for topic, index in told["assignment"])
        self.note(records, assignment)
        self.note_commit({(topic, index): offset for topic, index, offset in told.get("committed", ())})
        if "error" in told:
            self.failure = AssertionError(f"{self.client_id}: {told['error']}")
        if "left" in told:
            self._left.set()

    def leave(self, timeout_s: float = LEAVE_S) -> None:
        self._machine.say(leave=self.id)
        assert self._left.wait(timeout_s), f"{self.client_id} did not close in {timeout_s:.0f} s"
        if self.failure is not None:
            raise self.failure


class JavaClient(Client):
    name = "java"
    assignors = tuple(ASSIGNORS)

    def __init__(self, machine: JavaMachine, bootstrap_servers: str) -> None:
        self._machine, self._servers = machine, bootstrap_servers

    def member(self, group: str, topics: list[str], client_id: str, **options: Any) -> Member:
        names = options.get("assignor", "range").split(",")
        assignors = [f"org.apache.kafka.clients.consumer.{ASSIGNORS[n]}" for n in names if n in ASSIGNORS]
        settings = {
            "bootstrap.servers": self._servers,
            "group.id": group,
            "client.id": client_id,
            **protocol_settings(
                options,
                {
                    "partition.assignment.strategy": ",".join(assignors),
                    "session.timeout.ms": "10000",
                    "heartbeat.interval.ms": "200",
                },
            ),
            "max.poll.interval.ms": "60000",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            "metadata.max.age.ms": "500",
        }
        if "group_instance_id" in options:
            settings["group.instance.id"] = options["group_instance_id"]
        member = JavaMember(self._machine, group, client_id)
        self._machine.say(join=member.id, topics=topics, settings=settings)
        return member
