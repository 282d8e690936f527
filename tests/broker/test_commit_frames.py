"""Commits that are recognized: the same answers as for commits that are decoded, whatever comes before them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.broker import running
from kohort.broker.api_row import TOO_MANY_BYTES
from kohort.broker.groups import commit_frames
from kohort.broker.groups.commit_frames import CommitCodec, LaidOutRequest
from kohort.client.io.blocking_connection import BlockingConnection
from kohort.wire.compiler.compile import codec
from kohort.wire.errors import BadFrame, ErrorCode
from kohort.wire.messages.delete_topics import DeleteTopicsRequest
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from kohort.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.wire.messages.offset_fetch import OffsetFetchRequest
from kohort.wire.struct import Message
from tests.broker.peer import create_topic
from tests.broker.test_groups import join_request, stable, sync, topic_id

VERSIONS = range(2, 11)


def request(
    group_id: str, offsets: dict[tuple[str, int], int], metadata: str | None = "", **more
) -> OffsetCommitRequest:
    """A commit of partitions by topic and index; a topic's name and its id are made of the same text."""
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for (name, index), offset in offsets.items():
        topic = topics.setdefault(
            name, OffsetCommitRequestTopic(name, name.encode()[:16].ljust(16, b"."), [])
        )
        topic.partitions.append(OffsetCommitRequestPartition(index, offset, 0, metadata))
    return OffsetCommitRequest(group_id, topics=list(topics.values()), **more)


def encoded(message: OffsetCommitRequest, version: int) -> bytes:
    return b"".join(codec(8, version).encode_request(message))


def plain(decoded: Message | LaidOutRequest) -> Message:
    return decoded.message() if isinstance(decoded, LaidOutRequest) else decoded


# What is recognized


@pytest.mark.parametrize("version", VERSIONS)
def test_what_came_twice_is_recognized(version):
    commits = CommitCodec(version)
    found = []
    for turn in range(4):
        body = encoded(request("g", {("t", 0): turn, ("t", 1): 2**40 + turn, ("u", 7): -turn}), version)
        decoded = commits.decode_request(memoryview(b"head" + body), 4)
        assert plain(decoded) == codec(8, version).decode_request(body)
        found.append(decoded)
    assert [isinstance(each, LaidOutRequest) for each in found] == [False, False, True, True]
    assert found[3].offsets == (3, 2**40 + 3, -3)


def test_partitions_that_are_committed_one_by_one_are_recognized_each():
    commits, found = CommitCodec(9), []
    for turn in range(3):
        for index in range(20):
            body = encoded(request("g", {("t", index): turn}), 9)
            found.append(commits.decode_request(memoryview(body)))
    assert all(isinstance(each, LaidOutRequest) for each in found[40:])


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_different_each_time_is_soon_left_alone(version, monkeypatch):
    """Kafka Streams keeps a time in the metadata: no layout ever holds, and so few are made."""
    made = []
    layout = commit_frames.FrameLayout

    def counted(*args):
        made.append(1)
        return layout(*args)

    monkeypatch.setattr(commit_frames, "FrameLayout", counted)
    commits = CommitCodec(version)
    for turn in range(1000):
        body = encoded(request("g", {("t", 0): turn, ("t", 1): turn}, f"{turn:08}"), version)
        assert plain(commits.decode_request(memoryview(body))) == codec(8, version).decode_request(body)
    assert len(made) < 12
    for turn in range(1100):  # but when it comes to rest, it is recognized
        body = encoded(request("g", {("t", 0): turn, ("t", 1): turn}, "at rest."), version)
        decoded = commits.decode_request(memoryview(body))
    assert isinstance(decoded, LaidOutRequest)


def test_layouts_take_bounded_room_and_who_is_recognized_stays(monkeypatch):
    monkeypatch.setattr(commit_frames, "MOST_IN_ALL", 20)
    monkeypatch.setattr(commit_frames, "MOST_SUSPECTED", 1_000)
    commits = CommitCodec(8)

    def commit(group: str, turn: int = 0) -> object:
        body = encoded(request(group, {("t", 0): turn, ("t", 1): turn}), 8)
        return commits.decode_request(memoryview(body))

    for turn in range(3):
        commit("stays", turn)
    for number in range(100):
        for turn in range(5):
            commit(f"goes-{number}", turn)
            assert isinstance(commit("stays", turn), LaidOutRequest)
    assert sum(layout.count for layout in commits._layouts.values()) <= 20
    assert sum(len(suspect.body) for suspect in commits._suspects.values()) == commits._suspected <= 1_000


def test_no_layout_is_made_of_names_that_are_very_long():
    commits = CommitCodec(7)
    body = encoded(request("g" * 32_000, {("t" * 1_000, 0): 1}), 7)
    for _ in range(5):
        assert not isinstance(commits.decode_request(memoryview(body)), LaidOutRequest)
    assert not commits._suspects
    assert not commits._layouts


# Against the ordinary decoder

