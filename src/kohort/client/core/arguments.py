"""Checks the arguments of the client's calls at once, so that the exception reaches the caller. Sans-IO.

What is encoded after a call has returned, or on another thread, was checked here before: it is exactly an int of the
right size, or exactly a str that UTF-8 can encode. Anything with `__index__` is a whole number (NumPy's integers too);
a float or a bool is not. WrongArgument says what is right.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import index
from typing import Any

from kohort.client.errors import WrongArgument
from kohort.client.types import OffsetAndMetadata, TopicPartition
from kohort.wire.errors import KohortError

INT16, INT32, INT64 = 2**15 - 1, 2**31 - 1, 2**63 - 1

_LONGEST_SHOWN = 120
_LONGEST_TEXT = 2**15 - 1
"""In bytes: older versions of the requests have two bytes for the length of a string."""

LONGEST_S = 100 * 365 * 86_400
"""As good as for ever, and still a valid number of milliseconds."""


# --- words ---------------------------------------------------------------------------------------------


def shown(given: object) -> str:
    """A value for the text of an error: its repr, shortened if it is long."""
    try:
        said = repr(given)
    except BaseException:  # whatever it raises, the user must hear what is wrong with the argument
        return f"<{type(given).__name__} whose repr fails>"
    return said if len(said) <= _LONGEST_SHOWN else f"{said[:_LONGEST_SHOWN]}…"


def raised_by(who: str, error: BaseException) -> Exception:
    """What a user's function raised, as an Exception that another thread can log and raise.

    An ordinary exception is returned as it is. SystemExit and the like would end a thread that is not the user's, and
    so would an error whose `__str__` fails: these become the cause of a KohortError that names them.
    """
    if isinstance(error, Exception):
        try:
            str(error), repr(error)
        except BaseException:
            pass
        else:
            return error
    failed = KohortError(f"{who} raised {shown(error)}")
    failed.__cause__ = error
    return failed


# --- numbers and text ----------------------------------------------------------------------------------


def whole_number(given: object, what: str, least: int = 0, most: int = INT64) -> int:
    """An int within the bounds. `what` begins the text of the error, as in "the offset of orders-0"."""
    if type(given) is int:
        number = given
    else:
        try:
            if isinstance(given, bool):
                raise TypeError
            number = int.__index__(index(given))  # type: ignore[arg-type]
        except TypeError:
            raise WrongArgument(f"{what} is a whole number, not {shown(given)}") from None
    if number < 0 == least:
        raise WrongArgument(f"{what} cannot be negative: {shown(number)}")
    if not least <= number <= most:
        raise WrongArgument(f"{what} is a number from {least} to {most}, not {shown(number)}")
    return number


def text(given: object, what: str, *, may_be_empty: bool = False, longest: int | None = _LONGEST_TEXT) -> str:
    """A string that can be sent, of at most `longest` bytes."""
    if not isinstance(given, str):
        raise WrongArgument(f"{what} is a string, not {shown(given)}")
    said = str.__str__(given)  # a subclass may return something else
    if not may_be_empty and not said.strip():
        raise WrongArgument(f"{what} must not be empty")
    size = len(encoded(said, what))
    if longest is not None and size > longest:
        raise WrongArgument(f"{what} may have {longest} bytes, but {shown(said)} has {size}")
    return said


def encoded(said: str, what: str) -> bytes:
    """The UTF-8 of a string; WrongArgument if it holds half of a surrogate pair."""
    try:
        return str.encode(said)
    except UnicodeEncodeError as error:
        raise WrongArgument(
            f"{what} cannot be encoded in UTF-8: character {error.start} of {shown(said)} is half of a "
            "surrogate pair, as in text that was decoded with errors='surrogateescape'. Give bytes, or replace it"
        ) from None


def raw_bytes(given: object, what: str) -> bytes | None:
    """Bytes, or None."""
    if given is None or type(given) is bytes:
        return given
    if isinstance(given, (bytes, bytearray, memoryview)):
        return bytes(given)
    raise WrongArgument(f"{what} is bytes or None, not {shown(given)}")


def seconds(given: object) -> float:
    """A timeout in seconds: any number that is not negative and not NaN."""
    if isinstance(given, (bool, str, bytes, bytearray)):
        raise WrongArgument(f"a timeout is a number of seconds, not {shown(given)}")
    if not isinstance(given, (int, float)):
        try:
            given = float(given)  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError):
            raise WrongArgument(f"a timeout is a number of seconds, not {shown(given)}") from None
    if given != given:
        raise WrongArgument(f"a timeout is a number of seconds, not {shown(given)}")
    if given < 0:
        raise WrongArgument(f"a timeout cannot be negative: {shown(given)}")
    return float(min(given, LONGEST_S))


def function(given: Any, what: str, *, optional: bool = True) -> Any:
    """A callable, or None if it is optional."""
    if not callable(given) and not (optional and given is None):
        raise WrongArgument(f"{what} is a function, not {shown(given)}")
    return given


def topic_name(given: object) -> str:
    """The name of a topic."""
    if isinstance(given, str) and given.strip():
        return text(given, "the name of a topic")
    raise WrongArgument(f'a topic must have a name, a string as in "orders", not {shown(given)}')


def names(given: Iterable[object], what: str) -> list[str]:
    """A list of strings. `what` names one of them, as in "a group"."""
    return [text(name, what) for name in iterable(given, f"{what} for each")]


def iterable(given: Any, what: str) -> list[Any]:
    """The elements of a list, a set or a generator, as a list. A string is refused."""
    if isinstance(given, (str, bytes, bytearray, memoryview)) or not isinstance(given, Iterable):
        raise WrongArgument(f"{what}: that takes a list, not {shown(given)}")
    return list(given)


def mapping(given: Any, what: str) -> list[tuple[Any, Any]]:
    """The items of a dict. `what` says what the dict holds, with an example."""
    if not isinstance(given, Mapping):
        raise WrongArgument(f"{what}, not {shown(given)}")
    return list(given.items())


# --- partitions and offsets ------------------------------------------------------------------------------


def partition(given: object) -> TopicPartition:
    """A partition as users may write it, such as `("orders", 0)`."""
    if isinstance(given, Sequence) and not isinstance(given, (str, bytes, bytearray)) and len(given) == 2:
        topic, number = given
        if isinstance(topic, str) and topic.strip():
            name = text(topic, "the name of a topic")
            return TopicPartition(name, whole_number(number, f"the partition of topic {name}", 0, INT32))
    raise WrongArgument(f'a partition is a topic and a number, as in ("orders", 0), not {shown(given)}')


def partitions(given: Iterable[object]) -> list[TopicPartition]:
    """The partitions given to a call: each as an argument, or in lists (sets, dicts, generators)."""
    found: list[TopicPartition] = []
    for one in given:
        if _names_one(one):
            found.append(partition(one))
        elif isinstance(one, Iterable) and not isinstance(one, (str, bytes, bytearray)):
            found += map(partition, one)
        else:
            raise WrongArgument(
                f'a partition is a topic and a number, as in ("orders", 0), or a list of these; not {shown(one)}'
            )
    return found


def _names_one(given: object) -> bool:
    """Whether the value is meant as one partition, right or wrong: a sequence that begins with a string."""
    return isinstance(given, (tuple, list)) and bool(given) and isinstance(given[0], str)


def offset(given: object, what: str = "the offset", least: int = 0) -> OffsetAndMetadata:
    """An offset as users may write it: a number, or OffsetAndMetadata(42, "checked")."""
    if isinstance(given, OffsetAndMetadata):
        at, metadata, epoch = given
        return OffsetAndMetadata(
            whole_number(at, what, least),
            "" if metadata is None else text(metadata, f"the metadata of {what}", may_be_empty=True),
            None if epoch is None else whole_number(epoch, f"the leader epoch of {what}", 0, INT32),
        )
    try:
        return OffsetAndMetadata(whole_number(given, what, least))
    except WrongArgument as error:
        words = 'an offset is a number, as in 42, or OffsetAndMetadata(42, "why")'
        raise WrongArgument(f"{error}: {words}") from None


def offsets(given: object) -> dict[TopicPartition, OffsetAndMetadata]:
    """Offsets to commit, by partition."""
    chosen = {}
    for named, at in mapping(given, 'offsets to commit go by partition, as in {("orders", 0): 42}'):
        where = partition(named)
        chosen[where] = offset(at, f"the offset to commit for {where}")
    return chosen


def offsets_to_keep(given: object) -> dict[TopicPartition, int]:
    """Offsets before which records are deleted, by partition; -1 deletes all of them."""
    words = 'the first offset to keep goes by partition, as in {("orders", 0): 42}'
    return {
        (where := partition(named)): whole_number(at, f"the first offset to keep of {where}", -1)
        for named, at in mapping(given, words)
    }


def times(given: object) -> dict[TopicPartition, int]:
    """Milliseconds since 1970, by partition."""
    wanted = {}
    for named, time in mapping(given, 'times go by partition, as in {("orders", 0): 1_700_000_000_000}'):
        where = partition(named)
        try:
            wanted[where] = whole_number(time, f"the time for {where}")
        except WrongArgument as error:
            raise WrongArgument(
                f"{error}: give milliseconds since 1970, or use beginning_offsets() or end_offsets()"
            ) from None
    return wanted


# --- what a consumer is asked for ------------------------------------------------------------------------


def limit(given: object, default: int) -> int:
    """The max_records of a poll."""
    if given is None:
        return default
    if type(given) is int and given < 1:
        raise WrongArgument(
            f"max_records must be at least 1, not {given}: to wait for none, pause() the partitions"
        )
    return whole_number(given, "max_records", 1)


def group_id(given: object) -> str:
    """The id of a group."""
    return text(given, "the id of a group")


def columns(given: object) -> tuple[str, ...] | None:
    """The columns of poll_arrow by name. Whether they exist is checked against Arrow's schema."""
    if given is None:
        return None
    if isinstance(given, str):
        raise WrongArgument(f"columns takes a list of names: columns=({shown(given)},)")
    return tuple(names(iterable(given, "columns"), "a column"))


def reason(given: object) -> str:
    """Why the user asks something of the group; the reason is sent to the broker."""
    return "" if given is None else text(given, "the reason", may_be_empty=True)


# --- records to send -------------------------------------------------------------------------------------


def timestamp(given: object) -> int:
    """The time of a record."""
    try:
        return whole_number(given, "timestamp_ms")
    except WrongArgument as error:
        raise WrongArgument(
            f"{error}: the time of a record is in whole milliseconds since 1970, as int(time.time() * 1000)"
        ) from None


def record_partition(given: object, topic: str, count: int | None = None) -> int:
    """The partition that a record is for. -1 is refused: as in Kafka, users leave it out to have one chosen."""
    try:
        number = whole_number(given, f"the partition of a record for topic {topic}", 0, INT32)
    except WrongArgument as error:
        raise WrongArgument(f"{error}; leave it out to have one chosen") from None
    if count is not None and number >= count:
        raise WrongArgument(
            f"topic {topic} has the partitions 0 to {count - 1}; there is no partition {number}"
        )
    return number


def headers(given: Any) -> list[tuple[str, bytes | None]] | None:
    """Headers as a list of name and bytes (or None); text is encoded in UTF-8."""
    if given is None:
        return None
    words = 'headers are a list of names with bytes, as in [("trace", b"1")], or a dict of them'
    if isinstance(given, Mapping):
        given = given.items()
    elif isinstance(given, (str, bytes, bytearray, memoryview)) or not isinstance(given, Iterable):
        raise WrongArgument(f"{words}, not {shown(given)}")
    return [_header(each, words) for each in given] or None


