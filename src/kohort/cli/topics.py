"""`kohort topics`: lists, creates, describes, alters and deletes the topics of a cluster."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import click

from kohort.cli.frame.cluster import ClusterOptions, cluster_options
from kohort.cli.frame.completion import complete_topic
from kohort.cli.frame.exit_codes import ExitCode
from kohort.cli.frame.output import ask, json_option, print_json, print_table
from kohort.cli.frame.pairs import name_value_pairs
from kohort.client.admin import Admin
from kohort.client.admin_types import ConfigEntry, NewTopic, TopicDescription
from kohort.client.errors import PartlyFailed, error_for
from kohort.client.types import TopicPartition
from kohort.errors import KohortError
from kohort.wire.errors import ErrorCode, KafkaError


@click.group(
    epilog="Example: kohort topics create orders --partitions 3",
    short_help="List, create, describe, alter and delete topics.",
)
def command() -> None:
    """Topics of a cluster: list, create, describe, alter, delete."""


# --- list ---------------------------------------------------------------------------------------------


@command.command("list", epilog="Example: kohort topics list --internal")
@click.option(
    "--internal", is_flag=True, help="Also the topics of the cluster itself, as __consumer_offsets."
)
@json_option
@cluster_options
def list_command(cluster: ClusterOptions, internal: bool, as_json: bool) -> int:
    """Lists the topics: partitions, replicas, how many offsets and how many bytes they hold."""
    with cluster.connect() as admin:
        names = admin.list_topics(include_internal=internal)
        topics = admin.describe_topics(*names) if names else {}
        begins, ends = _bounds(admin, topics.values())
        sizes = _sizes(admin, topics.values()) if topics else None
    rows = [_listed(topic, begins, ends, sizes) for topic in topics.values()]
    if as_json:
        print_json(rows)
    elif rows:
        print_table(
            ("TOPIC", "PARTITIONS", "REPLICAS", "RECORDS", "BYTES"),
            [
                tuple(row[name] for name in ("topic", "partitions", "replication_factor", "records", "bytes"))
                for row in rows
            ],
        )
    else:
        print("there are no topics; kohort topics create NAME makes one", file=sys.stderr)
    return ExitCode.DONE


def _sizes(admin: Admin, topics: Iterable[TopicDescription]) -> dict[TopicPartition, int] | None:
    """Returns the bytes of partitions as their leaders have them; None if this user may not ask, or nobody answers."""
    try:
        directories = admin.describe_log_dirs()
    except KohortError:
        return None
    leaders = {TopicPartition(t.name, each.partition): each.leader for t in topics for each in t.partitions}
    return {
        partition: replica.size
        for broker, of_broker in directories.items()
        for directory in of_broker.values()
        for partition, replica in directory.replicas.items()
        if leaders.get(partition) == broker and not replica.is_future
    }


def _listed(
    topic: TopicDescription,
    begins: dict[TopicPartition, int],
    ends: dict[TopicPartition, int],
    sizes: dict[TopicPartition, int] | None,
) -> dict[str, Any]:
    own = [TopicPartition(topic.name, each.partition) for each in topic.partitions]
    known = all(each in begins and each in ends for each in own)
    return {
        "topic": topic.name,
        "internal": topic.is_internal,
        "partitions": len(topic.partitions),
        "replication_factor": max((len(each.replicas) for each in topic.partitions), default=0),
        "records": sum(ends[each] - begins[each] for each in own) if known else None,
        "bytes": None if sizes is None else sum(sizes.get(each, 0) for each in own),
    }


def _bounds(
    admin: Admin, topics: Iterable[TopicDescription]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Returns the first and the end offsets; partitions whose leader does not answer are missing."""
    partitions = [
        TopicPartition(topic.name, each.partition)
        for topic in topics
        for each in topic.partitions
        if each.leader >= 0
    ]
    if not partitions:
        return {}, {}
    return _what_is_known(admin.beginning_offsets, partitions), _what_is_known(admin.end_offsets, partitions)


