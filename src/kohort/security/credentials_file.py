"""The text of `sasl.credentials.file`: the users of SASL PLAIN with salted hashes of their passwords.

    # comments and empty lines are skipped
    alice $pbkdf2-sha512$210000$<salt, base64>$<hash, base64>
    with%20blank $pbkdf2-sha512$…

A line is a user and a hash, with a blank between them. A user's name is written as in a URL, so that it may have any
characters. `kohort users` writes the file, and a broker reads it again when it has changed.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, unquote

from kohort.settings import SettingError

ITERATIONS = 210_000
SALT_BYTES = 16
_MOST_ITERATIONS = 10_000_000
_LINE = re.compile(
    r"(?P<user>[^\s$]+)[ \t]+\$pbkdf2-sha512\$(?P<iterations>[0-9]{1,9})\$(?P<salt>[^$\s]+)\$(?P<digest>[^$\s]+)"
)
_HEAD = "# The users of SASL PLAIN, with salted hashes of their passwords. Written by `kohort users`.\n"


@dataclass(frozen=True, slots=True)
class PasswordHash:
    """What is kept of a password: enough to check it, not enough to know it."""

    salt: bytes
    digest: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"PasswordHash(iterations={self.iterations})"

    @staticmethod
    def of(password: str, salt: bytes, iterations: int = ITERATIONS) -> PasswordHash:
        """Hashes a password; this takes a tenth of a second on purpose. `salt` is random, of SALT_BYTES bytes."""
        return PasswordHash(salt, _digest(password, salt, iterations), iterations)

    def matches(self, password: str) -> bool:
        """Tells whether it is this password; takes as long as `of`, right or wrong."""
        return hmac.compare_digest(_digest(password, self.salt, self.iterations), self.digest)


def _digest(password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac("sha512", password.encode(), salt, iterations)


def parse_credentials(text: str, where: str = "sasl.credentials.file") -> dict[str, PasswordHash]:
    """Returns the hashes by user; SettingError names the line that is wrong and shows nothing of it."""
    found: dict[str, PasswordHash] = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        user, password = _parse_line(line, f"{where}, line {number}")
        if user in found:
            raise SettingError(f"{where}, line {number}: {user} is there twice; take one of the lines out")
        found[user] = password
    return found


def _parse_line(line: str, where: str) -> tuple[str, PasswordHash]:
    parts = _LINE.fullmatch(line)
    try:
        if parts is None:
            raise ValueError
        user = unquote(parts["user"], errors="strict")
        salt = base64.b64decode(parts["salt"], validate=True)
        digest = base64.b64decode(parts["digest"], validate=True)
        iterations = int(parts["iterations"])
        if not user or not salt or len(digest) != 64 or not 0 < iterations <= _MOST_ITERATIONS:
            raise ValueError
    except (ValueError, binascii.Error):
        raise SettingError(
            f"{where}: this is not a user and a hash. `kohort users` writes such lines; a password is never written "
            "in clear"
        ) from None
    return user, PasswordHash(salt, digest, iterations)


def format_credentials(hashes: Mapping[str, PasswordHash]) -> str:
    """Returns the text of a file with these users, in the order of their names."""
    return _HEAD + "".join(
        f"{quote(user, safe='')} $pbkdf2-sha512${each.iterations}"
        f"${base64.b64encode(each.salt).decode()}${base64.b64encode(each.digest).decode()}\n"
        for user, each in sorted(hashes.items())
    )
