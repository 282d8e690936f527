"""The key of a record in `__consumer_offsets` that holds the topics that a regular expression of a consumer group matches.

Generated from schema/consumer_group_regular_expression_key.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from typing import NamedTuple


class ConsumerGroupRegularExpressionKey(NamedTuple):
    group_id: str = ""
    regular_expression: str = ""
