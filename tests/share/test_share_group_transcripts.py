"""Every transcript is what the group coordinator does with share groups.

After a wanted change: `pytest tests/coordinator tests/share --rerecord`.
"""

from pathlib import Path

import pytest

from tests.share.group_transcript import replay

TRANSCRIPTS = sorted((Path(__file__).parent / "group_transcripts").glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_the_coordinator_does_what_the_transcript_says(path: Path, request: pytest.FixtureRequest) -> None:
    text = path.read_text("utf-8")
    now = replay(text)
    if request.config.getoption("--rerecord", default=False):
        path.write_text(now, "utf-8")
    else:
        assert now == text, (
            f"{path.name} differs; if that is wanted: pytest tests/coordinator tests/share --rerecord"
        )


def test_there_are_transcripts() -> None:
    assert len(TRANSCRIPTS) > 6