metadata = st.sampled_from(["", "", None, "m", "n", "ä" * 70])
partition = st.tuples(st.sampled_from(["t", "topic", "u" * 130]), st.sampled_from([0, 1, 300]))
offsets = st.dictionaries(partition, st.integers(-(2**63), 2**63 - 1), max_size=4)
requests = st.builds(
    request,
    st.sampled_from(["", "g", "group" * 30]),
    offsets,
    metadata,
    generation_id_or_member_epoch=st.sampled_from([-1, 5]),
    member_id=st.sampled_from(["", "member"]),
    group_instance_id=st.sampled_from([None, "", "i"]),
)
damage = st.tuples(st.sampled_from(["as it is"] * 8 + ["cut", "longer", "flipped"]), st.integers(0, 2**16))


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(VERSIONS),
    st.lists(st.tuples(requests, st.integers(1, 4), damage), max_size=8),
    st.sampled_from([0, TOO_MANY_BYTES]),
)
def test_whatever_comes_is_read_as_by_the_ordinary_decoder(version, script, slack):
    commits, ordinary = CommitCodec(version), codec(8, version)
    for message, times, (what, where) in script:
        for turn in range(times):
            for topic in message.topics:
                for part in topic.partitions:
                    part.committed_offset = (part.committed_offset + turn) % 2**63
            if version < 7:
                message.group_instance_id = None
            body = bytearray(encoded(message, version))
            if what == "cut":
                del body[where % len(body) :]
            elif what == "longer":
                body += b"\0"
            elif what == "flipped":
                body[where % len(body)] ^= 1 << where % 8
            try:
                expected = ordinary.decode_request(memoryview(body), 0, slack)
            except BadFrame as bad:
                with pytest.raises(BadFrame, match=str(bad)[:20]):
                    commits.decode_request(memoryview(body), 0, slack)
            else:
                assert plain(commits.decode_request(memoryview(body), 0, slack)) == expected


# Through a broker


@pytest.fixture(scope="module", params=["memory", "os", "disk"])
def broker(request, tmp_path_factory):
    directory = None if request.param == "memory" else tmp_path_factory.mktemp("data")
    with running(directory, durability=request.param) as started:
        with BlockingConnection(started.bootstrap_servers) as client:
            client.call(FindCoordinatorRequest("any"), version=2)
            create_topic(client, "orders", partitions=4)
            create_topic(client, "more", partitions=1)
        yield started


@pytest.fixture
def client(broker):
    with BlockingConnection(broker.bootstrap_servers) as connection:
        yield connection


@pytest.fixture
def group(request):
    return f"g-{request.node.name}"


def commit(client, group, offset, version, topics=("orders",), joined=None, partition=1, metadata=""):
    """Codes of a commit of these topics."""
    message = request(group, {(name, p): offset + p for name in topics for p in (0, partition)}, metadata)
    for topic in message.topics:
        topic.topic_id = topic_id(client, topic.name) if version >= 10 else bytes(16)
    if joined is not None:
        message.generation_id_or_member_epoch, message.member_id = joined.generation_id, joined.member_id
    answer = client.call(message, version=version)
    assert [topic.name for topic in answer.topics] == ([""] * len(topics) if version >= 10 else list(topics))
    return [part.error_code for topic in answer.topics for part in topic.partitions]


def committed(client, group) -> dict[tuple[str, int], int]:
    answer = client.call(OffsetFetchRequest(group, None), version=5)
    return {(t.name, p.partition_index): p.committed_offset for t in answer.topics for p in t.partitions}


@pytest.mark.parametrize("version", VERSIONS)
def test_commits_again_and_again_in_every_version(client, group, version):
    for offset in range(0, 50, 10):
        assert commit(client, group, offset, version) == [0, 0]
        assert committed(client, group) == {("orders", 0): offset, ("orders", 1): offset + 1}


@pytest.mark.parametrize("version", [7, 9, 10])
def test_commits_of_a_member_count_until_the_group_has_moved_on(client, group, version):
    joined = stable(client, group)
    for offset in range(4):
        assert commit(client, group, offset, version, joined=joined) == [0, 0]
    changed = join_request(group, joined.member_id, protocols=[("range", b"other")])
    rejoined = client.call(changed, version=9)
    assert (rejoined.error_code, sync(client, group, rejoined).error_code) == (0, 0)
    old = ErrorCode.ILLEGAL_GENERATION
    assert commit(client, group, 90, version, joined=joined) == [old, old]
    assert committed(client, group) == {("orders", 0): 3, ("orders", 1): 4}
    assert commit(client, group, 91, version, joined=rejoined) == [0, 0]


@pytest.mark.parametrize("version", [8, 10])
def test_a_topic_that_goes_takes_its_layout_with_it(client, group, version):
    name = f"short-{version}-{abs(hash(group))}"
    create_topic(client, name, partitions=2)
    message = request(group, {(name, 0): 1, (name, 1): 2})
    message.topics[0].topic_id = topic_id(client, name)

    def codes() -> list[int]:
        answer = client.call(message, version=version)
        return [part.error_code for topic in answer.topics for part in topic.partitions]

    for _ in range(4):
        assert codes() == [0, 0]
    client.call(DeleteTopicsRequest(topic_names=[name], timeout_ms=1000), version=5)
    gone = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for _ in range(3):
        assert codes() == [gone, gone]
    create_topic(client, name, partitions=1)
    back = [0, gone] if version < 10 else [gone, gone]
    for _ in range(3):
        assert codes() == back


def test_metadata_beyond_the_limit_is_refused_each_time(client, group):
    long = ErrorCode.OFFSET_METADATA_TOO_LARGE
    for offset in range(4):
        assert commit(client, group, offset, 8, metadata="m" * 4097) == [long, long]
        assert commit(client, group, offset, 8, metadata="m" * 4096) == [0, 0]


def test_a_partition_that_comes_twice_keeps_the_last(client, group):
    message = request(group, {("orders", 0): 1})
    for offset in range(4):
        message.topics[0].partitions = [
            OffsetCommitRequestPartition(0, offset, 0, ""),
            OffsetCommitRequestPartition(0, offset + 100, 0, ""),
        ]
        assert [p.error_code for p in client.call(message, version=8).topics[0].partitions] == [0, 0]
        assert committed(client, group) == {("orders", 0): offset + 100}
