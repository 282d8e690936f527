"""The checks of `kohort doctor broker [DIR]`: whether this machine is a good home for a broker."""

from __future__ import annotations

import json
import os
import resource
import shutil
import socket
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import click

from kohort import __version__
from kohort.cli.doctor.findings import NOTE, RIGHT, WRONG, Finding, report
from kohort.cli.frame.output import json_option
from kohort.log.datadir import CLEAN_STOP, LOCK, META
from kohort.log.storage.system_calls import try_lock

OLDEST_PYTHON = (3, 11)
FEW_FILES, ENOUGH_FILES = 1_024, 65_536
LOW_BYTES, LOW_SHARE = 1 << 30, 0.1
_PACKAGES = ("uvloop", "numba", "cramjam", "click", "rich")


@click.command(epilog="Example: kohort doctor broker ./kohort-data")
@click.argument("directory", metavar="[DIR]", default="kohort-data", type=click.Path())
@click.option(
    "--listen", metavar="HOST:PORT", default="127.0.0.1:9092", show_default=True, help="Where it will listen."
)
@json_option
def command(directory: str, listen: str, as_json: bool) -> int:
    """Check disk, open files, the data directory, the port, and the versions of Python and packages."""
    host, _, port = listen.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise click.BadParameter("write HOST:PORT", param_hint="--listen")
    return report(check_broker(Path(directory), host.strip("[]"), int(port)), as_json=as_json)


def check_broker(directory: Path, host: str, port: int) -> Iterator[Finding]:
    """All checks."""
    yield _versions()
    yield _open_files()
    yield _disk(directory)
    owner = _owner(directory)
    yield from _directory(directory, owner)
    yield _port(host, port, owner)


def _versions() -> Finding:
    found = [f"kohort {__version__}", f"Python {'.'.join(map(str, sys.version_info[:3]))}"]
    for package in _PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    if sys.version_info < OLDEST_PYTHON:
        return Finding("versions", WRONG, ", ".join(found), "Kohort needs Python 3.11 or newer.")
    return Finding("versions", RIGHT, ", ".join(found))


def _open_files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = ENOUGH_FILES if hard == resource.RLIM_INFINITY else min(hard, ENOUGH_FILES)
    text = f"{soft} may be open, and `kohort serve` raises that to {max(most, soft)}"
    if most < FEW_FILES:
        to_do = "Raise it: `ulimit -Hn 65536`, LimitNOFILE=65536 in a systemd unit."
        return Finding("open files", WRONG, f"{text}: a connection or segment each, that is too few", to_do)
    if most < ENOUGH_FILES // 8:
        return Finding(
            "open files", NOTE, text, "With many connections raise it: LimitNOFILE=65536 in a systemd unit."
        )
    return Finding("open files", RIGHT, text)


def _existing(directory: Path) -> Path:
    """The directory, or the nearest one above it that exists."""
    place = directory.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    return place


def _disk(directory: Path) -> Finding:
    place = _existing(directory)
    usage = shutil.disk_usage(place)
    text = f"{usage.free / (1 << 30):.1f} GB of {usage.total / (1 << 30):.1f} GB are free at {place}"
    if usage.free < LOW_BYTES:
        return Finding("disk", WRONG, text, "Make room, or lower retention.bytes and retention.ms of topics.")
    if usage.free < LOW_SHARE * usage.total:
        return Finding("disk", NOTE, text, "Watch it: a broker whose disk is full stops taking records.")
    return Finding("disk", RIGHT, text)


def _owner(directory: Path) -> str | None:
    """The process that uses the directory; None if none does."""
    try:
        descriptor = os.open(directory / LOCK, os.O_RDWR)
    except OSError:
        return None
    try:
        if try_lock(descriptor):
            return None
        return os.pread(descriptor, 20, 0).decode(errors="replace").strip() or "(unknown)"
    finally:
        os.close(descriptor)  # gives the lock back


def _directory(directory: Path, owner: str | None) -> Iterator[Finding]:
    place = _existing(directory)
    if not place.is_dir():
        yield Finding("directory", WRONG, f"{place} is a file", "Name a directory.")
        return
    if not os.access(place, os.W_OK | os.X_OK):
        yield Finding(
            "directory",
            WRONG,
            f"{place} may not be written by this user",
            "chown it, or start as its owner.",
        )
        return
    if not (directory / META).is_file():
        holds = place == directory.absolute() and any(directory.iterdir())
        if holds:
            text = f"{directory} holds files and is no data directory of Kohort's"
            yield Finding("directory", WRONG, text, "Name an empty or a new directory.")
        else:
            yield Finding("directory", RIGHT, f"{directory} is new: `kohort serve` makes it")
        return
    try:
        meta = json.loads((directory / META).read_bytes())
    except (OSError, ValueError) as error:
        yield Finding(
            "directory", WRONG, f"{directory / META} cannot be read: {error}", "Put it back from a backup."
        )
        return
    node = meta.get("node_id") if isinstance(meta, dict) else None
    yield Finding("directory", RIGHT, f"{directory} has the data of node {node}")
    if owner is not None:
        yield Finding("lock", RIGHT, f"process {owner} uses it now")
    elif (directory / CLEAN_STOP).exists():
        yield Finding("lock", RIGHT, "no process uses it, and the last one stopped in order")
    else:
        text = "no process uses it, and the last one was killed; the lock file that it left does no harm"
        yield Finding(
            "lock", NOTE, text, f"The next start recovers the logs; `kohort verify {directory}` checks them."
        )


def _port(host: str, port: int, owner: str | None) -> Finding:
    where = f"{host}:{port}"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        if owner is not None:
            return Finding("port", RIGHT, f"{where} is taken, and process {owner} uses the directory")
        return Finding(
            "port",
            WRONG,
            f"{where}: {error.strerror or error}",
            "Stop who has it, or name another: --listen.",
        )
    return Finding("port", RIGHT, f"{where} is free")
