"""`kohort groups why` and `watch`: show the rebalances of a group, from the topic that Kohort's coordinator writes."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping

from kohort.broker.groups.history import group_of
from kohort.broker.names import HISTORY_TOPIC
from kohort.cli.frame.cluster import ClusterOptions
from kohort.cli.frame.output import short_ids
from kohort.cli.groups.missing import no_group
from kohort.client.admin import Admin
from kohort.client.consumer import Consumer
from kohort.client.errors import TimedOut
from kohort.client.records import Record
from kohort.client.types import TopicPartition
from kohort.coordinator.history import RUNNING, Rebalance
from kohort.coordinator.settings import partition_for
from kohort.wire.errors import ErrorCode, KafkaError

POLL_S = 1.0


def rebalances_of(bootstrap: str, group_id: str) -> list[Rebalance]:
    """The rebalances that `kohort groups why` shows, oldest first."""
    settings = ClusterOptions(bootstrap).settings()
    with Admin(settings) as admin:
        partition = _history_partition(admin, group_id)
        return [] if partition is None else _rebalances(admin, settings, group_id, partition)


def why(admin: Admin, settings: Mapping[str, str], group_id: str, as_json: bool) -> int:
    described = admin.describe_groups(group_id)[group_id]
    partition = _history_partition(admin, group_id)
    rebalances = [] if partition is None else _rebalances(admin, settings, group_id, partition)
    if described.state == "Dead" and not rebalances:
        raise no_group(group_id)
    if partition is None:
        raise _no_history()
    if as_json:
        print(json.dumps([each.to_json() for each in rebalances], indent=2, ensure_ascii=False))
        return 0
    print(f"{group_id}: {described.state}, {len(described.members)} members")
    if not rebalances:
        print("no rebalance is on record")
    for each in rebalances:
        print(_shortened(_lines(each)))
    return 0


def watch(
    admin: Admin, settings: Mapping[str, str], group_id: str, as_json: bool, seconds: float | None
) -> int:
    described = admin.describe_groups(group_id)[group_id]
    partition = _history_partition(admin, group_id)
    if partition is None:
        raise _no_history()
    deadline = time.monotonic() + (float("inf") if seconds is None else seconds)
    with _reader(settings) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, admin.end_offsets(partition)[partition])
        waits = " (there is no such group yet)" if described.state == "Dead" else ""
        print(f"rebalances of {group_id}{waits}; Ctrl-C ends", file=sys.stderr)
        try:
            while (left_s := deadline - time.monotonic()) > 0:
                for records in consumer.poll(min(POLL_S, left_s)).values():
                    for each in _of_group(group_id, records):
                        _tell(each, as_json)
        except KeyboardInterrupt:
            pass
    return 0


def _tell(each: Rebalance, as_json: bool) -> None:
    text = json.dumps(each.to_json(), ensure_ascii=False) if as_json else _shortened(_lines(each))
    print(text, flush=True)


# --- the topic --------------------------------------------------------------------------------------------------


def _no_history() -> KafkaError:
    return KafkaError(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "this cluster keeps no history of groups: only Kohort's coordinator does, from its first group on",
    )


def _history_partition(admin: Admin, group_id: str) -> TopicPartition | None:
    """The partition with the history of a group; None if the topic does not exist."""
    try:
        topic = admin.describe_topics(HISTORY_TOPIC)[HISTORY_TOPIC]
    except KafkaError as error:
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return None
        raise
    return TopicPartition(HISTORY_TOPIC, partition_for(group_id, len(topic.partitions)))


def _reader(settings: Mapping[str, str]) -> Consumer:
    own = {"enable.auto.commit": False, "allow.auto.create.topics": False, "auto.offset.reset": "earliest"}
    return Consumer({**settings, **own})


def _rebalances(
    admin: Admin, settings: Mapping[str, str], group_id: str, partition: TopicPartition
) -> list[Rebalance]:
    end = admin.end_offsets(partition)[partition]
    start = admin.beginning_offsets(partition)[partition]
    told: dict[int, Rebalance] = {}
    with _reader(settings) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, start)
        patience_s = int(settings["default.api.timeout.ms"]) / 1000
        deadline = time.monotonic() + patience_s
        while consumer.position(partition) < end:
            for records in consumer.poll(min(POLL_S, patience_s)).values():
                told |= {each.number: each for each in _of_group(group_id, records)}
                deadline = time.monotonic() + patience_s
            if time.monotonic() >= deadline:
                raise TimedOut(f"{partition} was not read to its end in time")
    return [told[number] for number in sorted(told)]


def _of_group(group_id: str, records: Iterable[Record]) -> Iterator[Rebalance]:
    """The rebalances of a group. Records of other groups, and those that another version wrote, are skipped."""
    for record in records:
        if record.key is None or record.value is None or group_of(record.key) != group_id:
            continue
        try:
            yield Rebalance.from_json(json.loads(record.value))
        except (ValueError, TypeError, AttributeError):
            continue


# --- for people -------------------------------------------------------------------------------------------------


def _lines(each: Rebalance) -> Iterator[str]:
    """One rebalance for people: the reason first, then how it went."""
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(each.began_ms / 1000))
    after = "…" if each.generation_after is None else each.generation_after
    yield f"{began}  generation {each.generation_before} → {after}  {each.reason}"
    steps = []
    if each.join_ms is not None:
        last = f" (last {each.last_to_join})" if each.last_to_join else ""
        steps.append(f"joined in {each.join_ms} ms{last}")
    if each.sync_ms is not None:
        last = f" (last {each.last_to_sync})" if each.last_to_sync else ""
        steps.append(f"synced in {each.sync_ms} ms{last}")
    steps.append("under way" if each.outcome == RUNNING else f"{each.outcome}, {each.size} members")
    yield f"    {', '.join(steps)}"
    if each.came:
        yield f"    came: {', '.join(each.came)}"
    for member_id, why in each.went:
        yield f"    went: {member_id} ({why})"
    if each.moved:
        yield f"    new assignment: {', '.join(each.moved)}"


def _shortened(lines: Iterator[str]) -> str:
    return short_ids("\n".join(lines))
