"""The steps of Admin's calls that concern groups and their offsets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kohort.client.admin_types import GroupDescription, GroupListing
from kohort.client.administer.asking import Asking, outcome, raise_partly
from kohort.client.administer.group_descriptions import DEAD, classic_group, listing, newer_group
from kohort.client.core import arguments
from kohort.client.core.operation import Operation
from kohort.client.core.requests import RETRIABLE, GroupOf
from kohort.client.core.steps import Steps, Until
from kohort.client.errors import error_for
from kohort.client.types import OffsetAndMetadata, TopicPartition
from kohort.wire.errors import ErrorCode, KafkaError
from kohort.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kohort.wire.messages.delete_groups import DeleteGroupsRequest
from kohort.wire.messages.describe_groups import DescribeGroupsRequest
from kohort.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kohort.wire.messages.list_groups import ListGroupsRequest
from kohort.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kohort.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from kohort.wire.messages.share_group_describe import ShareGroupDescribeRequest
from kohort.wire.struct import Message

LAST_WITH_NAMES = 9  # OffsetCommit and OffsetFetch name topics by id after this version
GROUPS_SINCE = 8  # OffsetFetch asks for several groups from this version on
MEMBERS_SINCE = 3  # LeaveGroup removes several members from this version on

RETRY_MS = 100  # before nodes that did not answer are asked again

NO_SUCH_GROUP = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)
"""There is no such group of this type, or the broker's settings allow no groups of this type at all."""


