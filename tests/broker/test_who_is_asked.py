"""Every API of the table asks for what section 4 of the specification says, in each of its versions.

For each API there is a row: what nobody's request is answered, and which ACLs let it through. Each way alone is enough,
and no ACL of a way can be left out. An API without a row fails, unless it is one of those that need not ask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from itertools import count
from typing import Any

import pytest

from kohort.broker.apis.table import TABLE
from kohort.client.io.blocking_connection import BlockingConnection
from kohort.security.acls import AclOperation, AclResource, PatternType, Permission
from kohort.wire.messages import APIS
from kohort.wire.struct import ZERO_UUID
from tests.broker import peer
from tests.broker.secured import allowed, codes_in, login, secured

T29, G30, C31, X53 = 29, 30, 31, 53
REFUSALS = {T29, G30, C31, X53, 65}
ASK_NOBODY = {17: "SaslHandshake", 18: "ApiVersions", 36: "SaslAuthenticate", 60: "DescribeCluster"}
"""DescribeCluster shows its nodes to everybody, and operations by DESCRIBE: test_authorization has that."""
HAS_TRANSACTIONS = 26 in TABLE


@dataclass
class World:
    """A broker with a topic `t` and a group `g`; `alice` has no rights but those that a test gives her."""

    admin: BlockingConnection
    alice: BlockingConnection
    topic_id: bytes = ZERO_UUID
    numbers: Iterator[int] = field(default_factory=count)

    def fresh(self, prefix: str) -> str:
        return f"{prefix}{next(self.numbers)}"

    def fresh_topic(self) -> Any:
        return peer.create_topic(self.admin, self.fresh("del-"))


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with secured() as broker:
        address = broker.bootstrap_servers
        with login(address, "admin") as admin, login(address, "alice") as alice:
            found = World(admin, alice)
            found.topic_id = peer.create_topic(admin, "t").topic_id
            peer.create_topic(admin, "t2")
            assert peer.produce(admin, "t", peer.batch_of(b"1", b"2")).error_code == 0
            admin.call(m(10, "FindCoordinatorRequest", "g", 0, ["g"]), 3)
            assert not codes_in(admin.call(commit(found, 9), 9))
            joins = m(
                68,
                "ConsumerGroupHeartbeatRequest",
                "c-described",
                "m",
                0,
                None,
                None,
                60_000,
                ["t"],
                None,
                None,
                [],
            )
            assert not codes_in(admin.call(joins, 1))
            joins = m(76, "ShareGroupHeartbeatRequest", "s-described", "m", 0, None, ["t"])
            assert not codes_in(admin.call(joins, 1))
            assert not codes_in(admin.call(alter_shares(found, 0), 0))
            yield found


def m(key: int, name: str, *fields: object, **more: object) -> Any:
    """A struct of an API's messages; the modules of APIs that are not there yet are not imported."""
    return getattr(import_module(f"kohort.wire.messages.{APIS[key].module}"), name)(*fields, **more)


# --- requests -------------------------------------------------------------------------------------------


def produce(world: World, version: int, transactional_id: str | None = None) -> Any:
    batch = peer.batch_of(
        b"v", producer_id=7, producer_epoch=0, base_sequence=0, transactional=transactional_id is not None
    )
    part = m(0, "PartitionProduceData", 0, batch)
    data = m(0, "TopicProduceData", "t", world.topic_id, [part])
    return m(0, "ProduceRequest", transactional_id, -1, 1000, [data])


def share_fetch(world: World, version: int) -> Any:
    topic = m(78, "FetchTopic", world.topic_id, [m(78, "FetchPartition", 0)])
    return m(78, "ShareFetchRequest", "s", "m", 0, topics=[topic], max_records=1)


def share_state(key: int, name: str) -> Callable[[World, int], Any]:
    """The request of an API by which nodes ask the share coordinator."""
    data = {83: "Initialize", 84: "Read", 85: "Write", 86: "Delete", 87: "Read"}[key] + "State"
    data += "SummaryData" if key == 87 else "Data"

    def request(world: World, version: int) -> Any:
        topic = m(key, data, world.topic_id, [m(key, "PartitionData", 0)])
        return m(key, f"{name}Request", "s", [topic])

    return request