def _header(given: Any, words: str) -> tuple[str, bytes | None]:
    if not isinstance(given, Sequence) or isinstance(given, (str, bytes, bytearray)) or len(given) != 2:
        raise WrongArgument(f"a header is a name and bytes (or text, or None), not {shown(given)}: {words}")
    name, content = given
    if not isinstance(name, str):
        raise WrongArgument(f"the name of a header is a string, not {shown(name)}")
    said = text(name, "the name of a header", may_be_empty=True, longest=None)
    if content is None or type(content) is bytes:
        return said, content
    if isinstance(content, str):
        return said, encoded(str.__str__(content), f"the header {said}")
    if isinstance(content, (bytes, bytearray, memoryview)):
        return said, bytes(content)
    raise WrongArgument(f"a header is a name and bytes (or text, or None), but {said!r} has {shown(content)}")


# --- what an administrator asks for ----------------------------------------------------------------------


def settings(given: object, of: str, *, null: bool = False) -> dict[str, str | None]:
    """Settings of a topic or broker as Kafka writes them. With `null`, None stands for a return to the default."""
    found: dict[str, str | None] = {}
    for name, value in mapping(given, f'settings of {of} are a dict, as in {{"retention.ms": 1000}}'):
        key = text(name, f"the name of a setting of {of}")
        if value is None and not null:
            raise WrongArgument(f"the setting {key} of {of} has no value: leave it out for the default")
        found[key] = None if value is None else _setting(value, f"the setting {key} of {of}")
    return found


def _setting(value: object, what: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return ",".join(_setting(each, what) for each in value)
    if isinstance(value, (str, float)):
        return text(str(value), what, may_be_empty=True, longest=None)
    try:
        return str(int.__index__(index(value)))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise WrongArgument(f"{what} is a string, a number, True or False, not {shown(value)}") from None


def choice(given: object, what: str) -> bool:
    """True or False."""
    if given is True or given is False:
        return given
    raise WrongArgument(f"{what} is True or False, not {shown(given)}")