def _what_is_known(ask: Any, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    try:
        found: dict[TopicPartition, int] = ask(partitions)
        return found
    except PartlyFailed as partly:
        print(f"kohort: {partly}", file=sys.stderr)
        return partly.results


# --- describe -----------------------------------------------------------------------------------------


@command.command(epilog="Example: kohort topics describe orders")
@click.argument("topics", nargs=-1, shell_complete=complete_topic)
@click.option("--all-settings", is_flag=True, help="Also the settings that have their defaults.")
@json_option
@cluster_options
def describe(cluster: ClusterOptions, topics: tuple[str, ...], all_settings: bool, as_json: bool) -> int:
    """Describes TOPICS, or all: leaders, replicas, offsets, and settings that are not the default."""
    with cluster.connect() as admin:
        described = admin.describe_topics(*topics)
        configs = admin.topic_configs(*described) if described else {}
        begins, ends = _bounds(admin, described.values())
    shown = [
        _described(topic, _settings(configs.get(name, {}), all_settings), begins, ends)
        for name, topic in sorted(described.items())
    ]
    if as_json:
        print_json(shown)
        return ExitCode.DONE
    for number, topic in enumerate(shown):
        if number:
            print()
        _print_topic(topic)
    return ExitCode.DONE


def _settings(entries: dict[str, ConfigEntry], everything: bool) -> dict[str, str | None]:
    return {
        name: "(secret)" if entry.is_sensitive else entry.value
        for name, entry in sorted(entries.items())
        if everything or not entry.is_default
    }


def _described(
    topic: TopicDescription,
    settings: dict[str, str | None],
    begins: dict[TopicPartition, int],
    ends: dict[TopicPartition, int],
) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "topic_id": topic.topic_id,
        "internal": topic.is_internal,
        "settings": settings,
        "partitions": [
            {
                "partition": each.partition,
                "leader": each.leader if each.leader >= 0 else None,
                "replicas": list(each.replicas),
                "isr": list(each.isr),
                "begin_offset": begins.get(TopicPartition(topic.name, each.partition)),
                "end_offset": ends.get(TopicPartition(topic.name, each.partition)),
            }
            for each in topic.partitions
        ],
    }


def _print_topic(topic: dict[str, Any]) -> None:
    partitions = topic["partitions"]
    replicas = max((len(each["replicas"]) for each in partitions), default=0)
    print(f"{topic['topic']}: {len(partitions)} partitions, {replicas} replicas, id {topic['topic_id']}")
    for name, value in topic["settings"].items():
        print(f"  {name}={value}")
    print_table(
        ("PARTITION", "LEADER", "REPLICAS", "ISR", "BEGIN-OFFSET", "END-OFFSET", "RECORDS"),
        [
            (
                each["partition"],
                "none" if each["leader"] is None else each["leader"],
                ",".join(map(str, each["replicas"])),
                ",".join(map(str, each["isr"])),
                each["begin_offset"],
                each["end_offset"],
                _difference(each["begin_offset"], each["end_offset"]),
            )
            for each in partitions
        ],
    )


def _difference(begin: int | None, end: int | None) -> int | None:
    return None if begin is None or end is None else end - begin


# --- create -------------------------------------------------------------------------------------------


@command.command(epilog="Example: kohort topics create orders --partitions 3 --set retention.ms=86400000")
@click.argument("topics", nargs=-1, required=True)
@click.option("-p", "--partitions", type=click.IntRange(min=1), help="Default: the cluster's num.partitions.")
@click.option("-r", "--replication-factor", type=click.IntRange(min=1), help="Default: the cluster's.")
@click.option(
    "--replica-assignment",
    metavar="1:2,2:1",
    help="The brokers of each partition, instead of the two counts; the first is its preferred leader.",
)
@click.option("--set", "settings", metavar="NAME=VALUE", multiple=True, help="A setting of the topics.")
@click.option("--if-not-exists", is_flag=True, help="A topic that is there already is left as it is.")
@click.option("--dry-run", is_flag=True, help="Have the cluster check it, and create nothing.")
@cluster_options
def create(
    cluster: ClusterOptions,
    topics: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    replica_assignment: str | None,
    settings: tuple[str, ...],
    if_not_exists: bool,
    dry_run: bool,
) -> int:
    """Creates TOPICS."""
    configs = _configs(settings)
    assignments = _assignments(replica_assignment)
    if assignments and (partitions or replication_factor):
        raise click.UsageError(
            "--replica-assignment says how many partitions and replicas there are; leave those out"
        )
    new = [
        NewTopic(name, partitions or -1, replication_factor or -1, configs, assignments) for name in topics
    ]
    there: set[str] = set()
    with cluster.connect() as admin:
        try:
            admin.create_topics(new, validate_only=dry_run)
        except (PartlyFailed, KafkaError) as error:
            there = _only(error, ErrorCode.TOPIC_ALREADY_EXISTS, topics) if if_not_exists else set()
            if not there:
                failed = set(error.errors) if isinstance(error, PartlyFailed) else set(topics)
                _print_created([name for name in topics if name not in failed], dry_run)
                raise
    for name in there:
        print(f"{name}: is there already")
    _print_created([name for name in topics if name not in there], dry_run)
    return ExitCode.DONE


