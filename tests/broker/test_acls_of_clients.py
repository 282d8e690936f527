"""The administrators of other libraries change ACLs, and their consumers hear of rights that they lack, or lose."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import confluent_kafka as ck
import kafka
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from kafka.admin import ACL, ACLFilter, ACLOperation, ACLPermissionType, KafkaAdminClient, ResourcePattern
from kafka.admin import ResourcePatternFilter as KafkaPythonFilter
from kafka.admin import ResourceType as KafkaPythonType
from kafka.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError

from tests.broker import peer
from tests.broker.secured import allow, login, secured, take_back

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def broker():
    with secured() as started:
        yield started


@pytest.fixture(scope="module")
def admin(broker):
    with login(broker.bootstrap_servers, "admin") as connection:
        yield connection


def confluent(broker: Any, user: str, **more: object) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": user,
        "log_level": 0,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def kafka_python(broker: Any, user: str, **more: object) -> dict[str, Any]:
    return {
        "bootstrap_servers": broker.bootstrap_servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": user,
        "sasl_plain_password": user,
        **more,
    }


def until(found: Callable[[], Any], what: str) -> Any:
    """Returns what a call finds at last."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        result = found()
        if result:
            return result
    raise AssertionError(f"{what} did not come in {PATIENCE_S} s")


# --- administrators ------------------------------------------------------------------------------------------------


def test_the_administrator_of_confluent_kafka(broker):
    client = AdminClient(confluent(broker, "admin"))
    fields = (ResourceType.TOPIC, "of-confluent", ResourcePatternType.PREFIXED, "User:bob", "10.0.0.1")
    acls = [
        AclBinding(*fields, operation, AclPermissionType.ALLOW)
        for operation in (AclOperation.READ, AclOperation.WRITE)
    ]
    for future in client.create_acls(acls).values():
        assert future.result(PATIENCE_S) is None
    everything = AclBindingFilter(*fields, AclOperation.ANY, AclPermissionType.ANY)
    assert sorted(client.describe_acls(everything).result(PATIENCE_S)) == sorted(acls)
    match = AclBindingFilter(
        ResourceType.TOPIC, "of-confluent-1", ResourcePatternType.MATCH, None, None, AclOperation.READ,
        AclPermissionType.ANY,
    )  # fmt: skip
    assert client.describe_acls(match).result(PATIENCE_S) == acls[:1]
    (deleted,) = client.delete_acls([everything]).values()
    assert sorted(deleted.result(PATIENCE_S)) == sorted(acls)
    assert client.describe_acls(everything).result(PATIENCE_S) == []
    nobody = AdminClient(confluent(broker, "nobody"))
    with pytest.raises(ck.KafkaException, match="Cluster authorization failed") as told:
        nobody.create_acls(acls[:1])[acls[0]].result(PATIENCE_S)
    assert told.value.args[0].code() == ck.KafkaError.CLUSTER_AUTHORIZATION_FAILED


def test_the_administrator_of_kafka_python(broker):
    client = KafkaAdminClient(**kafka_python(broker, "admin"))
    try:
        resource = ResourcePattern(KafkaPythonType.GROUP, "of-kafka-python")
        acl = ACL("User:bob", "*", ACLOperation.READ, ACLPermissionType.ALLOW, resource)
        made = client.create_acls([acl])
        assert (made["succeeded"], made["failed"]) == ([acl], [])
        wanted = ACLFilter(
            None,
            None,
            ACLOperation.ANY,
            ACLPermissionType.ANY,
            KafkaPythonFilter(KafkaPythonType.GROUP, "of-kafka-python", resource.pattern_type),
        )
        found, _ = client.describe_acls(wanted)
        assert found == [acl]
        ((_, deleted, _),) = client.delete_acls([wanted])
        assert deleted == [acl]
        assert client.describe_acls(wanted)[0] == []
    finally:
        client.close()


# --- consumers that lack a right -----------------------------------------------------------------------------------


def error_of(consumer: Any) -> Any:
    """Polls, and returns the code of an error if one comes."""
    message = consumer.poll(0.2)
    return message is not None and message.error() is not None and message.error()


def test_a_consumer_of_confluent_kafka_is_told_what_it_lacks(broker, admin):
    peer.create_topic(admin, "lacked")
    allow(admin, "READ GROUP lacking")
    for group, code, name in (
        ("hidden", ck.KafkaError.GROUP_AUTHORIZATION_FAILED, "Group authorization failed"),
        ("lacking", ck.KafkaError.TOPIC_AUTHORIZATION_FAILED, "lacked"),
    ):
        consumer = ck.Consumer(confluent(broker, "alice", group_id=group))
        try:
            consumer.subscribe(["lacked"])
            error = until(lambda each=consumer: error_of(each), "an error")
            assert error.code() == code
            assert name in error.str()
        finally:
            consumer.close()


def test_a_consumer_of_kafka_python_is_told_what_it_lacks(broker, admin):
    peer.create_topic(admin, "lacked-by-kafka-python")
    # Of a topic that it may not describe it only logs an error.
    allow(admin, "READ GROUP lacking-too", "DESCRIBE TOPIC lacked-by-kafka-python")
    for group, error in (
        ("hidden", GroupAuthorizationFailedError),
        ("lacking-too", TopicAuthorizationFailedError),
    ):
        consumer = kafka.KafkaConsumer(
            "lacked-by-kafka-python", **kafka_python(broker, "alice", group_id=group)
        )
        try:
            with pytest.raises(error):
                until(lambda each=consumer: each.poll(200), "an error")
        finally:
            consumer.close()


def test_a_consumer_loses_a_right_while_it_polls_and_gets_it_back(broker, admin):
    peer.create_topic(admin, "lost")
    allow(admin, "READ GROUP losing", "READ TOPIC lost")
    settings = confluent(
        broker,
        "alice",
        group_id="losing",
        auto_offset_reset="earliest",
        fetch_wait_max_ms=100,
        fetch_error_backoff_ms=50,
        topic_metadata_refresh_interval_ms=500,
    )
    consumer = ck.Consumer(settings)

    def value() -> Any:
        message = consumer.poll(0.2)
        return message is not None and message.error() is None and message.value()

    try:
        consumer.subscribe(["lost"])
        peer.produce(admin, "lost", peer.batch_of(b"1"))
        assert until(value, "the first record") == b"1"
        take_back(admin, "READ TOPIC lost")
        assert (
            until(lambda: error_of(consumer), "an error").code() == ck.KafkaError.TOPIC_AUTHORIZATION_FAILED
        )
        peer.produce(admin, "lost", peer.batch_of(b"2"))
        allow(admin, "READ TOPIC lost")
        assert until(value, "the second record") == b"2"
    finally:
        consumer.close()
