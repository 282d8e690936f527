"""Checks the version of PySpark, so that an unsupported one is a clear error instead of a missing name."""

from __future__ import annotations

import logging
import re

from kohort.wire.errors import KohortError

log = logging.getLogger("kohort.spark")

OLDEST, NEWEST = (4, 0), (4, 3)
"""The first and the last version that is tested; also in pyproject.toml, for the extra `spark`."""
_TESTED = f"{OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}"


class UnsupportedPySpark(KohortError, ImportError):
    """The PySpark that is installed is not one that `format("kohort")` works with."""

    what_to_do = 'Install a version that docs/spark-versions.md names: `pip install "kohort[spark]"`.'


def objection(version: str) -> str | None:
    """What is wrong with a version of PySpark; None if it is supported, or a later one of the same major."""
    found = _minor(version)
    if found is not None and OLDEST <= found < (NEWEST[0] + 1, 0):
        return None
    return (
        f"PySpark {version} is installed, and Kohort's source and sink for Spark are made for and tested with PySpark "
        f'{_TESTED}: pip install "kohort[spark]" brings one of them, pip install "pyspark~={NEWEST[0]}.{OLDEST[1]}" '
        "it alone"
    )


def caution(version: str) -> str | None:
    """What a user should know of a version that is newer than what was tested; None of the others."""
    found = _minor(version)
    if found is None or found <= NEWEST:
        return None
    return f"PySpark {version} is newer than what Kohort was tested with ({_TESTED}); it should work"


def check_pyspark(*, tell: bool = True) -> None:
    """UnsupportedPySpark if the PySpark that is installed is not supported; ImportError if there is none.

    One that is newer than what was tested is named in the log, unless `tell` is false.
    """
    import pyspark

    words = objection(pyspark.__version__)
    if words is not None:
        raise UnsupportedPySpark(words)
    words = caution(pyspark.__version__)
    if words is not None and tell:
        log.warning(words)


def _minor(version: str) -> tuple[int, int] | None:
    found = re.match(r"(\d+)\.(\d+)", version)
    return None if found is None else (int(found[1]), int(found[2]))
