"""The classes of all messages and records, one module per schema, and a table of the APIs.

Generated from schema/ by `make messages`; do not edit.
"""

from typing import NamedTuple


class Api(NamedTuple):
    module: str
    name: str
    first: int
    last: int


APIS = {
    0: Api("produce", "Produce", 3, 13),
    1: Api("fetch", "Fetch", 4, 18),
    2: Api("list_offsets", "ListOffsets", 1, 11),
    3: Api("metadata", "Metadata", 0, 13),
    8: Api("offset_commit", "OffsetCommit", 2, 10),
    9: Api("offset_fetch", "OffsetFetch", 1, 10),
    10: Api("find_coordinator", "FindCoordinator", 0, 6),
    11: Api("join_group", "JoinGroup", 0, 9),
    12: Api("heartbeat", "Heartbeat", 0, 4),
    13: Api("leave_group", "LeaveGroup", 0, 5),
    14: Api("sync_group", "SyncGroup", 0, 5),
    15: Api("describe_groups", "DescribeGroups", 0, 6),
    16: Api("list_groups", "ListGroups", 0, 5),
    17: Api("sasl_handshake", "SaslHandshake", 0, 1),
    18: Api("api_versions", "ApiVersions", 0, 4),
    19: Api("create_topics", "CreateTopics", 2, 7),
    20: Api("delete_topics", "DeleteTopics", 1, 6),
    21: Api("delete_records", "DeleteRecords", 0, 2),
    22: Api("init_producer_id", "InitProducerId", 0, 5),
    23: Api("offset_for_leader_epoch", "OffsetForLeaderEpoch", 2, 4),
    24: Api("add_partitions_to_txn", "AddPartitionsToTxn", 0, 5),
    25: Api("add_offsets_to_txn", "AddOffsetsToTxn", 0, 4),
    26: Api("end_txn", "EndTxn", 0, 5),
    27: Api("write_txn_markers", "WriteTxnMarkers", 1, 2),
    28: Api("txn_offset_commit", "TxnOffsetCommit", 0, 5),
    29: Api("describe_acls", "DescribeAcls", 1, 3),
    30: Api("create_acls", "CreateAcls", 1, 3),
    31: Api("delete_acls", "DeleteAcls", 1, 3),
    32: Api("describe_configs", "DescribeConfigs", 1, 4),
    33: Api("alter_configs", "AlterConfigs", 0, 2),
    34: Api("alter_replica_log_dirs", "AlterReplicaLogDirs", 1, 2),
    35: Api("describe_log_dirs", "DescribeLogDirs", 1, 5),
    36: Api("sasl_authenticate", "SaslAuthenticate", 0, 2),
    37: Api("create_partitions", "CreatePartitions", 0, 3),
    42: Api("delete_groups", "DeleteGroups", 0, 2),
    43: Api("elect_leaders", "ElectLeaders", 0, 2),
    44: Api("incremental_alter_configs", "IncrementalAlterConfigs", 0, 1),
    45: Api("alter_partition_reassignments", "AlterPartitionReassignments", 0, 1),
    46: Api("list_partition_reassignments", "ListPartitionReassignments", 0, 0),
    47: Api("offset_delete", "OffsetDelete", 0, 0),
    48: Api("describe_client_quotas", "DescribeClientQuotas", 0, 1),
    49: Api("alter_client_quotas", "AlterClientQuotas", 0, 1),
    50: Api("describe_user_scram_credentials", "DescribeUserScramCredentials", 0, 0),
    51: Api("alter_user_scram_credentials", "AlterUserScramCredentials", 0, 0),
    55: Api("describe_quorum", "DescribeQuorum", 0, 2),
    57: Api("update_features", "UpdateFeatures", 0, 2),
    60: Api("describe_cluster", "DescribeCluster", 0, 2),
    61: Api("describe_producers", "DescribeProducers", 0, 0),
    65: Api("describe_transactions", "DescribeTransactions", 0, 0),
    66: Api("list_transactions", "ListTransactions", 0, 2),
    68: Api("consumer_group_heartbeat", "ConsumerGroupHeartbeat", 0, 1),
    69: Api("consumer_group_describe", "ConsumerGroupDescribe", 0, 1),
    71: Api("get_telemetry_subscriptions", "GetTelemetrySubscriptions", 0, 0),
    72: Api("push_telemetry", "PushTelemetry", 0, 0),
    74: Api("list_config_resources", "ListConfigResources", 0, 1),
    75: Api("describe_topic_partitions", "DescribeTopicPartitions", 0, 0),
    76: Api("share_group_heartbeat", "ShareGroupHeartbeat", 1, 1),
    77: Api("share_group_describe", "ShareGroupDescribe", 1, 1),
    78: Api("share_fetch", "ShareFetch", 1, 2),
    79: Api("share_acknowledge", "ShareAcknowledge", 1, 2),
    83: Api("initialize_share_group_state", "InitializeShareGroupState", 0, 0),
    84: Api("read_share_group_state", "ReadShareGroupState", 0, 0),
    85: Api("write_share_group_state", "WriteShareGroupState", 0, 1),
    86: Api("delete_share_group_state", "DeleteShareGroupState", 0, 0),
    87: Api("read_share_group_state_summary", "ReadShareGroupStateSummary", 0, 1),
    90: Api("describe_share_group_offsets", "DescribeShareGroupOffsets", 0, 1),
    91: Api("alter_share_group_offsets", "AlterShareGroupOffsets", 0, 0),
    92: Api("delete_share_group_offsets", "DeleteShareGroupOffsets", 0, 0),
}
