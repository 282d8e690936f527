"""Handles DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources.

Both ways to alter compute the settings that a resource has of its own after the change. They are checked as a whole,
durable before the answer, and in force on open partitions with it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from kohort.broker import names
from kohort.broker.broker import Broker
from kohort.broker.call import Call
from kohort.broker.client_metrics_settings import (
    CLIENT_METRICS_SETTINGS,
    check_subscription,
    describe_subscription,
)
from kohort.broker.config import BROKER_SETTINGS, BrokerConfig
from kohort.broker.group_settings import GROUP_SETTINGS, check_group
from kohort.broker.kafka_settings import is_inert, why_inert
from kohort.log.config import TOPIC_SETTINGS, TopicConfig
from kohort.log.registry import BrokerConfigSet, ClientMetricsSet, GroupConfigSet, TopicConfigSet
from kohort.log.store import Store
from kohort.security.acls import AclOperation, AclResource
from kohort.settings import Described, Kind, Setting, SettingError, as_text
from kohort.wire.errors import ErrorCode, KafkaError
from kohort.wire.messages import alter_configs as legacy
from kohort.wire.messages import incremental_alter_configs as incremental
from kohort.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from kohort.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from kohort.broker.security.tls import TlsStores

log = logging.getLogger("kohort.broker")

MOST_BYTES_OF_A_VALUE = 2**15 - 1
_LOGGER_LEVEL = 6  # the source of the settings of loggers in DescribeConfigs
_LEVELS = {"WARNING": "WARN", "CRITICAL": "FATAL", "NOTSET": "TRACE"}


class ResourceType(IntEnum):
    """Kafka's ConfigResource.Type."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


_TYPES = frozenset(ResourceType)


