"""Writes the markers that end transactions, into any partition of this node."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kohort.broker.names import OFFSETS_TOPIC
from kohort.log.partition import Partition
from kohort.transactions.effects import SendMarkers
from kohort.transactions.metadata import TopicPartition
from kohort.wire.errors import ErrorCode, KafkaError
from kohort.wire.records.batch import ControlKind

if TYPE_CHECKING:
    from kohort.broker.broker import Broker

MarkerErrors = tuple[tuple[TopicPartition, ErrorCode], ...]


class MarkerWriter:
    """Appends markers and tells when they are durable."""

    __slots__ = ("_broker",)

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def write_all(self, markers: SendMarkers, done: Callable[[MarkerErrors], None]) -> None:
        """Writes a marker into each partition and calls `done` once, with an error for each."""
        errors: dict[TopicPartition, ErrorCode] = {}
        waiting = set(markers.partitions)

        def written(place: TopicPartition, error: ErrorCode) -> None:
            errors[place] = error
            waiting.discard(place)
            if not waiting:
                done(tuple(errors.items()))

        if not waiting:
            done(())
        for place in markers.partitions:
            self._write(place, markers, written)

    def _write(
        self,
        place: TopicPartition,
        markers: SendMarkers,
        written: Callable[[TopicPartition, ErrorCode], None],
    ) -> None:
        topic, index = place
        broker, is_offsets = self._broker, topic == OFFSETS_TOPIC
        found = broker.partition(topic, index)
        if isinstance(found, ErrorCode):
            written(place, found)
            return
        if is_offsets and not broker.groups.is_active(index):
            written(place, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        try:
            offset = self._append(found, markers)
        except KafkaError as error:
            written(place, error.code)
            return

        def durable(error: ErrorCode) -> None:
            if not error and is_offsets:
                broker.groups.transaction_ended(index, markers.producer_id, markers.commit)
            written(place, error)

        found.when_durable(offset + 1, durable)

    def _append(self, partition: Partition, markers: SendMarkers) -> int:
        return partition.append_marker(
            ControlKind.COMMIT if markers.commit else ControlKind.ABORT,
            producer_id=markers.producer_id,
            producer_epoch=markers.producer_epoch,
            coordinator_epoch=markers.coordinator_epoch,
            transaction_version=markers.transaction_version,
            now_ms=self._broker.now_ms(),
        )
