"""Partitioners give the same partitions as Java's client and librdkafka."""

from __future__ import annotations

from collections import Counter

import pytest

from kohort.client.produce.partitioners import STICKY, fnv1a, make_partitioner, murmur2
from kohort.settings import SettingError


def half() -> float:
    return 0.5


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_javas(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed & 0xFFFF_FFFF


def test_keys_of_any_length_have_a_hash_and_keep_it() -> None:
    choose = make_partitioner("murmur2", False, half)
    for size in range(200):
        key = bytes(range(size % 256))[:size] * 1
        expected = (murmur2(key) & 0x7FFF_FFFF) % 7
        assert [choose("t", key, 7) for _ in range(3)] == [expected] * 3


def test_the_cache_of_hashes_is_bounded_and_right_after_it_was_full() -> None:
    choose = make_partitioner("murmur2", False, half)
    for number in range(70_000):
        choose("t", b"%d" % number, 3)
    assert choose("t", b"5", 3) == (murmur2(b"5") & 0x7FFF_FFFF) % 3


def test_fnv1a_is_without_its_sign() -> None:
    assert fnv1a(b"") == 0x1_0000_0000 - 0x811C9DC5
    assert fnv1a(b"a") == 0x1_0000_0000 - 0xE40C292C
    assert fnv1a(b"foobar") == 0x1_0000_0000 - 0xBF9CF968


@pytest.mark.parametrize("name", ["murmur2", "consistent_random", "fnv1a_random"])
def test_records_without_a_key_stick(name: str) -> None:
    assert make_partitioner(name, False, half)("t", None, 4) == STICKY


def test_an_empty_key_is_a_key_for_java_and_none_for_consistent_random() -> None:
    assert make_partitioner("murmur2", False, half)("t", b"", 5) == (murmur2(b"") & 0x7FFF_FFFF) % 5
    assert make_partitioner("consistent_random", False, half)("t", b"", 5) == STICKY


def test_ignore_keys_places_records_as_if_they_had_none() -> None:
    assert make_partitioner("murmur2", True, half)("t", b"key", 5) == STICKY


def test_round_robin_takes_turns_per_topic() -> None:
    choose = make_partitioner("round_robin", False, half)
    assert [choose("a", b"k", 3) for _ in range(4)] == [0, 1, 2, 0]
    assert choose("b", None, 3) == 0


def test_random_reaches_every_partition() -> None:
    steps = iter(number / 100 for number in range(100))
    choose = make_partitioner("random", False, lambda: next(steps))
    assert Counter(choose("t", b"same", 4) for _ in range(100)) == {0: 25, 1: 25, 2: 25, 3: 25}


def test_a_function_of_the_users_own_must_name_a_partition() -> None:
    own = make_partitioner(lambda topic, key, count: len(key or b"") * (topic == "t"), False, half)
    assert own("t", b"xx", 3) == 2
    with pytest.raises(ValueError, match="from 0 to 2"):
        own("t", b"xxxxx", 3)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(SettingError, match="consistent_random"):
        make_partitioner("murmur3", False, half)
