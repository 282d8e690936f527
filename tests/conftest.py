"""Settings for all tests: Hypothesis tries the same examples everywhere, without deadlines.

A machine may stand still for a moment, so no example has a deadline, and it does not matter how long it takes to make
one. `KOHORT_FRESH_EXAMPLES=1` asks for new examples.
"""

from __future__ import annotations

import logging
import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "kohort",
    deadline=None,
    derandomize=not os.environ.get("KOHORT_FRESH_EXAMPLES"),
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("kohort")


@pytest.fixture(autouse=True)
def loggers_as_before() -> Iterator[None]:
    """A command that a test runs in this process leaves the logger of Kohort to the next test as it was."""
    logger = logging.getLogger("kohort")
    level, propagate, handlers = logger.level, logger.propagate, list(logger.handlers)
    yield
    logger.setLevel(level)
    logger.propagate, logger.handlers = propagate, handlers


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Ctrl-C works as in a terminal, here and in programs that the test starts.

    Programs that a shell starts in its background ignore SIGINT (`nohup make test &`), and so do their children.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


FILES_OF_SPARK = 1024
"""A JVM with Spark opens each of 250 jars, and starts processes that talk to it."""

JAVA_OPTIONS = "-XX:TieredStopAtLevel=1"
"""A JVM of a test lives too briefly to earn what the second compiler costs: a first small job took 17.7 s of CPU with
it, and 10.5 s without. Who wants other options sets JDK_JAVA_OPTIONS."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the tests that share a Spark first, and those that start one of their own last.

    Each process of `pytest -n` begins with a part of the list, in this order, and one that has finished takes from the
    end of another's part. So one process runs what shares a Spark, and the others need not start one; and the longest
    tests are taken one by one while there is other work, not at the very end.
    """
    items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    if item.get_closest_marker("jvm"):
        return 2
    return 0 if _WITH_SPARK in item.path.parents else 1


_WITH_SPARK = Path(__file__).parent / "spark"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Readies this process for a test that starts a Spark: options of Java, and the limit of open files.

    Where that limit may not be raised there can be no Spark.
    """
    if "spark" in getattr(item, "fixturenames", ()) or item.get_closest_marker("jvm"):
        os.environ.setdefault("JDK_JAVA_OPTIONS", JAVA_OPTIONS)
        allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        if 0 <= allowed < FILES_OF_SPARK:  # negative: no limit
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (FILES_OF_SPARK, max(most, FILES_OF_SPARK)))
            except (OSError, ValueError):
                pytest.skip(f"Spark needs {FILES_OF_SPARK} open files, and `ulimit -Hn` allows {most}")
