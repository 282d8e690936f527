"""Lists the settings of Kafka that Kohort does not have: those without effect here, and those that are refused.

A setting that only tunes a JVM, a cluster or a missing feature causes a warning. One that would change permissions,
what clients see or what is kept is refused: a broker that ignored it would not be the one that the user asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kohort.settings import SettingError

INERT = (
    "alter.log.dirs.", "auto.include.jmx.reporter", "auto.leader.rebalance.enable",
    "background.threads", "broker.heartbeat.", "broker.id.generation.enable", "broker.rack",
    "broker.session.timeout.ms",
    "control.plane.listener.name", "controlled.shutdown.", "controller.", "delegation.token.",
    "delete.records.purgatory.", "early.start.listeners", "eligible.leader.replicas.", "fetch.purgatory.",
    "follower.fetch.", "follower.replication.", "group.consumer.assignor.offload.enable", "group.coordinator.",
    "group.share.assignor", "group.share.persister.", "group.streams.",
    "initial.broker.registration.", "inter.broker.", "internal.metadata.", "kafka.metrics.",
    "leader.imbalance.", "leader.replication.", "log.cleaner.io.buffer.size",
    "log.cleaner.io.max.bytes.per.second", "log.cleaner.threads", "log.dir.failure.timeout.ms", "log.flush.",
    "log.initial.task.delay.ms", "log.local.retention.", "log.preallocate", "log.segment.delete.delay.ms",
    "metadata.", "metric.", "metrics.", "num.io.threads", "num.network.threads",
    "num.recovery.threads.per.data.dir", "num.replica.", "offsets.commit.timeout.ms",
    "offsets.load.buffer.size", "offsets.topic.compression.codec", "offsets.topic.replication.factor",
    "password.encoder.", "process.roles", "producer.id.expiration.check.interval.ms", "producer.purgatory.",
    "queued.max.", "remote.", "replica.", "replication.quota.", "request.timeout.ms",
    "reserved.broker.max.id", "rlmm.config.", "rsm.config.", "sasl.kerberos.",
    "sasl.login.", "security.inter.broker.protocol",
    "server.max.startup.", "share.", "socket.connection.setup.timeout.", "telemetry.",
    "transaction.partition.verification.enable", "transaction.state.log.load.buffer.size",
    "transaction.state.log.min.isr", "transaction.state.log.replication.factor",
    "unclean.leader.election.", "unstable.", "zookeeper.",
)  # fmt: skip
"""Settings of Kafka, or beginnings of their names, that a single Python node has no use for."""

_WHY_INERT = (
    (("log.flush.",), "durability says when data is on disk"),
    (("group.consumer.assignor.offload.enable",), "the target of a group is computed where it is needed"),
    (("group.share.assignor",), "the assignor of share groups is `simple`"),
    (("group.share.persister.",), "a Java class cannot be run here"),
    (("share.",), "one node keeps the state of its share groups itself"),
    (("group.streams.",), "there are no streams groups yet"),
    (("process.roles", "controller.", "metadata."), "one node needs no quorum of controllers"),
    (("zookeeper.",), "one node needs no ZooKeeper"),
    (("remote.", "rsm.config.", "rlmm.config.", "log.local.retention."), "there is no tiered storage"),
)

_LOGINS = ("sasl.kerberos.", "sasl.login.")  # they only tune what other settings switch on

_UNKNOWN_SECURITY = (
    "the broker does not have this part of Kafka's security, and would be less safe than you ask for. "
    "Take it out; docs/security.md names what there is"
)
_JAAS = "sasl.jaas.config"
_ONE_COPY = "a single node holds one copy of everything; set it to 1, or take it out"
_ALONE = "Kohort runs as a single node: it would know of no other. Name this node alone, or take it out"
_JAVA = "a Java class cannot be run here. Take it out"


@dataclass(frozen=True, slots=True)
class _Refusal:
    names: tuple[str, ...]
    """Names of settings; those that end with a dot are the beginnings of names."""
    why: str
    harmless: tuple[str, ...] = ()
    """Values that switch nothing on, such as Kafka's default."""


