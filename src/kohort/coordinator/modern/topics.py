"""What a group must know of the topics it subscribes to: their ids, and a hash that shows when they change."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b

from kohort.coordinator.topic_catalog import CatalogTopic, TopicCatalog


class NoTopics:
    """A catalog without topics: for a shard whose host has none to tell of."""

    def topic(self, name: str) -> CatalogTopic | None:
        return None

    def topic_by_id(self, topic_id: bytes) -> CatalogTopic | None:
        return None

    def names(self) -> Iterable[str]:
        return ()


def metadata_hash(names: Iterable[str], topics: TopicCatalog) -> int:
    """Returns a number that changes when one of these topics is created, grows or is deleted; 0 if there is none.

    Kafka computes it otherwise. Only whether it changes counts: a group that Kafka has written gets a new target with
    its first heartbeat here.
    """
    digest = blake2b(digest_size=8)
    found = False
    for name in sorted(names):
        topic = topics.topic(name)
        if topic is not None:
            digest.update(_topic_digest(topic))
            found = True
    return int.from_bytes(digest.digest(), "big", signed=True) if found else 0


@lru_cache(maxsize=4096)
def _topic_digest(topic: CatalogTopic) -> bytes:
    return blake2b(repr(topic).encode(), digest_size=16).digest()


def topic_ids(names: Iterable[str], topics: TopicCatalog) -> frozenset[bytes]:
    """Returns the ids of the topics that exist."""
    found = (topics.topic(name) for name in names)
    return frozenset(topic.topic_id for topic in found if topic is not None)
