"""Writes the tables of metrics in docs/ from the metrics that the code serves.

Call it as `python -m kohort.cli.metric_tables docs/metrics.md`. A table stands between `<!-- metrics: node -->` and
`<!-- end of metrics -->`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from kohort.broker.metrics import (
    COORDINATOR_METRICS,
    GROUP_METRICS,
    NODE_METRICS,
    TOPIC_METRICS,
    TRANSACTION_METRICS,
)
from kohort.coordinator.rebalance_kinds import KINDS
from kohort.exposition import MetricSpec
from kohort.spark.pipelines.metrics import PIPELINE_METRICS

TABLES: dict[str, tuple[MetricSpec, ...]] = {
    "node": NODE_METRICS,
    "topics": TOPIC_METRICS,
    "groups": GROUP_METRICS,
    "coordinator": COORDINATOR_METRICS,
    "transactions": TRANSACTION_METRICS,
    "pipelines": PIPELINE_METRICS,
}
_PLACE = re.compile(r"(<!-- metrics: (\w+) -->\n).*?(<!-- end of metrics -->)", re.DOTALL)
_REASONS = re.compile(r"(<!-- reasons -->\n).*?(<!-- end of reasons -->)", re.DOTALL)


def metric_table(name: str) -> str:
    """A table in Markdown, one row per metric, in the order in which they are served."""
    lines = ["| metric | kind | labels | what it says |", "|---|---|---|---|"]
    for spec in TABLES[name]:
        labels = ", ".join(f"`{label}`" for label in spec.labels)
        lines.append(f"| `{spec.name}` | {spec.kind} | {labels} | {spec.text} |")
    return "\n".join(lines) + "\n"


def filled(page: str) -> str:
    """The page with its tables brought up to date."""
    page = _PLACE.sub(lambda found: found[1] + metric_table(found[2]) + found[3], page)
    reasons = ", ".join(f"`{kind}`" for kind in KINDS)
    return _REASONS.sub(lambda found: f"{found[1]}{reasons}\n{found[2]}", page)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        path = Path(argument)
        path.write_text(filled(path.read_text("utf-8")), "utf-8")
