"""Quotas as Kafka has them: which one applies to whom, what was used of it, and how long a client has to wait.

A quota belongs to an entity: a user, a client id, both, or an address; a name of None is the default of its type. The
first of these that has a value for a kind applies, for each kind by itself:

    user and client id > user and any client > user > any user and client id > any user and any client > any user
    > client id > any client

What is used is counted for the user, the client id or the pair that the entity names, as in Kafka: a quota of any user
is shared by all clients of one user, and each user has one of its own. There is no clock here: times are parameters.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias, TypeVar

USER, CLIENT_ID, IP = "user", "client-id", "ip"
FORGOTTEN_AFTER_MS = 3_600_000
MOST_SENSORS = 10_000
"""How many users, client ids and pairs are counted for one kind; the one that was unused for longest is forgotten."""
MOST_THROTTLE_MS = 2**31 - 1
_LOOK_AGAIN_MS = 60_000  # how long the limits of a client may be used before it is noted that they still are

EntityKey: TypeAlias = tuple[tuple[str, str | None], ...]
"""The types and names of an entity, sorted by type; a name of None is the default of its type."""


class QuotaKind(StrEnum):
    """What is limited; the values are the keys of AlterClientQuotas."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_percentage"
    MUTATION = "controller_mutation_rate"
    CONNECTION = "connection_creation_rate"


@dataclass(frozen=True, slots=True)
class QuotaWindow:
    """How many samples are kept, the current one included, and how long one is."""

    samples: int = 11
    sample_ms: int = 1000

    @property
    def whole_s(self) -> float:
        """The whole samples in seconds: what a rate is measured over, at least."""
        return (self.samples - 1) * self.sample_ms / 1000

    @property
    def burst_s(self) -> float:
        return self.samples * self.sample_ms / 1000


# --- what was used ---------------------------------------------------------------------------------------


class RateSensor:
    """A rate over samples of fixed length, as Kafka's Rate of a WindowedSum."""

    __slots__ = ("_current", "_lasts", "_starts", "_values", "_window", "last_used_ms")

    def __init__(self, window: QuotaWindow, now_ms: int) -> None:
        self._window = window
        self._starts: list[int] = []  # of the samples: when they began, when something was last added, what
        self._lasts: list[int] = []
        self._values: list[float] = []
        self._current = 0
        self.last_used_ms = now_ms

    def record(self, value: float, now_ms: int) -> None:
        self.last_used_ms = now_ms
        current = self._current
        if self._starts and now_ms - self._starts[current] >= self._window.sample_ms:
            # One sample more than are counted: one may overlap the beginning of the window.
            self._current = current = (current + 1) % (self._window.samples + 1)
            if current < len(self._starts):
                self._starts[current], self._values[current] = now_ms, 0.0
        if current == len(self._starts):
            self._add_sample(now_ms)
        self._values[current] += value
        self._lasts[current] = now_ms

    def _add_sample(self, now_ms: int) -> None:
        self._starts.append(now_ms)
        self._lasts.append(now_ms)
        self._values.append(0.0)

    def window_ms(self, now_ms: int) -> int:
        """Returns the time that the rate is measured over: at least all whole samples, as far as there were none."""
        if not self._starts:
            self._add_sample(now_ms)
        self._drop_old(now_ms)
        window = self._window
        elapsed = now_ms - min(self._starts)
        missing = window.samples - 1 - elapsed // window.sample_ms
        if missing > 0:
            elapsed += missing * window.sample_ms
        return max(elapsed, 1)

    def rate(self, now_ms: int) -> float:
        window_ms = self.window_ms(now_ms)
        return sum(self._values) / (window_ms / 1000)

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """Returns how long nothing may come until the rate is down at the bound; 0 if it is not above."""
        window_ms = self.window_ms(now_ms)
        rate = sum(self._values) / (window_ms / 1000)
        if rate <= bound:
            return 0
        return _rounded((rate - bound) / bound * window_ms)

    def _drop_old(self, now_ms: int) -> None:
        oldest = now_ms - self._window.samples * self._window.sample_ms
        for number, last in enumerate(self._lasts):
            if last <= oldest:
                self._starts[number] = self._lasts[number] = now_ms
                self._values[number] = 0.0


