"""Kafka's command line tools (4.3.1), run as an operator runs them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from benchmarks.targets import Target

from kohort import Producer

from .conftest import Run, StartBroker

pytestmark = pytest.mark.interop
TOOLS = "org.apache.kafka.tools."

# Arguments, what the output must match, what it must not.
TOPIC_COMMAND = [
    ("--create --topic tool --partitions 3 --config retention.ms=3600000", "Created topic tool", None),
    ("--create --if-not-exists --topic tool", "", "Created|Error"),
    ("--list", r"(?m)^tool$", None),
    (
        "--describe --topic tool",
        r"PartitionCount: 3\s+ReplicationFactor: 1\s+Configs:.*retention.ms=3600000",
        None,
    ),
    ("--describe --topic tool", r"Partition: 2\s+Leader: \d+\s+Replicas: \d+\s+Isr: \d+", "none"),
    ("--describe --topic tool --topics-with-overrides", "retention.ms=3600000", None),
    ("--describe --unavailable-partitions", "", "Topic:"),
    ("--alter --topic tool --partitions 5", "", "Error"),
    ("--describe --topic tool", "PartitionCount: 5", None),
    ("--delete --topic tool", "", "Error"),
    ("--list", "", r"(?m)^tool$"),
]
CONFIG_COMMAND = [
    ("--alter --add-config retention.ms=7200000,cleanup.policy=compact", "Completed updating config", None),
    ("--describe", "retention.ms=7200000 .*DYNAMIC_TOPIC_CONFIG:retention.ms=7200000", None),
    ("--alter --delete-config cleanup.policy", "Completed updating config", None),
    ("--describe", "retention.ms=7200000", "cleanup.policy"),
    ("--describe --all", "cleanup.policy=delete .*DEFAULT_CONFIG:log.cleanup.policy=delete", None),
]


GROUP_CONFIG_COMMAND = [
    (
        "--alter --add-config consumer.session.timeout.ms=50000,share.auto.offset.reset=earliest",
        "Completed",
        None,
    ),
    (
        "--describe",
        "consumer.session.timeout.ms=50000 .*DYNAMIC_GROUP_CONFIG:consumer.session.timeout.ms=50000",
        None,
    ),
    ("--alter --delete-config consumer.session.timeout.ms", "Completed updating config", None),
    ("--describe", "share.auto.offset.reset=earliest", "session.timeout"),
    (
        "--describe --all",
        "consumer.session.timeout.ms=45000 .*DEFAULT_CONFIG:group.consumer.session.timeout.ms=45000",
        None,
    ),
]


def check(said: str, wanted: str, unwanted: str | None, what: str) -> None:
    assert re.search(wanted, said), f"{what}\n{said}"
    assert unwanted is None or not re.search(unwanted, said), f"{what}\n{said}"


def produced(java: Run, address: str, topic: str, count: int, size: int, *properties: str) -> str:
    """ProducerPerformance; its last line."""
    arguments = (
        f"--topic {topic} --num-records {count} --record-size {size} --throughput -1 --command-property"
    )
    words = [*arguments.split(), f"bootstrap.servers={address}", *properties]
    return java(f"{TOOLS}ProducerPerformance", *words).splitlines()[-1]


def test_topic_command(java: Run, broker: Target) -> None:
    for arguments, wanted, unwanted in TOPIC_COMMAND:
        said = java(f"{TOOLS}TopicCommand", "--bootstrap-server", broker.address, *arguments.split())
        check(said, wanted, unwanted, arguments)


def test_config_command(java: Run, broker: Target) -> None:
    java(f"{TOOLS}TopicCommand", "--bootstrap-server", broker.address, "--create", "--topic", "configured")
    server = ["--bootstrap-server", broker.address, "--entity-type", "topics", "--entity-name", "configured"]
    for arguments, wanted, unwanted in CONFIG_COMMAND:
        check(java("kafka.admin.ConfigCommand", *server, *arguments.split()), wanted, unwanted, arguments)


def test_config_command_of_groups(java: Run, broker: Target) -> None:
    server = ["--bootstrap-server", broker.address, "--entity-type", "groups"]
    for arguments, wanted, unwanted in GROUP_CONFIG_COMMAND:
        said = java("kafka.admin.ConfigCommand", *server, "--entity-name", "g1", *arguments.split())
        check(said, wanted, unwanted, arguments)
    assert "g1" in java("kafka.admin.ConfigCommand", *server, "--describe")


def test_tools_for_clusters_find_a_cluster_of_one(java: Run, broker: Target, tmp_path: Path) -> None:
    """kafka-metadata-quorum, kafka-features and kafka-reassign-partitions."""
    server = ["--bootstrap-server", broker.address]
    status = java(f"{TOOLS}MetadataQuorumCommand", *server, "describe", "--status")
    check(status, r"LeaderId:\s+\d+", None, "status")
    replication = java(f"{TOOLS}MetadataQuorumCommand", *server, "describe", "--replication")
    check(replication, "Leader", "Observer", "replication")
    said = java(f"{TOOLS}FeatureCommand", *server, "describe")
    check(said, r"Feature: group.version\s+SupportedMinVersion: 0\s+SupportedMaxVersion: 1", None, "features")
    said = java(f"{TOOLS}FeatureCommand", *server, "upgrade", "--feature", "group.version=1")
    check(said, "group.version was upgraded to 1", None, "upgrade")
    java(f"{TOOLS}TopicCommand", *server, "--create", "--topic", "stays")
    described = java(f"{TOOLS}TopicCommand", *server, "--describe", "--topic", "stays")
    found = re.search(r"Replicas: (\d+)", described)
    assert found is not None
    plan = tmp_path / "plan.json"
    partition = {"topic": "stays", "partition": 0, "replicas": [int(found[1])]}
    plan.write_text(json.dumps({"version": 1, "partitions": [partition]}))
    command = (f"{TOOLS}reassign.ReassignPartitionsCommand", *server, "--reassignment-json-file", str(plan))
    check(
        java(*command, "--execute"),
        "Successfully started partition reassignment for stays-0",
        None,
        "execute",
    )
    check(java(*command, "--verify"), "Reassignment of partition stays-0 is completed", None, "verify")


def test_client_metrics_command(java: Run, broker: Target) -> None:
    """kafka-client-metrics: subscriptions are kept, though nobody is asked to push."""
    command = (f"{TOOLS}ClientMetricsCommand", "--bootstrap-server", broker.address)
    java(
        *command, "--alter", "--name", "s1", "--metrics", "org.apache.kafka.producer.", "--interval", "30000"
    )
    said = java(*command, "--describe", "--name", "s1")
    check(said, "interval.ms=30000", None, "describe")
    check(said, "metrics=org.apache.kafka.producer.", None, "describe")
    assert "s1" in java(*command, "--list")
    java(*command, "--delete", "--name", "s1")
    assert "s1" not in java(*command, "--list")


def test_api_versions_command(java: Run, broker: Target) -> None:
    said = java(f"{TOOLS}BrokerApiVersionsCommand", "--bootstrap-server", broker.address)
    for api, highest in (
        ("Produce", 13),
        ("Fetch", 18),
        ("Metadata", 13),
        ("ListOffsets", 11),
        ("CreateTopics", 7),
    ):
        assert re.search(rf"{api}\(\d+\): \d+ to {highest} \[usable: {highest}\]", said), said


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_producer_performance(java: Run, broker: Target, codec: str) -> None:
    last = produced(java, broker.address, f"perf-{codec}", 20_000, 200, f"compression.type={codec}")
    assert last.startswith("20000 records sent"), last
    shell = ["--bootstrap-server", broker.address, "--topic", f"perf-{codec}"]
    offsets = java(f"{TOOLS}GetOffsetShell", *shell, "--time", "latest")
    assert sum(int(line.rpartition(":")[2]) for line in offsets.splitlines()) == 20_000


def test_offsets_and_delete_records(java: Run, broker: Target, tmp_path: Path) -> None:
    produced(java, broker.address, "cut", 1000, 100)
    file = tmp_path / "offsets.json"
    file.write_text(
        json.dumps({"partitions": [{"topic": "cut", "partition": 0, "offset": 400}], "version": 1})
    )
    server = ["--bootstrap-server", broker.address]
    said = java(f"{TOOLS}DeleteRecordsCommand", *server, "--offset-json-file", str(file))
    assert re.search(r"partition: cut-0\s+low_watermark: 400", said)
    for time, offset in (("earliest", 400), ("latest", 1000), ("0", 400), ("99999999999999", "")):
        said = java(f"{TOOLS}GetOffsetShell", *server, "--topic-partitions", "cut:0", "--time", time)
        assert said.strip() == (f"cut:0:{offset}" if offset != "" else ""), time


@pytest.fixture(scope="module", params=["stopped", "killed and recovered"])
def stopped(
    java: Run,
    start_broker: StartBroker,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The directory of partition dumped-0 of a broker that is down: several segments of batches in every codec."""
    directory = tmp_path_factory.mktemp("dumped") / "data"
    broker = start_broker(directory=directory)
    server = ["--bootstrap-server", broker.address]
    settings = ["--config", "segment.bytes=1048576", "--config", "index.interval.bytes=4096"]
    java(f"{TOOLS}TopicCommand", *server, "--create", "--topic", "dumped", "--partitions", "1", *settings)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        last = produced(
            java, broker.address, "dumped", 2_000, 500, f"compression.type={codec}", "batch.size=8000"
        )
        assert last.startswith("2000 records sent"), last
    if request.param != "stopped":
        broker.kill()
        broker = start_broker(directory=directory)
        java(f"{TOOLS}TopicCommand", "--bootstrap-server", broker.address, "--list")  # it is up
    broker.stop()
    (found,) = [path for path in broker.data.rglob("dumped-0") if path.is_dir()]
    return found