def describe_shares(world: World, version: int) -> Any:
    topic = m(90, "DescribeShareGroupOffsetsRequestTopic", "t", [0])
    group = m(90, "DescribeShareGroupOffsetsRequestGroup", "s-described", [topic])
    return m(90, "DescribeShareGroupOffsetsRequest", [group])


def alter_shares(world: World, version: int) -> Any:
    part = m(91, "AlterShareGroupOffsetsRequestPartition", 0, 0)
    topic = m(91, "AlterShareGroupOffsetsRequestTopic", "t", [part])
    return m(91, "AlterShareGroupOffsetsRequest", "s-empty", [topic])


def delete_shares(world: World, version: int) -> Any:
    topic = m(92, "DeleteShareGroupOffsetsRequestTopic", "t")
    return m(92, "DeleteShareGroupOffsetsRequest", "s-empty", [topic])


def consumer_beat(names: list[str]) -> Callable[[World, int], Any]:
    return lambda world, version: m(
        68,
        "ConsumerGroupHeartbeatRequest",
        world.fresh("c-"),
        "member",
        0,
        None,
        None,
        60_000,
        names,
        None,
        None,
        [],
    )


def fetch(world: World, version: int, replica: int = -1) -> Any:
    part = m(1, "FetchPartition", 0, fetch_offset=0, partition_max_bytes=1000)
    topic = m(1, "FetchTopic", "t", world.topic_id, [part])
    state = m(1, "ReplicaState", replica)
    return m(
        1,
        "FetchRequest",
        replica_id=replica,
        replica_state=state,
        max_bytes=1000,
        session_epoch=-1,
        topics=[topic],
    )


def commit(world: World, version: int) -> Any:
    part = m(8, "OffsetCommitRequestPartition", 0, 1, -1, "")
    topic = m(8, "OffsetCommitRequestTopic", "t", world.topic_id, [part])
    return m(8, "OffsetCommitRequest", "g", -1, "", topics=[topic])


def offset_fetch(world: World, version: int, *, of_all: bool = False) -> Any:
    old = None if of_all else [m(9, "OffsetFetchRequestTopic", "t", [0])]
    new = None if of_all else [m(9, "OffsetFetchRequestTopics", "t", world.topic_id, [0])]
    return m(9, "OffsetFetchRequest", "g", old, [m(9, "OffsetFetchRequestGroup", "g", topics=new)])


def find(key_type: int, key: str) -> Callable[[World, int], Any]:
    return lambda world, version: m(10, "FindCoordinatorRequest", key, key_type, [key])


def join(world: World, version: int) -> Any:
    protocol = m(11, "JoinGroupRequestProtocol", "range", b"")
    return m(
        11,
        "JoinGroupRequest",
        world.fresh("j-"),
        10_000,
        10_000,
        "",
        protocol_type="consumer",
        protocols=[protocol],
    )


def metadata(world: World, version: int, *, missing: bool = False, by_id: bool = False) -> Any:
    if by_id:
        return m(3, "MetadataRequest", [m(3, "MetadataRequestTopic", world.topic_id, None)])
    topic = m(3, "MetadataRequestTopic", ZERO_UUID, world.fresh("new-") if missing else "t")
    return m(3, "MetadataRequest", [topic], allow_auto_topic_creation=True)


def create_topic(world: World, version: int) -> Any:
    return m(19, "CreateTopicsRequest", [m(19, "CreatableTopic", world.fresh("new-"), 1, 1)], 1000)


def delete_topic(world: World, version: int, *, by_id: bool = False) -> Any:
    topic = world.fresh_topic()
    state = m(20, "DeleteTopicState", *((None, topic.topic_id) if by_id else (topic.name, ZERO_UUID)))
    return m(20, "DeleteTopicsRequest", [state], [topic.name], 1000)