class AlterConfigOp(IntEnum):
    """Kafka's AlterConfigOp.OpType."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def restore(config: BrokerConfig, store: Store) -> BrokerConfig:
    """Returns the settings of a starting node with the dynamic ones that the store has, and puts them into force."""
    own, of_all = store.broker_configs(config.node_id), store.broker_configs(None)
    if own or of_all:
        warnings = config.warnings
        config = config.with_dynamic(own, of_all)
        config = replace(config, warnings=tuple(dict.fromkeys((*warnings, *config.warnings))))
        store.set_defaults(config.topic_defaults)
    return config


# --- DescribeConfigs -------------------------------------------------------------------------------------------


def describe_configs(broker: Broker, call: Call) -> DescribeConfigsResponse:
    request: DescribeConfigsRequest = call.request
    strange = next((r.resource_type for r in request.resources if r.resource_type not in _TYPES), None)
    results = []
    for resource in request.resources:
        result = DescribeConfigsResult(
            resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        try:
            if strange is not None:  # as in Kafka all of the request is refused
                raise _invalid(f"Unexpected resource type {strange}")
            _check_allowed(
                broker, call, AclOperation.DESCRIBE_CONFIGS, resource.resource_type, resource.resource_name
            )
            result.configs = _describe(broker, request, resource)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    return DescribeConfigsResponse(results=results)


def _check_allowed(broker: Broker, call: Call, operation: AclOperation, kind: int, name: str) -> None:
    """Raises KafkaError if the caller may not do this to the settings of a resource."""
    if kind == ResourceType.TOPIC:
        if not broker.may(call, operation, AclResource.TOPIC, name):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
    elif kind == ResourceType.GROUP:
        if not broker.may(call, operation, AclResource.GROUP, name):
            raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed.")
    elif not broker.may_in_cluster(call, operation):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")


def _describe(
    broker: Broker, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> list[DescribeConfigsResourceResult]:
    name = resource.resource_name
    match resource.resource_type:
        case ResourceType.TOPIC:
            rows = _describe_topic(broker, name)
        case ResourceType.BROKER:
            rows = (
                broker.config.describe() if _is_this_node(broker, name) else broker.config.describe_defaults()
            )
        case ResourceType.BROKER_LOGGER:
            if not name:
                raise _invalid("Broker id must not be empty")
            _is_this_node(broker, name)
            return _loggers(resource.configuration_keys)
        case ResourceType.CLIENT_METRICS:
            if not name:
                raise _invalid("Client metrics subscription name must not be empty")
            rows = describe_subscription(broker.store.client_metrics.get(name, {}))
        case _:
            if not name:
                raise _invalid("Group name must not be empty")
            rows = broker.config.describe_group(broker.store.group_configs.get(name, {}))
    keys = set(resource.configuration_keys or ())  # an empty list asks for all, as null does
    return [_entry(row, request) for row in rows if not keys or row.name in keys]


def _describe_topic(broker: Broker, name: str) -> list[Described]:
    wrong = names.what_is_wrong(name)
    if wrong is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, wrong)
    topic = broker.store.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return broker.config.describe_topic(topic.overrides)


def _is_this_node(broker: Broker, name: str) -> bool:
    """Returns True for this node, False for all brokers (no name); KafkaError for any other node."""
    if not name:
        return False
    digits = name.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()):
        raise _invalid(f"Node id must be an integer, but it is: {name}")
    if int(name) != broker.node_id:
        raise _invalid(
            f"Unexpected broker id, expected {broker.node_id} or empty string, but received {name}"
        )
    return True


def _entry(row: Described, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = row.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=row.name,
        value=row.value,
        read_only=row.read_only,
        config_source=row.source,
        is_sensitive=row.sensitive,
        synonyms=[
            DescribeConfigsSynonym(synonym.name, None if row.sensitive else synonym.value, synonym.source)
            for synonym in synonyms
        ],
        config_type=row.config_type,
        documentation=row.documentation if request.include_documentation else None,
    )


def _loggers(keys: list[str] | None) -> list[DescribeConfigsResourceResult]:
    """Returns the levels of the loggers, by Kafka's names; the command line sets them."""
    levels = {"root": logging.getLogger(), "kohort": logging.getLogger("kohort")}
    return [
        DescribeConfigsResourceResult(
            name=name,
            value=_LEVELS.get(level := logging.getLevelName(logger.getEffectiveLevel()), level),
            read_only=True,
            config_source=_LOGGER_LEVEL,
            documentation=None,
        )
        for name, logger in levels.items()
        if not keys or name in keys
    ]


# --- AlterConfigs and IncrementalAlterConfigs --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Change:
    """A change of one resource: `after(before, settings)` returns its own settings, or raises KafkaError."""

    resource_type: int
    name: str
    after: Callable[[Mapping[str, str], Mapping[str, Setting]], dict[str, str]]
    check: Callable[[], None]
    """Raises KafkaError if the names in it are wrong, whatever the resource is."""
    named: frozenset[str] = frozenset()
    """The settings that the request names, changed or not."""


@dataclass(frozen=True, slots=True)
class _Planned:
    entry: TopicConfigSet | BrokerConfigSet | GroupConfigSet | ClientMetricsSet
    config: BrokerConfig | None = None  # what the broker's settings will be
    stores: Mapping[str, TlsStores] = field(
        default_factory=dict
    )  # keys and certificates of listeners, loaded anew
    without_effect: tuple[str, ...] = ()  # names among the changed ones


_Resource: TypeAlias = legacy.AlterConfigsResource | incremental.AlterConfigsResource
_Outcome: TypeAlias = KafkaError | None


async def alter_configs(broker: Broker, call: Call) -> legacy.AlterConfigsResponse:
    request: legacy.AlterConfigsRequest = call.request
    changes = [
        _Change(
            r.resource_type, r.resource_name, _replacing(r), partial(_check_names, r, _nulls(r)), _names_in(r)
        )
        for r in request.resources
    ]
    outcomes = await _alter(broker, call, changes, validate_only=request.validate_only)
    answers = [
        legacy.AlterConfigsResourceResponse(*_code_and_text(outcome), change.resource_type, change.name)
        for change, outcome in zip(changes, outcomes, strict=True)
    ]
    return legacy.AlterConfigsResponse(responses=answers)


