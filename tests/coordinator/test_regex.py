"""Regular expressions of clients: RE2's syntax, whole names, linear time."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from kohort.coordinator.regex import BadPattern, compile_pattern


def test_a_pattern_matches_whole_names_in_the_order_given() -> None:
    pattern = compile_pattern("foo|ba.*")
    assert pattern.matching(["bar", "foo", "food", "xfoo", "ba"]) == ["bar", "foo", "ba"]
    assert compile_pattern("").matching(["", "a"]) == [""]
    assert compile_pattern("[[:alpha:]]+").matching(["abc", "a1"]) == ["abc"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("(a", "missing ): (a"),
        ("[a", "missing ]: [a"),
        ("a**", "bad repetition operator: **"),
        ("(?=a)", "invalid perl operator: (?="),  # no looking ahead
        (r"(a)\1", r"invalid escape sequence: \1"),  # no back-references
        ("a{1001}", "invalid repetition size: {1001}"),
        ("\udc80", "invalid UTF-8"),
    ],
)
def test_what_re2_refuses(text: str, why: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BadPattern) as refused:
        compile_pattern(text)
    assert str(refused.value) == why
    assert capfd.readouterr().err == "", "a peer must not fill our log"


def test_a_hostile_pattern_takes_linear_time() -> None:
    start = time.perf_counter()
    assert compile_pattern("(a*)*(a*)*b").matching(["a" * 100_000]) == []
    assert time.perf_counter() - start < 2


def test_the_library_is_loaded_with_the_first_pattern() -> None:
    program = (
        "import sys, kohort.broker.running, kohort.coordinator.regex as regex;"
        "assert 're2' not in sys.modules; sys.modules['re2'] = None\n"
        "try: regex.compile_pattern('a')\n"
        "except regex.BadPattern as bad: print(bad)"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert "pip install google-re2" in said