def acl_filter(key: int, name: str) -> Any:
    fields = (AclResource.TOPIC, "none", PatternType.LITERAL, None, None, AclOperation.ANY, Permission.ANY)
    return m(key, name, *fields)


def create_acl(world: World, version: int) -> Any:
    fields = (
        AclResource.TOPIC, "made", PatternType.LITERAL, "User:x", "*", AclOperation.READ, Permission.ALLOW,
    )  # fmt: skip
    return m(30, "CreateAclsRequest", [m(30, "AclCreation", *fields)])


def configs(key: int, request: str, resource: str, kind: int, name: str, *fields: object) -> Any:
    return lambda world, version: m(key, request, [m(key, resource, kind, name, *fields)])


def transactional(key: int, name: str, *fields: object, **more: object) -> Callable[[World, int], Any]:
    return lambda world, version: m(key, name, *fields, **more)


def add_partitions(world: World, version: int) -> Any:
    topic = m(24, "AddPartitionsToTxnTopic", "t", [0])
    transaction = m(24, "AddPartitionsToTxnTransaction", "x", 7, 0, False, [topic])
    old = m(24, "AddPartitionsToTxnClientTopic", "t", [0])
    return m(24, "AddPartitionsToTxnRequest", [transaction], "x", 7, 0, [old])


def write_markers(world: World, version: int) -> Any:
    topic = m(27, "WritableTxnMarkerTopic", "t", [0])
    return m(27, "WriteTxnMarkersRequest", [m(27, "WritableTxnMarker", 7, 0, True, [topic], 0)])


def txn_commit(world: World, version: int) -> Any:
    part = m(28, "TxnOffsetCommitRequestPartition", 0, 1, -1, "")
    topic = m(28, "TxnOffsetCommitRequestTopic", "t", [part])
    return m(28, "TxnOffsetCommitRequest", "x", "g", 7, 0, topics=[topic])


def list_transactions(world: World, version: int) -> Any:
    world.admin.call(m(22, "InitProducerIdRequest", "x", 1000))
    return m(66, "ListTransactionsRequest")


# --- the rows -------------------------------------------------------------------------------------------


@dataclass
class Asked:
    """One kind of request of an API."""

    request: Callable[[World, int], Any]
    refused: object
    """What nobody is answered: the error codes, or what `tells` makes of the answer."""
    ways: list[tuple[str, ...]]
    """ACLs that let it through; each of these ways is enough, and needs all of its ACLs."""
    tells: Callable[[Any], object] = codes_in
    since: int = 0
    until: int = 99


def topics_in(answer: Any) -> list[str]:
    return [topic.name for topic in answer.topics]


def committed_in(answer: Any) -> list[str]:
    """The topics of an OffsetFetch; without a right to the group its error."""
    groups = answer.groups or [answer]
    return [topic.name or "t" for group in groups for topic in group.topics] or [str(codes_in(answer))]


CLUSTER_ALTER, CLUSTER_DESCRIBE = ("ALTER CLUSTER",), ("DESCRIBE CLUSTER",)
READ_GROUP = ("READ GROUP g",)
_RESOURCES = (("t", 2, T29, "TOPIC t"), ("g", 32, G30, "GROUP g"), ("1", 4, C31, "CLUSTER"))

