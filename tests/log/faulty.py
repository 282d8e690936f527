"""A directory whose disk fills up or fails, around any other directory."""

from __future__ import annotations

import errno
import threading
from dataclasses import dataclass, field

from kohort.log.storage.files import Directory, File, Slice
from tests.log.support import PATIENCE_S


@dataclass
class Faults:
    bytes_left: int | None = None  # the append that goes beyond writes what still fits, then ENOSPC
    fail_sync: bool = False
    fail_truncate: bool = False
    syncs: list[str] = field(default_factory=list)  # names of synced .log files, in order
    gate: threading.Event | None = None  # a sync waits for it
    entered: threading.Event = field(default_factory=threading.Event)  # a sync has begun


class FaultyFile:
    def __init__(self, inner: File, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    @property
    def size(self) -> int:
        return self._inner.size

    def append(self, data: memoryview | bytes | bytearray) -> None:
        left = self._faults.bytes_left
        if left is not None and len(data) > left:
            before = self._inner.size
            self._inner.append(memoryview(data)[:left])
            self._inner.size = before  # as a short write leaves it: bytes behind the size
            self._faults.bytes_left = 0
            raise OSError(errno.ENOSPC, "No space left on device")
        if left is not None:
            self._faults.bytes_left = left - len(data)
        self._inner.append(data)

    def truncate(self, size: int) -> None:
        if self._faults.fail_truncate:
            raise OSError(errno.EIO, "Input/output error")
        self._inner.truncate(size)

    def cut_back(self) -> None:
        self.truncate(self._inner.size)

    def slice(self, position: int, length: int) -> Slice:
        return Slice(self, position, length)  # type: ignore[arg-type]

    def sync(self) -> None:
        gate = (
            self._faults.gate
        )  # before `entered` is told: who hears it may put another gate here for the next sync
        self._faults.entered.set()
        if gate is not None:
            assert gate.wait(PATIENCE_S)
        if self._faults.fail_sync:
            raise OSError(errno.EIO, "Input/output error")
        if self._inner.path.endswith(".log"):
            self._faults.syncs.append(self._inner.path.rsplit("/", 1)[-1])
        self._inner.sync()


class FaultyDirectory:
    def __init__(self, inner: Directory, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def child(self, name: str) -> FaultyDirectory:
        return FaultyDirectory(self._inner.child(name), self._faults)

    def open(self, name: str, *, private: bool = False) -> FaultyFile:
        return FaultyFile(self._inner.open(name, private=private), self._faults)

    def replace(self, name: str, data: bytes, *, sync: bool = True) -> None:
        if self._faults.bytes_left is not None and len(data) > self._faults.bytes_left:
            raise OSError(errno.ENOSPC, "No space left on device")
        self._inner.replace(name, data, sync=sync)
