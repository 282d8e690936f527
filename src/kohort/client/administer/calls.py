"""Checks the arguments of each call of Admin and AsyncAdmin, and returns the steps of the call.

The steps themselves are in topics.py, groups.py and security.py. Arguments are checked when the call is made, before
the first step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

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
)
from kohort.client.administer import security
from kohort.client.administer.groups import GroupCalls
from kohort.client.administer.security import ScramChange, SecurityCalls
from kohort.client.administer.share_groups import ShareGroupCalls
from kohort.client.administer.topics import BROKER, GROUP, TOPIC, TopicCalls
from kohort.client.core import arguments
from kohort.client.core.metadata import Metadata
from kohort.client.core.offset_reset import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from kohort.client.core.requests import Requests
from kohort.client.core.steps import Steps
from kohort.client.errors import WrongArgument
from kohort.client.types import (
    ByPartition,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    Partitions,
    TopicPartition,
)

REASON = "removed by an administrator"


def _names(given: tuple[str, ...]) -> tuple[str, ...]:
    for name in given:
        if not isinstance(name, str):
            raise WrongArgument(
                f'names are given one by one, as in ("a", "b"), not as {arguments.shown(name)}'
            )
    return tuple(arguments.text(name, "a name") for name in given)


def _broker(given: object) -> str:
    return str(arguments.whole_number(given, "a broker's id", 0, arguments.INT32))


class AdminCalls:
    """The calls of one Admin or AsyncAdmin; each returns its steps."""

    def __init__(
        self, requests: Requests, metadata: Metadata, clock: Callable[[], int], obstacle: Callable[[], str]
    ) -> None:
        self._topics = TopicCalls(requests, metadata, clock, obstacle)
        self._groups = GroupCalls(requests, metadata, clock, obstacle)
        self._share_groups = ShareGroupCalls(requests, metadata, clock, obstacle)
        self._security = SecurityCalls(requests, metadata, clock, obstacle)

    # --- topics ---------------------------------------------------------------------------------------

    def create_topics(self, topics: Iterable[NewTopic], validate_only: bool, deadline_ms: int) -> Steps[None]:
        return self._topics.create_topics(topics, deadline_ms, validate_only)

    def delete_topics(self, topics: tuple[str, ...], deadline_ms: int) -> Steps[None]:
        return self._topics.delete_topics(_names(topics), deadline_ms)

    def list_topics(self, include_internal: bool, deadline_ms: int) -> Steps[list[str]]:
        described = yield from self._topics.describe_topics(None, deadline_ms, include_internal)
        return sorted(described)

    def describe_topics(
        self, topics: tuple[str, ...], deadline_ms: int
    ) -> Steps[dict[str, TopicDescription]]:
        return self._topics.describe_topics(_names(topics) or None, deadline_ms, True)

    def create_partitions(
        self,
        counts: Mapping[str, int],
        assignments: Mapping[str, list[list[int]]] | None,
        deadline_ms: int,
    ) -> Steps[None]:
        return self._topics.create_partitions(counts, assignments or {}, deadline_ms)

    # --- settings -------------------------------------------------------------------------------------

    def topic_configs(
        self, topics: tuple[str, ...], deadline_ms: int
    ) -> Steps[dict[str, dict[str, ConfigEntry]]]:
        return self._topics.describe_configs(TOPIC, _names(topics), deadline_ms)

    def broker_configs(
        self, brokers: tuple[int, ...], deadline_ms: int
    ) -> Steps[dict[str, dict[str, ConfigEntry]]]:
        return self._topics.describe_configs(BROKER, [_broker(broker) for broker in brokers], deadline_ms)

    def alter_topic_configs(
        self, changes: Mapping[str, Mapping[str, object | None]], validate_only: bool, deadline_ms: int
    ) -> Steps[None]:
        return self._topics.alter_configs(TOPIC, changes, deadline_ms, validate_only)

    def group_configs(
        self, groups: tuple[str, ...], deadline_ms: int
    ) -> Steps[dict[str, dict[str, ConfigEntry]]]:
        return self._topics.describe_configs(GROUP, _names(groups), deadline_ms)

    def alter_group_configs(
        self, changes: Mapping[str, Mapping[str, object | None]], validate_only: bool, deadline_ms: int
    ) -> Steps[None]:
        return self._topics.alter_configs(GROUP, changes, deadline_ms, validate_only)

    def alter_broker_configs(
        self, changes: Mapping[int, Mapping[str, object | None]], validate_only: bool, deadline_ms: int
    ) -> Steps[None]:
        by_name = {
            _broker(broker): settings
            for broker, settings in arguments.mapping(changes, "changes go by broker, as in {1: {...}}")
        }
        return self._topics.alter_configs(BROKER, by_name, deadline_ms, validate_only)

    # --- records --------------------------------------------------------------------------------------

    def delete_records(self, before: ByPartition[int], deadline_ms: int) -> Steps[dict[TopicPartition, int]]:
        return self._topics.delete_records(before, deadline_ms)

    def beginning_offsets(
        self, partitions: tuple[Partitions, ...], deadline_ms: int
    ) -> Steps[dict[TopicPartition, int]]:
        wanted = arguments.partitions(partitions)
        return self._topics.boundary_offsets(wanted, EARLIEST_TIMESTAMP, deadline_ms)

    def end_offsets(
        self, partitions: tuple[Partitions, ...], deadline_ms: int
    ) -> Steps[dict[TopicPartition, int]]:
        wanted = arguments.partitions(partitions)
        return self._topics.boundary_offsets(wanted, LATEST_TIMESTAMP, deadline_ms)

    def offsets_for_times(
        self, times: ByPartition[int], deadline_ms: int
    ) -> Steps[dict[TopicPartition, OffsetAndTimestamp | None]]:
        return self._topics.offsets_for_times(arguments.times(times), deadline_ms)

    # --- groups ---------------------------------------------------------------------------------------

    def list_groups(self, states: tuple[str, ...], deadline_ms: int) -> Steps[list[GroupListing]]:
        return self._groups.list_groups(_names(states), deadline_ms)

    def describe_groups(
        self, groups: tuple[str, ...], deadline_ms: int
    ) -> Steps[dict[str, GroupDescription]]:
        return self._groups.describe_groups(_names(groups), deadline_ms)

    def delete_groups(self, groups: tuple[str, ...], deadline_ms: int) -> Steps[None]:
        return self._groups.delete_groups(_names(groups), deadline_ms)

    def remove_members(
        self,
        group_id: str,
        members: tuple[str, ...],
        instances: Iterable[str],
        reason: str,
        deadline_ms: int,
    ) -> Steps[None]:
        return self._groups.remove_members(group_id, _names(members), instances, reason, deadline_ms)

    def group_offsets(
        self,
        group_id: str,
        partitions: tuple[Partitions, ...],
        require_stable: bool,
        deadline_ms: int,
    ) -> Steps[dict[TopicPartition, OffsetAndMetadata]]:
        wanted = arguments.partitions(partitions) if partitions else None
        return self._groups.group_offsets(group_id, wanted, deadline_ms, require_stable)

    def offsets_of_groups(
        self, groups: tuple[str, ...], require_stable: bool, deadline_ms: int
    ) -> Steps[dict[str, dict[TopicPartition, OffsetAndMetadata]]]:
        return self._groups.offsets_of_groups(_names(groups), deadline_ms, require_stable)

    def alter_group_offsets(
        self, group_id: str, offsets: ByPartition[int | OffsetAndMetadata], deadline_ms: int
    ) -> Steps[None]:
        return self._groups.alter_group_offsets(group_id, arguments.offsets(offsets), deadline_ms)

    def delete_group_offsets(
        self, group_id: str, partitions: tuple[Partitions, ...], deadline_ms: int
    ) -> Steps[None]:
        wanted = arguments.partitions(partitions)
        return self._groups.delete_group_offsets(group_id, wanted, deadline_ms)

    def share_group_offsets(
        self, group_id: str, partitions: tuple[Partitions, ...], deadline_ms: int
    ) -> Steps[dict[TopicPartition, SharePartitionOffset]]:
        wanted = arguments.partitions(partitions) if partitions else None
        return self._share_groups.share_group_offsets(group_id, wanted, deadline_ms)

    def alter_share_group_offsets(
        self, group_id: str, offsets: ByPartition[int], deadline_ms: int
    ) -> Steps[None]:
        wanted = {partition: at.offset for partition, at in arguments.offsets(offsets).items()}
        return self._share_groups.alter_share_group_offsets(group_id, wanted, deadline_ms)

    def delete_share_group_offsets(
        self, group_id: str, topics: tuple[str, ...], deadline_ms: int
    ) -> Steps[None]:
        return self._share_groups.delete_share_group_offsets(group_id, _names(topics), deadline_ms)

    # --- the cluster ----------------------------------------------------------------------------------

    def describe_cluster(self, deadline_ms: int) -> Steps[ClusterDescription]:
        return self._topics.describe_cluster(deadline_ms)

    def describe_log_dirs(
        self, brokers: tuple[int, ...], deadline_ms: int
    ) -> Steps[dict[int, dict[str, LogDirDescription]]]:
        return self._topics.describe_log_dirs([int(_broker(broker)) for broker in brokers], deadline_ms)

    # --- security -------------------------------------------------------------------------------------

    def create_acls(self, acls: Iterable[Acl], deadline_ms: int) -> Steps[None]:
        return self._security.create_acls(security.checked_acls(acls), deadline_ms)

    def describe_acls(self, wanted: AclFilter | None, deadline_ms: int) -> Steps[list[Acl]]:
        (checked,) = security.checked_filters([AclFilter() if wanted is None else wanted])
        return self._security.describe_acls(checked, deadline_ms)

    def delete_acls(
        self, filters: tuple[AclFilter, ...], deadline_ms: int
    ) -> Steps[dict[AclFilter, list[Acl]]]:
        return self._security.delete_acls(security.checked_filters(filters), deadline_ms)

    def describe_user_scram_credentials(
        self, users: tuple[str, ...], deadline_ms: int
    ) -> Steps[dict[str, tuple[ScramCredentialInfo, ...]]]:
        return self._security.describe_user_scram_credentials(_names(users), deadline_ms)

    def alter_user_scram_credentials(
        self, changes: Iterable[ScramChange], random_bytes: Callable[[int], bytes], deadline_ms: int
    ) -> Steps[None]:
        checked = security.checked_scram_changes(changes)
        salts = [random_bytes(security.SALT_BYTES) for _ in checked]
        return self._security.alter_user_scram_credentials(checked, salts, deadline_ms)

    def describe_client_quotas(
        self, wanted: ClientQuotaFilter | None, deadline_ms: int
    ) -> Steps[dict[ClientQuotaEntity, dict[str, float]]]:
        checked = security.checked_quota_filter(ClientQuotaFilter() if wanted is None else wanted)
        return self._security.describe_client_quotas(checked, deadline_ms)

    def alter_client_quotas(
        self,
        changes: Mapping[ClientQuotaEntity, Mapping[str, float | None]],
        validate_only: bool,
        deadline_ms: int,
    ) -> Steps[None]:
        only = arguments.choice(validate_only, "validate_only")
        return self._security.alter_client_quotas(security.checked_quota_changes(changes), only, deadline_ms)
