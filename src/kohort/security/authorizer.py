"""Decides who may do what, as Kafka's StandardAuthorizer does.

A super user may do everything. Otherwise the ACLs count whose pattern fits the resource and which fit the principal,
the host and the operation: one that denies decides, then one that allows. If no ACL has a pattern that fits the
resource, whoever it is about, `allow.everyone.if.no.acl.found` decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import TypeAlias
from weakref import WeakValueDictionary

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

_EVERY_NAME = (PatternType.LITERAL, ANY_RESOURCE)
_MOST_CACHED = 10_000
MOST_GRANTED = 1_000
_LONGEST_CACHED = 300  # characters of a name; topics have at most 249

Question: TypeAlias = tuple[str, str, AclOperation, AclResource, str]
"""Principal, host, operation, type and name of the resource."""


class Granted(set[object]):
    """What one principal at one address was allowed since an ACL last changed; a change empties it.

    A caller keeps it and looks into it before it asks. An entry is (operation, type, name), or whatever stands for
    several questions that were all answered.
    """

    __slots__ = ()

    def keep(self, entry: object) -> None:
        """Adds what was allowed; its size is bounded, whatever callers ask for."""
        if len(self) >= MOST_GRANTED:
            self.clear()
        self.add(entry)


NOTHING_GRANTED: frozenset[object] = frozenset()
"""Of a caller that has not asked yet."""


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
        self._acls: dict[Acl, None] = {}  # in the order in which they were made
        self._literal: dict[tuple[AclResource, str], dict[Acl, None]] = {}
        self._prefixed: dict[tuple[AclResource, str], dict[Acl, None]] = {}
        self._prefix_sizes: dict[AclResource, Counter[int]] = {}  # how many prefixes there are of each length
        self._decided: dict[Question, bool] = {}
        self._on_some: dict[tuple[str, str, AclOperation, AclResource], bool] = {}
        self._granted: WeakValueDictionary[tuple[str, str], Granted] = WeakValueDictionary()
        for acl in acls:
            self.add(acl)

    # --- changes ----------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._acls)

    def __contains__(self, acl: Acl) -> bool:
        return acl in self._acls

    def __iter__(self) -> Iterator[Acl]:
        return iter(self._acls)

    def add(self, acl: Acl) -> None:
        """Adds an ACL; one that is there already stays as it is."""
        self._forget_answers()
        self._acls[acl] = None
        pattern = acl.resource_type, acl.resource_name
        if acl.pattern_type is PatternType.LITERAL:
            self._literal.setdefault(pattern, {})[acl] = None
            return
        if pattern not in self._prefixed:
            self._prefix_sizes.setdefault(acl.resource_type, Counter())[len(acl.resource_name)] += 1
        self._prefixed.setdefault(pattern, {})[acl] = None

    def remove(self, acl: Acl) -> None:
        """Removes an ACL that is there."""
        self._forget_answers()
        del self._acls[acl]
        places = self._literal if acl.pattern_type is PatternType.LITERAL else self._prefixed
        pattern = acl.resource_type, acl.resource_name
        del places[pattern][acl]
        if places[pattern]:
            return
        del places[pattern]
        if acl.pattern_type is PatternType.PREFIXED:
            sizes, size = self._prefix_sizes[acl.resource_type], len(acl.resource_name)
            sizes[size] -= 1
            if not sizes[size]:
                del sizes[size]

    def _forget_answers(self) -> None:
        self._decided.clear()
        self._on_some.clear()
        for granted in list(self._granted.values()):
            granted.clear()

    def granted_to(self, principal: str, host: str) -> Granted:
        """Returns what this caller was allowed lately, for it to keep; it is emptied when an ACL changes."""
        who = (principal, host)
        granted = self._granted.get(who)
        if granted is None:
            granted = self._granted[who] = Granted()
        return granted

    # --- decisions --------------------------------------------------------------------------------

    def allows(
        self, principal: str, host: str, operation: AclOperation, resource_type: AclResource, name: str
    ) -> bool:
        """Tells whether a principal at a host may do this to a resource. Answers are kept until an ACL changes."""
        question = (principal, host, operation, resource_type, name)
        known = self._decided.get(question)
        if known is None:
            known = principal in self.super_users or decision(
                self._of_resource(resource_type, name), principal, host, operation, default=self._default
            )
            if len(name) <= _LONGEST_CACHED:
                if len(self._decided) >= _MOST_CACHED:
                    self._decided.clear()
                self._decided[question] = known
        return known

    def allowed_operations(self, principal: str, host: str, resource_type: AclResource, name: str) -> int:
        """Returns the operations on a resource that are allowed, a bit for each, as `authorized_operations`."""
        bits = 0
        for operation in OPERATIONS_OF[resource_type]:
            if self.allows(principal, host, operation, resource_type, name):
                bits |= 1 << operation
        return bits

    def rule(
        self, principal: str, host: str, operation: AclOperation, resource_type: AclResource, name: str
    ) -> str:
        """Returns what decides about a question, in Kafka's words, for people."""
        if principal in self.super_users:
            return "SuperUser"
        of_resource = self._of_resource(resource_type, name)
        deciding = deciding_acl(of_resource, principal, host, operation)
        if deciding is not None:
            return f"MatchingAcl(acl={deciding})"
        return "DefaultAllow" if self._default and not of_resource else "DefaultDeny"

    def allows_on_some(
        self, principal: str, host: str, operation: AclOperation, resource_type: AclResource
    ) -> bool:
        """Tells whether there is a name of this type on which the operation would be allowed (KIP-679).

        By ACLs, one pattern has to allow it that is not denied as a whole. By `allow.everyone.if.no.acl.found`, there
        always is a name without an ACL, unless one is for all names.
        """
        question = (principal, host, operation, resource_type)
        known = self._on_some.get(question)
        if known is None:
            if len(self._on_some) >= _MOST_CACHED:
                self._on_some.clear()
            known = self._on_some[question] = principal in self.super_users or self._finds_some(*question)
        return known

    def _finds_some(
        self, principal: str, host: str, operation: AclOperation, resource_type: AclResource
    ) -> bool:
        allowed: set[tuple[PatternType, str]] = set()
        denied: set[tuple[PatternType, str]] = set()
        for acl in self._acls:
            if acl.resource_type is not resource_type or not _concerns(acl, principal, host):
                continue
            pattern = acl.pattern_type, acl.resource_name
            if acl.permission is Permission.ALLOW:
                if _grants(acl, operation):
                    allowed.add(pattern)
            elif acl.operation in (operation, AclOperation.ALL):
                denied.add(pattern)
        if _EVERY_NAME in denied:
            return False
        if self._default and (resource_type, ANY_RESOURCE) not in self._literal:
            return True
        return _EVERY_NAME in allowed or any(not _is_covered(pattern, denied) for pattern in allowed)

    def _of_resource(self, resource_type: AclResource, name: str) -> list[Acl]:
        """Returns the ACLs whose pattern fits the name."""
        found = list(self._literal.get((resource_type, name), ()))
        if name != ANY_RESOURCE:
            found += self._literal.get((resource_type, ANY_RESOURCE), ())
        for size in self._prefix_sizes.get(resource_type, ()):
            if size <= len(name):
                found += self._prefixed.get((resource_type, name[:size]), ())
        return found


