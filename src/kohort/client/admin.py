"""The blocking admin client: topics, settings, records, groups and offsets, the cluster, its security."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from secrets import token_bytes
from types import TracebackType
from typing import TYPE_CHECKING, Unpack

from kohort.client.admin_types import (
    Acl,
    AclFilter,
    ClientQuotaEntity,
    ClientQuotaFilter,
    ClusterDescription,
    ConfigEntry,
    GroupDescription,
    GroupListing,
    LogDirDescription,
    NewTopic,
    ScramCredentialInfo,
    SharePartitionOffset,
    TopicDescription,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kohort.client.administer.calls import REASON, AdminCalls
from kohort.client.config import ADMIN, SECURITY_OBJECTS, read_config
from kohort.client.core.requests import Requests
from kohort.client.core.steps import Steps, T
from kohort.client.errors import ClosedClient
from kohort.client.io.driving import deadline_after, run_steps
from kohort.client.io.engine import Engine
from kohort.client.io.measured import MeasuredClient
from kohort.client.io.tls import security_for
from kohort.client.types import ByPartition, OffsetAndMetadata, OffsetAndTimestamp, Partitions, TopicPartition

if TYPE_CHECKING:
    from kohort.client.keywords import AdminKeywords


class Admin(MeasuredClient):
    """Makes, describes, changes and deletes what a cluster has. For any number of threads.

    with Admin({"bootstrap.servers": "127.0.0.1:9092"}) as admin:
        admin.create_topic("orders", partitions=3)
        for partition, at in admin.group_offsets("billing").items():
            print(partition, at.offset)

    What the broker refuses is raised as KafkaError; if it refuses some of several things, as PartlyFailed, whose
    `errors` and `results` say which. All timeouts are in seconds; without one `default.api.timeout.ms` holds.
    """

    _engine: Engine

    def __init__(
        self, settings: Mapping[str, object] | None = None, /, **keywords: Unpack[AdminKeywords]
    ) -> None:
        self._config, objects = read_config(ADMIN, settings, keywords, SECURITY_OBJECTS)
        self._engine = engine = Engine(self._config, security=security_for(self._config, objects))
        requests = Requests(engine.out, self._config, engine.metadata, engine.jitter)
        engine.add(requests)
        self._calls = AdminCalls(requests, engine.metadata, engine.now_ms, lambda: engine.network.last_error)
        self._closed = False

    def __enter__(self) -> Admin:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections; calls of other threads that still wait raise ClosedClient."""
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
        """Makes a topic; -1 leaves a count to the broker's defaults."""
        topic = NewTopic(name, partitions, replication_factor, configs or {})
        self.create_topics([topic], timeout=timeout)

    def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False, timeout: float | None = None
    ) -> None:
        """Makes several topics at once; `validate_only` makes none and raises what would be wrong."""
        self._run(self._calls.create_topics(topics, validate_only, self._deadline(timeout)))

    def delete_topics(self, *topics: str, timeout: float | None = None) -> None:
        """Deletes topics with all their records."""
        self._run(self._calls.delete_topics(topics, self._deadline(timeout)))

    def list_topics(self, *, include_internal: bool = False, timeout: float | None = None) -> list[str]:
        """Returns the names of all topics, sorted."""
        return self._run(self._calls.list_topics(include_internal, self._deadline(timeout)))

    def describe_topics(self, *topics: str, timeout: float | None = None) -> dict[str, TopicDescription]:
        """Returns partitions, leaders and replicas; of all topics if none are named."""
        return self._run(self._calls.describe_topics(topics, self._deadline(timeout)))

    def create_partitions(
        self,
        counts: Mapping[str, int],
        *,
        assignments: Mapping[str, list[list[int]]] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Gives topics more partitions: `admin.create_partitions({"orders": 6})` makes it six in all."""
        self._run(self._calls.create_partitions(counts, assignments, self._deadline(timeout)))

    # --- settings -------------------------------------------------------------------------------------

    def topic_configs(self, *topics: str, timeout: float | None = None) -> dict[str, dict[str, ConfigEntry]]:
        """Returns the settings of topics, by their names."""
        return self._run(self._calls.topic_configs(topics, self._deadline(timeout)))

    def broker_configs(
        self, *brokers: int, timeout: float | None = None
    ) -> dict[str, dict[str, ConfigEntry]]:
        """Returns the settings of brokers, by their ids."""
        return self._run(self._calls.broker_configs(brokers, self._deadline(timeout)))

    def alter_topic_configs(
        self,
        changes: Mapping[str, Mapping[str, object | None]],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Changes only what is named: `{"orders": {"retention.ms": 1000}}`; None takes one back to its default."""
        self._run(self._calls.alter_topic_configs(changes, validate_only, self._deadline(timeout)))

    def alter_broker_configs(
        self,
        changes: Mapping[int, Mapping[str, object | None]],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Changes settings of brokers, by their ids, in the same way."""
        self._run(self._calls.alter_broker_configs(changes, validate_only, self._deadline(timeout)))

    def group_configs(self, *groups: str, timeout: float | None = None) -> dict[str, dict[str, ConfigEntry]]:
        """Returns the settings of groups (of KIP-848, or share groups), by their ids; a group need not exist yet."""
        return self._run(self._calls.group_configs(groups, self._deadline(timeout)))

    def alter_group_configs(
        self,
        changes: Mapping[str, Mapping[str, object | None]],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Changes settings of groups: `{"mails": {"share.auto.offset.reset": "earliest"}}`; None takes one back."""
        self._run(self._calls.alter_group_configs(changes, validate_only, self._deadline(timeout)))

    # --- records --------------------------------------------------------------------------------------

    def delete_records(
        self, before: ByPartition[int], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Deletes what lies before these offsets (-1: all there is); returns the first offsets that are left."""
        return self._run(self._calls.delete_records(before, self._deadline(timeout)))

    def beginning_offsets(
        self, *partitions: Partitions, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Returns the first offsets that these partitions have."""
        return self._run(self._calls.beginning_offsets(partitions, self._deadline(timeout)))

    def end_offsets(self, *partitions: Partitions, timeout: float | None = None) -> dict[TopicPartition, int]:
        """Returns the offsets at which the next records of these partitions will be written."""
        return self._run(self._calls.end_offsets(partitions, self._deadline(timeout)))

    def offsets_for_times(
        self, times: ByPartition[int], *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Finds the first record of each partition at or after a time (ms since 1970); None if there is none."""
        return self._run(self._calls.offsets_for_times(times, self._deadline(timeout)))

    # --- groups ---------------------------------------------------------------------------------------

    def list_groups(self, *states: str, timeout: float | None = None) -> list[GroupListing]:
        """Lists all groups, or those in these states: `admin.list_groups("Stable")`."""
        return self._run(self._calls.list_groups(states, self._deadline(timeout)))

    def describe_groups(self, *groups: str, timeout: float | None = None) -> dict[str, GroupDescription]:
        """Returns state, assignor and members of groups of any type; a group that does not exist is Dead."""
        return self._run(self._calls.describe_groups(groups, self._deadline(timeout)))

    def delete_groups(self, *groups: str, timeout: float | None = None) -> None:
        """Deletes groups that have no members, with all their offsets."""
        self._run(self._calls.delete_groups(groups, self._deadline(timeout)))

    def remove_members(
        self,
        group_id: str,
        *members: str,
        instances: Iterable[str] = (),
        reason: str = REASON,
        timeout: float | None = None,
    ) -> None:
        """Removes members by member id or by group.instance.id; all of them if none are named."""
        steps = self._calls.remove_members(group_id, members, instances, reason, self._deadline(timeout))
        self._run(steps)

    def group_offsets(
        self,
        group_id: str,
        *partitions: Partitions,
        require_stable: bool = True,
        timeout: float | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns what the group has committed for these partitions, or for all.

        Where a transaction that is still open would move an offset, it is waited for, unless `require_stable=False`.
        """
        steps = self._calls.group_offsets(group_id, partitions, require_stable, self._deadline(timeout))
        return self._run(steps)

    def offsets_of_groups(
        self, *groups: str, require_stable: bool = True, timeout: float | None = None
    ) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
        """Returns all that each of these groups has committed: many groups with few requests."""
        steps = self._calls.offsets_of_groups(groups, require_stable, self._deadline(timeout))
        return self._run(steps)

    def alter_group_offsets(
        self,
        group_id: str,
        offsets: ByPartition[int | OffsetAndMetadata],
        *,
        timeout: float | None = None,
    ) -> None:
        """Sets committed offsets of a group that has no members now."""
        self._run(self._calls.alter_group_offsets(group_id, offsets, self._deadline(timeout)))

    def delete_group_offsets(
        self, group_id: str, *partitions: Partitions, timeout: float | None = None
    ) -> None:
        """Forgets committed offsets of topics that the group is not subscribed to."""
        self._run(self._calls.delete_group_offsets(group_id, partitions, self._deadline(timeout)))

    def share_group_offsets(
        self, group_id: str, *partitions: Partitions, timeout: float | None = None
    ) -> dict[TopicPartition, SharePartitionOffset]:
        """Returns where a share group stands in these partitions, or in all: first record not done, and lag."""
        steps = self._calls.share_group_offsets(group_id, partitions, self._deadline(timeout))
        return self._run(steps)

    def alter_share_group_offsets(
        self, group_id: str, offsets: ByPartition[int], *, timeout: float | None = None
    ) -> None:
        """Sets where a share group that has no members now goes on; what it had in flight is forgotten."""
        self._run(self._calls.alter_share_group_offsets(group_id, offsets, self._deadline(timeout)))

    def delete_share_group_offsets(self, group_id: str, *topics: str, timeout: float | None = None) -> None:
        """Forgets all that a share group without members knows of these topics."""
        self._run(self._calls.delete_share_group_offsets(group_id, topics, self._deadline(timeout)))

    # --- the cluster ----------------------------------------------------------------------------------

    def describe_cluster(self, *, timeout: float | None = None) -> ClusterDescription:
        """Returns the cluster's id, its nodes, and which of them is the controller."""
        return self._run(self._calls.describe_cluster(self._deadline(timeout)))

    def describe_log_dirs(
        self, *brokers: int, timeout: float | None = None
    ) -> dict[int, dict[str, LogDirDescription]]:
        """Returns how much disk partitions take, by broker and directory; of all brokers if none are named."""
        return self._run(self._calls.describe_log_dirs(brokers, self._deadline(timeout)))

    # --- security -------------------------------------------------------------------------------------

    def create_acls(self, acls: Iterable[Acl], *, timeout: float | None = None) -> None:
        """Makes ACLs; one that is there already is no error."""
        self._run(self._calls.create_acls(acls, self._deadline(timeout)))

    def describe_acls(self, wanted: AclFilter | None = None, *, timeout: float | None = None) -> list[Acl]:
        """Returns the ACLs that a filter finds, or all, sorted."""
        return self._run(self._calls.describe_acls(wanted, self._deadline(timeout)))

    def delete_acls(self, *filters: AclFilter, timeout: float | None = None) -> dict[AclFilter, list[Acl]]:
        """Deletes all ACLs that the filters find, and returns them by filter."""
        return self._run(self._calls.delete_acls(filters, self._deadline(timeout)))

    def describe_user_scram_credentials(
        self, *users: str, timeout: float | None = None
    ) -> dict[str, tuple[ScramCredentialInfo, ...]]:
        """Returns the mechanisms and iterations by which users have passwords; of all users if none are named."""
        return self._run(self._calls.describe_user_scram_credentials(users, self._deadline(timeout)))

    def alter_user_scram_credentials(
        self,
        changes: Iterable[UserScramCredentialUpsertion | UserScramCredentialDeletion],
        *,
        timeout: float | None = None,
    ) -> None:
        """Sets and deletes passwords of users. A user may be named once in a call, as Kafka has it.

        The password does not leave this process: what is sent is salted with random bytes.
        """
        steps = self._calls.alter_user_scram_credentials(changes, token_bytes, self._deadline(timeout))
        self._run(steps)

    def describe_client_quotas(
        self, wanted: ClientQuotaFilter | None = None, *, timeout: float | None = None
    ) -> dict[ClientQuotaEntity, dict[str, float]]:
        """Returns the quotas that a filter finds, or all, by entity."""
        return self._run(self._calls.describe_client_quotas(wanted, self._deadline(timeout)))

    def alter_client_quotas(
        self,
        changes: Mapping[ClientQuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Changes what is named: `{ClientQuotaEntity(user="alice"): {"producer_byte_rate": 1e6}}`; None removes."""
        self._run(self._calls.alter_client_quotas(changes, validate_only, self._deadline(timeout)))

    # --- inside ---------------------------------------------------------------------------------------

    def _deadline(self, timeout: float | None) -> int:
        return deadline_after(self._engine, self._config, timeout)

    def _run(self, steps: Steps[T]) -> T:
        if self._closed:
            raise ClosedClient("this admin client is closed")
        return run_steps(self._engine, steps)
