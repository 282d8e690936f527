"""The table of APIs: key, versions, handler. ApiVersions, SUPPORTED.md and the tests read this table.

A handler is `def handler(broker, call) -> Message | None` (None: it answers later through `call.reply`), or an
`async def` for calls that wait for the disk. To add an API: write schema/<api>.txt, `make messages`, write the
handler, add a row here, `make supported`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from inspect import iscoroutinefunction
from typing import Any, TypeAlias

from kohort.broker import (
    cluster,
    configs,
    fetch,
    metadata,
    offsets,
    produce,
    producers,
    topics,
    versions,
)
from kohort.broker.broker import Broker
from kohort.broker.call import Call
from kohort.wire.compile import Codec, codec
from kohort.wire.struct import Message

Handler: TypeAlias = Callable[[Broker, Call], "Message | None | Awaitable[Message | None]"]


@dataclass(slots=True)
class Row:
    key: int
    name: str
    first: int
    last: int
    handler: Handler
    advertised_first: int = -1  # where it differs from `first`
    note: str = ""
    is_async: bool = field(init=False)
    codecs: dict[int, Codec] = field(init=False)

    def __post_init__(self) -> None:
        self.is_async = iscoroutinefunction(self.handler)
        self.codecs = {}
        if self.advertised_first < 0:
            self.advertised_first = self.first

    def codec(self, version: int) -> Codec:
        found = self.codecs.get(version)
        if found is None:
            found = self.codecs[version] = codec(self.key, version)
        return found


def _row(key: int, name: str, first: int, last: int, handler: Any, **more: Any) -> Row:
    return Row(key, name, first, last, handler, **more)


_OLD_PRODUCE = "0–2 are advertised because old librdkafka looks for them, and refused"

TABLE: dict[int, Row] = {
    row.key: row
    for row in (
        _row(0, "Produce", 3, 13, produce.produce, advertised_first=0, note=_OLD_PRODUCE),
        _row(1, "Fetch", 4, 18, fetch.fetch),
        _row(2, "ListOffsets", 1, 11, offsets.list_offsets),
        _row(3, "Metadata", 0, 13, metadata.metadata),
        _row(18, "ApiVersions", 0, 4, versions.api_versions),
        _row(19, "CreateTopics", 2, 7, topics.create_topics),
        _row(20, "DeleteTopics", 1, 6, topics.delete_topics),
        _row(21, "DeleteRecords", 0, 2, offsets.delete_records),
        _row(22, "InitProducerId", 0, 5, producers.init_producer_id, note="without a transactional id"),
        _row(23, "OffsetForLeaderEpoch", 2, 4, offsets.offset_for_leader_epoch),
        _row(32, "DescribeConfigs", 1, 4, configs.describe_configs),
        _row(33, "AlterConfigs", 0, 2, configs.alter_configs),
        _row(35, "DescribeLogDirs", 1, 5, cluster.describe_log_dirs),
        _row(37, "CreatePartitions", 0, 3, topics.create_partitions),
        _row(43, "ElectLeaders", 0, 2, cluster.elect_leaders, note="one node: no election is needed"),
        _row(44, "IncrementalAlterConfigs", 0, 1, configs.incremental_alter_configs),
        _row(46, "ListPartitionReassignments", 0, 0, cluster.list_partition_reassignments, note="none move"),
        _row(60, "DescribeCluster", 0, 2, cluster.describe_cluster),
        _row(61, "DescribeProducers", 0, 0, producers.describe_producers),
        _row(74, "ListConfigResources", 0, 1, configs.list_config_resources),
        _row(75, "DescribeTopicPartitions", 0, 0, metadata.describe_topic_partitions),
    )
}
