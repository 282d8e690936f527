"""Checks changes of quotas and filters for them, with Kafka's rules and texts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from kohort.security.quotas import CLIENT_ID, IP, USER, EntityKey, QuotaKind
from kohort.wire.errors import ErrorCode, KafkaError

_ENTITY_TYPES = (USER, CLIENT_ID, IP)
_OF_CLIENTS = frozenset({QuotaKind.PRODUCE, QuotaKind.FETCH, QuotaKind.REQUEST, QuotaKind.MUTATION})
_OF_ADDRESSES = frozenset({QuotaKind.CONNECTION})
_MOST_WHOLE = {QuotaKind.PRODUCE: 2**63, QuotaKind.FETCH: 2**63, QuotaKind.CONNECTION: 2**31 - 1}
"""The kinds that take whole numbers only, and the largest of each; 2^63 is Java's largest long as a double."""
_FRACTION = 1e-6


def entity_of(pairs: Sequence[tuple[str, str | None]], is_host: Callable[[str], bool]) -> EntityKey:
    """Returns the entity that a change names; KafkaError says what is wrong with it."""
    if not pairs:
        raise _invalid("Invalid empty client quota entity")
    for entity_type, name in pairs:
        if entity_type not in _ENTITY_TYPES:
            raise _invalid(f"Unhandled client quota entity type: {entity_type}")
        if name == "":
            raise _invalid(f"Empty {entity_type} not supported")
    names = dict(pairs)
    if len(names) < len(pairs):
        twice = Counter(entity_type for entity_type, _ in pairs).most_common(1)[0][0]
        raise _invalid(f"Invalid client quota entity, duplicate entity entry {twice}")
    if IP in names:
        if len(names) > 1:
            raise _invalid(
                "Invalid quota entity combination, IP entity should not be combined with User or ClientId"
            )
        address = names[IP]
        if address is not None and not is_host(address):
            raise _invalid(f"{address} is not a valid IP or resolvable host.")
    return tuple(sorted(pairs))


def changed_values(
    entity: EntityKey, now: Mapping[str, float], ops: Sequence[tuple[str, float | None]]
) -> dict[str, float]:
    """Returns the values of an entity after a change, where None removes a key; KafkaError says what is wrong."""
    keys = Counter(key for key, _ in ops)
    if keys and keys.most_common(1)[0][1] > 1:
        raise _invalid(
            f"Duplicate quota key {keys.most_common(1)[0][0]} not updating quota for this entity {_shown(entity)}"
        )
    allowed = _OF_ADDRESSES if entity[0][0] == IP else _OF_CLIENTS
    values = dict(now)
    for key, value in ops:
        if value is None:
            values.pop(key, None)
        else:
            _check_value(key, value, allowed)
            values[key] = value
    return values


def _check_value(key: str, value: float, allowed: Collection[str]) -> None:
    if key not in allowed:
        raise _invalid(f"Invalid configuration key {key}")
    if not value > 0:
        raise _invalid(f"Quota {key} must be greater than 0")
    most = _MOST_WHOLE.get(QuotaKind(key))
    if most is None:
        return
    if value > most:
        raise _invalid(f"Proposed value for {key} is too large for {'an INT' if most < 2**32 else 'a LONG'}.")
    if math.fmod(value, 1.0) > _FRACTION:
        raise _invalid(f"{key} cannot be a fractional value.")


def _shown(entity: EntityKey) -> str:
    return ", ".join(f"{entity_type} {'<default>' if name is None else name}" for entity_type, name in entity)


@dataclass(frozen=True, slots=True)
class QuotaFilter:
    """Which entities are asked for."""

    names: Mapping[str, str | None]
    """Types whose name must be this one; None: the default."""
    types: Collection[str]
    """Types that must be there, with any name."""
    strict: bool
    """Whether no other type may be there."""

    def matches(self, entity: EntityKey) -> bool:
        named = dict(entity)
        if self.strict and len(named) != len(self.names) + len(self.types):
            return False
        return all(
            entity_type in named and named[entity_type] == name for entity_type, name in self.names.items()
        ) and all(entity_type in named for entity_type in self.types)


def filter_of(components: Sequence[tuple[str, int, str | None]], *, strict: bool) -> QuotaFilter:
    """Returns the filter of a DescribeClientQuotas: types, match types (exact, default, any) and names."""
    names: dict[str, str | None] = {}
    types: set[str] = set()
    for entity_type, match_type, match in components:
        if not entity_type:
            raise _invalid("Invalid empty entity type.")
        if entity_type in names or entity_type in types:
            raise _invalid(f"Entity type {entity_type} cannot appear more than once in the filter.")
        if entity_type not in _ENTITY_TYPES:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {entity_type}")
        if match_type not in (0, 1, 2):
            raise _invalid(f"Unknown match type {match_type}")
        if match_type == 0 and match is None:
            raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        if match_type and match is not None:
            name = "MATCH_TYPE_DEFAULT" if match_type == 1 else "MATCH_TYPE_SPECIFIED"
            raise _invalid(f"Request specified {name}, but also specified a match string.")
        if match_type == 2:
            types.add(entity_type)
        else:
            names[entity_type] = match
    asked = {*names, *types}
    if IP in asked and len(asked) > 1:
        raise _invalid(
            "Invalid entity filter component combination. IP filter component should not be used with "
            "user or clientId filter component."
        )
    return QuotaFilter(names, types, strict)


def _invalid(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, text)
