"""Maps each leader epoch to the first offset written under it, as Kafka's `leader-epoch-checkpoint` does."""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right

from kohort.log.storage.files import Directory

log = logging.getLogger(__name__)

FILE_NAME = "leader-epoch-checkpoint"
UNKNOWN = (-1, -1)


class Epochs:
    """The leader epochs of one partition. Both columns ascend. Changes are in memory until `save`."""

    __slots__ = ("epochs", "starts")

    def __init__(self) -> None:
        self.epochs: list[int] = []
        self.starts: list[int] = []

    @classmethod
    def load(cls, directory: Directory) -> Epochs:
        found = cls()
        data = directory.read(FILE_NAME)
        if data is None:
            return found
        try:
            version, count, *lines = data.decode("ascii").split("\n")
            if int(version) != 0:
                raise ValueError(f"version {version}")
            for line in lines[: int(count)]:
                epoch, start = map(int, line.split(" "))
                found.assign(epoch, start)
            if len(lines) < int(count):
                raise ValueError(f"{count} entries announced, {len(lines)} found")
        except ValueError as problem:
            log.warning(
                "%s/%s is not usable (%s): epochs are taken from the log", directory.path, FILE_NAME, problem
            )
            return cls()
        return found

    def encode(self) -> bytes:
        lines = [f"{epoch} {start}\n" for epoch, start in zip(self.epochs, self.starts, strict=True)]
        return f"0\n{len(lines)}\n{''.join(lines)}".encode()

    def save(self, directory: Directory) -> None:
        directory.replace(FILE_NAME, self.encode())

    @property
    def latest(self) -> int:
        """The last epoch; -1 if there is none."""
        return self.epochs[-1] if self.epochs else -1

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Notes that an epoch begins at an offset, and drops entries that contradict it; True if anything changed."""
        assert epoch >= 0 <= start_offset, f"epoch {epoch} at {start_offset}"
        if self.epochs and epoch == self.epochs[-1] and start_offset >= self.starts[-1]:
            return False
        while self.epochs and (self.epochs[-1] >= epoch or self.starts[-1] >= start_offset):
            self.epochs.pop()
            self.starts.pop()
        self.epochs.append(epoch)
        self.starts.append(start_offset)
        return True

    def truncate_from_end(self, end_offset: int) -> bool:
        """Drops what begins at or after `end_offset`, where the log now ends; True if anything changed."""
        keep = bisect_left(self.starts, end_offset)
        changed = keep < len(self.starts)
        del self.epochs[keep:], self.starts[keep:]
        return changed

    def truncate_from_start(self, start_offset: int) -> bool:
        """Drops the epochs before `start_offset`, where the log now begins; True if anything changed."""
        older = bisect_right(self.starts, start_offset)
        if older == 0 or (older == 1 and self.starts[0] == start_offset):
            return False
        del self.epochs[: older - 1], self.starts[: older - 1]
        self.starts[0] = start_offset
        return True

    def end_of(self, epoch: int, log_end_offset: int, leader_epoch: int = -1) -> tuple[int, int]:
        """Returns the largest epoch not above `epoch`, and where it ends; (-1, -1) if that is not known.

        Epochs up to the leader's own are known, even if nothing was written under them yet.
        """
        if not 0 <= epoch <= max(self.latest, leader_epoch):
            return UNKNOWN
        if epoch >= self.latest:
            return epoch, log_end_offset
        higher = bisect_right(self.epochs, epoch)
        if higher == 0:  # the records of that epoch are deleted; the reader continues where the log begins
            return epoch, self.starts[0]
        return self.epochs[higher - 1], self.starts[higher]
