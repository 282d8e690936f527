"""`kohort groups` on a cluster of several nodes: scripted ones, each of which knows its own groups and leads its own
partitions, and groups of every type."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from kohort.cli.frame.exit_codes import ExitCode
from kohort.cli.main import main
from kohort.client.group.consumer_protocol import Assignment, encode_assignment
from kohort.client.types import TopicPartition
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.consumer_group_describe import (
    Assignment as NewAssignment,
)
from kohort.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeResponse,
    Member,
    TopicPartitions,
)
from kohort.wire.messages.consumer_group_describe import (
    DescribedGroup as NewGroup,
)
from kohort.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from kohort.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from kohort.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from kohort.wire.messages.list_groups import ListedGroup, ListGroupsResponse
from kohort.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kohort.wire.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kohort.wire.messages.share_group_describe import (
    Assignment as ShareAssignment,
)
from kohort.wire.messages.share_group_describe import (
    DescribedGroup as ShareGroup,
)
from kohort.wire.messages.share_group_describe import (
    Member as ShareMember,
)
from kohort.wire.messages.share_group_describe import (
    ShareGroupDescribeResponse,
)
from kohort.wire.messages.share_group_describe import (
    TopicPartitions as ShareTopicPartitions,
)
from tests.client.certificates import make_certificates
from tests.client.scripted import Received, ScriptedBroker, ScriptedCluster, Versions, all_versions

SHARE_OFFSETS = 90
LIST_OFFSETS, OFFSET_FETCH, FIND_COORDINATOR, DESCRIBE, LIST, NEW_DESCRIBE, SHARE_DESCRIBE = (
    2,
    9,
    10,
    15,
    16,
    69,
    77,
)
NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND
ENDS = {("orders", 0): 10, ("orders", 1): 20, ("orders", 2): 30}
UUID = "fef7ad0a-0000-4000-8000-000000000000"


@pytest.fixture(autouse=True)
def _a_slow_machine_is_no_news(monkeypatch: pytest.MonkeyPatch) -> None:
    """ "waiting for …" is for people, and not what these tests look for."""
    monkeypatch.setattr("kohort.cli.frame.cluster.SILENCE_S", 60.0)


class GroupCluster(ScriptedCluster):
    """Three nodes. Partition n of `orders` is led by node n + 1; node 2 coordinates all groups that are asked for."""

    def __init__(self, versions: Versions | None = None) -> None:
        super().__init__(3, versions=versions)
        self.add_topic("orders", leaders=[1, 2, 3])
        self.classic: dict[str, DescribedGroup] = {}
        self.newer: dict[str, NewGroup] = {}
        self.share: dict[str, ShareGroup] = {}
        self.committed: dict[tuple[str, int], int] = {}
        self.listed = {1: [ListedGroup("a", "consumer", "Stable", "Classic")],
                       2: [ListedGroup("connectors", "connect", "Stable", "Classic")],
                       3: [ListedGroup("new", "consumer", "Assigning", "Consumer"),
                           ListedGroup("shared", "share", "Empty", "Share"),
                           ListedGroup("offsets only", "", "Empty", "Classic")]}  # fmt: skip
        for node_id, node in self.nodes.items():
            node.on(LIST, lambda _, me=node_id: ListGroupsResponse(groups=self.listed[me]))  # type: ignore[misc]
            node.on(LIST_OFFSETS, lambda request, me=node_id: self._ends(me, request))  # type: ignore[misc]
            node.on(FIND_COORDINATOR, self._coordinator)
        self[2].on(DESCRIBE, self._describe)
        self[2].on(NEW_DESCRIBE, self._describe_newer)
        self[2].on(SHARE_DESCRIBE, self._describe_share)
        self[2].on(SHARE_OFFSETS, self._share_offsets)
        self[2].on(OFFSET_FETCH, self._fetch)

    def __enter__(self) -> GroupCluster:
        super().__enter__()
        return self

    def _coordinator(self, request: Received) -> FindCoordinatorResponse:
        node = self[2]
        if request.version < 4:
            return FindCoordinatorResponse(node_id=2, host=node.host, port=node.port)
        keys = request.message.coordinator_keys
        return FindCoordinatorResponse(coordinators=[Coordinator(k, 2, node.host, node.port) for k in keys])

    def _describe(self, request: Received) -> DescribeGroupsResponse:
        (group_id,) = request.message.groups
        unknown = DescribedGroup(NOT_FOUND if request.version >= 6 else 0, None, group_id, "Dead")
        return DescribeGroupsResponse(groups=[self.classic.get(group_id, unknown)])

    def _describe_newer(self, request: Received) -> ConsumerGroupDescribeResponse:
        (group_id,) = request.message.group_ids
        return ConsumerGroupDescribeResponse(groups=[self.newer.get(group_id, NewGroup(NOT_FOUND))])

    def _describe_share(self, request: Received) -> ShareGroupDescribeResponse:
        (group_id,) = request.message.group_ids
        return ShareGroupDescribeResponse(groups=[self.share.get(group_id, ShareGroup(NOT_FOUND))])

    def _share_offsets(self, request: Received) -> DescribeShareGroupOffsetsResponse:
        (asked,) = request.message.groups
        partitions = [
            DescribeShareGroupOffsetsResponsePartition(1, 12, 0, 6),
            DescribeShareGroupOffsetsResponsePartition(2, -1, -1),  # it has not started yet
        ]
        topic = DescribeShareGroupOffsetsResponseTopic("orders", b"\1" * 16, partitions)
        return DescribeShareGroupOffsetsResponse(
            groups=[DescribeShareGroupOffsetsResponseGroup(asked.group_id, [topic])]
        )

    def _fetch(self, request: Received) -> OffsetFetchResponse:
        rows = [
            OffsetFetchResponseTopics(topic, partitions=[OffsetFetchResponsePartitions(index, offset)])
            for (topic, index), offset in self.committed.items()
        ]
        group_id = request.message.groups[0].group_id
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id, rows)])

    def _ends(self, me: int, request: Received) -> ListOffsetsResponse:
        topics = []
        for topic in request.message.topics:
            rows = []
            for part in topic.partitions:
                leads = part.partition_index == me - 1
                code = 0 if leads else ErrorCode.NOT_LEADER_OR_FOLLOWER
                end = ENDS[topic.name, part.partition_index] if leads else -1
                rows.append(ListOffsetsPartitionResponse(part.partition_index, code, offset=end))
            topics.append(ListOffsetsTopicResponse(topic.name, rows))
        return ListOffsetsResponse(topics=topics)

    def run(self, *words: str) -> int:
        """With two addresses, the first of which nobody has."""
        return main(["groups", *words, "--bootstrap", f"127.0.0.1:1,{self[1].address}"])


def classic(group_id: str, *owned: list[int]) -> DescribedGroup:
    members = []
    for number, indexes in enumerate(owned):
        assigned = Assignment(tuple(TopicPartition("orders", index) for index in indexes))
        members.append(
            DescribedGroupMember(f"m{number}-{UUID}", None, f"m{number}", "/10.0.0.1",
                                 member_assignment=encode_assignment(assigned))
        )  # fmt: skip
    return DescribedGroup(0, None, group_id, "Stable", "consumer", "range", members)


def described(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_groups_of_all_nodes_are_listed_with_their_types(capsys: pytest.CaptureFixture[str]) -> None:
    with GroupCluster() as cluster:
        assert cluster.run("list") == 0
        assert capsys.readouterr().out.splitlines() == [
            "GROUP         TYPE      PROTOCOL  STATE",
            "a             classic   consumer  Stable",
            "connectors    classic   connect   Stable",
            "new           consumer  consumer  Assigning",
            "offsets only  classic   -         Empty",
            "shared        share     share     Empty",
        ]
        assert cluster.run("list", "--json") == 0
        assert {"group": "new", "type": "consumer", "protocol_type": "consumer", "state": "Assigning"} in (
            json.loads(capsys.readouterr().out)
        )


def test_ends_come_from_all_leaders_and_the_rest_from_the_coordinator(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with GroupCluster() as cluster:
        cluster.classic["a"] = classic("a", [0, 1], [2])
        cluster.committed = {("orders", 0): 10, ("orders", 1): 5}
        assert cluster.run("describe", "a") == 0
        assert capsys.readouterr().out.splitlines() == [
            f"a: Stable, classic, assignor range, coordinator {cluster[2].address} (id 2), 2 members",
            "",
            "GROUP  TOPIC   PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG  LAG-SECONDS  CONSUMER-ID   HOST       "
            "CLIENT-ID",
            "a      orders  0          10              10              0    0            m0-fef7ad0a…  /10.0.0.1  m0",
            "a      orders  1          5               20              15   -            m0-fef7ad0a…  /10.0.0.1  m0",
            "a      orders  2          -               30              -    -            m1-fef7ad0a…  /10.0.0.1  m1",
        ]


def test_a_partition_that_nobody_owns_any_more_is_shown_too(capsys: pytest.CaptureFixture[str]) -> None:
    with GroupCluster() as cluster:
        cluster.classic["a"] = classic("a", [0])
        cluster.committed = {("orders", 2): 7}
        assert cluster.run("describe", "a", "--json") == 0
        rows = described(capsys)["offsets"]
        assert rows[0] == {
            "topic": "orders", "partition": 0, "offset": None, "metadata": "", "begin": 10, "end": 10, "lag": None,
            "lag_seconds": None, "members": [f"m0-{UUID}"],
        }  # fmt: skip
        assert rows[1] == {
            "topic": "orders", "partition": 2, "offset": 7, "metadata": "", "begin": 30, "end": 30, "lag": 23,
            "lag_seconds": None, "members": [],
        }  # fmt: skip


def test_a_leader_that_moved_is_found_and_a_topic_that_is_gone_costs_only_its_own_rows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with GroupCluster() as cluster:
        cluster.classic["a"] = classic("a", [0])
        cluster.committed = {("orders", 0): 1, ("deleted", 0): 3}
        moved = ListOffsetsPartitionResponse(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        answer = ListOffsetsResponse(topics=[ListOffsetsTopicResponse("orders", [moved])])
        cluster[1].script(LIST_OFFSETS, answer)
        assert cluster.run("describe", "a") == 0
        shown = capsys.readouterr()
        assert "deleted  0          3               -               -    -" in shown.out
        assert (
            "orders   0          1               10              9    -            m0-fef7ad0a…" in shown.out
        )
        assert "topic deleted, which does not exist" in shown.err


def test_a_group_of_the_new_protocol_is_described(capsys: pytest.CaptureFixture[str]) -> None:
    with GroupCluster() as cluster:
        owned = NewAssignment([TopicPartitions(b"\1" * 16, "orders", [0, 2])])
        member = Member("m-1", "static", None, 3, "me", "/10.0.0.2", ["orders"], None, owned, owned)
        cluster.newer["new"] = NewGroup(0, None, "new", "Reconciling", 3, 3, "uniform", [member])
        cluster.committed = {("orders", 0): 4}
        assert cluster.run("describe", "new", "--json") == 0
        found = described(capsys)
        assert (found["state"], found["type"], found["protocol"]) == ("Reconciling", "consumer", "uniform")
        assert found["members"][0]["group_instance_id"] == "static"
        assert [(row["partition"], row["lag"], row["members"]) for row in found["offsets"]] == [
            (0, 6, ["m-1"]),
            (2, None, ["m-1"]),
        ]


def test_a_share_group_is_described_with_every_owner_of_a_partition(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with GroupCluster() as cluster:
        owned = ShareAssignment([ShareTopicPartitions(b"\1" * 16, "orders", [1])])
        members = [ShareMember(name, None, 1, name, "/10.0.0.2", ["orders"], owned) for name in ("x", "y")]
        cluster.share["shared"] = ShareGroup(0, None, "shared", "Stable", 1, 1, "simple", members)
        assert cluster.run("describe", "shared") == 0
        shown = capsys.readouterr().out
        assert "shared: Stable, share, assignor simple" in shown
        assert "START-OFFSET" in shown
        assert "orders  1          12            20              6    " in shown, (
            "the broker says what the lag is"
        )
        assert "x, y         /10.0.0.2  x, y" in shown
        assert not cluster[2].requests_of(OFFSET_FETCH), "a share group has no committed offsets"


def test_groups_of_other_protocols_and_types_are_shown_as_far_as_they_are_known(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with GroupCluster() as cluster:
        worker = DescribedGroupMember(
            "w-1", None, "worker", "/10.0.0.3", b"\0\1", b"what only Connect can read"
        )
        cluster.classic["connectors"] = DescribedGroup(
            0, None, "connectors", "Stable", "connect", "sessioned", [worker]
        )
        assert cluster.run("describe", "connectors") == 0
        shown = capsys.readouterr().out
        assert "connectors: Stable, classic (connect), assignor sessioned" in shown
        assert "-            w-1          /10.0.0.3  worker" in shown
        # One that calls itself a consumer and is none.
        cluster.classic["odd"] = DescribedGroup(0, None, "odd", "Stable", "consumer", "mine", [worker])
        assert cluster.run("describe", "odd") == 0
        # Of streams groups this client knows no more than their state, and what they have committed.
        cluster.listed[2].append(ListedGroup("topology", "streams", "Stable", "Streams"))
        cluster.committed = {("orders", 0): 4}
        capsys.readouterr()
        assert cluster.run("describe", "topology") == 0
        shown = capsys.readouterr().out
        assert "topology: Stable, streams" in shown
        assert "the members of a streams group are not shown here" in shown
        assert "orders  0          4               10              6    -" in shown


@pytest.mark.parametrize("action", ["describe", "why"])
@pytest.mark.parametrize("newest", [5, 6], ids=["Dead", "GROUP_ID_NOT_FOUND"])
def test_a_group_that_is_not_there_is_said_to_be_not_there(
    capsys: pytest.CaptureFixture[str], action: str, newest: int
) -> None:
    with GroupCluster(all_versions(describe_groups=newest)) as cluster:
        assert cluster.run(action, "nope") == ExitCode.NOT_FOUND
        assert "there is no group nope" in capsys.readouterr().err


def test_a_broker_before_the_new_protocol_is_not_asked_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    old = {key: range_ for key, range_ in all_versions(list_groups=3).items() if key not in (69, 77)}
    with GroupCluster(old) as cluster:
        assert cluster.run("describe", "nope") == ExitCode.NOT_FOUND
        assert "there is no group nope" in capsys.readouterr().err
        assert cluster.run("list") == 0
        assert "a             classic  consumer  -" in capsys.readouterr().out


def test_a_cluster_that_has_had_no_groups_says_so_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with GroupCluster() as cluster:
        cluster.classic["a"] = classic("a", [0])
        assert cluster.run("watch", "a") == ExitCode.NOT_FOUND
        shown = capsys.readouterr()
        assert "there are no groups on this cluster yet" in shown.err
        assert shown.out == ""
        assert len(shown.err.splitlines()) == 1


def test_the_file_of_a_client_gives_tls_and_the_addresses(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    certificates = make_certificates(tmp_path)
    file = tmp_path / "client.properties"
    with ScriptedBroker(tls=certificates.server_context()) as broker:
        broker.on(LIST, ListGroupsResponse(groups=[ListedGroup("a", "consumer", "Stable", "Classic")]))
        file.write_text(
            f"bootstrap.servers={broker.address}\n"
            f"security.protocol=SSL\nssl.ca.location={certificates.authority}\n"
            "# what a consumer has besides\ngroup.id=orders\n"
            "key.deserializer=org.apache.kafka.common.serialization.StringDeserializer\n"
        )
        assert main(["groups", "list", "--config", str(file)]) == 0
        assert "Stable" in capsys.readouterr().out
        file.write_text(f"security.protocol=SSL\nssl.ca.location={certificates.path('stranger.pem')}\n")
        assert (
            main(["groups", "list", "--bootstrap", broker.address, "--config", str(file)])
            == ExitCode.NOT_ALLOWED
        )
        assert "certificate was not accepted" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("secrity.protocol=SSL", "did you mean security.protocol"),
        ("security.protocol=TLS", "security.protocol"),
        ("bootstrap.servers=nowhere", "is not host:port"),
        ("alone", "line 1: write it as NAME=VALUE"),
    ],
)
def test_a_wrong_setting_in_the_file_is_explained(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, says: str
) -> None:
    (tmp_path / "client.properties").write_text(text)
    assert main(["groups", "list", "--config", str(tmp_path / "client.properties")]) == 1
    assert says in capsys.readouterr().err
    assert main(["groups", "list", "--config", str(tmp_path / "missing")]) == 1
    assert "cannot read" in capsys.readouterr().err


def test_nobody_there_is_told_with_the_addresses(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("default.api.timeout.ms=500\n")
    with socket.socket() as bound:  # and not open
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        assert main(["groups", "list", "--bootstrap", address, "--config", str(file)]) == ExitCode.NO_ANSWER
    shown = capsys.readouterr().err
    assert f"no broker answers at {address}" in shown
    assert "--bootstrap" in shown
