"""Lists what Kafka has and Kohort has not yet, and logs one warning for each client that asks for it.

The client's own messages do not say so: a refused share group reads like a missing right, an unknown request like a
broken connection. The answers on the wire stay as they are; the log tells the operator of the broker.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

log = logging.getLogger("kohort.broker")

_STREAMS_GROUPS = "streams groups (KIP-1071)"
_TOKENS = "delegation tokens"
_CLUSTERS = "clusters of several nodes"
_TELEMETRY = "client metrics (KIP-714)"

_APIS = {
    38: ("CreateDelegationToken", _TOKENS),
    39: ("RenewDelegationToken", _TOKENS),
    40: ("ExpireDelegationToken", _TOKENS),
    41: ("DescribeDelegationToken", _TOKENS),
    64: ("UnregisterBroker", _CLUSTERS),
    71: ("GetTelemetrySubscriptions", _TELEMETRY),
    72: ("PushTelemetry", _TELEMETRY),
    80: ("AddRaftVoter", _CLUSTERS),
    81: ("RemoveRaftVoter", _CLUSTERS),
    88: ("StreamsGroupHeartbeat", _STREAMS_GROUPS),
    89: ("StreamsGroupDescribe", _STREAMS_GROUPS),
}
"""API key -> its name, and the feature it belongs to. APIs that only nodes use among themselves are left out."""

_AGAIN_AFTER_MS = 3_600_000
_MOST_REMEMBERED = 1000
_MOST_A_MINUTE = 20
_LONGEST_ID = 100


def api_of(key: int) -> tuple[str, str] | None:
    """Returns name and feature of an API that Kafka has and Kohort has not; None if Kafka has no API of this key."""
    return _APIS.get(key)


@dataclass(slots=True)
class Missing:
    """Remembers which warnings were logged; its size is bounded, whatever ids clients use."""

    _told_ms: dict[tuple[str | None, str], int] = field(default_factory=dict)
    _minute: int = -1
    _in_this_minute: int = 0

    def tell(self, feature: str, what: str, client_id: str | None, peer: str, now_ms: int) -> None:
        """Logs that a client was refused `what`, because the feature is not there."""
        if self._is_news(client_id, feature, now_ms):
            log.warning(
                "%s at %s asked for %s (%s): Kohort does not have that yet and refused it; "
                "what the client itself reports may sound like missing rights or a broken connection",
                _named(client_id),
                peer,
                feature,
                what,
            )

    def _is_news(self, client_id: str | None, feature: str, now_ms: int) -> bool:
        """Tells whether to log: once per client id and feature, again after an hour, and only a few per minute."""
        who = (None if client_id is None else client_id[:_LONGEST_ID], feature)
        last_ms = self._told_ms.get(who)
        if last_ms is not None and now_ms - last_ms < _AGAIN_AFTER_MS:
            return False
        minute = now_ms // 60_000
        if minute != self._minute:
            self._minute, self._in_this_minute = minute, 0
        self._in_this_minute += 1
        if self._in_this_minute > _MOST_A_MINUTE:
            if self._in_this_minute == _MOST_A_MINUTE + 1:
                log.warning(
                    "more clients ask for what Kohort does not have yet; they are not named for a minute"
                )
            return False
        self._told_ms.pop(who, None)
        self._told_ms[who] = now_ms
        if len(self._told_ms) > _MOST_REMEMBERED:
            del self._told_ms[next(iter(self._told_ms))]
        return True


def _named(client_id: str | None) -> str:
    return "a client without an id" if client_id is None else f"client {client_id[:_LONGEST_ID]!r}"
