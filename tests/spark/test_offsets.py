"""Offsets in the form of Spark's checkpoints."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort import TopicPartition
from kohort.spark.offsets import Offsets, from_json, from_spark, to_json

PARTITIONS = st.builds(TopicPartition, st.sampled_from(["a", "b", "orders.eu"]), st.integers(0, 40))
OFFSETS = st.dictionaries(PARTITIONS, st.integers(0, 1 << 62), max_size=12)


def test_compact_with_partitions_in_numeric_order() -> None:
    offsets = {TopicPartition("t", n): 2 for n in (10, 9, 0)}
    assert to_json(offsets) == '{"t":{"0":2,"9":2,"10":2}}'


@given(OFFSETS)
def test_what_is_written_is_what_is_read(offsets: Offsets) -> None:
    assert from_json(to_json(offsets)) == offsets


@given(OFFSETS)
def test_equal_offsets_are_equal_texts(offsets: Offsets) -> None:
    assert to_json(dict(reversed(offsets.items()))) == to_json(offsets)


@pytest.mark.parametrize(
    "wrong", [[], {"t": [1]}, {"t": {"x": 1}}, {"t": {"0": "1"}}, {"t": {"0": True}}, "t"]
)
def test_other_things_are_no_offsets(wrong: object) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        from_spark(wrong)
