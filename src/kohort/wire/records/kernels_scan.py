"""The walk over small batches, compiled by Numba: for batches of a few records, the walk takes most of the time.

It stops at the first batch that is not plain and leaves it to `walk`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kohort.wire.records.batch import (
    CRC_AT,
    CRC_START,
    FLAGS_AT,
    HEADER_SIZE,
    LAST_OFFSET_DELTA_AT,
    LENGTH_AT,
    LENGTH_END,
    MAGIC,
    MAGIC_AT,
    RECORD_COUNT_AT,
)
from kohort.wire.records.kernels import BYTES_IN, INT64, INT64S, int32_at, int64_at, kernel, part
from kohort.wire.records.payload import SMALLEST_RECORD

SMALL = 1024
"""Bytes; larger batches are not checked here, because for them the CRC instruction of the processor is faster."""

_POLYNOMIAL = 0x82F63B78  # of CRC32C, reflected


def _tables() -> Any:
    """The CRC of each byte, alone and followed by one to seven zero bytes."""
    tables = np.zeros((8, 256), np.int64)
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
        tables[0, byte] = crc
    for zeros in range(1, 8):
        before = tables[zeros - 1]
        tables[zeros] = before >> 8 ^ tables[0, before & 0xFF]
    return tables


_TABLES = _tables()


@part
def _word(data: Any, pos: int) -> Any:
    word: Any = np.int64(data[pos]) | (np.int64(data[pos + 1]) << 8) | (np.int64(data[pos + 2]) << 16)
    return word | (np.int64(data[pos + 3]) << 24)


@part
def _crc32c(data: Any, pos: int, end: int) -> int:
    crc: Any = 0xFFFFFFFF
    while end - pos >= 8:
        low, high = crc ^ _word(data, pos), _word(data, pos + 4)
        crc = (
            _TABLES[7, low & 0xFF] ^ _TABLES[6, low >> 8 & 0xFF] ^ _TABLES[5, low >> 16 & 0xFF]
            ^ _TABLES[4, low >> 24] ^ _TABLES[3, high & 0xFF] ^ _TABLES[2, high >> 8 & 0xFF]
            ^ _TABLES[1, high >> 16 & 0xFF] ^ _TABLES[0, high >> 24]
        )  # fmt: skip
        pos += 8
    while pos < end:
        crc = crc >> 8 ^ _TABLES[0, (crc ^ data[pos]) & 0xFF]
        pos += 1
    return int(crc ^ 0xFFFFFFFF)


NEXT_OFFSET, MOST_RECORDS, BATCHES = range(3)  # indexes in `state`


@kernel(INT64(BYTES_IN, INT64, INT64, INT64, INT64, INT64, INT64, INT64S))
def scan_rows(
    data: Any, pos: int, stop: int, start_offset: int, not_flags: int, last_possible_offset: int,
    check_crcs: int, state: Any,
) -> int:  # fmt: skip
    """How far from `pos` on, and not far beyond `stop`, all batches are small, complete and intact.

    None of them has any of `not_flags` among its attributes. `state` counts what they hold.
    """
    end = len(data)
    while pos < stop and end - pos >= HEADER_SIZE:
        size = LENGTH_END + int32_at(data, pos + LENGTH_AT)
        base_offset = int64_at(data, pos)
        last_delta = int32_at(data, pos + LAST_OFFSET_DELTA_AT)
        count = int32_at(data, pos + RECORD_COUNT_AT)
        if (
            data[pos + MAGIC_AT] != MAGIC
            or size < HEADER_SIZE
            or size > SMALL
            or size > end - pos
            or data[pos + FLAGS_AT] & not_flags != 0
            or base_offset < 0
            or base_offset > last_possible_offset
            or last_delta < 0
            or count < 0
            or base_offset + last_delta < start_offset
        ):
            break
        stored = int32_at(data, pos + CRC_AT) & 0xFFFFFFFF
        if check_crcs != 0 and _crc32c(data, pos + CRC_START, pos + size) != stored:
            break
        state[NEXT_OFFSET] = max(state[NEXT_OFFSET], base_offset + last_delta + 1)
        state[MOST_RECORDS] += min(count, (size - HEADER_SIZE) // SMALLEST_RECORD)
        state[BATCHES] += 1
        pos += size
    return pos
