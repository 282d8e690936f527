"""Reads the options of the source, by the names that Spark's Kafka connector gave them; case does not matter.

`read_source_options` checks all of them before anything is asked of a broker. An `OptionError` has the connector's own
text where that is clear, and always the name of the option.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

from kohort.client.config import CONSUMER, canonical_name, is_secret, read_config
from kohort.client.types import TopicPartition
from kohort.settings import SettingError, nearest
from kohort.spark.conditions import read_condition
from kohort.spark.formats.decoding import RecordDecoding
from kohort.spark.formats.format_options import (
    BINARY,
    READ_OPTIONS,
    RecordFormats,
    is_format_option,
    read_formats,
)
from kohort.spark.offsets import Offsets, from_json
from kohort.spark.option_table import SOURCE_OPTIONS
from kohort.spark.restriction import EVERYTHING, Restriction

LATEST_OFFSET = -1
EARLIEST_OFFSET = -2

ASSIGNORS = "partition.assignment.strategy"
# What the source decides, whatever a user's settings may say.
FIXED_SETTINGS = {
    "enable.auto.commit": "false",
    "auto.offset.reset": "earliest",
    "allow.auto.create.topics": "false",
}


class OptionError(SettingError):
    """An option that is unknown, wrong or contradicts another one; the text says which and what is right."""


# --- what they mean -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Subscribe:
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    pattern: str
    """Searched in topic names; `^…$` makes it fit the whole name."""


@dataclass(frozen=True, slots=True)
class Assign:
    partitions: tuple[TopicPartition, ...]


Strategy = Subscribe | SubscribePattern | Assign


class Edge(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """Every partition by its offset; LATEST_OFFSET and EARLIEST_OFFSET are allowed."""

    offsets: Offsets


@dataclass(frozen=True, slots=True)
class AtTimes:
    """The first record at or after a time, in milliseconds: one for all partitions, or each by its own."""

    common: int | None
    by_partition: Offsets = field(default_factory=dict)


OffsetSpec = Edge | AtOffsets | AtTimes
"""Where to start or to end, as the options say it."""


class GroupMode(Enum):
    NONE = "none"
    """No group is named: nobody joins, nothing is committed."""
    MEMBER = "member"
    ASSIGN = "assign"
    SHARED = "shared"


class CountFrom(Enum):
    """How records are counted that nobody reads."""

    HEADERS = "headers"
    OFFSETS = "offsets"


class KafkaSettings(dict[str, str]):
    """Settings of a Kafka client by name. Its repr hides secrets: it may get into an exception or a log."""

    def __repr__(self) -> str:
        shown = {name: "<hidden>" if is_secret(name) else value for name, value in self.items()}
        return f"KafkaSettings({shown!r})"


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """All options of the source, checked. They are pickled for executors."""

    strategy: Strategy
    starting: OffsetSpec
    ending: OffsetSpec = Edge.LATEST
    latest_without_match: bool = False
    """A starting time after the last record means the end of the log instead of an error."""
    kafka: dict[str, str] = field(default_factory=KafkaSettings)
    """The settings that were given with the prefix `kafka.`, without it."""
    group_mode: GroupMode = GroupMode.NONE
    group_id: str | None = None
    group_id_prefix: str = "spark-kafka-source"
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 15 * 60_000
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    fail_on_data_loss: bool = True
    fail_on_commit_error: bool = False
    include_headers: bool = False
    poll_timeout_ms: int = 3_000
    """How long to wait for records that should be there."""
    offset_retries: int = 3
    offset_retry_interval_ms: int = 1_000
    wanted: Restriction = EVERYTHING
    """The condition of the option `where`; in a batch also the filters that Spark has pushed."""
    timestamps_in_order: bool = False
    """The user says that no record has a smaller timestamp than one before it in its partition."""
    filter_pushdown: bool = False
    count_from: CountFrom | None = None
    """The rows are numbers of records instead of records."""
    formats: RecordFormats = BINARY
    decoding: RecordDecoding | None = None
    """How executors decode keys and values; planned when it is known which columns the query reads."""


_SPELLED = {name.lower(): name for name in SOURCE_OPTIONS}
_STRATEGIES = ("subscribe", "subscribepattern", "assign")

OFFSETS_EXAMPLE = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
TIMES_EXAMPLE = '{"topicA": {"0": 123456789, "1": 123456789}, "topicB": {"0": 123456789, "1": 123456789}}'
ASSIGN_EXAMPLE = '{"topicA":[0,1],"topicB":[0,1]}'

_NOT_SUPPORTED = {
    "enable.auto.commit": "",
    "interceptor.classes": "",
    "auto.offset.reset": (
        ". Instead set the source option 'startingoffsets' to 'earliest' or 'latest' to specify where to start. "
        "It holds for a query without a checkpoint, in partitions for which the group has committed nothing; "
        "from then on the checkpoint decides"
    ),
    "key.deserializer": (
        " as keys are deserialized as byte arrays with ByteArrayDeserializer. Use DataFrame operations to "
        "explicitly deserialize the keys."
    ),
    "value.deserializer": (
        " as values are deserialized as byte arrays with ByteArrayDeserializer. Use DataFrame operations to "
        "explicitly deserialize the values."
    ),
    "allow.auto.create.topics": ": reading creates no topics",
}


# --- reading them -------------------------------------------------------------------------------------


def read_source_options(given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Checks everything that can be checked without a broker; OptionError says what is wrong."""
    options = {name.lower(): value for name, value in given.items()}
    _check_names(options)
    strategy = _strategy(options)
    if streaming:
        _refuse_endings(options)
        for name in ("filterPushdown", "timestampsInOrder"):
            if boolean(options, name, False):
                raise OptionError(
                    f"{name} is for batches: Spark pushes no filters to streams; where chooses topics and partitions"
                )
    min_partitions = _number(options, "minPartitions", positive=True)
    max_records = _number(options, "maxRecordsPerPartition", positive=True, text="maxrecordsperpartition")
    kafka = kafka_settings(options, _NOT_SUPPORTED)
    if not kafka.get("bootstrap.servers", "").strip():
        raise OptionError("Option 'kafka.bootstrap.servers' must be specified for configuring Kafka consumer")
    starting = _offset_spec(options, "starting", Edge.LATEST if streaming else Edge.EARLIEST)
    ending = _offset_spec(options, "ending", Edge.LATEST)
    if not streaming:
        _check_batch(starting, ending)
    most, least = _limits(options)
    mode, group_id = _group(options, kafka)
    read = SourceOptions(
        strategy,
        starting,
        ending,
        _without_match(options),
        kafka,
        mode,
        group_id,
        options.get("groupidprefix") or "spark-kafka-source",
        most,
        least,
        duration_ms(options.get("maxtriggerdelay", "15m")),
        min_partitions,
        max_records,
        boolean(options, "failOnDataLoss", True),
        boolean(options, "failOnCommitError", False),
        boolean(options, "includeHeaders", False),
        3_000 if (wait := _number(options, "kafkaConsumer.pollTimeoutMs")) is None else wait,
        3 if (tries := _number(options, "fetchOffset.numRetries")) is None else tries,
        1_000 if (pause := _number(options, "fetchOffset.retryIntervalMs")) is None else pause,
        _where(options, streaming),
        boolean(options, "timestampsInOrder", False),
        boolean(options, "filterPushdown", False),
        _count(options, streaming),
        record_formats(options),
    )
    if read.count_from is CountFrom.OFFSETS and not read.wanted.times.is_everything:
        raise OptionError("count=offsets cannot go with a condition on timestamp: use count=headers")
    check_kafka_settings(kafka)
    return read


