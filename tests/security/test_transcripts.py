"""Every transcript is what a SASL session does.

After a wanted change: `pytest tests/coordinator tests/security --rerecord` (the option is the coordinator's).
"""

from pathlib import Path

import pytest

from tests.security.transcript import replay

TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_the_session_does_what_the_transcript_says(path: Path, request: pytest.FixtureRequest) -> None:
    text = path.read_text()
    now = replay(text)
    if request.config.getoption("--rerecord", default=False):
        path.write_text(now)
    else:
        assert now == text, f"{path.name} differs from what the session does"


def test_there_are_transcripts() -> None:
    assert len(TRANSCRIPTS) > 15
