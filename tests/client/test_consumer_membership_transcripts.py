"""Every transcript is what a member of the consumer protocol does.

After a wanted change: `python -m tests.client.consumer_transcript --rerecord [part of a name]`; read the difference.
"""

from pathlib import Path

import pytest

from tests.client.consumer_transcript import FOLDER, replay

TRANSCRIPTS = sorted(FOLDER.glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_a_member_does_what_the_transcript_says(path: Path) -> None:
    text = path.read_text()
    now = replay(text)
    assert now == text, (
        f"{path.name} differs; if that is wanted: python -m tests.client.consumer_transcript --rerecord"
    )


def test_there_are_transcripts() -> None:
    assert len(TRANSCRIPTS) > 25
