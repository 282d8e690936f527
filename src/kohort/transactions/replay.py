"""The durable state of a transaction shard: what the records of its partition say.

`DurableTransactions.apply` alone writes it, when a partition is loaded and when a write of our own is durable.
"""

from __future__ import annotations

from collections.abc import Mapping

from kohort.transactions.metadata import TransactionMetadata, decode_id, decode_metadata


class DurableTransactions:
    """The transactional ids that the log knows, and nothing more."""

    __slots__ = ("_known", "skipped")

    def __init__(self) -> None:
        self._known: dict[str, TransactionMetadata] = {}
        self.skipped = 0
        """How many records of newer versions were passed over."""

    @property
    def known(self) -> Mapping[str, TransactionMetadata]:
        return self._known

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Applies a record. Raises BadRecord."""
        transactional_id = decode_id(key)
        if transactional_id is None:
            self.skipped += 1
        elif value is None:
            self._known.pop(transactional_id, None)
        elif (metadata := decode_metadata(value)) is None:
            self.skipped += 1
        else:
            self._known[transactional_id] = metadata
