"""Reads keys and certificates in PEM as Kafka does: blocks in one text, whose lines may have been joined by blanks."""

from __future__ import annotations

import binascii
import contextlib
import os
import re
import tempfile
import textwrap
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass

from kohort.portable import PORTABLE

_BLOCK = re.compile(r"-+BEGIN\s+([^-]*?)\s*-+\s*(.*?)\s*-+END\s+\1\s*-+", re.DOTALL)
_BASE64 = re.compile(r"[A-Za-z0-9+/=\s]*")


@dataclass(frozen=True, slots=True)
class PemBlock:
    """One block of a PEM text: `CERTIFICATE` or some kind of `PRIVATE KEY`, and what it holds."""

    label: str
    body: str

    @property
    def is_certificate(self) -> bool:
        return self.label.endswith("CERTIFICATE")

    @property
    def is_key(self) -> bool:
        return self.label.endswith("PRIVATE KEY")

    @property
    def is_encrypted(self) -> bool:
        return "ENCRYPTED" in self.label or "4,ENCRYPTED" in self.body  # PKCS#8, or the older form

    def der(self) -> bytes:
        """Returns what the block holds; ValueError if it is not in base64."""
        try:
            return b64decode("".join(self.body.split()), validate=True)
        except binascii.Error as error:
            raise ValueError(f"the block {self.label} is not in base64") from error

    def __str__(self) -> str:
        """Returns the block as OpenSSL wants it, in lines; one with headers stays as it is."""
        body = self.body
        if _BASE64.fullmatch(body):
            body = "\n".join(textwrap.wrap("".join(body.split()), 64))
        return f"-----BEGIN {self.label}-----\n{body}\n-----END {self.label}-----\n"

    def __repr__(self) -> str:
        return f"PemBlock({self.label})"  # a key must not get into a log


def pem_blocks(text: str) -> list[PemBlock]:
    """Returns the blocks of a text in their order; what stands between them is passed over, as in Kafka."""
    return [PemBlock(found[1], found[2]) for found in _BLOCK.finditer(text)]


@contextlib.contextmanager
def as_file(text: str) -> Iterator[str]:
    """Gives a path to a text, because OpenSSL takes keys from files only; on Linux it is in memory."""
    if hasattr(os, "memfd_create") and not PORTABLE:
        fd = os.memfd_create("kohort-pem")
        try:
            os.write(fd, text.encode())
            path = f"/proc/self/fd/{fd}"
            if os.path.exists(path):
                yield path
                return
        finally:
            os.close(fd)
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:  # readable for this user alone
        file.write(text)
        file.flush()
        yield file.name
