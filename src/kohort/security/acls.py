"""ACLs: which principal may do what to which resource, with Kafka's codes; and the filters that find them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

ANY_PRINCIPAL = "User:*"
ANY_HOST = "*"
ANONYMOUS = "User:ANONYMOUS"
"""Who a client is that was not asked."""
ANY_RESOURCE = "*"
CLUSTER_NAME = "kafka-cluster"


class AclResource(IntEnum):
    """What an ACL protects."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How the name of an ACL meets the name of a resource."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """What somebody wants to do."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    """Whether an ACL allows or denies."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


IMPLIED_BY = {
    AclOperation.DESCRIBE: frozenset(
        {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER}
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset({AclOperation.ALTER_CONFIGS}),
}
"""What an ALLOW of these operations allows as well. A DENY implies nothing."""

OPERATIONS_OF = {
    AclResource.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    AclResource.GROUP: (
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    AclResource.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    ),
}
"""The operations that `authorized_operations` tells about."""


def all_operations(resource_type: AclResource) -> int:
    """Returns all operations on a resource of this type, a bit for each."""
    return sum(1 << operation for operation in OPERATIONS_OF[resource_type])


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    """One rule: it allows or denies a principal from a host an operation on the resources of a pattern."""

    resource_type: AclResource
    resource_name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: AclOperation
    permission: Permission

    def __str__(self) -> str:
        return (
            f"{self.permission.name} {self.operation.name} to {self.principal} from host {self.host} "
            f"on {self.resource_type.name} {self.pattern_type.name}:{self.resource_name}"
        )

    def wrong(self) -> str | None:
        """Returns what is wrong with it as a new ACL, or None."""
        if self.resource_type in (AclResource.UNKNOWN, AclResource.ANY):
            return f"Invalid resourceType {self.resource_type.name}"
        if self.resource_type is AclResource.CLUSTER and self.resource_name != CLUSTER_NAME:
            return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
        if not self.resource_name:
            return "Resource name should not be empty"
        if self.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
            return f"Invalid patternType {self.pattern_type.name}"
        if self.operation in (AclOperation.UNKNOWN, AclOperation.ANY):
            return f"Invalid operation {self.operation.name}"
        if self.permission not in (Permission.DENY, Permission.ALLOW):
            return f"Invalid permissionType {self.permission.name}"
        if ":" not in self.principal:
            return f"Could not parse principal from `{self.principal}` (no colon is present separating the principal type from the principal name)"  # noqa: E501
        return None


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Finds ACLs; None and ANY match everything."""

    resource_type: AclResource = AclResource.ANY
    resource_name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: Permission = Permission.ANY

    def unknown(self) -> str | None:
        """Returns which part of it has an unknown code, in Kafka's words, or None; such a filter finds nothing."""
        if AclResource.UNKNOWN is self.resource_type or PatternType.UNKNOWN is self.pattern_type:
            return "patternFilter"
        if AclOperation.UNKNOWN is self.operation or Permission.UNKNOWN is self.permission:
            return "entryFilter"
        return None

    def matches(self, acl: Acl) -> bool:
        return self.unknown() is None and (
            self.resource_type in (AclResource.ANY, acl.resource_type)
            and self._matches_name(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _matches_name(self, acl: Acl) -> bool:
        """A filter of kind MATCH finds all that would apply to its name, ANY this exact name in both kinds."""
        name = self.resource_name
        if self.pattern_type in (PatternType.LITERAL, PatternType.PREFIXED) and (
            acl.pattern_type is not self.pattern_type
        ):
            return False
        if name is None or name == acl.resource_name:
            return True
        if self.pattern_type is not PatternType.MATCH:
            return False
        if acl.pattern_type is PatternType.PREFIXED:
            return name.startswith(acl.resource_name)
        return acl.resource_name == ANY_RESOURCE
