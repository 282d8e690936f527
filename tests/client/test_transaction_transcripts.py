"""Every transcript is what a transactional producer does.

After a wanted change: `python -m tests.client.transaction_script [part of a name]`, and read the difference.
"""

from pathlib import Path

import pytest

from kohort.client.produce.transaction_state import FOLLOWING, ProducerTransactionState
from tests.client.transaction_script import TRANSCRIPTS, replay

PATHS = sorted(TRANSCRIPTS.glob("*.txt"))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_producer_does_what_the_transcript_says(path: Path) -> None:
    text = path.read_text()
    assert replay(text) == text, (
        f"{path.name} differs; if that is wanted: python -m tests.client.transaction_script"
    )


def test_there_are_transcripts() -> None:
    assert len(PATHS) > 15


def test_every_state_is_in_the_table_and_only_the_fatal_one_is_the_end() -> None:
    assert set(FOLLOWING) == set(ProducerTransactionState)
    assert [state for state, following in FOLLOWING.items() if not following] == [
        ProducerTransactionState.FATAL
    ]