class GroupCalls(Asking):
    """The calls that concern groups."""

    # --- groups ---------------------------------------------------------------------------------------

    def list_groups(self, states: Sequence[str], deadline_ms: int) -> Steps[list[GroupListing]]:
        """Lists the groups of all brokers, each of which knows those that it coordinates; asks all at the same time.

        A broker that does not answer is asked again while it belongs to the cluster; else its groups have moved.
        """
        found: dict[str, GroupListing] = {}
        answered: set[int] = set()
        attempts = 0
        while True:
            cluster = yield from self.look_up((), deadline_ms)
            missing = sorted(set(cluster.nodes) - answered)
            asked = [(node_id, self._list_at(node_id, states, deadline_ms)) for node_id in missing]
            attempts += 1
            for node_id, operation in asked:
                try:
                    response = yield from self.wait(operation, deadline_ms)
                except KafkaError as error:
                    if error.code not in RETRIABLE or not self.may_try_again(attempts, deadline_ms):
                        raise
                    continue
                answered.add(node_id)
                for row in response.groups:
                    if not states or not row.group_state or row.group_state in states:
                        found[row.group_id] = listing(row)
            if answered.issuperset(missing):
                return [found[group_id] for group_id in sorted(found)]
            yield Until(lambda: False, self._clock() + RETRY_MS)

    def _list_at(self, node_id: int, states: Sequence[str], deadline_ms: int) -> Operation[Any]:
        request = ListGroupsRequest(list(states))
        return self.begin(request, node_id, deadline_ms, verdict=lambda r: r.error_code, retries=0)

    def describe_groups(self, groups: Iterable[str], deadline_ms: int) -> Steps[dict[str, GroupDescription]]:
        """Describes groups; a group that does not exist is Dead, as in Kafka."""
        found: dict[str, GroupDescription] = {}
        errors: dict[str, KafkaError] = {}
        for group_id in groups:
            row = yield from self._describe(DescribeGroupsRequest([group_id]), group_id, deadline_ms)
            if row.error_code not in (0, ErrorCode.GROUP_ID_NOT_FOUND):
                errors[group_id] = error_for(row.error_code, row.error_message or group_id)
                continue
            described = classic_group(row, self._requests.coordinator_of(group_id))
            if described.state == DEAD:
                try:
                    described = yield from self._of_newer_types(described, deadline_ms)
                except KafkaError as error:
                    errors[group_id] = error
                    continue
            found[group_id] = described
        if errors:
            raise_partly(errors, found)
        return found

    def _of_newer_types(self, dead: GroupDescription, deadline_ms: int) -> Steps[GroupDescription]:
        """Describes a group that DescribeGroups calls Dead and that may be of a newer type, which it does not know."""
        group_id = dead.group_id
        for group_type, request in (
            ("consumer", ConsumerGroupDescribeRequest([group_id])),
            ("share", ShareGroupDescribeRequest([group_id])),
        ):
            try:
                row = yield from self._describe(request, group_id, deadline_ms)
            except KafkaError as error:
                if error.code is not ErrorCode.UNSUPPORTED_VERSION:
                    raise
                continue  # a broker that has not heard of such groups
            if not row.error_code:
                return newer_group(row, group_type, self._requests.coordinator_of(group_id))
            if row.error_code not in NO_SUCH_GROUP:
                raise error_for(row.error_code, row.error_message or group_id)
        response = yield from self.ask(
            ListGroupsRequest(), GroupOf(group_id), deadline_ms, verdict=lambda r: r.error_code
        )
        for listed in map(listing, response.groups):
            if listed.group_id == group_id and listed.group_type != dead.group_type:
                return replace(dead, state=listed.state, group_type=listed.group_type,
                               protocol_type=listed.protocol_type)  # fmt: skip
        return dead

    def _describe(self, request: Message, group_id: str, deadline_ms: int) -> Steps[Any]:
        response = yield from self.ask(
            request, GroupOf(group_id), deadline_ms, verdict=lambda r: _retriable(r.groups[0].error_code)
        )
        return response.groups[0]

    def delete_groups(self, groups: Sequence[str], deadline_ms: int) -> Steps[None]:
        rows = []
        for group_id in groups:
            response = yield from self.ask(
                DeleteGroupsRequest([group_id]), GroupOf(group_id), deadline_ms,
                verdict=lambda r: _retriable(r.results[0].error_code),
            )  # fmt: skip
            rows.append((group_id, response.results[0], None))
        outcome(rows)

    def remove_members(
        self, group_id: str, members: Sequence[str], instances: Iterable[str], reason: str, deadline_ms: int
    ) -> Steps[None]:
        """Removes members by member id or by instance id, or all of them."""
        group_id, reason = arguments.group_id(group_id), arguments.reason(reason)
        instances = arguments.names(instances, "an instance")
        leaving = [MemberIdentity(member_id, None, reason) for member_id in members]
        leaving += [MemberIdentity("", instance, reason) for instance in instances]
        if not leaving:
            described = yield from self.describe_groups([group_id], deadline_ms)
            leaving = [
                MemberIdentity("" if m.group_instance_id else m.member_id, m.group_instance_id, reason)
                for m in described[group_id].members
            ]
        if not leaving:
            return

        def make(version: int) -> LeaveGroupRequest:
            if version < MEMBERS_SINCE:
                raise ValueError("this broker cannot remove members: it is older than Kafka 2.4")
            return LeaveGroupRequest(group_id, members=leaving)

        response = yield from self.ask(
            make, GroupOf(group_id), deadline_ms, api_key=LeaveGroupRequest.API_KEY,
            verdict=lambda r: r.error_code,
        )  # fmt: skip
        outcome((row.group_instance_id or row.member_id, row, None) for row in response.members)

    # --- their offsets --------------------------------------------------------------------------------

    def group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None,
        deadline_ms: int,
        require_stable: bool = True,
    ) -> Steps[dict[TopicPartition, OffsetAndMetadata]]:
        group_id = arguments.group_id(group_id)
        require_stable = arguments.choice(require_stable, "require_stable")
        wanted = None if partitions is None else _by_topic(partitions)

        def make(version: int) -> OffsetFetchRequest:
            if version >= GROUPS_SINCE:
                topics = (
                    None
                    if wanted is None
                    else [OffsetFetchRequestTopics(t, partition_indexes=p) for t, p in wanted.items()]
                )
                return OffsetFetchRequest(
                    groups=[OffsetFetchRequestGroup(group_id, topics=topics)], require_stable=require_stable
                )
            asked = None if wanted is None else [OffsetFetchRequestTopic(t, p) for t, p in wanted.items()]
            return OffsetFetchRequest(group_id, asked, require_stable=require_stable and version >= 7)

        response: OffsetFetchResponse = yield from self.ask(
            make, GroupOf(group_id), deadline_ms, api_key=OffsetFetchRequest.API_KEY,
            verdict=_fetch_verdict, max_version=LAST_WITH_NAMES,
        )  # fmt: skip
        rows = response.groups[0].topics if response.groups else response.topics
        return {
            TopicPartition(topic.name, row.partition_index): OffsetAndMetadata(
                row.committed_offset,
                row.metadata or "",
                row.committed_leader_epoch if row.committed_leader_epoch >= 0 else None,
            )
            for topic in rows
            for row in topic.partitions
            if row.committed_offset >= 0
        }

    def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], deadline_ms: int
    ) -> Steps[None]:
        """Commits as an outsider, which is allowed only while the group has no members."""
        group_id = arguments.group_id(group_id)
        topics = [
            OffsetCommitRequestTopic(
                topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        index,
                        at.offset,
                        -1 if at.leader_epoch is None else at.leader_epoch,
                        at.metadata,
                    )
                    for index in indexes
                    for at in (offsets[TopicPartition(topic, index)],)
                ],
            )
            for topic, indexes in _by_topic(offsets).items()
        ]
        response = yield from self.ask(
            OffsetCommitRequest(group_id, topics=topics), GroupOf(group_id), deadline_ms,
            verdict=lambda r: next((code for _, row, _ in _partitions(r) if (code := _retriable(row.error_code))), 0),
            max_version=LAST_WITH_NAMES,
        )  # fmt: skip
        outcome(
            (TopicPartition(t.name, row.partition_index), row, None)
            for t in response.topics
            for row in t.partitions
        )

    def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], deadline_ms: int
    ) -> Steps[None]:
        group_id = arguments.group_id(group_id)
        topics = [
            OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(index) for index in indexes])
            for topic, indexes in _by_topic(partitions).items()
        ]
        response = yield from self.ask(
            OffsetDeleteRequest(group_id, topics),
            GroupOf(group_id),
            deadline_ms,
            verdict=lambda r: r.error_code,
        )
        outcome(
            (TopicPartition(t.name, row.partition_index), row, None)
            for t in response.topics
            for row in t.partitions
        )


def _retriable(code: int) -> int:
    return code if code in RETRIABLE else 0


def _partitions(response: Any) -> Iterator[tuple[TopicPartition, Any, None]]:
    for topic in response.topics:
        for row in topic.partitions:
            yield TopicPartition(topic.name, row.partition_index), row, None


def _fetch_verdict(response: OffsetFetchResponse) -> int:
    """Returns the error of the whole answer, or else the first of a partition."""
    whole = response.groups[0] if response.groups else response
    return whole.error_code or next(
        (row.error_code for topic in whole.topics for row in topic.partitions if row.error_code), 0
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return grouped
