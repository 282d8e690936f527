"""Decides who may do what, as Kafka's StandardAuthorizer does.

A super user may do everything. Otherwise the ACLs count whose pattern fits the resource and which fit the principal,
the host and the operation: one that denies decides, then one that allows. If no ACL has a pattern that fits the
resource, whoever it is about, `allow.everyone.if.no.acl.found` decides.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from kohort.security.acls import (
    ANY_HOST,
    ANY_PRINCIPAL,
    ANY_RESOURCE,
    IMPLIED_BY,
    OPERATIONS_OF,
    Acl,
    AclOperation,
    AclResource,
    PatternType,
    Permission,
)

_MOST_CACHED = 10_000


class Authorizer:
    """The ACLs of a cluster, in a form that answers quickly; `add` and `remove` change them."""

    def __init__(
        self,
        super_users: Collection[str] = (),
        *,
        allow_everyone_if_no_acl_found: bool = False,
        acls: Iterable[Acl] = (),
    ) -> None:
        self.super_users = frozenset(super_users)
        self._default = allow_everyone_if_no_acl_found
        self._acls: set[Acl] = set()
        self._literal: dict[tuple[AclResource, str], set[Acl]] = {}
        self._prefixed: dict[AclResource, dict[str, set[Acl]]] = {}
        self._decided: dict[tuple[str, str, AclOperation, AclResource, str], bool] = {}
        for acl in acls:
            self.add(acl)

    # --- changes ----------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._acls)

    def __contains__(self, acl: Acl) -> bool:
        return acl in self._acls

    def __iter__(self) -> Iterator[Acl]:
        return iter(sorted(self._acls))

    def add(self, acl: Acl) -> None:
        """Adds an ACL; one that is there already stays as it is."""
        self._decided.clear()
        self._acls.add(acl)
        self._place(acl).add(acl)

    def remove(self, acl: Acl) -> None:
        """Removes an ACL that is there."""
        self._decided.clear()
        self._acls.remove(acl)
        place = self._place(acl)
        place.remove(acl)
        if place:
            return
        if acl.pattern_type is PatternType.PREFIXED:
            del self._prefixed[acl.resource_type][acl.resource_name]
        else:
            del self._literal[acl.resource_type, acl.resource_name]

    def _place(self, acl: Acl) -> set[Acl]:
        if acl.pattern_type is PatternType.PREFIXED:
            return self._prefixed.setdefault(acl.resource_type, {}).setdefault(acl.resource_name, set())
        return self._literal.setdefault((acl.resource_type, acl.resource_name), set())

    # --- decisions --------------------------------------------------------------------------------

    def allows(
        self, principal: str, host: str, operation: AclOperation, resource_type: AclResource, name: str
    ) -> bool:
        """Tells whether a principal at a host may do this to a resource. Answers are kept until an ACL changes."""
        question = (principal, host, operation, resource_type, name)
        known = self._decided.get(question)
        if known is None:
            if len(self._decided) >= _MOST_CACHED:
                self._decided.clear()
            known = self._decided[question] = principal in self.super_users or decision(
                self._of_resource(resource_type, name), principal, host, operation, default=self._default
            )
        return known

    def allowed_operations(self, principal: str, host: str, resource_type: AclResource, name: str) -> int:
        """Returns the operations on a resource that are allowed, a bit for each, as `authorized_operations`."""
        bits = 0
        for operation in OPERATIONS_OF[resource_type]:
            if self.allows(principal, host, operation, resource_type, name):
                bits |= 1 << operation
        return bits

    def allows_on_some(
        self, principal: str, host: str, operation: AclOperation, resource_type: AclResource
    ) -> bool:
        """Tells whether there is a name of this type on which the operation would be allowed (KIP-679)."""
        if principal in self.super_users:
            return True
        concerned = [
            acl
            for acl in self._acls
            if acl.resource_type is resource_type and _concerns(acl, principal, host)
        ]
        denied = [
            acl
            for acl in concerned
            if acl.permission is Permission.DENY and acl.operation in (operation, AclOperation.ALL)
        ]
        if any(_is_everything(acl) for acl in denied):
            return False
        if self._default:
            return True
        allowed = (acl for acl in concerned if acl.permission is Permission.ALLOW and _grants(acl, operation))
        return any(not any(_covers(deny, allow) for deny in denied) for allow in allowed)

    def _of_resource(self, resource_type: AclResource, name: str) -> list[Acl]:
        """Returns the ACLs whose pattern fits the name."""
        found = list(self._literal.get((resource_type, name), ()))
        if name != ANY_RESOURCE:
            found += self._literal.get((resource_type, ANY_RESOURCE), ())
        prefixes = self._prefixed.get(resource_type)
        if prefixes:
            for size in range(len(name) + 1):
                found += prefixes.get(name[:size], ())
        return found


def decision(
    of_resource: Iterable[Acl], principal: str, host: str, operation: AclOperation, *, default: bool
) -> bool:
    """Decides by the ACLs whose pattern fits the resource; `default` if there are none."""
    is_allowed = has_acls = False
    for acl in of_resource:
        has_acls = True
        if not _concerns(acl, principal, host):
            continue
        if acl.permission is Permission.DENY:
            if acl.operation in (operation, AclOperation.ALL):
                return False
        elif _grants(acl, operation):
            is_allowed = True
    return is_allowed if has_acls else default


def _concerns(acl: Acl, principal: str, host: str) -> bool:
    return acl.principal in (principal, ANY_PRINCIPAL) and acl.host in (host, ANY_HOST)


def _grants(acl: Acl, operation: AclOperation) -> bool:
    return acl.operation in (operation, AclOperation.ALL) or acl.operation in IMPLIED_BY.get(operation, ())


def _is_everything(acl: Acl) -> bool:
    """Whether the pattern fits every name: `*`, or the empty prefix."""
    return (
        acl.resource_name == ANY_RESOURCE
        if acl.pattern_type is PatternType.LITERAL
        else not acl.resource_name
    )


def _covers(deny: Acl, allow: Acl) -> bool:
    """Whether a denying pattern leaves nothing of an allowing one."""
    if deny.pattern_type is PatternType.PREFIXED:
        return allow.resource_name.startswith(deny.resource_name)
    return deny.pattern_type is allow.pattern_type and deny.resource_name == allow.resource_name
