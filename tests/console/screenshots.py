"""Makes the pictures of the console for the docs: `python -m tests.console.screenshots [SECONDS] [FOLDER]`.

A broker, producers and the members of several groups run for SECONDS (100 unless told otherwise), members come, leave
and are killed, and chromium takes a picture of each page in light and dark.
"""

from __future__ import annotations

import io
import json
import math
import random
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kohort.broker.running import running
from kohort.client.admin import Admin
from kohort.client.admin_types import NewTopic
from kohort.client.producer import Producer
from kohort.console.app import ConsoleOptions
from kohort.spark.pipelines.state import PipelineStatus
from tests.console.running_console import ROOT, TOKEN, MemberProcess, running_browser, running_console

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

TOPICS = {"orders": 6, "payments": 3, "clicks": 12, "shipments": 4, "emails": 1}
RATES = {"orders": 60, "payments": 40, "clicks": 150, "shipments": 15, "emails": 5}
SIZE = {"width": 1280, "height": 860}
PHONE = {"width": 390, "height": 844}
WAVE_S = 40.0


def main() -> int:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 100.0
    folder = Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "docs" / "images"
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        settings = {"group.min.session.timeout.ms": "500", "group.initial.rebalance.delay.ms": "300"}
        broker = stack.enter_context(running(settings=settings))
        with Admin({"bootstrap.servers": broker.bootstrap_servers}) as admin:
            admin.create_topics([NewTopic(name, count) for name, count in TOPICS.items()])
        stack.enter_context(Shop(broker.bootstrap_servers))
        options = ConsoleOptions(TOKEN, pipelines=pipelines)
        address = stack.enter_context(running_console(broker.bootstrap_servers, options))
        browser = stack.enter_context(running_browser())
        watcher = browser.new_page()
        watcher.goto(address)  # while a page is open, samples come often
        play(stack, broker.bootstrap_servers, seconds)
        for scheme in ("light", "dark"):
            take_pictures(browser, address, scheme, folder)
        take_phone(browser, address, folder)
    return 0


def play(stack: ExitStack, bootstrap: str, seconds: float) -> None:
    """Lets members come, leave and be killed, spread over the time."""

    def member(
        group: str, name: str, *topics: str, rate: float = 0, library: str = "kohort"
    ) -> MemberProcess:
        return stack.enter_context(MemberProcess(bootstrap, group, name, *topics, rate=rate, library=library))

    first = member("checkout-billing", "billing-eu-1", "orders", rate=40)
    member("checkout-billing", "billing-eu-2", "orders", rate=40, library="confluent")
    member("fraud-detection", "fraud-1", "payments", rate=28)
    member("recommendations", "recs-a", "clicks", library="confluent")
    member("warehouse/eu", "warehouse-1", "shipments", "orders")
    search = member("search-index", "indexer-1", "clicks", rate=70)
    audit = member("audit-export", "audit-nightly", "payments")
    step_s = seconds / 8
    time.sleep(step_s)
    audit.leave()
    member("recommendations", "recs-b", "clicks")
    time.sleep(step_s)
    third = member("checkout-billing", "billing-eu-3", "orders", rate=40)
    time.sleep(step_s)
    search.leave()
    time.sleep(step_s)
    first.kill()
    time.sleep(step_s * 1.5)
    member("checkout-billing", "billing-us-1", "orders", rate=40)
    time.sleep(step_s)
    third.leave()
    time.sleep(step_s * 1.5)


