"""Keys and values of `__consumer_offsets`: the bytes are Kafka's."""

import importlib
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.coordinator.records import (
    CommittedOffset,
    decode_offset,
    group_key,
    group_record,
    group_tombstone,
    offset_key,
    offset_record,
    offset_records,
)
from kohort.coordinator.settings import partition_for
from kohort.wire.compiler.compile import data_codec
from kohort.wire.compiler.notation import all_data
from kohort.wire.errors import BadRecord
from kohort.wire.group_records import (
    RECORD_TYPES,
    decode_group_metadata,
    decode_key,
    decode_modern_key,
    decode_modern_value,
    modern_record_type,
)
from kohort.wire.messages.consumer_group_current_member_assignment_value import (
    ConsumerGroupCurrentMemberAssignmentValue as CurrentAssignment,
)
from kohort.wire.messages.consumer_group_current_member_assignment_value import TopicPartitions
from kohort.wire.messages.consumer_group_member_metadata_value import ConsumerGroupMemberMetadataValue
from kohort.wire.messages.group_metadata_key import GroupMetadataKey
from kohort.wire.messages.group_metadata_value import GroupMetadataValue, MemberMetadata
from kohort.wire.messages.offset_commit_key import OffsetCommitKey
from kohort.wire.messages.offset_commit_value import OffsetCommitValue


def test_an_offset_commit_is_written_as_version_4() -> None:
    """As Kafka 4.3 writes it, with the id of the topic, or without if it is not known."""
    key, value = offset_record("g", "t", 7, CommittedOffset(5, 2, "m", 9, -1, bytes(range(1, 17))))
    assert key == bytes.fromhex("0001 0001 67 0001 74 00000007")
    start = "0004 0000000000000005 00000002 02 6d 0000000000000009"
    assert value == bytes.fromhex(f"{start} 01 00 10 0102030405060708090a0b0c0d0e0f10")
    _, without = offset_record("g", "t", 7, CommittedOffset(5, 2, "m", 9))
    assert without == bytes.fromhex(f"{start} 00")


def test_an_offset_commit_with_its_own_retention_is_written_as_version_1() -> None:
    _, value = offset_record("g", "t", 7, CommittedOffset(5, 2, "m", 9, 10))
    assert value == bytes.fromhex("0001 0000000000000005 0001 6d 0000000000000009 000000000000000a")


def test_a_group_is_written_as_version_3() -> None:
    member = MemberMetadata("a", None, "c", "/h", 60_000, 10_000, b"sub", b"")
    key, value = group_record("g", GroupMetadataValue("consumer", 4, "range", "a", 8, (member,)))
    assert key == bytes.fromhex("0002 0001 67")
    assert value == (
        bytes.fromhex("0003 0008") + b"consumer" + bytes.fromhex("00000004 0005") + b"range"
        + bytes.fromhex("0001 61 0000000000000008 00000001")
        + bytes.fromhex("0001 61 ffff 0001 63 0002 2f68 0000ea60 00002710 00000003 737562 00000000")
    )  # fmt: skip


def test_a_tombstone_has_the_key_alone() -> None:
    assert group_tombstone("g") == (group_key("g"), None)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0000 0000000000000005 0001 6d 0000000000000009", CommittedOffset(5, -1, "m", 9)),
        (
            "0001 0000000000000005 0001 6d 0000000000000009 000000000000000b",
            CommittedOffset(5, -1, "m", 9, 11),
        ),
        ("0002 0000000000000005 0001 6d 0000000000000009", CommittedOffset(5, -1, "m", 9)),
        ("0003 0000000000000005 00000002 0001 6d 0000000000000009", CommittedOffset(5, 2, "m", 9)),
        # flexible, with the topic id as tag 0
        (
            "0004 0000000000000005 00000002 02 6d 0000000000000009 01 00 10" + "ab" * 16,
            CommittedOffset(5, 2, "m", 9, -1, b"\xab" * 16),
        ),
        (
            "0004 0000000000000005 00000002 01 0000000000000009 01 00 10" + "ab" * 16,
            CommittedOffset(5, 2, "", 9, -1, b"\xab" * 16),
        ),
        ("0004 0000000000000005 00000002 01 0000000000000009 00", CommittedOffset(5, 2, "", 9)),
        ("0003 0000000000000005 00000002 0000 0000000000000009", CommittedOffset(5, 2, "", 9)),
    ],
)
def test_every_version_of_an_offset_commit_is_read(value: str, expected: CommittedOffset) -> None:
    assert decode_offset(bytes.fromhex(value)) == expected


