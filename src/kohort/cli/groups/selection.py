"""Which groups a command is about: those that are named, or all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from kohort.cli.frame.completion import complete_group
from kohort.client.admin import Admin
from kohort.wire.errors import ErrorCode, KafkaError

F = TypeVar("F", bound=Callable[..., Any])

_WITH_OFFSETS = ("classic", "consumer", "share")
"""The types of groups that have offsets, which can be reset and deleted: committed ones, or a share group's start."""


def groups_argument(command: F) -> F:
    """Adds GROUP… and `--all-groups`, which a command takes as `groups` and `all_groups`."""
    command = click.option("--all-groups", is_flag=True, help="All groups of the cluster.")(command)
    return click.argument("groups", metavar="[GROUP]...", nargs=-1, shell_complete=complete_group)(command)


def check_selection(groups: tuple[str, ...], all_groups: bool) -> None:
    """Raises click's UsageError unless groups are named or all are wanted, and not both."""
    if all_groups and groups:
        raise click.UsageError("name groups, or write --all-groups, not both")
    if not all_groups and not groups:
        raise click.UsageError("name one or more groups, or write --all-groups")


def selected_groups(
    admin: Admin, groups: tuple[str, ...], all_groups: bool, *, with_offsets: bool = False
) -> list[str]:
    """Returns the ids of the groups, each once; of all groups only those that commit offsets if that is wanted."""
    check_selection(groups, all_groups)
    if not all_groups:
        return list(dict.fromkeys(groups))
    listed = admin.list_groups()
    return sorted(each.group_id for each in listed if not with_offsets or each.group_type in _WITH_OFFSETS)


def no_group(*group_ids: str) -> KafkaError:
    """Returns the error of groups that are not there; it says where the names of groups are."""
    which = f"group {group_ids[0]}" if len(group_ids) == 1 else f"groups {', '.join(group_ids)}"
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no {which}; `kohort groups list` names all")
