"""Holds a topic and its partitions."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from kohort.log.config import TopicConfig
from kohort.log.partition import Partition
from kohort.log.storage.files import Directory


@dataclass(slots=True, eq=False)
class Topic:
    """A topic of this node, its settings and its partitions."""

    name: str
    topic_id: bytes
    config: TopicConfig
    overrides: dict[str, str]
    home: Directory
    partitions: list[Partition] = field(default_factory=list)
    # When housekeeping must look at a partition again, unless the log end offset has moved since it last did.
    due_ms: array[int] = field(default_factory=lambda: array("q"))
    seen_end: array[int] = field(default_factory=lambda: array("q"))
    deleted: bool = False
