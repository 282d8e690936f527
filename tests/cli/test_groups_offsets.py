"""`kohort groups`: list, describe, reset, delete, delete-offsets and remove-members, against a broker."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kohort import Admin, Consumer
from kohort.cli.frame.exit_codes import ExitCode
from kohort.cli.main import main
from kohort.client.types import TopicPartition
from kohort.testing import Kafka
from tests.clients.process import eventually

Call = Callable[..., Any]


@pytest.fixture
def admin(kafka: Kafka) -> Iterator[Admin]:
    """Two topics of two partitions with ten records each, and the group `audit`, which has read some."""
    for topic in ("orders", "returns"):
        kafka.create_topic(topic, partitions=2)
        kafka.produce(topic, [{"value": f"{n}", "partition": n % 2} for n in range(20)])
    with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        admin.alter_group_offsets("audit", {("orders", 0): 4, ("orders", 1): 10})
        yield admin


@pytest.fixture
def call(kafka: Kafka, admin: Admin, capsys: pytest.CaptureFixture[str]) -> Call:
    """`kohort groups …`: what it prints with --json, or all that it said."""

    def run(*words: str, code: int = 0) -> Any:
        capsys.readouterr()
        assert main(["groups", *words, "--bootstrap", kafka.bootstrap_servers]) == code
        said = capsys.readouterr()
        return json.loads(said.out) if "--json" in words and not code else said.out + said.err

    return run


@pytest.fixture
def reader(kafka: Kafka, admin: Admin) -> Iterator[Consumer[Any, Any]]:
    """A member of the group `billing` that owns both partitions of `orders`."""
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "billing", "client.id": "till"}
    with Consumer(settings, enable_auto_commit=False, group_instance_id="till-1") as consumer:
        consumer.subscribe(["orders"])
        eventually(lambda: consumer.poll(0.1) or consumer.assignment(), "it has its partitions")
        yield consumer


def committed(admin: Admin, group: str) -> dict[tuple[str, int], int]:
    return {(at.topic, at.partition): each.offset for at, each in admin.group_offsets(group).items()}


# --- list ---------------------------------------------------------------------------------------------------


def test_list_filters_by_state_and_type(call: Call, reader: Any) -> None:
    assert [row["group"] for row in call("list", "--json")] == ["audit", "billing"]
    assert [row["group"] for row in call("list", "--state", "stable", "--json")] == ["billing"]
    assert [row["group"] for row in call("list", "--state", "Empty, stable", "--json")] == [
        "audit",
        "billing",
    ]
    assert call("list", "--type", "consumer,share", "--json") == []
    said = call("list", "--state", "asleep", code=ExitCode.WRONG_USAGE)
    assert "'asleep' is none of Stable, Empty" in said


def test_list_verbose_names_members_assignor_and_coordinator(call: Call, reader: Any) -> None:
    lines = call("list", "--verbose").splitlines()
    assert lines[0].split() == ["GROUP", "TYPE", "PROTOCOL", "STATE", "MEMBERS", "ASSIGNOR", "COORDINATOR"]
    assert lines[1].split()[:6] == ["audit", "classic", "-", "Empty", "0", "-"]
    assert lines[2].split()[:6] == ["billing", "classic", "consumer", "Stable", "1", "range"]
    (row,) = [row for row in call("list", "--verbose", "--json") if row["group"] == "billing"]
    assert row["coordinator"]["id"] == 1


# --- describe -----------------------------------------------------------------------------------------------


def test_describe_state_and_members(call: Call, reader: Any) -> None:
    lines = call("describe", "billing", "audit", "--state").splitlines()
    assert lines[0].split() == ["GROUP", "COORDINATOR", "(ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"]
    assert lines[1].split()[-3:] == ["range", "Stable", "1"]
    assert lines[2].split()[-3:] == ["-", "Empty", "0"]
    lines = call("describe", "billing", "--members", "--verbose").splitlines()
    assert lines[0].split()[-1] == "CURRENT-ASSIGNMENT"
    assert lines[1].split() == [
        "billing", reader.group_metadata().member_id, "till-1", "/127.0.0.1", "till", "2", "orders:0,1",
    ]  # fmt: skip
    assert "no members" in call("describe", "audit", "--members")


def test_describe_several_and_all_and_those_that_are_not_there(call: Call, reader: Any) -> None:
    assert [each["group"] for each in call("describe", "audit", "billing", "--json")] == ["audit", "billing"]
    assert [each["group"] for each in call("describe", "--all-groups", "--json")] == ["audit", "billing"]
    assert call("describe", "audit", "--json")["group"] == "audit"
    said = call("describe", "audit", "nope", code=ExitCode.NOT_FOUND)
    assert "audit: Empty" in said
    assert "there is no group nope" in said
    assert "--all-groups" in call("describe", code=ExitCode.WRONG_USAGE)
    assert "not both" in call("describe", "audit", "--all-groups", code=ExitCode.WRONG_USAGE)


def test_describe_tells_lag_in_seconds_and_verbose_tells_more(call: Call, admin: Admin) -> None:
    found = call("describe", "audit", "--json")
    assert [row["lag"] for row in found["offsets"]] == [6, 0]
    behind, level = (row["lag_seconds"] for row in found["offsets"])
    assert 0 <= behind < 120
    assert level == 0
    assert found["lag"] == 6
    header = call("describe", "audit", "--verbose").splitlines()[2].split()
    assert header[3] == "LEADER-EPOCH"
    assert header[-2:] == ["LOG-START-OFFSET", "METADATA"]


def test_describe_with_rates_says_when_it_will_have_caught_up(
    call: Call, kafka: Kafka, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the two looks the group reads three records: the sleep of the command is when that happens."""
    sleep = time.sleep

    def reads_on(seconds: float) -> None:
        admin.alter_group_offsets("audit", {("orders", 0): 7})
        sleep(seconds)

    monkeypatch.setattr("kohort.cli.groups.describe.time.sleep", reads_on)
    found = call("describe", "audit", "--rates", "0.2", "--json")
    assert found["consume_rate"] > 0
    assert found["caught_up_in_s"] is not None
    monkeypatch.setattr("kohort.cli.groups.describe.time.sleep", lambda _: sleep(0.05))
    shown = call("describe", "audit", "--rates", "0.2")
    assert "does not catch up at these rates" in shown
    assert "CAUGHT-UP-IN" in shown


# --- reset --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "offsets", "skipped", "again"),
    [
        (["--all-topics", "--to-earliest"], [0, 0], 0, 14),
        (["--all-topics", "--to-latest"], [10, 10], 6, 0),
        (["--all-topics", "--to-current"], [4, 10], 0, 0),
        (["--topic", "orders", "--to-offset", "7"], [7, 7], 3, 3),
        (["--topic", "orders:1", "--shift-by", "-4"], [6], 0, 4),
        (["--topic", "orders:0,1", "--shift-by", "2"], [6, 10], 2, 0),
        (["--all-topics", "--to-datetime", "2000-01-01T00:00:00Z"], [0, 0], 0, 14),
        (["--all-topics", "--to-datetime", "2999-01-01T00:00:00.000"], [10, 10], 6, 0),
        (["--all-topics", "--by-duration", "P1DT1H"], [0, 0], 0, 14),
        (["--topic", "orders:0", "--topic", "returns:1", "--to-latest"], [10, 10], 6, 0),
    ],
)
def test_a_reset_shows_what_would_change_and_does_it_when_told_to(
    call: Call, admin: Admin, words: list[str], offsets: list[int], skipped: int, again: int
) -> None:
    before = committed(admin, "audit")
    (plan,) = call("reset", "audit", *words, "--json")
    assert [each["new"] for each in plan["partitions"]] == offsets
    assert (plan["skipped"], plan["read_again"], plan["executed"]) == (skipped, again, False)
    assert committed(admin, "audit") == before, "nothing is done without --execute"
    said = call("reset", "audit", *words)
    assert f"{skipped} records are skipped, {again} are read again; nothing was changed" in said
    assert "; done" in call("reset", "audit", *words, "--execute")
    changed = {(each["topic"], each["partition"]): each["new"] for each in plan["partitions"]}
    assert committed(admin, "audit") == before | changed


def test_an_offset_outside_of_the_log_is_moved_to_its_end_and_that_is_said(call: Call) -> None:
    said = call("reset", "audit", "--topic", "orders:0", "--to-offset", "99")
    assert "offset 99 is not in the log, which has 0 to 10" in said


