"""`kohort groups delete`: deletes groups with all their offsets."""

from __future__ import annotations

import sys

import click

from kohort.cli.frame.cluster import ClusterOptions, cluster_options
from kohort.cli.frame.exit_codes import code_of
from kohort.cli.frame.output import json_option, print_json
from kohort.cli.groups.selection import check_selection, groups_argument, selected_groups
from kohort.client.errors import PartlyFailed
from kohort.errors import KohortError


@click.command(epilog="Example: kohort groups delete audit billing")
@groups_argument
@click.option("--yes", is_flag=True, help="Do not ask, which --all-groups does otherwise.")
@cluster_options
@json_option
def command(
    cluster: ClusterOptions, groups: tuple[str, ...], all_groups: bool, yes: bool, as_json: bool
) -> int:
    """Delete groups that have no members, with all their offsets."""
    check_selection(groups, all_groups)
    with cluster.connect() as admin:
        names = selected_groups(admin, groups, all_groups, with_offsets=True)
        if all_groups and names and not yes:
            _confirm(names)
        failed: dict[str, KohortError] = {}
        if names:
            try:
                admin.delete_groups(*names)
            except PartlyFailed as partly:
                failed = dict(partly.errors)
            except KohortError as error:
                if len(names) > 1:
                    raise
                failed = {names[0]: error}
    deleted = [name for name in names if name not in failed]
    if as_json:
        print_json({"deleted": deleted, "failed": {name: str(each) for name, each in failed.items()}})
    elif deleted:
        print(f"deleted: {', '.join(deleted)}")
    elif not failed:
        print("there are no groups")
    for name, why in failed.items():
        print(f"kohort: {name} was not deleted: {why}", file=sys.stderr)
    codes = {code_of(each) for each in failed.values()}
    return 0 if not codes else int(codes.pop()) if len(codes) == 1 else 1


def _confirm(names: list[str]) -> None:
    if not sys.stdin.isatty():
        raise click.UsageError(f"this deletes all {len(names)} groups: write --yes to say that you mean it")
    click.confirm(
        f"Delete {len(names)} groups with all their offsets: {', '.join(names)}?", abort=True, err=True
    )
