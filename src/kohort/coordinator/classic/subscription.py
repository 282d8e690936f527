"""Reads the topics of a consumer's subscription, which is all that the coordinator must know of that protocol."""

from __future__ import annotations

import struct
from collections.abc import Iterable

CONSUMER = "consumer"


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """Returns the topics of all these subscriptions; None if one of them cannot be read.

    Only the beginning is read (version, topic names): it is the same in every version.
    """
    topics: set[str] = set()
    try:
        for data in set(subscriptions):  # in a large group many are equal
            version, count = struct.unpack_from(">hi", data)
            if version < 0:
                return None
            pos = 6
            for _ in range(count):
                (size,) = struct.unpack_from(">h", data, pos)
                name = data[pos + 2 : pos + 2 + size]
                if size < 0 or len(name) != size:
                    return None
                topics.add(name.decode())
                pos += 2 + size
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics)