class Shop:
    """Writes JSON to all topics, in waves, until the end of the `with`."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Shop:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(30)

    def _run(self) -> None:
        chance = random.Random(15)
        owed = dict.fromkeys(TOPICS, 0.0)
        with Producer({"bootstrap.servers": self._bootstrap, "linger.ms": 5}) as producer:
            number = 48_200
            while not self._over.wait(0.1):
                wave = 1 + 0.7 * math.sin(time.monotonic() / WAVE_S * 2 * math.pi)
                for topic, rate in RATES.items():
                    owed[topic] += rate * wave / 10
                    while owed[topic] >= 1:
                        owed[topic] -= 1
                        number += 1
                        key, value = record(topic, number, chance)
                        headers = [
                            ("trace-id", f"{chance.getrandbits(64):016x}".encode()),
                            ("source", b"shop"),
                        ]
                        producer.send(topic, value, key=key, headers=headers)


def record(topic: str, number: int, chance: random.Random) -> tuple[bytes, bytes]:
    customer = f"c-{chance.randrange(1000, 9999)}"
    if topic == "clicks" and number % 40 == 0:
        return customer.encode(), chance.randbytes(48)
    lines = [
        {
            "sku": chance.choice(("tea-01", "mug-07", "kettle-2", "spoon-4")),
            "quantity": chance.randrange(1, 5),
        }
        for _ in range(chance.randrange(1, 4))
    ]
    order: dict[str, Any] = {
        "id": number,
        "customer": {
            "id": customer,
            "country": chance.choice(("DE", "FR", "US", "JP")),
            "new": number % 7 == 0,
        },
        "amount": round(chance.uniform(4, 180), 2),
        "lines": lines,
        "coupon": None,
    }
    return customer.encode(), json.dumps(order).encode()


def pipelines() -> list[dict[str, Any]]:
    """Two pipelines as they would write their status."""
    now_ms = time.time_ns() // 1_000_000
    common: dict[str, Any] = {"pid": 4711, "master": "local[2]", "bootstrap": "127.0.0.1:9092"}
    orders = PipelineStatus(
        "orders", "pipelines/orders.sql", "running", sink="parquet ./lake/orders", checkpoint="~/.local/state/…/orders",
        started_ms=now_ms - 5_400_000, updated_ms=now_ms - 1800, batch=541, batches=540, rows=324_180, batch_rows=612,
        batch_duration_ms=840, rows_per_second=728.5, lag={"orders-0": 34, "orders-1": 20},
        groups={"orders-etl": {"state": "Stable", "members": 2}}, **common,
    )  # fmt: skip
    revenue = PipelineStatus(
        "revenue", "pipelines/revenue.py", "failed", sink="delta ./lake/revenue", checkpoint="~/.local/state/…/revenue",
        started_ms=now_ms - 9_000_000, updated_ms=now_ms - 610_000, batch=88, batches=88, rows=61_240, batch_rows=700,
        batch_duration_ms=1310, rows_per_second=0.0, lag={"payments-0": 1820},
        error="the sink ./lake/revenue cannot be written: no space left on device", **common,
    )  # fmt: skip
    return [asdict(orders), asdict(revenue)]


def take_pictures(browser: Browser, address: str, scheme: str, folder: Path) -> None:
    context = browser.new_context(viewport=SIZE, color_scheme="dark" if scheme == "dark" else "light")  # type: ignore[arg-type]
    page = context.new_page()
    for name, place in PLACES.items():
        page.set_viewport_size(SIZE)  # type: ignore[arg-type]
        page.goto("about:blank")
        page.goto(f"{address}#/{place}")
        page.wait_for_selector("main[aria-busy=false] h1")
        prepare(page, name)
        page.wait_for_timeout(2500)
        save(page.screenshot(), folder / f"console-{name}-{scheme}.png")
    context.close()


PLACES = {
    "groups": "groups",
    "group": "group?group=checkout-billing",
    "topics": "topics",
    "topic": "topic?topic=orders",
    "messages": "messages?topic=orders",
    "pipelines": "pipelines",
    "nodes": "nodes?node=1",
}


def prepare(page: Page, name: str) -> None:
    """Opens what the picture should show."""
    if name == "messages":
        page.locator(".message").first.locator("summary").first.click()
        page.mouse.move(5, 500)
    if name == "group":
        page.set_viewport_size({"width": SIZE["width"], "height": 1240})
        page.locator(".lollipop.kind-failed").first.click()
        page.mouse.move(5, 500)


def take_phone(browser: Browser, address: str, folder: Path) -> None:
    for name in ("groups", "group"):
        context = browser.new_context(viewport=PHONE, color_scheme="light")  # type: ignore[arg-type]
        page = context.new_page()
        page.goto(f"{address}#/{PLACES[name]}")
        page.wait_for_timeout(2500)
        save(page.screenshot(), folder / f"console-phone-{name}.png")
        context.close()


def save(picture: bytes, path: Path) -> None:
    """Writes a picture as small as PNG can be without a change of its colours."""
    from PIL import Image

    Image.open(io.BytesIO(picture)).convert("RGB").save(path, optimize=True)
    print(f"{path} {path.stat().st_size / 1024:.0f} KB")


if __name__ == "__main__":
    sys.exit(main())
