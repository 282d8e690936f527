"""Remembers whom the broker refused: who fails often waits longer, and the log gets one line a minute for each reason.

What is remembered is bounded, however many addresses there are.
"""

from __future__ import annotations

import logging
import re
from ipaddress import ip_address

log = logging.getLogger("kohort.broker")

_LONGEST_PAUSE_MS = 5_000
_FORGIVEN = 4
"""So many failures in a row wait no longer than the first: a client that was given a wrong password tries again too."""
_FORGOTTEN_AFTER_MS = 30_000
_BETWEEN_LINES_MS = 60_000
_MOST_REMEMBERED = 4_096
_DETAILS = re.compile(r"'[^']*'|\"[^\"]*\"|[0-9]+")


class Refusals:
    """The failures and the lines of one broker, by address. `now_ms` is a steady time."""

    def __init__(self) -> None:
        self._failures: dict[str, tuple[int, int]] = {}  # how many in a row, and when the last one was
        self._lines: dict[
            tuple[str, str], tuple[int, int]
        ] = {}  # when the last was written, how many were not

    def pause_ms(self, address: str, first_ms: int, now_ms: int) -> int:
        """Counts a failed authentication, and returns how long its answer and the close wait."""
        network = network_of(address)
        count, last_ms = self._failures.pop(network, (0, now_ms))
        count = count + 1 if now_ms - last_ms < _FORGOTTEN_AFTER_MS else 1
        self._failures[network] = count, now_ms
        _forget_oldest(self._failures)
        return min(first_ms << min(max(count - _FORGIVEN, 0), 16), max(_LONGEST_PAUSE_MS, first_ms))

    def tell(self, peer: str, address: str, reason: str, now_ms: int) -> None:
        """Writes why a connection is closed, unless the same was written for this address in the last minute."""
        key = network_of(address), _DETAILS.sub("", reason)
        last_ms, untold = self._lines.get(key, (None, 0))
        if last_ms is not None and now_ms - last_ms < _BETWEEN_LINES_MS:
            self._lines[key] = last_ms, untold + 1
            return
        more = f" ({untold} more of its kind in the last minutes)" if untold else ""
        log.warning("closing the connection of %s: %s%s", peer, reason, more)
        self._lines.pop(key, None)
        self._lines[key] = now_ms, 0
        _forget_oldest(self._lines)


def network_of(address: str) -> str:
    """Returns what one client can have: an address of IPv4, or the 64 bits of a network of IPv6."""
    if ":" not in address:
        return address
    try:
        return ip_address(address.partition("%")[0]).exploded[:19]
    except ValueError:
        return address


def _forget_oldest(remembered: dict[str, tuple[int, int]] | dict[tuple[str, str], tuple[int, int]]) -> None:
    if len(remembered) > _MOST_REMEMBERED:
        del remembered[next(iter(remembered))]  # type: ignore[arg-type]
