"""Plans how the committed offsets of a group are reset: what each partition has, what it will get, what that means.

A target says where to: `earliest`, `latest`, `current`, `offset:42`, `shift:-10`, `datetime:2026-01-31T12:00:00Z`,
`duration:PT1H`, or explicit offsets, as from a file. The rules are those of Kafka's tool: an offset that is outside
of the log moves to its nearer end, a time after the last record means the end of the log, `current` means the end
where nothing is committed, a datetime without a zone is in UTC.

`plan_reset` is a pure function; `look_up_reset` asks a cluster for what it needs, and `execute_reset` carries the
plan out.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

from kohort.client.admin import Admin
from kohort.client.errors import PartlyFailed, WrongArgument
from kohort.client.types import TopicPartition
from kohort.insight.samples import SHARE
from kohort.wire.errors import ErrorCode, KafkaError

_LONGEST_OFFSET = (1 << 63) - 1
_DURATION = re.compile(
    r"P(?:(?P<weeks>\d+)W)?(?:(?P<days>\d+)D)?"
    r"(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?",
    re.IGNORECASE,
)
_UNIT_MS = {"weeks": 604_800_000, "days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}
_TARGETS = (
    "earliest, latest, current, offset:42, shift:-10, datetime:2026-01-31T12:00:00Z or duration:PT1H30M"
)


class ResetKind(StrEnum):
    """Where a reset goes to."""

    EARLIEST = "earliest"
    LATEST = "latest"
    CURRENT = "current"
    OFFSET = "offset"
    SHIFT = "shift"
    DATETIME = "datetime"
    DURATION = "duration"
    EXPLICIT = "explicit"


@dataclass(frozen=True, slots=True)
class ResetTarget:
    """Where a reset goes to, with its number: an offset, a shift, a time or a duration in milliseconds."""

    kind: ResetKind
    number: int = 0
    explicit: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The offsets by partition, if the kind is `explicit`."""

    def time_ms(self, now_ms: int) -> int | None:
        """Returns the time that the target means; None if it means none."""
        if self.kind is ResetKind.DATETIME:
            return self.number
        if self.kind is ResetKind.DURATION:
            return max(now_ms - self.number, 0)
        return None


@dataclass(frozen=True, slots=True)
class PartitionReset:
    """What a reset does to one partition."""

    topic: str
    partition: int
    old: int | None
    """What is committed now; None: nothing."""
    new: int
    begin: int
    end: int
    note: str = ""
    """Why the new offset is not the one that was asked for; empty if it is."""

    @property
    def skipped(self) -> int:
        """How many offsets the group will not read because of the reset."""
        return max(0, min(self.new, self.end) - max(self._from, self.begin))

    @property
    def again(self) -> int:
        """How many offsets the group will read a second time because of the reset."""
        return max(0, min(self._from, self.end) - max(self.new, self.begin))

    @property
    def changes(self) -> bool:
        """Says whether the committed offset becomes another one."""
        return self.old != self.new

    @property
    def _from(self) -> int:
        # Where nothing is committed, nobody knows what was read: nothing counts as skipped or read again.
        return self.new if self.old is None else self.old


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """What a reset does to a group, by partition; nothing has been done yet."""

    group_id: str
    partitions: tuple[PartitionReset, ...]

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        """The offsets to commit."""
        return {TopicPartition(each.topic, each.partition): each.new for each in self.partitions}

    @property
    def skipped(self) -> int:
        """How many offsets are skipped in all."""
        return sum(each.skipped for each in self.partitions)

    @property
    def again(self) -> int:
        """How many offsets are read again in all."""
        return sum(each.again for each in self.partitions)


# --- what a user writes ---------------------------------------------------------------------------------


def parse_target(text: str) -> ResetTarget:
    """Reads a target; WrongArgument, with examples, if it is none."""
    name, colon, rest = text.strip().partition(":")
    kind = name.strip().lower()
    if kind in (ResetKind.EARLIEST, ResetKind.LATEST, ResetKind.CURRENT) and not colon:
        return ResetTarget(ResetKind(kind))
    if kind == ResetKind.OFFSET:
        return ResetTarget(ResetKind.OFFSET, _number(rest, "an offset", 0))
    if kind == ResetKind.SHIFT:
        return ResetTarget(ResetKind.SHIFT, _number(rest, "a shift", -_LONGEST_OFFSET))
    if kind == ResetKind.DATETIME:
        return ResetTarget(ResetKind.DATETIME, parse_datetime(rest))
    if kind == ResetKind.DURATION:
        return ResetTarget(ResetKind.DURATION, parse_duration(rest))
    raise WrongArgument(f"{text!r} says no place to reset to: write {_TARGETS}")