ROWS: dict[int, list[Asked]] = {
    0: [
        Asked(produce, {T29}, [("WRITE TOPIC t",)]),
        Asked(
            lambda world, version: produce(world, version, "x"),
            {X53},
            [("WRITE TRANSACTIONAL_ID x", "WRITE TOPIC t")],
        ),
    ],
    1: [
        Asked(fetch, {T29}, [("READ TOPIC t",)]),
        Asked(lambda world, version: fetch(world, version, 5), {T29}, [("CLUSTER_ACTION CLUSTER",)]),
    ],
    2: [
        Asked(
            lambda world, version: m(
                2,
                "ListOffsetsRequest",
                topics=[m(2, "ListOffsetsTopic", "t", [m(2, "ListOffsetsPartition", 0, -1, -1)])],
            ),
            {T29},
            [("DESCRIBE TOPIC t",), ("READ TOPIC t",)],
        )
    ],
    3: [
        Asked(metadata, {T29}, [("DESCRIBE TOPIC t",), ("WRITE TOPIC t",)]),
        Asked(
            lambda world, version: metadata(world, version, by_id=True),
            {T29},
            [("DESCRIBE TOPIC t",)],
            since=12,
        ),
        Asked(
            lambda world, version: metadata(world, version, missing=True),
            {T29},
            [
                ("DESCRIBE TOPIC new-*", "CREATE CLUSTER"),
                ("DESCRIBE TOPIC new-*", "CREATE TOPIC new-*"),
            ],
        ),
        Asked(
            lambda world, version: m(3, "MetadataRequest", None if version else []),
            [],
            [("DESCRIBE TOPIC t",)],
            tells=topics_in,
        ),
    ],
    8: [Asked(commit, {G30}, [("READ GROUP g", "READ TOPIC t")])],
    9: [
        Asked(offset_fetch, {G30}, [("DESCRIBE GROUP g", "DESCRIBE TOPIC t")]),
        Asked(
            lambda world, version: offset_fetch(world, version, of_all=True),
            ["{30}"],
            [("DESCRIBE GROUP g", "DESCRIBE TOPIC t")],
            tells=committed_in,
            since=2,
        ),
    ],
    10: [
        Asked(find(0, "g"), {G30}, [("DESCRIBE GROUP g",), READ_GROUP]),
        Asked(find(1, "x"), {X53}, [("DESCRIBE TRANSACTIONAL_ID x",)] if HAS_TRANSACTIONS else [], since=1),
        Asked(find(2, "g:AAAAAAAAAAAAAAAAAAAAAA:0"), {C31}, [("CLUSTER_ACTION CLUSTER",)], since=6),
    ],
    11: [Asked(join, {G30}, [("READ GROUP j-*",)])],
    12: [Asked(lambda *_: m(12, "HeartbeatRequest", "g", 1, "m"), {G30}, [READ_GROUP])],
    13: [
        Asked(
            lambda *_: m(13, "LeaveGroupRequest", "g", "m", [m(13, "MemberIdentity", "m")]),
            {G30},
            [READ_GROUP],
        )
    ],
    14: [
        Asked(
            lambda *_: m(
                14, "SyncGroupRequest", "g", 1, "m", protocol_type="consumer", protocol_name="range"
            ),
            {G30},
            [READ_GROUP],
        )
    ],
    15: [Asked(lambda *_: m(15, "DescribeGroupsRequest", ["g"]), {G30}, [("DESCRIBE GROUP g",), READ_GROUP])],
    16: [
        Asked(
            lambda *_: m(16, "ListGroupsRequest"),
            False,
            [CLUSTER_DESCRIBE, ("DESCRIBE GROUP g",)],
            tells=lambda answer: "g" in [group.group_id for group in answer.groups],
        )
    ],
    19: [
        Asked(create_topic, {T29}, [("CREATE CLUSTER",), ("CREATE TOPIC new-*",)], until=4),
        Asked(
            create_topic,
            {T29},
            [
                ("CREATE CLUSTER", "DESCRIBE_CONFIGS TOPIC new-*"),
                ("CREATE TOPIC new-*", "DESCRIBE_CONFIGS TOPIC new-*"),
            ],
            since=5,
        ),
    ],
    20: [
        Asked(delete_topic, {T29}, [("DELETE CLUSTER",), ("DELETE TOPIC del-*",)]),
        Asked(
            lambda world, version: delete_topic(world, version, by_id=True),
            {T29},
            [("DELETE CLUSTER",), ("DELETE TOPIC del-*",)],
            since=6,
        ),
    ],
    21: [
        Asked(
            lambda *_: m(
                21,
                "DeleteRecordsRequest",
                [m(21, "DeleteRecordsTopic", "t", [m(21, "DeleteRecordsPartition", 0, 0)])],
            ),
            {T29},
            [("DELETE TOPIC t",)],
        )
    ],
    22: [
        Asked(
            lambda *_: m(22, "InitProducerIdRequest", None, 1000),
            {C31},
            [("IDEMPOTENT_WRITE CLUSTER",), ("WRITE TOPIC whatever",), ("ALL TOPIC *",)],
        ),
        Asked(
            lambda *_: m(22, "InitProducerIdRequest", "x", 1000),
            {X53},
            [("WRITE TRANSACTIONAL_ID x",)] if HAS_TRANSACTIONS else [],
        ),
    ],
    23: [
        Asked(
            lambda *_: m(
                23,
                "OffsetForLeaderEpochRequest",
                topics=[m(23, "OffsetForLeaderTopic", "t", [m(23, "OffsetForLeaderPartition", 0, -1, 0)])],
            ),
            {T29},
            [("CLUSTER_ACTION CLUSTER",), ("DESCRIBE TOPIC t",)],
        )
    ],
    24: [
        Asked(add_partitions, {X53}, [("WRITE TRANSACTIONAL_ID x", "WRITE TOPIC t")], until=3),
        Asked(add_partitions, {C31}, [("CLUSTER_ACTION CLUSTER",)], since=4),
    ],
    25: [
        Asked(
            transactional(25, "AddOffsetsToTxnRequest", "x", 7, 0, "g"),
            {X53},
            [("WRITE TRANSACTIONAL_ID x", "READ GROUP g")],
        )
    ],
    26: [Asked(transactional(26, "EndTxnRequest", "x", 7, 0, True), {X53}, [("WRITE TRANSACTIONAL_ID x",)])],
    27: [Asked(write_markers, {C31}, [("ALTER CLUSTER",), ("CLUSTER_ACTION CLUSTER",)])],
    28: [Asked(txn_commit, {X53}, [("WRITE TRANSACTIONAL_ID x", "READ GROUP g", "READ TOPIC t")])],
    29: [Asked(lambda *_: acl_filter(29, "DescribeAclsRequest"), {C31}, [CLUSTER_DESCRIBE, CLUSTER_ALTER])],
    30: [Asked(create_acl, {C31}, [CLUSTER_ALTER])],
    31: [
        Asked(
            lambda *_: m(31, "DeleteAclsRequest", [acl_filter(31, "DeleteAclsFilter")]),
            {C31},
            [CLUSTER_ALTER],
        )
    ],
    32: [
        Asked(
            configs(32, "DescribeConfigsRequest", "DescribeConfigsResource", kind, name, None),
            {code},
            [(f"DESCRIBE_CONFIGS {resource}",), (f"ALTER_CONFIGS {resource}",)],
        )
        for name, kind, code, resource in _RESOURCES
    ],
    33: [
        Asked(
            configs(33, "AlterConfigsRequest", "AlterConfigsResource", kind, name, []),
            {code},
            [(f"ALTER_CONFIGS {resource}",)],
        )
        for name, kind, code, resource in _RESOURCES
    ],
    34: [
        Asked(
            lambda *_: m(
                34,
                "AlterReplicaLogDirsRequest",
                [m(34, "AlterReplicaLogDir", "/d", [m(34, "AlterReplicaLogDirTopic", "t", [0])])],
            ),
            {C31},
            [CLUSTER_ALTER],
        )
    ],
    35: [
        Asked(
            lambda *_: m(35, "DescribeLogDirsRequest", None),
            0,
            [CLUSTER_DESCRIBE],
            tells=lambda answer: len(answer.results),
        ),
        Asked(lambda *_: m(35, "DescribeLogDirsRequest", None), {C31}, [CLUSTER_DESCRIBE], since=3),
    ],
    37: [
        Asked(
            lambda *_: m(37, "CreatePartitionsRequest", [m(37, "CreatePartitionsTopic", "t", 2)], 1000, True),
            {T29},
            [("ALTER TOPIC t",)],
        )
    ],
    42: [Asked(lambda *_: m(42, "DeleteGroupsRequest", ["none"]), {G30}, [("DELETE GROUP none",)])],
    43: [
        Asked(
            lambda *_: m(43, "ElectLeadersRequest", 0, [m(43, "TopicPartitions", "t", [0])], 1000),
            {C31},
            [CLUSTER_ALTER],
        )
    ],
    44: [
        Asked(
            configs(44, "IncrementalAlterConfigsRequest", "AlterConfigsResource", kind, name, []),
            {code},
            [(f"ALTER_CONFIGS {resource}",)],
        )
        for name, kind, code, resource in _RESOURCES
    ],
    45: [
        Asked(
            lambda *_: m(
                45,
                "AlterPartitionReassignmentsRequest",
                1000,
                True,
                [m(45, "ReassignableTopic", "t", [m(45, "ReassignablePartition", 0, [1])])],
            ),
            {C31},
            [CLUSTER_ALTER],
        )
    ],
    46: [Asked(lambda *_: m(46, "ListPartitionReassignmentsRequest", 1000, None), {C31}, [CLUSTER_DESCRIBE])],
    47: [
        Asked(
            lambda *_: m(
                47,
                "OffsetDeleteRequest",
                "g",
                [m(47, "OffsetDeleteRequestTopic", "t2", [m(47, "OffsetDeleteRequestPartition", 0)])],
            ),
            {G30},
            [("DELETE GROUP g", "READ TOPIC t2")],
        )
    ],
    48: [
        Asked(
            lambda *_: m(48, "DescribeClientQuotasRequest", [], False),
            {C31},
            [("DESCRIBE_CONFIGS CLUSTER",), ("ALTER_CONFIGS CLUSTER",)],
        )
    ],
    49: [
        Asked(
            lambda *_: m(
                49,
                "AlterClientQuotasRequest",
                [m(49, "AlterQuotaEntry", [m(49, "AlterQuotaEntity", "user", "u")], [])],
            ),
            {C31},
            [("ALTER_CONFIGS CLUSTER",)],
        )
    ],
    50: [Asked(lambda *_: m(50, "DescribeUserScramCredentialsRequest", None), {C31}, [CLUSTER_DESCRIBE])],
    51: [
        Asked(
            lambda *_: m(51, "AlterUserScramCredentialsRequest", [m(51, "ScramDeletion", "u", 1)]),
            {C31},
            [CLUSTER_ALTER],
        )
    ],
    61: [
        Asked(
            lambda *_: m(61, "DescribeProducersRequest", [m(61, "TopicRequest", "t", [0])]),
            {T29},
            [("READ TOPIC t",)],
        )
    ],
    65: [
        Asked(
            transactional(65, "DescribeTransactionsRequest", ["x"]), {X53}, [("DESCRIBE TRANSACTIONAL_ID x",)]
        )
    ],
    66: [
        Asked(
            list_transactions,
            [],
            [("DESCRIBE TRANSACTIONAL_ID x",)],
            tells=lambda answer: [state.transactional_id for state in answer.transaction_states],
        )
    ],
    68: [
        Asked(consumer_beat(names=["t"]), {G30}, [("READ GROUP c-*", "DESCRIBE TOPIC t")]),
        Asked(consumer_beat(names=[]), {G30}, [("READ GROUP c-*",)]),
    ],
    69: [
        Asked(
            lambda *_: m(69, "ConsumerGroupDescribeRequest", ["c-described"]),
            {G30},
            [("DESCRIBE GROUP c-described", "DESCRIBE TOPIC t")],
        )
    ],
    55: [
        Asked(
            lambda *_: m(
                55,
                "DescribeQuorumRequest",
                [m(55, "TopicData", "__cluster_metadata", [m(55, "PartitionData", 0)])],
            ),
            {C31},
            [CLUSTER_DESCRIBE],
        )
    ],
    57: [
        Asked(
            lambda *_: m(57, "UpdateFeaturesRequest", 1000, [m(57, "FeatureUpdateKey", "group.version", 1)]),
            {C31},
            [CLUSTER_ALTER],
        )
    ],
    74: [Asked(lambda *_: m(74, "ListConfigResourcesRequest"), {C31}, [("DESCRIBE_CONFIGS CLUSTER",)])],
    75: [
        Asked(
            lambda *_: m(75, "DescribeTopicPartitionsRequest", [m(75, "TopicRequest", "t")]),
            {T29},
            [("DESCRIBE TOPIC t",)],
        ),
        Asked(
            lambda *_: m(75, "DescribeTopicPartitionsRequest", []),
            [],
            [("DESCRIBE TOPIC t",)],
            tells=topics_in,
        ),
    ],
    76: [
        Asked(
            lambda *_: m(76, "ShareGroupHeartbeatRequest", "s", "m", 0, None, ["t"]),
            {G30},
            [("READ GROUP s", "DESCRIBE TOPIC t")],
        )
    ],
    77: [
        Asked(
            lambda *_: m(77, "ShareGroupDescribeRequest", ["s-described"]),
            {G30},
            [("DESCRIBE GROUP s-described", "DESCRIBE TOPIC t")],
        )
    ],
    78: [Asked(share_fetch, {G30}, [("READ GROUP s", "READ TOPIC t")])],
    79: [Asked(lambda *_: m(79, "ShareAcknowledgeRequest", "s", "m", 1), {G30}, [("READ GROUP s",)])],
    **{
        key: [Asked(share_state(key, name), {C31}, [("CLUSTER_ACTION CLUSTER",)])]
        for key, name in (
            (83, "InitializeShareGroupState"),
            (84, "ReadShareGroupState"),
            (85, "WriteShareGroupState"),
            (86, "DeleteShareGroupState"),
            (87, "ReadShareGroupStateSummary"),
        )
    },
    90: [Asked(describe_shares, {G30}, [("DESCRIBE GROUP s-described", "DESCRIBE TOPIC t")])],
    91: [Asked(alter_shares, {G30}, [("READ GROUP s-empty", "READ TOPIC t")])],
    92: [Asked(delete_shares, {G30}, [("DELETE GROUP s-empty", "READ TOPIC t")])],
}


