"""`kohort groups delete-offsets`: makes a group forget what it has committed for topics."""

from __future__ import annotations

import sys
from collections.abc import Collection

import click

from kohort.cli.frame.cluster import ClusterOptions, cluster_options
from kohort.cli.frame.completion import complete_group, complete_topic
from kohort.cli.frame.exit_codes import code_of
from kohort.cli.frame.output import json_option, print_json, print_table
from kohort.cli.groups.selection import no_group
from kohort.client.admin import Admin
from kohort.client.errors import PartlyFailed, WrongArgument
from kohort.client.types import TopicPartition
from kohort.errors import KohortError
from kohort.insight.resets import parse_topics
from kohort.wire.errors import ErrorCode, KafkaError


@click.command(epilog="Example: kohort groups delete-offsets billing --topic orders:0,1")
@click.argument("group", metavar="GROUP", shell_complete=complete_group)
@click.option(
    "--topic",
    multiple=True,
    required=True,
    metavar="TOPIC[:PARTITION,…]",
    shell_complete=complete_topic,
    help="A topic, or some of its partitions; may be given several times.",
)
@cluster_options
@json_option
def command(cluster: ClusterOptions, group: str, topic: tuple[str, ...], as_json: bool) -> int:
    """Make a group forget what it has committed for topics that its members do not read now."""
    try:
        topics = parse_topics(topic)
    except WrongArgument as wrong:
        raise click.UsageError(f"--topic: {wrong}") from None
    with cluster.connect() as admin:
        described = admin.describe_groups(group)[group]
        if described.state == "Dead":
            raise no_group(group)
        is_share = described.group_type == "share"
        if is_share and (named := [name for name, own in topics.items() if own is not None]):
            raise click.UsageError(
                f"--topic: a share group forgets whole topics: write {named[0]} without partitions"
            )
        partitions = _partitions(admin, group, topics, is_share=is_share)
        failed: dict[TopicPartition, KohortError] = {}
        try:
            if is_share:
                admin.delete_share_group_offsets(group, *topics)
            else:
                admin.delete_group_offsets(group, partitions)
        except PartlyFailed as partly:
            failed = {at: error for at in partitions if (error := _error_of(at, partly))}
        except KafkaError as error:
            failed = dict.fromkeys(partitions, error)
    rows = [(at.topic, at.partition, failed.get(at)) for at in partitions]
    if as_json:
        names = ("topic", "partition", "error")
        print_json([dict(zip(names, (t, p, e and str(e)), strict=True)) for t, p, e in rows])
    else:
        titles = ("TOPIC", "PARTITION", "STATUS")
        print_table(titles, [(t, p, "deleted" if e is None else "failed") for t, p, e in rows])
    for text in dict.fromkeys(str(error) for error in failed.values()):
        print(f"kohort: {text}", file=sys.stderr)
    codes = {code_of(error) for error in failed.values()}
    return 0 if not codes else int(codes.pop()) if len(codes) == 1 else 1


def _error_of(at: TopicPartition, partly: PartlyFailed) -> KohortError | None:
    """Returns what failed of a partition, or of its topic."""
    return partly.errors.get(at) or partly.errors.get(at.topic)


def _partitions(
    admin: Admin, group: str, topics: dict[str, tuple[int, ...] | None], *, is_share: bool
) -> list[TopicPartition]:
    """Returns the partitions that are named; of a whole topic, those that the group has committed."""
    committed: Collection[TopicPartition]
    if is_share:
        committed = admin.share_group_offsets(group).keys()
    else:
        committed = admin.group_offsets(group, require_stable=False).keys()
    found = {TopicPartition(topic, each) for topic, own in topics.items() for each in own or ()}
    found |= {at for at in committed if topics.get(at.topic, ()) is None}
    if missing := [topic for topic in topics if not any(at.topic == topic for at in found)]:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{group} has committed nothing for {', '.join(missing)}"
        )
    return sorted(found)
