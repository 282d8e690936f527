"""`kohort groups reset`: sets the committed offsets of groups; without `--execute` it shows what would change."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from kohort.cli.frame.cluster import ClusterOptions, cluster_options
from kohort.cli.frame.completion import complete_topic
from kohort.cli.frame.output import json_option, print_json, print_table
from kohort.cli.groups.selection import check_selection, groups_argument, selected_groups
from kohort.client.admin import Admin
from kohort.client.errors import WrongArgument
from kohort.client.types import TopicPartition
from kohort.errors import KohortError
from kohort.insight.resets import (
    ResetKind,
    ResetPlan,
    ResetTarget,
    execute_reset,
    look_up_reset,
    parse_datetime,
    parse_duration,
    parse_topics,
    read_csv,
    write_csv,
)
from kohort.settings import SettingError

DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class ResetOptions:
    """What is reset, and to where."""

    topic: tuple[str, ...]
    all_topics: bool
    to_earliest: bool
    to_latest: bool
    to_current: bool
    to_offset: int | None
    to_datetime: str | None
    by_duration: str | None
    shift_by: int | None
    from_file: str | None
    execute: bool
    dry_run: bool
    export: bool
    as_json: bool


@click.command(
    epilog="Example: kohort groups reset orders --topic orders:0,1 --to-datetime 2026-01-31T12:00:00Z"
)
@groups_argument
@click.option(
    "--topic",
    multiple=True,
    metavar="TOPIC[:PARTITION,…]",
    shell_complete=complete_topic,
    help="A topic, or some of its partitions; may be given several times.",
)
@click.option("--all-topics", is_flag=True, help="All partitions that the group has committed.")
@click.option("--to-earliest", is_flag=True, help="To the first record that is there.")
@click.option("--to-latest", is_flag=True, help="To the end: records that are there are skipped.")
@click.option("--to-current", is_flag=True, help="To what is committed, or to the end where nothing is.")
@click.option("--to-offset", type=click.IntRange(min=0), metavar="N", help="To this offset.")
@click.option(
    "--to-datetime", metavar="TIME", help="To the first record from this time on, as 2026-01-31T12:00:00Z."
)
@click.option(
    "--by-duration", metavar="DURATION", help="To the first record of the last PT1H30M, P7D, P1DT12H, …."
)
@click.option("--shift-by", type=int, metavar="N", help="By so many records, forward or, with -N, back.")
@click.option(
    "--from-file", metavar="FILE", help="To the offsets in a CSV file, as --export writes it; - is stdin."
)
@click.option("--execute", is_flag=True, help="Do it. The group must have no members.")
@click.option("--dry-run", is_flag=True, help="Show only what would change. This is the default.")
@click.option("--export", is_flag=True, help="Print the new offsets as CSV, in the format of Kafka's tool.")
@cluster_options
@json_option
def command(cluster: ClusterOptions, groups: tuple[str, ...], all_groups: bool, **given: Any) -> int:
    """Set the committed offsets of groups.

    Without --execute it shows the old and the new offset of each partition, and how many records are skipped or read
    again. A place outside of the log is moved to its nearer end.
    """
    options = ResetOptions(**given)
    check_selection(groups, all_groups)
    target = _target(options)
    with cluster.connect() as admin:
        names = selected_groups(admin, groups, all_groups, with_offsets=True)
        plans, problems = _plans(admin, names, options, target, is_one=len(groups) == 1)
        done: list[str] = []
        if options.execute:
            done, failed = _executed(admin, plans)
            problems += failed
        else:
            _warn_of_members(admin, plans)
    _show(plans, done, options, names_groups=len(groups) != 1)
    for problem in problems:
        print(f"kohort: {problem}", file=sys.stderr)
    return 1 if problems else 0


# --- what was asked for -----------------------------------------------------------------------------------------


def _target(options: ResetOptions) -> ResetTarget | None:
    """Returns where to, None for a file; UsageError unless exactly one place is named."""
    simple = {
        "--to-earliest": (options.to_earliest, ResetKind.EARLIEST),
        "--to-latest": (options.to_latest, ResetKind.LATEST),
        "--to-current": (options.to_current, ResetKind.CURRENT),
    }
    valued = {
        "--to-offset": options.to_offset,
        "--to-datetime": options.to_datetime,
        "--by-duration": options.by_duration,
        "--shift-by": options.shift_by,
        "--from-file": options.from_file,
    }
    given = [name for name, (is_given, _) in simple.items() if is_given]
    given += [name for name, value in valued.items() if value is not None]
    if len(given) != 1:
        several = f"; these are {len(given)}: {', '.join(given)}" if given else ""
        raise click.UsageError(f"name one place to reset to: {', '.join((*simple, *valued))}{several}")
    _check_scope(options)
    try:
        return _parsed(given[0], simple, options)
    except WrongArgument as wrong:
        raise click.UsageError(f"{given[0]}: {wrong}") from None


def _check_scope(options: ResetOptions) -> None:
    if options.execute and options.dry_run:
        raise click.UsageError("write --execute or --dry-run, not both")
    if options.export and options.as_json:
        raise click.UsageError("write --export or --json, not both")
    scopes = bool(options.topic) + options.all_topics
    if options.from_file is not None:
        if scopes:
            raise click.UsageError(
                "the file of --from-file names the topics: leave --topic and --all-topics out"
            )
    elif scopes != 1:
        raise click.UsageError(
            "name topics by --topic, or write --all-topics for all that the group has committed"
        )


def _parsed(
    given: str, simple: Mapping[str, tuple[bool, ResetKind]], options: ResetOptions
) -> ResetTarget | None:
    if given in simple:
        return ResetTarget(simple[given][1])
    if options.to_offset is not None:
        return ResetTarget(ResetKind.OFFSET, options.to_offset)
    if options.shift_by is not None:
        return ResetTarget(ResetKind.SHIFT, options.shift_by)
    if options.to_datetime is not None:
        return ResetTarget(ResetKind.DATETIME, parse_datetime(options.to_datetime))
    if options.by_duration is not None:
        return ResetTarget(ResetKind.DURATION, parse_duration(options.by_duration))
    return None


def _read_file(path: str, names: list[str], *, is_one: bool) -> dict[str, Mapping[TopicPartition, int]]:
    """Returns the offsets of the file by group; lines without a group are for the one that is named."""
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text("utf-8")
        found = read_csv(text)
    except OSError as error:
        raise SettingError(f"cannot read {path}: {error.strerror}") from None
    except (UnicodeDecodeError, WrongArgument) as error:
        raise SettingError(f"{path}: {error}") from None
    if None in found and not is_one:
        raise SettingError(
            f"{path} has lines without a group: name one group, or write group,topic,partition,offset"
        )
    return {name: offsets for name in names for offsets in [found.get(name) or found.get(None)] if offsets}


# --- plan and execution -----------------------------------------------------------------------------------------


def _plans(
    admin: Admin, names: list[str], options: ResetOptions, target: ResetTarget | None, *, is_one: bool
) -> tuple[list[ResetPlan], list[str]]:
    """Plans each group. One alone raises its error; of several, those that can be planned are."""
    explicit: dict[str, Mapping[TopicPartition, int]] = {}
    if options.from_file is not None:
        explicit = _read_file(options.from_file, names, is_one=is_one)
    topics = None if options.all_topics else _topics(options.topic)
    plans, problems = [], []
    for name in names:
        if target is None and name not in explicit:
            problems.append(f"{options.from_file} has no offsets for group {name}")
            continue
        aim = target or ResetTarget(ResetKind.EXPLICIT, explicit=explicit[name])
        try:
            plans.append(look_up_reset(admin, name, aim, topics, int(time.time() * 1000)))
        except KohortError as error:
            if is_one:
                raise
            problems.append(f"{name}: {error}")
    return plans, problems


def _topics(texts: tuple[str, ...]) -> dict[str, tuple[int, ...] | None]:
    try:
        return parse_topics(texts)
    except WrongArgument as wrong:
        raise click.UsageError(f"--topic: {wrong}") from None


def _executed(admin: Admin, plans: list[ResetPlan]) -> tuple[list[str], list[str]]:
    done, problems = [], []
    for plan in plans:
        try:
            execute_reset(admin, plan)
            done.append(plan.group_id)
        except KohortError as error:
            if len(plans) == 1:
                raise
            problems.append(str(error))
    return done, problems


def _warn_of_members(admin: Admin, plans: list[ResetPlan]) -> None:
    if not plans:
        return
    for name, group in admin.describe_groups(*(plan.group_id for plan in plans)).items():
        if group.members:
            count = len(group.members)
            print(f"kohort: {name} has {count} members: stop them before you --execute this", file=sys.stderr)
        elif group.state == DEAD:
            print(f"kohort: there is no group {name} yet: --execute makes it", file=sys.stderr)


# --- what is shown ----------------------------------------------------------------------------------------------


def _show(plans: list[ResetPlan], done: list[str], options: ResetOptions, *, names_groups: bool) -> None:
    if options.export:
        print(write_csv(plans, names_groups=names_groups), end="")
        return
    if options.as_json:
        print_json([_as_json(plan, plan.group_id in done) for plan in plans])
        return
    print_table(
        ("GROUP", "TOPIC", "PARTITION", "OLD-OFFSET", "NEW-OFFSET", "SKIPPED", "READ-AGAIN", "NOTE"),
        [
            (plan.group_id, p.topic, p.partition, p.old, p.new, p.skipped, p.again, p.note)
            for plan in plans
            for p in plan.partitions
        ],
    )
    for plan in plans:
        what = f"{plan.skipped:,} records are skipped, {plan.again:,} are read again"
        not_done = "not done" if options.execute else "nothing was changed: --execute does it"
        print(f"{plan.group_id}: {what}; {'done' if plan.group_id in done else not_done}")


def _as_json(plan: ResetPlan, is_done: bool) -> dict[str, Any]:
    return {
        "group": plan.group_id,
        "executed": is_done,
        "skipped": plan.skipped,
        "read_again": plan.again,
        "partitions": [
            {
                "topic": p.topic,
                "partition": p.partition,
                "old": p.old,
                "new": p.new,
                "begin": p.begin,
                "end": p.end,
                "skipped": p.skipped,
                "read_again": p.again,
                "note": p.note,
            }
            for p in plan.partitions
        ],
    }
