"""Translates `ssl.cipher.suites` from Java's names (IANA's) to OpenSSL's."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kohort.settings import SettingError

TLS_1_3 = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})
_JAVA = re.compile(
    r"TLS_(?P<keys>ECDHE_ECDSA|ECDHE_RSA|DHE_RSA|RSA)_WITH_"
    r"(?:AES_(?P<bits>128|256)_(?P<mode>GCM|CBC)_(?P<hash>SHA(?:256|384)?)|(?P<chacha>CHACHA20_POLY1305)_SHA256)"
)


@dataclass(frozen=True, slots=True)
class CipherSuites:
    """What `ssl.cipher.suites` allows."""

    openssl: str
    """For TLS 1.2, as OpenSSL's lists are written; empty: nothing of TLS 1.2."""
    tls_1_3: frozenset[str] | None
    """The suites of TLS 1.3; None: all, because OpenSSL's lists do not speak of them."""


def cipher_suites(names: Sequence[str], what: str = "ssl.cipher.suites") -> CipherSuites:
    """Reads the setting: Java's names, or OpenSSL's, which may be a list with colons."""
    older, newer, are_javas = [], set(), False
    for name in names:
        if name in TLS_1_3:
            newer.add(name)
            are_javas = True
        elif name.startswith("TLS_"):
            older.append(_openssl_name(name, what))
            are_javas = True
        else:
            older.append(name)
    return CipherSuites(":".join(older), frozenset(newer) if are_javas else None)


def _openssl_name(name: str, what: str) -> str:
    found = _JAVA.fullmatch(name)
    if found is None:
        raise SettingError(
            f"{what}: {name} is not known here, or not safe; leave the setting out, or name others"
        )
    keys = "" if found["keys"] == "RSA" else found["keys"].replace("_", "-") + "-"
    if found["chacha"]:
        return f"{keys}CHACHA20-POLY1305"
    mode = "-GCM" if found["mode"] == "GCM" else ""
    return f"{keys}AES{found['bits']}{mode}-{found['hash']}"
