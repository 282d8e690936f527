"""Directories and files on disk, and the protocols that those in memory follow as well; the pool of open files.

Segments, recovery, retention and compaction use the protocols `Directory` and `File`. Those on disk are here, those in
memory in `memory.py`. Tests inject faults with a directory of their own that follows the same protocol.

Everything here is used on one thread (the event loop's), except a file that was pinned there before: its descriptor
stays open until `unpin`, so another thread may `sync` and `pread` it. A background job that needs files of its own
opens them with `private=True`, which keeps them out of the pool, and closes them.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections import deque
from pathlib import Path
from typing import Protocol

from kohort.log.storage.system_calls import open_files_limit, read_into, sync_all, sync_data


class Slice:
    """A piece of a file that a fetch returns: read it by `chunks()`, or send it from `file.fd` at `position`.

    Pin the file before control returns to the event loop, and unpin it when the bytes are sent.
    """

    __slots__ = ("file", "length", "position")

    def __init__(self, file: File, position: int, length: int) -> None:
        self.file = file
        self.position = position
        self.length = length

    def __len__(self) -> int:
        return self.length

    def chunks(self) -> list[bytes | memoryview]:
        return self.file.chunks(self.position, self.length)


class File(Protocol):
    """A file that grows at its end, on disk or in memory."""

    size: int

    @property
    def path(self) -> str: ...
    @property
    def fd(self) -> int | None:
        """The open descriptor while the file is pinned; None in memory."""

    def append(self, data: memoryview | bytes | bytearray) -> None:
        """Appends all of `data`; after an OSError `size` is unchanged, and `cut_back` must remove what was written."""

    def cut_back(self) -> None:
        """Removes what a failed append left after `size`."""

    def pread(self, position: int, length: int) -> bytes: ...
    def read_into(self, buffer: memoryview, position: int) -> int: ...
    def chunks(self, position: int, length: int) -> list[bytes | memoryview]: ...
    def slice(self, position: int, length: int) -> Slice: ...
    def truncate(self, size: int) -> None: ...
    def sync(self) -> None: ...
    def pin(self) -> None: ...
    def unpin(self) -> None: ...
    @property
    def is_pinned(self) -> bool: ...
    @property
    def may_be_pinned(self) -> bool:
        """False while so many files are pinned that one more would take a descriptor that others need."""

    def close(self) -> None: ...
    def delete(self) -> None:
        """Removes the file from the directory at once; a user who has pinned it may read it until `unpin`."""

    def abandon(self) -> None:
        """Never open the file again, as another may get its name; a user who has pinned it may read on."""


class Directory(Protocol):
    """A directory with files, on disk or in memory."""

    @property
    def path(self) -> str: ...
    def child(self, name: str) -> Directory: ...
    def exists(self) -> bool: ...
    def make(self) -> None:
        """Creates the directory if it is not there. Durable after `sync` of the parent."""

    def names(self) -> list[str]:
        """Returns the names in it; none if it does not exist."""

    def open(self, name: str, *, private: bool = False) -> File:
        """Returns the file of that name; one that is not there is empty, and is created by its first append."""

    def read(self, name: str) -> bytes | None: ...
    def replace(self, name: str, data: bytes, *, sync: bool = True) -> None:
        """Replaces a small file as a whole, durably. Without `sync` a power failure may undo it."""

    def hide(self, name: str) -> None:
        """Lets nobody but the owner read a file, if the system lets us."""

    def rename(self, old: str, new: str) -> None: ...
    def delete(self, name: str) -> None:
        """Deletes a file, if it is there. Use `File.delete` for a file that may be open."""

    def sync(self) -> None: ...
    def sync_parent(self) -> None: ...
    def remove(self) -> None:
        """Removes the directory with all that is in it."""


_MOST_OPEN = 400


def files_that_fit() -> int:
    """Returns how many files a pool keeps open: where the system allows few, connections get the greater part."""
    allowed = open_files_limit()
    return _MOST_OPEN if allowed is None else max(min(_MOST_OPEN, allowed * 2 // 5), 4)


class FilePool:
    """Keeps at most `limit` files open (`files_that_fit` if it is None), and closes those not used lately.

    It uses second chance instead of exact LRU, so a use costs one attribute store. Pinned files are never closed.
    """

    __slots__ = ("_files", "limit", "pinned")

    def __init__(self, limit: int | None = None) -> None:
        self.limit = files_that_fit() if limit is None else limit
        self.pinned = 0
        self._files: deque[DiskFile] = deque()

    def __len__(self) -> int:
        return sum(file.is_open for file in self._files)

    def admit(self, file: DiskFile) -> None:
        if len(self._files) >= self.limit:
            self.make_room()
        self._files.append(file)

    def make_room(self) -> bool:
        """Closes one file; False if all are pinned."""
        files = self._files
        for _ in range(2 * len(files)):
            if not files:
                break
            file = files.popleft()
            if file.is_open and (file.pins or file.used):
                file.used = False
                files.append(file)
                continue
            was_open = file.is_open
            file.close()
            if was_open:
                return True
        return False

    def close(self) -> None:
        for file in self._files:
            file.close()
        self._files.clear()


class DiskFile:
    """A file on disk. It is opened when it is first used, and again after the pool has closed it."""

    __slots__ = ("_fd", "_path", "_pool", "deleted", "pins", "size", "used")

    def __init__(self, path: str, pool: FilePool | None) -> None:
        self._path = path
        self._pool = pool
        self._fd = -1
        self.pins = 0
        self.used = False
        self.deleted = False
        try:
            self.size = os.stat(path).st_size
        except FileNotFoundError:
            self.size = 0

    def __del__(self) -> None:
        if self._fd >= 0:  # no user is left to close it
            os.close(self._fd)

    @property
    def path(self) -> str:
        return self._path

    @property
    def is_open(self) -> bool:
        return self._fd >= 0

    @property
    def is_pinned(self) -> bool:
        return self.pins > 0

    @property
    def may_be_pinned(self) -> bool:
        return self.pins > 0 or self._pool is None or self._pool.pinned < self._pool.limit

    @property
    def fd(self) -> int | None:
        return self._fd if self._fd >= 0 else self._open()

    def _open(self) -> int:
        if self.deleted:  # the name may belong to another file by now
            raise FileNotFoundError(errno.ENOENT, "the file was deleted", self._path)
        create = (
            0 if self.size else os.O_CREAT
        )  # a file that had content and is missing must not be created empty
        flags = os.O_RDWR | create
        try:
            self._fd = fd = os.open(self._path, flags, 0o644)
        except OSError as problem:
            # Many connections have taken the descriptors: one file of the pool is closed instead.
            if problem.errno != errno.EMFILE or self._pool is None or not self._pool.make_room():
                raise
            self._fd = fd = os.open(self._path, flags, 0o644)
        if self._pool is not None:
            self._pool.admit(self)
        return fd

    def append(self, data: memoryview | bytes | bytearray) -> None:
        fd = self._fd
        if fd < 0:
            fd = self._open()
        else:
            self.used = True
        length = len(data)
        written = os.pwrite(fd, data, self.size)
        while written < length:  # the next write raises the error that cut this one short
            more = os.pwrite(fd, memoryview(data)[written:], self.size + written)
            if more == 0:
                raise OSError(errno.EIO, "the file takes no more bytes", self._path)
            written += more
        self.size += length

    def cut_back(self) -> None:
        self.truncate(self.size)

    def pread(self, position: int, length: int) -> bytes:
        fd = self._fd
        if fd < 0:
            fd = self._open()
        else:
            self.used = True
        return os.pread(fd, length, position)

    def read_into(self, buffer: memoryview, position: int) -> int:
        fd = self._fd if self._fd >= 0 else self._open()
        return read_into(fd, buffer, position)

    def chunks(self, position: int, length: int) -> list[bytes | memoryview]:
        return [self.pread(position, length)] if length else []

    def slice(self, position: int, length: int) -> Slice:
        return Slice(self, position, length)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd if self._fd >= 0 else self._open(), size)
        self.size = size

    def sync(self) -> None:
        if self._fd >= 0:
            sync_data(self._fd)
            return
        fd = os.open(self._path, os.O_RDWR)
        try:
            sync_data(fd)
        finally:
            os.close(fd)

    def pin(self) -> None:
        if self._fd < 0:
            self._open()
        self.pins += 1
        if self.pins == 1 and self._pool is not None:
            self._pool.pinned += 1

    def unpin(self) -> None:
        assert self.pins > 0, f"{self._path} is not pinned"
        self.pins -= 1
        if self.pins == 0:
            if self._pool is not None:
                self._pool.pinned -= 1
            if self.deleted or self._pool is None:
                self.close()

    def close(self) -> None:
        if self._fd >= 0 and self.pins == 0:
            os.close(self._fd)
            self._fd = -1

    def delete(self) -> None:
        if not self.deleted:
            try:
                os.unlink(self._path)
            except FileNotFoundError:
                pass
        self.abandon()

    def abandon(self) -> None:
        self.deleted = True
        self.close()


class DiskDirectory:
    """A directory on disk, whose files share a pool of descriptors."""

    __slots__ = ("_path", "pool")

    def __init__(self, path: str | Path, pool: FilePool | None = None) -> None:
        self._path = os.fspath(path)
        self.pool = pool if pool is not None else FilePool()

    @property
    def path(self) -> str:
        return self._path

    def _join(self, name: str) -> str:
        return f"{self._path}/{name}"

    def child(self, name: str) -> DiskDirectory:
        return DiskDirectory(self._join(name), self.pool)

    def exists(self) -> bool:
        return os.path.isdir(self._path)

    def make(self) -> None:
        os.makedirs(self._path, exist_ok=True)

    def names(self) -> list[str]:
        try:
            return os.listdir(self._path)
        except FileNotFoundError:
            return []

    def open(self, name: str, *, private: bool = False) -> DiskFile:
        return DiskFile(self._join(name), None if private else self.pool)

    def read(self, name: str) -> bytes | None:
        try:
            with open(self._join(name), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def replace(self, name: str, data: bytes, *, sync: bool = True) -> None:
        path = self._join(name)
        fd = os.open(path + ".tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            if sync:
                sync_all(fd)
        except OSError:
            self.delete(name + ".tmp")
            raise
        finally:
            os.close(fd)
        os.replace(path + ".tmp", path)
        if sync:
            self.sync()

    def hide(self, name: str) -> None:
        try:
            os.chmod(self._join(name), 0o600)
        except PermissionError:  # the file is somebody else's
            pass

    def rename(self, old: str, new: str) -> None:
        os.replace(self._join(old), self._join(new))

    def delete(self, name: str) -> None:
        try:
            os.unlink(self._join(name))
        except FileNotFoundError:
            pass

    def sync(self) -> None:
        sync_path(self._path)

    def sync_parent(self) -> None:
        sync_path(os.path.dirname(os.path.abspath(self._path)))

    def remove(self) -> None:
        shutil.rmtree(self._path, ignore_errors=True)


def sync_path(path: str) -> None:
    """Makes the names in a directory durable, or all of a file."""
    fd = os.open(path, os.O_RDONLY)
    try:
        sync_all(fd)
    finally:
        os.close(fd)
