"""Every transcript is what a share consumer does.

After a wanted change: `python -m tests.client.share_transcript --rerecord [part of a name]`, and read the difference.
"""

from pathlib import Path

import pytest

from tests.client.share_transcript import FOLDER, replay

TRANSCRIPTS = sorted(FOLDER.glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_a_share_consumer_does_what_the_transcript_says(path: Path) -> None:
    text = path.read_text()
    assert replay(text) == text, (
        f"{path.name} differs; if that is wanted: python -m tests.client.share_transcript --rerecord"
    )


def test_there_are_transcripts() -> None:
    assert len(TRANSCRIPTS) > 30
