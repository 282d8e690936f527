"""DescribeAcls, CreateAcls, DeleteAcls; the audit log; what survives; what stops the start."""

from __future__ import annotations

import logging
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from kohort.broker.apis import acls as api
from kohort.broker.clock import Clock
from kohort.broker.running import running
from kohort.broker.security.audit import AGAIN_AFTER_MS, MOST_LINES, MOST_REMEMBERED, AuditLog
from kohort.client.io.blocking_connection import BlockingConnection
from kohort.security.acls import AclOperation, AclResource, PatternType, Permission
from kohort.security.authorizer import Authorizer
from kohort.settings import SettingError
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.create_acls import AclCreation, CreateAclsRequest
from kohort.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kohort.wire.messages.describe_acls import DescribeAclsRequest
from kohort.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kohort.wire.struct import ZERO_UUID
from tests.broker import peer
from tests.broker.secured import AUTHORIZER, allow, creation, login, secured, settings, take_back
from tests.cli.command_line import kohort_process

ANY = (AclResource.ANY, None, PatternType.ANY, None, None, AclOperation.ANY, Permission.ANY)
INVALID = ErrorCode.INVALID_REQUEST


@pytest.fixture
def broker():
    with secured() as started:
        yield started


@pytest.fixture
def admin(broker):
    with login(broker.bootstrap_servers, "admin") as connection:
        yield connection


@pytest.fixture
def alice(broker):
    with login(broker.bootstrap_servers, "alice") as connection:
        yield connection


def create(admin: BlockingConnection, *wanted: AclCreation) -> list[tuple[int, str | None]]:
    results = admin.call(CreateAclsRequest(list(wanted))).results
    return [(result.error_code, result.error_message or None) for result in results]


def described(admin: BlockingConnection, *fields: Any) -> dict[tuple[int, str, int], list[tuple[Any, ...]]]:
    answer = admin.call(DescribeAclsRequest(*(fields or ANY)))
    assert (answer.error_code, answer.error_message) == (0, "")
    return {
        (each.resource_type, each.resource_name, each.pattern_type): [
            (acl.principal, acl.host, acl.operation, acl.permission_type) for acl in each.acls
        ]
        for each in answer.resources
    }


# --- the APIs ------------------------------------------------------------------------------------------------------


def test_acls_are_described_by_resource_and_deleted_by_filter(admin):
    allow(admin, "READ TOPIC t", "WRITE TOPIC t", "READ TOPIC pre*", "ALL GROUP *")
    assert create(admin, creation("READ TOPIC t")) == [(0, None)], "a known ACL is no error"
    who = ("User:alice", "*")
    everything = {
        (2, "t", 3): [(*who, 3, 3), (*who, 4, 3)],
        (2, "pre", 4): [(*who, 3, 3)],
        (3, "*", 3): [(*who, 2, 3)],
    }
    assert described(admin) == everything
    of_name = (AclResource.TOPIC, "prefix", PatternType.MATCH, *ANY[3:])
    assert described(admin, *of_name) == {(2, "pre", 4): [(*who, 3, 3)]}
    reads = DeleteAclsFilter(*ANY[:5], AclOperation.READ, Permission.ANY)
    topics = DeleteAclsFilter(AclResource.TOPIC, *ANY[1:])
    nothing = DeleteAclsFilter(AclResource.USER, *ANY[1:])
    results = admin.call(DeleteAclsRequest([reads, topics, nothing])).filter_results
    assert [result.error_code for result in results] == [0, 0, 0]
    lists = [sorted((acl.resource_name, acl.operation) for acl in each.matching_acls) for each in results]
    assert lists == [[("pre", 3), ("t", 3)], [("pre", 3), ("t", 3), ("t", 4)], []]
    assert described(admin) == {(3, "*", 3): everything[3, "*", 3]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"resource_type": 4, "resource_name": "mine"}, "kafka-cluster"),
        ({"resource_name": ""}, "empty"),
        ({"resource_type": 1}, "ANY"),
        ({"resource_type": 99}, "UNKNOWN"),
        ({"operation": 1}, "ANY"),
        ({"operation": 99}, "UNKNOWN"),
        ({"resource_pattern_type": 2}, "MATCH"),
        ({"permission_type": 1}, "ANY"),
        ({"principal": "alice"}, "no colon"),
    ],
)
def test_a_wrong_acl_is_refused_and_the_others_are_made(admin, change, message):
    wrong = creation("READ TOPIC t")
    for name, value in change.items():
        setattr(wrong, name, value)
    (code, text), second = create(admin, wrong, creation("READ TOPIC other"))
    assert (code, second) == (INVALID, (0, None))
    assert message in (text or "")
    assert list(described(admin)) == [(2, "other", 3)]


