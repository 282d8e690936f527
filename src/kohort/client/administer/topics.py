"""The steps of Admin's calls that concern topics, settings, records and the cluster."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from kohort.client.admin_types import (
    ClusterDescription,
    ConfigEntry,
    LogDirDescription,
    NewTopic,
    PartitionDescription,
    ReplicaInfo,
    TopicDescription,
)
from kohort.client.administer.asking import Asking, named, outcome, raise_partly
from kohort.client.core import arguments
from kohort.client.core.cluster import NO_NODE, Cluster, TopicInfo
from kohort.client.core.effects import ANY_NODE
from kohort.client.core.requests import CONTROLLER, MOVED, RETRIABLE, Target
from kohort.client.core.steps import Steps, Until
from kohort.client.errors import PartlyFailed, TimedOut, WrongArgument, error_for
from kohort.client.offsets.offset_requests import list_offsets, listed_offsets
from kohort.client.types import ByPartition, OffsetAndTimestamp, TopicPartition
from kohort.settings import ConfigSource
from kohort.wire.errors import ErrorCode, KafkaError
from kohort.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from kohort.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kohort.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kohort.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kohort.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from kohort.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResult
from kohort.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kohort.wire.messages.list_offsets import ListOffsetsRequest
from kohort.wire.struct import Message

TOPIC, BROKER, GROUP = 2, 4, 32  # kinds of resources
SET, DELETE = 0, 1  # operations on a setting
_SOURCES = {source.value: source.name for source in ConfigSource}
DEFAULT_SOURCES = (5,)  # DEFAULT_CONFIG
RETRY_MS = 100  # before a moved leader is looked up again
THROTTLED = ErrorCode.THROTTLING_QUOTA_EXCEEDED
ROUND_MS = 5_000  # a leader that has not answered by then may have moved


Rows = Callable[[Any], Iterable[Any]]
"""Returns what an answer says of each thing that was asked for."""


def first_error(rows: Rows) -> Callable[[Any], int]:
    """Makes a verdict for answers about many things: the first error that may pass, so that it is asked again.

    A quota is no such error: what was within it is done, and would fail if it were asked for again.
    """
    return lambda response: next(
        (r.error_code for r in rows(response) if r.error_code in RETRIABLE and r.error_code != THROTTLED), 0
    )


class TopicCalls(Asking):
    """The calls that concern topics, settings, records and the cluster."""

    # --- topics ---------------------------------------------------------------------------------------

    def create_topics(self, topics: Iterable[NewTopic], deadline_ms: int, validate_only: bool) -> Steps[None]:
        wanted = [
            _creatable(topic) for topic in arguments.iterable(topics, 'topics, as in [NewTopic("orders")]')
        ]
        only_checks = arguments.choice(validate_only, "validate_only")

        def make(names: Collection[str], version: int) -> CreateTopicsRequest:
            some = [topic for topic in wanted if topic.name in names]
            return CreateTopicsRequest(some, self.timeout_ms(deadline_ms), only_checks)

        yield from self._for_each(
            [topic.name for topic in wanted],
            CreateTopicsRequest.API_KEY,
            make,
            lambda r: r.topics,
            deadline_ms,
        )

    def delete_topics(self, topics: Sequence[str], deadline_ms: int) -> Steps[None]:
        wanted = [arguments.topic_name(topic) for topic in topics]

        def make(names: Collection[str], version: int) -> DeleteTopicsRequest:
            timeout_ms = self.timeout_ms(deadline_ms)
            if version >= 6:
                return DeleteTopicsRequest([DeleteTopicState(name) for name in names], timeout_ms=timeout_ms)
            return DeleteTopicsRequest(topic_names=list(names), timeout_ms=timeout_ms)

        key = DeleteTopicsRequest.API_KEY
        yield from self._for_each(wanted, key, make, lambda r: r.responses, deadline_ms)

    def create_partitions(
        self, counts: Mapping[str, int], assignments: Mapping[str, list[list[int]]], deadline_ms: int
    ) -> Steps[None]:
        placed = {
            name: [
                CreatePartitionsAssignment(_brokers(brokers, name))
                for brokers in arguments.iterable(rows, name)
            ]
            for name, rows in arguments.mapping(
                assignments, 'brokers go by topic, as in {"orders": [[1], [2]]}'
            )
        }
        topics = [
            CreatePartitionsTopic(
                arguments.topic_name(name),
                arguments.whole_number(count, f"the number of partitions of {name}", 0, arguments.INT32),
                placed.get(name),
            )
            for name, count in arguments.mapping(counts, 'partitions go by topic, as in {"orders": 6}')
        ]

        def make(names: Collection[str], version: int) -> CreatePartitionsRequest:
            some = [topic for topic in topics if topic.name in names]
            return CreatePartitionsRequest(some, self.timeout_ms(deadline_ms))

        yield from self._for_each(
            [topic.name for topic in topics],
            CreatePartitionsRequest.API_KEY,
            make,
            lambda r: r.results,
            deadline_ms,
        )

    def _for_each(
        self,
        names: Collection[str],
        api_key: int,
        make: Callable[[Collection[str], int], Message],
        rows: Rows,
        deadline_ms: int,
    ) -> Steps[None]:
        """Has the controller change topics; those beyond a quota are asked for again, alone, when the broker says."""
        settled: dict[str, Any] = {}
        left = names
        while True:
            response = yield from self.ask(
                partial(make, left), CONTROLLER, deadline_ms, api_key=api_key, verdict=first_error(rows)
            )
            settled |= {row.name: row for row in rows(response)}
            left = [name for name, row in settled.items() if row.error_code == THROTTLED]
            again_ms = self._clock() + max(response.throttle_time_ms, RETRY_MS)
            if not left or again_ms >= deadline_ms:
                break
            yield Until(lambda: False, again_ms)
        outcome((name, row, None) for name, row in settled.items())

    def describe_topics(
        self, topics: Iterable[str] | None, deadline_ms: int, include_internal: bool
    ) -> Steps[dict[str, TopicDescription]]:
        names = None if topics is None else [arguments.topic_name(topic) for topic in topics]
        cluster = yield from self.look_up(names, deadline_ms)
        if names is None:
            chosen = [t for t in cluster.topics.values() if include_internal or not t.is_internal]
            return {topic.name: _described(topic) for topic in chosen}
        unknown = {
            name: _not_described(name, cluster.errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            for name in names
            if name not in cluster.topics
        }
        found = {name: _described(cluster.topics[name]) for name in names if name in cluster.topics}
        if unknown:
            raise_partly(unknown, found)
        return found

    # --- settings -------------------------------------------------------------------------------------

    def describe_configs(
        self, kind: int, names: Sequence[str], deadline_ms: int
    ) -> Steps[dict[str, dict[str, ConfigEntry]]]:
        found: dict[str, dict[str, ConfigEntry]] = {}
        errors: dict[str, KafkaError] = {}
        for target, some in _by_target(kind, names):
            request = DescribeConfigsRequest(
                [DescribeConfigsResource(kind, name) for name in some], include_documentation=True
            )
            response = yield from self.ask(
                request, target, deadline_ms, verdict=first_error(lambda r: r.results)
            )
            for row in response.results:
                if row.error_code:
                    errors[row.resource_name] = error_for(
                        row.error_code, named(row.resource_name, row.error_message)
                    )
                else:
                    found[row.resource_name] = {entry.name: _entry(entry) for entry in row.configs}
        if errors:
            raise_partly(errors, found)
        return found

    def alter_configs(
        self,
        kind: int,
        changes: Mapping[str, Mapping[str, object | None]],
        deadline_ms: int,
        validate_only: bool,
    ) -> Steps[None]:
        """Changes settings; a value of None takes a setting back to its default."""
        example = 'changes go by name, as in {"orders": {"retention.ms": 1000}}'
        wanted = {
            (known := arguments.text(name, "a name")): arguments.settings(settings, known, null=True)
            for name, settings in arguments.mapping(changes, example)
        }
        only = arguments.choice(validate_only, "validate_only")
        for target, some in _by_target(kind, list(wanted)):
            resources = [
                AlterConfigsResource(
                    kind,
                    name,
                    [
                        AlterableConfig(key, DELETE if value is None else SET, value)
                        for key, value in wanted[name].items()
                    ],
                )
                for name in some
            ]
            response = yield from self.ask(
                IncrementalAlterConfigsRequest(resources, only), target, deadline_ms,
                verdict=first_error(lambda r: r.responses),
            )  # fmt: skip
            outcome((row.resource_name, row, None) for row in response.responses)

    # --- records --------------------------------------------------------------------------------------

    def delete_records(self, before: ByPartition[int], deadline_ms: int) -> Steps[dict[TopicPartition, int]]:
        """Deletes everything before these offsets (-1: everything); returns the first offsets that are left."""
        offsets = arguments.offsets_to_keep(before)
        left: dict[TopicPartition, int] = {}
        errors: dict[TopicPartition, KafkaError] = {}
        waiting = dict(offsets)
        while waiting:
            cluster = yield from self.look_up({partition.topic for partition in waiting}, deadline_ms)
            for leader_id, some in _by_leader(cluster, waiting).items():
                rows = yield from self._delete_at(leader_id, some, deadline_ms)
                for partition, row in rows.items():
                    if row.error_code in MOVED and self._clock() < deadline_ms:
                        continue  # stays waiting
                    del waiting[partition]
                    if row.error_code:
                        errors[partition] = error_for(
                            row.error_code, f"{partition} up to {offsets[partition]}"
                        )
                    else:
                        left[partition] = row.low_watermark
            if waiting:
                yield Until(lambda: False, self._clock() + RETRY_MS)
        if errors:
            raise_partly(errors, left)
        return left

    def _delete_at(
        self, leader_id: int, before: Mapping[TopicPartition, int], deadline_ms: int
    ) -> Steps[dict[TopicPartition, DeleteRecordsPartitionResult]]:
        if leader_id == NO_NODE:
            missing = DeleteRecordsPartitionResult(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return dict.fromkeys(before, missing)
        topics: dict[str, DeleteRecordsTopic] = {}
        for (topic, index), offset in before.items():
            entry = topics.setdefault(topic, DeleteRecordsTopic(topic))
            entry.partitions.append(DeleteRecordsPartition(index, offset))
        request = DeleteRecordsRequest(list(topics.values()), self.timeout_ms(deadline_ms))
        response = yield from self.ask(request, leader_id, deadline_ms)
        return {TopicPartition(t.name, p.partition_index): p for t in response.topics for p in t.partitions}

    def offsets_for_times(
        self, times: Mapping[TopicPartition, int], deadline_ms: int
    ) -> Steps[dict[TopicPartition, OffsetAndTimestamp | None]]:
        """Looks up offsets by time.

        A partition whose offset does not come in time is an error of its own; the others are in `PartlyFailed.results`.
        """
        found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        errors: dict[TopicPartition, KafkaError] = {}
        waiting, attempts = dict(times), 0
        while waiting:
            try:
                cluster = yield from self.look_up({partition.topic for partition in waiting}, deadline_ms)
            except TimedOut:
                if attempts == 0:
                    raise
                break
            answers = yield from self._ask_leaders(cluster, waiting, deadline_ms)
            attempts += 1
            for partition, (code, at, why) in answers.items():
                if code:
                    errors[partition] = error_for(code, f"{partition}: {why}")
                else:
                    found[partition] = at
                    errors.pop(partition, None)
                if code not in RETRIABLE:
                    del waiting[partition]
            if not waiting or not self.may_try_again(attempts, deadline_ms):
                break
            yield Until(lambda: False, min(deadline_ms, self._clock() + RETRY_MS))
        if errors:
            raise_partly(errors, found)
        return found

    def _ask_leaders(
        self, cluster: Cluster, times: Mapping[TopicPartition, int], deadline_ms: int
    ) -> Steps[dict[TopicPartition, tuple[ErrorCode, OffsetAndTimestamp | None, str]]]:
        """Asks all leaders at the same time; returns each partition's error or offset, and the error in words."""
        round_ms = min(deadline_ms, self._clock() + ROUND_MS)
        answers: dict[TopicPartition, tuple[ErrorCode, OffsetAndTimestamp | None, str]] = {}
        asked = []
        for leader_id, some in _by_leader(cluster, times).items():
            if leader_id != NO_NODE:
                request = list_offsets(some, {}, read_committed=False, timeout_ms=self.timeout_ms(round_ms))
                key = ListOffsetsRequest.API_KEY
                asked.append((some, self.begin(request, leader_id, round_ms, api_key=key, retries=0)))
                continue
            for partition in some:
                if cluster.partition(partition) is None:
                    code = cluster.errors.get(partition.topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                    answers[partition] = (code, None, "there is no such partition")
                else:
                    answers[partition] = (ErrorCode.LEADER_NOT_AVAILABLE, None, "it has no leader now")
        for some, operation in asked:
            try:
                response = yield from self.wait(operation, round_ms)
            except TimedOut as late:
                answers |= dict.fromkeys(some, (ErrorCode.REQUEST_TIMED_OUT, None, str(late)))
                continue
            except KafkaError as refused:
                answers |= dict.fromkeys(some, (refused.code, None, refused.message))
                continue
            for partition, (code, at) in listed_offsets(response, some).items():
                answers[partition] = (code, at, "its leader gives no offset")
        return answers

    def boundary_offsets(
        self, partitions: Iterable[TopicPartition], time: int, deadline_ms: int
    ) -> Steps[dict[TopicPartition, int]]:
        """Returns the first offsets or the end offsets, as `time` says."""
        try:
            found = yield from self.offsets_for_times(dict.fromkeys(partitions, time), deadline_ms)
        except PartlyFailed as partly:
            raise PartlyFailed(partly.errors, _numbers(partly.results)) from None
        return _numbers(found)

    # --- the cluster ----------------------------------------------------------------------------------

    def describe_cluster(self, deadline_ms: int) -> Steps[ClusterDescription]:
        cluster: Cluster = yield from self.look_up((), deadline_ms)
        nodes = tuple(node for _, node in sorted(cluster.nodes.items()))
        return ClusterDescription(cluster.cluster_id, cluster.nodes.get(cluster.controller_id), nodes)

    def describe_log_dirs(
        self, brokers: Sequence[int], deadline_ms: int
    ) -> Steps[dict[int, dict[str, LogDirDescription]]]:
        """Asks all brokers at the same time; those in `brokers`, or all that there are."""
        if not brokers:
            cluster: Cluster = yield from self.look_up((), deadline_ms)
            brokers = sorted(cluster.nodes)
        asked = [
            (node_id, self.begin(DescribeLogDirsRequest(None), node_id, deadline_ms)) for node_id in brokers
        ]
        found: dict[int, dict[str, LogDirDescription]] = {}
        errors: dict[Any, KafkaError] = {}
        for node_id, operation in asked:
            response = yield from self.wait(operation, deadline_ms)
            if response.error_code:
                errors[node_id] = error_for(response.error_code, f"directories of broker {node_id}")
                continue
            found[node_id] = {row.log_dir: _log_dir(row) for row in response.results if not row.error_code}
            errors |= {
                row.log_dir: error_for(row.error_code, f"{row.log_dir} of broker {node_id}")
                for row in response.results
                if row.error_code
            }
        if errors:
            raise_partly(errors, found)
        return found


def _log_dir(row: DescribeLogDirsResult) -> LogDirDescription:
    replicas = {
        TopicPartition(topic.name, each.partition_index): ReplicaInfo(
            each.partition_size, each.offset_lag, each.is_future_key
        )
        for topic in row.topics
        for each in topic.partitions
    }
    total, usable = (None if size < 0 else size for size in (row.total_bytes, row.usable_bytes))
    return LogDirDescription(replicas, total, usable)


def _numbers(found: Mapping[TopicPartition, OffsetAndTimestamp | None]) -> dict[TopicPartition, int]:
    return {partition: at.offset for partition, at in found.items() if at is not None}


def _creatable(topic: NewTopic) -> CreatableTopic:
    if not isinstance(topic, NewTopic):
        raise WrongArgument(f'a topic to make is a NewTopic("orders", 3), not {arguments.shown(topic)}')
    name = arguments.topic_name(topic.name)
    configs = [
        CreatableTopicConfig(key, value) for key, value in arguments.settings(topic.configs, name).items()
    ]
    if topic.assignments:
        example = f"the assignments of {name} are brokers by partition, as in {{0: (1, 2)}}"
        rows = [
            CreatableReplicaAssignment(
                arguments.whole_number(partition, f"a partition of {name}", 0, arguments.INT32),
                _brokers(brokers, name),
            )
            for partition, brokers in arguments.mapping(topic.assignments, example)
        ]
        return CreatableTopic(name, -1, -1, rows, configs)
    return CreatableTopic(
        name,
        arguments.whole_number(topic.partitions, f"the number of partitions of {name}", -1, arguments.INT32),
        arguments.whole_number(
            topic.replication_factor, f"the replication factor of {name}", -1, arguments.INT16
        ),
        [],
        configs,
    )


def _brokers(given: Iterable[int], topic: str) -> list[int]:
    what = f"the broker of a replica of {topic}"
    return [arguments.whole_number(one, what, 0, arguments.INT32) for one in arguments.iterable(given, what)]


def _not_described(name: str, code: ErrorCode) -> KafkaError:
    if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return error_for(code, f"not allowed to see topic {name}: this user needs DESCRIBE on it")
    return error_for(code, f"there is no topic {name}")


def _described(topic: TopicInfo) -> TopicDescription:
    partitions = tuple(
        PartitionDescription(index, info.leader_id, info.leader_epoch, info.replicas, info.isr)
        for index, info in sorted(topic.partitions.items())
    )
    return TopicDescription(topic.name, topic.topic_id.hex(), topic.is_internal, partitions)


def _entry(row: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        row.name,
        row.value,
        row.config_source in DEFAULT_SOURCES,
        row.read_only,
        row.is_sensitive,
        row.documentation or "",
        _SOURCES.get(row.config_source, "UNKNOWN"),
    )


def _by_leader(
    cluster: Cluster, before: Mapping[TopicPartition, int]
) -> dict[int, dict[TopicPartition, int]]:
    grouped: dict[int, dict[TopicPartition, int]] = {}
    for partition, offset in before.items():
        grouped.setdefault(cluster.leader_of(partition), {})[partition] = offset
    return grouped


def _by_target(kind: int, names: Sequence[str]) -> list[tuple[Target, Sequence[str]]]:
    """Says whom to ask: a broker about its own settings, any broker about all others."""
    if kind == BROKER:
        return [(int(name) if name else ANY_NODE, [name]) for name in names]
    return [(ANY_NODE, names)]