async def incremental_alter_configs(
    broker: Broker, call: Call
) -> incremental.IncrementalAlterConfigsResponse:
    request: incremental.IncrementalAlterConfigsRequest = call.request
    changes = [
        _Change(
            r.resource_type,
            r.resource_name,
            _operating(r),
            partial(_check_names, r, _nulls_set(r)),
            _names_in(r),
        )
        for r in request.resources
    ]
    outcomes = await _alter(broker, call, changes, validate_only=request.validate_only)
    answers = [
        incremental.AlterConfigsResourceResponse(*_code_and_text(outcome), change.resource_type, change.name)
        for change, outcome in zip(changes, outcomes, strict=True)
    ]
    return incremental.IncrementalAlterConfigsResponse(responses=answers)


def _code_and_text(outcome: _Outcome) -> tuple[ErrorCode, str | None]:
    return (ErrorCode.NONE, None) if outcome is None else (outcome.code, outcome.message or None)


async def _alter(
    broker: Broker, call: Call, changes: Sequence[_Change], *, validate_only: bool
) -> list[_Outcome]:
    """Makes the changes, and returns what is wrong with each. A resource changes as a whole or not at all."""
    times = Counter((change.resource_type, change.name) for change in changes)
    outcomes: list[_Outcome] = []
    planned: list[_Planned] = []
    at: list[int] = []  # which change each plan is for
    async with broker.changes:
        config = broker.config
        for number, change in enumerate(changes):
            try:
                if times[change.resource_type, change.name] > 1:
                    raise _invalid("Each resource must appear at most once.")
                plan = _plan_if_allowed(broker, call, config, change)
            except KafkaError as error:
                outcomes.append(error)
                continue
            config = plan.config or config
            for name in plan.without_effect:
                log.warning("%s", why_inert(name))
            outcomes.append(None)
            planned.append(plan)
            at.append(number)
        if validate_only:
            return outcomes
        failed = await broker.commit([plan.entry for plan in planned])
        if failed is None and config is not broker.config:
            broker.config = config
            broker.store.set_defaults(config.topic_defaults)
        if failed is None and broker.guard is not None:
            for plan in planned:
                broker.guard.renew(plan.stores)
    if failed is not None:
        for number in at:
            outcomes[number] = failed
    return outcomes


def _plan_if_allowed(broker: Broker, call: Call, config: BrokerConfig, change: _Change) -> _Planned:
    """Plans a change that the caller may make.

    As in Kafka, names and a broker's values are checked before that; but nobody who may not change them makes this node
    read files of certificates.
    """
    change.check()
    kind = change.resource_type
    if kind not in _TYPES:
        raise _invalid(f"Unknown resource type {kind}")
    reads_files = any(name.startswith("listener.name.") for name in change.named)
    if kind == ResourceType.BROKER and not reads_files:
        plan = _plan(broker, config, change)
        _check_allowed(broker, call, AclOperation.ALTER_CONFIGS, kind, change.name)
        return plan
    _check_allowed(broker, call, AclOperation.ALTER_CONFIGS, kind, change.name)
    return _plan(broker, config, change)


def _plan(broker: Broker, config: BrokerConfig, change: _Change) -> _Planned:
    match change.resource_type:
        case ResourceType.TOPIC:
            return _plan_topic(broker, change)
        case ResourceType.BROKER:
            return _plan_broker(broker, config, change)
        case ResourceType.GROUP:
            return _plan_group(broker, config, change)
        case ResourceType.CLIENT_METRICS:
            before = broker.store.client_metrics.get(change.name, {})
            after = change.after(before, CLIENT_METRICS_SETTINGS.settings)
            check_subscription(change.name, after)
            return _Planned(ClientMetricsSet(change.name, after))
        case ResourceType.BROKER_LOGGER:
            raise _invalid("Settings of the type BROKER_LOGGER cannot be altered on this broker")
    raise AssertionError(f"resource type {change.resource_type}")