def test_export_and_from_file_go_together(call: Call, admin: Admin, tmp_path: Path) -> None:
    admin.alter_group_offsets("other", {("returns", 1): 3})
    one = tmp_path / "one.csv"
    one.write_text(call("reset", "audit", "--all-topics", "--to-current", "--export"))
    assert one.read_text() == "orders,0,4\norders,1,10\n"
    several = tmp_path / "several.csv"
    several.write_text(call("reset", "--all-groups", "--all-topics", "--to-current", "--export"))
    assert several.read_text() == "audit,orders,0,4\naudit,orders,1,10\nother,returns,1,3\n"
    call("reset", "--all-groups", "--all-topics", "--to-latest", "--execute")
    assert committed(admin, "other") == {("returns", 1): 10}
    call("reset", "audit", "other", "--from-file", str(several), "--execute")
    assert committed(admin, "audit") == {("orders", 0): 4, ("orders", 1): 10}
    assert committed(admin, "other") == {("returns", 1): 3}
    call("reset", "fresh", "--from-file", str(one), "--execute")
    assert committed(admin, "fresh") == committed(admin, "audit")


def test_a_group_with_members_is_not_reset(call: Call, reader: Any, admin: Admin) -> None:
    words = ["reset", "billing", "--topic", "orders", "--to-earliest"]
    assert "billing has 1 members: stop them" in call(*words)
    assert "stop them, then reset again" in call(*words, "--execute", code=ExitCode.FAILED)
    assert committed(admin, "billing") == {}


def test_of_several_groups_those_that_can_be_reset_are(call: Call, reader: Any, admin: Admin) -> None:
    words = ["--topic", "orders", "--to-latest", "--execute"]
    said = call("reset", "audit", "billing", *words, code=ExitCode.FAILED)
    assert "audit: 6 records are skipped, 0 are read again; done" in said
    assert "billing: 0 records are skipped, 0 are read again; not done" in said
    assert committed(admin, "audit") == {("orders", 0): 10, ("orders", 1): 10}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["audit", "--all-topics"], "name one place to reset to"),
        (
            ["audit", "--all-topics", "--to-earliest", "--to-latest"],
            "these are 2: --to-earliest, --to-latest",
        ),
        (["audit", "--to-earliest"], "name topics by --topic"),
        (["audit", "--all-topics", "--topic", "orders", "--to-earliest"], "name topics by --topic"),
        (["--all-topics", "--to-earliest"], "name one or more groups"),
        (["audit", "--all-topics", "--to-datetime", "noon"], "'noon' is no datetime"),
        (["audit", "--all-topics", "--by-duration", "1h"], "'1h' is no duration"),
        (["audit", "--topic", "orders:x", "--to-earliest"], "'x' is not a partition"),
        (["audit", "--all-topics", "--to-earliest", "--execute", "--dry-run"], "not both"),
        (["audit", "--all-topics", "--to-offset", "-1"], "-1"),
        (["audit", "--topic", "orders", "--from-file", "x.csv"], "leave --topic and --all-topics out"),
        (["audit", "--all-topics", "--to-latest", "--export", "--json"], "--export or --json"),
    ],
)
def test_a_wrong_reset_is_refused_before_anything_is_done(call: Call, words: list[str], says: str) -> None:
    assert says in call("reset", *words, code=ExitCode.WRONG_USAGE)


def test_what_the_cluster_does_not_have_cannot_be_reset(call: Call, tmp_path: Path) -> None:
    at = ["reset", "audit", "--to-earliest"]
    assert "nope" in call(*at, "--topic", "nope", code=ExitCode.NOT_FOUND)
    assert "orders has no partition 7" in call(*at, "--topic", "orders:7", code=ExitCode.FAILED)
    assert "nothing is committed" in call("reset", "new", "--topic", "orders", "--to-current")
    said = call("reset", "new", "--all-topics", "--to-earliest", code=ExitCode.FAILED)
    assert "new has committed nothing: name the topics" in said
    file = tmp_path / "offsets.csv"
    file.write_text("orders,0\n")
    assert "line 1" in call("reset", "audit", "--from-file", str(file), code=ExitCode.FAILED)
    gone = str(tmp_path / "gone")
    assert "cannot read" in call("reset", "audit", "--from-file", gone, code=ExitCode.FAILED)
    file.write_text("orders,0,1\n")
    assert "name one group" in call("reset", "--all-groups", "--from-file", str(file), code=ExitCode.FAILED)
    file.write_text("other,orders,0,1\n")
    assert "no offsets for group audit" in call(
        "reset", "audit", "--from-file", str(file), code=ExitCode.FAILED
    )


