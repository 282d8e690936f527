"""What a check of `kohort doctor` has found, and how it is told."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

RIGHT, NOTE, WRONG = "right", "note", "wrong"
_MARKS = {RIGHT: "✓", NOTE: "!", WRONG: "✗"}


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check has found."""

    name: str
    verdict: str
    """`right`, `note` for what works but could be better, or `wrong`."""
    text: str
    to_do: str | None = None


def report(findings: Iterable[Finding], *, as_json: bool) -> int:
    """Prints the findings as they come, or all of them as JSON; 1 if one of them is wrong."""
    shown = list(_told(findings, quiet=as_json))
    is_right = all(finding.verdict != WRONG for finding in shown)
    if as_json:
        print(json.dumps({"right": is_right, "findings": [asdict(each) for each in shown]}, indent=2))
    elif is_right:
        print("everything is right")
    else:
        wrong = [finding.name for finding in shown if finding.verdict == WRONG]
        print(f"wrong: {', '.join(wrong)}")
    return 0 if is_right else 1


def _told(findings: Iterable[Finding], *, quiet: bool) -> Iterator[Finding]:
    for finding in findings:
        if not quiet:
            print(f"{_MARKS[finding.verdict]} {finding.name}: {finding.text}", flush=True)
            if finding.to_do is not None:
                print(f"    {finding.to_do}", flush=True)
        yield finding
