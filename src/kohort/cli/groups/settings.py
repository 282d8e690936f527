"""`kohort groups settings`: shows the settings of a group, and changes them."""

from __future__ import annotations

import click

from kohort.cli.frame.cluster import ClusterOptions, cluster_options
from kohort.cli.frame.completion import complete_group
from kohort.cli.frame.output import json_option, print_json, print_table
from kohort.cli.frame.pairs import name_value_pairs
from kohort.client.admin_types import ConfigEntry


@click.command(epilog="Example: kohort groups settings orders --set consumer.session.timeout.ms=60000")
@click.argument("group", shell_complete=complete_group)
@click.option("--set", "settings", metavar="NAME=VALUE", multiple=True, help="Change a setting.")
@click.option("--unset", metavar="NAME", multiple=True, help="Take a setting back to the broker's.")
@click.option("--dry-run", is_flag=True, help="Check the change, show what it would be, and change nothing.")
@click.option("--all", "all_settings", is_flag=True, help="Show those too that the broker decides.")
@json_option
@cluster_options
def command(
    cluster: ClusterOptions,
    group: str,
    settings: tuple[str, ...],
    unset: tuple[str, ...],
    dry_run: bool,
    all_settings: bool,
    as_json: bool,
) -> int:
    """Show the settings that GROUP has of its own, or change them.

    They hold for groups of the new protocol (KIP-848) and share groups, and can be set before the group exists.
    """
    given = name_value_pairs(settings, "--set", "consumer.session.timeout.ms=60000")
    both = set(given) & set(unset)
    if both:
        raise click.UsageError(f"{min(both)} is set and unset; which of the two?")
    changes: dict[str, str | None] = {**given, **dict.fromkeys(unset)}
    with cluster.connect() as admin:
        before = admin.group_configs(group)[group]
        if changes:
            admin.alter_group_configs({group: changes}, validate_only=dry_run)
        after = before if dry_run or not changes else admin.group_configs(group)[group]
    if changes:
        _print_changes(group, changes, before, None if dry_run else after, as_json)
        return 0
    _print_settings(group, after, all_settings, as_json)
    return 0


def _print_changes(
    group: str,
    changes: dict[str, str | None],
    before: dict[str, ConfigEntry],
    after: dict[str, ConfigEntry] | None,
    as_json: bool,
) -> None:
    rows = [
        {
            "name": name,
            "before": before[name].value if name in before else None,
            "after": after[name].value if after is not None and name in after else value or "(default)",
        }
        for name, value in changes.items()
    ]
    if as_json:
        print_json({"group": group, "dry_run": after is None, "changes": rows})
        return
    for row in rows:
        ending = " (dry run)" if after is None else ""
        print(f"{group}: {row['name']}: {row['before']} → {row['after']}{ending}")


def _print_settings(group: str, entries: dict[str, ConfigEntry], all_settings: bool, as_json: bool) -> None:
    shown = {
        name: entry
        for name, entry in sorted(entries.items())
        if all_settings or entry.source == "DYNAMIC_GROUP_CONFIG"
    }
    if as_json:
        print_json({"group": group, "settings": {name: entry.value for name, entry in shown.items()}})
    elif not shown:
        print(f"{group} has no settings of its own; --all shows the broker's")
    else:
        rows = [(name, entry.value or "", entry.documentation) for name, entry in shown.items()]
        print_table(("SETTING", "VALUE", "MEANING"), rows)
