"""What a member of an eager group with the sticky assignor says about the partitions that it had.

Generated from schema/sticky_assignor_user_data.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from typing import NamedTuple


class TopicAssignment(NamedTuple):
    topic: str = ""
    partitions: tuple[int, ...] = ()


class StickyAssignorUserData(NamedTuple):
    previous_assignment: tuple[TopicAssignment, ...] = ()
    generation: int = -1
