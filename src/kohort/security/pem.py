"""Reads PEM text as people put it into settings: on one line, with `\\n` written out, or as it is in a file."""

from __future__ import annotations

import re
import textwrap

from kohort.settings import SettingError

_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_CERTIFICATES = ("CERTIFICATE", "X509 CERTIFICATE", "TRUSTED CERTIFICATE")
_JKS, _JCEKS = b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce"


def pem_blocks(text: str, what: str) -> list[tuple[str, str]]:
    """Returns the blocks of a PEM text, each with its kind, as OpenSSL reads them; SettingError if there is none."""
    blocks = [(found[1], _block(found[1], found[2])) for found in _BLOCK.finditer(text.replace("\\n", "\n"))]
    if not blocks:
        raise SettingError(f"{what} is not PEM: text from -----BEGIN … to -----END …")
    return blocks


def _block(kind: str, body: str) -> str:
    if ":" in body:  # the old form of an encrypted key, with headers: lines matter
        lines = body.strip("\n")
    else:
        lines = "\n".join(textwrap.wrap("".join(body.split()), 64))
    return f"-----BEGIN {kind}-----\n{lines}\n-----END {kind}-----\n"


def certificates_of(text: str, what: str) -> str:
    """Returns the certificates of a PEM text; SettingError if it has none."""
    found = [block for kind, block in pem_blocks(text, what) if kind in _CERTIFICATES]
    if not found:
        raise SettingError(f"{what} has no certificate: a block -----BEGIN CERTIFICATE----- is expected")
    return "".join(found)


def private_key_of(text: str, what: str) -> str:
    """Returns the private key of a PEM text; SettingError if it has none."""
    for kind, block in pem_blocks(text, what):
        if kind.endswith("PRIVATE KEY"):
            return block
    raise SettingError(f"{what} has no private key: a block -----BEGIN PRIVATE KEY----- is expected")


def wrong_store(beginning: bytes) -> str | None:
    """Says which key store of Java's a file is, by its first bytes; None if it may be PEM."""
    if beginning.startswith((_JKS, _JCEKS)):
        return "a JKS"
    if beginning[:1] == b"\x30":
        return "a PKCS12 (or DER)"
    return None
