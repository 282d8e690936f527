"""Tests a program with the testing kit: a broker in the test's own process, and faults when the test wants them.

    python -m pytest examples/test_billing.py

Kohort brings the fixture `kafka` to pytest; docs/testing.md has all that it can do.
"""

from kohort import Consumer
from kohort.testing import Kafka


def bill(bootstrap_servers: str, orders: int) -> list[bytes | None]:
    """The program under test: works on so many orders, and commits."""
    billed: list[bytes | None] = []
    with Consumer(
        bootstrap_servers=bootstrap_servers,
        group_id="billing",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        consumer.subscribe(["orders"])
        while len(billed) < orders:
            for records in consumer.poll(1.0).values():
                billed += [record.value for record in records]
            consumer.commit()
    return billed


def test_orders_are_billed_and_committed(kafka: Kafka) -> None:
    kafka.produce("orders", ["apples", "pears"])
    assert bill(kafka.bootstrap_servers, 2) == [b"apples", b"pears"]
    assert kafka.committed("billing", "orders") == {0: 2}


def test_a_commit_is_tried_again(kafka: Kafka) -> None:
    kafka.produce("orders", ["apples"])
    fault = kafka.fail("OffsetCommit", with_error="COORDINATOR_LOAD_IN_PROGRESS", times=2)
    assert bill(kafka.bootstrap_servers, 1) == [b"apples"]
    assert kafka.committed("billing", "orders") == {0: 1}
    assert fault.hits == 2
