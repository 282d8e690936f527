"""`kohort verify DIR`: reads and checks every batch of a data directory that no broker uses."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from kohort.log.datadir import META, DataDirectory, partition_of
from kohort.log.durability.rounds import read_rounds
from kohort.log.storage.files import DiskDirectory
from kohort.log.storage.recovery import verify as damages_of
from kohort.settings import SettingError


@click.command(epilog="Example: kohort verify ./data")
@click.argument("directory", metavar="DIR")
def command(directory: str) -> int:
    """Read all segments of a stopped broker's directory and report damaged batches."""
    return verify(directory)


def verify(directory: str) -> int:
    """Prints one line per damaged batch; 0 if there is none."""
    path = Path(directory)
    if not (path / META).is_file():
        raise SettingError(f"{directory} is not the data directory of a broker: it has no {META}")
    found = partitions = 0
    # The lock keeps a broker from starting meanwhile, and this command from reading what a broker is writing.
    data = DataDirectory.open(path, json.loads((path / META).read_bytes()).get("node_id", 1))
    try:
        names = sorted(data.subdirectories())
        for number, name in enumerate(names, 1):
            owner = partition_of(name)
            if owner is None:
                continue
            if sys.stderr.isatty():
                print(f"\r{number}/{len(names)} {name}".ljust(78)[:78], end="", file=sys.stderr, flush=True)
            partitions += 1
            for damage in damages_of(DiskDirectory(path / name), *owner):
                found += 1
                print(damage)
    finally:
        data.close()
    if sys.stderr.isatty():
        print("\r".ljust(79), end="\r", file=sys.stderr)
    journal = read_rounds(path)
    if journal.damage is not None:
        found += 1
        print(journal.damage)
    if journal.rounds:
        batches = sum(len(one.entries) for one in journal.rounds)
        print(
            f"the broker was not stopped: its next start puts back what logs miss of {batches} batches in the journal"
        )
    print(f"{partitions} partitions read, {found} damaged batches")
    return 1 if found else 0
