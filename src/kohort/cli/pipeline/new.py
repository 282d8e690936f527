"""`kohort pipeline new`: asks what to read, what to keep and where it goes, and writes the pipeline's file."""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from kohort.cli.frame.completion import complete_topic
from kohort.cli.frame.properties import read_properties
from kohort.cli.pipeline.settings import pairs
from kohort.spark.pipelines.cluster_sample import as_line
from kohort.spark.pipelines.definition import PipelineError, from_sql
from kohort.spark.pipelines.draft import commands, draft
from kohort.spark.pipelines.guess import AVRO, JSON, PROTOBUF
from kohort.spark.pipelines.interview import Given, Interview


@dataclass(frozen=True, slots=True)
class PipelineNewOptions:
    """What the user said about the pipeline to write."""

    file: str | None
    bootstrap: str | None
    config: str | None
    topic: tuple[str, ...]
    group: str | None
    format: str | None
    registry: str | None
    schema: str | None
    select: str | None
    where: str | None
    sink: str | None
    sink_option: tuple[str, ...]
    start: str | None
    trigger: str | None
    save_records: str | None
    yes: bool
    force: bool


@click.command(
    epilog="Example: kohort pipeline new orders.sql --topic orders --format json --sink parquet:./out --yes"
)
@click.argument("file", metavar="[FILE]", required=False)
@click.option("--bootstrap", metavar="HOST:PORT", help="Default: 127.0.0.1:9092.")
@click.option("--config", metavar="FILE", help="Settings of Kafka (security) as a properties file.")
@click.option(
    "--topic",
    multiple=True,
    metavar="TOPIC",
    shell_complete=complete_topic,
    help="May be given several times.",
)
@click.option("--group", help="Default: the name of the file.")
@click.option(
    "--format",
    type=click.Choice(("json", "text", "binary", "avro", "protobuf")),
    help="Of the values. Default: what records of the topic show.",
)
@click.option(
    "--registry", metavar="URL", help="A schema registry that knows the fields; for avro, protobuf, json."
)
@click.option("--schema", metavar="DDL", help="Fields of the JSON, as in 'id BIGINT, name STRING'.")
@click.option("--select", metavar="SQL", help="Columns to keep. Default: all fields.")
@click.option("--where", metavar="SQL", help="Which rows to keep. Default: all.")
@click.option("--sink", metavar="SINK:TARGET", help="As in parquet:./out, postgresql:orders, kohort:TOPIC.")
@click.option("--sink-option", multiple=True, metavar="NAME=VALUE", help="An option of the sink.")
@click.option(
    "--start",
    type=click.Choice(("earliest", "latest")),
    help="Where the first start begins. Default: earliest.",
)
@click.option("--trigger", metavar="TIME", help="As in '10 seconds'. Default: as fast as it can.")
@click.option(
    "--save-records",
    metavar="FILE",
    help="Write the records that were looked at, for `kohort pipeline test`.",
)
@click.option("--yes", is_flag=True, help="Ask nothing, take the defaults.")
@click.option("--force", is_flag=True, help="Overwrite FILE.")
def command(**given: Any) -> int:
    """Write a pipeline to FILE, which is .sql or .py; without FILE, to TOPIC.sql.

    On a terminal it asks for what is not given as an option. Without a terminal, or with --yes, it takes the defaults.
    """
    return new(PipelineNewOptions(**given))


class AtTerminal:
    """The person at the terminal. What is told goes to standard error, as `--yes` may run in a script."""

    def __init__(self, is_there: bool) -> None:
        self.is_there = is_there
        if is_there:
            with suppress(ImportError):  # not everywhere; with it a line can be edited
                import readline  # noqa: F401

    def ask(self, question: str, default: str) -> str:
        try:
            return input(f"{question} [{default}]: " if default else f"{question}: ")
        except EOFError:
            raise PipelineError("the input has ended; nothing was written") from None

    def tell(self, text: str) -> None:
        print(text, file=sys.stderr)


def new(options: PipelineNewOptions) -> int:
    """Asks, writes the file, and says how to test and run it."""
    if options.file is not None:
        _refuse_to_overwrite(Path(options.file), options.force)
    kafka = read_properties(Path(options.config)) if options.config else {}
    bootstrap = options.bootstrap or kafka.pop("bootstrap.servers", None)
    given = Given(
        options.file, bootstrap, options.config, kafka, list(options.topic), options.group, options.format,
        options.schema, options.registry, options.select, options.where, options.sink, pairs(options.sink_option),
        options.start, options.trigger, options.save_records,
    )  # fmt: skip
    is_there = sys.stdin is not None and sys.stdin.isatty() and not options.yes
    answers, records = Interview(given, AtTerminal(is_there)).run()
    text = draft(answers)
    if answers.file.suffix == ".sql":
        from_sql(answers.name, str(answers.file), text)  # what it says can be read back
    else:
        compile(text, str(answers.file), "exec")
    _refuse_to_overwrite(answers.file, options.force)
    if answers.records is not None:
        _refuse_to_overwrite(answers.records, options.force)
        _write(answers.records, "".join(f"{as_line(record)}\n" for record in records))
    _write(answers.file, text)
    if answers.form in (JSON, AVRO, PROTOBUF) and find_spec("orjson") is None:
        print(f'{answers.form} needs: pip install "kohort[spark,serde]"', file=sys.stderr)
    test, run = commands(answers)
    print(f"{answers.file} is written. It is a plain text: change it as you like.")
    print(f"  test it:  {test}")
    print(f"  run it:   {run}")
    return 0


def _refuse_to_overwrite(path: Path, force: bool) -> None:
    if path.exists() and not force:
        raise PipelineError(f"{path} is there already: choose another name, or overwrite it with --force")


def _write(path: Path, text: str) -> None:
    """Writes a file as a whole, or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", newline="\n", dir=path.parent, prefix=f".{path.name}.", delete=False
    ) as file:
        try:
            file.write(text)
            file.close()
            Path(file.name).chmod(0o666 & ~_umask())
            Path(file.name).replace(path)
        except BaseException:
            file.close()
            Path(file.name).unlink(missing_ok=True)
            raise


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask
