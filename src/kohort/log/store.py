"""Holds all topics and partitions of a node, opens them at a start and closes them at a stop.

A change of topics or settings has two steps: `persist(entry)` makes it durable (it blocks: call it from a worker
thread), then `apply(entry)` puts it into force, on the loop. A start applies the same entries from the registry's file.

After a clean stop a start reads three small files, whatever the number of partitions; each partition reads its
directory when it is first used. After a crash every partition that has a directory is recovered, and the leader epoch
of the node goes up, so that consumers can find out what was cut (KIP-320).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Container, Mapping
from pathlib import Path

from kohort.log import datadir
from kohort.log.config import TopicConfig
from kohort.log.datadir import (
    DataDirectory,
    PartitionHome,
    StoppedPartition,
    TopicHome,
    new_uuid,
    partition_of,
    uuid_text,
)
from kohort.log.durability.journal_files import Loop
from kohort.log.durability.rounds import FoundRounds, read_rounds, remove_journal
from kohort.log.durability.sync import Syncer
from kohort.log.journal_replay import DamagedJournal, begin_again, put_back
from kohort.log.maintenance.upkeep import Upkeep
from kohort.log.partition import Durability, Partition
from kohort.log.registry import (
    AclCreated,
    EpochBumped,
    PartitionsAdded,
    ProducerIdsReserved,
    QuotaEntityKey,
    Registry,
    RegistryEntry,
    ScramUserSet,
    TopicConfigSet,
    TopicCreated,
    TopicDeleted,
    TopicRow,
)
from kohort.log.storage.files import Directory
from kohort.log.storage.memory import MemoryDirectory
from kohort.log.storage.recovery import CleanState
from kohort.log.topic import Topic
from kohort.settings import SettingError
from kohort.wire.errors import KohortError

log = logging.getLogger(__name__)

PRODUCER_ID_BLOCK = 1000

CallSoon = Callable[[Callable[[], None]], object]


class Store:
    """The topics and partitions of one node. All methods run on the loop's thread, unless they say otherwise."""

    def __init__(
        self,
        data: DataDirectory | None,
        registry: Registry,
        *,
        node_id: int,
        durability: Durability,
        defaults: TopicConfig,
        syncer: Syncer,
        call_soon: CallSoon,
    ) -> None:
        self.node_id = node_id
        self.durability: Durability = durability
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[bytes, Topic] = {}
        self.cluster_id = data.cluster_id if data is not None else uuid_text(new_uuid())
        self.unowned: list[str] = []  # directories that are named like partitions of topics that do not exist
        self._data = data
        self._registry = registry
        self._defaults = defaults
        self._syncer = syncer
        self._ids_lock = threading.Lock()
        self._next_id = self._ids_end = 0
        self._closed = False
        self.upkeep = Upkeep(data.root if data is not None else None, call_soon, syncer.background)

    @staticmethod
    def open(
        directory: Path | None,
        *,
        durability: Durability,
        defaults: TopicConfig,
        now_ms: int,
        call_soon: CallSoon,
        node_id: int = 1,
        on_fatal: Callable[[str], None] = log.critical,
        loop: Loop | None = None,
    ) -> Store:
        """Replays the registry and opens all partitions. `directory` is not used with durability `memory`.

        DirectoryRefused, DamagedRegistry or SettingError say what is wrong. `on_fatal` is called on the loop with the
        reason why the node must stop: after a failed sync nothing can be acknowledged any more. `loop` is the event
        loop of this thread, where `call_soon` runs functions; with it the kernel can write the journal on its own.
        """
        syncer = Syncer(call_soon, on_fatal, loop)
        if durability == "memory":
            return Store(
                None,
                Registry.open(None),
                node_id=node_id,
                durability=durability,
                defaults=defaults,
                syncer=syncer,
                call_soon=call_soon,
            )
        if directory is None:
            raise KohortError(f"durability={durability} needs a directory")
        data = DataDirectory.open(directory, node_id)
        try:
            if durability == "disk":
                data.sync_all()
            else:
                data.note_that_nothing_is_synced()
            registry = Registry.open(data.root, sync=durability == "disk")
            store = Store(
                data,
                registry,
                node_id=node_id,
                durability=durability,
                defaults=defaults,
                syncer=syncer,
                call_soon=call_soon,
            )
            found = read_rounds(data.path)
            store._open_partitions(data, found.offsets())
            store._put_back(data, found, now_ms)
        except BaseException:
            syncer.close()
            data.close()
            raise
        return store

    @property
    def directory(self) -> Path | None:
        return self._data.path if self._data is not None else None

    @property
    def leader_epoch(self) -> int:
        return self._registry.leader_epoch

    @property
    def registry_changes(self) -> int:
        """How many changes of topics, settings, users and so on are in the registry."""
        return self._registry.changes

    def time_journal(self, on_round: Callable[[float], None]) -> None:
        """Has each write of the journal timed, in seconds; without a journal there is nothing to hear."""
        if self._syncer.journal is not None:
            self._syncer.journal.on_round = on_round

    def broker_configs(self, node_id: int | None) -> dict[str, str]:
        """Returns the dynamic settings of a broker, or those for all brokers (None)."""
        return dict(self._registry.broker_configs.get(node_id, {}))

    @property
    def group_configs(self) -> Mapping[str, Mapping[str, str]]:
        """The settings that groups have of their own, by group id."""
        return self._registry.group_configs

    @property
    def client_metrics(self) -> Mapping[str, Mapping[str, str]]:
        """The subscriptions to metrics of clients, by name."""
        return self._registry.client_metrics

    def scram_user(self, user: str, mechanism: int) -> ScramUserSet | None:
        """Returns what checks a user's password by a mechanism, if it has one."""
        return self._registry.scram_users.get((user, mechanism))

    def scram_users(self) -> dict[str, dict[int, int]]:
        """Returns the users with a password: mechanism -> iterations."""
        users: dict[str, dict[int, int]] = {}
        for (user, mechanism), entry in self._registry.scram_users.items():
            users.setdefault(user, {})[mechanism] = entry.iterations
        return users

    @property
    def scram_changes(self) -> int:
        """How often a user was set or removed: what was made of `scram_entries` holds while this is the same."""
        return self._registry.scram_changes

    def scram_entries(self) -> list[ScramUserSet]:
        """Returns what checks the passwords of all users, by all mechanisms."""
        return list(self._registry.scram_users.values())

    def acls(self) -> list[AclCreated]:
        return list(self._registry.acls)

    def quotas(self) -> dict[QuotaEntityKey, dict[str, float]]:
        return dict(self._registry.quotas)

    # Start

    def _open_partitions(self, data: DataDirectory, journaled: dict[tuple[bytes, int], set[int]]) -> None:
        stop = data.take_clean_stop()
        crashed = stop is None and not data.is_new
        if crashed:
            bump = EpochBumped(self._registry.leader_epoch + 1)
            self._registry.append(bump)
            self._registry.apply(bump)
        names = data.subdirectories()
        self._remove_leftovers(data, names)
        for row in self._registry.topics.values():
            topic = self._make_topic(row)
            lefts = (stop or {}).get(row.topic_id, [])
            for index in range(row.partitions):
                left = lefts[index] if index < len(lefts) else None
                name = f"{row.name}-{index}"
                if left is None and name in names:
                    self._check_owner(data, name, topic, names)
                offsets = journaled.get((row.topic_id, index), ())
                self._add_partition(topic, left, has_directory=name in names, journaled=offsets)
                names.discard(name)
        self._report_unowned(data, names)

    def _put_back(self, data: DataDirectory, found: FoundRounds, now_ms: int) -> None:
        """Puts back what the logs have lost and the journal of small appends has; then begin a new journal."""
        if found.damage is not None:
            log.error("%s; records of them that are in the logs are kept", found.damage)
        partitions = put_back(found, self.topics_by_id, now_ms)
        self._syncer.drain()
        for partition, batches in partitions.items():
            # A node with durability disk has acknowledged it, and with durability os nothing else syncs it.
            if self.durability == "os":
                for segment in partition.segments:
                    segment.file.sync()
            if partition.stopped is not None:
                raise DamagedJournal(
                    f"{partition.topic}-{partition.index}: {partition.stopped}; start again: the journal is kept"
                )
            if batches:
                begin_again(partition, batches)
        if self.durability == "disk":
            self._syncer.begin_journal(data.path)
        else:
            remove_journal(data.path)

    def _check_owner(self, data: DataDirectory, name: str, topic: Topic, names: set[str]) -> None:
        """Retires a directory that was made for an earlier topic of that name.

        A directory without an id holds nothing that was acknowledged, as its id is synced before. It may be what is
        left of a deleted topic; if there was no such topic, it is taken for this one's.
        """
        owner = datadir.topic_id_in(data.path / name)
        if owner is None and topic.name in self._registry.deleted.values():
            self._retire(data, name, names)
            data.root.sync()  # it must not come back when the registry has forgotten the deleted topic
        elif owner not in (topic.topic_id, None):
            self._retire(data, name, names)

    def _retire(self, data: DataDirectory, name: str, names: set[str]) -> None:
        """Renames the directory of a deleted topic of the same name, and removes it in the background."""
        names.discard(name)
        self._syncer.background(data.retire(name).remove)

    def _remove_leftovers(self, data: DataDirectory, names: set[str]) -> None:
        for name in [name for name in names if name.endswith(datadir.DELETED)]:
            names.discard(name)
            self._syncer.background(data.root.child(name).remove)
        for name in list(names):
            found = partition_of(name)
            if found is None:
                names.discard(name)  # not a partition
            elif self._registry.deleted and datadir.topic_id_in(data.path / name) in self._registry.deleted:
                self._retire(data, name, names)

    def _report_unowned(self, data: DataDirectory, names: set[str]) -> None:
        self.unowned = sorted(names)
        for name in self.unowned:
            log.warning("%s belongs to no topic and is left alone", data.path / name)

    # Topics

    def persist(self, *entries: RegistryEntry) -> None:
        """Makes entries durable with one write; then `apply` each. Blocks; any thread may call it."""
        self._registry.append(*entries)

    def apply(self, entry: RegistryEntry) -> None:
        """Puts a durable entry into force."""
        self._registry.apply(entry)
        match entry:
            case TopicCreated():
                self._create(self._registry.topics[entry.topic_id])
            case TopicDeleted(topic_id):
                self._delete(self.topics_by_id[topic_id])
            case PartitionsAdded(topic_id, partitions):
                topic = self.topics_by_id[topic_id]
                for _ in range(len(topic.partitions), partitions):
                    self._add_partition(topic, None, has_directory=False)
            case TopicConfigSet(topic_id, overrides):
                topic = self.topics_by_id[topic_id]
                topic.overrides = dict(overrides)
                self._configure(topic)

    def _create(self, row: TopicRow) -> None:
        topic = self._make_topic(row)
        for index in range(row.partitions):
            self._add_partition(topic, None, has_directory=False)
            if self.unowned and self._data is not None and f"{row.name}-{index}" in self.unowned:
                self.unowned.remove(f"{row.name}-{index}")
                self._retire(self._data, f"{row.name}-{index}", set())

    def _make_topic(self, row: TopicRow) -> Topic:
        try:
            config = TopicConfig.parse(row.overrides, self._defaults)
        except SettingError as wrong:
            raise SettingError(f"topic {row.name}: {wrong}") from None
        home: Directory
        if self._data is None:
            home = MemoryDirectory(f"memory:{row.name}")
        else:
            home = TopicHome(self._data.path, self._data.pool, row.topic_id)
        topic = Topic(row.name, row.topic_id, config, row.overrides, home)
        self.topics[row.name] = self.topics_by_id[row.topic_id] = topic
        return topic

    def _add_partition(
        self,
        topic: Topic,
        left: StoppedPartition | None,
        *,
        has_directory: bool,
        journaled: Container[int] = (),
    ) -> None:
        """Opens a partition as a clean stop left it; else recover it if it has a directory, or create it."""
        clean = left.clean if left is not None else None if has_directory else CleanState()
        partition = Partition.open(
            topic.home,
            topic.name,
            len(topic.partitions),
            topic.config,
            durability=self.durability,
            syncer=self._syncer,
            clean=clean,
            leader_epoch=self._registry.leader_epoch,
            journaled=journaled,
        )
        topic.partitions.append(partition)
        topic.due_ms.append(left.due_ms if left is not None else 0)
        topic.seen_end.append(left.clean.log_end_offset if left is not None else -1)

    def _delete(self, topic: Topic) -> None:
        topic.deleted = True
        del self.topics[topic.name], self.topics_by_id[topic.topic_id]
        self.upkeep.forget(topic)
        for partition in topic.partitions:
            partition.deleted = True  # all of them before the first waiting caller is told
        for partition in topic.partitions:
            directory = partition.directory
            if isinstance(directory, PartitionHome):
                directory.retire()
            partition.delete()
            self._syncer.background(directory.remove)

    def _configure(self, topic: Topic) -> None:
        topic.config = TopicConfig.parse(topic.overrides, self._defaults)
        for index, partition in enumerate(topic.partitions):
            partition.config = topic.config
            topic.due_ms[index] = 0

    def set_defaults(self, defaults: TopicConfig) -> None:
        """Uses new defaults for what topics do not set, after a dynamic change of the broker's settings."""
        self._defaults = defaults
        for topic in self.topics.values():
            self._configure(topic)

    def set_upkeep(
        self, *, compacts: bool, max_keys: int, producer_id_expiration_ms: int, retention_interval_ms: int
    ) -> None:
        """Uses the broker's settings for the work in the background."""
        self.upkeep.compacts = compacts
        self.upkeep.max_keys = max_keys
        self.upkeep.producer_id_expiration_ms = producer_id_expiration_ms
        self.upkeep.retention_interval_ms = retention_interval_ms

    # Producers

    def allocate_producer_id(self) -> int:
        """Returns a producer id that was never given before, not even before a crash. May block; for any thread."""
        with self._ids_lock:
            if self._next_id == self._ids_end:
                start = self._registry.next_producer_id
                reserved = ProducerIdsReserved(start + PRODUCER_ID_BLOCK)
                self._registry.append(reserved)
                self._registry.apply(reserved)
                self._next_id, self._ids_end = start, reserved.up_to
            self._next_id += 1
            return self._next_id - 1

    # Background work and end

    def housekeeping(self, now_ms: int) -> None:
        """Begins a round of retention and compaction, in short slices, unless the last round is still running."""
        self.upkeep.start(list(self.topics.values()), now_ms)

    def close(self) -> None:
        """Blocks until all is durable, and writes the clean-stop file."""
        if self._closed:
            return
        self._closed = True
        self.upkeep.close()
        try:
            self._syncer.settle()
            stop = {topic.topic_id: self._close_partitions(topic) for topic in self.topics.values()}
            self._syncer.close()
            if self._data is not None:
                self._data.write_clean_stop(stop)
        finally:  # without the clean-stop file the next start recovers, for which it needs the lock
            self._registry.close()
            if self._data is not None:
                self._data.close()

    def _close_partitions(self, topic: Topic) -> list[StoppedPartition | None]:
        lefts: list[StoppedPartition | None] = []
        for index, partition in enumerate(topic.partitions):
            clean = self._close_partition(partition)
            seen = clean is not None and topic.seen_end[index] == clean.log_end_offset
            lefts.append(
                StoppedPartition(clean, topic.due_ms[index] if seen else 0) if clean is not None else None
            )
        return lefts

    @staticmethod
    def _close_partition(partition: Partition) -> CleanState | None:
        """Closes a partition; None if the next start must recover it."""
        try:
            clean = partition.close()
        except OSError as problem:
            log.error("%s-%d could not be closed cleanly: %s", partition.topic, partition.index, problem)
            return None
        return clean if partition.stopped is None else None
