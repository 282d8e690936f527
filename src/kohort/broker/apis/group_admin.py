"""Handles DescribeGroups, ListGroups and DeleteGroups: one answer gathered from several groups or shards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kohort.broker.apis.cluster import NOT_ASKED
from kohort.broker.broker import Broker
from kohort.broker.call import Call
from kohort.coordinator.effects import DeleteResponse, DescribeResponse, ListResponse
from kohort.coordinator.events import DeleteGroup, DescribeGroup, ListGroups
from kohort.security.acls import AclOperation, AclResource
from kohort.wire.errors import ErrorCode
from kohort.wire.messages import delete_groups as delete
from kohort.wire.messages import describe_groups as describe
from kohort.wire.messages import list_groups as listing
from kohort.wire.struct import Message


class Gather:
    """Waits for several replies and then answers the call with all of them, in order."""

    __slots__ = ("call", "finish", "missing", "replies")

    def __init__(self, call: Call, count: int, finish: Callable[[list[Any]], Message]) -> None:
        self.call, self.finish, self.missing = call, finish, count
        self.replies: list[Any] = [None] * count
        call.park()
        if not count:
            call.reply(finish([]))

    def slot(self, index: int) -> Callable[[Any], None]:
        def on_reply(response: Any) -> None:
            self.replies[index] = response
            self.missing -= 1
            if not self.missing:
                self.call.reply(self.finish(self.replies))

        return on_reply


def describe_groups(broker: Broker, call: Call) -> None:
    request: describe.DescribeGroupsRequest = call.request

    def operations_on(group_id: str) -> int:
        if not request.include_authorized_operations:
            return NOT_ASKED
        return broker.allowed_operations(call, AclResource.GROUP, group_id)

    def finish(replies: list[DescribeResponse]) -> describe.DescribeGroupsResponse:
        return describe.DescribeGroupsResponse(
            groups=[_described(reply, operations_on(reply.group_id)) for reply in replies]
        )

    gather = Gather(call, len(request.groups), finish)
    for index, group_id in enumerate(request.groups):
        if not broker.may(call, AclOperation.DESCRIBE, AclResource.GROUP, group_id):
            gather.slot(index)(DescribeResponse(ErrorCode.GROUP_AUTHORIZATION_FAILED, group_id))
            continue
        event = DescribeGroup(gather.slot(index), group_id, unknown_is_error=call.version >= 6)
        broker.groups.submit(event)


def _described(reply: DescribeResponse, operations: int) -> describe.DescribedGroup:
    members = [describe.DescribedGroupMember(*member) for member in reply.members]
    unknown = reply.error is ErrorCode.GROUP_ID_NOT_FOUND
    return describe.DescribedGroup(
        reply.error,
        f"Group {reply.group_id} not found." if unknown else None,
        reply.group_id,
        reply.state,
        reply.protocol_type,
        reply.protocol_data,
        members,
        operations if not reply.error else NOT_ASKED,
    )


def list_groups(broker: Broker, call: Call) -> None:
    request: listing.ListGroupsRequest = call.request
    shards = range(len(broker.groups.runtime.shards))

    def may_describe(group_id: str) -> bool:
        return broker.may(call, AclOperation.DESCRIBE, AclResource.GROUP, group_id, audits_denial=False)

    def finish(replies: list[ListResponse]) -> listing.ListGroupsResponse:
        error = next((reply.error for reply in replies if reply.error), ErrorCode.NONE)
        groups = [listing.ListedGroup(*group) for reply in replies for group in reply.groups]
        if broker.guard is not None and not broker.may_in_cluster(
            call, AclOperation.DESCRIBE, audits_denial=False
        ):
            groups = [group for group in groups if may_describe(group.group_id)]
        return listing.ListGroupsResponse(0, error, groups)

    gather = Gather(call, len(shards), finish)
    for index in shards:
        event = ListGroups(gather.slot(index), tuple(request.states_filter), tuple(request.types_filter))
        broker.groups.ask_shard(index, event)


def delete_groups(broker: Broker, call: Call) -> None:
    request: delete.DeleteGroupsRequest = call.request
    names = list(dict.fromkeys(request.groups_names))  # each once, in their order

    def finish(replies: list[DeleteResponse]) -> delete.DeleteGroupsResponse:
        results = zip(names, replies, strict=True)
        return delete.DeleteGroupsResponse(
            0, [delete.DeletableGroupResult(name, reply.error) for name, reply in results]
        )

    gather = Gather(call, len(names), finish)
    for index, group_id in enumerate(names):
        if not broker.may(call, AclOperation.DELETE, AclResource.GROUP, group_id):
            gather.slot(index)(DeleteResponse(ErrorCode.GROUP_AUTHORIZATION_FAILED, group_id))
            continue
        if broker.groups.share_group(group_id) is not None:
            from kohort.broker.apis.share_group_offsets import delete_share_group

            delete_share_group(broker, group_id, gather.slot(index))
        else:
            broker.groups.submit(DeleteGroup(gather.slot(index), group_id))
