"""FindCoordinator: this node, for every group. It waits for the disk where it has to make __consumer_offsets."""

from __future__ import annotations

from kohort.broker.broker import Broker
from kohort.broker.call import Call
from kohort.broker.missing import SHARE_GROUPS, TRANSACTIONS
from kohort.wire.errors import ErrorCode
from kohort.wire.messages import find_coordinator as find

GROUP, TRANSACTION, SHARE = 0, 1, 2


async def find_coordinator(broker: Broker, call: Call) -> find.FindCoordinatorResponse:
    request: find.FindCoordinatorRequest = call.request
    keys = request.coordinator_keys if call.version >= 4 else [request.key]
    if request.key_type == TRANSACTION:
        what = f"transactional.id {keys[0][:100]!r}" if keys else "FindCoordinator"
        broker.tell_missing(call, TRANSACTIONS, what)
    elif request.key_type == SHARE:
        broker.tell_missing(call, SHARE_GROUPS, "FindCoordinator")
    host, port = broker.address_for(call)
    found = []
    for key in keys:
        error, message = await _coordinator_error(broker, request.key_type, key)
        if error:
            found.append(find.Coordinator(key, -1, "", -1, error, message))
        else:
            message = "NONE" if call.version < 4 else ""  # Kafka's words
            found.append(find.Coordinator(key, broker.node_id, host, port, error, message))
    if call.version >= 4:
        return find.FindCoordinatorResponse(coordinators=found)
    only = found[0]
    return find.FindCoordinatorResponse(
        0, only.error_code, only.error_message, only.node_id, only.host, only.port
    )


async def _coordinator_error(broker: Broker, key_type: int, key: str) -> tuple[ErrorCode, str | None]:
    if key_type not in (GROUP, TRANSACTION):
        return ErrorCode.INVALID_REQUEST, f"there is no coordinator of kind {key_type} here"
    if key_type == TRANSACTION:
        # Of all refusals the one that clients take for final: others they ask again until their timeout.
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "this broker coordinates consumer groups only"
    if not await broker.groups.ensure_topic():
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, None
    return ErrorCode.NONE, None
