"""The table of APIs: key, versions, handler. ApiVersions, SUPPORTED.md and the tests read it.

A handler is `def handler(broker, call) -> Message | None` (None: it answers later through `call.reply`), or an
`async def` for calls that wait for the disk. To add an API: write schema/<api>.txt, `make messages`, write the
handler, add a row here, `make supported`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from kohort.broker.api_row import Handler, Row
from kohort.broker.apis import (
    cluster,
    configs,
    fetch,
    find_coordinator,
    metadata,
    offsets,
    produce,
    producers,
    topics,
    versions,
)
from kohort.broker.broker import Broker
from kohort.broker.call import Call
from kohort.wire.compiler.compile import Codec


class FirstUse:
    """A handler that loads its module, one of the groups', with the first request that needs it."""

    __slots__ = ("_key", "_name")

    def __init__(self, key: int, name: str) -> None:
        self._key, self._name = key, name

    def load(self) -> Handler:
        """Returns the handler itself."""
        module, _, function = self._name.partition(".")
        found: Handler = getattr(import_module(f"kohort.broker.apis.{module}"), function)
        return found

    def __call__(self, broker: Broker, call: Call) -> Any:
        TABLE[self._key].handler = found = self.load()
        return found(broker, call)


class FirstUseAsync(FirstUse):
    """Does the same for a handler that waits for the disk."""

    __slots__ = ()

    async def __call__(self, broker: Broker, call: Call) -> Any:
        return await super().__call__(broker, call)


def _commit_codec(version: int) -> Codec:
    from kohort.broker.groups.commit_frames import CommitCodec

    return CommitCodec(version)


_OLD_PRODUCE = "0–2 are advertised because old librdkafka looks for them, and refused"