def _plan_topic(broker: Broker, change: _Change) -> _Planned:
    """Plans a change of a topic. Names and values are checked before the topic is looked up, as in Kafka."""
    topic = broker.store.topics.get(change.name)
    after = change.after(topic.overrides if topic else {}, TOPIC_SETTINGS.settings)
    if not change.name:
        raise _invalid("Default topic resources are not allowed.")
    wrong = names.what_is_wrong(change.name)
    if wrong is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, wrong)
    try:
        TopicConfig.parse(after, broker.config.topic_defaults)
    except SettingError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
    if topic is None:
        text = f"The topic '{change.name}' does not exist."
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
    return _Planned(TopicConfigSet(topic.topic_id, after))


def _plan_group(broker: Broker, config: BrokerConfig, change: _Change) -> _Planned:
    """Plans a change of a group. It need not exist: settings can be made before the first member comes."""
    after = change.after(broker.store.group_configs.get(change.name, {}), GROUP_SETTINGS.settings)
    if not change.name:
        raise _invalid("Default group resources are not allowed.")
    try:
        check_group(config, after)
    except SettingError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
    return _Planned(GroupConfigSet(change.name, after))


def _plan_broker(broker: Broker, config: BrokerConfig, change: _Change) -> _Planned:
    """Plans a change of a broker's settings. If they are wrong the error is INVALID_REQUEST, as in Kafka."""
    this_node = _is_this_node(broker, change.name)
    before = config.own_dynamic_values if this_node else config.dynamic_defaults
    after = change.after(before, BROKER_SETTINGS.settings)
    changed = {n: after.get(n) for n in {**before, **after} if before.get(n) != after.get(n)}
    try:
        new = config.with_changes(changed, for_all_brokers=not this_node)
        for topic in broker.store.topics.values():  # a default must not contradict what a topic sets
            TopicConfig.parse(topic.overrides, new.topic_defaults)
        stores = _load_stores(broker, new, change.named | changed.keys(), this_node=this_node)
    except SettingError as error:
        raise _invalid(str(error)) from error
    values = new.own_dynamic_values if this_node else new.dynamic_defaults
    entry = BrokerConfigSet(broker.node_id if this_node else None, dict(values))
    return _Planned(entry, new, stores, tuple(filter(is_inert, changed)))


def _load_stores(
    broker: Broker, new: BrokerConfig, named: AbstractSet[str], *, this_node: bool
) -> Mapping[str, TlsStores]:
    """Loads the keys and certificates of listeners that a change names: a file that was named before is read again."""
    of_listeners = sorted(name for name in named if name.startswith("listener.name."))
    if not of_listeners:
        return {}
    from kohort.broker.security.listener_settings import check_dynamic

    check_dynamic(of_listeners, for_all_brokers=not this_node)
    if broker.guard is None:
        raise SettingError(f"{of_listeners[0]}: this broker has no listener with TLS")
    stores = broker.guard.renewed(new.dynamic_listener_values, of_listeners)
    for name in of_listeners:
        if name.endswith((".ssl.keystore.key", ".ssl.key.password")) and name in new.dynamic_listener_values:
            log.warning("%s is kept in clear in the data directory; ssl.keystore.location keeps it out", name)
    return stores


def _names_in(resource: _Resource) -> frozenset[str]:
    return frozenset(config.name for config in resource.configs)


def _replacing(resource: legacy.AlterConfigsResource) -> Callable[..., dict[str, str]]:
    """Returns the change of AlterConfigs: what is not named goes back to its default."""

    def after(before: Mapping[str, str], settings: Mapping[str, Setting]) -> dict[str, str]:
        values = {config.name: config.value or "" for config in resource.configs}
        return _checked_sizes(values)

    return after


