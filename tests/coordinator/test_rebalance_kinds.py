"""The kinds of reasons that metrics count, over every reason that a transcript shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kohort.coordinator.rebalance_kinds import KINDS, OTHER, kind_of

TRANSCRIPTS = Path(__file__).parent / "transcripts"
SENTENCE = re.compile(
    r"history \d+: (?:generation|epoch) \S+ to \S+: (.*?)(?:; (?:joined|assigned) in [^;]*)?"
    r"(?:; (?:synced|reconciled) in [^;]*)?(?:; \S+ has yet to give up [^;]*)*; [^;]+$"
)


def reasons() -> list[str]:
    lines = [line for path in TRANSCRIPTS.rglob("*.txt") for line in path.read_text("utf-8").splitlines()]
    return sorted({found[1] for line in lines if (found := SENTENCE.search(line))})


def test_every_reason_of_the_transcripts_has_a_kind_and_every_kind_a_reason():
    kinds = {kind_of(reason) for reason in reasons()}
    assert OTHER not in kinds
    assert kinds | {OTHER} == set(KINDS)


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("a-1 joined (it says: left; did not sync in time)", "member_joined"),
        ("a-1 left: the consumer is being closed; b-2 left", "member_left"),
        ("left joined", "member_joined"),
        ("joined left: bye", "member_left"),
        ("the leader rejoined joined", "member_joined"),
        ("the leader a rejoined (it says: cached metadata has changed)", "leader_rejoined"),
        ("a: session expired after 10001 ms without a heartbeat", "session_expired"),
        ("a\nb joined", "member_joined"),
        ("an operator wants it", "other"),
        ("", "other"),
    ],
)
def test_what_clients_call_themselves_or_say_does_not_decide(reason: str, kind: str) -> None:
    assert kind_of(reason) == kind
