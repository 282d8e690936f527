"""What the console shows of pipelines. The console knows no Spark: the command line hands it this function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from kohort.console.context import Pipelines
from kohort.spark.pipelines.state import known_pipelines, state_directory


def pipelines_in(state: str | None) -> Pipelines:
    """Makes the function that reads the status of pipelines, as `kohort pipeline list --json` does."""

    def known() -> Sequence[Mapping[str, Any]]:
        return [asdict(each) for each in known_pipelines(state_directory(state))]

    return known
