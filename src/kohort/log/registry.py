"""Keeps the topics, ids, settings, users, ACLs and quotas of a node in a file of changes, which a start replays.

The file `topics.journal` has one line per change: eight hex digits of CRC-32, a space, the entry (or a list) as JSON.
Entries are appended and synced before a request is answered. `Registry.apply` is the only place that changes the
state, while the node runs and at a start.

A line is synced before the next one is written, so after a crash only the last line can be bad: it is cut. A bad line
before a good one is damage that cannot be repaired by guessing, and stops the start.
"""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from kohort.log.storage.files import Directory, File
from kohort.wire.errors import ErrorCode, KafkaError, KohortError

REGISTRY_FILE = "topics.journal"
REWRITE_ABOVE_BYTES = 64 * 1024


class DamagedRegistry(KohortError):
    """The file of the registry cannot be trusted; the text says where it is damaged."""

    what_to_do = "Restore the file that the text names from a copy of the data directory."


@dataclass(frozen=True, slots=True)
class TopicCreated:
    """A topic is created."""

    name: str
    topic_id: bytes
    partitions: int
    overrides: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    """A topic is deleted."""

    topic_id: bytes


@dataclass(frozen=True, slots=True)
class PartitionsAdded:
    """A topic gets more partitions."""

    topic_id: bytes
    partitions: int  # how many there are now


@dataclass(frozen=True, slots=True)
class TopicConfigSet:
    """The settings of a topic change."""

    topic_id: bytes
    overrides: dict[str, str]  # all of them


@dataclass(frozen=True, slots=True)
class BrokerConfigSet:
    """The dynamic settings of a broker change."""

    node_id: int | None  # None: for all brokers
    values: dict[str, str]  # all of them


@dataclass(frozen=True, slots=True)
class GroupConfigSet:
    """The settings that a group has of its own change."""

    group_id: str
    values: dict[str, str]  # all of them; none: it has no settings of its own any more


@dataclass(frozen=True, slots=True)
class ClientMetricsSet:
    """A subscription to metrics of clients (KIP-714) changes."""

    name: str
    values: dict[str, str]  # all of them; none: it is deleted


@dataclass(frozen=True, slots=True)
class ProducerIdsReserved:
    """A block of producer ids is reserved, and never given again."""

    up_to: int  # the first id that is not reserved


@dataclass(frozen=True, slots=True)
class EpochBumped:
    """The leader epoch of the node goes up, after a crash."""

    leader_epoch: int


@dataclass(frozen=True, slots=True)
class ScramUserSet:
    """A user gets a password by one mechanism of SCRAM: what checks it, not the password."""

    user: str
    mechanism: int  # of AlterUserScramCredentials
    salt: str  # this and the keys in hex
    stored_key: str
    server_key: str
    iterations: int

    def __repr__(self) -> str:
        return f"ScramUserSet({self.user!r}, {self.mechanism})"


@dataclass(frozen=True, slots=True)
class ScramUserRemoved:
    """A user loses its password by one mechanism of SCRAM."""

    user: str
    mechanism: int


@dataclass(frozen=True, slots=True)
class AclCreated:
    """An ACL is made; the numbers are those of CreateAcls."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int


@dataclass(frozen=True, slots=True)
class AclDeleted:
    """An ACL is deleted."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int


@dataclass(frozen=True, slots=True)
class ClientQuotaSet:
    """The quotas of an entity change."""

    entity: dict[str, str | None]  # type -> name; None: the default of this type
    values: dict[str, float]  # all of them


RegistryEntry = (
    TopicCreated
    | TopicDeleted
    | PartitionsAdded
    | TopicConfigSet
    | BrokerConfigSet
    | GroupConfigSet
    | ClientMetricsSet
    | ProducerIdsReserved
    | EpochBumped
    | ScramUserSet
    | ScramUserRemoved
    | AclCreated
    | AclDeleted
    | ClientQuotaSet
)

QuotaEntityKey = tuple[tuple[str, str | None], ...]
"""An entity of quotas: its types and names, sorted by type."""

