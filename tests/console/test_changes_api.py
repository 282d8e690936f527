"""Changes in the API: resets are shown before they are done; deletions; what the group does not allow."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from kohort.client.consumer import Consumer
from kohort.testing import Kafka
from tests.console.api import CHANGE, console_of, error_of, read_some


@pytest.fixture(scope="module")
def shop():
    with new_shop() as both:
        yield both


@contextmanager
def new_shop():
    with Kafka() as kafka:
        kafka.create_topic("orders", 1)
        kafka.produce("orders", [b"%d" % number for number in range(10)])
        read_some(kafka, "billing", "orders", 4)
        with console_of(kafka.bootstrap_servers) as console:
            yield kafka, console


def test_a_reset_is_shown_then_done():
    with new_shop() as (kafka, console):
        _reset(kafka, console)


def _reset(kafka, console):
    question = {"group": "billing", "to": "earliest"}
    plan = console.post("/api/group/reset", json=question, headers=CHANGE).json()
    assert (plan["executed"], plan["obstacle"], plan["skipped"], plan["again"]) == (False, None, 0, 4)
    assert (plan["partitions"][0]["old"], plan["partitions"][0]["new"]) == (4, 0)
    assert kafka.committed("billing", "orders") == {0: 4}
    done = console.post("/api/group/reset", json={**question, "dry_run": False}, headers=CHANGE).json()
    assert done["executed"] is True
    assert kafka.committed("billing", "orders") == {0: 0}
    explicit = {
        "group": "billing",
        "offsets": [{"topic": "orders", "partition": 0, "offset": 7}],
        "dry_run": False,
    }
    assert console.post("/api/group/reset", json=explicit, headers=CHANGE).json()["skipped"] == 7
    assert kafka.committed("billing", "orders") == {0: 7}


def test_a_group_with_members_is_not_changed(shop):
    kafka, console = shop
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "billing"}
    with Consumer({**settings, "enable.auto.commit": False}) as member:
        member.subscribe(["orders"])
        member.poll(0.1)
        kafka.group("billing").wait_stable(1)
        question = {"group": "billing", "to": "latest"}
        assert (
            "1 members" in console.post("/api/group/reset", json=question, headers=CHANGE).json()["obstacle"]
        )
        refused = console.post("/api/group/reset", json={**question, "dry_run": False}, headers=CHANGE)
        assert "stop them" in error_of(refused, 409, "NON_EMPTY_GROUP")
        error_of(console.post("/api/group/delete", json={"group": "billing"}, headers=CHANGE), 409)
        offsets = {"group": "billing", "topics": [{"topic": "orders"}]}
        error_of(console.post("/api/group/delete-offsets", json=offsets, headers=CHANGE), 409)
        assert kafka.committed("billing", "orders") == {0: 4}


def test_offsets_and_groups_are_deleted():
    with new_shop() as (kafka, console):
        _delete(kafka, console)


def _delete(kafka, console):
    offsets = {"group": "billing", "topics": [{"topic": "orders", "partitions": [0]}]}
    deleted = console.post("/api/group/delete-offsets", json=offsets, headers=CHANGE).json()
    assert deleted["partitions"] == [{"topic": "orders", "partition": 0}]
    assert kafka.committed("billing", "orders") == {}
    error_of(console.post("/api/group/delete-offsets", json=offsets, headers=CHANGE), 404)
    read_some(kafka, "billing", "orders", 1)
    assert console.post("/api/group/delete", json={"group": "billing"}, headers=CHANGE).status_code == 200
    error_of(console.get("/api/group?group=billing"), 404)
    error_of(console.post("/api/group/delete", json={"group": "billing"}, headers=CHANGE), 404)


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ({"group": "billing"}, "say where"),
        ({"group": "billing", "to": "yesterday"}, "earliest"),
        ({"group": "billing", "to": "offset:-3"}, "whole number"),
        ({"group": "billing", "to": "latest", "dryrun": False}, "dryrun"),
        ({"group": "billing", "to": "latest", "offsets": []}, "either"),
        ({"group": "billing", "offsets": []}, "no partition"),
        ({"group": "", "to": "latest"}, "group"),
        ({"group": "nobody", "to": "latest"}, "committed nothing"),
        (
            {"group": "billing", "to": "latest", "topics": [{"topic": "orders", "partitions": [9]}]},
            "no partition 9",
        ),
        ([], "body"),
    ],
)
def test_a_wrong_question_changes_nothing(shop, question, words):
    kafka, console = shop
    assert words in error_of(console.post("/api/group/reset", json=question, headers=CHANGE), 400)
    assert kafka.committed("billing", "orders") == {0: 4}
