"""The functions of the user that are called when partitions are assigned, revoked or lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kohort.client.core.arguments import function
from kohort.client.group.callbacks import CallbackKind
from kohort.client.types import TopicPartition

RebalanceCallback = Callable[[list[TopicPartition]], Any]


@dataclass(slots=True)
class RebalanceListener:
    """The user's callbacks. Without `on_lost`, lost partitions go to `on_revoked` as in Kafka."""

    on_assigned: RebalanceCallback | None = None
    on_revoked: RebalanceCallback | None = None
    on_lost: RebalanceCallback | None = None

    def function(self, kind: CallbackKind) -> RebalanceCallback | None:
        if kind is CallbackKind.ASSIGNED:
            return self.on_assigned
        if kind is CallbackKind.LOST and self.on_lost is not None:
            return self.on_lost
        return self.on_revoked

    def __post_init__(self) -> None:
        for name in ("on_assigned", "on_revoked", "on_lost"):
            function(getattr(self, name), f"{name}, which gets a list of partitions,")
