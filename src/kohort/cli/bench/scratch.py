"""The topics and groups of a measurement, which are gone at its end, and the options that all measurements share."""

from __future__ import annotations

import random
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from kohort.cli.frame.cluster import ClusterOptions
from kohort.client.admin import Admin
from kohort.errors import KohortError

F = TypeVar("F", bound=Callable[..., Any])
PREFIX = "kohort-bench-"
_PAYLOADS = 97
_LETTERS = bytes(range(ord("A"), ord("Z") + 1))
_DELETE_PATIENCE_S = 10.0


def partitions_option(command: F) -> F:
    """Adds `--partitions` and `--replication-factor`, for the topic of the measurement."""
    add = click.option(
        "--partitions", type=click.IntRange(min=1), default=1, show_default=True, help="Of the topic."
    )
    more = click.option("--replication-factor", type=click.IntRange(min=1), help="Default: the cluster's.")
    return add(more(command))


def settings_option(command: F) -> F:
    """Adds `-X NAME=VALUE`, settings of the client that is measured."""
    return click.option(
        "-X", "--set", "settings", metavar="NAME=VALUE", multiple=True, help="A setting of the client."
    )(command)


@contextmanager
def scratch_topic(
    cluster: ClusterOptions, partitions: int, replication_factor: int | None
) -> Iterator[tuple[Admin, str]]:
    """Creates a topic for the time of a measurement; a group of the same name is deleted with it."""
    name = PREFIX + secrets.token_hex(4)
    with cluster.connect() as admin:
        admin.create_topic(name, partitions, replication_factor or -1)
        try:
            yield admin, name
        finally:
            _clean_up(admin, name)


def _clean_up(admin: Admin, name: str) -> None:
    try:
        admin.delete_topics(name, timeout=_DELETE_PATIENCE_S)
    except KohortError as error:
        print(f"kohort: topic {name} stays: {error}; kohort topics delete {name}", file=sys.stderr)
    deadline_s = time.monotonic() + _DELETE_PATIENCE_S
    while name in {each.group_id for each in admin.list_groups()}:
        try:
            admin.delete_groups(name, timeout=_DELETE_PATIENCE_S)
        except KohortError as error:  # a member that has just left may still count
            if time.monotonic() > deadline_s:
                print(f"kohort: group {name} stays: {error}; kohort groups delete {name}", file=sys.stderr)
                return
            time.sleep(0.1)


def payloads(size: int) -> list[bytes]:
    """Returns some values of this size: random letters, as kafka-producer-perf-test makes them."""
    chance = random.Random(size)
    return [bytes(chance.choices(_LETTERS, k=size)) for _ in range(_PAYLOADS)]
