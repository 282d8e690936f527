"""What handlers ask before they do something: whether the caller may. The brokers of the simulator answer alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.security.acls import CLUSTER_NAME, AclOperation, AclResource, all_operations

if TYPE_CHECKING:
    from kohort.broker.call import Call
    from kohort.broker.security.guard import BrokerGuard
    from kohort.security.authorizer import Authorizer


class Permissions:
    """Asks the guard; where there is none, everybody may do everything."""

    __slots__ = ()
    guard: BrokerGuard | None

    @property
    def authorizer(self) -> Authorizer | None:
        """Who decides about permissions; None: everything is allowed."""
        return None if self.guard is None else self.guard.authorizer

    def may(
        self,
        call: Call,
        operation: AclOperation,
        resource_type: AclResource,
        name: str,
        *,
        audits_denial: bool = True,
    ) -> bool:
        """Tells whether the caller may do this to a resource.

        A denial of what the caller named is audited; one that only shortens a list, or that another right makes up
        for, is not.
        """
        guard = self.guard
        if guard is None:
            return True
        # Each request asks, nearly always what was asked before: then one look is the answer.
        if (operation, resource_type, name) in call.connection.granted:
            return True
        return guard.may(call, operation, resource_type, name, audits_denial)

    def may_in_cluster(self, call: Call, operation: AclOperation, *, audits_denial: bool = True) -> bool:
        """Tells whether the caller may do this to the cluster."""
        return self.may(call, operation, AclResource.CLUSTER, CLUSTER_NAME, audits_denial=audits_denial)

    def may_on_some(self, call: Call, operation: AclOperation, resource_type: AclResource) -> bool:
        """Tells whether the caller may do this to some resource of a type."""
        authorizer, caller = self.authorizer, call.connection
        return authorizer is None or authorizer.allows_on_some(
            caller.principal, caller.address, operation, resource_type
        )

    def allowed_operations(self, call: Call, resource_type: AclResource, name: str) -> int:
        """Returns what the caller may do to a resource, a bit for each operation."""
        return (
            self.guard.operations(call, resource_type, name)
            if self.guard is not None
            else all_operations(resource_type)
        )
