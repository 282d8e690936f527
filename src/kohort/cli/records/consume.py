"""`kohort consume`: reads records of topics, with a group or without, and prints them."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, BinaryIO

import click

from kohort.cli.frame.cluster import ClusterOptions, cluster_options
from kohort.cli.frame.completion import complete_group, complete_topic
from kohort.cli.frame.exit_codes import ExitCode
from kohort.cli.records.escapes import unescaped
from kohort.cli.records.formats import Rendering, Rows, TextFormat, json_format, parsed_format, value_format
from kohort.cli.records.interrupts import Interrupts
from kohort.cli.records.offsets import OffsetKind, OffsetSpec, parsed_offset
from kohort.cli.records.progress import ProgressLine
from kohort.cli.records.reading import Reading, partitions_of
from kohort.cli.records.serdes import deserializer, serde_names
from kohort.cli.records.settings import more_settings
from kohort.cli.records.sharing import SharedReading
from kohort.client.config import CONSUMER, SHARE_CONSUMER
from kohort.client.consumer import Consumer
from kohort.client.share_consumer import ShareConsumer

_OURS = {
    "group.id",
    "group.instance.id",
    "enable.auto.commit",
    "auto.offset.reset",
    "allow.auto.create.topics",
}
"""What the options say; a file of settings that is made for an application does not make this its member."""


@dataclass(frozen=True, slots=True)
class ConsumeOptions:
    """What the command line says, besides the cluster."""

    topics: tuple[str, ...]
    offset: tuple[str, ...]
    until: str | None
    at_end: bool
    count: int | None
    partitions: tuple[int, ...]
    group: str | None
    share: str | None
    idle_s: float | None
    format: str | None
    as_json: bool
    raw: bool
    delimiter: str | None
    key_delimiter: str | None
    nulls: bool
    serdes: tuple[str, ...]
    registry: str | None
    grep: str | None
    isolation: str | None
    output: str | None
    settings: tuple[str, ...]
    quiet: bool


@click.command(
    epilog="Example: kohort consume orders -o -10 -e -f '%p %o %k %s\\n'",
    short_help="Read records from topics, with a group or without.",
)
@click.argument("topics", nargs=-1, required=True, shell_complete=complete_topic)
@click.option(
    "-o",
    "--offset",
    metavar="WHERE",
    multiple=True,
    help="Begin at: beginning (the default), end, stored, an offset, -N (the last N of each partition), @MS, an ISO "
    "time, @-15m. With a group: where it begins if nothing is stored.",
)
@click.option(
    "--until", metavar="WHERE", help="End before this offset or time in each partition; as -o takes it."
)
@click.option(
    "-e", "--exit", "at_end", is_flag=True, help="End where the partitions end now, and do not wait for more."
)
@click.option("-c", "--count", type=click.IntRange(min=1), help="End after so many records.")
@click.option(
    "-p", "--partition", "partitions", type=click.IntRange(min=0), multiple=True, help="Only this partition."
)
@click.option(
    "-G",
    "--group",
    shell_complete=complete_group,
    help="Read as a member of this group; commit what was printed.",
)
@click.option(
    "--share",
    metavar="GROUP",
    shell_complete=complete_group,
    help="Read as a member of this share group; accept what was printed, and release the rest.",
)
@click.option(
    "--timeout", "idle_s", type=click.FloatRange(min=0), metavar="S", help="End if nothing comes for so long."
)
@click.option(
    "-f", "--format", metavar="FORMAT", help=r"As kcat's: %t %p %o %k %s %T %h %K %S %R, %I (ISO time), \n."
)
@click.option(
    "-J", "--json", "as_json", is_flag=True, help="A line of JSON for each record; produce --json reads it."
)
@click.option("--raw", is_flag=True, help="The values alone, byte by byte, with nothing between them.")
@click.option("-D", "--delimiter", metavar="TEXT", help=r"Between records. Default: \n.")
@click.option("-K", "--key-delimiter", metavar="TEXT", help="Print keys too, with this behind them.")
@click.option("-Z", "--nulls", is_flag=True, help="Print NULL for keys and values that are null.")
@click.option(
    "-s",
    "--serde",
    "serdes",
    metavar="[key=|value=]NAME",
    multiple=True,
    help="How to read keys and values: string, hex, base64, json, short, int, long, float, double, uuid; avro, "
    "protobuf, json-schema with --registry; or letters as kcat's -s takes them.",
)
@click.option("--registry", metavar="URL", help="The schema registry, for avro, protobuf and json-schema.")
@click.option("--grep", metavar="REGEX", help="Only records whose key or value matches.")
@click.option(
    "--isolation",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    help="Default: read_uncommitted.",
)
@click.option(
    "--output", metavar="FILE", type=click.Path(dir_okay=False), help="Write to a file instead of stdout."
)
@click.option(
    "-X", "--set", "settings", metavar="NAME=VALUE", multiple=True, help="A setting of the consumer."
)
@click.option("-q", "--quiet", is_flag=True, help="No progress and no summary on the terminal.")
@cluster_options
def command(cluster: ClusterOptions, **given: Any) -> int:
    """Prints the records of TOPICS, and follows them until Ctrl-C.

    A topic that begins with ^ is a regular expression. Without a group nothing is committed, and several of these
    commands may read the same records. On a terminal, bytes that are no text are shown escaped.
    """
    return consume(cluster, ConsumeOptions(**given))


def consume(cluster: ClusterOptions, options: ConsumeOptions) -> int:
    """Runs the command; returns its exit code."""
    if options.share is not None:
        return _consume_shared(cluster, options)
    begin, until = _bounds(options, int(time.time() * 1000))
    with ExitStack() as stack:
        out, to_terminal = _output(options, stack)
        how = _rendering(options, to_terminal)
        render = _render(options, how)
        with cluster.connect():
            pass  # a broker answers, or an error says where none does
        consumer = stack.enter_context(_consumer(cluster, options, begin))
        progress = ProgressLine(
            "reading", "records", total=options.count, wanted=not (to_terminal or options.quiet)
        )
        reading = Reading(
            consumer,
            render,
            out,
            count=options.count,
            until=until,
            idle_s=options.idle_s,
            pattern=_pattern(options.grep),
            commits=options.group is not None,
            progress=stack.enter_context(progress),
            interrupts=stack.enter_context(Interrupts()),
        )
        try:
            with reading.interrupts.at_once():
                _start(reading, options, begin)
            reading.run()
        finally:
            out.flush()
            reading.commit()
    _summary(reading, options, to_terminal)
    if reading.interrupts.exit_code is not None:
        return reading.interrupts.exit_code
    return ExitCode.FAILED if how.failures else ExitCode.DONE


def _consume_shared(cluster: ClusterOptions, options: ConsumeOptions) -> int:
    """Reads as a member of a share group, whose broker says where it begins."""
    _check_shared(options)
    with ExitStack() as stack:
        out, to_terminal = _output(options, stack)
        how = _rendering(options, to_terminal)
        render = _render(options, how)
        with cluster.connect() as admin:
            admin.describe_topics(
                *options.topics
            )  # a topic that is not there is an error, and no endless silence
        progress = ProgressLine(
            "reading", "records", total=options.count, wanted=not (to_terminal or options.quiet)
        )
        reading = SharedReading(
            stack.enter_context(_share_consumer(cluster, options)),
            render,
            out,
            count=options.count,
            idle_s=options.idle_s,
            pattern=_pattern(options.grep),
            progress=stack.enter_context(progress),
            interrupts=stack.enter_context(Interrupts()),
        )
        reading.consumer.subscribe(options.topics)
        try:
            reading.run()
        finally:
            out.flush()
            reading.commit()
    _summary(reading, options, to_terminal)
    if reading.interrupts.exit_code is not None:
        return reading.interrupts.exit_code
    return ExitCode.FAILED if how.failures else ExitCode.DONE


# --- what the options mean ----------------------------------------------------------------------------


def _bounds(options: ConsumeOptions, now_ms: int) -> tuple[OffsetSpec, tuple[OffsetSpec, ...]]:
    """Returns where to begin and where to end. `-o s@MS` and `-o e@MS` are kcat's way to say it."""
    begins = [
        each.removeprefix("s") if each.startswith("s@") else each
        for each in options.offset
        if not each.startswith("e@")
    ]
    ends = [each.removeprefix("e") for each in options.offset if each.startswith("e@")]
    if len(begins) > 1:
        raise click.UsageError(
            f"-o is given {len(begins)} times: {' '.join(begins)}; reading begins at one place"
        )
    if options.until is not None:
        ends.append(options.until)
    default = "stored" if options.group is not None and options.partitions else "beginning"
    begin = parsed_offset(begins[0] if begins else default, now_ms)
    until = [parsed_offset(each, now_ms) for each in ends]
    for end in until:
        if end.kind is OffsetKind.STORED:
            raise click.UsageError("--until stored: an end is an offset or a time")
        if end.kind is OffsetKind.TIME and end.number > now_ms:
            raise click.UsageError("--until takes a time that has been; to stop later, use --timeout or -c")
    if options.at_end:
        until.append(OffsetSpec(OffsetKind.END))
    if begin.kind is OffsetKind.STORED and options.group is None:
        raise click.UsageError("-o stored needs --group: offsets are stored for a group")
    if options.group is not None and not options.partitions and begin.kind not in _FOR_MEMBERS:
        raise click.UsageError(
            "a member of a group begins where the group is: -o beginning or -o end say where that is if nothing is "
            "stored. To move the group, use kohort groups reset; to read elsewhere, leave --group out"
        )
    return begin, tuple(until)


