"""The settings of the clients, by Kafka's names, given as a dict or as keywords (`group_id=`).

Values may be given as Kafka writes them ("true", "500") or as Python has them (True, 500, a list, a callable).
An unknown name is an error that names the nearest right one. Kafka's settings that are not here are listed in
core/missing_settings.py.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, TypeVar

from kohort.client.core.metrics import MetricWindow
from kohort.client.core.missing_settings import NOT_OF_SHARE_GROUPS, is_missing
from kohort.client.core.offset_reset import AutoOffsetResetStrategy, reset_strategy
from kohort.client.core.security_settings import (
    SAME_SETTINGS,
    check_security,
    jwt_retriever,
    login_handler,
    shown_settings,
    store_type,
)
from kohort.settings import (
    INT_MAX,
    Kind,
    SettingError,
    Table,
    as_text,
    at_least,
    between,
    list_of,
    nearest,
    one_of,
    setting,
)

_log = logging.getLogger("kohort.client.config")

# Settings that are objects, for all clients: an ssl.SSLContext, and a function that gives a token.
SECURITY_OBJECTS = ("ssl.context", "sasl.oauthbearer.token", "oauth_cb")


@dataclass(frozen=True, slots=True, repr=False)
class ClientConfig:
    """The settings of all clients."""

    METRIC_PREFIX: ClassVar[str] = "client"
    """With what the groups of a client's metrics begin."""

    bootstrap_servers: tuple[str, ...] = setting(
        "bootstrap.servers",
        Kind.LIST,
        (),
        None,
        "host:port of some brokers; the others are learned from these.",
    )
    client_id: str = setting(
        "client.id", Kind.STRING, "kohort", None, "Shown in logs and groups of the broker."
    )
    client_rack: str = setting(
        "client.rack", Kind.STRING, "", None, "Where this client is, so that it fetches from near replicas."
    )
    request_timeout_ms: int = setting(
        "request.timeout.ms", Kind.INT, 30_000, at_least(1), "How long a request may go without its answer."
    )
    default_api_timeout_ms: int = setting(
        "default.api.timeout.ms",
        Kind.INT,
        60_000,
        at_least(0),
        "How long a call without its own timeout may take.",
    )
    retry_backoff_ms: int = setting(
        "retry.backoff.ms", Kind.LONG, 100, at_least(0), "The first wait before a retry."
    )
    retry_backoff_max_ms: int = setting(
        "retry.backoff.max.ms", Kind.LONG, 1_000, at_least(0), "The longest wait before a retry."
    )
    reconnect_backoff_ms: int = setting(
        "reconnect.backoff.ms", Kind.LONG, 50, at_least(0), "The first wait before connecting again."
    )
    reconnect_backoff_max_ms: int = setting(
        "reconnect.backoff.max.ms", Kind.LONG, 1_000, at_least(0), "The longest wait before connecting again."
    )
    metadata_max_age_ms: int = setting(
        "metadata.max.age.ms", Kind.LONG, 300_000, at_least(0), "Metadata of this age is asked for again."
    )
    metadata_recovery_strategy: str = setting(
        "metadata.recovery.strategy", Kind.STRING, "rebootstrap", one_of("none", "rebootstrap"),
        "Whether to begin again with bootstrap.servers when no known broker answers.",
    )  # fmt: skip
    metadata_recovery_rebootstrap_trigger_ms: int = setting(
        "metadata.recovery.rebootstrap.trigger.ms", Kind.LONG, 300_000, at_least(0),
        "It begins again with bootstrap.servers after this long without any metadata.",
    )  # fmt: skip
    connections_max_idle_ms: int = setting(
        "connections.max.idle.ms",
        Kind.LONG,
        540_000,
        at_least(-1),
        "A connection that was not used for this long is closed.",
    )
    socket_connection_setup_timeout_ms: int = setting(
        "socket.connection.setup.timeout.ms",
        Kind.LONG,
        10_000,
        at_least(1),
        "How long one attempt to connect may take.",
    )
    socket_connection_setup_timeout_max_ms: int = setting(
        "socket.connection.setup.timeout.max.ms",
        Kind.LONG,
        30_000,
        at_least(1),
        "How long an attempt may take after failures.",
    )
    client_dns_lookup: str = setting(
        "client.dns.lookup", Kind.STRING, "use_all_dns_ips",
        one_of("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
        "All addresses of a name are tried in turn.",
    )  # fmt: skip
    send_buffer_bytes: int = setting(
        "send.buffer.bytes", Kind.INT, -1, at_least(-1), "SO_SNDBUF; -1 leaves it to the system."
    )
    receive_buffer_bytes: int = setting(
        "receive.buffer.bytes", Kind.INT, -1, at_least(-1), "SO_RCVBUF; -1 leaves it to the system."
    )
    metrics_sample_window_ms: int = setting(
        "metrics.sample.window.ms",
        Kind.LONG,
        30_000,
        at_least(1),
        "Averages and rates of metrics() are of samples this long.",
    )
    metrics_num_samples: int = setting(
        "metrics.num.samples",
        Kind.INT,
        2,
        at_least(1),
        "Averages and rates of metrics() are of so many samples.",
    )
    security_protocol: str = setting(
        "security.protocol", Kind.STRING, "PLAINTEXT", one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        "How to talk to the brokers.",
    )  # fmt: skip
    sasl_mechanism: str = setting(
        "sasl.mechanism", Kind.STRING, "PLAIN", one_of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
        "How to prove who we are.",
    )  # fmt: skip
    sasl_username: str = setting("sasl.username", Kind.STRING, "", None, "For PLAIN and SCRAM.")
    sasl_password: str = setting(
        "sasl.password", Kind.STRING, "", None, "For PLAIN and SCRAM.", sensitive=True
    )
    sasl_jaas_config: str = setting(
        "sasl.jaas.config", Kind.STRING, "", None,
        "As Java takes it: one login module with its options (username and password; clientId, extension_…, "
        "unsecuredLogin…).",
        sensitive=True,
    )  # fmt: skip
    sasl_oauthbearer_method: str = setting(
        "sasl.oauthbearer.method", Kind.STRING, "default", one_of("default", "oidc"),
        "librdkafka's switch for a token endpoint; here sasl.oauthbearer.token.endpoint.url alone is enough.",
    )  # fmt: skip
    sasl_oauthbearer_token_endpoint_url: str = setting(
        "sasl.oauthbearer.token.endpoint.url", Kind.STRING, "", None,
        "Where tokens come from (OAuth 2's client-credentials grant); file:///… is a file that holds one.",
    )  # fmt: skip
    sasl_oauthbearer_client_credentials_client_id: str = setting(
        "sasl.oauthbearer.client.credentials.client.id", Kind.STRING, "", None,
        "Who asks the token endpoint.",
    )  # fmt: skip
    sasl_oauthbearer_client_credentials_client_secret: str = setting(
        "sasl.oauthbearer.client.credentials.client.secret", Kind.STRING, "", None,
        "Its secret.", sensitive=True,
    )  # fmt: skip
    sasl_oauthbearer_scope: str = setting(
        "sasl.oauthbearer.scope", Kind.STRING, "", None, "The scope to ask the token endpoint for."
    )
    sasl_oauthbearer_header_urlencode: bool = setting(
        "sasl.oauthbearer.header.urlencode", Kind.BOOLEAN, False, None,
        "Whether id and secret are URL-encoded before the token endpoint gets them, as RFC 6749 says.",
    )  # fmt: skip
    sasl_oauthbearer_grant_type: str = setting(
        "sasl.oauthbearer.grant.type", Kind.STRING, "client_credentials", one_of("client_credentials"),
        "How the token endpoint is asked.",
    )  # fmt: skip
    sasl_oauthbearer_extensions: str = setting(
        "sasl.oauthbearer.extensions", Kind.STRING, "", None,
        "What the broker is told besides the token: name=value,name=value.",
    )  # fmt: skip
    sasl_oauthbearer_config: str = setting(
        "sasl.oauthbearer.config", Kind.STRING, "", None,
        "What oauth_cb is called with; for unsecured tokens `principal=ann scope=a,b lifeSeconds=600`.",
        sensitive=True,
    )  # fmt: skip
    enable_sasl_oauthbearer_unsecure_jwt: bool = setting(
        "enable.sasl.oauthbearer.unsecure.jwt", Kind.BOOLEAN, False, None,
        "For tests: tokens that nobody signed are made from sasl.oauthbearer.config.",
    )  # fmt: skip
    sasl_login_callback_handler_class: str = setting(
        "sasl.login.callback.handler.class", Kind.STRING, "", login_handler,
        "OAuthBearerLoginCallbackHandler asks the token endpoint; an …Unsecured… one makes tokens for tests.",
    )  # fmt: skip
    sasl_oauthbearer_jwt_retriever_class: str = setting(
        "sasl.oauthbearer.jwt.retriever.class", Kind.STRING, "", jwt_retriever,
        "ClientCredentialsJwtRetriever, FileJwtRetriever or DefaultJwtRetriever, as the URL says anyway.",
    )  # fmt: skip
    sasl_login_connect_timeout_ms: int = setting(
        "sasl.login.connect.timeout.ms", Kind.INT, 10_000, at_least(1),
        "How long to wait for the token endpoint; the longer of this and the next holds for each step.",
    )  # fmt: skip
    sasl_login_read_timeout_ms: int = setting(
        "sasl.login.read.timeout.ms", Kind.INT, 10_000, at_least(1),
        "How long to wait for its answer.",
    )  # fmt: skip
    sasl_login_retry_backoff_ms: int = setting(
        "sasl.login.retry.backoff.ms", Kind.LONG, 100, at_least(0),
        "The first wait before the token endpoint is asked again; it doubles.",
    )  # fmt: skip
    sasl_login_retry_backoff_max_ms: int = setting(
        "sasl.login.retry.backoff.max.ms", Kind.LONG, 10_000, at_least(0),
        "For how long the token endpoint is asked again before that is an error.",
    )  # fmt: skip
    sasl_login_refresh_window_factor: float = setting(
        "sasl.login.refresh.window.factor", Kind.DOUBLE, 0.8, between(0.5, 1.0),
        "A token is used by all connections until this share of its life is over; then a new one is asked for.",
    )  # fmt: skip
    https_ca_location: str = setting(
        "https.ca.location", Kind.STRING, "", None,
        "PEM file of the authorities to trust at the token endpoint; the system's if empty.",
    )  # fmt: skip
    https_ca_pem: str = setting("https.ca.pem", Kind.STRING, "", None, "The same, as text.")
    ssl_ca_location: str = setting(
        "ssl.ca.location",
        Kind.STRING,
        "",
        None,
        "PEM file (or folder) of the authorities to trust; the system's if empty.",
    )
    ssl_ca_pem: str = setting("ssl.ca.pem", Kind.STRING, "", None, "The authorities to trust, as PEM text.")
    ssl_truststore_type: str = setting(
        "ssl.truststore.type", Kind.STRING, "", store_type, "PEM; Java's own key stores are refused."
    )
    ssl_truststore_location: str = setting(
        "ssl.truststore.location", Kind.STRING, "", None, "Java's name for ssl.ca.location."
    )
    ssl_truststore_password: str = setting(
        "ssl.truststore.password",
        Kind.STRING,
        "",
        None,
        "Not with PEM: such a file has none.",
        sensitive=True,
    )
    ssl_truststore_certificates: str = setting(
        "ssl.truststore.certificates", Kind.STRING, "", None, "Java's name for ssl.ca.pem."
    )
    ssl_certificate_location: str = setting(
        "ssl.certificate.location", Kind.STRING, "", None, "PEM file of our certificate, for mutual TLS."
    )
    ssl_certificate_pem: str = setting(
        "ssl.certificate.pem", Kind.STRING, "", None, "Our certificate, as PEM text."
    )
    ssl_key_location: str = setting("ssl.key.location", Kind.STRING, "", None, "PEM file of its private key.")
    ssl_key_pem: str = setting(
        "ssl.key.pem", Kind.STRING, "", None, "Its private key, as PEM text.", sensitive=True
    )
    ssl_key_password: str = setting(
        "ssl.key.password", Kind.STRING, "", None, "The password of the private key.", sensitive=True
    )
    ssl_keystore_type: str = setting(
        "ssl.keystore.type", Kind.STRING, "", store_type, "PEM; Java's own key stores are refused."
    )
    ssl_keystore_location: str = setting(
        "ssl.keystore.location", Kind.STRING, "", None,
        "Java's way: a PEM file with our private key and our certificate.",
    )  # fmt: skip
    ssl_keystore_password: str = setting(
        "ssl.keystore.password", Kind.STRING, "", None, "Not with PEM: use ssl.key.password.", sensitive=True
    )
    ssl_keystore_key: str = setting(
        "ssl.keystore.key", Kind.STRING, "", None, "Java's name for ssl.key.pem.", sensitive=True
    )
    ssl_keystore_certificate_chain: str = setting(
        "ssl.keystore.certificate.chain", Kind.STRING, "", None, "Java's name for ssl.certificate.pem."
    )
    ssl_endpoint_identification_algorithm: str = setting(
        "ssl.endpoint.identification.algorithm", Kind.STRING, "https", one_of("https", "none", ""),
        "none: the name in the broker's certificate is not checked.",
    )  # fmt: skip
    enable_ssl_certificate_verification: bool = setting(
        "enable.ssl.certificate.verification", Kind.BOOLEAN, True, None,
        "false: any broker is trusted, and so is anybody between it and us. For tests.",
    )  # fmt: skip
    ssl_enabled_protocols: tuple[str, ...] = setting(
        "ssl.enabled.protocols", Kind.LIST, ("TLSv1.2", "TLSv1.3"), list_of("TLSv1.2", "TLSv1.3"),
        "The versions of TLS that may be spoken.",
    )  # fmt: skip
    ssl_protocol: str = setting(
        "ssl.protocol", Kind.STRING, "TLSv1.3", one_of("TLSv1.2", "TLSv1.3", "TLS"),
        "The newest version of TLS to speak; usually left alone.",
    )  # fmt: skip
    ssl_cipher_suites: tuple[str, ...] = setting(
        "ssl.cipher.suites", Kind.LIST, (), list_of(),
        "By Java's names, with commas, or by OpenSSL's; all that OpenSSL has if empty.",
    )  # fmt: skip

    def __repr__(self) -> str:
        rows = (spec.metadata["setting"] for spec in fields(self) if "setting" in spec.metadata)
        return shown_settings(self, rows)

    def metric_window(self) -> MetricWindow:
        """Returns the time that averages and rates look back."""
        return MetricWindow(self.metrics_sample_window_ms, self.metrics_num_samples)

    def check(self) -> None:
        """Raises SettingError where settings contradict each other."""
        if not self.bootstrap_servers:
            raise SettingError("bootstrap.servers is missing: give the host:port of at least one broker")
        check_security(self)


@dataclass(frozen=True, slots=True, repr=False)
class ConsumerConfig(ClientConfig):
    """The settings of a consumer."""

    METRIC_PREFIX: ClassVar[str] = "consumer"

    group_id: str | None = setting("group.id", Kind.STRING, None, None, "The group to be a member of.")
    group_instance_id: str | None = setting(
        "group.instance.id", Kind.STRING, None, lambda v: None if v else "must not be empty",
        "A name that survives restarts: a static member.",
    )  # fmt: skip
    group_protocol: str = setting(
        "group.protocol", Kind.STRING, "classic", one_of("classic", "consumer"),
        "consumer: the broker assigns partitions (KIP-848, Kafka 4.0); classic: the members do.",
    )  # fmt: skip
    group_remote_assignor: str | None = setting(
        "group.remote.assignor", Kind.STRING, None, lambda v: None if v else "must not be empty",
        "The broker's assignor for group.protocol=consumer: uniform or range; without it the broker chooses.",
    )  # fmt: skip
    session_timeout_ms: int = setting(
        "session.timeout.ms",
        Kind.INT,
        45_000,
        at_least(1),
        "A member without a heartbeat for this long is removed.",
    )
    heartbeat_interval_ms: int = setting(
        "heartbeat.interval.ms",
        Kind.INT,
        3_000,
        at_least(1),
        "The time between heartbeats; at most a third of the session.",
    )
    max_poll_interval_ms: int = setting(
        "max.poll.interval.ms",
        Kind.INT,
        300_000,
        at_least(1),
        "A member that does not poll for this long leaves.",
    )
    max_poll_records: int = setting(
        "max.poll.records", Kind.INT, 500, at_least(1), "The most records that one poll returns."
    )
    enable_auto_commit: bool = setting(
        "enable.auto.commit", Kind.BOOLEAN, True, None, "Whether what poll returned is committed by itself."
    )
    auto_commit_interval_ms: int = setting(
        "auto.commit.interval.ms", Kind.INT, 5_000, at_least(0), "How often it is committed by itself."
    )
    auto_offset_reset: str = setting(
        "auto.offset.reset", Kind.STRING, "latest",
        lambda v: None if v in ("earliest", "latest", "none") or v.startswith("by_duration:")
        else "must be earliest, latest, none or by_duration:PT1H",
        "Where to begin without a committed offset.",
    )  # fmt: skip
    fetch_min_bytes: int = setting(
        "fetch.min.bytes", Kind.INT, 1, at_least(0), "The broker waits until it has this many bytes."
    )
    fetch_max_wait_ms: int = setting(
        "fetch.max.wait.ms", Kind.INT, 500, at_least(0), "The broker waits no longer than this."
    )
    fetch_max_bytes: int = setting(
        "fetch.max.bytes", Kind.INT, 50 << 20, at_least(0), "The most bytes of one answer."
    )
    max_partition_fetch_bytes: int = setting(
        "max.partition.fetch.bytes",
        Kind.INT,
        1 << 20,
        at_least(0),
        "The most bytes of one partition in one answer.",
    )
    check_crcs: bool = setting(
        "check.crcs", Kind.BOOLEAN, True, None, "Whether records are checked for damage."
    )
    isolation_level: str = setting(
        "isolation.level", Kind.STRING, "read_uncommitted", one_of("read_uncommitted", "read_committed"),
        "read_committed: nothing of open or aborted transactions.",
    )  # fmt: skip
    exclude_internal_topics: bool = setting(
        "exclude.internal.topics",
        Kind.BOOLEAN,
        True,
        None,
        "A pattern does not match __consumer_offsets and the like.",
    )
    allow_auto_create_topics: bool = setting(
        "allow.auto.create.topics",
        Kind.BOOLEAN,
        True,
        None,
        "Whether subscribing may create a topic, if the broker allows it.",
    )

    def check(self) -> None:
        ClientConfig.check(self)
        if self.group_id is not None and not self.group_id.strip():
            raise SettingError("group.id must not be empty: name the group, or leave the setting out")
        if self.group_id is None and self.group_instance_id is not None:
            raise SettingError("group.instance.id without group.id: name the group too")
        if self.group_protocol == "classic" and self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise SettingError(
                f"heartbeat.interval.ms ({self.heartbeat_interval_ms}) must be less than session.timeout.ms "
                f"({self.session_timeout_ms}): a third of it is usual"
            )
        self.reset()

    def reset(self) -> AutoOffsetResetStrategy:
        """Returns what auto.offset.reset means."""
        return reset_strategy(self.auto_offset_reset)


def _of_consumer(name: str) -> Any:
    """Makes a setting that is the consumer's own, for another kind of consumer."""
    spec = ConsumerConfig.__dataclass_fields__[name]
    return field(default=spec.default, metadata=spec.metadata)


@dataclass(frozen=True, slots=True, repr=False)
class ShareConsumerConfig(ClientConfig):
    """The settings of a share consumer."""

    METRIC_PREFIX: ClassVar[str] = "consumer-share"

    group_id: str | None = setting("group.id", Kind.STRING, None, None, "The share group; it must be given.")
    share_acknowledgement_mode: str = setting(
        "share.acknowledgement.mode", Kind.STRING, "implicit", one_of("implicit", "explicit"),
        "implicit: the next poll or commit accepts what was returned; explicit: acknowledge() says it of each record.",
    )  # fmt: skip
    share_acquire_mode: str = setting(
        "share.acquire.mode", Kind.STRING, "batch_optimized", one_of("batch_optimized", "record_limit"),
        "batch_optimized: whole batches, so that max.poll.records may be exceeded; record_limit: never more than that.",
    )  # fmt: skip
    max_poll_interval_ms: int = _of_consumer("max_poll_interval_ms")
    max_poll_records: int = setting(
        "max.poll.records",
        Kind.INT,
        500,
        at_least(1),
        "How many records one poll asks for; see share.acquire.mode.",
    )
    fetch_min_bytes: int = _of_consumer("fetch_min_bytes")
    fetch_max_wait_ms: int = _of_consumer("fetch_max_wait_ms")
    fetch_max_bytes: int = _of_consumer("fetch_max_bytes")
    check_crcs: bool = _of_consumer("check_crcs")
    allow_auto_create_topics: bool = _of_consumer("allow_auto_create_topics")

    def check(self) -> None:
        ClientConfig.check(self)
        if self.group_id is None or not self.group_id.strip():
            raise SettingError('group.id is missing: name the share group, as in group_id="orders"')

    @property
    def is_explicit(self) -> bool:
        return self.share_acknowledgement_mode == "explicit"


@dataclass(frozen=True, slots=True, repr=False)
class ProducerConfig(ClientConfig):
    """The settings of a producer."""

    METRIC_PREFIX: ClassVar[str] = "producer"

    acks: str = setting(
        "acks", Kind.STRING, "all", one_of("all", "-1", "0", "1"), "How many replicas must have a record."
    )
    enable_idempotence: bool = setting(
        "enable.idempotence", Kind.BOOLEAN, True, None, "Retries write no record twice or out of order."
    )
    linger_ms: int = setting("linger.ms", Kind.LONG, 5, at_least(0), "How long a batch waits to fill.")
    batch_size: int = setting("batch.size", Kind.INT, 16_384, at_least(0), "Bytes that make a batch full.")
    buffer_memory: int = setting(
        "buffer.memory",
        Kind.LONG,
        32 << 20,
        at_least(0),
        "How many bytes may wait; send blocks while they are used up.",
    )
    max_block_ms: int = setting("max.block.ms", Kind.LONG, 60_000, at_least(0), "How long send may block.")
    max_request_size: int = setting(
        "max.request.size", Kind.INT, 1 << 20, at_least(0), "The most bytes of one record or request."
    )
    compression_type: str = setting(
        "compression.type",
        Kind.STRING,
        "none",
        one_of("none", "gzip", "snappy", "lz4", "zstd"),
        "How batches are compressed.",
    )
    compression_gzip_level: int = setting(
        "compression.gzip.level", Kind.INT, -1, between(1, 9, or_equal=-1), "-1: gzip's own default."
    )
    compression_lz4_level: int = setting(
        "compression.lz4.level",
        Kind.INT,
        9,
        between(1, 17),
        "9 is fast, all others compress harder.",
    )
    compression_zstd_level: int = setting(
        "compression.zstd.level", Kind.INT, 3, between(-131_072, 22), "Lower is faster."
    )
    delivery_timeout_ms: int = setting(
        "delivery.timeout.ms",
        Kind.INT,
        120_000,
        at_least(0),
        "How long a record may take from send to success or failure.",
    )
    retries: int = setting(
        "retries", Kind.INT, INT_MAX, at_least(0), "Usually left alone: delivery.timeout.ms decides."
    )
    max_in_flight_requests_per_connection: int = setting(
        "max.in.flight.requests.per.connection",
        Kind.INT,
        5,
        at_least(1),
        "The most Produce requests without an answer.",
    )
    partitioner: str = setting(
        "partitioner", Kind.STRING, "murmur2",
        one_of("murmur2", "consistent_random", "fnv1a_random", "random", "round_robin"),
        "Of records with a key: Java's murmur2, or librdkafka's consistent_random (CRC32); or a callable.",
    )  # fmt: skip
    partitioner_ignore_keys: bool = setting(
        "partitioner.ignore.keys", Kind.BOOLEAN, False, None, "Place records without looking at their keys."
    )
    transactional_id: str | None = setting(
        "transactional.id", Kind.STRING, None, None,
        "Makes the producer transactional; the name by which a later producer takes over its transactions.",
    )  # fmt: skip
    transaction_timeout_ms: int = setting(
        "transaction.timeout.ms", Kind.INT, 60_000, at_least(1),
        "The broker aborts a transaction of a transactional producer that takes longer than this.",
    )  # fmt: skip
    metadata_max_idle_ms: int = setting(
        "metadata.max.idle.ms",
        Kind.LONG,
        300_000,
        at_least(5_000),
        "A topic that was not used for this long is forgotten.",
    )

    def check(self) -> None:
        ClientConfig.check(self)
        if self.delivery_timeout_ms < min(self.linger_ms + self.request_timeout_ms, INT_MAX):
            raise SettingError(
                f"delivery.timeout.ms ({self.delivery_timeout_ms}) must be at least linger.ms + request.timeout.ms "
                f"({self.linger_ms + self.request_timeout_ms})"
            )
        if self.transactional_id is not None and not self.transactional_id:
            raise SettingError(
                "transactional.id must not be empty: name the producer, or leave the setting out"
            )
        if self.transactional_id is not None and not self.enable_idempotence:
            raise SettingError(
                "transactional.id needs enable.idempotence=true, acks=all and retries greater than 0: leave them as "
                "they are, or leave transactional.id out"
            )
        if self.enable_idempotence:
            if self.acks not in ("all", "-1"):
                raise SettingError(
                    "enable.idempotence needs acks=all; set enable.idempotence=false for fewer acks"
                )
            if self.max_in_flight_requests_per_connection > 5:
                raise SettingError(
                    "enable.idempotence needs max.in.flight.requests.per.connection of at most 5"
                )
            if self.retries == 0:
                raise SettingError("enable.idempotence needs retries greater than 0")


@dataclass(frozen=True, slots=True, repr=False)
class AdminConfig(ClientConfig):
    """The settings of the admin clients."""

    METRIC_PREFIX: ClassVar[str] = "admin-client"

    retries: int = setting(
        "retries", Kind.INT, INT_MAX, at_least(0), "Usually left alone: the timeout decides."
    )


CONSUMER = Table(ConsumerConfig, "consumer")
SHARE_CONSUMER = Table(ShareConsumerConfig, "share consumer")
PRODUCER = Table(ProducerConfig, "producer")
ADMIN = Table(AdminConfig, "admin")

C = TypeVar("C", bound=ClientConfig)

# Java and librdkafka take these in any case.
_ANY_CASE = {
    "security.protocol": str.upper,
    "group.protocol": str.lower,
    "ssl.endpoint.identification.algorithm": str.lower,
}


def read_config(
    table: Table[C],
    settings: Mapping[str, object] | None,
    keywords: Mapping[str, object],
    objects: tuple[str, ...] = (),
) -> tuple[C, dict[str, Any]]:
    """Returns the checked settings, and apart from them those of `objects` that were given (callables, classes, lists).

    A value of None means that the setting was not given. SettingError names what is wrong and the right name.
    """
    given: dict[str, object] = dict(_checked_mapping(settings, table.what))
    for keyword, value in keywords.items():
        name = keyword if keyword in objects else keyword.replace("_", ".")
        if name in given:
            raise SettingError(f"{name} is given twice, in the dict and as {keyword}=")
        given[name] = value
    apart = {name: given.pop(name) for name in objects if given.get(name) is not None}
    texts: dict[str, str] = {}
    for name, value in given.items():
        if value is None or name in objects:
            continue
        same = canonical_name(name)
        if same != name and given.get(same) not in (None, value):
            raise SettingError(f"{name} and {same} are two names of one setting: give one of them")
        if same in table.settings:
            texts[same] = _text(name, value)
        elif table is SHARE_CONSUMER and name in NOT_OF_SHARE_GROUPS:
            raise SettingError(f"{name} cannot be set for a share consumer: {NOT_OF_SHARE_GROUPS[name]}")
        elif not is_missing(name, table.what):
            raise SettingError(f"unknown setting {name}{_hint(name, table, objects)}")
    for name, in_its_case in _ANY_CASE.items():
        if name in texts:
            texts[name] = in_its_case(texts[name].strip())
    if table is PRODUCER:
        _switch_off_idempotence(texts)
    if table is CONSUMER:
        _check_group_protocol(texts, apart)
    config = table.parse(texts)
    config.check()
    return config, apart


_ONLY_CLASSIC = {
    "partition.assignment.strategy": "the broker assigns; group.remote.assignor chooses how",
    "heartbeat.interval.ms": "the broker says it, by group.consumer.heartbeat.interval.ms",
    "session.timeout.ms": "the broker has it, as group.consumer.session.timeout.ms",
}
"""Settings that a member of the consumer protocol does not decide, and who does."""


def _check_group_protocol(texts: Mapping[str, str], apart: Mapping[str, Any]) -> None:
    """Refuses settings that the group protocol gives no meaning, as Kafka's client does."""
    if texts.get("group.protocol", "classic") != "consumer":
        if "group.remote.assignor" in texts:
            raise SettingError(
                "group.remote.assignor belongs to group.protocol=consumer: with group.protocol=classic members assign, "
                "by partition.assignment.strategy"
            )
        return
    for name, instead in _ONLY_CLASSIC.items():
        if name in texts or name in apart:
            raise SettingError(f"{name} cannot be set when group.protocol=consumer: {instead}")


def canonical_name(name: str) -> str:
    """Returns the setting that a name stands for: some have librdkafka's name as a second one."""
    return SAME_SETTINGS.get(name, name)


def is_secret(name: str) -> bool:
    """Whether the value of a client's setting must not be shown."""
    own = canonical_name(name)
    return any(
        own in table.settings and table.settings[own].sensitive for table in (CONSUMER, PRODUCER, ADMIN)
    )


def _checked_mapping(settings: object, what: str) -> Mapping[str, object]:
    if settings is None:
        return {}
    if not isinstance(settings, Mapping):
        topics = (
            "; topics are named by subscribe()"
            if what in ("consumer", "share consumer") and isinstance(settings, str)
            else ""
        )
        raise SettingError(
            f'the settings of a client are a dict, as in {{"bootstrap.servers": "127.0.0.1:9092"}}, or keywords, as in '
            f'bootstrap_servers="127.0.0.1:9092"; not {type(settings).__name__}{topics}'
        )
    for name in settings:
        if not isinstance(name, str):
            raise SettingError(f"a setting has a string as its name, not {name!r}")
    return settings


def _hint(name: str, table: Table[Any], objects: tuple[str, ...]) -> str:
    """Says whose setting it is, or names the nearest one that this client has."""
    for other in (CONSUMER, SHARE_CONSUMER, PRODUCER, ADMIN):
        if name in other.settings:
            return f": it is a setting of the {other.what}, not of the {table.what}"
    return nearest(name, [*table.settings, *SAME_SETTINGS, *objects])


def _switch_off_idempotence(texts: dict[str, str]) -> None:
    """Switches idempotence off where it is impossible and nobody asked for it, as in Kafka.

    A user who asks for it gets an error instead.
    """
    if "enable.idempotence" in texts:
        return
    for name, needed in (
        ("acks", texts.get("acks", "all") in ("all", "-1")),
        ("retries", texts.get("retries") != "0"),
    ):
        if not needed:
            _log.info("enable.idempotence is off, because %s=%s", name, texts[name])
            texts["enable.idempotence"] = "false"


def _text(name: str, value: object) -> str:
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    if isinstance(value, (bool, int, float, str)):
        said = as_text(value) or ""
        if not said.isascii() and said != said.encode(errors="ignore").decode():
            raise SettingError(f"{name} holds half of a surrogate pair, which cannot be said in UTF-8")
        return said
    # Not the value itself: it may be a password.
    raise SettingError(f"{name} takes a string, a number or a boolean, not {type(value).__name__}")
