"""Which PySpark this works with: another one gets its version told, instead of a traceback about a missing name."""

from __future__ import annotations

import re

from kohort.wire.errors import KohortError

TESTED = (4, 2)
"""Also in pyproject.toml, for the extra `spark`."""


class UnsupportedPySpark(KohortError, ImportError):
    """The PySpark that is installed is not one that `format("kohort")` works with."""


def objection(version: str) -> str | None:
    """What is to be said of a PySpark of this version; None if it will do. Later ones of the same major should."""
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is not None and TESTED <= (int(found[1]), int(found[2])) < (TESTED[0] + 1, 0):
        return None
    needed = ".".join(map(str, TESTED))
    return (
        f"PySpark {version} is installed, and Kohort's source and sink for Spark are made for and tested with PySpark "
        f'{needed}: pip install "kohort[spark]" brings that one, pip install "pyspark~={needed}.0" it alone'
    )


def check_pyspark() -> None:
    """UnsupportedPySpark if the one that is installed will not do; ImportError if there is none."""
    import pyspark

    words = objection(pyspark.__version__)
    if words is not None:
        raise UnsupportedPySpark(words)