def _where(options: Mapping[str, str], streaming: bool) -> Restriction:
    text = options.get("where")
    if text is None:
        return EVERYTHING
    try:
        wanted = read_condition(text)
    except ValueError as error:
        raise OptionError(f"where: {error}") from None
    if streaming and not wanted.rows_only().is_everything:
        raise OptionError(
            "where: a stream chooses topics and partitions only; for offset and timestamp use the frame's own where()"
        )
    if (
        options.get("groupmode", "").strip().lower() == GroupMode.SHARED.value
        and not wanted.partitions.is_everything
    ):
        raise OptionError(
            "groupMode=shared cannot go with a condition on partition: the group gives the partitions, and nobody "
            "would read those that are excluded. Use groupMode=assign"
        )
    return wanted


def _count(options: Mapping[str, str], streaming: bool) -> CountFrom | None:
    value = options.get("count")
    if value is None:
        return None
    if value.strip().lower() not in (each.value for each in CountFrom):
        raise OptionError(f"count is headers or offsets, not '{value}'")
    if streaming:
        raise OptionError("count is for batches; a stream counts with the frame's own count()")
    return CountFrom(value.strip().lower())


def record_formats(given: Mapping[str, str]) -> RecordFormats:
    """The options of typed records; OptionError says what is wrong with them."""
    try:
        return read_formats({name.lower(): value for name, value in given.items()})
    except SettingError as error:
        raise OptionError(str(error)) from None


def named_topics(strategy: Strategy) -> tuple[str, ...]:
    """The topics that are named, which a pattern does not do."""
    if isinstance(strategy, Subscribe):
        return strategy.topics
    if isinstance(strategy, Assign):
        return tuple(dict.fromkeys(partition.topic for partition in strategy.partitions))
    return ()


def read_strategy(given: Mapping[str, str]) -> Strategy:
    """Which topics are read; OptionError if that is not said, or not once."""
    return _strategy({name.lower(): value for name, value in given.items()})


def kafka_settings(options: Mapping[str, str], refused: Mapping[str, str]) -> dict[str, str]:
    """The settings that were given with the prefix `kafka.`, without it; OptionError for those in `refused`."""
    settings = KafkaSettings()
    for option, value in options.items():
        if not option.startswith("kafka."):
            continue
        given = option.removeprefix("kafka.")
        if given in refused:
            raise OptionError(f"Kafka option '{given}' is not supported{refused[given]}")
        name = canonical_name(given)
        if settings.setdefault(name, value) != value:
            raise OptionError(f"{option} is given twice, by both of its names, with different values")
    return settings


def settings_without_group(kafka: Mapping[str, str]) -> dict[str, str]:
    """The settings of a session that is no member of a group: of workers, and of queries without a group."""
    own = ("group.id", "group.instance.id", ASSIGNORS)
    return KafkaSettings({name: value for name, value in kafka.items() if name not in own})


def check_kafka_settings(settings: Mapping[str, str]) -> None:
    """OptionError for an unknown setting or a wrong value, by the name that the user wrote."""
    assignors = settings.get(ASSIGNORS)
    try:
        if assignors is not None:
            from kohort.client.embedding import check_assignors

            check_assignors(assignors)
        read_config(CONSUMER, settings, {}, (ASSIGNORS,))
    except SettingError as error:
        text = f"kafka.{error}".replace("kafka.unknown setting ", "unknown option kafka.")
        raise OptionError(text.replace("did you mean ", "did you mean kafka.")) from None


def _check_names(options: Mapping[str, str]) -> None:
    for name in options:
        if name.startswith("kafka.") or name in _SPELLED or is_format_option(name, READ_OPTIONS):
            continue
        if name in CONSUMER.settings:
            raise OptionError(f"unknown option {name}: settings of Kafka are written as kafka.{name}")
        close = nearest(name, _SPELLED)
        for lower, spelled in _SPELLED.items():
            close = close.replace(f" {lower}?", f" {spelled}?")
        raise OptionError(f"unknown option {name} for the kohort source{close}")


