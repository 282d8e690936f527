"""The console's pages in a real browser (Debian's chromium), with real clients in processes of their own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("fastapi", reason='the console needs pip install "kohort[console]"')
playwright = pytest.importorskip(
    "playwright.sync_api", reason="the console's pages need pip install playwright"
)

from axe_playwright_python.sync_playwright import Axe  # noqa: E402
from playwright.sync_api import expect  # noqa: E402

from kohort.client.admin import Admin  # noqa: E402
from kohort.client.types import TopicPartition  # noqa: E402
from kohort.testing.kafka import Kafka  # noqa: E402
from tests.console.browsing import Opener, browser, opened  # noqa: E402
from tests.console.healths import TOPIC, rewind_and_look  # noqa: E402
from tests.console.running_console import TOKEN, MemberProcess, running_console  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Page

PAGES = (
    "groups?search=reader",
    "group?group=reader",
    "topics",
    "topic?topic=parcels",
    "messages?topic=parcels",
    "pipelines",
    "nodes?node=1",
)
JSON_TEXT = '{"id": 9007199254740993, "customer": {"name": "Ada"}, "lines": [1, 2]}'
__all__ = ["browser", "opened"]


@pytest.fixture(scope="module")
def broker() -> Iterator[Kafka]:
    with Kafka(
        settings={"group.min.session.timeout.ms": 500, "group.initial.rebalance.delay.ms": 0}
    ) as kafka:
        kafka.create_topic("parcels", partitions=2)
        kafka.produce(
            "parcels",
            [
                JSON_TEXT,
                b"\x00\xff binary \x01",
                "plain text",
                "<b>bold</b><script>window.hacked = 1</script>",
                "long " * 8000 + "the end",
            ],
        )
        yield kafka


@pytest.fixture(scope="module")
def admin(broker: Kafka) -> Iterator[Admin]:
    with Admin({"bootstrap.servers": broker.bootstrap_servers}) as admin:
        admin.alter_group_offsets("reader", {TopicPartition("parcels", 0): 1})
        yield admin


@pytest.fixture(scope="module")
def console(broker: Kafka, admin: Admin) -> Iterator[str]:
    with running_console(broker.bootstrap_servers) as address:
        yield address


def test_a_member_is_killed_and_the_page_shows_why_without_a_reload(opened: Opener, broker: Kafka) -> None:
    broker.create_topic("orders", partitions=4)
    broker.produce("orders", [f"order {number}" for number in range(400)])
    at = broker.bootstrap_servers
    with (
        MemberProcess(at, "billing", "steady", "orders", rate=20),
        MemberProcess(at, "billing", "doomed", "orders", library="confluent", rate=20) as doomed,
    ):
        page = opened("groups")
        page.evaluate("window.sameDocument = true")
        page.get_by_role("link", name="billing").click()
        expect(page.locator("#members-title + .muted")).to_have_text("2")
        expect(page.locator(".members")).to_contain_text("doomed")
        table = page.get_by_text("All rebalances as a table")
        table.click()
        table.focus()
        doomed.kill()
        card = page.locator(".rebalance-card")
        expect(card).to_contain_text(re.compile(r"doomed-\w+…: session expired"))
        expect(card).to_contain_text("Generation")
        expect(page.locator(".members")).not_to_contain_text("doomed")
        expect(page.locator("#members-title + .muted")).to_have_text("1")
        expect(page.locator('[data-state="Stable"]')).to_have_attribute("data-lit", "true")
        expect(page.locator(".figures .figure", has_text="Lag").locator("dd").first).to_have_text(
            re.compile(r"^[1-9]\d*$")
        )
        assert page.evaluate("document.activeElement.textContent") == "All rebalances as a table"
        expect(page.locator("#rebalance-table")).to_be_visible()
        assert page.evaluate("window.sameDocument") is True
        look_at_the_charts(page)


def look_at_the_charts(page: Page) -> None:
    """A rebalance tells its reason under the pointer; dragging zooms both charts, Escape shows all again."""
    joined = page.locator(".lollipop.kind-joined").first
    joined.locator("circle").hover(force=True)
    expect(joined).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".rebalance-card")).to_contain_text("joined")
    lag = page.locator(".line-chart svg")
    box = lag.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 80)
    expect(page.locator(".line-chart .chart-tip")).to_contain_text("all partitions")
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + 80, steps=4)
    page.mouse.up()
    expect(page).to_have_url(re.compile("from_ms=[0-9]+"))
    lag.focus()
    page.keyboard.press("Escape")
    expect(page).not_to_have_url(re.compile("from_ms"))
    page.get_by_role("button", name="Seconds").click()
    expect(page).to_have_url(re.compile("unit=seconds"))


def test_a_reset_is_shown_first_and_then_done_with_the_token(
    opened: Opener, broker: Kafka, admin: Admin
) -> None:
    place = TopicPartition("parcels", 0)
    admin.alter_group_offsets("replay", {place: 2})
    page = opened("group?group=replay")
    page.get_by_text("Reset offsets").click()
    page.get_by_role("button", name="Show what would change").click()
    token = page.get_by_label("Token")
    token.fill("wrong")
    page.get_by_role("button", name="Go on").click()
    expect(page.locator("#token-trouble")).to_contain_text("not the right one")
    token.fill(TOKEN)
    page.get_by_role("button", name="Go on").click()
    expect(page.locator("#plan")).to_contain_text("Nothing is changed yet")
    expect(page.locator("#plan-table tbody tr")).to_have_text(re.compile("parcels 0.*2.*0.*2 read again"))
    assert broker.committed("replay", "parcels") == {0: 2}
    page.get_by_role("button", name="Reset 1 offset").click()
    expect(page.locator("#reset .done")).to_contain_text("reset")
    assert broker.committed("replay", "parcels") == {0: 0}
    page.get_by_text("Delete the group").first.click()
    page.get_by_label("Type the group's name").last.fill("replay")
    page.get_by_role("button", name="Delete the group").click()
    expect(page.locator(".trouble-title")).to_contain_text("gone")
    assert "replay" not in [each.id for each in broker.groups()]


def test_a_group_with_members_says_what_stands_in_the_way_of_a_reset(opened: Opener, broker: Kafka) -> None:
    with MemberProcess(broker.bootstrap_servers, "busy", "only", "parcels"):
        broker_has_member(broker, "busy")
        page = opened("group?group=busy")
        page.evaluate(f"sessionStorage.setItem('kohort-token', '{TOKEN}')")
        page.get_by_text("Reset offsets").click()
        page.locator("#reset select[name=topic]").select_option("parcels")
        page.get_by_role("button", name="Show what would change").click()
        expect(page.locator("#plan .trouble")).to_contain_text("stop")
        expect(page.get_by_role("button", name=re.compile("^Reset [0-9]"))).to_be_disabled()


def broker_has_member(broker: Kafka, group: str) -> None:
    from kohort.testing.waiting import wait_until

    wait_until(
        lambda: any(each.id == group and each.state == "Stable" for each in broker.groups()), 60, "no member"
    )


def test_groups_that_went_back_are_shown_as_such(opened: Opener, broker: Kafka, admin: Admin) -> None:
    broker.create_topic(TOPIC, partitions=2)

    def produce(topic: str, partition: int, count: int) -> None:
        broker.produce(topic, [{"value": "x", "partition": partition} for _ in range(count)])

    rewind_and_look(opened("groups"), admin, produce)


def test_names_and_messages_are_text_and_execute_nothing(opened: Opener, admin: Admin) -> None:
    name = "eu/west<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"
    admin.alter_group_offsets(name, {TopicPartition("parcels", 0): 1})
    page = opened("groups?search=eu%2Fwest")
    page.get_by_role("link", name=name).click()
    expect(page.locator("h1")).to_have_text(name)
    expect(page.locator("#partition-table")).to_contain_text("parcels 0")
    page.goto("about:blank")
    page = opened("topic?topic=%3Cscript%3Ewindow.hacked%3D1%3C%2Fscript%3E%2F..")
    expect(page.locator("h1")).to_have_text("<script>window.hacked=1</script>/..")
    expect(page.locator(".trouble")).to_be_visible()
    page = opened("messages?topic=parcels")
    page.locator(".message", has_text="<b>bold</b>").locator("summary").first.click()
    expect(page.locator(".message-body pre").last).to_have_text(
        "<b>bold</b><script>window.hacked = 1</script>"
    )
    assert page.locator(".message b").count() == 0
    assert page.evaluate("window.hacked") is None


def test_messages_as_a_tree_as_hex_by_search_and_to_take_away(opened: Opener) -> None:
    page = opened("messages?topic=parcels&from=beginning")
    expect(page.locator(".message")).to_have_count(5)
    page.locator(".message", has_text="customer").locator("summary").first.click()
    tree = page.locator(".tree")
    expect(tree).to_contain_text("9007199254740993")  # every digit, which JavaScript's numbers would not keep
    tree.get_by_text("customer:").click()
    expect(tree.get_by_text('"Ada"')).to_be_hidden()
    page.locator(".message", has_text="binary").locator("summary").first.click()
    expect(page.locator(".payload.hex")).to_contain_text("00 ff 20 62 69 6e 61 72 79 20 01")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download the value").first.click()
    assert download.value.path().read_text() == JSON_TEXT
    page.locator(".message", has_text="long").locator("summary").first.click()
    expect(
        page.locator(".message-body pre", has_text="the end")
    ).to_be_attached()  # lists hold the beginning alone
    page.get_by_label("Contains").fill("plain")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.locator(".message")).to_have_count(1)
    expect(page.locator(".message")).to_contain_text("plain text")


def test_many_groups_are_sorted_filtered_and_paged_and_back_goes_back(opened: Opener, admin: Admin) -> None:
    for number in range(60):
        admin.alter_group_offsets(f"many-{number:02}", {TopicPartition("parcels", number % 2): 0})
    page = opened("groups?search=many-&sort=group&order=asc")
    expect(page.locator("#groups tbody tr")).to_have_count(50)
    page.get_by_role("button", name="Next").click()
    expect(page.locator("#groups tbody tr")).to_have_count(10)
    page.get_by_role("button", name=re.compile("^Group")).click()
    expect(page.locator("#groups tbody tr").first).to_contain_text("many-59")
    page.keyboard.press("/")
    page.keyboard.type("many-07")
    expect(page.locator("#groups tbody tr")).to_have_count(1)
    page.get_by_role("link", name="many-07").click()
    expect(page.locator("h1")).to_have_text("many-07")
    page.go_back()
    expect(page.locator("#groups tbody tr")).to_have_count(1)
    expect(page.get_by_label("Search groups")).to_have_value("many-07")


def test_the_keyboard_alone_reaches_a_group_and_its_reset_form(opened: Opener) -> None:
    page = opened("groups")
    page.keyboard.press("/")
    page.keyboard.type("reader")
    expect(page.locator("#groups tbody tr")).to_have_count(1)
    tab_to(page, "A", "reader")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("reader")
    tab_to(page, "SUMMARY", "Reset offsets")
    page.keyboard.press("Enter")
    tab_to(page, "SELECT", "all topics of the group")
    expect(page.get_by_role("button", name="Show what would change")).to_be_visible()
    tab_to(page, "BUTTON", "Show what would change")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def tab_to(page: Page, tag: str, text: str, most: int = 80) -> None:
    seen = []
    for _ in range(most):
        page.keyboard.press("Tab")
        at, words = page.evaluate("[document.activeElement.tagName, document.activeElement.textContent]")
        if at == tag and text in words:
            return
        seen.append(f"{at} {words[:30]}")
    raise AssertionError(f"Tab does not reach {tag} {text!r}; it went {seen}")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_and_phones_need_no_sideways_scroll(opened: Opener, scheme: str) -> None:
    page = opened("groups?search=reader", scheme=scheme)
    page.evaluate(Axe().axe_script)
    found, wide = [], []
    for place in PAGES:
        visit_page(page, place)
        for summary in page.locator("details.change > summary, .message > summary").all()[:4]:
            summary.click()
        found += serious_ones(page, place)
        page.set_viewport_size({"width": 320, "height": 700})
        if (width := page.evaluate("document.documentElement.scrollWidth")) > 320:
            wide.append((place, width))
        page.set_viewport_size({"width": 1280, "height": 900})
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Show the keys").click()
    found += serious_ones(page, "the dialog with the keys")
    assert (found, wide) == ([], [])


def visit_page(page: Page, place: str) -> None:
    """Goes to a page as a link does, without loading the document anew."""
    page.evaluate("place => { location.hash = `#/${place}`; }", place)
    page.wait_for_selector(f"main[aria-busy=false] .page-{place.split('?')[0]}")


def serious_ones(page: Page, place: str) -> list[tuple[str, str, list[str]]]:
    violations = page.evaluate("axe.run({resultTypes: ['violations']}).then(found => found.violations)")
    return [
        (place, each["id"], [node["html"][:150] for node in each["nodes"][:3]])
        for each in violations
        if each["impact"] in ("serious", "critical")
    ]


def test_a_group_that_is_not_there_says_so(opened: Opener) -> None:
    page = opened("group?group=nobody")
    expect(page.locator("main")).to_contain_text("This group is gone, or was never there")
    page.get_by_role("link", name="To all groups").click()
    expect(page.locator("h1")).to_have_text("Groups")


def test_a_lost_connection_is_told_and_comes_back(opened: Opener, broker: Kafka) -> None:
    with running_console(broker.bootstrap_servers) as address:
        page = opened("groups?search=reader", address=address)
        expect(page.locator("#link-text")).to_have_text("Live")
    expect(page.locator("#banner")).to_contain_text("lost")
    expect(page.locator("#groups")).to_contain_text("reader")  # what was seen stays
    with running_console(broker.bootstrap_servers, port=int(address.rstrip("/").rsplit(":", 1)[1])):
        expect(page.locator("#link-text")).to_have_text("Live")
        expect(page.locator("#banner")).to_be_hidden()
        page.context.close()


def test_an_empty_cluster_says_how_to_make_a_group(opened: Opener) -> None:
    with Kafka() as kafka, running_console(kafka.bootstrap_servers) as address:
        page = opened("groups", address=address)
        expect(page.locator(".commands")).to_contain_text(
            f"--group billing --bootstrap {kafka.bootstrap_servers}"
        )
        page.context.close()
