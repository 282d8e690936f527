"""What a metered broker counts: requests, errors, groups; and what it says of its health."""

from __future__ import annotations

import asyncio
import json
import struct
import threading
import urllib.error
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from kohort import Admin, Consumer, Producer
from kohort.broker import monitoring
from kohort.broker.apis.table import TABLE
from kohort.broker.metrics import METRICS, TRANSACTION_METRICS
from kohort.broker.monitoring import Monitoring
from kohort.broker.names import OFFSETS_TOPIC
from kohort.broker.request_meter import error_codes_of
from kohort.broker.running import running
from kohort.client.io.blocking_connection import BlockingConnection
from kohort.wire.compiler.compile import codec
from kohort.wire.errors import ErrorCode
from kohort.wire.frame import request_frame
from kohort.wire.messages.api_versions import ApiVersionsRequest
from kohort.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from kohort.wire.messages.heartbeat import HeartbeatRequest
from kohort.wire.messages.metadata import MetadataRequest
from kohort.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.wire.messages.offset_fetch import OffsetFetchRequest
from kohort.wire.struct import Message
from tests.broker.peer import batch_of, create_topic, fetch, produce
from tests.broker.transactional import TV2, TransactionalPeer, until_stable
from tests.deploy.promtool import run_promtool
from tests.web import visit
from tests.wire.strategies import all_cases, filled

GROUP, TOPIC = "shop", "orders"


class Metered:
    """A metered broker in memory with its monitoring."""

    def __init__(self, **settings: object) -> None:
        self.broker = running(is_metered=True, **settings)

    def __enter__(self) -> Metered:
        self.broker.start()
        self.monitoring = self.broker.call(self._serve())
        self.bootstrap = self.broker.bootstrap_servers
        return self

    def __exit__(self, *_: object) -> None:
        self.broker.call(self.monitoring.close())
        self.broker.stop()

    async def _serve(self) -> Monitoring:
        return Monitoring(self.broker.server, "0")

    def scrape(self) -> str:
        with visit(self.monitoring.address) as answer:
            return answer.read().decode()

    def values(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        """All samples, by name and labels."""
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(self.scrape())
            for sample in family.samples
        }

    def value(self, name: str, **labels: str) -> float:
        return self.values()[name, tuple(sorted(labels.items()))]

    def on_loop(self, work: Callable[[], Any]) -> Any:
        async def run() -> Any:
            return work()

        return self.broker.call(run())

    def ready(self) -> tuple[int, dict[str, Any]]:
        address = self.monitoring.address.removesuffix("metrics") + "readyz"
        try:
            with visit(address) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())


@pytest.fixture(scope="module")
def metered() -> Iterator[Metered]:
    with Metered() as broker, BlockingConnection(broker.bootstrap) as client:
        create_topic(client, TOPIC, 2)
        produce(client, TOPIC, batch_of(b"x"))
        client.call(FindCoordinatorRequest(GROUP), version=0)  # makes the topic of the groups
        yield broker


# --- requests -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """A request as bytes, and whether its answer needs no waiting."""

    api: str
    frame: bytes


def asked(request: Message, version: int) -> Asked:
    made = codec(request.API_KEY, version)
    return Asked(TABLE[request.API_KEY].name, request_frame(made, 7, "t", made.encode_request(request)))


def commit_of(offset: int) -> Asked:
    parts = [OffsetCommitRequestPartition(index, offset) for index in range(2)]
    return asked(OffsetCommitRequest(GROUP, topics=[OffsetCommitRequestTopic(TOPIC, partitions=parts)]), 8)


def fetch_of(partition: int) -> Asked:
    parts = [FetchPartition(partition, partition_max_bytes=1000)]
    request = FetchRequest(
        max_wait_ms=20, min_bytes=1, max_bytes=1000, topics=[FetchTopic(TOPIC, partitions=parts)]
    )
    return asked(request, 11)


REQUESTS = (
    asked(ApiVersionsRequest(), 0),
    asked(MetadataRequest(None), 9),
    asked(HeartbeatRequest(GROUP, 1, "nobody"), 3),
    commit_of(1),  # of the same form, so the broker recognizes them
    commit_of(2),
    fetch_of(0),  # has a record
    fetch_of(1),  # is a long poll
    asked(OffsetFetchRequest(GROUP), 7),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(REQUESTS), min_size=1, max_size=12), st.data())
