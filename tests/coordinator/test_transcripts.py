"""Every transcript is what the coordinator does. After a wanted change: `pytest tests/coordinator --rerecord`."""

from pathlib import Path

import pytest

from tests.coordinator.transcript import replay

TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts").rglob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_the_coordinator_does_what_the_transcript_says(path: Path, request: pytest.FixtureRequest) -> None:
    text = path.read_text()
    now = replay(text)
    if request.config.getoption("--rerecord", default=False):
        path.write_text(now)
    else:
        assert now == text, f"{path.name} differs; if that is wanted: pytest tests/coordinator --rerecord"


def test_there_are_transcripts() -> None:
    assert len(TRANSCRIPTS) > 30
