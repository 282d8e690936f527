"""Reads what a coordinator must know of the consumer protocol: the topics that a member subscribes to."""

from __future__ import annotations

from collections.abc import Iterable

from kohort.wire.compiler.compile import data_codec
from kohort.wire.errors import BadFrame


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """Returns the topics of all these subscriptions; None if one of them cannot be read.

    They are read as version 0: every version begins with its fields.
    """
    topics: set[str] = set()
    decode = data_codec("consumer_protocol_subscription", 0).decode
    for data in set(subscriptions):  # in a large group many are equal
        if data[:1] >= b"\x80":
            return None  # a negative version
        try:
            topics.update(decode(data).topics)
        except BadFrame:
            return None
    return frozenset(topics)
