"""`kohort groups remove-members`: makes members leave a group, so that it rebalances without them."""

from __future__ import annotations

import click

from kohort.cli.frame.cluster import ClusterOptions, cluster_options
from kohort.cli.frame.completion import complete_group
from kohort.cli.frame.output import json_option, print_json
from kohort.cli.groups.selection import no_group

_REASON = "removed by `kohort groups remove-members`"


@click.command(epilog="Example: kohort groups remove-members orders --instance checkout-1")
@click.argument("group", metavar="GROUP", shell_complete=complete_group)
@click.option(
    "--member", "members", multiple=True, metavar="ID", help="A member id; may be given several times."
)
@click.option(
    "--instance",
    "instances",
    multiple=True,
    metavar="ID",
    help="A group.instance.id; may be given several times.",
)
@click.option("--all-members", is_flag=True, help="All members of the group.")
@click.option("--reason", default=_REASON, help="What `kohort groups why` will show.")
@cluster_options
@json_option
def command(
    cluster: ClusterOptions,
    group: str,
    members: tuple[str, ...],
    instances: tuple[str, ...],
    all_members: bool,
    reason: str,
    as_json: bool,
) -> int:
    """Remove members from a group, as an instance that will not come back. One that still runs joins again."""
    if all_members == bool(members or instances):
        raise click.UsageError("name members by --member or --instance, or write --all-members")
    with cluster.connect() as admin:
        described = admin.describe_groups(group)[group]
        if described.state == "Dead":
            raise no_group(group)
        if described.members or not all_members:
            admin.remove_members(group, *members, instances=instances, reason=reason)
    removed = [m.member_id for m in described.members] if all_members else [*members, *instances]
    if as_json:
        print_json({"group": group, "removed": removed})
    else:
        print(f"removed: {', '.join(removed)}" if removed else f"{group} has no members")
    return 0
