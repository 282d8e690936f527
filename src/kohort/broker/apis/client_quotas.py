"""Handles DescribeClientQuotas and AlterClientQuotas."""

from __future__ import annotations

from collections import Counter
from functools import partial

from kohort.broker.broker import Broker
from kohort.broker.call import Call
from kohort.broker.security.quotas import address_of, canonical
from kohort.log.registry import ClientQuotaSet, RegistryEntry
from kohort.security.acls import AclOperation
from kohort.security.quota_changes import changed_values, entity_of, filter_of
from kohort.security.quotas import IP, EntityKey
from kohort.wire.errors import ErrorCode, KafkaError
from kohort.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterQuotaEntry,
    AlterQuotaResult,
    AlterQuotaResultEntity,
)
from kohort.wire.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    QuotaEntity,
    QuotaEntry,
    QuotaValue,
)

_NOT_ALLOWED = KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
_MOST_HOSTS = 100  # that one request may have looked up


def describe_client_quotas(broker: Broker, call: Call) -> DescribeClientQuotasResponse:
    request: DescribeClientQuotasRequest = call.request
    try:
        if not broker.may_in_cluster(call, AclOperation.DESCRIBE_CONFIGS):
            raise _NOT_ALLOWED
        components = [(each.entity_type, each.match_type, each.match) for each in request.components]
        wanted = filter_of(components, strict=request.strict)
    except KafkaError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
    entries = [
        QuotaEntry(
            [QuotaEntity(*pair) for pair in entity], [QuotaValue(*value) for value in sorted(values.items())]
        )
        for entity, values in broker.store.quotas().items()
        if wanted.matches(entity)
    ]
    return DescribeClientQuotasResponse(error_message=None, entries=entries)


async def alter_client_quotas(broker: Broker, call: Call) -> AlterClientQuotasResponse:
    """Changes quotas, durably before it answers. Open connections are held to them from their next request on."""
    request: AlterClientQuotasRequest = call.request
    if not broker.may_in_cluster(call, AclOperation.ALTER_CONFIGS):
        return AlterClientQuotasResponse(
            entries=[_result(_pairs(entry), _NOT_ALLOWED) for entry in request.entries]
        )
    unknown = await _unknown_hosts(broker, request)
    asked = Counter(tuple(sorted(_pairs(entry), key=repr)) for entry in request.entries)
    async with broker.changes:
        quotas = broker.store.quotas()
        changes: list[RegistryEntry] = []
        outcomes: dict[EntityKey, KafkaError | None] = {}
        for entry in request.entries:
            named = tuple(sorted(_pairs(entry), key=repr))
            if asked[named] > 1:
                outcomes[named] = KafkaError(
                    ErrorCode.INVALID_REQUEST, f"Ignoring duplicate entity {dict(named)}"
                )
                continue
            try:
                entity = entity_of(_pairs(entry), lambda host: host not in unknown)
                now = quotas.get(entity, {})
                values = changed_values(
                    entity, now, [(op.key, None if op.remove else op.value) for op in entry.ops]
                )
                outcomes[named] = None
            except KafkaError as error:
                outcomes[named] = error
                continue
            if values != now:
                changes.append(ClientQuotaSet(dict(entity), values))
        failed = None if request.validate_only else await broker.commit(changes)
    return AlterClientQuotasResponse(
        entries=[_result(list(entity), error or failed) for entity, error in outcomes.items()]
    )


async def _unknown_hosts(broker: Broker, request: AlterClientQuotasRequest) -> set[str]:
    """Returns the names of hosts that have no address; names beyond the first hundred are not looked up."""
    hosts = {
        name
        for entry in request.entries
        for entity_type, name in _pairs(entry)
        if entity_type == IP and name and canonical(name) is None
    }
    unknown: set[str] = set(sorted(hosts)[_MOST_HOSTS:])
    for host in hosts - unknown:
        if await broker.off_loop(partial(address_of, host)) is None:
            unknown.add(host)
    return unknown


def _pairs(entry: AlterQuotaEntry) -> list[tuple[str, str | None]]:
    return [(each.entity_type, each.entity_name) for each in entry.entity]


def _result(pairs: list[tuple[str, str | None]], error: KafkaError | None) -> AlterQuotaResult:
    entity = [AlterQuotaResultEntity(*pair) for pair in pairs]
    if error is None:
        return AlterQuotaResult(ErrorCode.NONE, None, entity)
    return AlterQuotaResult(error.code, error.message, entity)
