"""`kohort groups`: lists and describes groups, on any Kafka cluster. `why` and `watch` are in `group_history`."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

from kohort.cli.properties import read_properties
from kohort.client.admin import Admin
from kohort.client.admin_types import GroupDescription
from kohort.client.config import ADMIN, CONSUMER, PRODUCER, ClientConfig
from kohort.client.errors import PartlyFailed, TimedOut
from kohort.client.types import OffsetAndMetadata, TopicPartition
from kohort.settings import Table
from kohort.wire.errors import ErrorCode, KafkaError

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
SILENCE_S = 2.0  # after this time a message says what is waited for
FIRST_ANSWER_S = 10.0  # how long a broker may take to answer at all
PATIENCE_MS = 30_000  # `default.api.timeout.ms` if the file of settings does not have it: a person waits
_UUID = re.compile(r"([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_COMMON = Table(ClientConfig, "client").settings
_OF_OTHER_CLIENTS = {
    *CONSUMER.settings, *PRODUCER.settings, *ADMIN.settings, "partition.assignment.strategy", "interceptor.classes",
    "key.serializer", "value.serializer", "key.deserializer", "value.deserializer", "partitioner.class",
}  # fmt: skip


def groups(options: argparse.Namespace) -> int:
    settings = client_settings(options.bootstrap, options.config)
    with Admin(settings) as admin:
        _wait_for_broker(admin, settings)
        if options.action == "list":
            return _list(admin, options.json)
        if options.action == "describe":
            return _describe(admin, options.group, options.json)
        from kohort.cli.group_history import watch, why

        if options.action == "why":
            return why(admin, settings, options.group, options.json)
        return watch(admin, settings, options.group, options.json, options.seconds)


def client_settings(bootstrap: str | None, file: str | None) -> dict[str, str]:
    """The settings of `--config`, the file of any Kafka client, without those of consumers and producers alone."""
    given = read_properties(Path(file)) if file else {}
    settings = {
        name: value for name, value in given.items() if name in _COMMON or name not in _OF_OTHER_CLIENTS
    }
    if bootstrap:
        settings["bootstrap.servers"] = bootstrap
    return {
        "bootstrap.servers": DEFAULT_BOOTSTRAP,
        "default.api.timeout.ms": str(PATIENCE_MS),
        **settings,
    }


def _wait_for_broker(admin: Admin, settings: dict[str, str]) -> None:
    """Waits for a broker to answer, because it may be starting, and says what is waited for."""
    where = settings["bootstrap.servers"]
    try:
        patience_s = min(int(settings["default.api.timeout.ms"]) / 1000, FIRST_ANSWER_S)
        try:
            admin.describe_cluster(timeout=min(SILENCE_S, patience_s))
        except TimedOut as late:
            if patience_s <= SILENCE_S:
                raise
            print(f"kohort: waiting for {where}: {late}", file=sys.stderr)
            admin.describe_cluster(timeout=patience_s - SILENCE_S)
    except TimedOut as late:
        raise TimedOut(
            f"no broker answers at {where}: {late}; is one running there? "
            "See --bootstrap, and --config for TLS and SASL"
        ) from None


def no_group(group_id: str) -> KafkaError:
    return KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}; `kohort groups list` names all"
    )


# --- list -------------------------------------------------------------------------------------------------------


def _list(admin: Admin, as_json: bool) -> int:
    rows = [(g.group_id, g.group_type, g.protocol_type, g.state) for g in admin.list_groups()]
    if as_json:
        names = ("group", "type", "protocol_type", "state")
        print(json.dumps([dict(zip(names, row, strict=True)) for row in rows], indent=2, ensure_ascii=False))
    else:
        print_table(("GROUP", "TYPE", "PROTOCOL", "STATE"), rows)
    return 0


# --- describe ---------------------------------------------------------------------------------------------------


def _describe(admin: Admin, group_id: str, as_json: bool) -> int:
    described = admin.describe_groups(group_id)[group_id]
    if described.state == "Dead":
        raise no_group(group_id)
    partitions = _partitions(admin, described)
    if as_json:
        print(json.dumps(_as_json(described, partitions), indent=2, ensure_ascii=False))
        return 0
    assignor = f", assignor {described.protocol}" if described.protocol else ""
    at = f", coordinator {described.coordinator}" if described.coordinator is not None else ""
    kind = described.group_type
    if described.protocol_type not in ("", "consumer", kind):
        kind += f" ({described.protocol_type})"
    print(f"{group_id}: {described.state}, {kind}{assignor}{at}")
    print()
    if described.members:
        print_table(
            ("MEMBER", "INSTANCE", "CLIENT", "HOST", "PARTITIONS"),
            [
                (m.member_id, m.group_instance_id, m.client_id, m.host, len(m.assignment))
                for m in described.members
            ],
        )
    elif described.group_type in ("classic", "consumer", "share"):
        print("no members")
    else:
        print(f"the members of a {described.group_type} group are not shown here")
    if partitions:
        print()
        print_table(
            ("TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "MEMBER"),
            [
                (p["topic"], p["partition"], p["offset"], p["end"], p["lag"],
                 ", ".join(map(short_ids, p["members"])) or None)
                for p in partitions
            ],
        )  # fmt: skip
    return 0


def _as_json(described: GroupDescription, partitions: list[dict[str, Any]]) -> dict[str, Any]:
    at = described.coordinator
    return {
        "group": described.group_id,
        "state": described.state,
        "type": described.group_type,
        "protocol_type": described.protocol_type,
        "protocol": described.protocol,
        "coordinator": None if at is None else {"id": at.node_id, "host": at.host, "port": at.port},
        "members": [
            {
                "member_id": m.member_id,
                "group_instance_id": m.group_instance_id,
                "client_id": m.client_id,
                "host": m.host,
                "assignment": [{"topic": p.topic, "partition": p.partition} for p in m.assignment],
            }
            for m in described.members
        ],
        "offsets": partitions,
    }


def _partitions(admin: Admin, described: GroupDescription) -> list[dict[str, Any]]:
    """Partitions that are owned or committed: owners, committed offset, end of the log; None where there is none."""
    owners: dict[TopicPartition, list[str]] = {}
    for member in described.members:
        for partition in member.assignment:
            owners.setdefault(partition, []).append(member.member_id)
    committed: dict[TopicPartition, OffsetAndMetadata] = {}
    if described.group_type != "share":  # share groups keep no committed offsets
        committed = admin.group_offsets(described.group_id, require_stable=False)
    wanted = sorted({*owners, *committed})
    ends = _ends(admin, wanted)
    rows = []
    for partition in wanted:
        offset = committed[partition].offset if partition in committed else None
        end = ends.get(partition)
        rows.append(
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "offset": offset,
                "end": end,
                "lag": None if end is None or offset is None else max(end - offset, 0),
                "members": owners.get(partition, []),
            }
        )
    return rows


def _ends(admin: Admin, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    """The ends of the logs. Those that are not known (deleted topic, no leader) are left out and reported on stderr."""
    if not partitions:
        return {}
    try:
        return admin.end_offsets(*partitions)
    except PartlyFailed as partly:
        error, count, found = next(iter(partly.errors.values())), len(partly.errors), partly.results
    except KafkaError as only:
        error, count, found = only, 1, {}
    more = f", and {count - 1} more" if count > 1 else ""
    print(f"kohort: the end of a log is not known: {error}{more}", file=sys.stderr)
    return found


def print_table(titles: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    """Prints a table. A cell that is None or empty is shown as -, as Kafka's tools show it."""
    texts = [titles, *(tuple("-" if cell in (None, "") else str(cell) for cell in row) for row in rows)]
    widths = [max(len(row[column]) for row in texts) for column in range(len(titles))]
    for row in texts:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def short_ids(text: str) -> str:
    """Shortens the uuid at the end of member ids: eight characters tell two apart. `--json` has them whole."""
    return _UUID.sub(r"\1…", text)
