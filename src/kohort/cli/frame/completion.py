"""Completes the names of topics, groups, users and profiles in the shell."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from kohort.errors import KohortError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_PATIENCE_S = 2.0
"""How long a shell may wait for a cluster."""


def complete_topic(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names the topics of the cluster that begin with what was typed."""
    return _names_of_cluster(ctx, incomplete, lambda admin: admin.list_topics(timeout=_PATIENCE_S))


def complete_group(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names the groups of the cluster that begin with what was typed."""
    return _names_of_cluster(
        ctx, incomplete, lambda admin: [each.group_id for each in admin.list_groups(timeout=_PATIENCE_S)]
    )


def complete_user(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names the SCRAM users of the cluster that begin with what was typed."""
    return _names_of_cluster(
        ctx, incomplete, lambda admin: list(admin.describe_user_scram_credentials(timeout=_PATIENCE_S))
    )


def complete_profile(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names the profiles that begin with what was typed."""
    from kohort.cli.frame.cluster import read_profiles

    try:
        return _beginning_with(incomplete, list(read_profiles()))
    except KohortError:
        return []


def _names_of_cluster(
    ctx: click.Context, incomplete: str, names: Callable[..., list[str]]
) -> list[CompletionItem]:
    """Asks the cluster of the options that were typed so far. A cluster that does not answer has no names."""
    from kohort.cli.frame.cluster import ClusterOptions
    from kohort.client.admin import Admin

    logging.getLogger("kohort").setLevel(logging.CRITICAL)  # what a client warns of would stand in the prompt
    options = ClusterOptions(*(ctx.params.get(name) for name in ("bootstrap", "config", "profile")))
    try:
        with Admin(options.settings()) as admin:
            return _beginning_with(incomplete, names(admin))
    except (KohortError, OSError):
        return []


def _beginning_with(incomplete: str, names: list[str]) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]
