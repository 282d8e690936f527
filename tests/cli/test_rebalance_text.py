"""What `kohort groups why` says of a rebalance, by the protocol of its group."""

from __future__ import annotations

from kohort.cli.groups.rebalance_text import rebalance_text
from kohort.coordinator.history import CONSUMER, Rebalance


def test_a_running_rebalance_of_a_consumer_group_says_who_has_yet_to_give_up_what() -> None:
    running = Rebalance(
        3,
        1_000,
        6,
        "b",
        "b joined",
        generation_after=7,
        join_ms=0,
        protocol=CONSUMER,
        holding=(("a", "t 2, 3", 1_500),),
    )
    first, how, waits = rebalance_text(running).splitlines()
    assert first.endswith("epoch 6 → 7  b joined")
    assert how == "    assigned in 0 ms, under way"
    assert waits.startswith("    waits for: a, which has yet to give up t 2, 3 (since ")
    assert Rebalance.from_json(running.to_json()) == running


def test_an_entry_from_before_there_were_consumer_groups_is_read() -> None:
    old = {
        "number": 1,
        "began_ms": 5,
        "generation_before": 1,
        "member_id": "a",
        "reason": "a joined",
        "went": {},
    }
    entry = Rebalance.from_json(old)
    assert (entry.protocol, entry.holding) == ("classic", ())
    assert "generation 1 → …" in rebalance_text(entry)