def _strategy(options: Mapping[str, str]) -> Strategy:
    chosen = [name for name in _STRATEGIES if name in options]
    names = f"{', '.join(_STRATEGIES)}. See the docs for more details."
    if not chosen:
        raise OptionError(f"One of the following options must be specified for Kafka source: {names}")
    if len(chosen) > 1:
        raise OptionError(f"Only one of the following options can be specified for Kafka source: {names}")
    value = options[chosen[0]]
    if chosen[0] == "subscribe":
        topics = tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))
        if not topics:
            raise OptionError(
                f"No topics to subscribe to as specified value for option 'subscribe' is '{value}'"
            )
        return Subscribe(topics)
    if chosen[0] == "subscribepattern":
        return SubscribePattern(_pattern(value))
    return Assign(_assigned(value))


def _pattern(value: str) -> str:
    if not value.strip():
        raise OptionError(
            f"Pattern to subscribe is empty as specified value for option 'subscribePattern' is '{value}'"
        )
    try:
        re.compile(value)
    except re.error as error:
        raise OptionError(f"subscribePattern: '{value}' is no regular expression: {error}") from None
    return value


def _assigned(value: str) -> tuple[TopicPartition, ...]:
    if not value.strip().startswith("{"):
        raise OptionError(f"No topicpartitions to assign as specified value for option 'assign' is '{value}'")
    wrong = OptionError(f"Expected e.g. {ASSIGN_EXAMPLE}, got {value}")
    try:
        found = json.loads(value)
    except ValueError:
        raise wrong from None
    partitions: list[TopicPartition] = []
    for topic, numbers in found.items():
        if not isinstance(numbers, list):
            raise wrong
        for number in numbers:
            if isinstance(number, bool) or not isinstance(number, int) or number < 0:
                raise wrong
            partitions.append(TopicPartition(topic, number))
    if not partitions:
        raise OptionError(f"No topicpartitions to assign as specified value for option 'assign' is '{value}'")
    return tuple(sorted(set(partitions)))


def _refuse_endings(options: Mapping[str, str]) -> None:
    if "endingoffsets" in options:
        raise OptionError("ending offset not valid in streaming queries (endingOffsets)")
    for name in ("endingtimestamp", "endingoffsetsbytimestamp"):
        if name in options:
            raise OptionError(f"ending timestamp not valid in streaming queries ({_SPELLED[name]})")


def _offset_spec(options: Mapping[str, str], which: str, default: Edge) -> OffsetSpec:
    """Where to start or end. A time for all partitions wins over times by partition, and these over offsets."""
    time = options.get(f"{which}timestamp")
    if time is not None:
        try:
            return AtTimes(int(time))
        except ValueError:
            raise OptionError(f"{which}Timestamp: Expected a single long value, got {time}") from None
    times = options.get(f"{which}offsetsbytimestamp")
    if times is not None:
        return AtTimes(None, _offsets_json(times, TIMES_EXAMPLE))
    value = options.get(f"{which}offsets")
    if value is None:
        return default
    if value.strip().lower() in (Edge.EARLIEST.value, Edge.LATEST.value):
        return Edge(value.strip().lower())
    offsets = _offsets_json(value, OFFSETS_EXAMPLE)
    for partition, offset in offsets.items():
        if offset < EARLIEST_OFFSET:
            raise OptionError(
                f"{which}Offsets: {offset} for {partition} is no offset; -1 is latest, -2 is earliest"
            )
    return AtOffsets(offsets)


def _offsets_json(text: str, example: str) -> Offsets:
    try:
        return from_json(text)
    except ValueError:
        raise OptionError(f"Expected e.g. {example}, got {text}") from None


def _check_batch(starting: OffsetSpec, ending: OffsetSpec) -> None:
    if starting is Edge.LATEST:
        raise OptionError("starting offset can't be latest for batch queries on Kafka")
    if ending is Edge.EARLIEST:
        raise OptionError("ending offset can't be earliest for batch queries on Kafka")
    for partition, offset in starting.offsets.items() if isinstance(starting, AtOffsets) else ():
        if offset == LATEST_OFFSET:
            raise OptionError(f"startingOffsets for {partition} can't be latest for batch queries on Kafka")
    for partition, offset in ending.offsets.items() if isinstance(ending, AtOffsets) else ():
        if offset == EARLIEST_OFFSET:
            raise OptionError(f"ending offset for {partition} can't be earliest for batch queries on Kafka")


