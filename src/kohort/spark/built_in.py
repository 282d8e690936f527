"""Finds a pipeline: a file by its path, or one that is built in by its name."""

from __future__ import annotations

import os
from pathlib import Path

from kohort.settings import nearest
from kohort.spark.pipelines.definition import Pipeline, PipelineError, load_file

BUILT_IN = {
    "group-history": "commits, memberships, rebalances and lag of all groups, as Parquet and pictures"
}


def find_pipeline(name: str) -> Pipeline:
    """The pipeline of a file or of a built-in name; PipelineError if there is none."""
    if name in BUILT_IN:
        from kohort.spark.history.extract import group_history

        return group_history()
    if name.endswith((".py", ".sql")) or os.sep in name:
        return load_file(Path(name))
    raise PipelineError(
        f"there is no pipeline {name}{nearest(name, BUILT_IN)}: give a .py or .sql file, or one that is built in "
        f"({', '.join(BUILT_IN)})"
    )
