"""A name for this process, by which another one on the same machine can tell whether it still runs, and whose it is."""

from __future__ import annotations

import os
import socket
from hashlib import blake2s
from pathlib import Path


def this_process() -> str:
    """A name for this process that no other has, now or later, as far as this machine can see."""
    return f"{_machine()}.{os.getpid()}.{_started(os.getpid())}"


def process_lives(name: str) -> bool:
    """Whether the process of that name runs on this machine. Of other machines nothing is known: False."""
    machine, _, rest = name.partition(".")
    pid, _, started = rest.partition(".")
    return machine == _machine() and pid.isdigit() and bool(started) and _started(int(pid)) == started


def is_below(name: str) -> bool:
    """Whether the process of that name runs and was started by this one, or by one that it started."""
    if not process_lives(name):
        return False
    above = int(name.split(".")[1])
    while above > 1:
        if above == os.getpid():
            return True
        above = int((_status(above) or ["", "0"])[1])
    return False


def _machine() -> str:
    """Machine, boot and name space of process ids."""
    parts = [socket.gethostname()]
    try:
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts.append(str(os.stat("/proc/self/ns/pid").st_ino))
    except OSError:
        pass
    return blake2s("/".join(parts).encode(), digest_size=5).hexdigest()


def _started(pid: int) -> str:
    """When a process started, in the kernel's ticks; empty if it is not there or has ended."""
    fields = _status(pid)
    return "" if not fields or fields[0] in "ZX" else fields[19]


def _status(pid: int) -> list[str]:
    """What the kernel says of a process, from its state on; nothing if it is not there."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
