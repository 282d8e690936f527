"""Decides what an answer to a commit means, and words it: what happened, whether there are duplicates, what to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kohort.client.errors import CommitFailed, RebalanceInProgress, error_for
from kohort.client.offsets.committed import COORDINATOR_GONE, TOPIC_UNKNOWN
from kohort.client.offsets.offset_requests import names
from kohort.client.types import OffsetAndMetadata, TopicPartition
from kohort.wire.errors import ErrorCode, KafkaError

_FORGETS = (*COORDINATOR_GONE, ErrorCode.REQUEST_TIMED_OUT)
RETRIED_COMMITS = (*_FORGETS, *TOPIC_UNKNOWN, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
_MEMBERSHIP = (
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.REBALANCE_IN_PROGRESS,
)

_BYTES_BESIDE = 24
"""What a partition takes in a commit besides its topic and metadata."""
_LARGE = 4_096

_DUPLICATES = (
    "Records since the last commit may be processed twice: by this consumer already, and again by whoever owns their "
    "partitions next"
)


@dataclass(frozen=True, slots=True)
class CommitVerdict:
    """What a refused commit means for the commit, the coordinator and the membership."""

    error: KafkaError
    retriable: bool = False
    forget_coordinator: bool = False
    unknown_topics: bool = False
    membership_ended: bool = False
    """Whether the error is about this consumer's place in the group."""


def judge(codes: Mapping[TopicPartition, ErrorCode], group_id: str | None) -> CommitVerdict:
    """Returns one verdict for an answer with errors: the membership comes first, then what no retry can mend."""
    found = set(codes.values())
    code = next((c for c in _MEMBERSHIP if c in found), None)
    if code is not None:
        return CommitVerdict(_membership_error(code, codes, group_id), membership_ended=True)
    code = next((c for c in codes.values() if c not in RETRIED_COMMITS), next(iter(codes.values())))
    concerned = [p for p, c in codes.items() if c is code]
    return CommitVerdict(
        error_for(code, _words(code, concerned, group_id)),
        retriable=code in RETRIED_COMMITS,
        forget_coordinator=code in _FORGETS,
        unknown_topics=code in TOPIC_UNKNOWN,
    )


def _words(code: ErrorCode, concerned: list[TopicPartition], group_id: str | None) -> str:
    which = names(concerned)
    if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        topics = ", ".join(sorted({p.topic for p in concerned}))
        return f"not allowed to commit offsets of the topics {topics}: it needs READ on them"
    if code is ErrorCode.GROUP_AUTHORIZATION_FAILED:
        return f"not allowed to commit in group {group_id}: it needs READ on the group"
    if code is ErrorCode.OFFSET_METADATA_TOO_LARGE:
        return (
            f"the metadata committed with the offset of {which} is too long: shorten it, or raise "
            "offset.metadata.max.bytes of the broker"
        )
    if code is ErrorCode.INVALID_COMMIT_OFFSET_SIZE:
        return f"the broker cannot store a commit that large ({which}): commit fewer partitions at once"
    if code is ErrorCode.UNKNOWN_SERVER_ERROR:
        return (
            f"committing {which} in group {group_id}: the broker could not do it; its log says why. Kafka answers so "
            f"if a commit (here of {len(concerned)} partitions) is larger than max.message.bytes of "
            "__consumer_offsets, 1 MB: then commit fewer partitions at once, or shorter metadata"
        )
    if code in TOPIC_UNKNOWN:
        return f"the broker does not know {which}: was the topic deleted?"
    return f"committing {which} in group {group_id}"


def how_large(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> str:
    """Says how large a commit was on which the broker closed the connection: that may be the reason."""
    size = sum(_BYTES_BESIDE + len(p.topic) + len(at.metadata.encode()) for p, at in offsets.items())
    if size < _LARGE:
        return ""
    return (
        f" (about {size} bytes; if that is more than the broker's socket.request.max.bytes, commit fewer partitions at "
        "once, or shorter metadata)"
    )


def _membership_error(
    code: ErrorCode, codes: Mapping[TopicPartition, ErrorCode], group_id: str | None
) -> KafkaError:
    if code is ErrorCode.REBALANCE_IN_PROGRESS:
        return rebalance_in_progress(codes, group_id)
    if code is ErrorCode.FENCED_INSTANCE_ID:
        return fenced(group_id)
    return commit_failed(code, codes, group_id, None)


def fenced(group_id: str | None) -> KafkaError:
    return error_for(
        ErrorCode.FENCED_INSTANCE_ID,
        f"another consumer has joined group {group_id} with the same group.instance.id: nothing was committed. "
        "Give every running consumer a group.instance.id of its own, and close this one",
    )


def rebalance_in_progress(partitions: Iterable[TopicPartition], group_id: str | None) -> RebalanceInProgress:
    return RebalanceInProgress(
        ErrorCode.REBALANCE_IN_PROGRESS,
        f"{names(partitions)} not committed: the group {group_id} is rebalancing. Call poll() to finish it, then "
        f"commit again what is still assigned. {_DUPLICATES}",
    )


def commit_failed(
    code: ErrorCode, partitions: Iterable[TopicPartition], group_id: str | None, left_because: str | None
) -> CommitFailed:
    """Makes the error for a group that moved on; `left_because` says why this consumer left by itself, if it did."""
    cure = "call poll, which joins again; if it happens often, look for long pauses of this process"
    if left_because:
        why = f"because {left_because}"
        if "max.poll.interval.ms" in left_because:
            cure = "call poll more often: lower max.poll.records, work faster, or raise max.poll.interval.ms"
    elif code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.STALE_MEMBER_EPOCH):
        why = "because it has finished another rebalance since"
    else:
        why = "and this consumer is no member of it any more: its session ended, or it was removed"
    return CommitFailed(
        code,
        f"{names(partitions)} not committed: the group {group_id} moved on {why}. Its partitions may belong to other "
        f"members now. {_DUPLICATES}. What to do: {cure}",
    )


def not_a_member(
    partitions: Iterable[TopicPartition], group_id: str | None, left_because: str | None
) -> CommitFailed:
    """Makes the error for a consumer without a generation to commit with: it is known without asking."""
    return commit_failed(ErrorCode.UNKNOWN_MEMBER_ID, partitions, group_id, left_because)


def not_alone(code: ErrorCode, partitions: Iterable[TopicPartition], group_id: str | None) -> CommitFailed:
    """Makes the error for a commit without membership in a group that has members."""
    return CommitFailed(
        code,
        f"{names(partitions)} not committed: the group {group_id} has members, and then only they may commit. "
        "A consumer that uses assign() needs a group.id that nobody uses with subscribe()",
    )
