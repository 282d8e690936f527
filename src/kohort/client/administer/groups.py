"""The steps of Admin's calls that concern groups and their offsets."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

from kohort.client.admin_types import GroupDescription, GroupListing
from kohort.client.administer.asking import outcome, raise_partly
from kohort.client.administer.coordinators import CoordinatorAsking, GroupQuestion
from kohort.client.administer.group_descriptions import DEAD, classic_group, listing, newer_group
from kohort.client.core import arguments
from kohort.client.core.cluster import Node
from kohort.client.core.operation import Operation
from kohort.client.core.requests import RETRIABLE, GroupOf
from kohort.client.core.steps import Steps, Until
from kohort.client.errors import TimedOut, error_for
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

LAST_WITH_NAMES = 9  # OffsetCommit and OffsetFetch name topics by id after this version
GROUPS_SINCE = 8  # OffsetFetch asks for several groups from this version on
MEMBERS_SINCE = 3  # LeaveGroup removes several members from this version on

RETRY_MS = 100  # before nodes that did not answer are asked again

NO_SUCH_GROUP = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)
"""There is no such group of this type, or the broker's settings allow no groups of this type at all."""


CLASSIC = "classic"


class GroupCalls(CoordinatorAsking):
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
        wanted = list(dict.fromkeys(groups))
        rows = yield from self.ask_coordinators(_CLASSIC, wanted, deadline_ms)
        found: dict[str, GroupDescription] = {}
        errors: dict[str, KafkaError] = {}
        for group_id, row in rows.items():
            if isinstance(row, Exception):
                errors[group_id] = cast(KafkaError, row)
            else:
                found[group_id] = classic_group(row, self._requests.coordinator_of(group_id))
        dead = [group_id for group_id, group in found.items() if group.state == DEAD]
        if dead:
            newer = yield from self._of_newer_types(dead, deadline_ms)
            for group_id, described in newer.items():
                if isinstance(described, Exception):
                    errors[group_id] = cast(KafkaError, described)
                    del found[group_id]
                else:
                    found[group_id] = described
        if errors:
            raise_partly(errors, found)
        return {group_id: found[group_id] for group_id in wanted}

    def _of_newer_types(
        self, groups: Sequence[str], deadline_ms: int
    ) -> Steps[dict[str, GroupDescription | Exception]]:
        """Describes groups that DescribeGroups calls Dead and that may be of a newer type, which it does not know."""
        found: dict[str, GroupDescription | Exception] = {}
        left = list(groups)
        for group_type, question in (("consumer", _CONSUMER), ("share", _SHARE)):
            rows = yield from self.ask_coordinators(question, left, deadline_ms)
            for group_id, row in rows.items():
                if isinstance(row, Exception):
                    if getattr(row, "code", None) is not ErrorCode.UNSUPPORTED_VERSION:
                        found[group_id] = row  # else a broker that has not heard of such groups
                elif not row.error_code:
                    coordinator = self._requests.coordinator_of(group_id)
                    found[group_id] = newer_group(row, group_type, coordinator)
            left = [group_id for group_id in left if group_id not in found]
        if left:
            listed = yield from self._listed(left, deadline_ms)
            for group_id in left:
                found[group_id] = listed.get(group_id) or _dead(
                    group_id, self._requests.coordinator_of(group_id)
                )
        return found

    def _listed(
        self, groups: Sequence[str], deadline_ms: int
    ) -> Steps[dict[str, GroupDescription | Exception]]:
        """Finds groups of types that no request describes in the lists of their coordinators, one list for each."""
        found: dict[str, GroupDescription | Exception] = {}
        asked: set[int] = set()
        for group_id in groups:
            coordinator = self._requests.coordinator_of(group_id)
            if coordinator is not None and coordinator.node_id in asked:
                continue
            try:
                response = yield from self.ask(
                    ListGroupsRequest(), GroupOf(group_id), deadline_ms, verdict=lambda r: r.error_code
                )
            except (KafkaError, TimedOut) as error:
                found[group_id] = error
                continue
            coordinator = self._requests.coordinator_of(group_id)
            if coordinator is not None:
                asked.add(coordinator.node_id)
            for row in map(listing, response.groups):
                if row.group_type != CLASSIC:
                    found[row.group_id] = replace(
                        _dead(row.group_id, coordinator), state=row.state, group_type=row.group_type,
                        protocol_type=row.protocol_type,
                    )  # fmt: skip
        return found

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
        question = _offsets_question(wanted, require_stable)
        rows = yield from self.ask_coordinators(question, [group_id], deadline_ms)
        return _offsets_of(rows[group_id])

    def offsets_of_groups(
        self, groups: Iterable[str], deadline_ms: int, require_stable: bool = True
    ) -> Steps[dict[str, dict[TopicPartition, OffsetAndMetadata]]]:
        """Returns what each of these groups has committed, with few requests."""
        wanted = list(dict.fromkeys(arguments.group_id(group_id) for group_id in groups))
        question = _offsets_question(None, arguments.choice(require_stable, "require_stable"))
        rows = yield from self.ask_coordinators(question, wanted, deadline_ms)
        errors = {group_id: row for group_id, row in rows.items() if isinstance(row, Exception)}
        found = {group_id: _offsets_of(row) for group_id, row in rows.items() if group_id not in errors}
        if errors:
            raise_partly(cast("dict[str, KafkaError]", errors), found)
        return found

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
            verdict=lambda r: _retriable(r.error_code),
        )
        if response.error_code:
            raise error_for(response.error_code, f"offsets of the group {group_id}")
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


