"""A rolling move of a group to KIP-848 and back, with a real client: at each stage all partitions have one owner."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kohort.broker import running
from tests.clients.process import eventually

FAST = {
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.assignment.interval.ms": "0",
    "group.initial.rebalance.delay.ms": "0",
}
PARTITIONS = 4


class PollingMember(threading.Thread):
    """A consumer of confluent-kafka that polls in its own thread, until it is told to end."""

    def __init__(self, servers: str, protocol: str) -> None:
        super().__init__(daemon=True)
        config: dict[str, str | int] = {
            "bootstrap.servers": servers,
            "group.id": "g",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
        if protocol == "classic":
            # The sticky assignors of librdkafka put data of their own into assignments: Kafka refuses to convert these.
            config |= {"partition.assignment.strategy": "range", "heartbeat.interval.ms": 300}
        self.consumer = Consumer(config)
        self.consumer.subscribe(["t"])
        self.owned: list[int] = []
        self.values: list[bytes] = []
        self._ends = threading.Event()
        self.start()

    def run(self) -> None:
        while not self._ends.is_set():
            message = self.consumer.poll(0.05)
            self.owned = sorted(each.partition for each in self.consumer.assignment())
            if message is not None and not message.error():
                self.values.append(message.value() or b"")
        self.consumer.close()

    def end(self) -> None:
        self._ends.set()
        self.join()


@contextmanager
def rolling(servers: str, first: str) -> Iterator[list[PollingMember]]:
    members = [PollingMember(servers, first), PollingMember(servers, first)]
    try:
        yield members
    finally:
        for member in members:
            member.end()


def all_have_owners(members: list[PollingMember]) -> bool:
    every = sorted(partition for member in members for partition in member.owned)
    return every == list(range(PARTITIONS)) and all(member.owned for member in members)


def test_a_group_moves_to_the_new_protocol_and_back_while_it_runs() -> None:
    with running(settings=FAST) as broker:
        servers = broker.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result()
        with rolling(servers, "classic") as members:
            eventually(lambda: all_have_owners(members), "each partition has an owner")
            for protocol, kind in (
                ("consumer", "CONSUMER"),
                ("consumer", "CONSUMER"),
                ("classic", "CONSUMER"),
                ("classic", "CLASSIC"),
            ):
                members.pop(0).end()
                members.append(PollingMember(servers, protocol))
                eventually(lambda: all_have_owners(members), "each partition has an owner")
                described = admin.describe_consumer_groups(["g"])["g"].result()
                assert described.type.name == kind
                assert len(described.members) == 2
            producer = Producer({"bootstrap.servers": servers})
            for number in range(20):
                producer.produce("t", b"%d" % number, partition=number % PARTITIONS)
            producer.flush()
            eventually(lambda: sum(len(member.values) for member in members) == 20, "all records")
            assert sorted(v for m in members for v in m.values) == sorted(b"%d" % n for n in range(20))
