"""`kohort pipeline test`: runs a pipeline once over records from files, and shows or compares what comes out."""

from __future__ import annotations

import json
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kohort.cli.frame.output import json_option
from kohort.cli.pipeline.settings import pairs, set_option, spark_is_needed
from kohort.spark.pipelines.definition import PipelineError
from kohort.spark.pipelines.trial_rows import (
    Difference,
    as_json,
    as_table,
    columns_not_there,
    compare,
    read_expected,
)

if TYPE_CHECKING:
    from kohort.testing.pipelines import TrialResult


@dataclass(frozen=True, slots=True)
class PipelineTestOptions:
    """What the user said about the trial."""

    pipeline: str
    records: tuple[str, ...]
    values: bool
    settings: tuple[str, ...]
    expect: str | None
    ordered: bool
    ignore: tuple[str, ...]
    update: bool
    as_json: bool
    rows: int
    call_functions: bool


@click.command(
    epilog="Example: kohort pipeline test orders.sql --records orders.jsonl --expect expected.jsonl"
)
@click.argument("pipeline", metavar="FILE")
@click.option(
    "--records",
    multiple=True,
    required=True,
    metavar="[TOPIC=]FILE",
    help=".jsonl, .csv or .txt, or a folder with TOPIC.jsonl; may be given several times.",
)
@click.option("--values", is_flag=True, help="Each line of JSON is a value, also one with `value`.")
@set_option
@click.option("--expect", metavar="FILE", help="Rows that must come out, .jsonl or .csv, in any order.")
@click.option("--ordered", is_flag=True, help="In this order.")
@click.option("--ignore", multiple=True, metavar="COLUMN", help="Do not compare this column.")
@click.option("--update", is_flag=True, help="Write the rows that come out into the file of --expect.")
@json_option
@click.option("--rows", type=int, default=20, show_default=True, help="How many are shown.")
@click.option(
    "--call-functions", is_flag=True, help="Call the function of foreachBatch too, which may write."
)
def command(**given: Any) -> int:
    """Run a pipeline once over records from files, and show what comes out.

    Starts a broker in memory, writes the records, runs the pipeline once with its sink replaced, and shows the rows.
    Ends with 1 if it fails, or if other rows come out than --expect says.
    """
    return test(PipelineTestOptions(**given))


def test(options: PipelineTestOptions) -> int:
    """Runs the trial; 1 if other rows come out than expected."""
    with spark_is_needed():
        from kohort.spark.built_in import find_pipeline
        from kohort.spark.pipelines.run import sort_settings
        from kohort.spark.pipelines.trial_records import read_given
        from kohort.testing.pipelines import PipelineTrial, topics_read

    if options.update and options.expect is None:
        raise PipelineError("--update writes the file of --expect: name it")
    found = find_pipeline(options.pipeline)
    topics = topics_read(found)
    source, parameters, spark = sort_settings(found, pairs(options.settings))
    # Everything that can be wrong with files is told before a JVM is started for them.
    records = read_given(list(options.records), tuple(topics), plain=options.values)
    expected = None if options.expect is None or options.update else read_expected(Path(options.expect))
    started_s = time.monotonic()

    def tell(text: str) -> None:
        print(f"{found.name}: {text}", file=sys.stderr, flush=True)

    trial = PipelineTrial(
        found, records, topics, parameters,
        options=source, spark=spark, call_functions=options.call_functions, tell=tell,
    )  # fmt: skip
    with trial:
        try:
            result = trial.run()
        finally:
            trial.stop_spark()
    if options.update and options.expect is not None:
        Path(options.expect).write_text("".join(f"{as_json(row)}\n" for row in result.rows), "utf-8")
    difference = None
    if expected is not None:
        for name in columns_not_there(options.ignore, [*result.columns], expected):
            raise PipelineError(f"--ignore {name}: neither the rows nor the expected ones have such a column")
        difference = compare(expected, result.rows, ordered=options.ordered, ignored=options.ignore)
    if options.as_json:
        print(_as_object(result, difference))
    else:
        _show(result, options.rows, time.monotonic() - started_s)
        _show_difference(options, difference)
    return 1 if difference else 0


def _as_object(result: TrialResult, difference: Difference | None) -> str:
    found: dict[str, object] = {
        "pipeline": result.pipeline, "records": result.records, "sink": result.sink, "note": result.note,
        "columns": result.columns, "rows": result.rows,
    }  # fmt: skip
    if difference is not None:
        found["as_expected"] = not difference
        found["missing"], found["surplus"] = difference.missing, difference.surplus
    return json.dumps(found, indent=2, ensure_ascii=False)


def _show(result: TrialResult, most: int, seconds: float) -> None:
    for line in as_table(result.columns, result.rows, shutil.get_terminal_size().columns, most):
        print(line)
    print()
    read = ", ".join(f"{topic} {count:,}" for topic, count in result.records.items())
    print(f"in   {sum(result.records.values()):,} records ({read})")
    print(f"out  {len(result.rows):,} rows to {result.sink} ({result.note}), in {seconds:.1f} s")


def _show_difference(options: PipelineTestOptions, difference: Difference | None) -> None:
    if options.update:
        print(f"written to {options.expect}: look at it before you rely on it")
    elif difference is not None and not difference:
        print(f"as expected in {options.expect}")
    elif difference is not None:
        print(f"\nnot as expected in {options.expect} (- is missing, + was not expected):")
        for line in difference.lines():
            print(line)
