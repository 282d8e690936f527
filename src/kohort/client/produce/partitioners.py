"""Chooses the partition of a record: as the Java client does by default, as librdkafka does, or by a user's function.

A partitioner is called with the topic, the key's bytes (or None) and the number of partitions. It answers STICKY if any
partition will do; such records fill one batch after another, each in a partition that is chosen at random.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from zlib import crc32

from kohort.client.core.arguments import shown, whole_number
from kohort.client.core.backoff import Jitter
from kohort.client.errors import WrongArgument
from kohort.settings import SettingError

STICKY = -1
"""The answer of a partitioner that leaves the choice to the accumulator."""

Partitioner = Callable[[str, "bytes | None", int], int]

_CACHED_KEYS = 65_536
_LONGEST_CACHED_KEY = 64

_words = [Struct(f"<{count}I") for count in range(17)]


def murmur2(data: bytes) -> int:
    """The 32-bit hash of Kafka's Java client, as an unsigned number."""
    size = len(data)
    count = size >> 2
    hashed = 0x9747B28C ^ size
    words = _words[count] if count < 17 else Struct(f"<{count}I")
    for word in words.unpack_from(data):
        word = word * 0x5BD1E995 & 0xFFFFFFFF
        hashed = (hashed * 0x5BD1E995 & 0xFFFFFFFF) ^ ((word ^ word >> 24) * 0x5BD1E995 & 0xFFFFFFFF)
    left = size & 3
    if left:
        hashed = (hashed ^ int.from_bytes(data[-left:], "little")) * 0x5BD1E995 & 0xFFFFFFFF
    hashed = (hashed ^ hashed >> 13) * 0x5BD1E995 & 0xFFFFFFFF
    return hashed ^ hashed >> 15


def fnv1a(data: bytes) -> int:
    """FNV-1a of 32 bits, without its sign, as in librdkafka and Sarama."""
    hashed = 0x811C9DC5
    for byte in data:
        hashed = (hashed ^ byte) * 0x01000193 & 0xFFFFFFFF
    return hashed if hashed < 0x8000_0000 else 0x1_0000_0000 - hashed


def murmur2_partitioner() -> Partitioner:
    """Makes the Java client's partitioner: a key always has the same partition; records without a key are sticky."""
    known: dict[bytes, int] = {}
    find = known.get

    def choose(topic: str, key: bytes | None, count: int) -> int:
        if key is None:
            return STICKY
        hashed = find(key)
        if hashed is None:
            hashed = murmur2(key) & 0x7FFF_FFFF
            if len(key) <= _LONGEST_CACHED_KEY:
                if len(known) >= _CACHED_KEYS:
                    known.clear()
                known[key] = hashed
        return hashed % count

    return choose


def consistent_random(topic: str, key: bytes | None, count: int) -> int:
    """librdkafka's default: the CRC32 of the key; records without a key, or with an empty one, are sticky."""
    return crc32(key) % count if key else STICKY


def fnv1a_random(topic: str, key: bytes | None, count: int) -> int:
    """librdkafka's and Sarama's: FNV-1a of the key; records without a key are sticky."""
    return fnv1a(key) % count if key is not None else STICKY


def random_partitioner(jitter: Jitter) -> Partitioner:
    """Makes a partitioner that chooses at random for every record."""

    def choose(topic: str, key: bytes | None, count: int) -> int:
        return int(jitter() * count)

    return choose


def round_robin() -> Partitioner:
    """Makes a partitioner that takes one partition of a topic after the other."""
    counts: dict[str, int] = {}

    def choose(topic: str, key: bytes | None, count: int) -> int:
        records = counts.get(topic, 0)
        counts[topic] = records + 1
        return records % count

    return choose


def checked(own: Callable[[str, bytes | None, int], int]) -> Partitioner:
    """Wraps a user's function: WrongArgument if it returns something else than a partition."""

    def choose(topic: str, key: bytes | None, count: int) -> int:
        chosen = own(topic, key, count)
        try:
            return whole_number(chosen, "what it returns", 0, count - 1)
        except WrongArgument:
            raise WrongArgument(
                f"the partitioner chose {shown(chosen)} for topic {topic}: it must return a number from 0 to "
                f"{count - 1}"
            ) from None

    return choose


def without_keys(partitioner: Partitioner) -> Partitioner:
    """Wraps a partitioner for partitioner.ignore.keys: it gets None for every key."""
    return lambda topic, key, count: partitioner(topic, None, count)


def make_partitioner(chosen: object, ignore_keys: bool, jitter: Jitter) -> Partitioner:
    """Makes the partitioner of the settings `partitioner` (a name or a function) and `partitioner.ignore.keys`."""
    if callable(chosen):
        partitioner = checked(chosen)
    elif chosen == "murmur2":
        partitioner = murmur2_partitioner()
    elif chosen == "consistent_random":
        partitioner = consistent_random
    elif chosen == "fnv1a_random":
        partitioner = fnv1a_random
    elif chosen == "random":
        partitioner = random_partitioner(jitter)
    elif chosen == "round_robin":
        partitioner = round_robin()
    else:
        raise SettingError(
            f"partitioner={chosen!r} is unknown: name murmur2, consistent_random, fnv1a_random, random or "
            "round_robin, or give a callable (topic, key, partition_count) -> int"
        )
    return without_keys(partitioner) if ignore_keys else partitioner
