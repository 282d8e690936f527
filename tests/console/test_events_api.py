"""Events: a page learns of a rebalance when a member is killed, and of a cluster that goes away and comes back."""

from __future__ import annotations

import threading
import time

from kohort.client.consumer import Consumer
from kohort.console import sampler
from kohort.testing import Kafka
from tests.console.api import console_of, error_of, events_of, served_console


def test_a_member_that_is_killed_is_told_at_once_with_the_reason():
    with Kafka() as kafka:
        kafka.create_topic("orders", 2)
        settings = {
            "bootstrap.servers": kafka.bootstrap_servers, "group.id": "billing", "heartbeat.interval.ms": 100,
        }  # fmt: skip
        end = threading.Event()
        with (
            Consumer({**settings, "client.id": "anna"}) as anna,
            Consumer({**settings, "client.id": "bert"}) as bert,
            served_console(kafka.bootstrap_servers, **{"client.id": "console"}) as client,
        ):
            for member in (anna, bert):
                member.subscribe(["orders"])
            while kafka.group("billing").state != "Stable" or len(kafka.group("billing").members) < 2:
                anna.poll(0.05)
                bert.poll(0.05)
            polling = threading.Thread(target=lambda: [anna.poll(0.1) for _ in iter(end.is_set, True)])
            with client.stream("GET", "api/events") as stream:
                assert stream.headers["content-type"].startswith("text/event-stream")
                polling.start()
                events = events_of(stream)
                assert next(data for event, data in events if event == "sample")["at_ms"] > 0
                while not [each for each in kafka.requests("Fetch") if each.client_id == "console"]:
                    time.sleep(0.01)  # nobody reads the history yet
                kafka.kill_member("bert")
                told = next(
                    data
                    for event, data in events
                    if event == "rebalance" and data["rebalance"]["outcome"] == "Stable"
                )
            end.set()
            polling.join()
            assert told["group"] == "billing"
            assert [gone["member_id"][:4] for gone in told["rebalance"]["went"]] == ["bert"]
            newest = client.get("api/group/rebalances?group=billing").json()["rebalances"][0]
            assert newest == told["rebalance"]


def test_a_cluster_that_is_away_is_told_and_comes_back_by_itself():
    with Kafka() as kafka:
        kafka.create_topic("orders", 1)
        with served_console(kafka.bootstrap_servers) as client:
            assert client.get("api/cluster").json()["reachable"] is True
            with client.stream("GET", "api/events") as stream:
                events = events_of(stream)
                kafka.stop()
                away = next(data for event, data in events if event == "cluster")
                assert away["reachable"] is False
                assert away["problem"]
                cluster = client.get("api/cluster").json()
                assert (cluster["reachable"], cluster["since_ms"]) == (False, away["since_ms"])
                assert client.get("api/topics").json()["total"] == 1  # what was known is still shown
                kafka.start()
                back = next(data for event, data in events if event == "cluster" and data["reachable"])
                assert back["since_ms"] > away["since_ms"]


def test_a_cluster_that_was_never_there_is_a_clear_answer(monkeypatch):
    monkeypatch.setattr(sampler, "FIRST_SAMPLE_S", 0.1)
    with console_of("127.0.0.1:1") as console:
        cluster = console.get("/api/cluster").json()
        assert (cluster["reachable"], cluster["sampled_ms"]) == (False, None)
        for path in ("groups", "topics", "nodes", "group/lag?group=g"):
            assert "cannot be reached" in error_of(console.get(f"/api/{path}"), 503, "unreachable")


def test_samples_are_seldom_when_nobody_looks():
    assert sampler.WATCHED.wait_s(0.0) < sampler.UNWATCHED.wait_s(0.0)
    assert sampler.UNWATCHED.wait_s(0.5) == 200
    assert sampler.UNWATCHED.wait_s(100) == sampler.UNWATCHED.longest_s