@pytest.mark.parametrize("field", ["resource_type", "resource_pattern_type", "operation", "permission_type"])
def test_a_code_of_zero_closes_the_connection(admin, field):
    wrong = creation("READ TOPIC t")
    setattr(wrong, field, 0)
    with pytest.raises(ConnectionError):
        admin.call(CreateAclsRequest([wrong]))


def test_a_filter_with_an_unknown_code_deletes_nothing(admin):
    allow(admin, "READ TOPIC t")
    wrong = DeleteAclsFilter(AclResource.TOPIC, None, 99, *ANY[3:])
    (result,) = admin.call(DeleteAclsRequest([wrong])).filter_results
    assert (result.error_code, result.matching_acls) == (INVALID, [])
    assert described(admin) == described(admin, AclResource.TOPIC, *ANY[1:]) != {}
    assert described(admin, 99, *ANY[1:]) == {}


def test_there_is_a_limit_to_the_number_of_acls(admin, monkeypatch):
    monkeypatch.setattr(api, "MOST_ACLS", 3)
    allow(admin, "READ TOPIC a", "READ TOPIC b")
    new = [creation("READ TOPIC c"), creation("READ TOPIC d")]
    ((code, text), _) = create(admin, *new)
    assert code == ErrorCode.POLICY_VIOLATION
    assert re.search(r"There are 2 ACLs.* at most 3.*PREFIXED", text or "")
    assert len(described(admin)) == 2
    assert create(admin, new[0], creation("READ TOPIC a")) == [(0, None)] * 2, "a known one takes no room"
    monkeypatch.setattr(api, "_MOST_CHANGED", 2)
    delete = DeleteAclsRequest([DeleteAclsFilter(*ANY)])
    (result,) = admin.call(delete).filter_results
    assert (result.error_code, result.matching_acls) == (INVALID, [])
    assert len(described(admin)) == 3


def test_without_an_authorizer_there_are_no_acls():
    with running() as open_broker, BlockingConnection(open_broker.bootstrap_servers) as anybody:
        disabled = ErrorCode.SECURITY_DISABLED
        assert anybody.call(DescribeAclsRequest(*ANY)).error_code == disabled
        assert [code for code, _ in create(anybody, creation("READ TOPIC t"))] == [disabled]
        (result,) = anybody.call(DeleteAclsRequest([DeleteAclsFilter(*ANY)])).filter_results
        assert result.error_code == disabled


def test_everybody_may_where_there_is_no_acl_if_that_is_set():
    with secured(allow_everyone_if_no_acl_found=True) as broker:
        address = broker.bootstrap_servers
        with login(address, "admin") as admin, login(address, "alice") as alice:
            assert peer.create_topic(alice, "t").error_code == 0
            allow(admin, "READ TOPIC t", principal="User:bob")
            assert peer.fetch(alice, "t").error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


# --- the audit log -------------------------------------------------------------------------------------------------


@pytest.fixture
def audit(caplog):
    caplog.set_level(logging.INFO, "kohort.authorizer")

    def lines() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.name == "kohort.authorizer"]

    return lines


def test_named_denials_are_audited_and_shortened_lists_are_not(admin, alice, audit):
    peer.create_topic(admin, "t")
    assert alice.call(MetadataRequest(None), 9).topics == []
    assert audit() == []
    alice.call(MetadataRequest([MetadataRequestTopic(ZERO_UUID, "t")]), 9)
    assert audit() == [
        "Principal = User:alice is Denied operation = DESCRIBE from host = 127.0.0.1 "
        "on resource = Topic:LITERAL:t for request = Metadata with resourceRefCount = 1 based on rule DefaultDeny"
    ]
    alice.call(MetadataRequest([MetadataRequestTopic(ZERO_UUID, "t")]), 9)
    assert len(audit()) == 1, "the same once a minute"
    peer.fetch(alice, "t")
    assert "READ" in audit()[1]