_FOR_MEMBERS = (OffsetKind.STORED, OffsetKind.BEGINNING, OffsetKind.END)


def _output(options: ConsumeOptions, stack: ExitStack) -> tuple[BinaryIO, bool]:
    """Returns where to write, and whether that is a terminal."""
    if options.output is not None and options.output != "-":
        return stack.enter_context(open(options.output, "wb")), False
    to_terminal = sys.stdout.isatty()
    if options.raw and to_terminal:
        raise click.UsageError(
            "--raw could upset the terminal: send it to a file or a pipe, as in --output FILE"
        )
    return sys.stdout.buffer, to_terminal


def _rendering(options: ConsumeOptions, to_terminal: bool) -> Rendering:
    names = serde_names(options.serdes)
    return Rendering(
        deserializer(names.key, options.registry) if names.key else None,
        deserializer(names.value, options.registry) if names.value else None,
        pretty_key=False,
        pretty_value=names.value == "json",
        null=b"NULL" if options.nulls else b"",
        to_terminal=to_terminal,
    )


def _render(options: ConsumeOptions, how: Rendering) -> Callable[[Rows], bytes]:
    chosen = [
        name
        for name, given in (("-f", options.format), ("--json", options.as_json), ("--raw", options.raw))
        if given
    ]
    if len(chosen) > 1:
        raise click.UsageError(f"{' and '.join(chosen)} contradict each other; use one")
    delimiters = [
        name
        for name, given in (("-D", options.delimiter), ("-K", options.key_delimiter))
        if given is not None
    ]
    if chosen and delimiters:
        raise click.UsageError(
            f"{delimiters[0]} is for plain text; {chosen[0]} says itself what stands between"
        )
    if options.as_json:
        return json_format(how)
    if options.format is not None:
        return TextFormat(parsed_format(options.format), how)
    delimiter = b"" if options.raw else unescaped("\\n" if options.delimiter is None else options.delimiter)
    if options.key_delimiter is not None:
        return TextFormat(["k", unescaped(options.key_delimiter), "s", delimiter], how)
    return value_format(delimiter, how)


