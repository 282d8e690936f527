"""Every transcript is what our client and our broker say to each other.

After a wanted change: `python -m tests.client.sasl_transcript --rerecord`, and read the difference.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kohort.client.core.sasl_login import session_times
from tests.client.sasl_transcript import FOLDER, replay

TRANSCRIPTS = sorted(FOLDER.glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_a_login_is_what_the_transcript_says(path: Path) -> None:
    text = path.read_text("utf-8")
    assert replay(text) == text, (
        f"{path.name} differs; if that is wanted: python -m tests.client.sasl_transcript --rerecord"
    )


def test_there_are_transcripts_of_logins() -> None:
    assert len(TRANSCRIPTS) >= 5


@pytest.mark.parametrize("chance", [0.0, 0.3, 0.999])
@pytest.mark.parametrize("lifetime_ms", [1, 500, 1_177, 10_000, 3_600_000])
def test_a_session_is_renewed_before_it_ends(lifetime_ms: int, chance: float) -> None:
    times = session_times(1_000_000, lifetime_ms, chance)
    assert times is not None
    assert 0.84 * lifetime_ms - 1 <= times.renew_ms - 1_000_000 <= 0.95 * lifetime_ms
    assert times.renew_ms <= times.expires_ms <= 1_000_000 + lifetime_ms
    assert times.in_place == (times.renew_ms - 1_000_000 >= 1_000)
    assert session_times(1_000_000, 0, chance) is None
