"""Looks at a cluster for a new pipeline: which topics there are, and the last records of one."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from typing import Any

from kohort.client.admin import Admin
from kohort.client.consumer import Consumer
from kohort.client.types import TopicPartition
from kohort.spark.pipelines.trial_records import TrialRecord
from kohort.spark.pipelines.trial_rows import text_of, utc_text

MOST = 20
_PARTITIONS = 10
_ASK_S = 5.0
_READ_S = 5.0


def topics_of_cluster(settings: Mapping[str, str]) -> list[str]:
    """Returns the topics, without those of Kafka itself; KohortError if the cluster does not answer in time."""
    with Admin({"client.id": "kohort-pipeline-new", **settings}) as admin:
        return sorted(topic for topic in admin.list_topics(timeout=_ASK_S) if not topic.startswith("__"))


def last_records(settings: Mapping[str, str], topic: str, most: int = MOST) -> list[TrialRecord]:
    """Returns some of the last records of a topic, without a group."""
    given = {"client.id": "kohort-pipeline-new", **settings, "enable.auto.commit": "false"}
    found: list[TrialRecord] = []
    with Consumer(given) as consumer:
        partitions = consumer.partitions_for(topic, timeout=_ASK_S)[:_PARTITIONS]
        starts = consumer.beginning_offsets(partitions, timeout=_ASK_S)
        ends = consumer.end_offsets(partitions, timeout=_ASK_S)
        filled = [each for each in partitions if ends[each] > starts[each]]
        if not filled:
            return found
        share = -(-most // len(filled))
        consumer.assign(filled)
        for each in filled:
            consumer.seek(each, max(starts[each], ends[each] - share))
        deadline_s = time.monotonic() + _READ_S
        while (
            len(found) < most and not _is_at_the_end(consumer, ends, filled) and time.monotonic() < deadline_s
        ):
            for records in consumer.poll(0.2).values():
                found += [_record(record) for record in records]
    return found[:most]


def _is_at_the_end(consumer: Any, ends: Mapping[TopicPartition, int], filled: list[TopicPartition]) -> bool:
    return all(consumer.position(each, timeout=_ASK_S) >= ends[each] for each in filled)


def _record(record: Any) -> TrialRecord:
    headers = dict(record.headers or ())
    return TrialRecord(record.value, record.key, headers, record.timestamp, record.partition, record.topic)


def as_line(record: TrialRecord) -> str:
    """Returns a record as a line of JSON that `kohort pipeline test` reads back."""
    fields: dict[str, Any] = {} if record.key is None else _side("key", record.key)
    fields |= {"value": None} if record.value is None else _side("value", record.value)
    if record.headers:
        fields["headers"] = {name: text_of(value) for name, value in record.headers.items()}
    if record.timestamp_ms is not None and record.timestamp_ms >= 0:
        fields["timestamp"] = utc_text(record.timestamp_ms)
    fields["partition"], fields["topic"] = record.partition, record.topic
    return json.dumps(fields, ensure_ascii=False)


def _side(name: str, data: bytes) -> dict[str, Any]:
    """Returns a key or a value as text; a value that is JSON as the object, which people can read and change."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}
    try:
        found = json.loads(text)
    except ValueError:
        return {name: text}
    return {name: found if name == "value" and isinstance(found, dict | list) else text}
