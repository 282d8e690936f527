"""Directories and files in memory, with the methods of those in `files.py`: for `durability=memory` and tests."""

from __future__ import annotations

import errno
from bisect import bisect_right

from kohort.log.storage.files import Slice


class MemoryFile:
    """A file of immutable chunks in order, so that what was returned from it never moves or changes."""

    __slots__ = ("_chunks", "_directory", "_name", "_starts", "size")

    def __init__(self, directory: MemoryDirectory, name: str) -> None:
        self._directory = directory
        self._name = name
        self._chunks: list[bytes] = []
        self._starts: list[int] = []
        self.size = 0

    @property
    def path(self) -> str:
        return f"{self._directory.path}/{self._name}"

    @property
    def fd(self) -> int | None:
        return None

    def append(self, data: memoryview | bytes | bytearray) -> None:
        self._directory.keep(self._name, self)
        if len(data):
            self._starts.append(self.size)
            self._chunks.append(bytes(data))
            self.size += len(data)

    def renamed(self, name: str) -> None:
        self._name = name

    def cut_back(self) -> None:
        pass

    def chunks(self, position: int, length: int) -> list[bytes | memoryview]:
        end = min(position + length, self.size)
        found: list[bytes | memoryview] = []
        at = bisect_right(self._starts, position) - 1
        while position < end:
            start, chunk = self._starts[at], self._chunks[at]
            upto = min(end - start, len(chunk))
            whole = position == start and upto == len(chunk)
            found.append(chunk if whole else memoryview(chunk)[position - start : upto])
            position = start + upto
            at += 1
        return found

    def pread(self, position: int, length: int) -> bytes:
        return b"".join(self.chunks(position, length))

    def read_into(self, buffer: memoryview, position: int) -> int:
        at = 0
        for chunk in self.chunks(position, len(buffer)):
            buffer[at : at + len(chunk)] = chunk
            at += len(chunk)
        return at

    def slice(self, position: int, length: int) -> Slice:
        return Slice(self, position, length)

    def truncate(self, size: int) -> None:
        while self._starts and self._starts[-1] >= size:
            self._starts.pop()
            self._chunks.pop()
        if self._starts:
            self._chunks[-1] = self._chunks[-1][: size - self._starts[-1]]
        self.size = min(size, self.size)

    def sync(self) -> None:
        pass

    def pin(self) -> None:
        pass

    @property
    def is_pinned(self) -> bool:
        return False

    @property
    def may_be_pinned(self) -> bool:
        return True

    def unpin(self) -> None:
        pass

    def close(self) -> None:
        pass

    def delete(self) -> None:
        self._directory.forget(self._name, self)

    def abandon(self) -> None:
        pass


class MemoryDirectory:
    """A directory in memory."""

    __slots__ = ("_children", "_files", "_path")

    def __init__(self, path: str = "memory:") -> None:
        self._path = path
        self._files: dict[str, MemoryFile] | None = None
        self._children: dict[str, MemoryDirectory] | None = None

    @property
    def path(self) -> str:
        return self._path

    def child(self, name: str) -> MemoryDirectory:
        if self._children is None:
            self._children = {}
        if name not in self._children:
            self._children[name] = MemoryDirectory(f"{self._path}/{name}")
        return self._children[name]

    def keep(self, name: str, file: MemoryFile) -> None:
        if self._files is None:
            self._files = {}
        self._files.setdefault(name, file)

    def forget(self, name: str, file: MemoryFile) -> None:
        if self._files and self._files.get(name) is file:
            del self._files[name]

    def exists(self) -> bool:
        return bool(self._files or self._children)

    def make(self) -> None:
        pass

    def names(self) -> list[str]:
        return [*(self._files or ()), *(self._children or ())]

    def open(self, name: str, *, private: bool = False) -> MemoryFile:
        file = self._files.get(name) if self._files else None
        return file if file is not None else MemoryFile(self, name)

    def read(self, name: str) -> bytes | None:
        file = self._files.get(name) if self._files else None
        return file.pread(0, file.size) if file is not None else None

    def replace(self, name: str, data: bytes, *, sync: bool = True) -> None:
        file = MemoryFile(self, name)
        if self._files:
            self._files.pop(name, None)
        file.append(data)

    def hide(self, name: str) -> None:
        """Does nothing: nobody but this process sees it."""

    def rename(self, old: str, new: str) -> None:
        if not self._files or old not in self._files:
            raise FileNotFoundError(errno.ENOENT, "no such file", f"{self._path}/{old}")
        file = self._files[new] = self._files.pop(old)
        file.renamed(new)

    def delete(self, name: str) -> None:
        if self._files:
            self._files.pop(name, None)

    def sync(self) -> None:
        pass

    def sync_parent(self) -> None:
        pass

    def remove(self) -> None:
        self._files = self._children = None


EMPTY = Slice(MemoryFile(MemoryDirectory(), "empty"), 0, 0)
