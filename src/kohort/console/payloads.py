"""Keys, values and headers of messages as JSON can carry them: text where they are text, base64 where they are not."""

from __future__ import annotations

import base64
import codecs
import re

from kohort.client.records import Record
from kohort.console.models import HeaderRow, MessageRow, Payload

VALUE_BYTES, KEY_BYTES, HEADER_BYTES = 16 << 10, 4 << 10, 1 << 10
"""How much of each a list of messages shows."""
WHOLE_BYTES = 1 << 20
"""How much of each the answer about one message shows; the download has all of it."""
MOST_HEADERS = 100
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")


def payload_of(data: bytes | None, most: int) -> Payload | None:
    """Returns the beginning of what a message carries; as base64 if it is not text."""
    if data is None:
        return None
    cut = bytes(data[:most])
    truncated = len(data) > most
    try:
        # A character at the cut may be incomplete; it is left out.
        text = codecs.getincrementaldecoder("utf-8")().decode(cut, final=not truncated)
    except UnicodeDecodeError:
        text = None
    if text is None or _UNPRINTABLE.search(text):
        encoded = base64.b64encode(cut).decode("ascii")
        return Payload(text=encoded, encoding="base64", size=len(data), truncated=truncated)
    return Payload(text=text, encoding="utf-8", size=len(data), truncated=truncated)


def message_row(record: Record, *, whole: bool = False) -> MessageRow:
    """Makes the row of a message; `whole` shows more of it."""
    known = record.timestamp >= 0 and record.timestamp_type in (0, 1)
    return MessageRow(
        partition=record.partition,
        offset=record.offset,
        timestamp_ms=record.timestamp if record.timestamp >= 0 else None,
        timestamp_type=_TIMESTAMP_TYPES[record.timestamp_type] if known else None,  # type: ignore[arg-type]
        key=payload_of(record.key, WHOLE_BYTES if whole else KEY_BYTES),
        value=payload_of(record.value, WHOLE_BYTES if whole else VALUE_BYTES),
        headers=[
            HeaderRow(name=name, value=payload_of(value, HEADER_BYTES))
            for name, value in record.header_pairs[:MOST_HEADERS]
        ],
        headers_total=len(record.header_pairs),
    )


def holds(record: Record, wanted: bytes) -> bool:
    """Says whether key, value or a header has these bytes; ASCII letters may be of either case. `wanted` is lower."""
    parts = [record.key, record.value]
    for name, value in record.header_pairs:
        parts += [name.encode(), value]
    return any(part is not None and wanted in bytes(part).lower() for part in parts)