# --- the walk -------------------------------------------------------------------------------------------


def test_each_api_of_the_table_has_a_row_or_needs_none():
    assert set(TABLE) - set(ROWS) - set(ASK_NOBODY) == set(), "who asks for them? Add a row to ROWS"
    assert not set(ROWS) & set(ASK_NOBODY)


@pytest.mark.parametrize("key", sorted(set(TABLE) & set(ROWS)))
def test_an_api_asks_for_what_the_specification_says(world, key):
    row = TABLE[key]
    for asked in ROWS[key]:
        versions = range(max(row.first, asked.since), min(row.last, asked.until) + 1)
        assert versions
        for version in versions:
            told = asked.tells(world.alice.call(asked.request(world, version), version))
            assert told == asked.refused, (row.name, version)
        for version in {versions[0], versions[-1]}:
            for way in asked.ways:
                check_way(world, row.name, asked, way, version)


def check_way(world: World, name: str, asked: Asked, way: tuple[str, ...], version: int) -> None:
    """Checks that no ACL of the way can be left out, and that they are enough together."""
    for left_out in way:
        with allowed(world.admin, *(acl for acl in way if acl != left_out)):
            answer = world.alice.call(asked.request(world, version), version)
            assert_refused(answer, asked, (name, version, way, left_out))
    with allowed(world.admin, *way):
        answer = world.alice.call(asked.request(world, version), version)
        assert not codes_in(answer) & REFUSALS, (name, version, way)
        assert asked.tells is codes_in or asked.tells(answer) != asked.refused, (name, version, way)
    told = asked.tells(world.alice.call(asked.request(world, version), version))
    assert told == asked.refused, "what was taken back counts no more on an open connection"


def assert_refused(answer: Any, asked: Asked, what: object) -> None:
    if asked.tells is codes_in:
        assert codes_in(answer) & REFUSALS, what
    else:
        told = asked.tells(answer)
        assert told == asked.refused or told == ["set()"], what
