"""`kohort produce`: writes records to a topic, from standard input or files."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from kohort.cli.frame.cluster import ClusterOptions, cluster_options
from kohort.cli.frame.completion import complete_topic
from kohort.cli.frame.exit_codes import ExitCode
from kohort.cli.records.envelope import Envelope, Headers, envelope_of
from kohort.cli.records.escapes import unescaped
from kohort.cli.records.interrupts import Interrupts
from kohort.cli.records.progress import ProgressLine
from kohort.cli.records.serdes import Serialize, WrongData, serde_names, serializer
from kohort.cli.records.settings import more_settings
from kohort.cli.records.sources import closing_source, open_source, pieces, size_of
from kohort.cli.records.writing import RecordWriter
from kohort.client.config import PRODUCER
from kohort.client.producer import Producer
from kohort.errors import KohortError

_CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@dataclass(frozen=True, slots=True)
class ProduceOptions:
    """What the command line says, besides the cluster."""

    topic: str
    files: tuple[str, ...]
    whole: bool
    as_json: bool
    delimiter: str | None
    key_delimiter: str | None
    key: str | None
    headers: tuple[str, ...]
    partition: str | None
    compression: str | None
    acks: str | None
    nulls: bool
    null: str | None
    serdes: tuple[str, ...]
    registry: str | None
    key_schema: str | None
    value_schema: str | None
    count: int | None
    tee: bool
    settings: tuple[str, ...]
    quiet: bool


@click.command(
    epilog="Example: printf 'k1:hello\\nk2:world\\n' | kohort produce orders -K :",
    short_help="Write records to a topic, from stdin or files.",
)
@click.argument("topic", shell_complete=complete_topic)
@click.argument("files", nargs=-1, type=click.Path(dir_okay=False, allow_dash=True, exists=True))
@click.option("--whole", is_flag=True, help="Each file is one record, not each of its lines.")
@click.option(
    "-J",
    "--json",
    "as_json",
    is_flag=True,
    help='Each line is {"key", "value", "headers", "partition", "timestamp"}, as consume --json writes it.',
)
@click.option("-D", "--delimiter", metavar="TEXT", help=r"Between records. Default: \n.")
@click.option("-K", "--key-delimiter", metavar="TEXT", help="What stands before this in a record is its key.")
@click.option("-k", "--key", metavar="TEXT", help="The key of all records that have none.")
@click.option(
    "-H", "--header", "headers", metavar="NAME=VALUE", multiple=True, help="A header; NAME alone: a null."
)
@click.option(
    "-p",
    "--partition",
    metavar="NUMBER|any",
    help="The partition. any: the key decides, whatever the JSON says.",
)
@click.option("-z", "--compression", type=click.Choice(_CODECS), help="Default: none.")
@click.option("--acks", type=click.Choice(["all", "1", "0"]), help="Default: all.")
@click.option("-Z", "--nulls", is_flag=True, help="Empty keys and values become null (a tombstone).")
@click.option("--null", metavar="TEXT", help="A key or value that is this text becomes null.")
@click.option(
    "-s",
    "--serde",
    "serdes",
    metavar="[key=|value=]NAME",
    multiple=True,
    help="What the text of keys and values becomes: string, hex, base64, json (checked), short, int, long, float, "
    "double, uuid; avro and json-schema with --registry, from JSON.",
)
@click.option("--registry", metavar="URL", help="The schema registry, for avro and json-schema.")
@click.option(
    "--key-schema", metavar="FILE", type=click.Path(dir_okay=False, exists=True), help="The schema of keys."
)
@click.option(
    "--value-schema",
    metavar="FILE",
    type=click.Path(dir_okay=False, exists=True),
    help="The schema of values. Default: the latest of the registry.",
)
@click.option("-c", "--count", type=click.IntRange(min=1), help="End after so many records.")
@click.option("-T", "--tee", is_flag=True, help="Write the input to stdout too.")
@click.option(
    "-X", "--set", "settings", metavar="NAME=VALUE", multiple=True, help="A setting of the producer."
)
@click.option("-q", "--quiet", is_flag=True, help="No progress and no summary.")
@cluster_options
def command(cluster: ClusterOptions, **given: Any) -> int:
    """Writes records to TOPIC: each line of standard input, or of FILES, is one.

    Ends with 1 if a record was not written, and says which. Ctrl-C ends the input; what was read before is written.
    """
    return produce(cluster, ProduceOptions(**given))


def produce(cluster: ClusterOptions, options: ProduceOptions) -> int:
    """Runs the command; returns its exit code."""
    work = _Work(options)
    with cluster.connect():
        pass  # a broker answers, or an error says where none does
    started_s = time.monotonic()
    with ExitStack() as stack:
        producer = stack.enter_context(_producer(cluster, options))
        _check_partition(producer, options, work.partition)
        writer = RecordWriter(producer, options.topic, partition=work.partition, headers=work.headers)
        typed = options.files in ((), ("-",)) and sys.stdin.isatty()
        if typed and not options.quiet:
            print("kohort: type records, one on each line; Ctrl-D ends", file=sys.stderr)
        progress = stack.enter_context(_progress(options, wanted=not typed))
        interrupts = stack.enter_context(Interrupts())
        failure: KohortError | None = None
        try:
            _send_everything(work, writer, progress, interrupts)
        except KohortError as error:
            failure = error  # what was sent before it is written nevertheless
        try:
            writer.finish()
        except KeyboardInterrupt:
            producer.close(0)  # the second Ctrl-C: whoever is asked twice does not wait
            raise
    _summary(writer, options, time.monotonic() - started_s)
    if failure is not None:
        raise failure
    if interrupts.exit_code is not None:
        return interrupts.exit_code
    return ExitCode.FAILED if writer.failed else ExitCode.DONE


class _Work:
    """The options as bytes and functions: what becomes of a piece of the input."""

    def __init__(self, options: ProduceOptions) -> None:
        self.options = options
        _check_combination(options)
        self.delimiter = unescaped("\\n" if options.delimiter is None else options.delimiter)
        if not self.delimiter:
            raise click.UsageError("-D is empty; to write a file as one record, use --whole")
        self.key_delimiter = unescaped(options.key_delimiter) if options.key_delimiter else None
        self.key = None if options.key is None else options.key.encode("utf-8", "surrogateescape")
        self.null = None if options.null is None else options.null.encode("utf-8", "surrogateescape")
        self.headers = _headers(options.headers)
        self.partition = _partition(options.partition)
        names = serde_names(options.serdes)
        self.serialize_key = self._serializer(names.key, options.key_schema, is_key=True)
        self.serialize_value = self._serializer(names.value, options.value_schema, is_key=False)

    def _serializer(self, name: str | None, schema: str | None, *, is_key: bool) -> Serialize | None:
        if name is None:
            return None
        text = None if schema is None else Path(schema).read_text("utf-8")
        return serializer(name, self.options.registry, text, is_key=is_key)

    def send(self, writer: RecordWriter, source: str, first: int, found: list[bytes]) -> None:
        """Sends pieces of the input; what is wrong with one of them is an error that names it."""
        if self.options.as_json:
            writer.send_envelopes(source, first, self._envelopes(source, first, found))
            return
        keys: list[bytes | None] | None = None
        values: list[bytes | None] = list(found)
        if self.key_delimiter is not None:
            keys = [None] * len(found)
            for at, piece in enumerate(found):
                before, separator, after = piece.partition(self.key_delimiter)
                keys[at], values[at] = (before, after) if separator else (self.key, piece)
        elif self.key is not None:
            keys = [self.key] * len(found)
        if keys is not None:
            keys = self._made(source, first, keys, self.serialize_key)
        writer.send_all(source, first, self._made(source, first, values, self.serialize_value), keys)

    def _made(
        self, source: str, first: int, typed: list[bytes | None], serialize: Serialize | None
    ) -> list[bytes | None]:
        """Returns the bytes to send: nulls where they are meant, and what the serializer makes of the rest."""
        if self.options.nulls or self.null is not None:
            typed = [None if self._is_null(each) else each for each in typed]
        if serialize is None:
            return typed
        made: list[bytes | None] = []
        for at, each in enumerate(typed):
            try:
                made.append(None if each is None else serialize(self.options.topic, each))
            except (KohortError, ValueError, RecursionError) as error:
                raise WrongData(f"{source}: record {first + at} cannot be made: {error}") from None
        return made

    def _is_null(self, typed: bytes | None) -> bool:
        return (self.options.nulls and typed == b"") or (self.null is not None and typed == self.null)

    def _envelopes(self, source: str, first: int, lines: list[bytes]) -> Iterator[Envelope]:
        for at, line in enumerate(lines):
            try:
                envelope = envelope_of(line)
            except WrongData as error:
                raise WrongData(f"{source}: line {first + at}: {error}") from None
            if self.options.partition == "any":
                envelope.partition = None
            elif self.partition is not None:
                envelope.partition = self.partition
            yield envelope


def _send_everything(
    work: _Work, writer: RecordWriter, progress: ProgressLine, interrupts: Interrupts
) -> None:
    """Reads all sources and sends what they hold, until the end, the count or a signal."""
    left, done = work.options.count, 0
    for name in work.options.files or ("-",):
        source, number = "stdin" if name == "-" else name, 1
        with closing_source(name, open_source(name)) as opened:
            cut = iter([([opened.read()], 0)]) if work.options.whole else pieces(opened, work.delimiter)
            while left is None or left > 0:
                try:
                    with interrupts.at_once():
                        found, read = next(cut)
                except StopIteration:
                    break
                except KeyboardInterrupt:
                    return
                found = found if left is None else found[:left]
                work.send(writer, source, number, found)
                number += len(found)
                left = None if left is None else left - len(found)
                _tee(work, found)
                progress.show(done + read, f"{writer.sent:,} records")
            done += opened.tell() if opened.seekable() else 0


def _tee(work: _Work, found: list[bytes]) -> None:
    if work.options.tee:
        sys.stdout.buffer.write(work.delimiter.join(found) + work.delimiter)
        sys.stdout.buffer.flush()


# --- what the options mean ----------------------------------------------------------------------------


def _check_combination(options: ProduceOptions) -> None:
    if options.whole and options.as_json:
        raise click.UsageError("--whole and --json contradict each other")
    if options.whole and options.delimiter is not None:
        raise click.UsageError("--whole cuts nothing: leave -D out")
    given = {
        "-K": options.key_delimiter, "-k": options.key, "-Z": options.nulls or None, "--null": options.null,
        "-s": options.serdes or None,
    }  # fmt: skip
    if options.as_json and (wrong := [name for name, value in given.items() if value is not None]):
        raise click.UsageError(
            f"{wrong[0]} is for plain text; in --json each line says its key and its value"
        )


def _headers(given: tuple[str, ...]) -> Headers | None:
    headers: Headers = []
    for each in given:
        name, separator, value = each.partition("=")
        headers.append((name, value.encode("utf-8", "surrogateescape") if separator else None))
    return headers or None


def _partition(given: str | None) -> int | None:
    if given is None or given == "any":
        return None
    if not given.isdecimal():
        raise click.UsageError(f"-p {given}: a partition is a number from 0 on, or any")
    return int(given)


def _check_partition(producer: Producer[Any, Any], options: ProduceOptions, partition: int | None) -> None:
    there = len(producer.partitions_for(options.topic))
    if partition is not None and partition >= there:
        raise click.UsageError(
            f"topic {options.topic} has the partitions 0 to {there - 1}; there is no partition {partition}"
        )


def _producer(cluster: ClusterOptions, options: ProduceOptions) -> Producer[Any, Any]:
    settings: dict[str, object] = {**cluster.settings(*PRODUCER.settings)}
    settings["client.id"] = settings.get("client.id", "kohort-produce")
    settings["max.block.ms"] = settings.get("max.block.ms", settings["default.api.timeout.ms"])
    if options.compression is not None:
        settings["compression.type"] = options.compression
    if options.acks is not None:
        settings["acks"] = options.acks
    return Producer(settings | more_settings(options.settings))


def _progress(options: ProduceOptions, *, wanted: bool) -> ProgressLine:
    total = size_of(options.files or ("-",))
    return ProgressLine(
        f"writing to {options.topic}", "bytes", total=total, wanted=wanted and not options.quiet
    )


def _summary(writer: RecordWriter, options: ProduceOptions, seconds: float) -> None:
    if options.quiet:
        return
    how = f"{writer.written:,} record{'' if writer.written == 1 else 's'} written to {options.topic} in {seconds:.1f} s"
    bad = f"; {writer.failed:,} not written" if writer.failed else ""
    print(f"kohort: {how}{bad}", file=sys.stderr)
