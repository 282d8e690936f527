"""Locks and describes the data directory of a node: its owner, its contents, and how the last run left it.

In it are:

    .lock             locked by the running process, which writes its id into it
    meta.json         format, cluster id, node id
    topics.journal    the registry
    clean-stop        how every partition was left; a start reads and removes it, so a crash leaves none
    unsynced          the last node ran with durability `os`: a start with `disk` must sync everything first
    <topic>-<n>/      a partition, with Kafka's partition.metadata
    <topic>-<n>.<id>-delete/    a partition of a deleted topic, on its way out

A partition finds its directory by name, so the directories of a deleted topic are renamed before a topic of the same
name can be created.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import re
import secrets
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kohort.log.storage.files import DiskDirectory, FilePool, sync_path
from kohort.log.storage.recovery import CleanState
from kohort.log.storage.system_calls import try_lock
from kohort.settings import LONG_MAX
from kohort.wire.errors import KohortError

log = logging.getLogger(__name__)

FORMAT = 1
META, LOCK, CLEAN_STOP, PARTITION_METADATA = "meta.json", ".lock", "clean-stop", "partition.metadata"
UNSYNCED = "unsynced"
DELETED = "-delete"
MAX_NAME = 255  # of a file, in bytes
RESERVED_IDS = (bytes(16), bytes(15) + b"\1")

_PARTITION_NAME = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<index>[0-9]+)")


class DirectoryRefused(KohortError):
    """The data directory cannot be used; the text says why and what to do."""

    what_to_do = "Choose another directory, or stop the broker that uses this one."


def uuid_text(uuid: bytes) -> str:
    """Writes a UUID as Kafka does: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(uuid)[:22].decode()


def uuid_bytes(text: str) -> bytes | None:
    try:
        uuid = base64.urlsafe_b64decode(text + "==")
    except ValueError:
        return None
    return uuid if len(uuid) == 16 else None


def new_uuid() -> bytes:
    """Returns a random UUID whose text does not begin with a dash: Kafka's tools would take it for an option."""
    while True:
        uuid = secrets.token_bytes(16)
        if uuid not in RESERVED_IDS and not uuid_text(uuid).startswith("-"):
            return uuid


def partition_of(name: str) -> tuple[str, int] | None:
    """Returns the topic and partition that a directory is named after; None if it is not one of a partition."""
    found = _PARTITION_NAME.fullmatch(name)
    return (found["topic"], int(found["index"])) if found else None


def name_of_deleted(name: str, topic_id: bytes) -> str:
    suffix = f".{topic_id.hex()}{DELETED}"
    return name[: MAX_NAME - len(suffix)] + suffix


class TopicHome(DiskDirectory):
    """The data directory as the partitions of one topic see it: the directories they make carry the topic's id."""

    __slots__ = ("topic_id",)

    def __init__(self, path: str | Path, pool: FilePool, topic_id: bytes) -> None:
        super().__init__(path, pool)
        self.topic_id = topic_id

    def child(self, name: str) -> PartitionHome:
        return PartitionHome(f"{self.path}/{name}", self.pool, self.topic_id)


class PartitionHome(DiskDirectory):
    """The directory of a partition. It carries the topic's id before anything in it is acknowledged."""

    __slots__ = ("_has_id", "_id_is_synced", "topic_id")

    def __init__(self, path: str | Path, pool: FilePool, topic_id: bytes) -> None:
        super().__init__(path, pool)
        self.topic_id = topic_id
        self._has_id = self._id_is_synced = False  # as far as this process knows

    def make(self) -> None:
        """Creates the directory and writes the topic's id, also where a full disk or a power cut has left none."""
        if self._has_id:
            return
        with suppress(FileExistsError):
            os.mkdir(self.path)
        if topic_id_in(self.path) is None:
            with open(f"{self.path}/{PARTITION_METADATA}", "w") as file:
                file.write(f"version: 0\ntopic_id: {uuid_text(self.topic_id)}")
        self._has_id = True

    def sync(self) -> None:
        """Syncs the names, and the first time the id too: a process that died may have written it without a sync."""
        if not self._id_is_synced:
            self.open(PARTITION_METADATA, private=True).sync()
            self._id_is_synced = True
        super().sync()

    def retire(self) -> None:
        """Renames the directory, because its topic is deleted and another may take the name."""
        parent, name = os.path.split(self.path)
        to = f"{parent}/{name_of_deleted(name, self.topic_id)}"
        try:
            os.rename(self.path, to)
        except FileNotFoundError:
            pass  # never used
        self._path = to


def topic_id_in(directory: str | Path) -> bytes | None:
    """Returns the id of the topic that a partition's directory was made for; None if it does not say."""
    try:
        text = Path(directory, PARTITION_METADATA).read_text()
    except (OSError, UnicodeDecodeError):
        return None
    found = re.fullmatch(r"version: 0\ntopic_id: (\S{22})\s*", text)
    return uuid_bytes(found[1]) if found else None


@dataclass(slots=True)
class StoppedPartition:
    """How a clean stop left a partition, and when there may be something to delete or compact in it."""

    clean: CleanState
    due_ms: int


