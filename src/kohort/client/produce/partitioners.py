"""Which partition a record goes to: Java's choice by default, librdkafka's by name, or a user's own.

A partitioner is called with the topic, the key's bytes (or None) and the number of partitions. STICKY as an answer
means: any partition will do; records without a home fill one batch after another, each in a partition by chance.
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
    """FNV-1a of 32 bits, without its sign: librdkafka does it so because Sarama does."""
    hashed = 0x811C9DC5
    for byte in data:
        hashed = (hashed ^ byte) * 0x01000193 & 0xFFFFFFFF
    return hashed if hashed < 0x8000_0000 else 0x1_0000_0000 - hashed


def murmur2_partitioner() -> Partitioner:
    """Java's: a key always has the same partition; records without one stick."""
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
    """librdkafka's default: the CRC32 of the key; chance for records without one, and for empty keys."""
    return crc32(key) % count if key else STICKY


def fnv1a_random(topic: str, key: bytes | None, count: int) -> int:
    """librdkafka's and Sarama's: FNV-1a of the key; chance for records without one."""
    return fnv1a(key) % count if key is not None else STICKY


def random_partitioner(jitter: Jitter) -> Partitioner:
    """Every record anywhere."""

    def choose(topic: str, key: bytes | None, count: int) -> int:
        return int(jitter() * count)

    return choose


def round_robin() -> Partitioner:
    """One partition after the other, per topic."""
    turns: dict[str, int] = {}

    def choose(topic: str, key: bytes | None, count: int) -> int:
        turn = turns.get(topic, 0)
        turns[topic] = turn + 1
        return turn % count

    return choose


def checked(own: Callable[[str, bytes | None, int], int]) -> Partitioner:
    """A user's function; an answer that is no partition is the user's error."""

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
    """partitioner.ignore.keys: as if no record had a key."""
    return lambda topic, key, count: partitioner(topic, None, count)


def make_partitioner(chosen: object, ignore_keys: bool, jitter: Jitter) -> Partitioner:
    """What the settings `partitioner` (a name or a callable) and `partitioner.ignore.keys` mean."""
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
