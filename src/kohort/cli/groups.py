"""`kohort groups`: list, describe, and why a group rebalanced."""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Iterator
from typing import Any

from kohort.broker.history import entries_in
from kohort.broker.names import HISTORY_TOPIC
from kohort.client.connection import Connection
from kohort.coordinator.history import RUNNING, Rebalance
from kohort.coordinator.settings import partition_for
from kohort.wire.errors import ErrorCode, KafkaError
from kohort.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from kohort.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from kohort.wire.messages.list_groups import ListGroupsRequest
from kohort.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kohort.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kohort.wire.messages.offset_fetch import OffsetFetchRequest
from kohort.wire.records import iter_batches

LATEST = -1
_UUID = re.compile(r"([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def groups(options: argparse.Namespace) -> int:
    with _connect(options.bootstrap) as broker:
        if options.action == "list":
            return _list(broker, options.json)
    with _coordinator_of(options.bootstrap, options.group) as broker:
        if options.action == "describe":
            return _describe(broker, options.group, options.json)
        if options.action == "why":
            return _why(broker, options.group, options.json)
        return _watch(broker, options.group, options.json, options.seconds)


def _connect(address: str) -> Connection:
    try:
        return Connection(address)
    except (OSError, ValueError) as error:
        raise KafkaError(
            ErrorCode.BROKER_NOT_AVAILABLE,
            f"nobody answers at {address} ({error}); is a broker running there? see --bootstrap",
        ) from None


def _coordinator_of(bootstrap: str, group_id: str) -> Connection:
    with _connect(bootstrap) as broker:
        found = broker.call(FindCoordinatorRequest(group_id), version=2)
    if found.error_code:
        raise KafkaError(ErrorCode(found.error_code), found.error_message or f"no coordinator for {group_id}")
    return _connect(f"{found.host}:{found.port}")


# --- list and describe ------------------------------------------------------------------------------------------


def _list(broker: Connection, as_json: bool) -> int:
    answer = broker.call(ListGroupsRequest(), version=4)
    rows = sorted((g.group_id, g.protocol_type, g.group_state) for g in answer.groups)
    if as_json:
        print(json.dumps([{"group": g, "protocol_type": p, "state": s} for g, p, s in rows], indent=2))
    else:
        print_table(("GROUP", "PROTOCOL", "STATE"), rows)
    return 0


def _describe(broker: Connection, group_id: str, as_json: bool) -> int:
    described = _described(broker, group_id)
    offsets = _offsets(broker, group_id)
    if as_json:
        members = [
            {"member_id": m.member_id, "client_id": m.client_id, "host": m.client_host}
            for m in described.members
        ]
        print(
            json.dumps(
                {"group": group_id, "state": described.group_state, "members": members, "offsets": offsets},
                indent=2,
            )
        )
        return 0
    print(f"{group_id}: {described.group_state}, protocol {described.protocol_data or '–'}")
    print_table(
        ("MEMBER", "CLIENT", "HOST"), [(m.member_id, m.client_id, m.client_host) for m in described.members]
    )
    print()
    print_table(
        ("TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"),
        [(o["topic"], o["partition"], o["offset"], o["end"], o["lag"]) for o in offsets],
    )
    return 0


def _described(broker: Connection, group_id: str) -> DescribedGroup:
    described: DescribedGroup = broker.call(DescribeGroupsRequest([group_id]), version=5).groups[0]
    if described.error_code:
        raise KafkaError(ErrorCode(described.error_code), f"group {group_id}")
    if described.group_state == "Dead":
        raise KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}; see `kohort groups list`"
        )
    return described


def _offsets(broker: Connection, group_id: str) -> list[dict[str, Any]]:
    """What the group has committed, and how far it is behind."""
    committed = broker.call(OffsetFetchRequest(group_id, None), version=5).topics
    wanted = [
        ListOffsetsTopic(t.name, [ListOffsetsPartition(p.partition_index, -1, LATEST) for p in t.partitions])
        for t in committed
    ]
    ends = {
        (t.name, p.partition_index): p.offset
        for t in broker.call(ListOffsetsRequest(-1, 0, wanted), version=5).topics
        for p in t.partitions
        if not p.error_code
    }
    rows = []
    for topic in committed:
        for part in topic.partitions:
            end = ends.get((topic.name, part.partition_index))
            lag = None if end is None else max(end - part.committed_offset, 0)
            rows.append(
                {
                    "topic": topic.name,
                    "partition": part.partition_index,
                    "offset": part.committed_offset,
                    "end": end,
                    "lag": lag,
                }
            )
    return sorted(rows, key=lambda row: (row["topic"], row["partition"]))


