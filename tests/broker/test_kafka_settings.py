"""No setting of Kafka's is ignored silently: it has an effect, causes a warning, or stops the start with a reason."""

from __future__ import annotations

import pytest

from kohort import Admin
from kohort.broker import running
from kohort.broker.config import BROKER_SETTINGS, BrokerConfig
from kohort.broker.kafka_settings import is_inert, is_of_security, is_refused
from kohort.settings import SettingError

# The broker settings of Apache Kafka 4, without those whose beginning says what they are (sasl., ssl., remote.log.).
_NAMES = """
add.partitions.to.txn.retry.backoff.max.ms add.partitions.to.txn.retry.backoff.ms advertised.listeners
alter.config.policy.class.name alter.log.dirs.replication.quota.window.num
alter.log.dirs.replication.quota.window.size.seconds authorizer.class.name auto.create.topics.enable
auto.leader.rebalance.enable background.threads broker.heartbeat.interval.ms broker.id broker.rack
broker.session.timeout.ms client.quota.callback.class compression.gzip.level compression.lz4.level compression.type
compression.zstd.level config.providers connection.failed.authentication.delay.ms connections.max.idle.ms
connections.max.reauth.ms controlled.shutdown.enable controlled.shutdown.max.retries
controlled.shutdown.retry.backoff.ms controller.listener.names controller.performance.always.log.threshold.ms
controller.performance.sample.period.ms controller.quorum.append.linger.ms controller.quorum.auto.join.enable
controller.quorum.bootstrap.servers controller.quorum.election.backoff.max.ms controller.quorum.election.timeout.ms
controller.quorum.fetch.timeout.ms controller.quorum.request.timeout.ms controller.quorum.retry.backoff.ms
controller.quorum.voters controller.quota.window.num controller.quota.window.size.seconds controller.socket.timeout.ms
cordoned.log.dirs create.topic.policy.class.name default.replication.factor delegation.token.expiry.check.interval.ms
delegation.token.expiry.time.ms delegation.token.max.lifetime.ms delegation.token.secret.key
delete.records.purgatory.purge.interval.requests delete.topic.enable early.start.listeners fetch.max.bytes
fetch.purgatory.purge.interval.requests follower.replication.throttled.rate group.consumer.assignors
group.consumer.heartbeat.interval.ms group.consumer.max.heartbeat.interval.ms group.consumer.max.session.timeout.ms
group.consumer.max.size group.consumer.migration.policy group.consumer.min.heartbeat.interval.ms
group.consumer.min.session.timeout.ms group.consumer.regex.refresh.interval.ms group.consumer.session.timeout.ms
group.coordinator.append.linger.ms group.coordinator.rebalance.protocols group.coordinator.threads
group.initial.rebalance.delay.ms group.max.session.timeout.ms group.max.size group.min.session.timeout.ms
group.share.assignors group.share.delivery.count.limit group.share.enable group.share.heartbeat.interval.ms
group.share.max.record.lock.duration.ms group.share.max.share.sessions group.share.max.size
group.share.partition.max.record.locks group.share.persister.class.name group.share.record.lock.duration.ms
group.share.session.timeout.ms group.streams.heartbeat.interval.ms group.streams.max.size
group.streams.max.standby.replicas group.streams.num.standby.replicas group.streams.session.timeout.ms
initial.broker.registration.timeout.ms inter.broker.listener.name kafka.metrics.polling.interval.secs
kafka.metrics.reporters leader.imbalance.check.interval.seconds leader.imbalance.per.broker.percentage
leader.replication.throttled.rate listener.name.internal.ssl.client.auth listener.security.protocol.map listeners
log.cleaner.backoff.ms log.cleaner.dedupe.buffer.size log.cleaner.delete.retention.ms log.cleaner.enable
log.cleaner.io.buffer.load.factor log.cleaner.io.buffer.size log.cleaner.io.max.bytes.per.second
log.cleaner.max.compaction.lag.ms log.cleaner.min.cleanable.ratio log.cleaner.min.compaction.lag.ms
log.cleaner.threads log.cleanup.policy log.dir log.dir.failure.timeout.ms log.dirs log.flush.interval.messages
log.flush.interval.ms log.flush.offset.checkpoint.interval.ms log.flush.scheduler.interval.ms
log.flush.start.offset.checkpoint.interval.ms log.index.interval.bytes log.index.size.max.bytes
log.initial.task.delay.ms log.local.retention.bytes log.local.retention.ms log.message.timestamp.after.max.ms
log.message.timestamp.before.max.ms log.message.timestamp.type log.preallocate log.retention.bytes
log.retention.check.interval.ms log.retention.hours log.retention.minutes log.retention.ms log.roll.hours
log.roll.jitter.hours log.roll.jitter.ms log.roll.ms log.segment.bytes log.segment.delete.delay.ms
max.connection.creation.rate max.connections max.connections.per.ip max.connections.per.ip.overrides
max.incremental.fetch.session.cache.slots max.request.partition.size.limit message.max.bytes metadata.log.dir
metadata.log.max.record.bytes.between.snapshots metadata.log.max.snapshot.interval.ms metadata.log.segment.bytes
metadata.log.segment.ms metadata.max.idle.interval.ms metadata.max.retention.bytes metadata.max.retention.ms
metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms min.insync.replicas node.id
num.io.threads num.network.threads num.partitions num.recovery.threads.per.data.dir
num.replica.alter.log.dirs.threads num.replica.fetchers offset.metadata.max.bytes offsets.commit.timeout.ms
offsets.load.buffer.size offsets.retention.check.interval.ms offsets.retention.minutes
offsets.topic.compression.codec offsets.topic.num.partitions offsets.topic.replication.factor
offsets.topic.segment.bytes principal.builder.class process.roles producer.id.expiration.check.interval.ms
producer.id.expiration.ms producer.purgatory.purge.interval.requests queued.max.request.bytes queued.max.requests
quota.window.num quota.window.size.seconds remote.fetch.max.wait.ms remote.list.offsets.request.timeout.ms
remote.log.manager.task.interval.ms remote.log.storage.manager.class.name remote.log.storage.system.enable
replica.alter.log.dirs.io.max.bytes.per.second replica.fetch.backoff.ms replica.fetch.max.bytes
replica.fetch.min.bytes replica.fetch.response.max.bytes replica.fetch.wait.max.ms
replica.high.watermark.checkpoint.interval.ms replica.lag.time.max.ms replica.selector.class
replica.socket.receive.buffer.bytes replica.socket.timeout.ms replication.quota.window.num
replication.quota.window.size.seconds request.timeout.ms rlmm.config.remote.log.metadata.topic.num.partitions
rsm.config.dir sasl.enabled.mechanisms sasl.jaas.config sasl.kerberos.service.name sasl.login.class
sasl.mechanism.controller.protocol sasl.mechanism.inter.broker.protocol sasl.oauthbearer.jwks.endpoint.url
sasl.server.callback.handler.class security.inter.broker.protocol security.providers server.max.startup.time.ms
share.coordinator.append.linger.ms share.coordinator.state.topic.min.isr
share.coordinator.state.topic.replication.factor share.fetch.purgatory.purge.interval.requests
socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms socket.listen.backlog.size
socket.receive.buffer.bytes socket.request.max.bytes socket.send.buffer.bytes ssl.client.auth ssl.keystore.location
ssl.principal.mapping.rules super.users telemetry.max.bytes
transaction.abort.timed.out.transaction.cleanup.interval.ms transaction.max.timeout.ms
transaction.partition.verification.enable transaction.remove.expired.transaction.cleanup.interval.ms
transaction.state.log.load.buffer.size transaction.state.log.min.isr transaction.state.log.num.partitions
transaction.state.log.replication.factor transaction.state.log.segment.bytes transaction.two.phase.commit.enable
transactional.id.expiration.ms unclean.leader.election.enable unclean.leader.election.interval.ms
unstable.api.versions.enable unstable.feature.versions.enable
"""