def _pattern(text: str | None) -> re.Pattern[bytes] | None:
    if text is None:
        return None
    try:
        return re.compile(text.encode("utf-8", "surrogateescape"))
    except re.error as error:
        raise click.UsageError(f"--grep {text!r} is no regular expression: {error}") from None


def _consumer(cluster: ClusterOptions, options: ConsumeOptions, begin: OffsetSpec) -> Consumer[bytes, bytes]:
    names = [name for name in CONSUMER.settings if name not in _OURS]
    settings: dict[str, object] = {**cluster.settings(*names)}
    settings["client.id"] = settings.get("client.id", "kohort-consume")
    settings["allow.auto.create.topics"] = "false"
    settings["enable.auto.commit"] = "false"
    settings["auto.offset.reset"] = "earliest" if begin.kind is OffsetKind.BEGINNING else "latest"
    if options.group is not None:
        settings["group.id"] = options.group
    if options.isolation is not None:
        settings["isolation.level"] = options.isolation
    return Consumer(settings | more_settings(options.settings))


def _check_shared(options: ConsumeOptions) -> None:
    """Raises UsageError for options that a share group has no use for."""
    given = {
        "--group": options.group, "-o": options.offset, "--until": options.until, "-e": options.at_end,
        "-p": options.partitions, "--isolation": options.isolation,
    }  # fmt: skip
    if wrong := [name for name, value in given.items() if value]:
        raise click.UsageError(
            f"{wrong[0]} does not go with --share: the group's settings say where it begins and what it may read, and "
            "its broker which partitions"
        )
    if patterns := [topic for topic in options.topics if topic.startswith("^")]:
        raise click.UsageError(f"{patterns[0]}: a share group reads topics by their names, not by a pattern")


