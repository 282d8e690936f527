"""A disk that forgets what was not synced when the power goes.

`Disk.watch` looks at the system calls of this process: what `fsync` and `fdatasync` are asked for, and what goes
through a descriptor opened with O_DSYNC, by a call or by the kernel itself, is remembered as safe. `cut` makes a
directory as the next start could find it: every name and every byte that was not safe may be there or not.

With KOHORT_PORTABLE=1 a round of the journal is a write and a sync of its file, by a thread, never the kernel.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from kohort.log.durability.kernel_writes import KernelWriter
from tests.log.support import PATIENCE_S

Names = dict[str, int]


class Disk:
    def __init__(self, root: Path, *, kernel_writes: bool = False) -> None:
        self.root = root
        self.kernel_writes = kernel_writes  # whether the journal is written by the kernel, not by a thread
        self.synced_files: list[str] = []  # in order; what a test counts
        self.rounds = 0  # writes to the journal that were safe when they returned
        self.gate: threading.Event | None = None  # a sync of a log waits for it
        self._contents: dict[int, bytes] = {}
        self._names: dict[int, Names] = {}
        # Every inode that was seen is kept alive, so that its number is not given to another file.
        self._files: set[int] = set()
        self._folders: dict[int, int] = {}  # inode -> descriptor
        self._links = root.with_name("links")
        self._links.mkdir()
        self._lock = threading.Lock()

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> Disk:
        pwrite: Callable[..., int] = os.pwrite

        def watched_pwrite(fd: int, data: memoryview, position: int) -> int:
            with self._lock:
                written = pwrite(fd, data, position)
                path = os.readlink(f"/proc/self/fd/{fd}")
                if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DSYNC and self._is_ours(path):
                    self.rounds += 1
                    self._keep_piece(path, bytes(data[:written]), position)
                return written

        submit, result = KernelWriter.submit, KernelWriter.result
        pieces: dict[KernelWriter, tuple[str, bytes, int]] = {}

        def watched_submit(writer: KernelWriter, fd: int, address: int, length: int, position: int) -> None:
            flags = fcntl.fcntl(fd, fcntl.F_GETFL)
            submit(writer, fd, address, length, position)
            assert flags & os.O_DSYNC, "else it would not be safe when it is written"
            assert flags & os.O_DIRECT, "else the loop would wait for it"
            path = os.readlink(f"/proc/self/fd/{fd}")
            pieces[writer] = (path, ctypes.string_at(address, length), position)

        def watched_result(writer: KernelWriter, *, wait: bool = False) -> int | None:
            written = result(writer, wait=wait)
            if written is not None:
                path, data, position = pieces.pop(writer)
                with self._lock:
                    if written > 0 and self._is_ours(path):
                        self.rounds += 1
                        self._keep_piece(path, data[:written], position)
            return written

        monkeypatch.setattr(KernelWriter, "submit", watched_submit)
        monkeypatch.setattr(KernelWriter, "result", watched_result)
        monkeypatch.setattr(os, "pwrite", watched_pwrite)
        monkeypatch.setattr(os, "fsync", self._sync)
        monkeypatch.setattr(os, "fdatasync", self._sync)
        return self

    def close(self) -> None:
        for fd in self._folders.values():
            os.close(fd)
        self._folders.clear()

    def go_on_with(self, root: Path) -> None:
        """Watch the next run, in a directory that `cut` made: all that is in it is safe."""
        with self._lock:
            self.root = root
            for folder, _, files in os.walk(root):
                self._names[self._hold(folder)] = self._look(folder)
                for name in files:
                    self._contents[self._hold(f"{folder}/{name}")] = _read(f"{folder}/{name}")

    def _sync(self, fd: int) -> None:
        path = os.readlink(f"/proc/self/fd/{fd}")
        if not self._is_ours(path):
            return
        if self.gate is not None and path.endswith(".log"):
            assert self.gate.wait(PATIENCE_S)
        with self._lock:
            try:
                inode = self._hold(path)
            except FileNotFoundError:
                return  # it was deleted meanwhile
            if inode != os.fstat(fd).st_ino:
                return
            if os.path.isdir(path):
                self._names[inode] = self._look(path)
            else:
                if (
                    path.endswith(".journal")
                    and fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_RDWR
                    and "/appends-" in path
                ):
                    self.rounds += 1
                else:
                    self.synced_files.append(os.path.relpath(path, self.root))
                self._contents[inode] = _read(f"/proc/self/fd/{fd}")

    def _is_ours(self, path: str) -> bool:
        """Tell whether a path is in the watched directory, and not deleted."""
        return path == str(self.root) or (path.startswith(f"{self.root}/") and os.path.exists(path))

    def _hold(self, path: str) -> int:
        """Return the inode of a name, and keep the file alive: other threads and the cleaner rename and delete."""
        if os.path.isdir(path):
            fd = os.open(path, os.O_PATH)
            inode = os.fstat(fd).st_ino
            if inode in self._folders:
                os.close(fd)
            else:
                self._folders[inode] = fd
            return inode
        inode = os.stat(path).st_ino
        if inode not in self._files:
            link = self._links / "new"
            os.link(path, link)
            inode = os.stat(link).st_ino
            if inode in self._files:
                os.unlink(link)
            else:
                os.rename(link, self._links / str(inode))
                self._files.add(inode)
        return inode

    def _keep_piece(self, path: str, data: bytes, position: int) -> None:
        inode = self._hold(path)
        content = bytearray(self._contents[inode])
        content[position : position + len(data)] = data
        self._contents[inode] = bytes(content)

    def _look(self, path: str) -> Names:
        names: Names = {}
        for name in os.listdir(path) if os.path.isdir(path) else ():
            child = f"{path}/{name}"
            try:
                names[name] = inode = self._hold(child)
            except FileNotFoundError:
                continue  # a worker deletes it
            if name.endswith((".swap", ".cleaned")):  # the cleaner, another process, has synced it
                self._contents[inode] = _read(child)
        return names

    def cut(self, target: Path, chance: Random | None = None, *, names_kept: bool = False) -> Path:
        """The directory after a power cut; without `chance` nothing is there that was not synced.

        `names_kept`: no file was synced that need not, but all were created, renamed and deleted.
        """
        with self._lock:
            paths = {self.root.stat().st_ino: str(self.root)}
            for folder, folders, files in os.walk(self.root):
                for name in (*folders, *files):
                    with suppress(FileNotFoundError):  # a worker may be deleting it
                        paths[os.stat(f"{folder}/{name}").st_ino] = f"{folder}/{name}"
            self._copy(self.root.stat().st_ino, paths, target, chance, names_kept)
        return target

    def _copy(
        self, inode: int, paths: dict[int, str], target: Path, chance: Random | None, names_kept: bool
    ) -> None:
        path = paths.get(inode)
        if inode in self._folders or (path is not None and os.path.isdir(path)):
            target.mkdir()
            names = self._names.get(inode, {})
            if path is not None and (names_kept or (chance is not None and chance.random() < 0.7)):
                names = self._look(path)
            for name, child in names.items():
                if name != ".lock":
                    self._copy(child, paths, target / name, chance, names_kept)
            return
        synced = self._contents.get(inode, b"")
        now = _read(path, synced) if path is not None else synced
        target.write_bytes(synced if chance is None else _maybe(synced, now, chance))


def _maybe(synced: bytes, now: bytes, chance: Random) -> bytes:
    """Return what may be left of a file that was written to after its last sync."""
    if not now.startswith(synced):
        return chance.choice((synced, now))
    length = chance.choice((len(synced), len(now), chance.randint(len(synced), len(now))))
    lost = chance.choice((0, 0, len(now) - length))  # the file has grown, the data did not come
    return now[:length] + bytes(lost)


def _read(path: str, gone: bytes = b"") -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return gone
