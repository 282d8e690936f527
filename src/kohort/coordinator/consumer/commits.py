"""Whether a member of a consumer group may commit or fetch offsets (KIP-848, KIP-1251)."""

from __future__ import annotations

from kohort.coordinator.consumer.group import ConsumerGroup
from kohort.coordinator.consumer.state import ConsumerMember, ConsumerState
from kohort.coordinator.events import OffsetCommit, OffsetFetch, TxnOffsetCommit
from kohort.coordinator.topic_catalog import TopicCatalog
from kohort.wire.errors import ErrorCode

NONE = ErrorCode.NONE


def check_commit(
    group: ConsumerGroup, request: OffsetCommit | TxnOffsetCommit, topics: TopicCatalog
) -> ErrorCode:
    is_plain = isinstance(request, OffsetCommit)
    epoch = request.generation_id
    if epoch < 0 and not group.members:
        return NONE
    if not is_plain and epoch == -1 and not request.member_id and request.group_instance_id is None:
        return NONE
    member = group.members.get(request.member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if isinstance(request, OffsetCommit) and not member.is_classic and not request.group_may_be_unknown:
        return ErrorCode.UNSUPPORTED_VERSION  # before v9 a client does not know the errors of this protocol
    if epoch == member.epoch:
        return NONE
    if epoch < member.epoch and _was_assigned_by(member, epoch, request, topics):
        return NONE
    # TxnOffsetCommit has no STALE_MEMBER_EPOCH.
    is_classic = member.is_classic or not is_plain
    return ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH


def _was_assigned_by(
    member: ConsumerMember, epoch: int, request: OffsetCommit | TxnOffsetCommit, topics: TopicCatalog
) -> bool:
    """Whether the member has had all these partitions since that epoch: then the commit is late, not wrong."""
    for item in request.offsets:
        topic = topics.topic(item.topic)
        if topic is None:
            return False
        since = member.assigned.get(topic.topic_id, {}).get(item.partition)
        if since is None:
            since = member.pending.get(topic.topic_id, {}).get(item.partition)
        if since is None or epoch < since:
            return False
    return True


def check_fetch(state: ConsumerState, request: OffsetFetch) -> ErrorCode:
    """Refuses a member that is not, or no longer, what it says; who does not say who it is may fetch."""
    if request.member_id is None and request.member_epoch < 0:
        return NONE
    member = state.members.get(request.member_id or "")
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if request.member_epoch == member.epoch:
        return NONE
    return ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH
