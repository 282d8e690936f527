"""Checks the subject line of a commit message; git runs it as a hook (`make hooks`) with the message's file."""

from __future__ import annotations

import sys
from pathlib import Path

LONGEST = 72


def complaint(message: str) -> str | None:
    """Returns what is wrong with the subject of a commit message, or None."""
    lines = [line for line in message.splitlines() if not line.startswith("#")]
    subject = lines[0] if lines else ""
    if not subject.strip():
        return "the first line is empty: say there what the commit does"
    if len(subject) > LONGEST:
        return f"the first line has {len(subject)} characters, {LONGEST} at most: put the why into the body"
    if len(lines) > 1 and lines[1].strip():
        return "the second line must be empty: git takes what follows as the body"
    return None


if __name__ == "__main__":
    wrong = complaint(Path(sys.argv[1]).read_text("utf-8"))
    if wrong:
        sys.exit(f"commit message: {wrong}")
