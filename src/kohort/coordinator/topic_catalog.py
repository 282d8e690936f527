"""Says what the coordinator may know of topics: which there are, and how many partitions each has.

The broker answers from its store, the simulator from its own world. When topics are created, grow or are deleted, the
host tells the shards by an event; the catalog already shows the new state then.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol


class CatalogTopic(NamedTuple):
    topic_id: bytes
    name: str
    partitions: int


class TopicCatalog(Protocol):
    def topic(self, name: str) -> CatalogTopic | None: ...

    def topic_by_id(self, topic_id: bytes) -> CatalogTopic | None: ...

    def names(self) -> Iterable[str]:
        """Returns the names of all topics, in any order; internal topics are among them."""
