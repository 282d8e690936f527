"""StoreCatalog: tells the group coordinator which topics the store has."""

from __future__ import annotations

from collections.abc import Iterable

from kohort.coordinator.topic_catalog import CatalogTopic
from kohort.log.store import Store
from kohort.log.topic import Topic


class StoreCatalog:
    """The topics of a store, as they are when they are asked for."""

    __slots__ = ("_store",)

    def __init__(self, store: Store) -> None:
        self._store = store

    def topic(self, name: str) -> CatalogTopic | None:
        return _as_told(self._store.topics.get(name))

    def topic_by_id(self, topic_id: bytes) -> CatalogTopic | None:
        return _as_told(self._store.topics_by_id.get(topic_id))

    def names(self) -> Iterable[str]:
        return self._store.topics


def _as_told(topic: Topic | None) -> CatalogTopic | None:
    return None if topic is None else CatalogTopic(topic.topic_id, topic.name, len(topic.partitions))
