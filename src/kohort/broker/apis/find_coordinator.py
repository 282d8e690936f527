"""Handles FindCoordinator: this node coordinates every group, transactional id and share partition.

The first request creates `__consumer_offsets`, `__transaction_state` or `__share_group_state`.
"""

from __future__ import annotations

import re

from kohort.broker.broker import Broker
from kohort.broker.call import Call
from kohort.security.acls import AclOperation, AclResource
from kohort.wire.errors import ErrorCode
from kohort.wire.messages import find_coordinator as find

GROUP, TRANSACTION, SHARE = 0, 1, 2
_FIRST_WITH_SHARE = 6
_SHARE_KEY = re.compile(r".+:[A-Za-z0-9_-]{22}(?:==)?:\d+", re.DOTALL)  # group, topic id, partition


async def find_coordinator(broker: Broker, call: Call) -> find.FindCoordinatorResponse:
    request: find.FindCoordinatorRequest = call.request
    keys = request.coordinator_keys if call.version >= 4 else [request.key]
    address = broker.address_for(call)
    found = []
    for key in keys:
        error, message = _refusal(broker, call, request.key_type, key)
        if not error:
            error, message = await _coordinator_error(broker, request.key_type)
        if not error and address is None:  # its listener is not advertised
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if error or address is None:
            found.append(find.Coordinator(key, -1, "", -1, error, message))
        else:
            message = "NONE" if call.version < 4 else ""  # Kafka's words
            found.append(find.Coordinator(key, broker.node_id, *address, error, message))
    if call.version >= 4:
        return find.FindCoordinatorResponse(coordinators=found)
    only = found[0]
    return find.FindCoordinatorResponse(
        0, only.error_code, only.error_message, only.node_id, only.host, only.port
    )


def _refusal(broker: Broker, call: Call, key_type: int, key: str) -> tuple[ErrorCode, str | None]:
    """Returns why the caller may not know the coordinator; NONE if it may."""
    if key_type == GROUP and not broker.may(call, AclOperation.DESCRIBE, AclResource.GROUP, key):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed."
    if key_type == TRANSACTION and not broker.may(
        call, AclOperation.DESCRIBE, AclResource.TRANSACTIONAL_ID, key
    ):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "Transactional Id authorization failed."
    if key_type == SHARE and not broker.may_in_cluster(call, AclOperation.CLUSTER_ACTION):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."
    if key_type == SHARE and (call.version < _FIRST_WITH_SHARE or not _SHARE_KEY.fullmatch(key)):
        return ErrorCode.INVALID_REQUEST, f"{key[:100]!r} is no key of a share partition"
    return ErrorCode.NONE, None


async def _coordinator_error(broker: Broker, key_type: int) -> tuple[ErrorCode, str | None]:
    match key_type:
        case 0:
            is_there = await broker.groups.ensure_topic()
        case 1:
            is_there = await broker.transactions.ensure_topic()
        case 2:
            is_there = await broker.share_states.ensure_topic()
        case _:
            return ErrorCode.INVALID_REQUEST, f"there is no coordinator of kind {key_type} here"
    return (ErrorCode.NONE if is_there else ErrorCode.COORDINATOR_NOT_AVAILABLE), None
