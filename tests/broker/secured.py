"""A broker with SASL and an authorizer, logged-in connections to it, and short ways to change its ACLs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kohort.broker.running import running
from kohort.client.io.blocking_connection import BlockingConnection
from kohort.security.acls import CLUSTER_NAME, AclOperation, AclResource, PatternType, Permission
from kohort.wire.messages.create_acls import AclCreation, CreateAclsRequest
from kohort.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kohort.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from kohort.wire.messages.sasl_handshake import SaslHandshakeRequest

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
USERS = ("admin", "alice", "bob", "nobody")
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def settings(**more: object) -> dict[str, object]:
    """The settings of a broker on which `admin` is a super user; the password of everybody is the name."""
    users = " ".join(f'user_{name}="{name}"' for name in USERS)
    return {
        "listeners": "LAN://127.0.0.1:0",
        "listener.security.protocol.map": "LAN:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.lan.plain.sasl.jaas.config": f"{PLAIN} {users};",
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:admin",
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def secured(directory: Any = None, **more: object) -> running:
    return running(directory, settings=settings(**more))


def login(
    address: str, user: str, client_id: str = "a test", *, timeout_s: float = 60.0
) -> BlockingConnection:
    """A connection that has authenticated with PLAIN."""
    connection = BlockingConnection(address, client_id=client_id, timeout_s=timeout_s)
    assert connection.call(SaslHandshakeRequest("PLAIN"), 1).error_code == 0
    answer = connection.call(SaslAuthenticateRequest(f"\0{user}\0{user}".encode()), 2)
    assert answer.error_code == 0, answer.error_message
    return connection


def creation(
    what: str, principal: str = "User:alice", host: str = "*", permission: Permission = Permission.ALLOW
) -> AclCreation:
    """The ACL of a text like `READ TOPIC t`, `WRITE TOPIC pre*` (a prefix) or `ALTER CLUSTER`."""
    operation, kind, *name = what.split()
    resource = name[0] if name else CLUSTER_NAME
    is_prefix = len(resource) > 1 and resource.endswith("*")
    return AclCreation(
        AclResource[kind],
        resource.removesuffix("*") if is_prefix else resource,
        PatternType.PREFIXED if is_prefix else PatternType.LITERAL,
        principal,
        host,
        AclOperation[operation],
        permission,
    )


def allow(admin: BlockingConnection, *what: str, **more: Any) -> None:
    answer = admin.call(CreateAclsRequest([creation(each, **more) for each in what]))
    assert [result.error_code for result in answer.results] == [0] * len(what)


def take_back(admin: BlockingConnection, *what: str, **more: Any) -> None:
    """Deletes ACLs that were made by the same words."""
    acls = [creation(each, **more) for each in what]
    filters = [
        DeleteAclsFilter(
            acl.resource_type,
            acl.resource_name,
            acl.resource_pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for acl in acls
    ]
    answer = admin.call(DeleteAclsRequest(filters))
    assert [len(result.matching_acls) for result in answer.filter_results] == [1] * len(what)


@contextmanager
def allowed(admin: BlockingConnection, *what: str, **more: Any) -> Iterator[None]:
    """Makes ACLs for as long as the `with` lasts."""
    if what:
        allow(admin, *what, **more)
    try:
        yield
    finally:
        if what:
            take_back(admin, *what, **more)


def codes_in(message: Any) -> set[int]:
    """All error codes in an answer but 0, wherever they are."""
    found = set()
    for name in message.__slots__:
        value = getattr(message, name)
        if name.endswith("error_code"):
            found.add(int(value))
        elif isinstance(value, list):
            found |= {code for each in value if hasattr(each, "__slots__") for code in codes_in(each)}
    return found - {0}