TABLE: dict[int, Row] = {
    row.key: row
    for row in (
        Row(0, "Produce", 3, 13, produce.produce, advertised_first=0, note=_OLD_PRODUCE),
        Row(1, "Fetch", 4, 18, fetch.fetch),
        Row(2, "ListOffsets", 1, 11, offsets.list_offsets),
        # librdkafka writes "all topics" as four zero bytes where flexible versions have one (its list_topics).
        Row(3, "Metadata", 0, 13, metadata.metadata),
        Row(8, "OffsetCommit", 2, 10, FirstUse(8, "group_offsets.offset_commit"), own_codec=_commit_codec),
        Row(9, "OffsetFetch", 1, 10, FirstUse(9, "group_offsets.offset_fetch")),
        Row(10, "FindCoordinator", 0, 6, find_coordinator.find_coordinator),
        Row(11, "JoinGroup", 0, 9, FirstUse(11, "group_membership.join_group")),
        Row(12, "Heartbeat", 0, 4, FirstUse(12, "group_membership.heartbeat")),
        Row(13, "LeaveGroup", 0, 5, FirstUse(13, "group_membership.leave_group")),
        Row(14, "SyncGroup", 0, 5, FirstUse(14, "group_membership.sync_group")),
        Row(15, "DescribeGroups", 0, 6, FirstUse(15, "group_admin.describe_groups")),
        Row(16, "ListGroups", 0, 5, FirstUse(16, "group_admin.list_groups")),
        Row(17, "SaslHandshake", 0, 1, FirstUse(17, "sasl.sasl_handshake")),
        Row(18, "ApiVersions", 0, 4, versions.api_versions),
        Row(19, "CreateTopics", 2, 7, topics.create_topics),
        Row(20, "DeleteTopics", 1, 6, topics.delete_topics),
        Row(21, "DeleteRecords", 0, 2, offsets.delete_records),
        Row(22, "InitProducerId", 0, 5, producers.init_producer_id),
        Row(23, "OffsetForLeaderEpoch", 2, 4, offsets.offset_for_leader_epoch),
        Row(24, "AddPartitionsToTxn", 0, 5, FirstUse(24, "transactions.add_partitions_to_txn")),
        Row(25, "AddOffsetsToTxn", 0, 4, FirstUse(25, "transactions.add_offsets_to_txn")),
        Row(26, "EndTxn", 0, 5, FirstUse(26, "transactions.end_txn")),
        Row(27, "WriteTxnMarkers", 1, 2, FirstUse(27, "transactions.write_txn_markers")),
        Row(28, "TxnOffsetCommit", 0, 5, FirstUse(28, "txn_offsets.txn_offset_commit")),
        Row(29, "DescribeAcls", 1, 3, FirstUse(29, "acls.describe_acls")),
        Row(30, "CreateAcls", 1, 3, FirstUseAsync(30, "acls.create_acls")),
        Row(31, "DeleteAcls", 1, 3, FirstUseAsync(31, "acls.delete_acls")),
        Row(32, "DescribeConfigs", 1, 4, configs.describe_configs),
        Row(33, "AlterConfigs", 0, 2, configs.alter_configs),
        Row(
            34,
            "AlterReplicaLogDirs",
            1,
            2,
            FirstUse(34, "one_node.alter_replica_log_dirs"),
            note="one data directory: nothing moves",
        ),
        Row(35, "DescribeLogDirs", 1, 5, cluster.describe_log_dirs),
        Row(36, "SaslAuthenticate", 0, 2, FirstUse(36, "sasl.sasl_authenticate")),
        Row(37, "CreatePartitions", 0, 3, topics.create_partitions),
        Row(42, "DeleteGroups", 0, 2, FirstUse(42, "group_admin.delete_groups")),
        Row(43, "ElectLeaders", 0, 2, cluster.elect_leaders, note="one node: no election is needed"),
        Row(44, "IncrementalAlterConfigs", 0, 1, configs.incremental_alter_configs),
        Row(
            45,
            "AlterPartitionReassignments",
            0,
            1,
            FirstUse(45, "one_node.alter_partition_reassignments"),
            note="one node: nothing moves",
        ),
        Row(46, "ListPartitionReassignments", 0, 0, cluster.list_partition_reassignments, note="none move"),
        Row(47, "OffsetDelete", 0, 0, FirstUse(47, "group_offsets.offset_delete")),
        Row(48, "DescribeClientQuotas", 0, 1, FirstUse(48, "client_quotas.describe_client_quotas")),
        Row(49, "AlterClientQuotas", 0, 1, FirstUseAsync(49, "client_quotas.alter_client_quotas")),
        Row(
            50,
            "DescribeUserScramCredentials",
            0,
            0,
            FirstUse(50, "scram_users.describe_user_scram_credentials"),
        ),
        Row(
            51,
            "AlterUserScramCredentials",
            0,
            0,
            FirstUseAsync(51, "scram_users.alter_user_scram_credentials"),
        ),
        Row(55, "DescribeQuorum", 0, 2, FirstUse(55, "one_node.describe_quorum"), note="a quorum of one"),
        Row(
            57,
            "UpdateFeatures",
            0,
            2,
            FirstUse(57, "one_node.update_features"),
            note="the levels in force cannot be changed",
        ),
        Row(60, "DescribeCluster", 0, 2, cluster.describe_cluster),
        Row(61, "DescribeProducers", 0, 0, producers.describe_producers),
        Row(65, "DescribeTransactions", 0, 0, FirstUse(65, "transactions.describe_transactions")),
        Row(66, "ListTransactions", 0, 2, FirstUse(66, "transactions.list_transactions")),
        Row(68, "ConsumerGroupHeartbeat", 0, 1, FirstUse(68, "consumer_groups.consumer_group_heartbeat")),
        Row(69, "ConsumerGroupDescribe", 0, 1, FirstUse(69, "consumer_groups.consumer_group_describe")),
        Row(74, "ListConfigResources", 0, 1, configs.list_config_resources),
        Row(75, "DescribeTopicPartitions", 0, 0, metadata.describe_topic_partitions),
        Row(76, "ShareGroupHeartbeat", 1, 1, FirstUse(76, "share_groups.share_group_heartbeat")),
        Row(77, "ShareGroupDescribe", 1, 1, FirstUse(77, "share_groups.share_group_describe")),
        Row(78, "ShareFetch", 1, 2, FirstUse(78, "share_fetch.share_fetch")),
        Row(79, "ShareAcknowledge", 1, 2, FirstUse(79, "share_acknowledge.share_acknowledge")),
        Row(83, "InitializeShareGroupState", 0, 0, FirstUse(83, "share_state.initialize_share_group_state")),
        Row(84, "ReadShareGroupState", 0, 0, FirstUse(84, "share_state.read_share_group_state")),
        Row(85, "WriteShareGroupState", 0, 1, FirstUse(85, "share_state.write_share_group_state")),
        Row(86, "DeleteShareGroupState", 0, 0, FirstUse(86, "share_state.delete_share_group_state")),
        Row(
            87,
            "ReadShareGroupStateSummary",
            0,
            1,
            FirstUse(87, "share_state.read_share_group_state_summary"),
        ),
        Row(
            90,
            "DescribeShareGroupOffsets",
            0,
            1,
            FirstUse(90, "share_group_offsets.describe_share_group_offsets"),
        ),
        Row(
            91, "AlterShareGroupOffsets", 0, 0, FirstUse(91, "share_group_offsets.alter_share_group_offsets")
        ),
        Row(
            92,
            "DeleteShareGroupOffsets",
            0,
            0,
            FirstUse(92, "share_group_offsets.delete_share_group_offsets"),
        ),
    )
}
