"""Reads and changes the users of a node that does not run: the first user is made so, before the first start."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kohort.log.datadir import META, DataDirectory, DirectoryRefused
from kohort.log.registry import Registry


@contextmanager
def stopped_registry(directory: Path, *, create_for: int | None = None) -> Iterator[Registry]:
    """Gives the registry in a data directory, which is locked meanwhile. DirectoryRefused if a broker is running in it.

    A directory that is not there yet is made for the node `create_for`; without it, that is FileNotFoundError.
    """
    if not (directory / META).is_file() and create_for is None:
        raise FileNotFoundError(f"{directory} is not the data directory of a broker: it has no {META}")
    try:
        data = DataDirectory.open(directory, _owner(directory / META, create_for))
    except DirectoryRefused as error:
        raise DirectoryRefused(
            f"{error}. While a broker runs, its users are changed through it: --bootstrap HOST:PORT"
        ) from None
    try:
        registry = Registry.open(data.root)
        try:
            yield registry
        finally:
            registry.close()
        if data.is_new:
            data.write_clean_stop({})  # there is nothing to recover
    finally:
        data.close()


def _owner(meta: Path, create_for: int | None) -> int:
    """Returns the node to which a directory belongs; what is wrong with the file, DataDirectory.open says."""
    try:
        node_id = json.loads(meta.read_bytes())["node_id"]
    except (OSError, ValueError, KeyError, TypeError):
        return 1 if create_for is None else create_for
    return node_id if isinstance(node_id, int) else 1
