"""Groups that do not do well, each in its own way, and what a page of the console must show of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from kohort import Admin, Consumer, TopicPartition
from tests.clients.process import eventually

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

Produce = Callable[[str, int, int], None]
"""`produce(topic, partition, count)` writes so many records."""
TOPIC = "deliveries"
STALL_MS = 180_000
"""A STALL shows when nothing was committed for a minute; the rest is patience with a busy machine."""


def row_of(page: Page, group: str) -> Locator:
    """The row of a group on the page of all groups."""
    return page.locator("#groups tbody tr", has=page.get_by_role("link", name=group, exact=True))


def is_sampled(page: Page, group: str, lag: int) -> None:
    """Waits until the page shows this lag: then a sample has seen the last commit."""
    expect(row_of(page, group).get_by_title(f"{lag} records", exact=True)).to_be_visible()


def rewind_and_look(page: Page, admin: Admin, produce: Produce) -> None:
    """One group goes back as a whole, another in one of its two partitions."""
    first, second = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
    produce(TOPIC, 0, 10)
    produce(TOPIC, 1, 10)
    admin.alter_group_offsets("rewound", {first: 5})
    admin.alter_group_offsets("half-rewound", {first: 5, second: 10})
    for group in ("rewound", "half-rewound"):
        is_sampled(page, group, 5)
        expect(row_of(page, group).locator(".health-OK")).to_be_visible()
        admin.alter_group_offsets(group, {first: 2})
    expect(row_of(page, "rewound").locator(".health-REWIND")).to_be_visible()
    expect(row_of(page, "half-rewound").locator(".health-ERR")).to_be_visible()
    page.get_by_role("link", name="half-rewound", exact=True).click()
    expect(page.locator("h1 ~ .badges .health-ERR, .badges .health-ERR").first).to_be_visible()
    partitions = page.locator("#partition-table tbody tr")
    expect(partitions.filter(has_text=f"{TOPIC} 0").locator(".health-REWIND")).to_be_visible()
    expect(partitions.filter(has_text=f"{TOPIC} 1").locator(".health-OK")).to_be_visible()
    page.go_back()


def fall_behind_and_look(page: Page, admin: Admin, produce: Produce) -> None:
    """A group that commits, and has more before it each time."""
    for commits in range(6):
        produce("parcels-behind", 0, 3)
        admin.alter_group_offsets("behind", {TopicPartition("parcels-behind", 0): commits})
        is_sampled(page, "behind", 3 * (commits + 1) - commits)
    expect(row_of(page, "behind").locator(".health-WARN")).to_be_visible()


@contextmanager
def stuck_member(bootstrap: str, produce: Produce) -> Iterator[None]:
    """A member that owns a partition, has committed once, and gets nowhere."""
    produce("parcels-stuck", 0, 10)
    settings = {"bootstrap.servers": bootstrap, "group.id": "stuck", "enable.auto.commit": False}
    with Consumer(settings) as consumer:
        consumer.subscribe(["parcels-stuck"])
        eventually(lambda: consumer.poll(0.1) or consumer.assignment(), "it has its partition")
        consumer.commit({TopicPartition("parcels-stuck", 0): 1})
        yield


def stall_is_shown(page: Page) -> None:
    expect(row_of(page, "stuck").locator(".health-STALL")).to_be_visible(timeout=STALL_MS)
