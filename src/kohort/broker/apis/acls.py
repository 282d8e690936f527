"""Handles DescribeAcls, CreateAcls and DeleteAcls."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from enum import IntEnum
from typing import Any, TypeVar

from kohort.broker.broker import Broker
from kohort.broker.call import Call
from kohort.log.registry import AclCreated, AclDeleted, RegistryEntry
from kohort.security.acls import Acl, AclFilter, AclOperation, AclResource, PatternType, Permission
from kohort.security.authorizer import Authorizer
from kohort.wire.errors import BadFrame, ErrorCode, KafkaError
from kohort.wire.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from kohort.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from kohort.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

E = TypeVar("E", bound=IntEnum)

_DISABLED = "No Authorizer is configured."
_DISABLED_HERE = "No Authorizer is configured on the broker"  # Kafka says it so to who only reads
_NOT_ALLOWED = "Cluster authorization failed."
_MOST_CHANGED = 10_000
"""ACLs in one request."""
MOST_ACLS = 100_000
"""ACLs in all. Kafka knows no limit; here each one takes memory and time of the one thread that serves everybody."""


def describe_acls(broker: Broker, call: Call) -> DescribeAclsResponse:
    request: DescribeAclsRequest = call.request
    wanted = _filter(request)
    if (authorizer := broker.authorizer) is None:
        return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=_DISABLED_HERE)
    if not broker.may_in_cluster(call, AclOperation.DESCRIBE):
        return DescribeAclsResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message=_NOT_ALLOWED
        )
    resources: dict[tuple[int, str, int], list[AclDescription]] = {}
    for acl in _found(authorizer, wanted):
        described = AclDescription(acl.principal, acl.host, acl.operation, acl.permission)
        resources.setdefault((acl.resource_type, acl.resource_name, acl.pattern_type), []).append(described)
    return DescribeAclsResponse(
        resources=[DescribeAclsResource(*resource, acls) for resource, acls in resources.items()]
    )


async def create_acls(broker: Broker, call: Call) -> CreateAclsResponse:
    """Makes ACLs, durably before it answers; one that is there already is no error."""
    request: CreateAclsRequest = call.request
    wanted = [_acl(creation) for creation in request.creations]
    refused = _refusal(broker, call)
    if refused is not None:
        return CreateAclsResponse(results=[AclCreationResult(*refused) for _ in wanted])
    async with broker.changes:
        authorizer = broker.authorizer
        assert authorizer is not None
        wrong = [acl.wrong() for acl in wanted]
        new = dict.fromkeys(
            acl for acl, why in zip(wanted, wrong, strict=True) if why is None and acl not in authorizer
        )
        failed = _too_many(len(authorizer), len(new)) or await broker.commit(
            [AclCreated(**_fields(acl)) for acl in new]
        )
    results = []
    for why in wrong:
        if why is not None:
            results.append(AclCreationResult(ErrorCode.INVALID_REQUEST, why))
        elif failed is not None:
            results.append(AclCreationResult(failed.code, failed.message))
        else:
            results.append(AclCreationResult())
    return CreateAclsResponse(results=results)


def _too_many(there: int, new: int) -> KafkaError | None:
    """Returns why so many ACLs are not made; None if they can be. None of a request is made then."""
    if new > _MOST_CHANGED:
        text = f"{new} new ACLs in a request; send at most {_MOST_CHANGED} at once"
        return KafkaError(ErrorCode.POLICY_VIOLATION, text)
    if there + new > MOST_ACLS:
        text = (
            f"There are {there} ACLs, and this broker keeps at most {MOST_ACLS}. Delete some, or replace ACLs of many "
            "names by one of their prefix (PREFIXED)"
        )
        return KafkaError(ErrorCode.POLICY_VIOLATION, text)
    return None


async def delete_acls(broker: Broker, call: Call) -> DeleteAclsResponse:
    """Deletes what the filters match, and lists it by filter; an ACL that two match is in both lists."""
    request: DeleteAclsRequest = call.request
    filters = [_filter(each) for each in request.filters]
    refused = _refusal(broker, call)
    if refused is not None:
        return DeleteAclsResponse(filter_results=[DeleteAclsFilterResult(*refused) for _ in filters])
    async with broker.changes:
        authorizer = broker.authorizer
        assert authorizer is not None
        found = [list(_found(authorizer, each)) for each in filters]
        gone = dict.fromkeys(acl for acls in found for acl in acls)
        if len(gone) > _MOST_CHANGED:
            too_many = (
                ErrorCode.INVALID_REQUEST,
                f"Cannot remove more than {_MOST_CHANGED} acls in a single delete operation.",
            )
            return DeleteAclsResponse(filter_results=[DeleteAclsFilterResult(*too_many) for _ in filters])
        entries: list[RegistryEntry] = [AclDeleted(**_fields(acl)) for acl in gone]
        failed = await broker.commit(entries)
    if failed is not None:
        return DeleteAclsResponse(
            filter_results=[DeleteAclsFilterResult(failed.code, failed.message) for _ in filters]
        )
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(ErrorCode.INVALID_REQUEST, f"Unknown {wrong}.")
            if (wrong := each.unknown()) is not None
            else DeleteAclsFilterResult(matching_acls=[_matching(acl) for acl in acls])
            for each, acls in zip(filters, found, strict=True)
        ]
    )


def _refusal(broker: Broker, call: Call) -> tuple[ErrorCode, str] | None:
    if broker.authorizer is None:
        return ErrorCode.SECURITY_DISABLED, _DISABLED
    if not broker.may_in_cluster(call, AclOperation.ALTER):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED, _NOT_ALLOWED
    return None


def _found(authorizer: Authorizer, wanted: AclFilter) -> Iterable[Acl]:
    return (acl for acl in authorizer if wanted.matches(acl))


def _acl(creation: AclCreation) -> Acl:
    return Acl(
        _code(AclResource, creation.resource_type),
        creation.resource_name,
        _code(PatternType, creation.resource_pattern_type),
        creation.principal,
        creation.host,
        _code(AclOperation, creation.operation),
        _code(Permission, creation.permission_type),
    )


def _filter(request: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    return AclFilter(
        _code(AclResource, request.resource_type_filter),
        request.resource_name_filter,
        _code(PatternType, request.pattern_type_filter),
        request.principal_filter,
        request.host_filter,
        _code(AclOperation, request.operation),
        _code(Permission, request.permission_type),
    )


def _code(kind: type[E], number: int) -> E:
    """Returns the meaning of a code. As in Kafka 0 closes the connection; another that means nothing is UNKNOWN."""
    if number == 0:
        raise BadFrame(f"{kind.__name__} 0 means nothing")
    return kind(number) if number in kind._value2member_map_ else kind(0)


def _matching(acl: Acl) -> DeleteAclsMatchingAcl:
    fields = _fields(acl)
    fields["permission_type"] = fields.pop("permission")
    return DeleteAclsMatchingAcl(**fields)


def _fields(acl: Acl) -> dict[str, Any]:
    return {name: int(value) if isinstance(value, int) else value for name, value in asdict(acl).items()}
