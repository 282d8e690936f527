"""`kohort doctor SUBJECT`: checks what a part of Kohort needs on this machine, and says what to do."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

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


def add_doctor(commands: Any) -> None:
    """Adds the command to the parser."""
    doctor = commands.add_parser(
        "doctor",
        help="check what Kohort needs on this machine",
        description="Checks one thing after the other and says what to do where something is wrong; ends with 1 then.",
        epilog="example: kohort doctor spark",
    )
    subjects = doctor.add_subparsers(dest="subject", required=True, metavar="SUBJECT")
    for subject, text in _SUBJECTS.items():
        added = subjects.add_parser(
            subject, help=text, description=text, epilog=f"example: kohort doctor {subject} --json"
        )
        added.add_argument("--json", action="store_true", help="for programs")


_SUBJECTS = {
    "spark": "Python, PySpark, Java, the workers' Python, and a session that reads from a broker of its own"
}


def doctor(options: argparse.Namespace) -> int:
    """Runs the checks of a subject; 1 if something is wrong."""
    return report(_checks_of(options.subject)(), as_json=options.json)


def _checks_of(subject: str) -> Callable[[], Iterable[Finding]]:
    assert subject == "spark", subject  # argparse knows no other
    from kohort.cli.doctor_spark import check_spark

    return check_spark


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
