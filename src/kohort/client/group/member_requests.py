"""Builds the four requests of a group member, in the version that the coordinator speaks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kohort.client.config import ConsumerConfig
from kohort.client.core import arguments
from kohort.client.group.assignors import Assignor
from kohort.client.group.consumer_protocol import Subscription, encode_subscription
from kohort.client.types import GroupMetadata, TopicPartition
from kohort.wire.consumer_protocol import PROTOCOL_TYPE
from kohort.wire.messages.heartbeat import HeartbeatRequest
from kohort.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kohort.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kohort.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

STATIC_SINCE = 5
"""The version of JoinGroup that has group.instance.id."""

MAX_REASON = 255
"""Kafka's brokers are told at most this many characters of a reason."""


def protocols(
    assignors: Sequence[Assignor],
    topics: frozenset[str],
    owned: Iterable[TopicPartition],
    generation_id: int,
    rack: str | None,
) -> list[JoinGroupRequestProtocol]:
    """What this member tells the leader, once for each assignor, the preferred assignor first."""
    wanted, has = tuple(sorted(topics)), tuple(sorted(owned))
    return [
        JoinGroupRequestProtocol(
            assignor.name,
            encode_subscription(Subscription(wanted, _user_data(assignor, topics), has, generation_id, rack)),
        )
        for assignor in assignors
    ]


def _user_data(assignor: Assignor, topics: frozenset[str]) -> bytes | None:
    what = f"what subscription_user_data of assignor {assignor.name} returns"
    return arguments.raw_bytes(assignor.subscription_user_data(topics), what)


def join_request(
    config: ConsumerConfig, member_id: str, offered: list[JoinGroupRequestProtocol], reason: str
) -> Callable[[int], JoinGroupRequest]:
    def make(version: int) -> JoinGroupRequest:
        if config.group_instance_id is not None and version < STATIC_SINCE:
            raise ValueError(
                "group.instance.id needs a broker that knows static members (Kafka 2.3): leave the setting out"
            )
        return JoinGroupRequest(
            config.group_id or "",
            config.session_timeout_ms,
            config.max_poll_interval_ms,
            member_id,
            config.group_instance_id,
            PROTOCOL_TYPE,
            offered,
            reason[:MAX_REASON] or None,
        )

    return make


def sync_request(
    me: GroupMetadata, protocol_name: str | None, assignments: Iterable[tuple[str, bytes]]
) -> Callable[[int], SyncGroupRequest]:
    given = [SyncGroupRequestAssignment(member_id, data) for member_id, data in assignments]

    def make(version: int) -> SyncGroupRequest:
        return SyncGroupRequest(
            me.group_id,
            me.generation_id,
            me.member_id,
            me.group_instance_id,
            PROTOCOL_TYPE,
            protocol_name,
            given,
        )

    return make


def heartbeat_request(me: GroupMetadata) -> Callable[[int], HeartbeatRequest]:
    def make(version: int) -> HeartbeatRequest:
        return HeartbeatRequest(me.group_id, me.generation_id, me.member_id, me.group_instance_id)

    return make


def leave_request(group_id: str, member_id: str, reason: str) -> Callable[[int], LeaveGroupRequest]:
    def make(version: int) -> LeaveGroupRequest:
        if version < 3:
            return LeaveGroupRequest(group_id, member_id)
        return LeaveGroupRequest(group_id, members=[MemberIdentity(member_id, None, reason[:MAX_REASON])])

    return make