def _without_match(options: Mapping[str, str]) -> bool:
    value = options.get("startingoffsetsbytimestampstrategy", "error")
    if value.lower() not in ("error", "latest"):
        raise OptionError(
            f"startingOffsetsByTimestampStrategy is error or latest: No value found for '{value.upper()}'"
        )
    return value.lower() == "latest"


def _limits(options: Mapping[str, str]) -> tuple[int | None, int | None]:
    most = _number(options, "maxOffsetsPerTrigger", positive=True)
    least = _number(options, "minOffsetsPerTrigger", positive=True)
    if most is not None and least is not None and least > most:
        raise OptionError(
            f"The value of minOffsetPerTrigger({least}) is higher than the maxOffsetsPerTrigger({most})."
        )
    return most, least


def _group(options: Mapping[str, str], kafka: Mapping[str, str]) -> tuple[GroupMode, str | None]:
    group_id, mode = kafka.get("group.id"), _group_mode(options, kafka.get("group.id"))
    if mode is GroupMode.SHARED and "assign" in options:
        raise OptionError(
            "groupMode=shared cannot go with assign: the group gives the partitions. Use subscribe or groupMode=assign"
        )
    if mode is not GroupMode.SHARED and ASSIGNORS in kafka:
        raise OptionError(
            "kafka.partition.assignment.strategy means something with groupMode=shared only: without it the query "
            "reads all partitions. Leave it out, or set groupMode=shared"
        )
    return mode, group_id


def _group_mode(options: Mapping[str, str], group_id: str | None) -> GroupMode:
    named = options.get("groupmode")
    if named is None:
        return GroupMode.NONE if group_id is None else GroupMode.MEMBER
    modes = {mode.value: mode for mode in GroupMode if mode is not GroupMode.NONE}
    mode = modes.get(named.strip().lower())
    if mode is None:
        raise OptionError(f"groupMode is member, assign or shared, not '{named}'")
    if group_id is None:
        raise OptionError(f"groupMode={mode.value} needs kafka.group.id: name the group")
    return mode


# --- values -------------------------------------------------------------------------------------------

T = TypeVar("T")


def _number(
    options: Mapping[str, str], name: str, *, positive: bool = False, text: str | None = None
) -> int | None:
    value = _convert(options, name, int)
    if value is not None and value < (1 if positive else 0):
        raise OptionError(f"{text or name} must be positive" if positive else f"{name} must not be negative")
    return value


def boolean(options: Mapping[str, str], name: str, default: bool) -> bool:
    """The value of an option that is true or false, in any case; `options` has its names in small letters."""
    value = _convert(options, name, lambda text: {"true": True, "false": False}[text.lower()])
    return default if value is None else value


def _convert(options: Mapping[str, str], name: str, convert: Callable[[str], T]) -> T | None:
    text = options.get(name.lower())
    if text is None:
        return None
    try:
        return convert(text.strip())
    except (ValueError, KeyError):
        raise OptionError(f'{name}: For input string: "{text}"') from None


_UNITS_MS: dict[str, float] = {
    "us": 0.001, "ms": 1, "": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000,
}  # fmt: skip


def duration_ms(text: str) -> int:
    """The milliseconds of a duration as Spark's settings have it: 15m, 10s, 500ms, 500."""
    found = re.fullmatch(r"(-?\d+)\s*([a-z]*)", text.strip().lower())
    if found is None or found[2] not in _UNITS_MS or int(found[1]) < 0:
        raise OptionError(
            f"maxTriggerDelay: Failed to parse time string: {text}; write it as 15m, 10s or 500ms"
        )
    return int(int(found[1]) * _UNITS_MS[found[2]])
