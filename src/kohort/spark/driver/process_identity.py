"""Names a process, so that another one on the same machine can tell whether it still runs and who started it."""

from __future__ import annotations

import os
import socket
from hashlib import blake2s
from pathlib import Path

try:
    import psutil
except ModuleNotFoundError as missing:
    needs = "Members of a group and pipelines need psutil to tell processes apart"
    raise ModuleNotFoundError(f'{needs}: pip install "kohort[spark]" brings it', name=missing.name) from None

TICKS_PER_SECOND = 100


def this_process() -> str:
    """A name for this process that no other has, now or later, as far as this machine can see."""
    return f"{_machine()}.{os.getpid()}.{_started(os.getpid())}"


def process_of(client_id: str) -> str:
    """The name of the process in the client id of a query's member. Of other members it is a text without meaning."""
    return client_id.rpartition("@")[2]


def process_lives(name: str) -> bool:
    """Whether the process of that name runs on this machine. Of other machines nothing is known: False."""
    machine, _, rest = name.partition(".")
    pid, _, started = rest.partition(".")
    is_number = pid.isascii() and pid.isdigit()
    return machine == _machine() and is_number and bool(started) and _started(int(pid)) == started


def is_below(name: str) -> bool:
    """Whether the process of that name runs and was started by this one, or by one that it started."""
    if not process_lives(name):
        return False
    pid, here = int(name.split(".")[1]), os.getpid()
    try:
        return pid == here or any(parent.pid == here for parent in psutil.Process(pid).parents())
    except psutil.Error:
        return False


def _machine() -> str:
    """Stands for the machine, its boot and its name space of process ids."""
    parts = [socket.gethostname()]
    try:
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts.append(str(os.stat("/proc/self/ns/pid").st_ino))
    except OSError:
        pass
    return blake2s("/".join(parts).encode(), digest_size=5).hexdigest()


def _started(pid: int) -> str:
    """When a process started, in hundredths of a second; empty if it is not there or has ended."""
    try:
        process = psutil.Process(pid)
        if process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
            return ""
        started_s = process.create_time()
    except psutil.Error:
        return ""
    if psutil.LINUX:
        # Linux counts from its boot, and psutil adds the time of that, which changes when the clock is set.
        started_s -= psutil.boot_time()
    return str(round(started_s * TICKS_PER_SECOND))