def _share_consumer(cluster: ClusterOptions, options: ConsumeOptions) -> ShareConsumer[bytes, bytes]:
    names = [name for name in SHARE_CONSUMER.settings if name not in _OURS]
    settings: dict[str, object] = {**cluster.settings(*names)}
    settings["client.id"] = settings.get("client.id", "kohort-consume")
    settings["group.id"] = options.share
    settings["allow.auto.create.topics"] = "false"
    settings["share.acknowledgement.mode"] = "explicit"
    if options.count is not None:
        settings["share.acquire.mode"] = "record_limit"
        settings["max.poll.records"] = min(options.count, 500)
    return ShareConsumer(settings | more_settings(options.settings))


def _start(reading: Reading, options: ConsumeOptions, begin: OffsetSpec) -> None:
    """Joins the group, or takes the partitions that were named and goes to where they begin."""
    consumer = reading.consumer
    if options.group is not None and not options.partitions:
        consumer.subscribe(
            _subscription(options.topics, consumer),
            on_assigned=reading.take_up,
            on_revoked=reading.give_back,
            on_lost=reading.forget,
        )
        return
    partitions = partitions_of(consumer, _named(options.topics, consumer), options.partitions)
    # All offsets are looked up before the assignment: after it the consumer fetches, and a seek would wait for that.
    begins = begin.of(consumer, partitions)
    reading.begin(partitions)
    consumer.assign(partitions)
    for partition, offset in begins.items():
        if begin.kind is OffsetKind.OFFSET and offset != begin.number and not options.quiet:
            print(
                f"kohort: {partition} has no offset {begin.number}; it is read from {offset}", file=sys.stderr
            )
        consumer.seek(partition, offset)
        reading.start_at(partition, offset)
    reading.drop_ended()


def _subscription(topics: tuple[str, ...], consumer: Consumer[Any, Any]) -> list[str] | re.Pattern[str]:
    patterns = [each for each in topics if each.startswith("^")]
    if not patterns:
        partitions_of(consumer, topics, ())  # a topic that is not there is an error, and no endless silence
        return list(topics)
    names = [re.escape(each) + "$" for each in topics if not each.startswith("^")]
    return _topic_pattern("|".join([*patterns, *names]))


def _named(topics: tuple[str, ...], consumer: Consumer[Any, Any]) -> list[str]:
    """Returns the topics; for a pattern, those that match it now."""
    found: dict[str, None] = {}
    known: list[str] | None = None
    for topic in topics:
        if not topic.startswith("^"):
            found[topic] = None
            continue
        known = sorted(consumer.list_topics()) if known is None else known
        matching = [name for name in known if _topic_pattern(topic).match(name) and not name.startswith("__")]
        if not matching:
            raise click.UsageError(f"no topic matches {topic}")
        found |= dict.fromkeys(matching)
    return list(found)


def _topic_pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise click.UsageError(f"{text} is no regular expression: {error}") from None


# --- the end ------------------------------------------------------------------------------------------


def _summary(reading: Reading | SharedReading, options: ConsumeOptions, to_terminal: bool) -> None:
    if not (to_terminal or options.quiet) and sys.stderr.isatty():
        print(f"kohort: {reading.printed} records", file=sys.stderr)
