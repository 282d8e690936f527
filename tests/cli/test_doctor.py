"""`kohort doctor` of clusters, settings and machines that are wrong on purpose: what it finds, what it says to do."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kohort import Admin, UserScramCredentialUpsertion
from kohort.broker import running
from kohort.cli.doctor.broker import check_broker
from kohort.cli.doctor.cluster import _standing, check_cluster
from kohort.cli.doctor.findings import NOTE, RIGHT, WRONG, Finding
from kohort.cli.doctor.settings import check_settings
from kohort.cli.main import main
from kohort.coordinator.history import Rebalance
from kohort.insight.diagnosis import ADVICE, RebalanceCause, cause_of, repeated_rebalances
from kohort.insight.samples import sample_cluster
from kohort.testing import Kafka
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.describe_acls import DescribeAclsResponse
from kohort.wire.messages.list_groups import ListGroupsResponse
from tests.client.scripted import ScriptedCluster
from tests.client.secured import login, secured_broker
from tests.clients.process import eventually
from tests.insight.groups import member, settle

NOW_MS = 1_700_000_000_000


def of(kafka: Kafka) -> dict[str, str]:
    return {"bootstrap.servers": kafka.bootstrap_servers}


def by_name(findings: object) -> dict[str, Finding]:
    found = list(findings)  # type: ignore[call-overload]
    return {each.name: each for each in found}


def finding_of(kafka: Kafka, name: str, text: str) -> Finding:
    """The finding of a cluster, once it says this: the history of a group is written a moment later."""
    found: dict[str, Finding] = {}

    def is_found() -> bool:
        found.update(by_name(check_cluster(of(kafka))))
        return name in found and text in found[name].text

    eventually(is_found, f"{name}: {text}")
    return found[name]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


# --- clusters -------------------------------------------------------------------------------------------


def test_a_cluster_in_order_is_right_and_so_says_doctor_alone(
    kafka: Kafka, capsys: pytest.CaptureFixture[str]
) -> None:
    kafka.create_topic("t")
    assert main(["doctor", "--bootstrap", kafka.bootstrap_servers, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["right"] is True
    assert {each["name"] for each in told["findings"]} >= {
        "node 1",
        "controller",
        "partitions",
        "clocks",
        "groups",
    }
    assert main(["doctor", "cluster", "--bootstrap", kafka.bootstrap_servers]) == 0
    assert capsys.readouterr().out.endswith("everything is right\n")


def test_an_advertised_address_that_nobody_can_resolve_is_found() -> None:
    port = free_port()
    with running(listen=f"127.0.0.1:{port}", advertise="kafka.invalid:9092"):
        found = by_name(check_cluster({"bootstrap.servers": f"127.0.0.1:{port}"}))
    assert found[f"bootstrap 127.0.0.1:{port}"].verdict == RIGHT
    node = found["node 1"]
    assert node.verdict == WRONG
    assert (
        "it tells clients to connect to kafka.invalid:9092: the name kafka.invalid cannot be resolved"
        in node.text
    )
    assert "advertised.listeners" in (node.to_do or "")
    assert found["groups and topics"].verdict == WRONG


def test_servers_that_do_not_answer_are_told_apart() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        where = f"127.0.0.1:{silent.getsockname()[1]}"
        servers = f"127.0.0.1:{free_port()},nowhere.invalid:1,nonsense,{where}"
        settings = {
            "bootstrap.servers": servers,
            "default.api.timeout.ms": "300",
            "request.timeout.ms": "300",
        }
        findings = list(check_cluster(settings))
    texts = [each.text for each in findings]
    assert {each.verdict for each in findings} == {WRONG}
    assert texts[0].startswith("no connection (127.0.0.1: ")
    assert "cannot be resolved" in texts[1]
    assert texts[2] == "this is no address"
    assert texts[3].startswith("connected, but it does not answer as a broker")
    assert texts[4] == "not checked, because no server answers"


def test_what_a_secured_cluster_says_to_whom() -> None:
    def found(settings: dict[str, object]) -> dict[str, Finding]:
        given = {name: str(value) for name, value in settings.items()}
        return {finding.name.split()[0]: finding for finding in check_cluster(given)}

    with secured_broker() as broker:
        ours = found(login(broker))
        assert ours["security"].text == "SASL_PLAINTEXT; the cluster has an authorizer and 0 ACLs"
        with Admin(login(broker)) as admin:
            admin.alter_user_scram_credentials([UserScramCredentialUpsertion("alice", "alice")])
        theirs = found(login(broker, "alice", "alice", "SCRAM-SHA-512"))["security"]
        assert theirs.verdict == NOTE
        assert "--operation describe --cluster" in (theirs.to_do or "")
        refused = found(login(broker, password="wrong"))["bootstrap"]
        assert refused.verdict == WRONG
        assert "Invalid username or password" in refused.text
        assert "kohort users list" in (refused.to_do or "")
        assert "wrong" not in refused.text


def test_partitions_without_a_leader_are_wrong() -> None:
    with ScriptedCluster(1) as cluster:
        cluster.add_topic("t", leaders=[-1, -1])
        cluster.on(29, DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED))
        cluster.on(16, ListGroupsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        found = by_name(check_cluster({"bootstrap.servers": cluster.bootstrap_servers}))
    assert found["partitions"].verdict == WRONG
    assert found["partitions"].text == "2 partitions without a leader: t-0, t-1"
    assert found["sample"].verdict == NOTE


def test_a_group_that_rebalances_again_and_again_is_found_with_the_reason(kafka: Kafka) -> None:
    kafka.create_topic("t", partitions=2)
    with member(kafka.bootstrap_servers, "restless", "t", client_id="steady") as steady:
        settle(steady, partitions=2)
        for _ in range(2):
            with member(kafka.bootstrap_servers, "restless", "t", client_id="flighty") as flighty:
                settle(steady, flighty, partitions=2)
            settle(steady, partitions=2)
        finding = finding_of(kafka, "group restless", "members leave (2)")
    assert finding.verdict == WRONG
    assert finding.text.startswith("5 rebalances in 1 min: ")
    assert finding.text.count("rebalances in") == 1
    assert "kohort groups why restless" in (finding.to_do or "")


def test_a_member_that_polls_too_slowly_is_found(kafka: Kafka) -> None:
    kafka.create_topic("t", partitions=2)
    with member(kafka.bootstrap_servers, "g", "t", client_id="steady") as steady:
        slow = member(kafka.bootstrap_servers, "g", "t", client_id="slow", max_poll_interval_ms=300)
        settle(steady, slow, partitions=2)
        settle(steady, partitions=2)  # the other one is not polled any more
        finding = finding_of(kafka, "group g", "polled too slowly")
        slow.close()
    assert finding.verdict == NOTE
    assert "a member polled too slowly, 1 time in the last hour" in finding.text
    assert "max.poll.interval.ms" in (finding.to_do or "")


def test_a_group_that_nobody_reads_for_is_found_by_its_commits(kafka: Kafka) -> None:
    """The doctor comes half an hour after the last commit."""
    kafka.create_topic("t")
    kafka.produce("t", [{"value": "x", "timestamp": int(time.time() * 1000) - 3_000_000} for _ in range(10)])
    with Admin(of(kafka)) as admin:
        admin.alter_group_offsets("left", {("t", 0): 3})
        later_ms = int(time.time() * 1000) + 1_800_000
        sample = sample_cluster(admin, later_ms)
        (finding,) = _standing(admin, of(kafka), sample, ["left"])
    assert (finding.name, finding.verdict) == ("group left", WRONG)
    assert finding.text == "STOP, lag 7: nobody reads"


def test_the_clock_of_a_coordinator_is_measured_when_asked(kafka: Kafka) -> None:
    kafka.create_topic("t")
    with Admin(of(kafka)) as admin:
        admin.alter_group_offsets("g", {("t", 0): 0})
        found = by_name(check_cluster(of(kafka), measure_clock=True))
        assert found["measured clock"].verdict == RIGHT
        kafka.advance(3_600_000)
        found = by_name(check_cluster(of(kafka), measure_clock=True))
        assert [each.group_id for each in admin.list_groups()] == ["g"]
        admin.alter_group_offsets("h", {("t", 0): 0})
        clocks = by_name(check_cluster(of(kafka)))["clocks"]
    assert found["measured clock"].verdict == WRONG
    assert "by +36" in found["measured clock"].text
    assert clocks.verdict == WRONG
    assert "s ahead of this machine's clock" in clocks.text


# --- what the words of rebalances mean ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("c-1 left: consumer poll timeout has expired.", RebalanceCause.SLOW_POLL),
        ("c-1: session expired after 45000 ms without a heartbeat", RebalanceCause.SESSION),
        ("c-1 did not sync in time", RebalanceCause.LATE),
        ("c-1 left: the consumer is being closed", RebalanceCause.LEFT),
        ("1 member went: c at 10.0.0.1", RebalanceCause.LEFT),
        ("the assignor changed from range to sticky", RebalanceCause.CHANGED),
    ],
)
def test_the_cause_is_read_off_the_reason(reason: str, cause: RebalanceCause) -> None:
    assert cause_of(Rebalance(0, 0, 0, "", reason)) is cause


def test_few_or_old_rebalances_are_no_trouble_and_a_fault_is_named_before_those_who_come() -> None:
    each = [Rebalance(n, NOW_MS + 60_000 * n, n, "", "a joins", came=("a",)) for n in range(4)]
    assert repeated_rebalances(each[:3], NOW_MS + 200_000) is None
    assert repeated_rebalances(each, NOW_MS + 10**8) is None
    late = Rebalance(4, NOW_MS + 240_000, 4, "b", "b: session expired after 10 ms without a heartbeat")
    found = repeated_rebalances([*each, late], NOW_MS + 250_000)
    assert found is not None
    assert (
        found.sentence() == "5 rebalances in 4 min: members join (4), a member sent no heartbeat in time (1)"
    )
    assert found.advice == ADVICE[RebalanceCause.SESSION]
    assert set(ADVICE) == set(RebalanceCause)


# --- settings -------------------------------------------------------------------------------------------


def checked(path: Path, *lines: str, client: str | None = None) -> dict[str, Finding]:
    file = path / "client.properties"
    file.write_text("\n".join(lines))
    file.chmod(0o600)
    return by_name(check_settings(file, client))


GOOD = "bootstrap.servers=127.0.0.1:9092"


def test_settings_in_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = (GOOD, "group.id=g", "enable.auto.commit=false")
    found = checked(tmp_path, *lines)
    assert list(found) == ["file"]
    assert "read as those of a consumer" in found["file"].text
    assert main(["doctor", "settings", str(tmp_path / "client.properties")]) == 0
    assert capsys.readouterr().out.endswith("everything is right\n")
    assert main(["doctor", "settings", str(tmp_path / "missing")]) == 1


@pytest.mark.parametrize(
    ("line", "name", "verdict", "text"),
    [
        ("sesion.timeout.ms=1", "sesion.timeout.ms", WRONG, "session.timeout.ms"),
        ("linger.ms=5", "linger.ms", WRONG, "it is a setting of the producer"),
        ("session.timeout.ms=soon", "session.timeout.ms", WRONG, "Invalid value soon"),
        ("session.timeout.ms=1000", "together", WRONG, "heartbeat.interval.ms"),
        ("session.timeout.ms=5000", "session.timeout.ms", NOTE, "rebalance"),
        ("heartbeat.interval.ms=20000", "heartbeat.interval.ms", NOTE, "a third"),
        ("max.poll.interval.ms=1000", "max.poll.interval.ms", NOTE, "less than session.timeout.ms"),
        ("auto.commit.interval.ms=10", "auto.commit.interval.ms", NOTE, "no effect"),
        ("fetch.max.wait.ms=30000", "fetch.max.wait.ms", WRONG, "waits for the broker"),
        ("sasl.mechanism=PLAIN", "sasl.…", WRONG, "no effect with security.protocol=PLAINTEXT"),
        ("metric.reporters=x", "metric.reporters", NOTE, "no effect"),
        ("default.api.timeout.ms=100", "request.timeout.ms", NOTE, "longer"),
    ],
)
def test_what_is_wrong_with_a_consumer(tmp_path: Path, line: str, name: str, verdict: str, text: str) -> None:
    found = checked(tmp_path, GOOD, "group.id=g", "enable.auto.commit=false", line, client="consumer")
    assert found[name].verdict == verdict, found
    assert text in found[name].text


def test_what_is_dangerous_in_a_producer(tmp_path: Path) -> None:
    found = checked(tmp_path, GOOD, "acks=1", "retries=0", "compression.zstd.level=3")
    assert "read as those of a producer" in found["file"].text
    assert {name for name, each in found.items() if each.verdict == NOTE} == {
        "acks", "retries", "enable.idempotence", "compression.zstd.level",
    }  # fmt: skip


def test_passwords_for_all_to_read_and_over_the_open_wire(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=a\nsasl.password=secret-word\n"
    )
    file.chmod(0o644)
    found = by_name(check_settings(file))
    assert found["bootstrap.servers"].verdict == WRONG
    assert "unencrypted" in found["security.protocol"].text
    assert found["permissions"].verdict == NOTE
    assert "secret-word" not in str(found)


# --- this machine ---------------------------------------------------------------------------------------


def test_a_new_directory_and_a_free_port(tmp_path: Path) -> None:
    found = by_name(check_broker(tmp_path / "new", "127.0.0.1", free_port()))
    assert found["directory"].text.endswith("`kohort serve` makes it")
    assert (found["directory"].verdict, found["port"].verdict, found["versions"].verdict) == (RIGHT,) * 3
    assert "disk" in found
    assert "open files" in found


def test_a_directory_that_is_a_file_or_holds_something_else(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    assert by_name(check_broker(file, "127.0.0.1", free_port()))["directory"].verdict == WRONG
    assert "no data directory" in by_name(check_broker(tmp_path, "127.0.0.1", free_port()))["directory"].text


def test_a_port_that_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        assert main(["doctor", "broker", str(tmp_path / "new"), "--listen", where]) == 1
    assert f"✗ port: {where}" in capsys.readouterr().out
    assert main(["doctor", "broker", "--listen", "nonsense"]) == 2


def test_a_directory_in_use_stopped_in_order_and_left_by_a_killed_broker(tmp_path: Path) -> None:
    with running(tmp_path):
        found = by_name(check_broker(tmp_path, "127.0.0.1", free_port()))
        assert found["lock"].text == f"process {os.getpid()} uses it now"
    found = by_name(check_broker(tmp_path, "127.0.0.1", free_port()))
    assert "stopped in order" in found["lock"].text
    program = (
        "import sys, time\nfrom kohort.broker import running\n"
        "with running(sys.argv[1]):\n    print('up', flush=True)\n    time.sleep(600)\n"
    )
    broker = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert broker.stdout is not None
    assert broker.stdout.readline() == "up\n"
    broker.send_signal(signal.SIGKILL)
    broker.wait(60)
    broker.stdout.close()
    found = by_name(check_broker(tmp_path, "127.0.0.1", free_port()))
    assert found["lock"].verdict == NOTE
    assert "was killed" in found["lock"].text