def parse_datetime(text: str) -> int:
    """Reads a datetime of ISO 8601 as milliseconds since 1970; without a zone it is in UTC, as in Kafka's tool."""
    try:
        moment = datetime.fromisoformat(text.strip())
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return int(moment.timestamp() * 1000)
    except (ValueError, OverflowError):
        raise WrongArgument(f"{text!r} is no datetime: write 2026-01-31T12:00:00Z or 2026-01-31") from None


def parse_duration(text: str) -> int:
    """Reads a duration of ISO 8601 as milliseconds: PT30S, PT1H30M, P7D, P1DT12H."""
    found = _DURATION.fullmatch(text.strip())
    given = {} if found is None else {unit: n for unit, n in found.groupdict().items() if n is not None}
    if not given or len(text) > 40:
        raise WrongArgument(f"{text!r} is no duration: write PT30S, PT15M, PT1H30M, P7D or P1DT12H")
    return int(sum(float(number) * _UNIT_MS[unit] for unit, number in given.items()))


def parse_topics(texts: Iterable[str]) -> dict[str, tuple[int, ...] | None]:
    """Reads topics as Kafka's tool takes them: `orders` is all its partitions, `orders:0,2` are these two."""
    chosen: dict[str, tuple[int, ...] | None] = {}
    for text in texts:
        topic, colon, rest = text.partition(":")
        if not topic.strip():
            raise WrongArgument(f"{text!r} names no topic: write orders, or orders:0,2 for some partitions")
        partitions = tuple(_number(each, "a partition", 0) for each in rest.split(",")) if colon else None
        before = chosen.get(topic.strip(), ())
        chosen[topic.strip()] = None if partitions is None or before is None else (*before, *partitions)
    return chosen


def read_csv(text: str) -> dict[str | None, dict[TopicPartition, int]]:
    """Reads a file of resets, as Kafka's tool writes them: topic,partition,offset, or with the group before these.

    The result is by group; None stands for lines without one.
    """
    found: dict[str | None, dict[TopicPartition, int]] = {}
    for number, row in enumerate(csv.reader(io.StringIO(text)), 1):
        cells = [cell.strip() for cell in row]
        if not any(cells):
            continue
        if len(cells) not in (3, 4):
            raise WrongArgument(
                f"line {number}: write topic,partition,offset or group,topic,partition,offset"
            )
        group_id = cells[0] if len(cells) == 4 else None
        try:
            at = TopicPartition(cells[-3], _number(cells[-2], "a partition", 0))
            found.setdefault(group_id, {})[at] = _number(cells[-1], "an offset", 0)
        except WrongArgument as wrong:
            raise WrongArgument(f"line {number}: {wrong}") from None
    if not found:
        raise WrongArgument("the file names no offset: write lines of topic,partition,offset")
    return found


def write_csv(plans: Collection[ResetPlan], *, names_groups: bool | None = None) -> str:
    """Writes plans as `read_csv` and Kafka's tool read them; the group is named if there are several, or if told to."""
    if names_groups is None:
        names_groups = len(plans) > 1
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for plan in plans:
        for each in plan.partitions:
            row: list[object] = [each.topic, each.partition, each.new]
            writer.writerow([plan.group_id, *row] if names_groups else row)
    return out.getvalue()


def _number(text: str, what: str, least: int) -> int:
    shown = text.strip()
    if not re.fullmatch(r"[+-]?\d{1,19}", shown, re.ASCII) or not least <= int(shown) <= _LONGEST_OFFSET:
        bound = f", {least} or more" if least >= 0 else ""
        raise WrongArgument(f"{shown!r} is not {what}: write a whole number{bound}")
    return int(shown)


# --- the plan -------------------------------------------------------------------------------------------


def plan_reset(
    group_id: str,
    target: ResetTarget,
    partitions: Collection[TopicPartition],
    *,
    committed: Mapping[TopicPartition, int],
    begins: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    by_time: Mapping[TopicPartition, int | None] | None = None,
) -> ResetPlan:
    """Says what each partition gets. `by_time` has the first offsets at or after the time of the target, None: none.

    WrongArgument if a shift has nothing to start from, or if explicit offsets do not name a partition.
    """
    rows = []
    for at in sorted(partitions):
        begin, end, old = begins[at], ends[at], committed.get(at)
        wanted, note = _wanted(target, at, old, begin, end, by_time or {})
        new = min(max(wanted, begin), end)
        if new != wanted:
            note = f"offset {wanted} is not in the log, which has {begin} to {end}"
        rows.append(PartitionReset(at.topic, at.partition, old, new, begin, end, note))
    return ResetPlan(group_id, tuple(rows))


