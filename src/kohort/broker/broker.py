"""Holds what the handlers share: the store, the settings, the clock, the addresses, the groups."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from kohort.broker.clock import Clock
from kohort.broker.config import BrokerConfig
from kohort.broker.fetch_sessions import FetchSessions
from kohort.broker.missing import Missing
from kohort.log.partition import Partition
from kohort.log.registry import RegistryEntry, TopicDeleted
from kohort.log.store import Store
from kohort.log.topic import Topic
from kohort.security.acls import CLUSTER_NAME, AclOperation, AclResource, all_operations
from kohort.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kohort.broker.call import Call
    from kohort.broker.groups.coordinator import Groups
    from kohort.broker.meter import BrokerMeter
    from kohort.broker.security.guard import BrokerGuard
    from kohort.security.authorizer import Authorizer

T = TypeVar("T")


@dataclass(slots=True)
class Broker:
    """One node. Everything here belongs to the event loop's thread."""

    config: BrokerConfig
    store: Store
    host: str  # what clients of the first listener are told
    port: int
    sessions: FetchSessions
    clock: Clock = field(default_factory=Clock)
    missing: Missing = field(default_factory=Missing)
    guard: BrokerGuard | None = None  # None: everybody may come in and do everything
    meter: BrokerMeter | None = None  # only if metrics are served
    # Changes of the registry are made one after the other: plan, persist (off the loop), apply.
    changes: asyncio.Lock = field(default_factory=asyncio.Lock)
    _groups: Groups | None = field(default=None, init=False)

    @property
    def groups(self) -> Groups:
        """The group coordinator; made when it is first needed, so that a broker without groups starts sooner."""
        if self._groups is None:
            from kohort.broker.groups.coordinator import Groups

            self._groups = Groups(self)
        return self._groups

    @property
    def has_groups(self) -> bool:
        return self._groups is not None

    @property
    def node_id(self) -> int:
        return self.config.node_id

    def now_ms(self) -> int:
        return self.clock.now_ms()

    def address_for(self, call: Call) -> tuple[str, int]:
        """Returns the address of this node for a caller: what the listener that the caller came by advertises."""
        told = getattr(call.connection, "told", None)  # a caller within this process came by none
        return (self.host, self.port) if told is None else (told.host, told.port)

    @property
    def authorizer(self) -> Authorizer | None:
        """Who decides about permissions; None: everything is allowed."""
        return None if self.guard is None else self.guard.authorizer

    def may(
        self,
        call: Call,
        operation: AclOperation,
        resource_type: AclResource,
        name: str,
        *,
        audits_denial: bool = True,
    ) -> bool:
        """Tells whether the caller may do this to a resource.

        A denial of what the caller named is audited; one that only shortens a list, or that another right makes up
        for, is not.
        """
        guard = self.guard
        return guard is None or guard.may(call, operation, resource_type, name, audits_denial)

    def may_in_cluster(self, call: Call, operation: AclOperation, *, audits_denial: bool = True) -> bool:
        """Tells whether the caller may do this to the cluster."""
        return self.may(call, operation, AclResource.CLUSTER, CLUSTER_NAME, audits_denial=audits_denial)

    def may_on_some(self, call: Call, operation: AclOperation, resource_type: AclResource) -> bool:
        """Tells whether the caller may do this to some resource of a type."""
        authorizer, caller = self.authorizer, call.connection
        return authorizer is None or authorizer.allows_on_some(
            caller.principal, caller.address, operation, resource_type
        )

    def allowed_operations(self, call: Call, resource_type: AclResource, name: str) -> int:
        """Returns what the caller may do to a resource, a bit for each operation."""
        return (
            self.guard.operations(call, resource_type, name)
            if self.guard is not None
            else all_operations(resource_type)
        )

    def tell_missing(self, call: Call, feature: str, what: str) -> None:
        """Logs that a call is refused because Kohort lacks the feature."""
        peer = getattr(call.connection, "peer", "?")
        self.missing.tell(feature, what, call.client_id, peer, self.clock.steady_ms())

    def partition(self, topic: str, index: int) -> Partition | ErrorCode:
        """Returns a partition by topic name, or why there is none."""
        found = self.store.topics.get(topic)
        return self._partition_of(found, index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def partition_by_id(self, topic_id: bytes, index: int) -> Partition | ErrorCode:
        """Returns a partition by topic id, or why there is none."""
        found = self.store.topics_by_id.get(topic_id)
        return self._partition_of(found, index, ErrorCode.UNKNOWN_TOPIC_ID)

    @staticmethod
    def _partition_of(topic: Topic | None, index: int, unknown: ErrorCode) -> Partition | ErrorCode:
        if topic is None:
            return unknown
        if 0 <= index < len(topic.partitions):
            return topic.partitions[index]
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    async def commit(self, entries: Sequence[RegistryEntry]) -> KafkaError | None:
        """Makes changes durable with one write and applies them; returns what went wrong, if it did; hold `changes`."""
        if not entries:
            return None
        try:
            await self.off_loop(partial(self.store.persist, *entries))
        except KafkaError as error:
            return error
        topics = self.store.topics_by_id
        deleted = tuple(topics[entry.topic_id].name for entry in entries if isinstance(entry, TopicDeleted))
        for entry in entries:
            self.store.apply(entry)
            if self.guard is not None:
                self.guard.applied(entry)
        if deleted and self.has_groups:
            self.groups.topics_deleted(deleted)
        return None

    async def off_loop(self, work: Callable[[], T]) -> T:
        """Runs what blocks (a durable write) on a worker thread."""
        return await asyncio.get_running_loop().run_in_executor(None, work)
