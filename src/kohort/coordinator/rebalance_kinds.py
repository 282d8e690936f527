"""Sorts the reasons of rebalances, which are sentences, into a few kinds that metrics can count.

A sentence holds names and words that clients chose, so a pattern looks at the part that the coordinator itself wrote.
"""

from __future__ import annotations

import re
from typing import Final

OTHER: Final = "other"
"""Somebody asked for it in words of their own, as the testing kit does."""

# The first pattern that is found decides. A client's own words stand at the end, so the patterns are anchored where a
# name could look like one of them.
_PATTERNS: Final = tuple(
    (kind, re.compile(pattern, re.DOTALL))
    for kind, pattern in (
        ("group_too_large", r"^loaded with \d+ members, more than group\.max\.size \d+$"),
        ("write_failed", r"^the assignment could not be written: [A-Z_]+$"),
        ("static_member_replaced", r"^the static member .* came back as "),
        ("leader_rejoined", r"^the leader .* rejoined(?: \(it says: |$)"),
        ("session_expired", r": session expired after -?\d+ ms without a heartbeat$"),
        ("sync_timeout", r" did not sync in time$"),
        ("metadata_changed", r"^\S.* changed its metadata(?: \(it says: |$)"),
        ("revocation_timeout", r": did not give up its partitions within -?\d+ ms$"),
        ("rejoin_timeout", r": did not join again within its rebalance timeout$"),
        ("subscription_changed", r"^\S.* changed its subscription$"),
        ("topics_changed", r"^the topics that .* changed$"),
        ("protocol_changed", r"^\S.* joined with the classic protocol, as the last one$"),
        ("member_joined", r"^\S.* joined(?: \(it says: |$)"),
        ("member_left", r"^\S.* left(?:: |; |$)"),
    )
)

KINDS: Final = (*sorted(kind for kind, _ in _PATTERNS), OTHER)


def kind_of(reason: str) -> str:
    """Returns the kind of a reason, one of KINDS."""
    for kind, pattern in _PATTERNS:
        if pattern.search(reason):
            return kind
    return OTHER
