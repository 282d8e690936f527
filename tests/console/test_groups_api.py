"""The API about groups, topics and nodes, on a real broker with real members."""

from __future__ import annotations

import pytest

from kohort.client.consumer import Consumer
from kohort.client.producer import Producer
from kohort.testing import Kafka
from tests.console.api import console_of, error_of, read_some

STRANGE = "a/b <script>alert(1)</script> 'ü' ?&#"


@pytest.fixture(scope="module")
def shop():
    """A broker with three groups (one of them has a member) and the app of its console."""
    with Kafka() as kafka:
        kafka.create_topic("orders", 3)
        with Producer({"bootstrap.servers": kafka.bootstrap_servers}) as producer:
            for number in range(30):
                producer.send("orders", key=b"%d" % number, value=b"order %d" % number)
        read_some(kafka, "billing", "orders", 10)
        read_some(kafka, STRANGE, "orders", 30)
        settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "shipping", "client.id": "anna"}
        with Consumer(settings) as member:
            member.subscribe(["orders"])
            member.poll(0.1)
            kafka.group("shipping").wait_stable(1)
            with console_of(kafka.bootstrap_servers) as console:
                yield console


def test_the_cluster_at_a_glance(shop):
    cluster = shop.get("/api/cluster").json()
    assert cluster["reachable"] is True
    assert (cluster["nodes"], cluster["topics"], cluster["partitions"], cluster["groups"]) == (1, 1, 3, 3)
    assert cluster["groups_by_state"] == {"Empty": 2, "Stable": 1}
    assert cluster["problem"] is None


def test_groups_are_sorted_filtered_and_paged(shop):
    def names(query: str) -> list[str]:
        return [row["group"] for row in shop.get(f"/api/groups?{query}").json()["items"]]

    assert names("") == [STRANGE, "billing", "shipping"]
    assert names("order=desc") == ["shipping", "billing", STRANGE]
    assert names("search=SHIP") == ["shipping"]
    assert names("state=empty&sort=lag&order=desc") == ["billing", STRANGE]
    assert names("size=1&page=2") == ["billing"]
    assert names("size=1&page=9") == []
    assert names("sort=lag_seconds")
    page = shop.get("/api/groups?size=2").json()
    assert (page["total"], page["pages"], page["size"]) == (3, 2, 2)
    billing = shop.get("/api/groups?search=billing").json()["items"][0]
    assert (billing["lag"], billing["members"], billing["topics"]) == (20, 0, ["orders"])


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("size=100000", "size"),
        ("size=0", "size"),
        ("page=0", "page"),
        ("page=99999999999999999999", "page"),
        ("sort=colour", "sort"),
        ("order=up", "order"),
        ("search=" + "x" * 2_000, "search"),
    ],
)
def test_a_wrong_parameter_is_refused_and_named(shop, query, words):
    assert words in error_of(shop.get(f"/api/groups?{query}"), 400, "bad_request")


def test_one_group_with_its_members_and_partitions(shop):
    group = shop.get("/api/group", params={"group": "shipping"}).json()
    assert group["state"] == "Stable"
    assert [member["client_id"] for member in group["members"]] == ["anna"]
    assert len(group["members"][0]["assignment"]) == 3
    assert {row["owners"][0] for row in group["partitions"]} == {group["members"][0]["member_id"]}
    paged = shop.get("/api/group", params={"group": "billing", "size": 2, "page": 2}).json()
    assert (len(paged["partitions"]), paged["partitions_total"], paged["pages"]) == (1, 3, 2)
    assert sum(row["lag"] for row in shop.get("/api/group?group=billing").json()["partitions"]) == 20


def test_a_name_with_slash_and_script_is_data_only(shop):
    for path in ("group", "group/lag", "group/rebalances", "group/states"):
        answer = shop.get(f"/api/{path}", params={"group": STRANGE})
        assert answer.status_code == 200, answer.text
        assert answer.json()["group"] == STRANGE
        assert answer.headers["content-type"] == "application/json"
    wrong = error_of(shop.get("/api/topic", params={"topic": "a/<script>"}), 404)
    assert "a/<script>" in wrong


def test_the_lag_over_time(shop):
    lag = shop.get("/api/group/lag?group=billing").json()
    assert lag["partitions_total"] == 3
    assert lag["total"][-1][1] == 20
    assert sum(row["points"][-1][1] for row in lag["partitions"]) == 20
    assert shop.get("/api/group/lag?group=billing&to_ms=5").json()["total"] == []


def test_rebalances_say_why(shop):
    told = shop.get("/api/group/rebalances?group=shipping").json()
    assert told["source"] == "kohort"
    last = told["rebalances"][0]
    assert last["outcome"] == "Stable"
    assert "anna" in last["reason"]
    assert last["duration_ms"] == last["join_ms"] + last["sync_ms"]


def test_the_state_machine_is_the_table_of_the_coordinator(shop):
    states = shop.get("/api/group/states?group=shipping").json()
    assert states["current"] == "Stable"
    assert {"source": "Empty", "target": "PreparingRebalance", "why": "a member joins"} in states[
        "transitions"
    ]
    assert {row["name"] for row in states["states"]} >= {"Empty", "Stable", "Dead"}
    assert states["svg"].startswith("<svg")


@pytest.mark.parametrize("path", ["group", "group/lag", "group/rebalances", "group/states"])
def test_a_group_that_is_gone_is_not_found(shop, path):
    assert "gone" in error_of(shop.get(f"/api/{path}?group=gone"), 404)
    error_of(shop.get(f"/api/{path}"), 400, "bad_request")


def test_topics_with_their_readers(shop):
    page = shop.get("/api/topics").json()
    assert [(row["topic"], row["records"], row["groups"]) for row in page["items"]] == [("orders", 30, 3)]
    internal = {row["topic"] for row in shop.get("/api/topics?internal=true").json()["items"]}
    assert internal >= {"orders"}
    topic = shop.get("/api/topic?topic=orders").json()
    assert sum(row["records"] for row in topic["partitions"]) == 30
    assert {row["group"]: row["lag"] for row in topic["groups"]}["billing"] == 20
    assert "retention.ms" in {row["name"] for row in topic["settings"]}
    assert "nothing" in error_of(shop.get("/api/topic?topic=nothing"), 404)


def test_nodes_and_their_settings(shop):
    (node,) = shop.get("/api/nodes").json()["items"]
    assert (node["controller"], node["groups"]) == (True, 3)
    settings = {row["name"] for row in shop.get(f"/api/node?node={node['id']}").json()["settings"]}
    assert "group.initial.rebalance.delay.ms" in settings
    error_of(shop.get("/api/node?node=77"), 404)


def test_the_description_of_the_api_names_each_field(shop):
    described = shop.get("/api/openapi.json").json()
    assert described["paths"].keys() >= {
        "/api/cluster", "/api/groups", "/api/group", "/api/group/lag", "/api/group/rebalances", "/api/group/states",
        "/api/group/reset", "/api/group/delete", "/api/group/delete-offsets", "/api/topics", "/api/topic",
        "/api/topic/messages", "/api/nodes", "/api/pipelines", "/api/events",
    }  # fmt: skip
    assert shop.get("/docs").status_code == 404  # it would load scripts from elsewhere
    assert shop.get("/healthz").json() == {"status": "ok"}
