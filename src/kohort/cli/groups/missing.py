"""The error of a group that is not there."""

from __future__ import annotations

from kohort.wire.errors import ErrorCode, KafkaError


def no_group(group_id: str) -> KafkaError:
    """Returns the error that says where the names of groups are."""
    return KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}; `kohort groups list` names all"
    )