def print_table(titles: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    texts = [titles, *(tuple("–" if cell is None else str(cell) for cell in row) for row in rows)]
    widths = [max(len(row[column]) for row in texts) for column in range(len(titles))]
    for row in texts:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


# --- why and watch ----------------------------------------------------------------------------------------------


def rebalances_of(bootstrap: str, group_id: str) -> list[Rebalance]:
    """What `kohort groups why` tells, oldest first."""
    with _coordinator_of(bootstrap, group_id) as broker:
        return _rebalances(broker, group_id)


def _rebalances(broker: Connection, group_id: str) -> list[Rebalance]:
    partition = _history_partition(broker, group_id)
    told: dict[int, dict[str, Any]] = {}
    for _, fields in _history(broker, group_id, partition, follow_s=0):
        told[fields["number"]] = fields
    return [Rebalance.from_json(told[number]) for number in sorted(told)]


def _why(broker: Connection, group_id: str, as_json: bool) -> int:
    rebalances = _rebalances(broker, group_id)
    if as_json:
        print(json.dumps([each.to_json() for each in rebalances], indent=2, ensure_ascii=False))
        return 0
    described = broker.call(DescribeGroupsRequest([group_id]), version=5).groups[0]
    print(f"{group_id}: {described.group_state}, {len(described.members)} members")
    if not rebalances:
        print("no rebalance is on record")
    for each in rebalances:
        print(_shortened(_lines(each)))
    return 0


def _watch(broker: Connection, group_id: str, as_json: bool, seconds: float | None) -> int:
    partition = _history_partition(broker, group_id)
    limit_s = float("inf") if seconds is None else seconds
    print(f"rebalances of {group_id}; Ctrl-C ends", file=sys.stderr)
    try:
        for _, fields in _history(broker, group_id, partition, follow_s=limit_s, from_end=True):
            if as_json:
                print(json.dumps(fields, ensure_ascii=False), flush=True)
            else:
                print(_shortened(_lines(Rebalance.from_json(fields))), flush=True)
    except KeyboardInterrupt:
        pass
    return 0


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


def short_ids(text: str) -> str:
    """Member ids end in a uuid; eight characters of it tell two apart. `--json` has them whole."""
    return _UUID.sub(r"\1…", text)


def _history_partition(broker: Connection, group_id: str) -> int:
    request = MetadataRequest([MetadataRequestTopic(name=HISTORY_TOPIC)], allow_auto_topic_creation=False)
    topic = broker.call(request, version=9).topics[0]
    if topic.error_code or not topic.partitions:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "this cluster keeps no history of groups: only Kohort's coordinator does, from its first group on",
        )
    return partition_for(group_id, len(topic.partitions))


def _history(
    broker: Connection, group_id: str, partition: int, *, follow_s: float, from_end: bool = False
) -> Iterator[tuple[int, dict[str, Any]]]:
    """(offset, rebalance) of one group in the order they were told; waits for more for `follow_s` seconds."""
    offset = _end_of(broker, partition) if from_end else 0
    deadline = time.monotonic() + follow_s
    while True:
        wait_ms = int(min(max(deadline - time.monotonic(), 0), 1) * 1000)
        part = FetchPartition(partition, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(max_wait_ms=wait_ms, min_bytes=1, max_bytes=8 << 20)
        request.topics = [FetchTopic(HISTORY_TOPIC, partitions=[part])]
        found = broker.call(request, version=11).responses[0].partitions[0]
        if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and found.log_start_offset > offset:
            offset = found.log_start_offset
            continue
        if found.error_code:
            raise KafkaError(ErrorCode(found.error_code), HISTORY_TOPIC)
        data = memoryview(found.records or b"")
        for at, group, fields in entries_in(data):
            if group == group_id and at >= offset:
                yield at, fields
        ends = [header.last_offset + 1 for _, header in iter_batches(data)]
        offset = max([offset, *ends])
        if not ends and time.monotonic() >= deadline:
            return


def _end_of(broker: Connection, partition: int) -> int:
    topic = ListOffsetsTopic(HISTORY_TOPIC, [ListOffsetsPartition(partition, -1, LATEST)])
    offset: int = broker.call(ListOffsetsRequest(-1, 0, [topic]), version=5).topics[0].partitions[0].offset
    return offset