def test_every_setting_of_kafka_is_done_or_warned_about_or_refused() -> None:
    names = _NAMES.split()
    others = {name for name in names if is_inert(name) or is_refused(name) or is_of_security(name)}
    known = others | set(BROKER_SETTINGS.settings)
    assert [name for name in names if name not in known] == []


@pytest.mark.parametrize(
    "setting",
    [
        "authorizer.class.name=com.example.Authorizer",
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required password=hunter2;",
        "listener.name.internal.scram-sha-256.sasl.jaas.config=hunter2",
        "principal.builder.class=com.example.Builder",
        "delegation.token.secret.key=hunter2",
        "create.topic.policy.class.name=com.example.Policy",
        "alter.config.policy.class.name=com.example.Policy",
        "client.quota.callback.class=com.example.Quotas",
        "quota.producer.default=1000000",
        "config.providers=env",
        "remote.log.storage.system.enable=true",
        "group.share.enable=false",
        "group.coordinator.rebalance.protocols=classic,consumer,streams",
        "offsets.topic.replication.factor=3",
        "min.insync.replicas=2",
        "default.replication.factor=3",
        "process.roles=controller",
        "controller.quorum.voters=1@a:9093,2@b:9093,3@c:9093",
        "cordoned.log.dirs=/data",
    ],
)
def test_what_means_something_and_is_not_done_stops_the_start(setting: str) -> None:
    name, _, value = setting.partition("=")
    with pytest.raises(SettingError) as error, running(settings={name: value}):
        pass
    assert name in str(error.value)
    assert "hunter2" not in str(error.value), "logs are read by many"


