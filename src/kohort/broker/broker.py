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
from kohort.broker.group_settings import GroupConfigs
from kohort.broker.missing import Missing
from kohort.broker.permissions import Permissions
from kohort.coordinator.group_config import GroupConfig
from kohort.log.partition import Partition
from kohort.log.registry import (
    ClientQuotaSet,
    GroupConfigSet,
    PartitionsAdded,
    RegistryEntry,
    TopicCreated,
    TopicDeleted,
)
from kohort.log.store import Store
from kohort.log.topic import Topic
from kohort.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kohort.broker.call import Call
    from kohort.broker.groups.coordinator import Groups
    from kohort.broker.meter import BrokerMeter
    from kohort.broker.security.guard import BrokerGuard
    from kohort.broker.security.quotas import BrokerQuotas
    from kohort.broker.share.leader import ShareLeader
    from kohort.broker.share.states import ShareStates
    from kohort.broker.transactions.coordinator import BrokerTransactions

T = TypeVar("T")


@dataclass(slots=True)
class Broker(Permissions):
    """One node. Everything here belongs to the event loop's thread."""

    config: BrokerConfig
    store: Store
    host: str  # what clients of the first listener are told
    port: int
    sessions: FetchSessions
    clock: Clock = field(default_factory=Clock)
    missing: Missing = field(default_factory=Missing)
    guard: BrokerGuard | None = None  # None: everybody may come in and do everything
    quotas: BrokerQuotas | None = None  # None: nobody has any
    meter: BrokerMeter | None = None  # only if metrics are served
    # Changes of the registry are made one after the other: plan, persist (off the loop), apply.
    changes: asyncio.Lock = field(default_factory=asyncio.Lock)
    _groups: Groups | None = field(default=None, init=False)
    _group_configs: GroupConfigs = field(init=False)
    _transactions: BrokerTransactions | None = field(default=None, init=False)
    _shares: ShareLeader | None = field(default=None, init=False)
    _share_states: ShareStates | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._group_configs = GroupConfigs(self)

    def group_config(self, group_id: str) -> GroupConfig:
        """Returns the settings in force for a group: its own, else the broker's."""
        return self._group_configs.of(group_id)

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
    def transactions(self) -> BrokerTransactions:
        """The transaction coordinator; made when it is first needed, like the groups."""
        if self._transactions is None:
            from kohort.broker.transactions.coordinator import BrokerTransactions

            self._transactions = BrokerTransactions(self)
        return self._transactions

    @property
    def has_transactions(self) -> bool:
        return self._transactions is not None

    @property
    def shares(self) -> ShareLeader:
        """The share partitions that this node leads; made when they are first needed, like the groups."""
        if self._shares is None:
            from kohort.broker.share.leader import ShareLeader

            self._shares = ShareLeader(self)
        return self._shares

    @property
    def has_shares(self) -> bool:
        return self._shares is not None

    @property
    def share_states(self) -> ShareStates:
        """The share coordinator; made when it is first needed, like the groups."""
        if self._share_states is None:
            from kohort.broker.share.states import ShareStates

            self._share_states = ShareStates(self)
        return self._share_states

    @property
    def has_share_states(self) -> bool:
        return self._share_states is not None

    @property
    def node_id(self) -> int:
        return self.config.node_id

    def now_ms(self) -> int:
        return self.clock.now_ms()

    def address_for(self, call: Call) -> tuple[str, int] | None:
        """Returns the address of this node for a caller: what the listener that the caller came by advertises.

        None if `advertised.listeners` leaves that listener out: its clients are told of no node.
        """
        try:
            told = call.connection.told
        except AttributeError:  # a caller within this process came by no listener
            return self.host, self.port
        return None if told is None else (told.host, told.port)

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
        grown = tuple(topics[entry.topic_id].name for entry in entries if isinstance(entry, PartitionsAdded))
        created = tuple(entry.name for entry in entries if isinstance(entry, TopicCreated))
        deleted_ids = frozenset(entry.topic_id for entry in entries if isinstance(entry, TopicDeleted))
        for entry in entries:
            self.store.apply(entry)
            if self.guard is not None:
                self.guard.applied(entry)
            if isinstance(entry, ClientQuotaSet):
                self._apply_quota(entry)
            elif isinstance(entry, GroupConfigSet):
                self._group_configs.changed(entry.group_id)
        if self.has_groups:
            if deleted:
                self.groups.topics_deleted(deleted)
            if created or grown or deleted:
                self.groups.topics_changed(created + grown + deleted, created=bool(created))
        if deleted_ids and self.has_shares:
            self.shares.topics_deleted(deleted_ids)
        if deleted_ids and self.has_share_states:
            self.share_states.topics_deleted(deleted_ids)
        return None

    def _apply_quota(self, entry: ClientQuotaSet) -> None:
        if self.quotas is None:
            self.load_quotas()
            return
        self.quotas.put(tuple(sorted(entry.entity.items())), entry.values)
        if not self.quotas:
            self.quotas = None

    def load_quotas(self) -> None:
        """Puts the quotas of the registry into force; without any nothing is loaded."""
        if self.store.quotas():
            from kohort.broker.security.quotas import BrokerQuotas

            self.quotas = BrokerQuotas(self)

    async def off_loop(self, work: Callable[[], T]) -> T:
        """Runs what blocks (a durable write) on a worker thread."""
        return await asyncio.get_running_loop().run_in_executor(None, work)
