"""Generated parts of the pages are those of the code, and every error has its advice."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from docs.site.pictures import STEPS, NewState, Step, pictures

import kohort
from kohort.broker.apis.table import TABLE
from kohort.cli.error_reference import PACKAGES, public_exceptions
from kohort.cli.reference import filled
from kohort.client.retried import RETRIED
from kohort.coordinator.classic.state import TRANSITIONS
from kohort.errors import KohortError
from kohort.spark.options import SOURCE_OPTIONS
from kohort.wire.error_help import HELP
from kohort.wire.errors import ErrorCode, KafkaError
from tests.docs.pages import DOCS

ERRORS = (DOCS / "errors.md").read_text("utf-8")
SETTINGS = (DOCS / "settings.md").read_text("utf-8")


@pytest.mark.parametrize("path", sorted(DOCS.glob("*.md")), ids=lambda path: path.name)
def test_the_generated_parts_are_those_of_the_code(path: Path) -> None:
    page = path.read_text("utf-8")
    assert page == filled(page), "run `make supported`"


@pytest.mark.parametrize("name", sorted(pictures()))
def test_the_pictures_are_drawn_from_the_tables(name: str) -> None:
    assert (DOCS / "images" / name).read_text("utf-8") == pictures()[name], "run `make supported`"


def test_every_code_has_help_and_a_section() -> None:
    assert set(HELP) == set(ErrorCode)
    for code, said in HELP.items():
        assert said.meaning.endswith("."), code
        assert said.advice.endswith("."), code
        assert code is ErrorCode.NONE or f"\n### {code.name}\n" in ERRORS


def test_every_exception_has_advice_of_its_own_and_a_section() -> None:
    found = list(public_exceptions())
    assert kohort.CommitFailed in found
    for cls in found:
        assert f"\n### {cls.__name__}\n" in ERRORS
        assert any(cls.__module__.split(".")[1] in packages for packages in PACKAGES.values()), cls


def test_an_exception_says_what_its_page_says() -> None:
    error = kohort.KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "orders")
    assert error.advice == HELP[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION].advice
    assert kohort.CommitFailed(ErrorCode.UNKNOWN_MEMBER_ID).advice == kohort.CommitFailed.what_to_do
    assert kohort.CommitFailed.what_to_do in ERRORS
    assert kohort.TimedOut("x").advice == kohort.TimedOut.what_to_do != KohortError.what_to_do
    assert KafkaError.what_to_do != KohortError.what_to_do


def test_who_retries_is_said_as_the_clients_do_it() -> None:
    assert "Code 3, retried by consumer and producer. " in ERRORS
    assert "Code 16, retried by consumer, producer and admin. " in ERRORS
    assert "Code 29, not retried. " in ERRORS
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER in RETRIED["producer"]


def test_every_setting_and_option_is_on_the_page() -> None:
    for name in (
        "max.poll.interval.ms",
        "delivery.timeout.ms",
        "retention.ms",
        "group.max.size",
        *SOURCE_OPTIONS,
    ):
        assert f"| `{name}` |" in SETTINGS


def test_the_drawn_rebalance_has_real_requests_and_real_transitions() -> None:
    apis = {row.name for row in TABLE.values()}
    asked = [
        step.words.split(":")[0].split(",")[0] for step in STEPS if isinstance(step, Step) and not step.dashed
    ]
    requests = [words for words in asked if words[0].isupper()]
    assert set(requests) == {"JoinGroup", "Heartbeat", "OffsetCommit", "SyncGroup", "OffsetFetch"} <= apis
    changes = [(step.before, step.after) for step in STEPS if isinstance(step, NewState)]
    assert set(changes) <= set(TRANSITIONS)
    assert all(one[1] is next_one[0] for one, next_one in pairwise(changes))