@pytest.mark.parametrize(
    "setting",
    [
        "security.inter.broker.protocol=SASL_SSL",
        "remote.log.storage.system.enable=false",
        "group.coordinator.rebalance.protocols=classic",
        "offsets.topic.replication.factor=1",
        "controller.quorum.voters=1@localhost:9093",
        "process.roles=broker,controller",
        "log.segment.delete.delay.ms=1",
        "num.io.threads=8",
    ],
)
def test_what_asks_for_nothing_that_is_not_there_is_named_in_a_warning(setting: str) -> None:
    name, _, value = setting.partition("=")
    (warning,) = BrokerConfig.parse({name: value}).warnings
    assert warning.startswith(f"{name} has no effect here")


@pytest.mark.parametrize(
    "setting",
    [
        "super.users=User:admin",
        "allow.everyone.if.no.acl.found=false",
        "sasl.enabled.mechanisms=SCRAM-SHA-512",
        "connections.max.reauth.ms=3600000",
        "ssl.keystore.location=/etc/broker.pem",
        "ssl.client.auth=required",
    ],
)
def test_security_that_no_listener_uses_is_named_in_a_warning(setting: str) -> None:
    name, _, value = setting.partition("=")
    with running(settings={name: value}) as broker:
        warnings = broker.server.broker.config.warnings
    assert [warning for warning in warnings if warning.startswith(f"{name} has no effect here: ")]


def test_a_warning_outlives_dynamic_settings(tmp_path) -> None:
    broker = running(tmp_path, num_io_threads=8)
    with broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.alter_broker_configs({1: {"message.max.bytes": "2000000"}})
    with running(tmp_path, num_io_threads=8) as broker:
        assert "num.io.threads has no effect here" in broker.server.broker.config.warnings


def test_the_file_that_comes_with_kafka_starts_a_broker(tmp_path) -> None:
    """What a single node has in config/server.properties of Kafka 4."""
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.bootstrap.servers": "localhost:9093",
        "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "inter.broker.listener.name": "PLAINTEXT",
        "advertised.listeners": "PLAINTEXT://localhost:0,CONTROLLER://localhost:9093",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
        "num.network.threads": "3",
        "num.io.threads": "8",
        "socket.send.buffer.bytes": "102400",
        "socket.receive.buffer.bytes": "102400",
        "socket.request.max.bytes": "104857600",
        "log.dirs": str(tmp_path / "data"),
        "num.partitions": "1",
        "num.recovery.threads.per.data.dir": "1",
        "offsets.topic.replication.factor": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "log.retention.hours": "168",
        "log.segment.bytes": "1073741824",
        "log.retention.check.interval.ms": "300000",
    }
    with running(settings=settings) as broker:
        warnings = " | ".join(broker.server.broker.config.warnings)
        assert "listener CONTROLLER is left out" in warnings
        assert "process.roles" in warnings
        assert broker.bootstrap_servers.startswith("localhost:")
    assert (tmp_path / "data" / "meta.json").exists()