class TokenBucket:
    """Tokens that come at a rate, up to a burst; it is full at first, and may go below zero."""

    __slots__ = ("_tokens", "_updated_ms", "_window", "last_used_ms")

    def __init__(self, window: QuotaWindow, now_ms: int) -> None:
        self._window = window
        self._tokens = math.inf
        self._updated_ms = self.last_used_ms = now_ms

    def tokens(self, rate: float, now_ms: int) -> float:
        refilled = self._tokens + rate * ((now_ms - self._updated_ms) / 1000)
        self._tokens = min(self._window.burst_s * rate, refilled)
        self._updated_ms = now_ms
        return self._tokens

    def take(self, count: float, rate: float, now_ms: int) -> None:
        self.last_used_ms = now_ms
        self._tokens = self.tokens(rate, now_ms) - count

    def throttle_ms(self, rate: float, now_ms: int) -> int:
        """Returns how long it takes until there are zero tokens again; 0 if there are not fewer."""
        tokens = self.tokens(rate, now_ms)
        return _rounded(-tokens / rate * 1000) if tokens < 0 else 0


def _rounded(ms: float) -> int:
    """Rounds as Java does, and keeps it in the 32 bits that an answer has for it."""
    return int(min(math.floor(ms + 0.5), MOST_THROTTLE_MS))


S = TypeVar("S", RateSensor, TokenBucket)


class Limit:
    """A rate that applies to a client, and what it used of it."""

    __slots__ = ("_longest_ms", "_sensor", "bound")

    def __init__(self, sensor: RateSensor, bound: float, longest_ms: int = MOST_THROTTLE_MS) -> None:
        self._sensor, self.bound, self._longest_ms = sensor, bound, longest_ms

    def charge(self, value: float, now_ms: int) -> int:
        """Counts what was used, and returns for how many ms the client is throttled."""
        self._sensor.record(value, now_ms)
        return min(self._sensor.throttle_ms(self.bound, now_ms), self._longest_ms)

    def count(self, value: float, now_ms: int) -> None:
        """Counts what was used for later; a negative value takes back what was charged."""
        self._sensor.record(value, now_ms)


class MutationQuota:
    """The controller mutation quota during one request.

    A strict one refuses a change once the bucket is below zero. The others, for versions of requests that cannot be
    told so, let it happen and throttle for it.
    """

    __slots__ = ("_at_ms", "_bucket", "_rate", "_strict", "_throttle_ms")

    def __init__(self, bucket: TokenBucket, rate: float, *, strict: bool) -> None:
        self._bucket, self._rate, self._strict = bucket, rate, strict
        self._throttle_ms = self._at_ms = 0

    def take(self, partitions: int, now_ms: int) -> bool:
        """Pays for partitions that are made or deleted; False if that is refused."""
        bucket, rate = self._bucket, self._rate
        if self._strict:
            wait_ms = bucket.throttle_ms(rate, now_ms)
            if wait_ms or bucket.tokens(rate, now_ms) < 0:
                self._throttle_ms, self._at_ms = wait_ms, now_ms
                return False
            bucket.take(partitions, rate, now_ms)
            return True
        bucket.take(partitions, rate, now_ms)
        wait_ms = bucket.throttle_ms(rate, now_ms)
        if wait_ms:
            self._throttle_ms, self._at_ms = wait_ms, now_ms
        return True

    def throttle_ms(self, now_ms: int) -> int:
        """Returns what is left of the wait that a change was refused or throttled with."""
        return max(0, self._throttle_ms - (now_ms - self._at_ms))


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """The limits that apply to one user with one client id; None where there is none."""

    produce: Limit | None = None
    fetch: Limit | None = None
    request: Limit | None = None
    bucket: TokenBucket | None = None
    mutation_rate: float = math.inf
    most_fetch_bytes: int = MOST_THROTTLE_MS
    """More bytes in one Fetch would always be throttled."""