def decision(
    of_resource: Collection[Acl], principal: str, host: str, operation: AclOperation, *, default: bool
) -> bool:
    """Decides by the ACLs whose pattern fits the resource; `default` if there are none."""
    deciding = deciding_acl(of_resource, principal, host, operation)
    if deciding is not None:
        return deciding.permission is Permission.ALLOW
    return default and not of_resource


def deciding_acl(
    of_resource: Iterable[Acl], principal: str, host: str, operation: AclOperation
) -> Acl | None:
    """Returns the ACL that decides: one that denies, else one that allows; None if no ACL is about this."""
    allowing = None
    for acl in of_resource:
        if not _concerns(acl, principal, host):
            continue
        if acl.permission is Permission.DENY:
            if acl.operation in (operation, AclOperation.ALL):
                return acl
        elif _grants(acl, operation):
            allowing = acl
    return allowing


def _concerns(acl: Acl, principal: str, host: str) -> bool:
    return acl.principal in (principal, ANY_PRINCIPAL) and acl.host in (host, ANY_HOST)


def _grants(acl: Acl, operation: AclOperation) -> bool:
    return acl.operation in (operation, AclOperation.ALL) or acl.operation in IMPLIED_BY.get(operation, ())


def _is_covered(pattern: tuple[PatternType, str], denied: Collection[tuple[PatternType, str]]) -> bool:
    """Whether denials leave nothing of a pattern: one of the same, or of a prefix of it."""
    name = pattern[1]
    return pattern in denied or any(
        (PatternType.PREFIXED, name[:size]) in denied for size in range(1, len(name) + 1)
    )