CleanStop = dict[bytes, list[StoppedPartition | None]]
"""Topic id -> its partitions; None for one that must be recovered."""


def _stopped_fields(left: StoppedPartition) -> list[int]:
    """Returns the fields of a partition in the clean-stop file; the last one only if a transaction is open."""
    clean = left.clean
    fields = [clean.log_start_offset, clean.log_end_offset, clean.size, left.due_ms]
    return fields if clean.first_unstable_offset == LONG_MAX else [*fields, clean.first_unstable_offset]


class DataDirectory:
    """The data directory of the running node, locked while it is open."""

    def __init__(self, path: Path, lock_fd: int) -> None:
        self.path = path
        self.pool = FilePool()
        self.root = DiskDirectory(path, self.pool)
        self.is_new = False
        self.cluster_id = ""
        self._lock_fd = lock_fd

    @staticmethod
    def open(path: Path, node_id: int) -> DataDirectory:
        """Locks the directory, and creates it if it is not there; DirectoryRefused if this node must not use it."""
        try:
            path.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise DirectoryRefused(f"{path} is a file; name a directory") from None
        found = DataDirectory(path, _lock(path))
        try:
            found._read_meta(node_id)
        except BaseException:
            found.close()
            raise
        return found

    def _read_meta(self, node_id: int) -> None:
        data = self.root.read(META)
        if data is None:
            self._write_meta(node_id)
            return
        try:
            meta = json.loads(data)
            version, self.cluster_id, owner = meta["version"], meta["cluster_id"], meta["node_id"]
        except (ValueError, KeyError, TypeError):
            raise DirectoryRefused(f"{self.path / META} is damaged; restore it from a backup") from None
        if version > FORMAT:
            raise DirectoryRefused(
                f"{self.path} has format {version}, this version knows {FORMAT}; start the one that wrote it"
            )
        if owner != node_id:
            raise DirectoryRefused(
                f"{self.path} belongs to node {owner}, this is node {node_id}; "
                f"set node.id={owner} or name another directory"
            )

    def _write_meta(self, node_id: int) -> None:
        others = [name for name in self.root.names() if not name.startswith(".") and name != "lost+found"]
        if [name for name in others if name != META + ".tmp"]:
            raise DirectoryRefused(
                f"{self.path} is not empty and has no {META}; name an empty directory or one that Kohort made"
            )
        self.is_new = True
        self.cluster_id = uuid_text(new_uuid())
        meta = {"version": FORMAT, "cluster_id": self.cluster_id, "node_id": node_id}
        self.root.replace(META, json.dumps(meta).encode() + b"\n")
        self.root.sync_parent()

    def take_clean_stop(self) -> CleanStop | None:
        """Returns what `write_clean_stop` wrote, and removes it from the disk."""
        data = self.root.read(CLEAN_STOP)
        if data is None:
            return None
        self.root.delete(CLEAN_STOP)
        self.root.sync()
        crc, _, text = data.partition(b" ")
        if crc != b"%08x" % zlib.crc32(text):
            return None
        return {
            bytes.fromhex(topic_id): [
                left and StoppedPartition(CleanState(*left[:3], *left[4:]), left[3]) for left in partitions
            ]
            for topic_id, partitions in json.loads(text).items()
        }

    def write_clean_stop(self, stop: CleanStop) -> None:
        fields = {
            topic_id.hex(): [left and _stopped_fields(left) for left in partitions]
            for topic_id, partitions in stop.items()
        }
        text = json.dumps(fields, separators=(",", ":")).encode()
        self.root.replace(CLEAN_STOP, b"%08x %s" % (zlib.crc32(text), text))

    def note_that_nothing_is_synced(self) -> None:
        """Notes on disk that this directory is written without syncs from now on, until `sync_all` is called."""
        self.root.replace(UNSYNCED, b"", sync=False)

    def sync_all(self) -> None:
        """Syncs what an earlier run wrote without syncs: a power cut could take it, and what is appended behind it."""
        if self.root.read(UNSYNCED) is None:
            return
        log.info("%s was written without syncs: syncing all of it", self.path)
        for folder, _, files in os.walk(self.path):
            for name in files:
                sync_path(f"{folder}/{name}")
            sync_path(folder)
        self.root.delete(UNSYNCED)
        self.root.sync()

    def subdirectories(self) -> set[str]:
        with os.scandir(self.path) as entries:
            return {entry.name for entry in entries if entry.is_dir(follow_symlinks=False)}

    def retire(self, name: str) -> PartitionHome:
        """Renames the directory of a partition whose topic is deleted; the caller removes it."""
        topic_id = topic_id_in(self.path / name) or new_uuid()
        gone = PartitionHome(self.path / name, self.pool, topic_id)
        gone.retire()
        return gone

    def close(self) -> None:
        self.pool.close()
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1


def _lock(path: Path) -> int:
    fd = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    if not try_lock(fd):
        owner = os.pread(fd, 20, 0).decode(errors="replace").strip()
        os.close(fd)
        raise DirectoryRefused(
            f"{path} is in use by process {owner or '(unknown)'}; stop it or name another directory"
        )
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd
