"""What the records of consumer groups and of share groups have in common; each room has a table of its own kinds."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

from kohort.coordinator.assignors.spec import PartitionsByTopic
from kohort.coordinator.effects import RecordToWrite
from kohort.coordinator.modern.state import Change
from kohort.wire.compiler.compile import data_codec
from kohort.wire.errors import BadFrame, BadRecord

ChangesByType = Mapping[int, tuple[str, Callable[[Any, Any], Change]]]
"""Type of a record -> the name of its texts in `wire/schema`, and what makes a change of its key and value."""

_SHORT = struct.Struct(">h")


def read_change(kinds: ChangesByType, key: bytes, value: bytes | None) -> tuple[str, Change]:
    """Decodes a record of one of these kinds: the group, and the change to it. Raises BadRecord."""
    record_type: int = _SHORT.unpack_from(key)[0]
    name, decode = kinds[record_type]
    try:
        decoded_key = data_codec(f"{name}_key", 0).decode(key)
        decoded_value = None
        if value is not None:
            version: int = _SHORT.unpack_from(value)[0]
            if version != 0:
                raise BadRecord(
                    f"a record of type {record_type} has value version {version}, known is 0: "
                    "a newer version has written it, and only that version can read it"
                )
            decoded_value = data_codec(f"{name}_value", 0).decode(value)
    except (BadFrame, struct.error) as error:
        raise BadRecord(f"a record of type {record_type} that cannot be read ({error})") from error
    return decoded_key.group_id, decode(decoded_key, decoded_value)


def modern_record(name: str, key: Any, value: Any) -> RecordToWrite:
    """Encodes a record by the name of its texts; a value of None is a tombstone."""
    encoded = None if value is None else data_codec(f"{name}_value", 0).encode(value)
    return RecordToWrite(data_codec(f"{name}_key", 0).encode(key), encoded)


def target_in(value: Any) -> PartitionsByTopic | None:
    """Returns the target in the value of a record of either kind of group."""
    return None if value is None else {t: frozenset(partitions) for t, partitions in value.topic_partitions}