def test_every_version_of_a_group_is_read() -> None:
    def text(s: str) -> bytes:
        return struct.pack(">h", len(s)) + s.encode()

    def data(b: bytes) -> bytes:
        return struct.pack(">i", len(b)) + b

    start = text("consumer") + struct.pack(">i", 4) + text("range") + text("a")
    end = struct.pack(">i", 10_000) + data(b"sub") + data(b"ass")
    count = struct.pack(">i", 1)
    when, rebalance = struct.pack(">q", 8), struct.pack(">i", 60_000)
    names = text("c") + text("/h")
    v0 = b"\0\0" + start + count + text("a") + names + end
    v1 = b"\0\1" + start + count + text("a") + names + rebalance + end
    v2 = b"\0\2" + start + when + count + text("a") + names + rebalance + end
    v3 = b"\0\3" + start + when + count + text("a") + text("i") + names + rebalance + end
    v4 = (
        b"\0\4\x09consumer" + struct.pack(">i", 4) + b"\x06range\x02a" + when + b"\x02"
        + b"\x02a\x02i\x02c\x03/h" + rebalance + struct.pack(">i", 10_000) + b"\x04sub\x04ass\0\0"
    )  # fmt: skip
    member = MemberMetadata("a", None, "c", "/h", 60_000, 10_000, b"sub", b"ass")
    static = member._replace(group_instance_id="i")
    group = GroupMetadataValue("consumer", 4, "range", "a", 8, (static,))
    assert decode_group_metadata(v4) == group
    assert decode_group_metadata(v3) == group
    assert decode_group_metadata(v2) == group._replace(members=(member,))
    assert decode_group_metadata(v1) == group._replace(members=(member,), current_state_timestamp_ms=-1)
    without = member._replace(rebalance_timeout_ms=10_000)
    assert decode_group_metadata(v0) == group._replace(members=(without,), current_state_timestamp_ms=-1)


def test_keys_of_other_kinds_are_told_by_their_version() -> None:
    assert decode_key(bytes.fromhex("0003 0001 67")) == 3
    assert decode_key(offset_key("g", "t", 1)) == OffsetCommitKey("g", "t", 1)
    assert decode_key(b"\0\0" + offset_key("g", "t", 1)[2:]) == OffsetCommitKey("g", "t", 1)


def test_a_newer_value_version_says_what_to_do() -> None:
    with pytest.raises(BadRecord, match=r"value version 5, known are 0 to 4.*only that version can read it"):
        decode_offset(bytes.fromhex("0005") + bytes(30))


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
members = st.builds(
    MemberMetadata, text, st.none() | text, text, text, int32.filter(lambda i: i != -1), int32,
    st.binary(max_size=50), st.binary(max_size=50),
)  # fmt: skip
groups = st.builds(
    GroupMetadataValue,
    text,
    int32,
    st.none() | text,
    st.none() | text,
    int64,
    st.lists(members, max_size=4).map(tuple),
)


@given(text, groups)
def test_groups_come_back_as_they_were(group_id: str, group: GroupMetadataValue) -> None:
    key, value = group_record(group_id, group)
    assert decode_key(key) == GroupMetadataKey(group_id)
    assert value is not None
    assert decode_group_metadata(value) == group


topic_ids = st.just(bytes(16)) | st.binary(min_size=16, max_size=16)


@given(st.builds(CommittedOffset, int64, int32, text, int64, st.just(-1), topic_ids))
def test_offsets_come_back_as_they_were(committed: CommittedOffset) -> None:
    _, value = offset_record("g", "t", 0, committed)
    assert value is not None
    assert decode_offset(value) == committed


@given(
    text,
    st.lists(st.tuples(text, int32), max_size=4),
    st.builds(CommittedOffset, int64, int32, st.just("") | text, int64, st.just(-1), topic_ids),
)
def test_the_short_way_of_a_commit_writes_what_the_codec_writes(
    group_id: str, keys: list[tuple[str, int]], committed: CommittedOffset
) -> None:
    key, value = data_codec("offset_commit_key", 0), data_codec("offset_commit_value", 4)
    expected = [
        (key.encode(OffsetCommitKey(group_id, *each)), value.encode(OffsetCommitValue(*committed)))
        for each in keys
    ]
    assert list(offset_records(group_id, keys, [committed] * len(keys))) == expected


@given(st.binary(max_size=60))
def test_damaged_values_are_bad_records_and_nothing_else(value: bytes) -> None:
    for decode in (decode_group_metadata, decode_offset, decode_key):
        try:
            decode(value)
        except BadRecord:
            pass


