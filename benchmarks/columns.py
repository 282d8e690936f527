"""Records as columns, objects and Arrow, decoded and encoded, both ways: `python -m benchmarks.columns`.

No broker and no network: what the kernels alone can do. Each figure is the best of several runs.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable

import pyarrow as pa

from kohort.client.records import Records
from kohort.wire.records import columns
from kohort.wire.records.arrow_encode import outgoing_records
from kohort.wire.records.batch import BatchRecord, assign, encode_batch, iter_records
from kohort.wire.records.columns import decode_columns, encode_batch_columns
from kohort.wire.records.compression import Compression
from kohort.wire.records.payload import encode_records

T = 1_700_000_000_000
SECONDS_PER_FIGURE = 0.5


def rate(name: str, count: int, work: Callable[[], object]) -> None:
    """Prints how many of `count` records a second `work` does."""
    best, until = float("inf"), time.perf_counter() + SECONDS_PER_FIGURE
    while time.perf_counter() < until:
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    gc.collect()
    print(f"{name:58s}{best / count * 1e9:9.1f} ns{count / best / 1e6:9.2f} M records/s")


def values_of(size: int, count: int) -> list[bytes]:
    """Half random, half repeated: they compress about as JSON does."""
    chance = random.Random(size)
    return [chance.randbytes(size // 2) + b"x" * (size - size // 2) for _ in range(count)]


def fetched(values: list[bytes], per_batch: int, codec: int) -> memoryview:
    """About what a Fetch of one partition answers."""
    data = bytearray()
    for start in range(0, len(values), per_batch):
        rows = values[start : start + per_batch]
        batch = bytearray(
            encode_batch_columns(None, rows, [T + at for at in range(len(rows))], compression=codec)
        )
        assign(batch, 0, start, 0)
        data += batch
    return memoryview(data)


def read_values(data: memoryview) -> None:
    decoded = decode_columns(data, 0)
    for record in Records("t", 0, decoded.columns, decoded.next_offset):
        record.value  # noqa: B018 - reading it is what is measured


def as_arrow(data: memoryview) -> object:
    decoded = decode_columns(data, 0)
    return Records("t", 0, decoded.columns, decoded.next_offset).to_arrow()


def decoding(way: str) -> None:
    for size, count, per_batch in ((100, 10_000, 150), (1000, 1000, 16), (100, 10_000, 5000), (100, 2000, 1)):
        for codec in (Compression.NONE, Compression.LZ4):
            data = fetched(values_of(size, count), per_batch, codec)
            name = f"{way}: {size} B, {per_batch} a batch, {codec.name.lower()}"
            rate(f"{name}, columns", count, lambda data=data: decode_columns(data, 0))  # type: ignore[misc]
            rate(f"{name}, Record, .value", count, lambda data=data: read_values(data))  # type: ignore[misc]
            rate(f"{name}, Arrow", count, lambda data=data: as_arrow(data))  # type: ignore[misc]


def encoding(way: str) -> None:
    for size, count in ((100, 150), (1000, 16), (100, 5000), (1000, 1000)):
        values = values_of(size, count)
        times = [T + at // 10 for at in range(count)]
        name = f"{way}: a batch of {count} x {size} B"
        for codec in (Compression.NONE, Compression.LZ4):
            rate(
                f"{name}, {codec.name.lower()}, from lists",
                count,
                lambda values=values, times=times, codec=codec: encode_batch_columns(  # type: ignore[misc]
                    None, values, times, compression=codec
                ),
            )
        table = outgoing_records(pa.record_batch({"value": pa.array(values, pa.binary())}), timestamp=T)
        rate(f"{name}, from Arrow", count, lambda table=table: table.encode())  # type: ignore[misc]


def oracle() -> None:
    values = values_of(100, 5000)
    records = [BatchRecord(at, T + at // 10, None, value, []) for at, value in enumerate(values)]
    rate("wire.payload.encode_records, 5000 x 100 B", 5000, lambda: encode_records(records, 0, T))
    batch = encode_batch(records)
    rate("wire.records.iter_records, 5000 x 100 B", 5000, lambda: list(iter_records(batch)))


def main() -> None:
    for way in ("numba", "python"):
        columns.prefer(way)
        start = time.perf_counter()
        columns.compiled()
        print(f"-- {way}: loaded in {time.perf_counter() - start:.2f} s")
        decoding(way)
        encoding(way)
    oracle()


if __name__ == "__main__":
    main()
