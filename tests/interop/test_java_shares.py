"""Kafka's share consumers and tools (4.3.1): what they read, acknowledge and show."""

from __future__ import annotations

import re

import pytest
from benchmarks.targets import Target

from kohort import Admin, NewTopic, Producer

from .conftest import Run

pytestmark = pytest.mark.interop
TOOLS = "org.apache.kafka.tools."
COUNT = 1000

# Arguments of kafka-share-groups, what the output must match.
SHARE_GROUP_COMMAND = [
    ("--list", r"(?m)^workers$"),
    ("--describe --group workers", r"workers\s+jobs\s+2\s+\d+\s+0"),
    ("--describe --group workers --state", r"workers\s.*Empty\s+0"),
    ("--reset-offsets --group workers --topic jobs --to-earliest --execute", r"workers\s+jobs\s+\d\s+0"),
    ("--delete-offsets --group workers --topic jobs", r"jobs\s+Successful"),
    ("--delete --group workers", "was successful"),
]


def test_share_consumer_and_share_groups(java: Run, broker: Target) -> None:
    server = ["--bootstrap-server", broker.address]
    with Admin(bootstrap_servers=broker.address) as admin:
        admin.create_topics([NewTopic("jobs", 3)])
        admin.alter_group_configs({"workers": {"share.auto.offset.reset": "earliest"}})
    with Producer(bootstrap_servers=broker.address) as producer:
        for number in range(COUNT):
            producer.send("jobs", f"v{number}".encode())
    consumer = [
        "--topic",
        "jobs",
        "--group",
        "workers",
        "--timeout-ms",
        "60000",
        "--max-messages",
        str(COUNT),
    ]
    said = java(f"{TOOLS}consumer.ConsoleShareConsumer", *server, *consumer)
    values = re.findall(r"(?m)^v\d+$", said)
    assert sorted(values) == sorted(f"v{number}" for number in range(COUNT))
    for arguments, wanted in SHARE_GROUP_COMMAND:
        shown = java(f"{TOOLS}consumer.group.ShareGroupCommand", *server, *arguments.split())
        assert re.search(wanted, shown), f"{arguments}\n{shown}"


def test_verifiable_share_consumer(java: Run, broker: Target) -> None:
    with Admin(bootstrap_servers=broker.address) as admin:
        admin.create_topics([NewTopic("verified", 2)])
    with Producer(bootstrap_servers=broker.address) as producer:
        for number in range(COUNT):
            producer.send("verified", b"%d" % number)
    said = java(
        f"{TOOLS}VerifiableShareConsumer",
        *("--bootstrap-server", broker.address, "--topic", "verified", "--group-id", "verifiers"),
        *(
            "--max-messages",
            str(COUNT),
            "--acknowledgement-mode",
            "sync",
            "--offset-reset-strategy",
            "earliest",
        ),
    )
    assert '"name":"offsets_acknowledged"' in said
    assert '"success":false' not in said
    counts = [int(count) for count in re.findall(r'"name":"records_consumed".*?"count":(\d+)', said)]
    assert sum(counts) >= COUNT, said[-2000:]
