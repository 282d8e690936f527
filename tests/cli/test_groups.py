"""`kohort groups`: what a person sees of a group, also after a restart."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kohort import Admin, Consumer
from kohort.broker import running
from kohort.cli.frame.exit_codes import ExitCode
from kohort.cli.main import main
from kohort.client.io.blocking_connection import BlockingConnection
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from kohort.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tests.broker.peer import create_topic
from tests.broker.test_groups import commit, stable
from tests.clients.process import eventually

ADDRESS = "127.0.0.1:9092"
DOCS_MEMBER = "checkout-1-8102620c-57a4-457a-b2aa-5fad74f0c773"


def test_why_tells_who_and_why_and_remembers_it_over_a_restart(tmp_path, capsys):
    with (
        running(tmp_path) as broker,
        BlockingConnection(broker.bootstrap_servers, client_id="checkout") as client,
    ):
        client.call(FindCoordinatorRequest("orders"), version=2)
        joined = stable(client, "orders")
        leaver = MemberIdentity(joined.member_id, reason="going home")
        client.call(LeaveGroupRequest("orders", members=[leaver]), version=5)
    with running(tmp_path) as broker:
        assert main(["groups", "why", "orders", "--bootstrap", broker.bootstrap_servers, "--json"]) == 0
        first, second = json.loads(capsys.readouterr().out)
        assert (first["generation_before"], first["generation_after"], first["outcome"]) == (0, 1, "Stable")
        assert first["came"] == [joined.member_id]
        assert joined.member_id in first["reason"]
        assert "going home" in second["reason"]
        assert second["outcome"] == "Empty"
        assert main(["groups", "why", "orders", "--bootstrap", broker.bootstrap_servers]) == 0
        shown = capsys.readouterr().out
        assert "orders: Empty, 0 members" in shown
        assert "generation 0 → 1  checkout-" in shown
        assert joined.member_id not in shown, "ids are cut short for people"
        with BlockingConnection(broker.bootstrap_servers) as client:
            stable(client, "orders")
        numbers: list[int] = []
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:  # it is told a moment later, and seen when it is on disk
            main(["groups", "why", "orders", "--bootstrap", broker.bootstrap_servers, "--json"])
            numbers = [each["number"] for each in json.loads(capsys.readouterr().out)]
            if len(numbers) == 3:
                break
        assert numbers == [0, 1, 2], "the numbers go on after a restart"


def test_describe_shows_the_epochs_of_a_group_of_the_consumer_protocol(capsys):
    with running() as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("orders", partitions=2)
        settings = {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "g",
            "group.protocol": "consumer",
        }
        with Consumer(settings, client_id="till") as consumer:
            consumer.subscribe(["orders"])
            eventually(lambda: consumer.poll(0.05) or len(consumer.assignment()) == 2, "it has both")
            me = consumer.group_metadata()
            address = ["--bootstrap", broker.bootstrap_servers]
            assert main(["groups", "describe", "g", *address, "--state", "--members", "--verbose"]) == 0
            state, row, _, members, member = capsys.readouterr().out.splitlines()
            assert state.split()[-2:] == ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"]
            assert row.split()[-2:] == [str(me.generation_id)] * 2
            assert members.split()[-5:] == [
                "CURRENT-ASSIGNMENT", "CURRENT-EPOCH", "TARGET-ASSIGNMENT", "TARGET-EPOCH", "UPGRADED",
            ]  # fmt: skip
            epoch = str(me.generation_id)
            assert member.split()[-5:] == ["orders:0,1", epoch, "orders:0,1", epoch, "true"]
            assert main(["groups", "describe", "g", *address, "--json"]) == 0
            shown = json.loads(capsys.readouterr().out)
            assert (shown["epoch"], shown["assignment_epoch"]) == (me.generation_id,) * 2
            (one,) = shown["members"]
            assert (one["member_id"], one["protocol"], one["epoch"]) == (
                me.member_id,
                "consumer",
                me.generation_id,
            )
            assert one["target"] == one["assignment"]


def test_list_and_describe(capsys):
    with running() as broker, BlockingConnection(broker.bootstrap_servers) as client:
        client.call(FindCoordinatorRequest("orders"), version=2)
        create_topic(client, "orders")
        assert commit(client, "orders", 0) == 0
        address = ["--bootstrap", broker.bootstrap_servers]
        assert main(["groups", "list", *address]) == 0
        assert capsys.readouterr().out.splitlines()[1].split() == ["orders", "classic", "-", "Empty"]
        assert main(["groups", "describe", "orders", *address, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["offsets"][0]["lag"] == 0
        assert main(["groups", "describe", "nobody", *address]) == ExitCode.NOT_FOUND
        assert "kohort groups list" in capsys.readouterr().err


def test_the_owner_of_each_partition_is_shown_and_those_without_a_commit(kafka, capsys):
    kafka.create_topic("orders", partitions=2)
    kafka.produce("orders", [{"value": "a", "partition": 1}])
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "billing", "client.id": "me"}
    with Consumer(settings, enable_auto_commit=False) as consumer:
        consumer.subscribe(["orders"])
        eventually(lambda: consumer.poll(0.1) or consumer.assignment(), "it has its partitions")
        consumer.commit({("orders", 1): 1})
        member_id = consumer.group_metadata().member_id
        assert main(["groups", "describe", "billing", "--bootstrap", kafka.bootstrap_servers, "--json"]) == 0
        rows = json.loads(capsys.readouterr().out)["offsets"]
        assert [(row["offset"], row["end"], row["lag"]) for row in rows] == [(None, 0, None), (1, 1, 0)]
        assert [row["members"] for row in rows] == [[member_id], [member_id]]
        assert main(["groups", "describe", "billing", "--bootstrap", kafka.bootstrap_servers]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].startswith("billing: Stable, classic, assignor range, coordinator ")
        assert lines[2].split() == [
            "GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "LAG-SECONDS", "CONSUMER-ID",
            "HOST", "CLIENT-ID",
        ]  # fmt: skip
        assert lines[-2].split()[:7] == ["billing", "orders", "0", "-", "0", "-", "-"]


def test_the_example_of_the_docs_is_what_is_shown(kafka, capsys):
    kafka.create_topic("orders", partitions=3)
    kafka.produce("orders", [{"value": "x", "partition": n % 3} for n in range(30)])
    settings = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "group.id": "billing",
        "client.id": "checkout-1",
    }
    with Consumer(settings, enable_auto_commit=False) as consumer:
        consumer.subscribe(["orders"])
        eventually(lambda: consumer.poll(0.1) or consumer.assignment(), "it has its partitions")
        consumer.commit({("orders", 0): 10, ("orders", 1): 7})
        with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
            admin.alter_group_offsets("audit", {("orders", 2): 3})
        page = (Path(__file__).parents[2] / "docs" / "groups.md").read_text("utf-8")
        shown_there = re.findall(r"^\$ kohort (groups [^\n]*)\n((?:[^$`][^\n]*\n|\n)+)", page, re.MULTILINE)
        shown_there = [(words, wanted) for words, wanted in shown_there if "settings" not in words]
        assert [words.split()[1] for words, _ in shown_there] == ["list", "describe", "reset", "reset"]
        member_id = consumer.group_metadata().member_id
        for words, wanted in shown_there:
            assert main(words.replace(ADDRESS, kafka.bootstrap_servers).split()) == 0
            shown = capsys.readouterr().out.replace(kafka.bootstrap_servers, ADDRESS)
            shown = shown.replace(member_id, DOCS_MEMBER).replace(member_id[:19], DOCS_MEMBER[:19])
            # How old a record is differs from run to run, and so does the width of nothing else.
            age = re.compile(r"(   3    )[\d.]+ *")
            assert age.sub(r"\1", shown) == age.sub(r"\1", wanted)


def test_a_group_that_nobody_knows_fails(kafka, capsys):
    """`why nope` told of "no rebalance", and that all was well."""
    for action in ("describe", "why"):
        assert main(["groups", action, "nope", "--bootstrap", kafka.bootstrap_servers]) == ExitCode.NOT_FOUND
        shown = capsys.readouterr()
        assert "there is no group nope" in shown.err
        assert not shown.out


def command(*words, **popen):
    environment = {**os.environ, **popen.pop("env", {})}
    return subprocess.Popen(
        [sys.executable, "-m", "kohort.cli.main", "groups", *words], env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, **popen,
    )  # fmt: skip


def faults(said):
    """A slow machine may make it wait for the broker, and say so."""
    return [line for line in said.splitlines() if not line.startswith("kohort: waiting for")]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_what_the_terminal_cannot_show_is_replaced(kafka, encoding):
    with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        admin.create_topic("orders")
        admin.alter_group_offsets("größe→", {("orders", 0): 0})
    process = command(
        "list", "--bootstrap", kafka.bootstrap_servers, env={"PYTHONIOENCODING": encoding}, encoding=encoding
    )
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert not faults(err)
    assert {"ascii": "gr??e?", "latin-1": "größe?"}[encoding] in out


def test_a_reader_that_goes_away_is_no_fault(kafka):
    process = command("list", "--bootstrap", kafka.bootstrap_servers)
    process.stdout.close()
    assert process.wait(60) == 128 + signal.SIGPIPE
    with process.stderr as err:
        assert not faults(err.read())


def test_help_loads_neither_broker_nor_client():
    code = "import sys; from kohort.cli.main import main; main(['--help']); print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert not {
        name
        for name in loaded.stdout.split()
        if name.startswith(("kohort.broker", "kohort.client", "asyncio"))
    }


def test_watch_ends_when_it_was_told_to(capsys):
    with running() as broker, BlockingConnection(broker.bootstrap_servers) as client:
        client.call(FindCoordinatorRequest("orders"), version=2)
        assert (
            main(["groups", "watch", "orders", "--bootstrap", broker.bootstrap_servers, "--seconds", "0.1"])
            == 0
        )
        assert "Ctrl-C" in capsys.readouterr().err