def _print_created(topics: Iterable[str], dry_run: bool) -> None:
    for name in topics:
        print(f"{name}: {'would be created' if dry_run else 'created'}")


def _assignments(text: str | None) -> dict[int, tuple[int, ...]]:
    if text is None:
        return {}
    try:
        return {
            partition: tuple(int(broker) for broker in brokers.split(":"))
            for partition, brokers in enumerate(text.split(","))
        }
    except ValueError:
        raise click.UsageError(
            f"--replica-assignment {text}: write the brokers of each partition, as in 1:2,2:1"
        ) from None


def _only(error: PartlyFailed | KafkaError, code: ErrorCode, names: Iterable[str]) -> set[str]:
    """Returns the topics that have this error, if no other error happened."""
    if isinstance(error, KafkaError):
        return set(names) if error.code is code else set()
    if all(each.code is code for each in error.errors.values()):
        return set(error.errors)
    return set()


def _configs(given: Iterable[str]) -> dict[str, str]:
    return name_value_pairs(given, "--set", "retention.ms=86400000")


# --- alter --------------------------------------------------------------------------------------------


@command.command(
    epilog="Example: kohort topics alter orders --set retention.ms=3600000 --unset cleanup.policy"
)
@click.argument("topic", shell_complete=complete_topic)
@click.option("--set", "settings", metavar="NAME=VALUE", multiple=True, help="Change a setting.")
@click.option("--unset", metavar="NAME", multiple=True, help="Take a setting back to its default.")
@click.option(
    "-p", "--partitions", type=click.IntRange(min=1), help="How many partitions it has afterwards: more."
)
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@json_option
@cluster_options
def alter(
    cluster: ClusterOptions,
    topic: str,
    settings: tuple[str, ...],
    unset: tuple[str, ...],
    partitions: int | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Changes settings of TOPIC, or gives it more partitions; shows what was before and what is now."""
    changes: dict[str, str | None] = {**_configs(settings), **dict.fromkeys(unset)}
    both = set(_configs(settings)) & set(unset)
    if both:
        raise click.UsageError(f"{min(both)} is set and unset; which of the two?")
    if not changes and partitions is None:
        raise click.UsageError("nothing to change: give --set NAME=VALUE, --unset NAME or --partitions COUNT")
    with cluster.connect() as admin:
        before = _state(admin, topic)
        if partitions is not None and partitions <= int(before["partitions"] or 0):
            raise click.UsageError(
                f"{topic} has {before['partitions']} partitions: a topic can only be given more, since records stay "
                "where they are. Keys will go to other partitions than before"
            )
        if changes:
            admin.alter_topic_configs({topic: changes}, validate_only=dry_run)
        if partitions is not None and not dry_run:
            admin.create_partitions({topic: partitions})
        after = dict(before) if dry_run else _state(admin, topic)
    if dry_run:
        after |= {name: "(default)" if value is None else value for name, value in changes.items()}
        after |= {} if partitions is None else {"partitions": str(partitions)}
    rows = [
        {"name": name, "before": before.get(name), "after": after.get(name)}
        for name in (*changes, *(["partitions"] if partitions is not None else []))
    ]
    if as_json:
        print_json({"topic": topic, "dry_run": dry_run, "changes": rows})
        return ExitCode.DONE
    for row in rows:
        print(f"{topic}: {row['name']}: {row['before']} → {row['after']}{' (dry run)' if dry_run else ''}")
    return ExitCode.DONE


def _state(admin: Admin, topic: str) -> dict[str, str | None]:
    """Returns all settings of a topic, and under `partitions` their number."""
    described = admin.describe_topics(topic)[topic]
    entries = admin.topic_configs(topic)[topic]
    state = {name: entry.value for name, entry in entries.items()}
    return {**state, "partitions": str(len(described.partitions))}


# --- delete -------------------------------------------------------------------------------------------


@command.command(epilog="Example: kohort topics delete orders --yes")
@click.argument("topics", nargs=-1, required=True, shell_complete=complete_topic)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--if-exists", is_flag=True, help="A topic that is not there is no error.")
@cluster_options
def delete(cluster: ClusterOptions, topics: tuple[str, ...], yes: bool, if_exists: bool) -> int:
    """Deletes TOPICS with all their records. Names are exact; there are no patterns."""
    with cluster.connect() as admin:
        there, missing = _there(admin, topics)
        if missing and not if_exists:
            raise error_for(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"there is no topic {', '.join(missing)}; nothing was deleted. See kohort topics list",
            )
        for name in missing:
            print(f"{name}: is not there")
        if not there:
            return ExitCode.DONE
        begins, ends = _bounds(admin, there.values())
        records = sum(ends[each] - begins[each] for each in ends if each in begins)
        ask(f"Delete {', '.join(there)} with {records:,} records?", yes)
        admin.delete_topics(*there)
    for name in there:
        print(f"{name}: deleted")
    return ExitCode.DONE


def _there(admin: Admin, topics: tuple[str, ...]) -> tuple[dict[str, TopicDescription], list[str]]:
    """Returns the topics that exist, and the names of those that do not."""
    try:
        return admin.describe_topics(*topics), []
    except (PartlyFailed, KafkaError) as error:
        missing = _only(error, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topics)
        if not missing:
            raise
        found = error.results if isinstance(error, PartlyFailed) else {}
        return found, [name for name in topics if name in missing]


# --- delete-records -----------------------------------------------------------------------------------


@command.command("delete-records", epilog="Example: kohort topics delete-records orders --before 0:100 --yes")
@click.argument("topic", shell_complete=complete_topic)
@click.option(
    "--before",
    metavar="PARTITION:OFFSET",
    multiple=True,
    help="Delete what lies before this offset; 0:end deletes all of partition 0.",
)
@click.option("--all", "everything", is_flag=True, help="Delete all records of all partitions.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@cluster_options
def delete_records(
    cluster: ClusterOptions, topic: str, before: tuple[str, ...], everything: bool, yes: bool, as_json: bool
) -> int:
    """Deletes the oldest records of TOPIC and keeps the topic."""
    if everything == bool(before):
        raise click.UsageError("say which records: --before PARTITION:OFFSET, or --all")
    with cluster.connect() as admin:
        described = admin.describe_topics(topic)[topic]
        wanted = dict(_before(topic, each) for each in before)
        if everything:
            wanted = {TopicPartition(topic, each.partition): -1 for each in described.partitions}
        begins, ends = _bounds(admin, [described])
        lost = sum(
            max(0, (ends.get(each, 0) if offset < 0 else offset) - begins.get(each, 0))
            for each, offset in wanted.items()
        )
        ask(f"Delete {lost:,} records of {topic}?", yes)
        left = admin.delete_records(wanted)
    rows = [{"partition": each.partition, "begin_offset": offset} for each, offset in sorted(left.items())]
    if as_json:
        print_json(rows)
    else:
        print_table(("PARTITION", "BEGIN-OFFSET"), [(row["partition"], row["begin_offset"]) for row in rows])
    return ExitCode.DONE


def _before(topic: str, text: str) -> tuple[TopicPartition, int]:
    partition, _, offset = text.partition(":")
    if not partition.isdecimal() or not (offset.isdecimal() or offset == "end"):
        raise click.UsageError(f"--before {text}: write PARTITION:OFFSET, as in 0:100, or 0:end")
    return TopicPartition(topic, int(partition)), -1 if offset == "end" else int(offset)
