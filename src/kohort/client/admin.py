"""The admin client: topics, settings, records, groups and their offsets, the cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType

from kohort.client import arguments
from kohort.client.admin_groups import GroupCalls
from kohort.client.admin_topics import BROKER, TOPIC, TopicCalls
from kohort.client.admin_types import (
    ClusterDescription,
    ConfigEntry,
    GroupDescription,
    GroupListing,
    NewTopic,
    TopicDescription,
)
from kohort.client.config import ADMIN, SECURITY_OBJECTS, read_config
from kohort.client.driving import deadline_after, run_steps
from kohort.client.engine import Engine
from kohort.client.errors import ClosedClient, WrongArgument
from kohort.client.requests import Requests
from kohort.client.steps import Steps, T
from kohort.client.tls import security_for
from kohort.client.types import ByPartition, OffsetAndMetadata, Partitions, TopicPartition


def _names(given: tuple[str, ...]) -> tuple[str, ...]:
    for name in given:
        if not isinstance(name, str):
            raise WrongArgument(
                f'names are given one by one, as in ("a", "b"), not as {arguments.shown(name)}'
            )
    return tuple(arguments.text(name, "a name") for name in given)


class Admin:
    """Makes, describes, changes and deletes what a cluster has. For any number of threads.

    with Admin({"bootstrap.servers": "127.0.0.1:9092"}) as admin:
        admin.create_topic("orders", partitions=3)
        for partition, at in admin.group_offsets("billing").items():
            print(partition, at.offset)

    What the broker refuses is raised as KafkaError; if it refuses some of several things, as PartlyFailed, whose
    `errors` and `results` say which. All timeouts are in seconds; without one `default.api.timeout.ms` holds.
    """

    def __init__(self, settings: Mapping[str, object] | None = None, /, **keywords: object) -> None:
        self._config, objects = read_config(ADMIN, settings, keywords, SECURITY_OBJECTS)
        self._engine = engine = Engine(self._config, security=security_for(self._config, objects))
        metadata = engine.metadata
        requests = Requests(engine.out, self._config, metadata, engine.jitter)
        engine.add(requests, "requests")
        self._topics = TopicCalls(requests, metadata, self._engine.now_ms)
        self._groups = GroupCalls(requests, metadata, self._engine.now_ms)
        self._topics.obstacle = self._groups.obstacle = lambda: engine.network.last_error
        self._closed = False

    def __enter__(self) -> Admin:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._engine.close()

    # --- topics ---------------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, object] | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """-1 leaves a count to the broker's defaults."""
        self.create_topics([NewTopic(name, partitions, replication_factor, configs or {})], timeout=timeout)

    def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False, timeout: float | None = None
    ) -> None:
        self._run(self._topics.create_topics(topics, self._deadline(timeout), validate_only))

    def delete_topics(self, *topics: str, timeout: float | None = None) -> None:
        self._run(self._topics.delete_topics(_names(topics), self._deadline(timeout)))

    def list_topics(self, *, include_internal: bool = False, timeout: float | None = None) -> list[str]:
        described = self._topics.describe_topics(None, self._deadline(timeout), include_internal)
        return sorted(self._run(described))

    def describe_topics(self, *topics: str, timeout: float | None = None) -> dict[str, TopicDescription]:
        """Partitions, leaders and replicas; of all topics if none are named."""
        return self._run(self._topics.describe_topics(_names(topics) or None, self._deadline(timeout), True))

    def create_partitions(
        self,
        counts: Mapping[str, int],
        *,
        assignments: Mapping[str, list[list[int]]] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Gives topics more partitions: `admin.create_partitions({"orders": 6})` makes it six in all."""
        self._run(self._topics.create_partitions(counts, assignments or {}, self._deadline(timeout)))

    # --- settings -------------------------------------------------------------------------------------

    def topic_configs(self, *topics: str, timeout: float | None = None) -> dict[str, dict[str, ConfigEntry]]:
        return self._run(self._topics.describe_configs(TOPIC, _names(topics), self._deadline(timeout)))

    def broker_configs(
        self, *brokers: int, timeout: float | None = None
    ) -> dict[str, dict[str, ConfigEntry]]:
        names = [
            str(arguments.whole_number(broker, "a broker's id", 0, arguments.INT32)) for broker in brokers
        ]
        return self._run(self._topics.describe_configs(BROKER, names, self._deadline(timeout)))

    def alter_topic_configs(
        self,
        changes: Mapping[str, Mapping[str, object | None]],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Changes only what is named: `{"orders": {"retention.ms": 1000}}`; None takes one back to its default."""
        self._run(self._topics.alter_configs(TOPIC, changes, self._deadline(timeout), validate_only))

    def alter_broker_configs(
        self,
        changes: Mapping[int, Mapping[str, object | None]],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> None:
        by_name = {
            str(arguments.whole_number(broker, "a broker's id", 0, arguments.INT32)): settings
            for broker, settings in arguments.mapping(changes, "changes go by broker, as in {1: {...}}")
        }
        self._run(self._topics.alter_configs(BROKER, by_name, self._deadline(timeout), validate_only))

    # --- records --------------------------------------------------------------------------------------

    def delete_records(
        self, before: ByPartition[int], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Deletes what lies before these offsets (-1: all there is); returns the first offsets that are left."""
        return self._run(self._topics.delete_records(before, self._deadline(timeout)))

    # --- groups ---------------------------------------------------------------------------------------

    def list_groups(self, *states: str, timeout: float | None = None) -> list[GroupListing]:
        """All groups, or those in these states: `admin.list_groups("Stable")`."""
        return self._run(self._groups.list_groups(_names(states), self._deadline(timeout)))

    def describe_groups(self, *groups: str, timeout: float | None = None) -> dict[str, GroupDescription]:
        """State, assignor and members; a group that does not exist is Dead."""
        return self._run(self._groups.describe_groups(_names(groups), self._deadline(timeout)))

    def delete_groups(self, *groups: str, timeout: float | None = None) -> None:
        """Groups without members, with all their offsets."""
        self._run(self._groups.delete_groups(_names(groups), self._deadline(timeout)))

    def remove_members(
        self,
        group_id: str,
        *members: str,
        instances: Iterable[str] = (),
        reason: str = "removed by an administrator",
        timeout: float | None = None,
    ) -> None:
        """These members by id or by group.instance.id; all of them if none are named."""
        self._run(
            self._groups.remove_members(group_id, _names(members), instances, reason, self._deadline(timeout))
        )

    def group_offsets(
        self, group_id: str, *partitions: Partitions, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What the group has committed: for these partitions, or for all."""
        wanted = arguments.partitions(partitions) if partitions else None
        return self._run(self._groups.group_offsets(group_id, wanted, self._deadline(timeout)))

    def alter_group_offsets(
        self,
        group_id: str,
        offsets: ByPartition[int | OffsetAndMetadata],
        *,
        timeout: float | None = None,
    ) -> None:
        """Sets committed offsets of a group that has no members now."""
        self._run(
            self._groups.alter_group_offsets(group_id, arguments.offsets(offsets), self._deadline(timeout))
        )

    def delete_group_offsets(
        self, group_id: str, *partitions: Partitions, timeout: float | None = None
    ) -> None:
        """Forgets committed offsets of topics that the group is not subscribed to."""
        wanted = arguments.partitions(partitions)
        self._run(self._groups.delete_group_offsets(group_id, wanted, self._deadline(timeout)))

    # --- the cluster ----------------------------------------------------------------------------------

    def describe_cluster(self, *, timeout: float | None = None) -> ClusterDescription:
        return self._run(self._topics.describe_cluster(self._deadline(timeout)))

    # --- inside ---------------------------------------------------------------------------------------

    def _deadline(self, timeout: float | None) -> int:
        return deadline_after(self._engine, self._config, timeout)

    def _run(self, steps: Steps[T]) -> T:
        if self._closed:
            raise ClosedClient("this admin client is closed")
        return run_steps(self._engine, steps)
