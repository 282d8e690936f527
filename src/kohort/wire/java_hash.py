"""Java's hash of a string, which decides about the partition of a group and of a transactional id."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=10_000)
def partition_of(key: str, partitions: int) -> int:
    """Returns the partition that holds a key: Java's hash of the key, made positive."""
    value = 0
    units = key.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    if value >= 2**31:
        value = 2**32 - value
    return 0 if value == 2**31 else value % partitions
