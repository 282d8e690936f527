"""Reads the option `where`: SQL conditions on topic, partition, offset and timestamp, joined by AND.

    timestamp >= '2026-11-16T10:00:00Z' AND partition IN (0, 1) AND topic LIKE 'orders-%'

A time is written in ISO 8601 with its zone, or as milliseconds since 1970: the source does not know the time zone of a
session. What cannot be read is a ValueError that says where and what is right.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable

from kohort.spark.restriction import EVERYTHING, HIGHEST, LOWEST, NumberSet, Restriction, TopicCondition

COLUMNS = ("topic", "partition", "offset", "timestamp")
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_TOKENS = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<number>-?\d+(?![\w.]))|(?P<word>`\w+`|[A-Za-z_]\w*)"
    r"|(?P<sign><=|>=|<>|!=|==|=|<|>|\(|\)|,))"
)
_NEGATIONS = {"!=": "=", "<>": "="}
_SETS: dict[str, Callable[[int], NumberSet]] = {
    "=": lambda value: NumberSet.of([value]),
    "==": lambda value: NumberSet.of([value]),
    "<": lambda value: NumberSet.between(LOWEST, value - 1),
    "<=": lambda value: NumberSet.between(LOWEST, value),
    ">": lambda value: NumberSet.between(value + 1, HIGHEST),
    ">=": lambda value: NumberSet.between(value, HIGHEST),
}
Token = tuple[str, str]
_END: Token = ("end", "")


def read_condition(text: str) -> Restriction:
    """The records that a condition admits; ValueError says what is wrong with it."""
    reading = _Reading(text)
    found = EVERYTHING
    while True:
        found &= reading.condition()
        if reading.at_end():
            return found
        reading.expect("and")


class _Reading:
    """A text and how far it is read."""

    def __init__(self, text: str) -> None:
        self._text, self._tokens, position = text, list[Token](), 0
        while text[position:].strip():
            match = _TOKENS.match(text, position)
            if match is None:
                raise ValueError(f"cannot read {text[position:].strip()!r} in {text!r}")
            assert match.lastgroup is not None
            self._tokens.append((match.lastgroup, match[match.lastgroup]))
            position = match.end()
        self._next = 0

    # --- tokens ---------------------------------------------------------------------------------------

    def at_end(self) -> bool:
        return self._next >= len(self._tokens)

    def take(self) -> Token:
        token = _END if self.at_end() else self._tokens[self._next]
        self._next += 1
        return token

    def takes(self, word: str) -> bool:
        """Goes on if the next token is this word or sign."""
        if not self.at_end() and self._tokens[self._next][1].lower() == word:
            self._next += 1
            return True
        return False

    def expect(self, word: str) -> None:
        kind, found = self.take()
        if found.lower() != word or kind == "text":
            advice = ""
            if found.lower() == "or":
                advice = ": conditions are joined by AND only; for OR use IN, or the frame's own where()"
            raise self.wrong(f"expected {word.upper()}, found {found or 'the end'}{advice}")

    def wrong(self, why: str) -> ValueError:
        return ValueError(f"{why} (in {self._text!r})")

    # --- conditions -----------------------------------------------------------------------------------

    def condition(self) -> Restriction:
        if self.takes("("):
            found = self.condition()
            while not self.takes(")"):
                self.expect("and")
                found &= self.condition()
            return found
        kind, word = self.take()
        column = word.strip("`").lower()
        if kind != "word" or column not in COLUMNS:
            raise self.wrong(f"expected one of {', '.join(COLUMNS)}, found {word or 'the end'}")
        negated = self.takes("not")
        if self.takes("in"):
            return self._of(column, "=", self._list(column), negated)
        if self.takes("between"):
            first = self._literal(column)
            self.expect("and")
            return self._between(column, first, self._literal(column), negated)
        if self.takes("like"):
            return self._like(column, negated)
        kind, sign = self.take()
        if negated or kind != "sign" or sign in "(),":
            raise self.wrong(f"expected a comparison after {column}, found {sign or 'the end'}")
        relation = _NEGATIONS.get(sign, sign)
        return self._of(column, relation, [self._literal(column)], relation != sign)

    def _of(self, column: str, relation: str, values: list[int | str], negated: bool) -> Restriction:
        if column == "topic":
            name = "in" if relation in ("=", "==") else relation
            return Restriction(topics=(TopicCondition(name, tuple(map(str, values)), negated),))
        numbers = [int(value) for value in values]
        wanted = NumberSet.of(numbers) if relation == "=" else _SETS[relation](numbers[0])
        return self._numbers(column, wanted.complement() if negated else wanted)

    def _between(self, column: str, first: int | str, last: int | str, negated: bool) -> Restriction:
        if column == "topic":
            raise self.wrong("BETWEEN is for partition, offset and timestamp")
        wanted = NumberSet.between(int(first), int(last))
        return self._numbers(column, wanted.complement() if negated else wanted)

    @staticmethod
    def _numbers(column: str, wanted: NumberSet) -> Restriction:
        if column == "timestamp":
            return Restriction(times=wanted.scaled_down(1000))
        return Restriction(partitions=wanted) if column == "partition" else Restriction(offsets=wanted)

    def _like(self, column: str, negated: bool) -> Restriction:
        kind, token = self.take()
        text = _unquoted(token)
        inner = text.strip("%")
        if column != "topic" or kind != "text" or any(sign in inner for sign in "%_\\"):
            raise self.wrong(
                f"LIKE is for topics, and takes 'abc%', '%abc' or '%abc%', not {column} LIKE {token}"
            )
        relation = {
            (False, False): "in",
            (False, True): "starts",
            (True, False): "ends",
            (True, True): "contains",
        }[text.startswith("%"), text.endswith("%")]
        return Restriction(topics=(TopicCondition(relation, (inner,), negated),))

    # --- literals -------------------------------------------------------------------------------------

    def _list(self, column: str) -> list[int | str]:
        self.expect("(")
        values = [self._literal(column)]
        while self.takes(","):
            values.append(self._literal(column))
        self.expect(")")
        return values

    def _literal(self, column: str) -> int | str:
        """A topic's name, a number, or a time in microseconds."""
        kind, token = self.take()
        if column == "topic" and kind == "text":
            return _unquoted(token)
        if column == "timestamp" and kind == "word" and token.lower() == "timestamp":
            kind, token = self.take()
        if column == "timestamp" and kind == "text":
            return self._time(_unquoted(token))
        if column != "topic" and kind == "number":
            return int(token) * (1000 if column == "timestamp" else 1)
        wanted = {"topic": "a text in single quotes", "timestamp": "a time in single quotes or milliseconds"}
        raise self.wrong(
            f"expected {wanted.get(column, 'an integer')} for {column}, found {token or 'the end'}"
        )

    def _time(self, text: str) -> int:
        try:
            time = datetime.datetime.fromisoformat(text)
        except ValueError:
            raise self.wrong(f"{text!r} is no time; write it as '2026-11-16T10:00:00Z'") from None
        if time.tzinfo is None:
            raise self.wrong(
                f"{text!r} has no time zone; write a time as '2026-11-16T10:00:00Z' or '…+01:00'"
            )
        return (time - EPOCH) // datetime.timedelta(microseconds=1)


def _unquoted(token: str) -> str:
    return token[1:-1].replace("''", "'")
