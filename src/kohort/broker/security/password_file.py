"""Reads and writes `sasl.credentials.file`; a broker reads it again when it has changed."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from kohort.security.credentials_file import SALT_BYTES, PasswordHash, format_credentials, parse_credentials
from kohort.settings import SettingError

log = logging.getLogger("kohort.broker")


class PasswordFile:
    """The users of one file. `users` looks whether the file is another one than that which was read last."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, int, int] | None = None
        self._users: dict[str, PasswordHash] = {}

    def load(self) -> dict[str, PasswordHash]:
        """Reads the file; SettingError says what is wrong and what to do."""
        try:
            seen = self._stamp()
            text = self.path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
            raise SettingError(
                f"sasl.credentials.file: cannot read {self.path}: {why}. `kohort users add --credentials-file "
                f"{self.path} USER` writes it"
            ) from None
        self._users = parse_credentials(text, str(self.path))
        self._seen = seen
        return self._users

    def users(self) -> Mapping[str, PasswordHash]:
        """Returns the users of now. If the file has become unreadable or wrong, those that were read before it was."""
        try:
            seen = self._stamp()
        except OSError:
            return self._users  # being replaced, or gone: people who may log in are not locked out by a slip
        if seen != self._seen:
            try:
                self.load()
            except SettingError as error:
                self._seen = seen  # said once for each change
                log.error("%s. The users that were read before stay", error)
        return self._users

    def _stamp(self) -> tuple[int, int, int]:
        status = self.path.stat()
        return status.st_mtime_ns, status.st_size, status.st_ino

    # --- what `kohort users` does -----------------------------------------------------------------

    def set(self, user: str, password: str) -> None:
        """Adds a user, or gives it another password. Makes the file if there is none."""
        if not user or not password:
            raise SettingError("a user needs a name and a password that are not empty")
        if "\0" in user + password:
            raise SettingError("SASL PLAIN has no names and no passwords with a NUL in them")
        with self._changing() as users:
            users[user] = PasswordHash.of(password, secrets.token_bytes(SALT_BYTES))

    def remove(self, user: str) -> bool:
        """Removes a user; False if there is no such user."""
        with self._changing() as users:
            return users.pop(user, None) is not None

    @contextmanager
    def _changing(self) -> Iterator[dict[str, PasswordHash]]:
        """Hands out the users, and writes what became of them: whole or not at all.

        A new file is readable for its owner only; one that was there keeps its owner and its permissions.
        """
        users = dict(self.load()) if self.path.exists() else {}
        before = dict(users)
        yield users
        if users == before:
            return
        beside = self.path.with_name(f".{self.path.name}.{secrets.token_hex(4)}")
        try:
            descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "w", encoding="utf-8") as file:
                if self.path.exists():
                    _look_like(self.path, descriptor)
                file.write(format_credentials(users))
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, self.path)
            _sync_directory(self.path.parent)
        except OSError as error:
            with suppress(OSError):
                beside.unlink()
            raise SettingError(f"cannot write {self.path}: {error.strerror}") from None


def _look_like(path: Path, descriptor: int) -> None:
    """Gives a file the permissions and the owner of another, so that a broker of another user goes on reading it."""
    was = path.stat()
    os.fchmod(descriptor, was.st_mode & 0o777)
    with suppress(PermissionError):
        os.fchown(descriptor, was.st_uid, was.st_gid)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