_KINDS: dict[str, type[RegistryEntry]] = {
    "topic_created": TopicCreated,
    "topic_deleted": TopicDeleted,
    "partitions_added": PartitionsAdded,
    "topic_config_set": TopicConfigSet,
    "broker_config_set": BrokerConfigSet,
    "group_config_set": GroupConfigSet,
    "client_metrics_set": ClientMetricsSet,
    "producer_ids_reserved": ProducerIdsReserved,
    "epoch_bumped": EpochBumped,
    "scram_user_set": ScramUserSet,
    "scram_user_removed": ScramUserRemoved,
    "acl_created": AclCreated,
    "acl_deleted": AclDeleted,
    "client_quota_set": ClientQuotaSet,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def encode_entry(*entries: RegistryEntry) -> bytes:
    """Encodes one line of the file. Several entries share its CRC: a crash leaves all of them or none."""
    rows = [_fields(entry) for entry in entries]
    text = json.dumps(rows[0] if len(rows) == 1 else rows, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _fields(entry: RegistryEntry) -> dict[str, Any]:
    fields: dict[str, Any] = {"type": _NAMES[type(entry)], **asdict(entry)}
    if "topic_id" in fields:
        fields["topic_id"] = fields["topic_id"].hex()
    return fields


def decode_entries(line: bytes) -> list[RegistryEntry] | None:
    """Decodes a line (without its newline); None if it is damaged, DamagedRegistry if another version wrote it."""
    crc, _, text = line.partition(b" ")
    if crc != b"%08x" % zlib.crc32(text):
        return None
    try:
        found = json.loads(text)
        return [_entry(fields) for fields in (found if isinstance(found, list) else [found])]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedRegistry(
            f"{REGISTRY_FILE} has an entry of another version: {text.decode(errors='replace')}; "
            "start the version that wrote it"
        ) from error


def _entry(fields: dict[str, Any]) -> RegistryEntry:
    kind = _KINDS[fields.pop("type")]
    if "topic_id" in fields:
        fields["topic_id"] = bytes.fromhex(fields["topic_id"])
    return kind(**fields)


@dataclass(slots=True)
class TopicRow:
    """A topic as the registry has it."""

    name: str
    topic_id: bytes
    partitions: int
    overrides: dict[str, str]


def _set_or_drop(configs: dict[str, dict[str, str]], name: str, values: dict[str, str]) -> None:
    if values:
        configs[name] = dict(values)
    else:
        configs.pop(name, None)


class Registry:
    """The state that the entries make. `append` makes an entry durable (any thread), `apply` uses it (loop)."""

    def __init__(self) -> None:
        self.topics: dict[bytes, TopicRow] = {}
        self.deleted: dict[bytes, str] = {}  # ids that are still in the file, and the names they had
        self.broker_configs: dict[int | None, dict[str, str]] = {}
        self.changes = 0  # entries so far; a start counts those that are still in the file
        self.group_configs: dict[str, dict[str, str]] = {}
        self.client_metrics: dict[str, dict[str, str]] = {}
        self.next_producer_id = 0  # the first one that is not reserved
        self.leader_epoch = 0
        self.scram_users: dict[tuple[str, int], ScramUserSet] = {}
        self.scram_changes = 0  # how often a user was set or removed
        self.acls: dict[AclCreated, None] = {}
        self.quotas: dict[QuotaEntityKey, dict[str, float]] = {}
        self._file: File | None = None
        self._sync = True
        self._failed: str | None = None
        self._lock = threading.Lock()

    @staticmethod
    def open(directory: Directory | None, *, sync: bool = True) -> Registry:
        """Replays the file in `directory`; None keeps everything in memory."""
        registry = Registry()
        if directory is None:
            return registry
        registry._sync = sync
        data = directory.read(REGISTRY_FILE) or b""
        good = registry._replay(data, f"{directory.path}/{REGISTRY_FILE}")
        live = b"".join(encode_entry(entry) for entry in registry.live_entries())
        if good > REWRITE_ABOVE_BYTES and good >= 2 * len(live):
            directory.replace(REGISTRY_FILE, live)
            good = len(live)
        registry._file = directory.open(REGISTRY_FILE, private=True)
        if registry._file.size != good:
            registry._file.truncate(good)
        if not data:
            registry._file.append(b"")
            registry._file.sync()
            directory.sync()
        directory.hide(REGISTRY_FILE)  # it has the keys of users
        return registry

    def append(self, *entries: RegistryEntry) -> None:
        """Makes entries durable with one write and one sync. Blocks; any thread may call it."""
        if self._file is None:
            return
        line = encode_entry(*entries)
        with self._lock:
            if self._failed is not None:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self._failed)
            try:
                self._file.append(line)
                if self._sync:
                    self._file.sync()
            except OSError as error:
                # Nobody knows what of this line is on disk, and a good line behind it would look like damage.
                self._failed = f"{self._file.path} could not be written: {error}; restart the broker"
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self._failed) from error

    def apply(self, entry: RegistryEntry) -> None:
        """Changes the state as the entry says."""
        self.changes += 1
        match entry:
            case TopicCreated(name, topic_id, partitions, overrides):
                self.topics[topic_id] = TopicRow(name, topic_id, partitions, dict(overrides))
            case TopicDeleted(topic_id):
                row = self.topics.pop(topic_id, None)
                self.deleted[topic_id] = row.name if row is not None else ""
            case PartitionsAdded(topic_id, partitions):
                if topic_id in self.topics:
                    self.topics[topic_id].partitions = partitions
            case TopicConfigSet(topic_id, overrides):
                if topic_id in self.topics:
                    self.topics[topic_id].overrides = dict(overrides)
            case BrokerConfigSet(node_id, values):
                self.broker_configs[node_id] = dict(values)
            case ProducerIdsReserved(up_to):
                self.next_producer_id = max(self.next_producer_id, up_to)
            case EpochBumped(leader_epoch):
                self.leader_epoch = max(self.leader_epoch, leader_epoch)
            case GroupConfigSet(group_id, values):
                _set_or_drop(self.group_configs, group_id, values)
            case ClientMetricsSet(name, values):
                _set_or_drop(self.client_metrics, name, values)
            case _:
                self._apply_security(entry)

    def _apply_security(self, entry: RegistryEntry) -> None:
        match entry:
            case ScramUserSet(user, mechanism):
                self.scram_users[user, mechanism] = entry
                self.scram_changes += 1
            case ScramUserRemoved(user, mechanism):
                self.scram_users.pop((user, mechanism), None)
                self.scram_changes += 1
            case AclCreated():
                self.acls[entry] = None
            case AclDeleted():
                self.acls.pop(AclCreated(**asdict(entry)), None)
            case ClientQuotaSet(entity, values):
                key = tuple(sorted(entity.items()))
                self.quotas.pop(key, None)
                if values:
                    self.quotas[key] = dict(values)

    def live_entries(self) -> Iterator[RegistryEntry]:
        """Yields the fewest entries that make the same state."""
        yield EpochBumped(self.leader_epoch)
        yield ProducerIdsReserved(self.next_producer_id)
        for node_id, values in self.broker_configs.items():
            if values:
                yield BrokerConfigSet(node_id, values)
        for group_id, values in self.group_configs.items():
            yield GroupConfigSet(group_id, values)
        for name, values in self.client_metrics.items():
            yield ClientMetricsSet(name, values)
        for row in self.topics.values():
            yield TopicCreated(row.name, row.topic_id, row.partitions, row.overrides)
        yield from self.scram_users.values()
        yield from self.acls
        for entity, quotas in self.quotas.items():
            yield ClientQuotaSet(dict(entity), quotas)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _replay(self, data: bytes, path: str) -> int:
        """Applies every good line and returns where they end."""
        position = 0
        while (end := data.find(b"\n", position)) >= 0:
            entries = decode_entries(data[position:end])
            if entries is None:
                break
            for entry in entries:
                self.apply(entry)
            position = end + 1
        if data.find(b"\n", position, len(data) - 1) >= 0:
            number = data.count(b"\n", 0, position) + 1
            raise DamagedRegistry(
                f"{path} is damaged at line {number} (byte {position}) and good lines may follow; "
                "restore the file from a backup, or cut it there to give up what came later"
            )
        return position