class QuotaBook:
    """All quotas of a node, and what was used of them. Times are of one steady clock."""

    def __init__(self, window: QuotaWindow, mutation_window: QuotaWindow) -> None:
        self._window, self._mutation_window = window, mutation_window
        self._entities: dict[EntityKey, dict[str, float]] = {}
        self._rates: dict[QuotaKind, OrderedDict[tuple[str, str], RateSensor]] = {
            kind: OrderedDict() for kind in QuotaKind
        }
        self._buckets: OrderedDict[tuple[str, str], TokenBucket] = OrderedDict()
        self._limits: dict[tuple[str, str], tuple[int, ClientLimits]] = {}
        self._addresses = 0  # how many of the entities are addresses

    def __bool__(self) -> bool:
        return bool(self._entities)

    def put(self, entity: EntityKey, values: Mapping[str, float]) -> None:
        """Sets all quotas of an entity; no values remove it. What clients have used is kept."""
        is_address = entity[0][0] == IP
        if self._entities.pop(entity, None) is not None:
            self._addresses -= is_address
        if values:
            self._entities[entity] = dict(values)
            self._addresses += is_address
        self._limits.clear()

    # --- users and client ids ----------------------------------------------------------------------

    def limits(self, user: str, client_id: str, now_ms: int) -> ClientLimits:
        """Returns what applies to a client now."""
        found = self._limits.get((user, client_id))
        if found is not None and now_ms - found[0] < _LOOK_AGAIN_MS:
            return found[1]
        if len(self._limits) >= MOST_SENSORS:
            self._limits.clear()
        made = self._made(user, client_id, now_ms)
        self._limits[user, client_id] = now_ms, made
        return made

    def _made(self, user: str, client_id: str, now_ms: int) -> ClientLimits:
        rates: list[Limit | None] = []
        for kind in (QuotaKind.PRODUCE, QuotaKind.FETCH, QuotaKind.REQUEST):
            found = self._applying(kind, user, client_id)
            if found is None:
                rates.append(None)
                continue
            key, bound = found
            longest_ms = self._window.sample_ms if kind is QuotaKind.REQUEST else MOST_THROTTLE_MS
            rates.append(Limit(self._rate_sensor(kind, key, now_ms), bound, longest_ms))
        produce, fetch, request = rates
        most = MOST_THROTTLE_MS if fetch is None else int(min(fetch.bound * self._window.whole_s, 2**31 - 1))
        mutations = self._applying(QuotaKind.MUTATION, user, client_id)
        if mutations is None:
            return ClientLimits(produce, fetch, request, most_fetch_bytes=most)
        bucket = _kept(self._buckets, mutations[0], now_ms)
        if bucket is None:
            bucket = self._buckets[mutations[0]] = TokenBucket(self._mutation_window, now_ms)
        return ClientLimits(produce, fetch, request, bucket, mutations[1], most)

    def _applying(self, kind: QuotaKind, user: str, client_id: str) -> tuple[tuple[str, str], float] | None:
        """Returns whose use is counted, and the bound; None if no quota applies. No quota names an empty client id."""
        pair, of_user, of_client = (user, client_id), (user, ""), ("", client_id)
        order: list[tuple[EntityKey, tuple[str, str]]] = []
        for a_user in (user, None):
            if client_id:
                order.append((((CLIENT_ID, client_id), (USER, a_user)), pair))
                order.append((((CLIENT_ID, None), (USER, a_user)), pair))
            order.append((((USER, a_user),), of_user))
        if client_id:
            order += [(((CLIENT_ID, name),), of_client) for name in (client_id, None)]
        for entity, counted in order:
            bound = self._entities.get(entity, _NOTHING).get(kind)
            if bound is not None:
                return counted, bound
        return None

    # --- addresses ---------------------------------------------------------------------------------

    @property
    def limits_connections(self) -> bool:
        return self._addresses > 0

    def connect(self, address: str, now_ms: int) -> int:
        """Counts a new connection; returns for how long it is held instead, which takes the count back, or 0."""
        values = self._entities.get(((IP, address),), _NOTHING)
        bound = values.get(
            QuotaKind.CONNECTION, self._entities.get(((IP, None),), _NOTHING).get(QuotaKind.CONNECTION)
        )
        if bound is None:
            return 0
        sensor = self._rate_sensor(QuotaKind.CONNECTION, (address, ""), now_ms)
        limit = Limit(sensor, bound, self._window.sample_ms)
        throttle_ms = limit.charge(1, now_ms)
        if throttle_ms:
            limit.count(-1, now_ms)
        return throttle_ms

    def _rate_sensor(self, kind: QuotaKind, key: tuple[str, str], now_ms: int) -> RateSensor:
        sensors = self._rates[kind]
        sensor = _kept(sensors, key, now_ms)
        if sensor is None:
            sensor = sensors[key] = RateSensor(self._window, now_ms)
        return sensor

    def forget_unused(self, now_ms: int) -> None:
        """Forgets what was used by those who used nothing for an hour."""
        oldest_ms = now_ms - FORGOTTEN_AFTER_MS
        for rates in self._rates.values():
            for key in [key for key, sensor in rates.items() if sensor.last_used_ms <= oldest_ms]:
                del rates[key]
        for key in [key for key, bucket in self._buckets.items() if bucket.last_used_ms <= oldest_ms]:
            del self._buckets[key]
        self._limits.clear()

    @property
    def sensor_count(self) -> int:
        return sum(map(len, self._rates.values())) + len(self._buckets)


_NOTHING: Mapping[str, float] = {}


def _kept(sensors: OrderedDict[tuple[str, str], S], key: tuple[str, str], now_ms: int) -> S | None:
    """Returns a sensor that was used lately, and keeps it for longer; makes room for a new one if there is none."""
    sensor = sensors.get(key)
    if sensor is not None and now_ms - sensor.last_used_ms < FORGOTTEN_AFTER_MS:
        sensors.move_to_end(key)
        return sensor
    sensors.pop(key, None)
    while len(sensors) >= MOST_SENSORS:
        sensors.popitem(last=False)
    return None