_REFUSED = (
    _Refusal(("principal.builder.class",), _JAVA),
    _Refusal((_JAAS,), f"say for which listener and mechanism: listener.name.lan.plain.{_JAAS}, for example"),
    _Refusal(("sasl.", "ssl.", "security.providers"), _UNKNOWN_SECURITY),
    _Refusal(("delegation.token.secret.key", "delegation.token.master.key"), _UNKNOWN_SECURITY),
    _Refusal(
        ("create.topic.policy.class.name", "alter.config.policy.class.name", "client.quota.callback.class"),
        _JAVA,
    ),
    _Refusal(
        ("config.providers", "config.providers."), "values are taken as they stand. Write them out instead"
    ),
    _Refusal(
        ("quota.producer.default", "quota.consumer.default"),
        "Kafka 4 does not have it either. Take it out, and set the default by AlterClientQuotas: "
        "kafka-configs --alter --add-config producer_byte_rate=… --entity-type clients --entity-default",
        (str(2**63 - 1),),
    ),
    _Refusal(("remote.log.storage.system.enable",), "there is no tiered storage. Take it out", ("false",)),
    _Refusal(("cordoned.log.dirs",), "there is one data directory. Take it out"),
    _Refusal(("group.share.enable",), "share groups are always there. Take it out", ("true",)),
    _Refusal(
        ("group.coordinator.rebalance.protocols",),
        "there are no streams groups. Set it to classic,consumer,share, or take it out",
        (
            "classic",
            "consumer",
            "classic,consumer",
            "consumer,classic",
            "classic,share",
            "classic,consumer,share",
        ),
    ),
    _Refusal(
        (
            "offsets.topic.replication.factor",
            "min.insync.replicas",
            "transaction.state.log.replication.factor",
            "transaction.state.log.min.isr",
        ),
        _ONE_COPY,
        ("1",),
    ),
    _Refusal(
        ("transaction.two.phase.commit.enable",),
        "there is no two-phase commit (KIP-939). Take it out",
        ("false",),
    ),
    _Refusal(
        ("transaction.partition.verification.enable",),
        "a batch of a transaction is always verified. Take it out",
        ("true",),
    ),
)


def is_inert(name: str) -> bool:
    return name.startswith(INERT) and not name.startswith("controller.quota.")


def why_inert(name: str) -> str:
    """Returns the warning about a setting that has no effect."""
    for beginnings, why in _WHY_INERT:
        if name.startswith(beginnings):
            return f"{name} has no effect here: {why}"
    return f"{name} has no effect here"


def is_refused(name: str) -> bool:
    """Tells whether a setting is refused unless its value is harmless."""
    return _refusal(name) is not None


def check_all(settings: Mapping[str, str]) -> None:
    """Raises SettingError for the first setting that matters and is not supported; it says what to do."""
    for name, text in settings.items():
        value = text.strip()
        refusal = _refusal(name)
        if refusal is not None and value and value.lower() not in map(str.lower, refusal.harmless):
            raise SettingError(f"{name}={_shown(name, value)} is not supported: {refusal.why}.")
        if name == "process.roles" and "broker" not in _items(value):
            why = "Kohort is a broker, not a controller. Set it to broker, or take it out."
            raise SettingError(f"process.roles={value} is not supported: {why}")
        if (
            name in ("controller.quorum.voters", "controller.quorum.bootstrap.servers")
            and len(_items(value)) > 1
        ):
            raise SettingError(f"{name} names {len(_items(value))} nodes: {_ALONE}.")


def _refusal(name: str) -> _Refusal | None:
    if name.startswith(_LOGINS) or (name != _JAAS and is_of_security(name)):
        return None
    for refusal in _REFUSED:
        for pattern in refusal.names:
            if name == pattern or (pattern.endswith(".") and name.startswith(pattern)):
                return refusal
    return None


def is_of_security(name: str) -> bool:
    """Tells whether the security of listeners reads the setting (broker/security/listener_settings.py)."""
    if not name.startswith(("sasl.", "ssl.", "listener.name.")):
        return False
    from kohort.broker.security.listener_settings import is_security_setting

    return is_security_setting(name)


def _items(value: str) -> list[str]:
    return [item.strip() for item in value.split(",") if item.strip()]


def _shown(name: str, value: str) -> str:
    """Returns the value as logs may show it: what may be a secret stays out of them."""
    return "…" if name.startswith(("sasl.", "ssl.", "delegation.", "listener.name.")) else value
