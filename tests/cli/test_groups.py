"""`kohort groups`: what a person sees of a group, also after a restart."""

from __future__ import annotations

import json
import time

from kohort.broker import running
from kohort.cli.main import main
from kohort.client.connection import Connection
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from kohort.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tests.broker.peer import create_topic
from tests.broker.test_groups import commit, stable


def test_why_tells_who_and_why_and_remembers_it_over_a_restart(tmp_path, capsys):
    with running(tmp_path) as broker, Connection(broker.bootstrap_servers, client_id="checkout") as client:
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
        with Connection(broker.bootstrap_servers) as client:
            stable(client, "orders")
        numbers: list[int] = []
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:  # it is told a moment later, and seen when it is on disk
            main(["groups", "why", "orders", "--bootstrap", broker.bootstrap_servers, "--json"])
            numbers = [each["number"] for each in json.loads(capsys.readouterr().out)]
            if len(numbers) == 3:
                break
        assert numbers == [0, 1, 2], "the numbers go on after a restart"


def test_list_and_describe(capsys):
    with running() as broker, Connection(broker.bootstrap_servers) as client:
        client.call(FindCoordinatorRequest("orders"), version=2)
        create_topic(client, "orders")
        assert commit(client, "orders", 0) == 0
        address = ["--bootstrap", broker.bootstrap_servers]
        assert main(["groups", "list", *address]) == 0
        assert "Empty" in capsys.readouterr().out
        assert main(["groups", "describe", "orders", *address, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["offsets"][0]["lag"] == 0
        assert main(["groups", "describe", "nobody", *address]) == 1
        assert "kohort groups list" in capsys.readouterr().err


def test_watch_ends_when_it_was_told_to(capsys):
    with running() as broker, Connection(broker.bootstrap_servers) as client:
        client.call(FindCoordinatorRequest("orders"), version=2)
        assert (
            main(["groups", "watch", "orders", "--bootstrap", broker.bootstrap_servers, "--seconds", "0.1"])
            == 0
        )
        assert "Ctrl-C" in capsys.readouterr().err
