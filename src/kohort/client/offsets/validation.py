"""Validates positions against the log of a new leader (KIP-320), which may have been cut back behind them.

Such a log holds other records at the position now than those that were read. A part of positions.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from kohort.client.config import ConsumerConfig
from kohort.client.core.backoff import Backoff
from kohort.client.core.cluster import NO_NODE
from kohort.client.core.effects import Answer, FailureKind, Outbox, Send
from kohort.client.core.offset_reset import NO_RESET
from kohort.client.errors import LogTruncation, error_for_failure
from kohort.client.offsets.lookup import MetadataSource, not_allowed
from kohort.client.offsets.offset_requests import epoch_ends, names, offset_for_leader_epoch
from kohort.client.offsets.subscription import PartitionState, Position, SubscriptionState
from kohort.client.types import OffsetAndMetadata, TopicPartition
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest

log = logging.getLogger("kohort.client.positions")

_Asked = dict[TopicPartition, tuple[PartitionState, int, Position]]


class Validation:
    """Asks leaders where the epoch of a position ends in their logs, and compares."""

    def __init__(
        self,
        out: Outbox,
        config: ConsumerConfig,
        subscription: SubscriptionState,
        metadata: MetadataSource,
        backoff: Backoff,
        fail: Callable[[Exception], None],
    ) -> None:
        self._out, self._config, self._subscription = out, config, subscription
        self._metadata, self._backoff, self._fail = metadata, backoff, fail
        self._epoch_ahead: set[TopicPartition] = set()

    def look_at_leaders(self) -> None:
        """Has the positions validated that another leader serves now, if both epochs are known."""
        for partition, state in self._subscription.partitions.items():
            leader = self._metadata.cluster.partition(partition)
            if (
                leader is None
                or leader.leader_id == NO_NODE
                or state.position is None
                or state.reset is not None
            ):
                continue
            position = state.position
            if (position.leader_id, position.leader_epoch) == (leader.leader_id, leader.leader_epoch):
                continue
            state.leader_changed(leader.leader_id, leader.leader_epoch)
            if state.validating:
                log.info(
                    "%s has another leader, %d: position %d is validated",
                    partition,
                    leader.leader_id,
                    position.offset,
                )

    def tick(self, now_ms: int) -> None:
        by_node: dict[int, dict[TopicPartition, Position]] = {}
        for partition, state in self._subscription.partitions.items():
            if state.validating and state.position is not None and now_ms >= state.retry_at_ms:
                state.end_wait()
                if self._leader_is_known(partition, state, now_ms) and state.validating:
                    by_node.setdefault(state.position.leader_id, {})[partition] = state.position
        for node_id, positions in by_node.items():
            asked: _Asked = {}
            for partition, position in positions.items():
                state = self._subscription.partitions[partition]
                state.wait_until(now_ms + self._config.request_timeout_ms + self._backoff.after(1))
                asked[partition] = (state, state.seeks, position)
            self._out.append(
                Send(
                    node_id,
                    OffsetForLeaderEpochRequest.API_KEY,
                    offset_for_leader_epoch(positions),
                    "positions.validate",
                    self._config.request_timeout_ms,
                    on_answer=partial(self._answered, asked),
                )
            )

    def _leader_is_known(self, partition: TopicPartition, state: PartitionState, now_ms: int) -> bool:
        """Brings the position's leader up to date; returns False if it must be found first.

        A broker that is too old for epochs cannot be asked: its positions are not validated.
        """
        leader = self._metadata.cluster.partition(partition)
        position = state.position
        assert position is not None
        if leader is None or leader.leader_id == NO_NODE:
            self._metadata.request_update(f"the leader of {partition} is not known")
            return False
        if leader.leader_epoch < 0:
            state.end_validation()
        elif leader.leader_epoch < position.offset_epoch and partition not in self._epoch_ahead:
            # Somebody read under a leader that is not known here yet: metadata is asked once more, then the leader.
            self._epoch_ahead.add(partition)
            self._metadata.request_update(f"{partition} has had a leader with epoch {position.offset_epoch}")
            state.wait_until(now_ms + self._config.retry_backoff_max_ms)
            return False
        self._epoch_ahead.discard(partition)
        state.update_leader(leader.leader_id, leader.leader_epoch)
        return True

    def _answered(self, asked: _Asked, answer: Answer, now_ms: int) -> None:
        current = {
            partition: position
            for partition, (state, seeks, position) in asked.items()
            if self._subscription.partitions.get(partition) is state
            and state.seeks == seeks
            and state.validating
            and state.position == position
        }
        if not current:
            return
        if answer.failure is not None:
            self._not_answered(answer, current, now_ms)
            return
        truncated: dict[TopicPartition, OffsetAndMetadata | None] = {}
        forbidden: list[TopicPartition] = []
        open_questions = dict(current)
        for partition, code, epoch, end_offset in epoch_ends(answer.response):
            if partition not in current:
                continue
            if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                forbidden.append(partition)
            elif code is ErrorCode.NONE:
                del open_questions[partition]
                self._compare(partition, current[partition], epoch, end_offset, truncated)
        if forbidden:
            self._fail(not_allowed(forbidden, "look up the leader epochs"))
        if open_questions:
            self._again(open_questions, "a leader could not validate positions", now_ms)
        if truncated:
            self._again(truncated, "a log was cut back", now_ms)
            self._fail(self._truncation(truncated, current))

    def _compare(
        self,
        partition: TopicPartition,
        position: Position,
        epoch: int,
        end_offset: int,
        truncated: dict[TopicPartition, OffsetAndMetadata | None],
    ) -> None:
        state = self._subscription.partitions[partition]
        is_unknown = epoch < 0 or end_offset < 0
        if not is_unknown and end_offset >= position.offset:
            state.end_validation()
        elif self._subscription.default_reset == NO_RESET:
            truncated[partition] = None if is_unknown else OffsetAndMetadata(end_offset, "", epoch)
        elif is_unknown:
            log.warning(
                "the log of %s was cut back behind position %d; it is reset", partition, position.offset
            )
            state.reset_to(self._subscription.default_reset)
        else:
            log.warning(
                "the log of %s was cut back: position %d goes back to %d, the first offset that differs",
                partition,
                position.offset,
                end_offset,
            )
            state.seek(replace(position, offset=end_offset, offset_epoch=epoch))

    def _not_answered(self, answer: Answer, current: Mapping[TopicPartition, Position], now_ms: int) -> None:
        assert answer.failure is not None
        if answer.failure.kind is FailureKind.UNSUPPORTED_VERSION:
            log.debug("the broker is too old to validate positions; they are taken as they are")
            for partition in current:
                self._subscription.partitions[partition].end_validation()
            return
        error = error_for_failure(answer.failure, f"validating the positions of {names(current)}")
        if not answer.failure.is_retriable:
            self._fail(error)
        self._again(current, str(error), now_ms)

    def _again(self, partitions: Mapping[TopicPartition, object], reason: str, now_ms: int) -> None:
        for partition in partitions:
            self._subscription.partitions[partition].wait_until(now_ms + self._backoff.after(1))
        self._metadata.request_update(reason)

    def _truncation(
        self,
        truncated: Mapping[TopicPartition, OffsetAndMetadata | None],
        positions: Mapping[TopicPartition, Position],
    ) -> LogTruncation:
        divergent = {partition: at for partition, at in truncated.items() if at is not None}
        where = ", ".join(
            f"{partition} at {positions[partition].offset}"
            + (f" (the logs agree up to {at.offset})" if at is not None else "")
            for partition, at in sorted(truncated.items())
        )
        return LogTruncation(
            f"the log of the new leader was cut back behind the position of {where}, and auto.offset.reset is none: "
            "records that were read there are lost, and others may stand in their place; seek() to where reading "
            "should go on",
            {partition: positions[partition].offset for partition in truncated},
            divergent,
        )