def test_each_request_counts_once_with_its_bytes_however_it_arrives(
    metered: Metered, requests: list[Asked], data: st.DataObject
) -> None:
    sent = b"".join(each.frame for each in requests)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(sent) - 1), max_size=4)))
    pieces = [sent[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(sent)], strict=True)]
    before = counted(metered)
    answers: dict[str, int] = {}
    with BlockingConnection(metered.bootstrap) as client:
        for piece in pieces:
            client.send_bytes(piece)
        for each in requests:
            answers[each.api] = answers.get(each.api, 0) + 4 + len(client.receive_frame())
    after = counted(metered)
    for api in {each.api for each in REQUESTS}:
        frames = [each.frame for each in requests if each.api == api]
        expected = (len(frames), sum(map(len, frames)), answers.get(api, 0))
        assert tuple(b - a for a, b in zip(before[api], after[api], strict=True)) == expected, api


def counted(metered: Metered) -> dict[str, tuple[int, int, int]]:
    """What the meter has of each API: requests, their bytes, the bytes of their answers."""

    def look() -> dict[str, tuple[int, int, int]]:
        meter = metered.broker.server.broker.meter
        assert meter is not None
        return {api.name: (api.count, api.request_bytes, api.response_bytes) for api in meter.requests.apis}

    found: dict[str, tuple[int, int, int]] = metered.on_loop(look)
    return found


def test_a_long_poll_takes_as_long_as_it_waits(metered: Metered) -> None:
    before = metered.values()
    with BlockingConnection(metered.bootstrap) as client:
        client.send_bytes(fetch_of(1).frame)
        client.receive_frame()
    after = metered.values()
    name = ("kohort_request_duration_seconds_sum", (("api", "Fetch"),))
    assert after[name] - before.get(name, 0) >= 0.015
    quick = ("kohort_request_duration_seconds_bucket", (("api", "Fetch"), ("le", "0.01")))
    assert after[quick] == before.get(quick, 0)


def test_errors_are_counted_by_api_and_code(metered: Metered) -> None:
    def errors() -> dict[tuple[str, str], float]:
        return {
            (dict(labels)["api"], dict(labels)["error"]): value
            for (name, labels), value in metered.values().items()
            if name == "kohort_request_errors_total"
        }

    before = errors()
    with BlockingConnection(metered.bootstrap) as client:
        produce(client, "nothing", batch_of(b"x"))
        produce(client, TOPIC, batch_of(b"x"), partition=9)
        fetch(client, TOPIC, offset=77)  # an answer that its handler encodes
        client.call(MetadataRequest(None), version=9)
        client.send_bytes(asked(HeartbeatRequest("nobody's", 1, "m"), 3).frame)
        client.receive_frame()
    after = errors()
    assert {key: after[key] - before.get(key, 0) for key in after if after[key] != before.get(key)} == {
        ("Produce", "UNKNOWN_TOPIC_OR_PARTITION"): 2,
        ("Fetch", "OFFSET_OUT_OF_RANGE"): 1,
        ("Heartbeat", "UNKNOWN_MEMBER_ID"): 1,
    }


@pytest.mark.parametrize("key", sorted(TABLE))
def test_error_codes_are_found_wherever_an_answer_has_them(key: int) -> None:
    """The compiled search finds what a search through all structs does."""

    def search(value: Any) -> list[int]:
        if isinstance(value, list):
            return [code for each in value for code in search(each)]
        if not hasattr(value, "FIELDS"):
            return []
        own = [getattr(value, name, 0) for name in ("error_code", "partition_error_code")]
        own = [code for code in own if code]
        return own + [code for name in value.FIELDS for code in search(getattr(value, name))]

    case = next(
        c for c in all_cases() if c.key == key and c.which == "response" and c.version == TABLE[key].last
    )
    message, found = filled(case), error_codes_of(key)
    assert sorted(search(message)) == sorted(found(message) if found is not None else [])


def test_bytes_that_are_no_request_count_for_nothing(metered: Metered) -> None:
    before = counted(metered)
    with BlockingConnection(metered.bootstrap) as client:
        good = REQUESTS[0]
        client.send_bytes(good.frame + struct.pack(">ihh", 4, 32000, 0))
        client.receive_frame()
        with pytest.raises(Exception, match=r".*"):
            client.receive_frame()
    after = counted(metered)
    count, size, _ = (b - a for a, b in zip(before[good.api], after[good.api], strict=True))
    assert (count, size) == (1, len(good.frame))
    assert {api for api in after if after[api] != before[api]} == {good.api}


# --- groups -------------------------------------------------------------------------------------------


