"""Every API can fail in every version, in its own shape: the error stands where a client looks for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kohort.broker.apis.table import TABLE
from kohort.broker.error_answers import ERROR_FIELDS, mirrored
from kohort.client.io.blocking_connection import BlockingConnection
from kohort.testing import Kafka
from kohort.wire.compiler.compile import codec
from kohort.wire.compiler.notation import PRIMITIVES, ApiSpec, StructSpec, all_apis
from kohort.wire.errors import ErrorCode
from kohort.wire.messages import fetch, find_coordinator, join_group, metadata, produce
from kohort.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramDeletion,
    ScramUpsertion,
)
from kohort.wire.messages.delete_groups import DeleteGroupsRequest
from kohort.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kohort.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kohort.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from kohort.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kohort.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)

ERROR = ErrorCode.REQUEST_TIMED_OUT
NEED_THE_BROKER = ("Fetch", "Metadata")


def filled(spec: ApiSpec, struct: StructSpec, version: int) -> Any:
    """A request that asks for one of everything."""
    module = __import__(f"kohort.wire.messages.{spec.module}", fromlist=["x"])
    made = getattr(module, struct.name)()
    for field in struct.fields:
        if version not in field.versions:
            continue
        if field.type not in PRIMITIVES:
            value = filled(spec, spec.structs[field.type], version)
        else:
            value = {"string": f"some-{field.name}", "int32": 7, "uuid": b"u" * 16}.get(field.type)
        if value is not None:
            setattr(made, field.name, [value] if field.is_array else value)
    return made


def errors_in(spec: ApiSpec, struct: StructSpec, version: int, message: Any) -> Iterator[int]:
    """The error codes that a client of this version reads."""
    for field in struct.fields:
        if version not in field.versions:
            continue
        value = getattr(message, field.name)
        if field.name in ERROR_FIELDS:
            yield value
        elif field.type not in PRIMITIVES:
            for each in value if isinstance(value, list) else [value] if value else []:
                yield from errors_in(spec, spec.structs[field.type], version, each)


@pytest.mark.parametrize(
    ("key", "version"),
    [
        pytest.param(row.key, version, id=f"{row.name}-{version}")
        for row in TABLE.values()
        for version in range(row.first, row.last + 1)
        if row.name not in NEED_THE_BROKER
    ],
)
def test_every_version_of_every_api_has_an_answer_that_fails(key: int, version: int) -> None:
    spec = all_apis()[key]
    request = filled(spec, spec.request, version)
    answer = mirrored(key, version, request, ERROR)
    encoded = b"".join(map(bytes, codec(key, version).encode_response(answer)))
    decoded = codec(key, version).decode_response(memoryview(encoded))
    assert set(errors_in(spec, spec.response, version, decoded)) == {ERROR}


def test_a_failed_commit_names_each_partition() -> None:
    parts = [OffsetCommitRequestPartition(partition) for partition in (4, 9)]
    request = OffsetCommitRequest("g", topics=[OffsetCommitRequestTopic("orders", partitions=parts)])
    answer: Any = mirrored(8, 9, request, ErrorCode.NOT_COORDINATOR)
    (topic,) = answer.topics
    assert topic.name == "orders"
    assert [(p.partition_index, p.error_code) for p in topic.partitions] == [(4, 16), (9, 16)]


def test_a_failed_produce_names_each_partition_and_no_offset() -> None:
    data = produce.TopicProduceData("orders", partition_data=[produce.PartitionProduceData(3, b"")])
    request = produce.ProduceRequest(topic_data=[data])
    answer: Any = mirrored(0, 9, request, ErrorCode.NOT_LEADER_OR_FOLLOWER, "a fault that the test asked for")
    (part,) = answer.responses[0].partition_responses
    assert (answer.responses[0].name, part.index, part.error_code) == ("orders", 3, 6)
    assert part.base_offset == -1
    assert "test" in part.error_message


def test_a_failed_offset_fetch_names_the_group_and_its_partitions() -> None:
    topics = [OffsetFetchRequestTopics("orders", partition_indexes=[1, 2])]
    answer: Any = mirrored(
        9, 8, OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=topics)]), ERROR
    )
    (group,) = answer.groups
    assert (group.group_id, group.error_code) == ("g", ERROR)
    assert [p.partition_index for p in group.topics[0].partitions] == [1, 2]
    assert {p.committed_offset for p in group.topics[0].partitions} == {-1}


def test_a_failed_old_offset_fetch_is_told_by_partition() -> None:
    request = OffsetFetchRequest("g", [OffsetFetchRequestTopic("orders", [5])])
    answer: Any = mirrored(9, 1, request, ERROR)
    (part,) = answer.topics[0].partitions
    assert (part.partition_index, part.error_code) == (5, ERROR)


def test_bare_names_in_a_request_become_entries_of_the_answer() -> None:
    coordinators: Any = mirrored(
        10, 4, find_coordinator.FindCoordinatorRequest(coordinator_keys=["a", "b"]), ERROR
    )
    assert [(c.key, c.node_id, c.port) for c in coordinators.coordinators] == [("a", -1, -1), ("b", -1, -1)]
    deleted: Any = mirrored(42, 2, DeleteGroupsRequest(["a", "b"]), ERROR)
    assert [(r.group_id, r.error_code) for r in deleted.results] == [("a", ERROR), ("b", ERROR)]


def test_arrays_of_other_names_are_matched() -> None:
    topics: Any = mirrored(20, 6, DeleteTopicsRequest([DeleteTopicState("orders")]), ERROR)
    assert [(r.name, r.error_code) for r in topics.responses] == [("orders", ERROR)]
    configs: Any = mirrored(
        32, 4, DescribeConfigsRequest([DescribeConfigsResource(2, "orders", None)]), ERROR
    )
    assert [(r.resource_type, r.resource_name) for r in configs.results] == [(2, "orders")]
    offsets: Any = mirrored(
        2, 7, ListOffsetsRequest(-1, topics=[ListOffsetsTopic("orders", [ListOffsetsPartition(3)])]), ERROR
    )
    part = offsets.topics[0].partitions[0]
    assert (part.partition_index, part.error_code, part.offset) == (3, ERROR, -1)


def test_an_array_that_answers_two_has_the_entries_of_both() -> None:
    request = AlterUserScramCredentialsRequest([ScramDeletion("ann", 1)], [ScramUpsertion("bob", 2)])
    answer: Any = mirrored(51, 0, request, ERROR)
    assert [(result.user, result.error_code) for result in answer.results] == [("ann", ERROR), ("bob", ERROR)]


def test_where_all_are_asked_for_and_only_entries_can_fail_one_entry_does() -> None:
    answer: Any = mirrored(35, 2, DescribeLogDirsRequest(None), ERROR)
    assert [result.error_code for result in answer.results] == [ERROR]
    everything: Any = mirrored(
        9, 8, OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)]), ERROR
    )
    assert [(g.group_id, g.error_code, g.topics) for g in everything.groups] == [("g", ERROR, [])]


def test_a_failed_join_has_no_members(kafka: Kafka) -> None:
    kafka.fail("JoinGroup", with_error="GROUP_AUTHORIZATION_FAILED")
    with BlockingConnection(kafka.bootstrap_servers) as broker:
        request = join_group.JoinGroupRequest("g", 10_000, 10_000, protocol_type="consumer")
        answer = broker.call(request, 9)
    assert (answer.error_code, answer.members, answer.generation_id) == (30, [], -1)


def test_failed_metadata_still_names_the_broker(kafka: Kafka) -> None:
    kafka.create_topic("orders")
    kafka.fail("Metadata", with_error="LEADER_NOT_AVAILABLE", times=2)
    with BlockingConnection(kafka.bootstrap_servers) as broker:
        named = broker.call(metadata.MetadataRequest([metadata.MetadataRequestTopic(name="orders")]), 12)
        everything = broker.call(metadata.MetadataRequest(None), 12)
        healed = broker.call(metadata.MetadataRequest(None), 12)
    for answer in (named, everything):
        assert [(t.name, t.error_code, t.partitions) for t in answer.topics] == [("orders", 5, [])]
        assert [f"{b.host}:{b.port}" for b in answer.brokers] == [kafka.bootstrap_servers]
    assert [(t.name, t.error_code) for t in healed.topics] == [("orders", 0)]


def fetch_request(session_id: int, epoch: int, topic: str | None) -> fetch.FetchRequest:
    part = fetch.FetchPartition(0, partition_max_bytes=1 << 20)
    topics = [] if topic is None else [fetch.FetchTopic(topic, partitions=[part])]
    return fetch.FetchRequest(
        max_wait_ms=0, min_bytes=0, session_id=session_id, session_epoch=epoch, topics=topics
    )


def test_a_failed_fetch_names_the_partitions_that_only_its_session_knows(kafka: Kafka) -> None:
    kafka.produce("orders", ["one"])
    with BlockingConnection(kafka.bootstrap_servers) as broker:
        first = broker.call(fetch_request(0, 0, "orders"), 12)
        kafka.fail("Fetch", with_error="OFFSET_OUT_OF_RANGE", topic="orders")
        failed = broker.call(fetch_request(first.session_id, 1, None), 12)
        healed = broker.call(fetch_request(first.session_id, 2, None), 12)
    assert (failed.error_code, failed.session_id) == (0, first.session_id)
    (part,) = failed.responses[0].partitions
    assert (failed.responses[0].topic, part.error_code, len(part.records)) == ("orders", 1, 0)
    assert [p.error_code for t in healed.responses for p in t.partitions] == [0]


def test_the_error_of_a_fetch_session_is_that_of_the_whole_answer(kafka: Kafka) -> None:
    kafka.produce("orders", ["one"])
    kafka.fail("Fetch", with_error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    with BlockingConnection(kafka.bootstrap_servers) as broker:
        answer = broker.call(fetch_request(0, 0, "orders"), 12)
    assert (answer.error_code, answer.responses) == (70, [])
