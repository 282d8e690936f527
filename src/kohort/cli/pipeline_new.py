"""`kohort pipeline new`: asks what to read, what to keep and where it goes, and writes the pipeline's file."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from kohort.cli.pipeline import pairs
from kohort.cli.properties import read_properties
from kohort.spark.pipelines.cluster_sample import as_line
from kohort.spark.pipelines.definition import PipelineError, from_sql
from kohort.spark.pipelines.draft import commands, draft
from kohort.spark.pipelines.interview import Given, Interview


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


def new(options: argparse.Namespace) -> int:
    if options.file is not None:
        _refuse_to_overwrite(Path(options.file), options.force)
    kafka = read_properties(Path(options.config)) if options.config else {}
    given = Given(
        options.file, options.bootstrap or kafka.pop("bootstrap.servers", None), options.config, kafka, options.topic,
        options.group, options.format, options.schema, options.select, options.where, options.sink,
        pairs(options.sink_option), options.start, options.trigger, options.save_records,
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
