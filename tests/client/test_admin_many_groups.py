"""Admin asks for many groups with few requests: on any number of nodes, of old brokers too, and when groups move."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from kohort import Admin, AsyncAdmin, ErrorCode, KafkaError, OffsetAndMetadata, PartlyFailed
from kohort.testing import Kafka
from kohort.wire.messages.describe_groups import DescribedGroup, DescribeGroupsResponse
from kohort.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from kohort.wire.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from tests.client.scripted import CLOSE, Received, ScriptedCluster, all_versions

OFFSET_FETCH, FIND_COORDINATOR, DESCRIBE_GROUPS = 9, 10, 15
GROUPS = [f"g{number}" for number in range(6)]


class Coordinators(ScriptedCluster):
    """Node 1 coordinates the groups with even numbers, node 2 the others; group n has committed offset n."""

    def __init__(self, **newest: int) -> None:
        super().__init__(2, versions=all_versions(**newest))
        self.moved_to: dict[str, int] = {}
        self.on(FIND_COORDINATOR, self._find)
        for node_id, node in self.nodes.items():
            node.on(OFFSET_FETCH, lambda request, me=node_id: self._offsets(me, request))  # type: ignore[misc]

    def __enter__(self) -> Coordinators:
        super().__enter__()
        return self

    def home(self, group_id: str) -> int:
        return self.moved_to.get(group_id, 1 + int(group_id[1:]) % 2)

    def _find(self, request: Received) -> FindCoordinatorResponse:
        if request.version < 4:
            node = self.nodes[self.home(request.message.key)]
            return FindCoordinatorResponse(node_id=node.node_id, host=node.host, port=node.port)
        rows = []
        for key in request.message.coordinator_keys:
            node = self.nodes[self.home(key)]
            rows.append(Coordinator(key, node.node_id, node.host, node.port))
        return FindCoordinatorResponse(coordinators=rows)

    def _offsets(self, me: int, request: Received) -> OffsetFetchResponse:
        if request.version < 8:
            offset = int(request.message.group_id[1:])
            row = OffsetFetchResponsePartition(0, offset)
            return OffsetFetchResponse(topics=[OffsetFetchResponseTopic("t", [row])])
        return OffsetFetchResponse(groups=list(self._rows(me, [g.group_id for g in request.message.groups])))

    def _rows(self, me: int, groups: Iterable[str]) -> Iterable[OffsetFetchResponseGroup]:
        for group_id in groups:
            if self.home(group_id) != me:
                yield OffsetFetchResponseGroup(group_id, error_code=ErrorCode.NOT_COORDINATOR)
            else:
                row = OffsetFetchResponsePartitions(0, int(group_id[1:]))
                yield OffsetFetchResponseGroup(group_id, [OffsetFetchResponseTopics("t", partitions=[row])])


def offsets_in(cluster: Coordinators, client: Admin) -> list[int]:
    found = client.offsets_of_groups(*GROUPS)
    assert list(found) == GROUPS
    return [found[group_id][("t", 0)].offset for group_id in GROUPS]


def count(cluster: Coordinators, api_key: int) -> int:
    return sum(len(node.requests_of(api_key)) for node in cluster.nodes.values())


def test_one_request_for_each_coordinator() -> None:
    with Coordinators() as cluster, Admin(bootstrap_servers=cluster.bootstrap_servers) as client:
        assert offsets_in(cluster, client) == [0, 1, 2, 3, 4, 5]
        assert (count(cluster, FIND_COORDINATOR), count(cluster, OFFSET_FETCH)) == (1, 2)
        assert offsets_in(cluster, client) == [0, 1, 2, 3, 4, 5]
        assert count(cluster, FIND_COORDINATOR) == 1  # they are known


@pytest.mark.parametrize("newest", [{"offset_fetch": 7}, {"find_coordinator": 3}])
def test_an_old_broker_is_asked_for_one_group_at_a_time(newest: dict[str, int]) -> None:
    with Coordinators(**newest) as cluster, Admin(bootstrap_servers=cluster.bootstrap_servers) as client:
        assert offsets_in(cluster, client) == [0, 1, 2, 3, 4, 5]


def test_a_group_that_moved_is_found_at_its_new_coordinator() -> None:
    with Coordinators() as cluster, Admin(bootstrap_servers=cluster.bootstrap_servers) as client:
        offsets_in(cluster, client)
        cluster.moved_to = {"g2": 2}
        assert offsets_in(cluster, client) == [0, 1, 2, 3, 4, 5]


def test_a_connection_that_breaks_costs_no_answer() -> None:
    with Coordinators() as cluster, Admin(bootstrap_servers=cluster.bootstrap_servers) as client:
        cluster[1].script(OFFSET_FETCH, CLOSE)
        assert offsets_in(cluster, client) == [0, 1, 2, 3, 4, 5]


def test_a_group_that_is_refused_does_not_cost_the_others() -> None:
    with Coordinators() as cluster, Admin(bootstrap_servers=cluster.bootstrap_servers) as client:
        rows = [
            OffsetFetchResponseGroup("g0", error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED),
            OffsetFetchResponseGroup("g2"),
        ]
        cluster[1].script(OFFSET_FETCH, OffsetFetchResponse(groups=rows))
        with pytest.raises(PartlyFailed) as partly:
            client.offsets_of_groups("g0", "g2")
        assert partly.value.results == {"g2": {}}
        assert isinstance(partly.value.errors["g0"], KafkaError)


def test_groups_are_described_in_one_request_for_each_coordinator() -> None:
    with Coordinators() as cluster, Admin(bootstrap_servers=cluster.bootstrap_servers) as client:

        def describe(request: Received) -> DescribeGroupsResponse:
            rows = [DescribedGroup(0, None, group_id, "Stable") for group_id in request.message.groups]
            return DescribeGroupsResponse(groups=rows)

        cluster.on(DESCRIBE_GROUPS, describe)
        found = client.describe_groups(*GROUPS)
        assert [group.state for group in found.values()] == ["Stable"] * 6
        assert [group.coordinator.node_id for group in found.values() if group.coordinator] == [1, 2] * 3
        assert count(cluster, DESCRIBE_GROUPS) == 2


def test_groups_that_do_not_exist_are_dead_and_have_no_offsets(kafka: Kafka) -> None:
    kafka.create_topic("t")
    with Admin(bootstrap_servers=kafka.bootstrap_servers) as client:
        client.alter_group_offsets("there", {("t", 0): 3})
        found = client.describe_groups("there", "gone", "gone too")
        assert {group_id: group.state for group_id, group in found.items()} == {
            "there": "Empty",
            "gone": "Dead",
            "gone too": "Dead",
        }
        assert client.offsets_of_groups("gone", "there") == {
            "gone": {},
            "there": {("t", 0): OffsetAndMetadata(3)},
        }
        assert client.offsets_of_groups() == {}


async def test_the_same_with_asyncio(kafka: Kafka) -> None:
    kafka.create_topic("t")
    async with AsyncAdmin(bootstrap_servers=kafka.bootstrap_servers) as client:
        await client.alter_group_offsets("a", {("t", 0): 3})
        await client.alter_group_offsets("b", {("t", 0): 4})
        found = await client.offsets_of_groups("a", "b", require_stable=False)
        assert [at[("t", 0)].offset for at in found.values()] == [3, 4]
