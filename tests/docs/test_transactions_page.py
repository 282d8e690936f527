"""The programs of docs/transactions.md, run as they stand."""

from __future__ import annotations

from typing import Any

import kohort
from kohort.testing import Kafka
from tests.docs.pages import ADDRESS, DOCS, blocks_of

ORDERS = [b"one", b"two", b"three"]


def examples(kafka: Kafka) -> list[str]:
    return [
        block.text.replace(ADDRESS, kafka.bootstrap_servers)
        for block in blocks_of(DOCS / "transactions.md")
        if block.language == "python"
    ]


def send(kafka: Kafka, *values: bytes) -> None:
    with kohort.Producer(bootstrap_servers=kafka.bootstrap_servers) as plain:
        for value in values:
            plain.send("orders", value)


def is_behind(kafka: Kafka, end: int) -> bool:
    with kohort.Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        found = admin.group_offsets("totals").get(kohort.TopicPartition("orders", 0))
    return found is None or found.offset < end


def totals(kafka: Kafka, count: int) -> list[bytes | None]:
    """All that a reader at read_committed sees: it must come to the end of the topic to see that nothing follows."""
    with kohort.Consumer(
        bootstrap_servers=kafka.bootstrap_servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    ) as reader:
        reader.assign(("totals", 0))
        seen: list[bytes | None] = []
        while len(seen) < count:
            seen += [record.value for records in reader.poll(60.0).values() for record in records]
        seen += [record.value for records in reader.poll(0.3).values() for record in records]
        return seen


def test_the_programs_of_the_page_copy_exactly_once(kafka: Kafka) -> None:
    kafka.create_topic("orders")
    blocking, with_asyncio, going_back = examples(kafka)
    send(kafka, *ORDERS)
    names: dict[str, Any] = {"running": lambda: is_behind(kafka, 3)}
    exec(blocking, names)
    consumer, producer = names["consumer"], names["producer"]

    # A transaction fails: the consumer goes back as the page says, and the same records come again.
    exec(going_back, names)
    send(kafka, b"four")
    while not (got := consumer.poll(60.0)):
        pass
    try:
        with producer.transaction():
            producer.send("totals", b"never seen")
            raise RuntimeError
    except RuntimeError:
        names["go_back"](consumer)
    again = consumer.poll(60.0)
    assert [each.value for records in again.values() for each in records] == [b"four"]
    assert list(again) == list(got)
    consumer.close()
    producer.close()

    names["running"] = lambda: is_behind(kafka, 4)
    exec(with_asyncio, names)  # takes over both the group and the transactional id
    assert totals(kafka, 4) == [b"ONE", b"TWO", b"THREE", b"FOUR"]


def test_every_error_of_the_page_is_there() -> None:
    table = (DOCS / "transactions.md").read_text("utf-8").partition("| error | what it means")[2]
    rows = table.partition("\n\n")[0].splitlines()[2:]
    named = [row.split("`")[1] for row in rows]
    assert len(named) == 4
    for name in named:
        assert issubclass(getattr(kohort, name), kohort.KohortError)