def _wanted(
    target: ResetTarget,
    at: TopicPartition,
    old: int | None,
    begin: int,
    end: int,
    by_time: Mapping[TopicPartition, int | None],
) -> tuple[int, str]:
    kind = target.kind
    if kind is ResetKind.EARLIEST:
        return begin, ""
    if kind is ResetKind.LATEST:
        return end, ""
    if kind is ResetKind.OFFSET:
        return target.number, ""
    if kind is ResetKind.EXPLICIT:
        if at not in target.explicit:
            raise WrongArgument(f"no offset is named for {at}")
        return target.explicit[at], ""
    if kind is ResetKind.CURRENT:
        return (end, "nothing is committed: the end of the log") if old is None else (old, "")
    if kind is ResetKind.SHIFT:
        if old is None:
            raise WrongArgument(f"{at} cannot be shifted: the group has committed nothing there")
        return old + target.number, ""
    found = by_time.get(at)
    return (end, "no record is that young: the end of the log") if found is None else (found, "")


# --- with a cluster -------------------------------------------------------------------------------------


def look_up_reset(
    admin: Admin,
    group_id: str,
    target: ResetTarget,
    topics: Mapping[str, Collection[int] | None] | None,
    now_ms: int,
) -> ResetPlan:
    """Asks the cluster and plans. `topics` are those to reset, None: all that the group has committed.

    Of a topic that is mapped to None all partitions are reset. With explicit offsets it is their partitions.
    """
    is_share = admin.describe_groups(group_id)[group_id].group_type == SHARE
    if is_share:
        committed = {at: each.start_offset for at, each in admin.share_group_offsets(group_id).items()}
    else:
        offsets = admin.group_offsets(group_id, require_stable=False)
        committed = {at: each.offset for at, each in offsets.items()}
    if target.kind is ResetKind.EXPLICIT:
        chosen = set(target.explicit)
    elif topics is None:
        chosen = set(committed)
    else:
        chosen = _partitions_of(admin, topics)
    if not chosen:
        raise WrongArgument(f"{group_id} has committed nothing: name the topics to set offsets for")
    begins, ends = _known(admin.beginning_offsets, chosen), _known(admin.end_offsets, chosen)
    by_time: dict[TopicPartition, int | None] = {}
    time_ms = target.time_ms(now_ms)
    if time_ms is not None:
        found = admin.offsets_for_times(dict.fromkeys(chosen, time_ms))
        by_time = {at: None if each is None else each.offset for at, each in found.items()}
    return plan_reset(
        group_id, target, chosen, committed=committed, begins=begins, ends=ends, by_time=by_time
    )


def execute_reset(admin: Admin, plan: ResetPlan) -> None:
    """Commits what the plan says, or moves the start of a share group. KafkaError if the group has members."""
    described = admin.describe_groups(plan.group_id)[plan.group_id]
    if described.members:
        raise KafkaError(
            ErrorCode.NON_EMPTY_GROUP,
            f"{plan.group_id} is {described.state} with {len(described.members)} members, who would overwrite the "
            "offsets: stop them, then reset again",
        )
    if described.group_type == SHARE:
        admin.alter_share_group_offsets(plan.group_id, plan.offsets)
    else:
        admin.alter_group_offsets(plan.group_id, plan.offsets)


def _partitions_of(admin: Admin, topics: Mapping[str, Collection[int] | None]) -> set[TopicPartition]:
    described = admin.describe_topics(*topics)
    chosen = set()
    for topic, wanted in topics.items():
        there = {each.partition for each in described[topic].partitions}
        if missing := sorted(set(wanted or ()) - there):
            raise WrongArgument(f"{topic} has no partition {missing[0]}: it has {len(there)}, from 0 on")
        chosen |= {TopicPartition(topic, each) for each in (there if wanted is None else wanted)}
    return chosen


def _known(
    ask: Callable[..., dict[TopicPartition, int]], partitions: set[TopicPartition]
) -> dict[TopicPartition, int]:
    """Returns the offsets of all partitions, or raises what is wrong with the first that has none."""
    try:
        return ask(partitions)
    except PartlyFailed as partly:
        raise next(iter(partly.errors.values())) from None
