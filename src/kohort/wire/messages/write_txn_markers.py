"""Markers that end transactions in partitions.

Generated from schema/write_txn_markers.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import Message, Struct


class WritableTxnMarkerTopic(Struct):
    __slots__ = ("name", "partition_indexes",)
    FIELDS = __slots__

    def __init__(
        self,
        name: str = "",
        partition_indexes: list[int] | None = None,
    ) -> None:
        self.name = name
        self.partition_indexes: list[int] = [] if partition_indexes is None else partition_indexes


class WritableTxnMarker(Struct):
    __slots__ = ("producer_id", "producer_epoch", "transaction_result", "topics", "coordinator_epoch", "transaction_version",)
    FIELDS = __slots__

    def __init__(
        self,
        producer_id: int = 0,
        producer_epoch: int = 0,
        transaction_result: bool = False,
        topics: list[WritableTxnMarkerTopic] | None = None,
        coordinator_epoch: int = 0,
        transaction_version: int = 0,
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.transaction_result = transaction_result
        self.topics: list[WritableTxnMarkerTopic] = [] if topics is None else topics
        self.coordinator_epoch = coordinator_epoch
        self.transaction_version = transaction_version


class WriteTxnMarkersRequest(Message):
    API_KEY = 27
    __slots__ = ("markers",)
    FIELDS = __slots__

    def __init__(
        self,
        markers: list[WritableTxnMarker] | None = None,
    ) -> None:
        self.markers: list[WritableTxnMarker] = [] if markers is None else markers


class WritableTxnMarkerPartitionResult(Struct):
    __slots__ = ("partition_index", "error_code",)
    FIELDS = __slots__

    def __init__(
        self,
        partition_index: int = 0,
        error_code: int = 0,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code


class WritableTxnMarkerTopicResult(Struct):
    __slots__ = ("name", "partitions",)
    FIELDS = __slots__

    def __init__(
        self,
        name: str = "",
        partitions: list[WritableTxnMarkerPartitionResult] | None = None,
    ) -> None:
        self.name = name
        self.partitions: list[WritableTxnMarkerPartitionResult] = [] if partitions is None else partitions


class WritableTxnMarkerResult(Struct):
    __slots__ = ("producer_id", "topics",)
    FIELDS = __slots__

    def __init__(
        self,
        producer_id: int = 0,
        topics: list[WritableTxnMarkerTopicResult] | None = None,
    ) -> None:
        self.producer_id = producer_id
        self.topics: list[WritableTxnMarkerTopicResult] = [] if topics is None else topics


class WriteTxnMarkersResponse(Message):
    API_KEY = 27
    __slots__ = ("markers",)
    FIELDS = __slots__

    def __init__(
        self,
        markers: list[WritableTxnMarkerResult] | None = None,
    ) -> None:
        self.markers: list[WritableTxnMarkerResult] = [] if markers is None else markers
