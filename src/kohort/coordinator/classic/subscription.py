"""The little that a coordinator must know of the consumer protocol: which topics a member subscribes to."""

from __future__ import annotations

import struct
from collections.abc import Iterable

CONSUMER = "consumer"


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all these subscriptions; None if one cannot be read.

    Only the beginning is read (version, topic names): it is the same in every version.
    """
    topics: set[str] = set()
    try:
        for data in set(subscriptions):  # many members of a large group say the same
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