def test_a_group_from_its_first_member_to_its_last() -> None:
    with Metered() as metered:
        with Admin(bootstrap_servers=metered.bootstrap) as admin:
            admin.create_topic(TOPIC, 1)
        with Producer(bootstrap_servers=metered.bootstrap) as producer:
            for _ in range(10):
                producer.send(TOPIC, b"x")
        assert metered.value("kohort_rebalances_total", reason="member_joined") == 0
        with Consumer(
            bootstrap_servers=metered.bootstrap, group_id=GROUP, auto_offset_reset="earliest"
        ) as consumer:
            consumer.subscribe([TOPIC])
            seen = 0
            while seen < 10:
                seen += sum(map(len, consumer.poll(60.0).values()))
            consumer.commit()
            assert metered.value("kohort_groups", state="Stable") == 1
        text = metered.scrape()
        values = metered.values()
    assert values["kohort_rebalances_total", (("reason", "member_joined"),)] == 1
    assert values["kohort_rebalances_total", (("reason", "member_left"),)] == 1
    assert values["kohort_rebalance_join_seconds_count", ()] == 2  # the second one found nobody
    assert values["kohort_rebalance_sync_seconds_count", ()] == 1
    assert values["kohort_group_shards", (("status", "active"),)] == 50
    assert values["kohort_request_duration_seconds_count", (("api", "OffsetCommit"),)] >= 1
    assert values["kohort_connections_opened_total", ()] >= 3
    check = run_promtool("check", "metrics", text=text)
    assert (check.returncode, check.stdout, check.stderr) == (0, "", "")
    served = {family.name for family in text_string_to_metric_families(text)}
    never = {"kohort_disk_free_bytes", "kohort_request_errors_total"}  # in memory, and if all went well
    of_groups = set(METRICS) - set(TRANSACTION_METRICS)  # which a broker without transactions has not
    assert {spec.name.removesuffix("_total") for spec in of_groups} - never <= {
        name.removesuffix("_total") for name in served
    }


def test_transactions_by_their_state_and_by_how_they_ended() -> None:
    with (
        Metered(settings={"transaction.max.timeout.ms": "60000"}) as metered,
        BlockingConnection(metered.bootstrap) as client,
    ):
        create_topic(client, TOPIC)
        peer = TransactionalPeer(client, "a", TV2, timeout_ms=1_000)
        peer.init()
        for commits in (True, True, False):
            peer.write(TOPIC, b"x")
            assert peer.end(commit=commits) is ErrorCode.NONE
        assert peer.end(commit=False) is ErrorCode.NONE  # nothing is in it: it counts for nothing
        peer.write(TOPIC, b"fenced")
        new = TransactionalPeer(client, "a", TV2, timeout_ms=1_000)
        new.init()
        assert peer.produce(TOPIC, b"too late").error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        new.write(TOPIC, b"times out")
        assert metered.value("kohort_transactions", state="Ongoing") == 1
        assert metered.value("kohort_partitions_with_open_transactions") == 1
        assert metered.value("kohort_partitions_with_late_transactions") == 0
        clock = metered.broker.server.broker.clock
        clock.shift_ms += 6 * 60_000 + 1_000
        assert metered.value("kohort_partitions_with_late_transactions") == 1
        metered.on_loop(metered.broker.server.broker.transactions.fire_due)
        until_stable(client, TOPIC)
        text, values = metered.scrape(), metered.values()
    for outcome, number in {"committed": 2, "aborted": 1, "fenced": 1, "timed_out": 1}.items():
        assert values["kohort_transactions_ended_total", (("outcome", outcome),)] == number
    assert values["kohort_partitions_with_open_transactions", ()] == 0
    assert values["kohort_transaction_shards", (("status", "active"),)] == 50
    assert values["kohort_transaction_verification_seconds_count", ()] >= 5
    assert values["kohort_transaction_verification_failures_total", ()] == 1
    check = run_promtool("check", "metrics", text=text)
    assert (check.returncode, check.stdout, check.stderr) == (0, "", "")
    served = {family.name.removesuffix("_total") for family in text_string_to_metric_families(text)}
    assert {spec.name.removesuffix("_total") for spec in TRANSACTION_METRICS} <= served