# --- delete -------------------------------------------------------------------------------------------------


def test_groups_are_deleted_unless_they_have_members(call: Call, reader: Any, admin: Admin) -> None:
    admin.alter_group_offsets("old", {("orders", 0): 1})
    said = call("delete", "audit", "billing", code=ExitCode.FAILED)
    assert "deleted: audit" in said
    assert "billing was not deleted" in said
    assert "nope was not deleted" in call("delete", "nope", code=ExitCode.NOT_FOUND)
    assert "write --yes" in call("delete", "--all-groups", code=ExitCode.WRONG_USAGE)
    assert {each.group_id for each in admin.list_groups()} == {"billing", "old"}
    reader.close()
    admin.remove_members("billing")  # a static member does not leave by itself
    assert call("delete", "--all-groups", "--yes", "--json") == {"deleted": ["billing", "old"], "failed": {}}


def test_offsets_of_topics_are_forgotten(call: Call, admin: Admin) -> None:
    admin.alter_group_offsets("audit", {("returns", 0): 1, ("returns", 1): 2})
    rows = call("delete-offsets", "audit", "--topic", "returns:1", "--topic", "orders", "--json")
    assert [(row["topic"], row["partition"], row["error"]) for row in rows] == [
        ("orders", 0, None),
        ("orders", 1, None),
        ("returns", 1, None),
    ]
    assert committed(admin, "audit") == {("returns", 0): 1}
    said = call("delete-offsets", "audit", "--topic", "orders", code=ExitCode.NOT_FOUND)
    assert "audit has committed nothing for orders" in said
    said = call("delete-offsets", "nope", "--topic", "orders", code=ExitCode.NOT_FOUND)
    assert "there is no group nope" in said


def test_offsets_that_members_use_are_kept(call: Call, reader: Any, admin: Admin) -> None:
    reader.commit({TopicPartition("orders", 0): 2})
    said = call("delete-offsets", "billing", "--topic", "orders", code=ExitCode.FAILED)
    assert "orders  0          failed" in said
    assert committed(admin, "billing") == {("orders", 0): 2}


def test_members_are_removed_by_id_by_instance_or_all(call: Call, reader: Any, admin: Admin) -> None:
    assert "--all-members" in call("remove-members", "billing", code=ExitCode.WRONG_USAGE)
    assert "there is no group nope" in call(
        "remove-members", "nope", "--all-members", code=ExitCode.NOT_FOUND
    )
    call("remove-members", "billing", "--member", "nobody", code=ExitCode.NOT_FOUND)
    found = call(
        "remove-members", "billing", "--instance", "till-1", "--reason", "the till is broken", "--json"
    )
    assert found == {"group": "billing", "removed": ["till-1"]}
    eventually(lambda: "the till is broken" in call("why", "billing"), "it is in the history")
    assert "audit has no members" in call("remove-members", "audit", "--all-members")


def test_settings_of_a_group_are_shown_and_changed(call: Call, admin: Admin) -> None:
    name = "consumer.session.timeout.ms"
    assert call("settings", "audit") == "audit has no settings of its own; --all shows the broker's\n"
    assert call("settings", "audit", "--set", f"{name}=50000", "--dry-run").startswith(
        f"audit: {name}: 45000 → 50000 ("
    )
    assert call("settings", "audit", "--set", f"{name}=50000") == f"audit: {name}: 45000 → 50000\n"
    assert call("settings", "audit", "--json") == {"group": "audit", "settings": {name: "50000"}}
    assert f"{name} " in call("settings", "audit")
    assert (
        call("settings", "audit", "--all", "--json")["settings"]["share.isolation.level"]
        == "read_uncommitted"
    )
    changed = call("settings", "audit", "--unset", name, "--json")["changes"]
    assert changed == [{"name": name, "before": "50000", "after": "45000"}]
    said = call("settings", "audit", "--set", f"{name}=1", code=ExitCode.FAILED)
    assert "must be greater than or equal to group.consumer.min.session.timeout.ms" in said
    assert "which of the two" in call(
        "settings", "audit", "--set", f"{name}=1", "--unset", name, code=ExitCode.WRONG_USAGE
    )