def _dead(group_id: str, coordinator: Node | None) -> GroupDescription:
    return GroupDescription(group_id, DEAD, "", "", coordinator, ())


def _described_rows(response: Any, harmless: Collection[int]) -> Iterator[tuple[str, int, Any]]:
    """Yields the rows of an answer; codes that only say that there is no such group are left to the caller."""
    for row in response.groups:
        yield row.group_id, 0 if row.error_code in harmless else row.error_code, row


_CLASSIC = GroupQuestion(
    DescribeGroupsRequest.API_KEY,
    lambda groups, version: DescribeGroupsRequest(list(groups)),
    partial(_described_rows, harmless=(ErrorCode.GROUP_ID_NOT_FOUND,)),
)
_CONSUMER = GroupQuestion(
    ConsumerGroupDescribeRequest.API_KEY,
    lambda groups, version: ConsumerGroupDescribeRequest(list(groups)),
    partial(_described_rows, harmless=NO_SUCH_GROUP),
)
_SHARE = GroupQuestion(
    ShareGroupDescribeRequest.API_KEY,
    lambda groups, version: ShareGroupDescribeRequest(list(groups)),
    partial(_described_rows, harmless=NO_SUCH_GROUP),
)


def _offsets_question(wanted: Mapping[str, list[int]] | None, require_stable: bool) -> GroupQuestion:
    """Asks for the committed offsets of partitions by topic; None: for all that a group has."""

    def make(groups: Sequence[str], version: int) -> OffsetFetchRequest:
        if version < GROUPS_SINCE:
            asked = None if wanted is None else [OffsetFetchRequestTopic(t, p) for t, p in wanted.items()]
            return OffsetFetchRequest(groups[0], asked, require_stable=require_stable and version >= 7)
        topics = (
            None
            if wanted is None
            else [OffsetFetchRequestTopics(t, partition_indexes=p) for t, p in wanted.items()]
        )
        return OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id, topics=topics) for group_id in groups],
            require_stable=require_stable,
        )

    return GroupQuestion(OffsetFetchRequest.API_KEY, make, _fetched_rows, LAST_WITH_NAMES)


def _fetched_rows(response: OffsetFetchResponse) -> Iterator[tuple[str, int, Any]]:
    """Yields the groups of an answer, each with its own error or else the first of its partitions."""
    answers: Sequence[Any] = response.groups or [response]
    for whole in answers:
        code = whole.error_code or next(
            (row.error_code for topic in whole.topics for row in topic.partitions if row.error_code), 0
        )
        yield getattr(whole, "group_id", ""), code, whole


def _offsets_of(row: Any) -> dict[TopicPartition, OffsetAndMetadata]:
    """Reads the committed offsets of a group; raises what stands in their place."""
    if isinstance(row, Exception):
        raise row
    return {
        TopicPartition(topic.name, each.partition_index): OffsetAndMetadata(
            each.committed_offset,
            each.metadata or "",
            each.committed_leader_epoch if each.committed_leader_epoch >= 0 else None,
        )
        for topic in row.topics
        for each in topic.partitions
        if each.committed_offset >= 0
    }


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return grouped
