"""What the broker says of a group, asked over a connection of its own each time.

librdkafka's admin client is no witness here: it may wait for a minute on the handle of a broker that went away.
"""

from __future__ import annotations

from kohort.client.group.consumer_protocol import decode_assignment
from kohort.client.io.blocking_connection import BlockingConnection
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.describe_groups import DescribeGroupsRequest
from kohort.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kohort.wire.messages.offset_fetch import OffsetFetchRequest
from tests.clients.client import GroupMember, GroupView, Partition
from tests.clients.process import eventually

# __consumer_offsets is made when somebody first asks for a coordinator, and read after a start.
NOT_YET = (ErrorCode.NONE, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


class Observer:
    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers

    def group(self, group: str) -> GroupView:
        with BlockingConnection(self.bootstrap_servers) as broker:
            (found,) = broker.call(DescribeGroupsRequest([group]), version=5).groups
        assert found.error_code in NOT_YET, ErrorCode(found.error_code).name
        members = [
            GroupMember(m.member_id, m.client_id, m.group_instance_id, assigned(bytes(m.member_assignment)))
            for m in found.members
        ]
        return GroupView(found.group_state.lower(), found.protocol_data, tuple(members))

    def committed(self, group: str) -> dict[Partition, int]:
        answer = eventually(lambda: self._offsets(group), "the group is loaded")
        return {
            (topic.name, part.partition_index): part.committed_offset
            for topic in answer.topics
            for part in topic.partitions
        }

    def remove(self, group: str, member_id: str) -> None:
        """Takes a member out of the group, if it is still in it."""
        with BlockingConnection(self.bootstrap_servers) as broker:
            answer = broker.call(LeaveGroupRequest(group, members=[MemberIdentity(member_id)]), version=4)
        (left,) = answer.members
        assert left.error_code in (0, ErrorCode.UNKNOWN_MEMBER_ID), ErrorCode(left.error_code).name

    def _offsets(self, group: str) -> object:
        with BlockingConnection(self.bootstrap_servers) as broker:
            answer = broker.call(OffsetFetchRequest(group, topics=None), version=7)
        assert answer.error_code in NOT_YET, ErrorCode(answer.error_code).name
        return answer if answer.error_code == 0 else None


def assigned(data: bytes) -> frozenset[Partition]:
    """The partitions in a member's assignment, as the consumer protocol writes it."""
    if not data:
        return frozenset()
    return frozenset((topic, index) for topic, index in decode_assignment(data).partitions)
