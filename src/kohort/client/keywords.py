"""The settings of the clients as keywords, for type checkers: `Consumer(bootstrap_servers=..., group_id=...)`.

Each is a setting of config.py with underscores for dots, with the types that it is read from, and None for "not given";
tests/client/test_typing.py compares the two. Nothing of this is used when a program runs.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from typing import Any, TypedDict

from kohort.client.group.assignors import Assignor

Text = str | None
Texts = str | Sequence[str] | None
Int = int | str | None
"""It may also be a string, as in Kafka's files: "500"."""
Bool = bool | str | None
Assignors = str | Assignor | type[Assignor] | Sequence[str | Assignor | type[Assignor]] | None


class ClientKeywords(TypedDict, total=False):
    """The keywords of all clients."""

    bootstrap_servers: Texts
    client_id: Text
    client_rack: Text
    request_timeout_ms: Int
    default_api_timeout_ms: Int
    retry_backoff_ms: Int
    retry_backoff_max_ms: Int
    reconnect_backoff_ms: Int
    reconnect_backoff_max_ms: Int
    metadata_max_age_ms: Int
    metadata_recovery_strategy: Text
    metadata_recovery_rebootstrap_trigger_ms: Int
    connections_max_idle_ms: Int
    socket_connection_setup_timeout_ms: Int
    socket_connection_setup_timeout_max_ms: Int
    client_dns_lookup: Text
    send_buffer_bytes: Int
    receive_buffer_bytes: Int
    metrics_sample_window_ms: Int
    metrics_num_samples: Int
    security_protocol: Text
    sasl_mechanism: Text
    sasl_username: Text
    sasl_password: Text
    sasl_jaas_config: Text
    sasl_oauthbearer_method: Text
    sasl_oauthbearer_token_endpoint_url: Text
    sasl_oauthbearer_client_credentials_client_id: Text
    sasl_oauthbearer_client_credentials_client_secret: Text
    sasl_oauthbearer_scope: Text
    sasl_oauthbearer_header_urlencode: Bool
    sasl_oauthbearer_grant_type: Text
    sasl_oauthbearer_extensions: Text
    sasl_oauthbearer_config: Text
    enable_sasl_oauthbearer_unsecure_jwt: Bool
    sasl_login_callback_handler_class: Text
    sasl_oauthbearer_jwt_retriever_class: Text
    sasl_login_connect_timeout_ms: Int
    sasl_login_read_timeout_ms: Int
    sasl_login_retry_backoff_ms: Int
    sasl_login_retry_backoff_max_ms: Int
    sasl_login_refresh_window_factor: float | str | None
    https_ca_location: Text
    https_ca_pem: Text
    ssl_ca_location: Text
    ssl_ca_pem: Text
    ssl_truststore_type: Text
    ssl_truststore_location: Text
    ssl_truststore_password: Text
    ssl_truststore_certificates: Text
    ssl_certificate_location: Text
    ssl_certificate_pem: Text
    ssl_key_location: Text
    ssl_key_pem: Text
    ssl_key_password: Text
    ssl_keystore_type: Text
    ssl_keystore_location: Text
    ssl_keystore_password: Text
    ssl_keystore_key: Text
    ssl_keystore_certificate_chain: Text
    ssl_endpoint_identification_algorithm: Text
    enable_ssl_certificate_verification: Bool
    ssl_enabled_protocols: Texts
    ssl_protocol: Text
    ssl_cipher_suites: Texts
    sasl_mechanisms: Text
    sasl_oauthbearer_client_id: Text
    sasl_oauthbearer_client_secret: Text
    ssl_context: ssl.SSLContext | None
    sasl_oauthbearer_token: str | Callable[[], Any] | None
    oauth_cb: Callable[[str], Any] | None


class ConsumerKeywords(ClientKeywords, total=False):
    """The keywords of a consumer; besides these it has `key_deserializer` and `value_deserializer`."""

    group_id: Text
    group_instance_id: Text
    group_protocol: Text
    group_remote_assignor: Text
    session_timeout_ms: Int
    heartbeat_interval_ms: Int
    max_poll_interval_ms: Int
    max_poll_records: Int
    enable_auto_commit: Bool
    auto_commit_interval_ms: Int
    auto_offset_reset: Text
    fetch_min_bytes: Int
    fetch_max_wait_ms: Int
    fetch_max_bytes: Int
    max_partition_fetch_bytes: Int
    check_crcs: Bool
    isolation_level: Text
    exclude_internal_topics: Bool
    allow_auto_create_topics: Bool
    interceptors: Sequence[Any] | None
    partition_assignment_strategy: Assignors


class ShareConsumerKeywords(ClientKeywords, total=False):
    """The keywords of a share consumer; besides these it has `key_deserializer` and `value_deserializer`."""

    group_id: Text
    share_acknowledgement_mode: Text
    share_acquire_mode: Text
    max_poll_interval_ms: Int
    max_poll_records: Int
    fetch_min_bytes: Int
    fetch_max_wait_ms: Int
    fetch_max_bytes: Int
    check_crcs: Bool
    allow_auto_create_topics: Bool


class ProducerKeywords(ClientKeywords, total=False):
    """The keywords of a producer; besides these it has `key_serializer` and `value_serializer`."""

    acks: int | str | None
    enable_idempotence: Bool
    linger_ms: Int
    batch_size: Int
    buffer_memory: Int
    max_block_ms: Int
    max_request_size: Int
    compression_type: Text
    compression_gzip_level: Int
    compression_lz4_level: Int
    compression_zstd_level: Int
    delivery_timeout_ms: Int
    retries: Int
    max_in_flight_requests_per_connection: Int
    partitioner: str | Callable[[str, bytes | None, int], int] | None
    partitioner_ignore_keys: Bool
    transactional_id: Text
    transaction_timeout_ms: Int
    metadata_max_idle_ms: Int
    interceptors: Sequence[Any] | None


class AdminKeywords(ClientKeywords, total=False):
    """The keywords of the admin clients."""

    retries: Int