def dump(java: Run, directory: Path, suffix: str, *options: str, silent: bool = True) -> str:
    files = sorted(map(str, directory.glob(f"*{suffix}")))
    assert len(files) >= 2, files
    return java(f"{TOOLS}DumpLogSegments", "--files", ",".join(files), *options, silent=silent)


def test_dump_tool_reads_our_segments(java: Run, stopped: Path) -> None:
    # Of every file but the first the tool tells that -1 is followed by its first offset; of Kafka's own, too.
    said = dump(java, stopped, ".log", "--print-data-log", "--deep-iteration", silent=False)
    assert [int(n) for n in re.findall(r"(?m)^\| offset: (\d+) ", said)] == list(range(10_000))
    assert "isvalid: false" not in said
    assert {"none", "gzip", "snappy", "lz4", "zstd"} <= set(re.findall(r"(?i)compresscodec: (\w+)", said))


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_dump_tool_finds_our_indexes_right(java: Run, stopped: Path, suffix: str) -> None:
    said = dump(java, stopped, suffix)  # a mismatch is told on standard error
    assert len(re.findall(r"(?m)^(?:timestamp: \d+ )?offset: \d+", said)) > 20
    assert "passed sanity check" in dump(java, stopped, suffix, "--index-sanity-check")


def test_files_are_named_as_kafka_names_them(stopped: Path) -> None:
    """Zero-padded base offsets, one pair of indexes a segment."""
    logs = sorted(path.stem for path in stopped.glob("*.log"))
    assert logs[0] == "0" * 20
    assert all(len(name) == 20 and name.isdigit() for name in logs)
    assert logs == sorted(path.stem for path in stopped.glob("*.index"))
    assert logs == sorted(path.stem for path in stopped.glob("*.timeindex"))


def test_java_reads_our_lz4_whatever_the_size_of_its_blocks(java: Run, broker: Target) -> None:
    lines = [f"line {n} of many that look alike ".ljust(1000, "=") for n in range(8_000)]
    sizes = (40, 200, 700, 2_000, 5_060)  # KB: blocks of 64 and 256 KiB, 1 and 4 MiB, and two blocks
    with Producer(
        bootstrap_servers=broker.address, compression_type="lz4", batch_size=8 << 20, max_request_size=8 << 20,
        linger_ms=10_000,
    ) as producer:  # fmt: skip
        sent = 0
        for size in sizes:
            for line in lines[sent : sent + size]:
                producer.send("blocks", line)
            producer.flush(30)
            sent += size
    options = ["--topic", "blocks", "--from-beginning", "--max-messages", str(len(lines))]
    said = java(f"{TOOLS}consumer.ConsoleConsumer", "--bootstrap-server", broker.address, *options)
    assert said.splitlines() == lines
