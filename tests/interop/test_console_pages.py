"""The console's pages in a real browser (Debian's chromium), before an Apache Kafka of two nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import confluent_kafka
import pytest

pytest.importorskip("fastapi", reason='the console needs pip install "kohort[console]"')
pytest.importorskip("playwright.sync_api", reason="the console's pages need pip install playwright")

from playwright.sync_api import expect

from kohort import Admin, NewTopic, TopicPartition
from tests.clients.process import eventually
from tests.console.browsing import Opener, browser, opened
from tests.console.healths import (
    TOPIC,
    fall_behind_and_look,
    rewind_and_look,
    stall_is_shown,
    stuck_member,
)
from tests.console.running_console import TOKEN, MemberProcess, running_console
from tests.interop.apache_kafka import KafkaCluster, start_cluster

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["browser", "opened"]
pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    started = start_cluster(tmp_path_factory.mktemp("cluster"), nodes=2)
    yield started
    started.kill()


@pytest.fixture(scope="module")
def admin(cluster: KafkaCluster) -> Iterator[Admin]:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        eventually(lambda: len(admin.describe_cluster().nodes) == 2, "both nodes are there")
        one_each = {0: (1,), 1: (2,)}
        names = {"orders": one_each, TOPIC: one_each, "parcels-behind": {0: (2,)}, "parcels-stuck": {0: (1,)}}
        admin.create_topics([NewTopic(name, assignments=places) for name, places in names.items()])
        admin.alter_group_offsets("reader", {TopicPartition("orders", 0): 0})  # makes __consumer_offsets
        yield admin


@pytest.fixture(scope="module")
def console(cluster: KafkaCluster, admin: Admin) -> Iterator[str]:
    with running_console(cluster.bootstrap_servers) as address:
        yield address


class Writer:
    """librdkafka's producer, as `produce` of tests/console/healths.py."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})

    def __call__(self, topic: str, partition: int, count: int) -> None:
        for number in range(count):
            self._producer.produce(topic, f"{topic} {number}", key=str(number), partition=partition)
        assert self._producer.flush(60) == 0


@pytest.fixture(scope="module")
def write(cluster: KafkaCluster, admin: Admin) -> Writer:
    return Writer(cluster.bootstrap_servers)


def test_a_member_is_killed_and_the_page_tells_it_without_a_reload(
    opened: Opener, cluster: KafkaCluster, write: Writer
) -> None:
    write("orders", 0, 200)
    write("orders", 1, 200)
    at = cluster.bootstrap_servers
    with (
        MemberProcess(at, "billing", "steady", "orders", rate=20),
        MemberProcess(at, "billing", "doomed", "orders", library="confluent", rate=20) as doomed,
    ):
        page = opened("groups")
        page.evaluate("window.sameDocument = true")
        page.get_by_role("link", name="billing").click()
        expect(page.locator("#members-title + .muted")).to_have_text("2")
        expect(page.locator(".members")).to_contain_text("doomed")
        doomed.kill()
        expect(page.locator("#members-title + .muted")).to_have_text("1")
        expect(page.locator(".members")).not_to_contain_text("doomed")
        # Kafka keeps no history of rebalances: this is read from __consumer_offsets.
        expect(page.locator(".rebalance-card")).to_contain_text(re.compile("1 member went: doomed"))
        assert page.evaluate("window.sameDocument") is True


def test_nodes_topics_and_messages(opened: Opener, write: Writer) -> None:
    page = opened("nodes")
    expect(page.locator("#nodes tbody tr")).to_have_count(2)
    page = opened("topics")
    expect(page.get_by_role("link", name="orders", exact=True)).to_be_visible()
    write("orders", 1, 1)
    page = opened("messages?topic=orders&partition=1&from=beginning")
    expect(page.locator(".message").first).to_contain_text("orders 0")


def test_a_reset_is_shown_first_and_then_done(opened: Opener, admin: Admin, write: Writer) -> None:
    place = TopicPartition("orders", 0)
    write("orders", 0, 5)
    admin.alter_group_offsets("replay", {place: 2})
    page = opened("group?group=replay")
    page.evaluate(f"sessionStorage.setItem('kohort-token', '{TOKEN}')")
    page.get_by_text("Reset offsets").click()
    page.get_by_role("button", name="Show what would change").click()
    expect(page.locator("#plan")).to_contain_text("Nothing is changed yet")
    expect(page.locator("#plan-table tbody tr")).to_have_text(re.compile("orders 0.*2.*0.*2 read again"))
    assert admin.group_offsets("replay")[place].offset == 2
    page.get_by_role("button", name="Reset 1 offset").click()
    expect(page.locator("#reset .done")).to_contain_text("reset")
    assert admin.group_offsets("replay")[place].offset == 0


def test_groups_that_do_not_do_well(
    opened: Opener, cluster: KafkaCluster, admin: Admin, write: Writer
) -> None:
    page: Page = opened("groups")
    with stuck_member(cluster.bootstrap_servers, write):
        rewind_and_look(page, admin, write)
        fall_behind_and_look(page, admin, write)
        stall_is_shown(page)