def _operating(resource: incremental.AlterConfigsResource) -> Callable[..., dict[str, str]]:
    """Returns the change of IncrementalAlterConfigs: what is not named stays."""

    def after(before: Mapping[str, str], settings: Mapping[str, Setting]) -> dict[str, str]:
        values = dict(before)
        for config in resource.configs:
            _operate(values, settings.get(config.name), config)
        return _checked_sizes(values)

    return after


def _operate(values: dict[str, str], row: Setting | None, config: incremental.AlterableConfig) -> None:
    text = config.value or ""
    match config.config_operation:
        case AlterConfigOp.SET:
            values[config.name] = text
        case AlterConfigOp.DELETE:
            values.pop(config.name, None)
        case AlterConfigOp.APPEND | AlterConfigOp.SUBTRACT:
            if row is None or row.kind is not Kind.LIST:
                word = AlterConfigOp(config.config_operation).name
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG,
                    f"Can't {word} to key {config.name} because its type is not LIST.",
                )
            items = _items(values.get(config.name, as_text(row.default) or ""))
            given = _items(text)
            if config.config_operation == AlterConfigOp.APPEND:
                after = {**items, **given}
            else:
                after = {item: None for item in items if item not in given}
            values[config.name] = ",".join(after)
        case _:
            raise _invalid(f"Unknown operations type {config.config_operation}")


def _items(text: str) -> dict[str, None]:
    """Returns the parts of a list, each once and in order."""
    return {item.strip(): None for item in text.split(",") if item.strip()}


def _nulls(resource: legacy.AlterConfigsResource) -> list[str]:
    return [config.name for config in resource.configs if config.value is None]


def _nulls_set(resource: incremental.AlterConfigsResource) -> list[str]:
    return [
        config.name
        for config in resource.configs
        if config.value is None and config.config_operation != AlterConfigOp.DELETE
    ]


def _check_names(resource: _Resource, nulls: list[str]) -> None:
    given = [config.name for config in resource.configs]
    if len(set(given)) != len(given):
        raise _invalid("Error due to duplicate config keys")
    if nulls:
        raise _invalid(f"Null value not supported for : {', '.join(nulls)}")


def _checked_sizes(values: dict[str, str]) -> dict[str, str]:
    if any(len(text.encode()) > MOST_BYTES_OF_A_VALUE for text in values.values()):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            "The configuration value cannot be added because it exceeds the maximum value size of "
            f"{MOST_BYTES_OF_A_VALUE} bytes.",
        )
    return values


def _invalid(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, text)


# --- ListConfigResources -----------------------------------------------------------------------------------------


def list_config_resources(broker: Broker, call: Call) -> ListConfigResourcesResponse:
    request: ListConfigResourcesRequest = call.request
    if not broker.may_in_cluster(call, AclOperation.DESCRIBE_CONFIGS):
        return ListConfigResourcesResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    served = _TYPES if call.version >= 1 else {ResourceType.CLIENT_METRICS}
    wanted = set(request.resource_types) or served
    if not wanted <= served:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    found: list[ConfigResource] = []
    if ResourceType.GROUP in wanted:
        found += [ConfigResource(group_id, ResourceType.GROUP) for group_id in broker.store.group_configs]
    if ResourceType.CLIENT_METRICS in wanted:
        found += [ConfigResource(name, ResourceType.CLIENT_METRICS) for name in broker.store.client_metrics]
    found += [
        ConfigResource(str(broker.node_id), kind)
        for kind in (ResourceType.BROKER_LOGGER, ResourceType.BROKER)
        if kind in wanted
    ]
    if ResourceType.TOPIC in wanted:
        found += [
            ConfigResource(name, ResourceType.TOPIC)
            for name in broker.store.topics
            if name not in names.HIDDEN
        ]
    return ListConfigResourcesResponse(config_resources=found)
