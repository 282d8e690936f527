"""`kohort groups list`: the groups of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click

from kohort.cli.frame.cluster import ClusterOptions, cluster_options
from kohort.cli.frame.output import json_option, print_json, print_table
from kohort.client.admin import Admin
from kohort.client.admin_types import GroupDescription, GroupListing

STATES = (
    "Stable", "Empty", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "NotReady", "Dead",
)  # fmt: skip
TYPES = ("classic", "consumer", "share", "streams")


Callback = Callable[[click.Context, click.Parameter, str | None], tuple[str, ...] | None]


def one_of(words: Sequence[str]) -> Callback:
    """Returns what reads an option of one or more of these words, with commas between them, in capitals or not."""
    known = {word.lower(): word for word in words}

    def read(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...] | None:
        if value is None:
            return None
        given = [part.strip() for part in value.split(",")]
        if wrong := [part for part in given if part.lower() not in known]:
            raise click.BadParameter(f"{wrong[0]!r} is none of {', '.join(words)}", ctx, param)
        return tuple(known[part.lower()] for part in given)

    return read


@click.command(epilog="Example: kohort groups list --state stable,empty --type classic")
@click.option("--state", "states", callback=one_of(STATES), metavar="STATE[,STATE…]", help="Only these.")
@click.option("--type", "types", callback=one_of(TYPES), metavar="TYPE[,TYPE…]", help="Only these.")
@click.option("--verbose", is_flag=True, help="Members, assignor and coordinator, too.")
@cluster_options
@json_option
def command(
    cluster: ClusterOptions,
    states: tuple[str, ...] | None,
    types: tuple[str, ...] | None,
    verbose: bool,
    as_json: bool,
) -> int:
    """List the groups of the cluster, their types and states."""
    with cluster.connect() as admin:
        listed = [
            each
            for each in sorted(admin.list_groups(*states or ()), key=lambda each: each.group_id)
            if types is None or each.group_type in types
        ]
        described = _described(admin, listed) if verbose else {}
    rows = [_row(each, described.get(each.group_id), verbose) for each in listed]
    if as_json:
        print_json(rows)
    else:
        titles = [
            "GROUP",
            "TYPE",
            "PROTOCOL",
            "STATE",
            *(("MEMBERS", "ASSIGNOR", "COORDINATOR") if verbose else ()),
        ]
        print_table(titles, [[_shown(cell) for cell in row.values()] for row in rows])
    return 0


def _described(admin: Admin, listed: Sequence[GroupListing]) -> dict[str, GroupDescription]:
    return admin.describe_groups(*(each.group_id for each in listed)) if listed else {}


def _row(listed: GroupListing, described: GroupDescription | None, verbose: bool) -> dict[str, object]:
    row: dict[str, object] = {
        "group": listed.group_id,
        "type": listed.group_type,
        "protocol_type": listed.protocol_type,
        "state": listed.state,
    }
    if verbose:
        at = None if described is None else described.coordinator
        row |= {
            "members": None if described is None else len(described.members),
            "protocol": None if described is None else described.protocol,
            "coordinator": None if at is None else {"id": at.node_id, "host": at.host, "port": at.port},
        }
    return row


def _shown(cell: object) -> object:
    return f"{cell['host']}:{cell['port']} (id {cell['id']})" if isinstance(cell, dict) else cell
