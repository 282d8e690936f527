"""Arrow rows on their way through the producer's core: who encodes them, and that it makes no difference."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

from kohort.client.produce.accumulator import MERGED_BATCH_BYTES
from kohort.client.produce.arrow import send_arrow
from kohort.client.produce.batch import Batch
from kohort.client.produce.calls import ProducerCalls
from kohort.wire.errors import ErrorCode
from kohort.wire.records.arrow_encode import outgoing_records
from kohort.wire.records.batch import check_batch, iter_records
from kohort.wire.records.compression import Compression
from tests.client.producing import Core, numbers, parts, values
from tests.wire.ways import way

__all__ = ["way"]

T = 1_700_000_000_000
CODECS = [codec.name.lower() for codec in Compression]


def rows(count: int, size: int = 40, seed: int = 1) -> Any:
    rng = random.Random(seed)
    made = [b"%d " % n + rng.randbytes(size // 4) * 3 for n in range(count)]
    return pa.record_batch({"value": pa.array(made, pa.binary())})


def started(**settings: object) -> Core:
    core = Core(**settings)  # type: ignore[arg-type]
    core.start()
    core.sender._learn(core.now_ms)
    return core


def calls_of(core: Core) -> ProducerCalls[Any]:
    calls: ProducerCalls[Any] = ProducerCalls(
        core.outgoing, core.accumulator, core.out, core.metadata, lambda: 0.5, lambda: core.now_ms, lambda: T, str
    )  # fmt: skip
    calls.sender = core.sender
    return calls


def sent_without_waiting(core: Core, records: Any) -> list[Batch]:
    with pytest.raises(StopIteration) as end:
        send_arrow(calls_of(core), "orders", records, T).send(None)
    batches: list[Batch] = end.value.value
    return batches


def sent_until_it_waits(core: Core, records: Any) -> list[Batch]:
    calls = calls_of(core)
    calls.add_part(lambda: None, lambda: None)
    with suppress(StopIteration):
        send_arrow(calls, "orders", records, T).send(None)
    return list(core.accumulator.incomplete)


def test_while_the_sender_has_columns_before_it_callers_compress_their_own() -> None:
    core = started(compression_type="lz4")
    first, *others = sent_without_waiting(core, rows(1000, 4000))
    assert len(others) == 3
    assert first.encoded is None
    assert all(batch.encoded is not None for batch in others)
    core.tick()
    again, *_ = sent_without_waiting(core, rows(10))
    assert again.encoded is None  # the sender has begun with all that it was left


def test_without_compression_the_sender_encodes_everything() -> None:
    core = started()
    assert all(batch.encoded is None for batch in sent_without_waiting(core, rows(500, 4000)))


@pytest.mark.parametrize("codec", CODECS)
def test_rows_arrive_in_order_and_numbered_whoever_encoded_them(codec: str, way: str) -> None:
    core = started(compression_type=codec)
    records = rows(500, 4000)
    sent_without_waiting(core, records)
    found: list[bytes | None] = []
    while core.accumulator.incomplete:
        for send in core.tick():
            assert numbers(send) == (7, 0, len(found))
            check_batch(bytes(parts(send)[0].records))  # type: ignore[arg-type]
            some = values(send)
            core.written(send, len(found))
            found += some
    assert found == records.column("value").to_pylist()


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("codec", CODECS[1:])
@pytest.mark.parametrize(
    "size", [40, 4000]
)  # of batches that are copied out of their room, and that stay there
def test_a_batch_that_was_encoded_early_has_the_bytes_that_the_sender_would_have_made(
    codec: str, size: int, idempotent: bool, way: str
) -> None:
    columns = outgoing_records(rows(100, size), timestamp=T)
    requests = []
    for early in (True, False):
        core = started(compression_type=codec) if idempotent else Core(
            compression_type=codec, enable_idempotence=False
        )  # fmt: skip
        core.sender._learn(core.now_ms)
        queue = core.accumulator.topics["orders"].queues[0]
        for _ in range(2):  # the second has other numbers
            encoded = core.sender.encode_early(columns) if early else None
            core.accumulator.append_columns(queue, columns, len(columns), columns.size, core.now_ms, encoded)
        made: list[bytes] = []
        while not core.sender.is_idle:  # what follows the first batch of all waits for its answer
            for send in core.tick():
                made += [bytes(part.records) for part in parts(send)]  # type: ignore[arg-type]
                core.written(send)
        requests.append(made)
    assert requests[0] == requests[1]
    assert len(requests[0]) == 2


@pytest.mark.parametrize("size", [40, 4000])
def test_what_is_on_its_way_stays_as_it_is_when_its_batch_is_numbered_anew(size: int) -> None:
    core = started(compression_type="lz4")
    columns = outgoing_records(rows(100, size), timestamp=T)
    queue = core.accumulator.topics["orders"].queues[0]
    early = core.sender.encode_early(columns)
    core.accumulator.append_columns(queue, columns, len(columns), columns.size, core.now_ms, early)
    (send,) = core.tick()
    on_its_way = parts(send)[0].records
    assert on_its_way is not None
    before = bytes(on_its_way)
    core.reply(send, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    (again,) = core.tick(after_ms=200)
    assert numbers(again) == (7, 1, 0)
    assert bytes(on_its_way) == before
    assert [r.value for r in iter_records(before)] == values(again)


def test_a_batch_that_expires_before_it_was_sent_is_not_waited_for() -> None:
    core = Core(compression_type="lz4", delivery_timeout_ms=40_000)  # nobody gives it an id
    core.sender._learn(core.now_ms)
    sent_without_waiting(core, rows(10))
    assert core.accumulator.unencoded
    core.tick(after_ms=40_000)
    assert not core.accumulator.incomplete
    assert not core.accumulator.unencoded


# --- how large batches are ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "largest"),
    [
        ({}, MERGED_BATCH_BYTES),
        ({"batch_size": 600_000}, MERGED_BATCH_BYTES),
        ({"batch_size": 1_040_000}, 1_040_000),
        ({"max_request_size": 100_000}, 100_000),
        ({"buffer_memory": 400_000}, 100_000),
        ({"batch_size": 0}, 6_000),  # a record alone
    ],
)
def test_rows_make_large_batches_whatever_batch_size_is_meant_for(
    settings: dict[str, Any], largest: int
) -> None:
    core = started(**settings)
    sizes = [batch.size for batch in sent_until_it_waits(core, rows(500, 4000))]
    assert all(size <= largest for size in sizes)
    assert max(sizes) > largest - 6_000


def test_a_topic_that_takes_no_large_batches_gets_smaller_ones_after_each_refusal() -> None:
    core = started()
    largest = []
    for _ in range(5):
        largest.append(max(batch.size for batch in sent_without_waiting(core, rows(60, 4000))))
        sends = core.tick()
        if len(sends) == 1:
            core.reply(sends[0], ErrorCode.MESSAGE_TOO_LARGE)
            sends = []
        while core.accumulator.incomplete:
            for send in sends or core.tick(200):
                if len(parts(send)[0].records or b"") > core.config.batch_size:
                    core.reply(send, ErrorCode.MESSAGE_TOO_LARGE)
                else:
                    core.written(send)
            sends = []
    assert largest[0] > 5 * core.config.batch_size
    assert largest == sorted(largest, reverse=True)
    assert largest[-1] <= core.config.batch_size
