"""The key of a record in `__transaction_state`.

Generated from schema/transaction_log_key.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from typing import NamedTuple


class TransactionLogKey(NamedTuple):
    transactional_id: str = ""
