"""Memory that is used again: never while somebody looks at it, and then really."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.wire.records.buffer_pool import LEAST, MAPPED, BufferPool

SIZES = st.sampled_from(
    [0, 1, LEAST - 1, LEAST, LEAST + 1, 3 * LEAST, 1 << 20, MAPPED, MAPPED + 5, 3 * MAPPED]
)


def address(view: memoryview) -> int:
    return int(np.frombuffer(view, np.uint8).__array_interface__["data"][0])


@given(sizes=st.lists(SIZES, max_size=30), seed=st.integers(0, 1 << 16), fitting=st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_buffer_is_nobody_elses_while_a_view_of_it_lives(
    sizes: list[int], seed: int, fitting: bool
) -> None:
    chance, pool = random.Random(seed), BufferPool(8 << 20, fitting=fitting)
    held: list[tuple[memoryview, bytes]] = []
    for number, size in enumerate(sizes):
        view = pool.take(size)
        assert len(view) == size
        mark = bytes([number % 251]) * min(size, 64)
        view[: len(mark)] = mark
        held.append((view[: len(mark)], mark))  # a slice alone keeps it
        if chance.random() < 0.6:
            held.pop(chance.randrange(len(held)))
        assert [bytes(part) for part, _ in held] == [mark for _, mark in held]


@pytest.mark.parametrize("size", [LEAST, 1 << 20, MAPPED])
def test_a_buffer_is_used_again_when_the_last_view_is_gone(size: int) -> None:
    pool = BufferPool(8 << 20, fitting=True)
    first = pool.take(size)
    at, array = address(first), np.frombuffer(first[1:2], np.uint8)
    del first
    second = pool.take(size)
    assert address(second) != at, "a view of one byte, made by another library, is a view"
    del array
    assert address(pool.take(size)) == at


def test_a_few_bytes_do_not_keep_a_large_buffer() -> None:
    pool = BufferPool(8 << 20, fitting=True)
    pool.take(1 << 20)
    small = pool.take(300 << 10)
    assert len(small.obj) < 2 * len(small)  # type: ignore[arg-type]
    assert address(pool.take(1 << 19)) != address(pool.take(1 << 20)), "half of it would be wasted"


def test_only_so_much_is_kept() -> None:
    pool = BufferPool(4 << 20)
    views = [pool.take(1 << 20) for _ in range(9)]
    places = {address(view) for view in views}
    views.clear()
    again = [pool.take(1 << 20) for _ in range(4)]
    assert len({address(view) for view in again} & places) == 4
    assert len(pool._kept) == 4


def test_the_free_buffer_that_was_taken_last_is_the_next() -> None:
    pool = BufferPool(8 << 20)
    views = [pool.take(1 << 20) for _ in range(4)]
    places = [address(view) for view in views]
    del views[2], views[0]  # the second and the last are still looked at
    assert address(pool.take(1 << 20)) == places[2]
    assert address(pool.take(1 << 20)) == places[2], "free again at once"


def test_what_was_not_taken_for_longest_is_given_up_first() -> None:
    pool = BufferPool(4 << 20)
    views = [pool.take(1 << 20) for _ in range(4)]
    places = [address(view) for view in views]
    del views[1]
    again = pool.take(1 << 20)  # passes two by that are in use
    assert address(again) == places[1]
    fifth = pool.take(1 << 20)
    kept = [address(memoryview(memory)) for memory in pool._kept]
    assert kept == [places[2], places[3], places[1], address(fifth)]
