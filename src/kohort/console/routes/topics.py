"""The routes about topics and their messages."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response

from kohort.console.answers import (
    NO_GROUP_TREND,
    readers_of,
    records_of,
    setting_rows,
    topic_group_row,
    topic_partition_rows,
    topic_row,
)
from kohort.console.context import ConsoleContext, Context
from kohort.console.errors import ERRORS, RequestRefused
from kohort.console.messages import MessagePlace, MessageReader
from kohort.console.models import (
    LARGEST_OFFSET,
    LARGEST_PARTITION,
    MessageAnswer,
    MessagesAnswer,
    Name,
    TopicAnswer,
    TopicListRow,
    TopicsAnswer,
)
from kohort.console.paging import Order, PageNumber, PageSize, Search, pages_of, part_of
from kohort.console.payloads import message_row
from kohort.console.sampler import Snapshot
from kohort.insight.samples import TopicSample
from kohort.wire.errors import ErrorCode, KafkaError

router = APIRouter(responses=ERRORS, tags=["topics"])

MOST_MESSAGES = 500
MOST_GROUPS = 200

TopicName = Annotated[Name, Query(description="The name of the topic.")]
Number = Annotated[int, Query(ge=0, le=LARGEST_PARTITION, description="The number of the partition.")]
Offset = Annotated[int, Query(ge=0, le=LARGEST_OFFSET, description="The offset of the message.")]


class TopicSort(StrEnum):
    """By what the list of topics is sorted."""

    TOPIC = "topic"
    PARTITIONS = "partitions"
    RECORDS = "records"
    GROUPS = "groups"
    PRODUCE_RATE = "produce_rate"


_SORT_VALUES: dict[TopicSort, Callable[[TopicListRow], Any]] = {
    TopicSort.TOPIC: lambda row: row.topic,
    TopicSort.PARTITIONS: lambda row: row.partitions,
    TopicSort.RECORDS: lambda row: row.records or 0,
    TopicSort.GROUPS: lambda row: row.groups,
    TopicSort.PRODUCE_RATE: lambda row: row.produce_rate or 0.0,
}


@router.get("/api/topics")
def topics(
    context: Context,
    search: Search = "",
    internal: Annotated[bool, Query(description="Also topics that Kafka keeps for itself.")] = False,
    sort: TopicSort = TopicSort.TOPIC,
    order: Order = Order.ASC,
    page: PageNumber = 1,
    size: PageSize = 50,
) -> TopicsAnswer:
    """Returns one page of the topics."""
    snapshot = context.snapshot()
    sample = snapshot.sample
    part = search.casefold()
    chosen = [
        each
        for each in sample.topics.values()
        if (internal or not each.is_internal) and part in each.name.casefold()
    ]
    readers = readers_of(sample)
    rows = [topic_row(each, len(readers.get(each.name, ())), _rate_of(snapshot, each)) for each in chosen]
    rows.sort(key=lambda row: row.topic)
    rows.sort(key=_SORT_VALUES[sort], reverse=order is Order.DESC)
    return TopicsAnswer(
        items=list(part_of(rows, page, size)),
        page=page,
        size=size,
        pages=pages_of(len(rows), size),
        total=len(rows),
        sampled_ms=sample.at_ms,
    )


def _rate_of(snapshot: Snapshot, topic: TopicSample) -> float | None:
    """Returns the records a second that a topic gets, from the last two samples."""
    before, now = snapshot.before, snapshot.sample
    if before is None or topic.name not in before.topics:
        return None
    ends = before.topics[topic.name].ends
    written = sum(max(0, end - ends[each]) for each, end in topic.ends.items() if each in ends)
    return written * 1000 / (now.at_ms - before.at_ms)


@router.get("/api/topic")
def topic(context: Context, topic: TopicName, page: PageNumber = 1, size: PageSize = 500) -> TopicAnswer:
    """Returns one topic with its settings, its readers, and one page of its partitions."""
    snapshot = context.snapshot()
    sample, trends = snapshot.sample, snapshot.trends
    try:
        settings = context.admin.topic_configs(topic)[topic]
    except KafkaError as error:
        if error.code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
            raise RequestRefused(404, f"there is no topic {topic}: it was deleted, or never was") from None
        raise
    found = sample.topics.get(topic)
    if found is None:  # made after the sample
        found = _described(context, topic)
    partitions = topic_partition_rows(found)
    readers = readers_of(sample).get(topic, [])
    return TopicAnswer(
        topic=topic,
        topic_id=found.topic_id,
        internal=found.is_internal,
        records=records_of(found),
        sampled_ms=sample.at_ms,
        partitions=list(part_of(partitions, page, size)),
        partitions_total=len(partitions),
        page=page,
        size=size,
        pages=pages_of(len(partitions), size),
        settings=setting_rows(settings.values()),
        groups=[
            topic_group_row(topic, each, trends.get(each.group_id, NO_GROUP_TREND))
            for each in readers[:MOST_GROUPS]
        ],
    )


def _described(context: ConsoleContext, topic: str) -> TopicSample:
    described = context.admin.describe_topics(topic)[topic]
    places = [(topic, each.partition) for each in described.partitions]
    begins, ends = context.admin.beginning_offsets(places), context.admin.end_offsets(places)
    return TopicSample(
        topic,
        described.topic_id,
        described.is_internal,
        described.partitions,
        {at.partition: offset for at, offset in begins.items()},
        {at.partition: offset for at, offset in ends.items()},
    )


# --- messages -----------------------------------------------------------------------------------------


@router.get("/api/topic/messages")
def messages(
    context: Context,
    topic: TopicName,
    partition: Annotated[
        int | None, Query(ge=0, le=LARGEST_PARTITION, description="Only this partition; without it, all.")
    ] = None,
    offset: Annotated[
        int | None, Query(ge=0, le=LARGEST_OFFSET, description="From this offset on; with `partition`.")
    ] = None,
    time_ms: Annotated[int | None, Query(ge=0, le=LARGEST_OFFSET, description="From this time on.")] = None,
    origin: Annotated[
        Literal["beginning", "end"] | None,
        Query(alias="from", description="The first messages, or the last ones. Without any place: the last."),
    ] = None,
    cursor: Annotated[
        str | None, Query(max_length=4_000, description="What an answer gave as `next` or `previous`.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=MOST_MESSAGES, description="How many messages at most.")] = 50,
    search: Annotated[
        str, Query(max_length=1_000, description="Only messages with this text in key, value or headers.")
    ] = "",
) -> MessagesAnswer:
    """Returns messages of a topic, oldest first.

    A search looks at a bounded number of messages; `next` or `previous` says where to go on.
    """
    if sum(each is not None for each in (offset, time_ms, origin, cursor)) > 1:
        raise RequestRefused(400, "name one place to read from: offset, time_ms, from or cursor")
    if offset is not None and partition is None:
        raise RequestRefused(400, "an offset belongs to a partition: name it with partition")
    place = MessagePlace(origin == "beginning", offset, time_ms, cursor)
    with context.reads:
        return MessageReader(context.admin, context.settings, topic).messages(place, partition, limit, search)


@router.get("/api/topic/message")
def message(context: Context, topic: TopicName, partition: Number, offset: Offset) -> MessageAnswer:
    """Returns one message, with up to a megabyte of its key and value."""
    with context.reads:
        record = MessageReader(context.admin, context.settings, topic).message(partition, offset)
        return MessageAnswer(topic=topic, message=message_row(record, whole=True))


@router.get("/api/topic/message/download", response_class=Response)
def download(
    context: Context,
    topic: TopicName,
    partition: Number,
    offset: Offset,
    part: Annotated[Literal["key", "value"], Query(description="Which part of the message.")] = "value",
) -> Response:
    """Returns the key or the value of one message, all of it, as a file to be saved."""
    with context.reads:
        record = MessageReader(context.admin, context.settings, topic).message(partition, offset)
    data = record.key if part == "key" else record.value
    if data is None:
        raise RequestRefused(404, f"the message at offset {offset} has no {part}")
    name = re.sub(r"[^A-Za-z0-9._-]", "_", topic)[:100]
    headers = {"content-disposition": f'attachment; filename="{name}-{partition}-{offset}-{part}.bin"'}
    return Response(bytes(data), media_type="application/octet-stream", headers=headers)