def test_the_audit_log_names_the_acl_that_decides(admin, alice, audit, caplog):
    peer.create_topic(admin, "t")
    caplog.clear()
    assert create(admin, creation("READ TOPIC t", permission=Permission.DENY)) == [(0, None)]
    allow(admin, "ALL TOPIC t")
    peer.fetch(alice, "t")
    (line,) = audit()
    assert line.endswith("MatchingAcl(acl=DENY READ to User:alice from host * on TOPIC LITERAL:t)")
    caplog.set_level(logging.DEBUG, "kohort.authorizer")
    caplog.clear()
    alice.call(MetadataRequest([MetadataRequestTopic(ZERO_UUID, "t")]), 9)
    (line,) = audit()
    assert "is Allowed operation = DESCRIBE" in line
    assert "ALLOW ALL to User:alice" in line


class Denials:
    """An audit log, and its clock."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.log = AuditLog(self.clock)
        self._call: Any = SimpleNamespace(codec=SimpleNamespace(api_key=1))

    def deny(self, name: str, principal: str = "User:alice") -> None:
        question = (principal, "10.0.0.1", AclOperation.READ, AclResource.TOPIC, name)
        self.log.denied(Authorizer(), question, self._call)


def test_a_client_that_tries_for_ever_fills_no_disk(audit):
    denials = Denials()
    for _ in range(10):
        for _ in range(1000):
            denials.deny("t")
        denials.clock.shift_ms += AGAIN_AFTER_MS
    assert len(audit()) == 10
    assert audit()[-1].endswith("(999 more since the last line)")


def test_a_client_that_tries_many_names_fills_no_disk_and_hides_nobody(audit):
    denials = Denials()
    for number in range(10_000):
        denials.deny(f"t{number}")
    assert len(audit()) == MOST_LINES + 1
    assert "not written for a minute" in audit()[-1]
    denials.deny("t", "User:bob")
    assert "User:bob" in audit()[-1]
    denials.clock.shift_ms += AGAIN_AFTER_MS
    denials.deny("t0")
    assert "Topic:LITERAL:t0 " in audit()[-1]
    for number in range(2 * MOST_REMEMBERED):
        denials.deny("t" * 40_000, f"User:{number}")
    assert len(denials.log._callers) <= MOST_REMEMBERED
    assert len(denials.log._denials) <= MOST_REMEMBERED
    assert max(map(len, audit())) < 1000


def test_a_name_cannot_forge_a_line(audit):
    Denials().deny("t\nPrincipal = User:root is Allowed")
    (line,) = audit()
    assert "\n" not in line


# --- durable, and the start ----------------------------------------------------------------------------------------


@contextmanager
def served(directory: object) -> Iterator[str]:
    """A `kohort serve` that is killed at the end; its address."""
    given = [f"--set={name}={value}" for name, value in settings().items()]
    process = kohort_process("serve", str(directory), *given, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().decode().split("bootstrap.servers=")[1].split()[0]
    finally:
        process.kill()
        process.communicate(timeout=90)


def test_acls_are_durable_before_they_are_answered(tmp_path):
    with served(tmp_path) as address, login(address, "admin") as admin:
        allow(admin, "READ TOPIC t", "WRITE TOPIC pre*", "ALTER CLUSTER")
        take_back(admin, "ALTER CLUSTER")
    with served(tmp_path) as address, login(address, "admin") as admin, login(address, "alice") as alice:
        assert list(described(admin)) == [(2, "t", 3), (2, "pre", 4)]
        assert peer.create_topic(admin, "t").error_code == 0
        assert peer.fetch(alice, "t").error_code == 0
        assert (
            peer.produce(alice, "t", peer.batch_of(b"1")).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"authorizer.class.name": "com.example.Mine"}, "not known here, and the broker would be open"),
        ({"super.users": "alice"}, "write User:alice"),
        ({"super.users": "User:alice,User:bob"}, "separate principals by ;"),
    ],
)
def test_a_wrong_authorizer_stops_the_start(change, words):
    with pytest.raises(SettingError, match=words), running(settings={**settings(), **change}):
        pass


@pytest.mark.parametrize(
    "name", [AUTHORIZER, "kafka.security.authorizer.AclAuthorizer", "kafka.security.auth.SimpleAclAuthorizer"]
)
def test_the_names_of_kafkas_authorizers_are_known(name):
    with (
        running(
            settings={"authorizer.class.name": name, "super.users": "User:ANONYMOUS; User:CN=a,O=b"}
        ) as broker,
        BlockingConnection(broker.bootstrap_servers) as anonymous,
    ):
        allow(anonymous, "READ TOPIC t")
