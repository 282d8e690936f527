"""Its value: the topics that a regular expression of a consumer group matches.

Generated from schema/consumer_group_regular_expression_value.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from typing import NamedTuple


class ConsumerGroupRegularExpressionValue(NamedTuple):
    topics: tuple[str, ...] = ()
    version: int = 0
    timestamp: int = 0