def test_lag_in_seconds_needs_two_scrapes_between_which_the_log_has_grown() -> None:
    with Metered() as metered, Producer(bootstrap_servers=metered.bootstrap) as producer:
        name, labels = (
            "kafka_consumergroup_group_lag_seconds",
            {"group": GROUP, "topic": TOPIC, "partition": "0"},
        )
        cluster = metered.on_loop(lambda: metered.broker.server.broker.store.cluster_id)
        producer.send(TOPIC, b"x", partition=0).result(60)
        with BlockingConnection(metered.bootstrap) as client:
            client.call(OffsetFetchRequest(GROUP), version=7)
        with Consumer(bootstrap_servers=metered.bootstrap, group_id=GROUP) as consumer:
            consumer.commit({(TOPIC, 0): 1})
        assert metered.value(name, cluster_name=cluster, **labels) == 0.0
        clock = metered.broker.server.broker.clock
        producer.send(TOPIC, b"x", partition=0).result(60)
        metered.on_loop(lambda: setattr(clock, "shift_ms", 60_000))
        assert 59 < metered.value(name, cluster_name=cluster, **labels) < 120
        assert (
            metered.value("kafka_consumergroup_group_max_lag_seconds", cluster_name=cluster, group=GROUP) > 59
        )


# --- health -------------------------------------------------------------------------------------------


def test_a_broker_is_ready_unless_a_partition_has_stopped(metered: Metered) -> None:
    status, report = metered.ready()
    assert (status, report["status"], report["listeners"]) == (200, "ok", [metered.bootstrap])
    partition = metered.broker.server.broker.store.topics[TOPIC].partitions[1]
    metered.on_loop(lambda: partition.stop("a write failed: no space left"))
    try:
        status, report = metered.ready()
        assert status == 503
        assert report["problems"] == [
            "1 partitions take no records any more: orders-1: a write failed: no space left"
        ]
        assert metered.value("kohort_stopped_partitions") == 1
    finally:
        metered.on_loop(lambda: setattr(partition, "stopped", None))


def test_a_broker_is_not_ready_while_groups_are_loaded_or_if_they_cannot_be() -> None:
    from kohort.coordinator.events import BeginLoad, EndLoad, Resign

    with Metered(offsets_topic_num_partitions=2) as metered:
        assert metered.ready()[0] == 200  # no groups yet, nothing to load
        with Consumer(bootstrap_servers=metered.bootstrap, group_id=GROUP) as consumer:
            consumer.committed([(TOPIC, 0)])
        assert metered.ready()[0] == 200
        runtime = metered.on_loop(lambda: metered.broker.server.broker.groups.runtime)
        assert OFFSETS_TOPIC in metered.broker.server.broker.store.topics
        metered.on_loop(lambda: runtime.handle(0, BeginLoad(1000), 0))
        status, report = metered.ready()
        assert (status, report["problems"]) == (
            503,
            ["groups are being loaded: 1 partitions of __consumer_offsets are left"],
        )
        metered.on_loop(lambda: runtime.handle(0, EndLoad(1000), 0))
        assert metered.ready()[0] == 200
        metered.on_loop(lambda: runtime.handle(1, Resign(), 0))
        assert "1 partitions of __consumer_offsets could not be loaded" in metered.ready()[1]["problems"][0]


def test_a_broker_that_stops_is_not_ready() -> None:
    with running() as broker:
        server = broker.server

        async def stopped() -> monitoring.HealthReport:
            await server.stop(keep_store=True, patience_s=0)
            return monitoring.readiness(server)

        assert broker.call(stopped()).problems == ("the broker is stopping",)
        broker.call(broker.come_back())


def test_an_event_loop_that_stands_still_is_not_alive(
    metered: Metered, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitoring, "_HEALTH_S", 0.2)
    go_on = threading.Event()
    loop: asyncio.AbstractEventLoop = metered.broker.server.loop
    loop.call_soon_threadsafe(go_on.wait, 60)
    try:
        with pytest.raises(urllib.error.HTTPError) as failed:
            visit(metered.monitoring.address.removesuffix("metrics") + "healthz")
        with failed.value as answer:
            assert answer.code == 503
            assert "event loop has not answered" in json.loads(answer.read())["problems"][0]
    finally:
        go_on.set()
    assert metered.ready()[0] == 200


def test_a_directory_that_cannot_be_written_to_is_not_ready(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert monitoring._disk_problem(tmp_path) is None
    assert "cannot be read" in (monitoring._disk_problem(tmp_path / "gone") or "")


# --- nothing is counted where nobody asks -------------------------------------------------------------


def test_a_broker_without_metrics_has_no_meter_and_serves_the_table_itself() -> None:
    with running() as broker:
        assert broker.server.broker.meter is None
        assert broker.server.table is TABLE


def test_a_name_for_each_error_code() -> None:
    from kohort.broker.metrics import _error_name

    assert _error_name(ErrorCode.UNKNOWN_MEMBER_ID) == "UNKNOWN_MEMBER_ID"
    assert _error_name(9999) == "9999"
