"""Checks the version of PySpark, so that an unsupported one is a clear error instead of a missing name."""

from __future__ import annotations

import re

from kohort.wire.errors import KohortError

TESTED = (4, 2)
"""Also in pyproject.toml, for the extra `spark`."""


class UnsupportedPySpark(KohortError, ImportError):
    """The PySpark that is installed is not one that `format("kohort")` works with."""


def objection(version: str) -> str | None:
    """What is wrong with a version of PySpark; None if it is supported, as later ones of the same major should be."""
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is not None and TESTED <= (int(found[1]), int(found[2])) < (TESTED[0] + 1, 0):
        return None
    needed = ".".join(map(str, TESTED))
    return (
        f"PySpark {version} is installed, and Kohort's source and sink for Spark are made for and tested with PySpark "
        f'{needed}: pip install "kohort[spark]" brings that one, pip install "pyspark~={needed}.0" it alone'
    )


def check_pyspark() -> None:
    """UnsupportedPySpark if the PySpark that is installed is not supported; ImportError if there is none."""
    import pyspark

    words = objection(pyspark.__version__)
    if words is not None:
        raise UnsupportedPySpark(words)