KAFKA = [
    line.split(" ", 3)
    for line in (Path(__file__).parent / "kafka" / "records-4.3.1.txt").read_text().splitlines()
    if line.startswith(("o ", "g "))
]


@pytest.mark.parametrize(("kind", "version", "key", "value"), KAFKA)
def test_records_that_kafka_wrote_are_read(kind: str, version: str, key: str, value: str) -> None:
    found_key, data = decode_key(bytes.fromhex(key)), bytes.fromhex(value)
    if kind == "o":
        v = int(version)
        expires = 1_800_000_000_000 if v == 1 else -1
        epoch = 7 if v >= 3 else -1
        assert found_key == OffsetCommitKey("grüppe", "topic", 3)
        topic_id = bytes(15) + b"\1" if v >= 4 else bytes(16)
        committed = CommittedOffset(1_234_567_890_123, epoch, "mäta", 1_700_000_000_000, expires, topic_id)
        assert decode_offset(data) == committed
        if v in (1, 4):
            assert offset_record(*found_key, committed) == (bytes.fromhex(key), data)
    elif version == "e":
        assert decode_group_metadata(data) == GroupMetadataValue("", 2, None, None, 99, ())
    else:
        v = int(version)
        assert found_key == GroupMetadataKey("grüppe")
        rebalance, instance = (60_000 if v >= 1 else 10_000), ("inst" if v >= 3 else None)
        member = MemberMetadata("m-1", instance, "c", "/h", rebalance, 10_000, b"\1\2", b"\3")
        group = GroupMetadataValue("consumer", 5, "range", "m-1", 99 if v >= 2 else -1, (member,))
        assert decode_group_metadata(data) == group
        if v == 3:
            assert group_record("grüppe", group) == (bytes.fromhex(key), data)


def test_groups_live_in_the_partitions_where_kafka_has_them() -> None:
    path = Path(__file__).parent / "kafka" / "records-4.3.1.txt"
    rows = [line.split(" ", 2)[1:] for line in path.read_text().splitlines() if line.startswith("p ")]
    assert len(rows) == 7
    for partition, group_id in rows:
        assert partition_for(group_id, 50) == int(partition)


MODERN = [number for number in RECORD_TYPES if 3 <= number <= 16 and number != 9]


@pytest.mark.parametrize("record_type", MODERN, ids=lambda number: RECORD_TYPES[number])
def test_records_of_consumer_and_share_groups_are_read_by_their_schema(record_type: int) -> None:
    specs = {spec.name: (module, spec) for module, spec in all_data().items()}
    name = RECORD_TYPES[record_type]
    (key_module, _), (value_module, _) = specs[f"{name}Key"], specs[f"{name}Value"]
    key = data_codec(key_module, 0).decode(record_type.to_bytes(2, "big") + b"\0\1g" + b"\0\1m")
    encoded = data_codec(key_module, 0).encode(key)
    assert modern_record_type(encoded) == record_type
    assert decode_modern_key(encoded) == key
    empty = getattr(importlib.import_module(f"kohort.wire.messages.{value_module}"), f"{name}Value")()
    value = data_codec(value_module, 0).encode(empty)
    assert decode_modern_value(record_type, value) == empty
    with pytest.raises(BadRecord, match=f"a {name} has value version 1, known are 0 to 0"):
        decode_modern_value(record_type, b"\0\1" + value[2:])
    with pytest.raises(BadRecord):
        decode_modern_value(record_type, value[:-1])
    with pytest.raises(BadRecord):
        decode_modern_key(encoded[:3])


def test_records_of_classic_and_streams_groups_are_not_modern() -> None:
    assert {number for number in RECORD_TYPES if modern_record_type(number.to_bytes(2, "big"))} == set(MODERN)


def test_a_null_of_a_tagged_field_is_written_as_kafka_writes_it() -> None:
    """Kafka's JSON says `"default": null` without quotes: the default is empty, and null is a value of its own."""
    epochs = data_codec("consumer_group_current_member_assignment_value", 0)
    for value in (None, (), (7,)):
        written = CurrentAssignment(assigned_partitions=(TopicPartitions(bytes(16), (1,), value),))
        assert epochs.decode(epochs.encode(written)) == written
    member = data_codec("consumer_group_member_metadata_value", 0)
    assert member.encode(ConsumerGroupMemberMetadataValue()).endswith(b"\0")
    assert member.encode(ConsumerGroupMemberMetadataValue(classic_member_metadata=None)).endswith(b"\1\0\1\0")
