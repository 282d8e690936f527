"""The key of a record in `__consumer_offsets` that holds a generation of a classic group.

Generated from schema/group_metadata_key.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from typing import NamedTuple


class GroupMetadataKey(NamedTuple):
    group: str = ""
