"""A record as one line of JSON, as `consume --json` writes it and `produce --json` reads it.

    {"topic":"orders","partition":0,"offset":7,"timestamp":1700000000000,"timestamp_type":"create",
     "key":"k","value":"v","headers":[{"name":"h","value":"1"}]}

Bytes that are no UTF-8 stand as base64 in a field with another name: `key_base64`, `value_base64`, and so in headers
(`name_base64` too). So any record of UTF-8 header names can be written again as it was. A null is JSON's null.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from json.encoder import encode_basestring as quoted
from typing import Any

from kohort.cli.records.serdes import WrongData, as_json, from_base64
from kohort.client.records import Record

NO_TIMESTAMP = -1
_TYPES = {0: '"create"', 1: '"log_append"'}
_FIELDS = {"partition", "timestamp", "key", "key_base64", "value", "value_base64", "headers"}
_KNOWN_BY_THE_BROKER = {"topic", "offset", "timestamp_type", "key_error", "value_error"}
"""What a record that was read has as well; the topic of the command and the broker decide these."""

Headers = list[tuple[str, bytes | None]]


@dataclass(slots=True)
class Envelope:
    """A record that is to be written."""

    key: bytes | None = None
    value: bytes | None = None
    headers: Headers | None = None
    partition: int | None = None
    timestamp: int | None = None


# --- to JSON ------------------------------------------------------------------------------------------


def json_line(record: Record[Any, Any], key: str, value: str) -> str:
    """Returns the line of a record; `key` and `value` are the fields, as `field_of` or `object_field` make them."""
    headers = (
        ",".join([_header(name, data) for name, data in record.header_pairs]) if record.header_pairs else ""
    )
    return (
        f'{{"topic":{quoted(record.topic)},"partition":{record.partition},"offset":{record.offset},'
        f'"timestamp":{record.timestamp},"timestamp_type":{_TYPES.get(record.timestamp_type, "null")},'
        f'{key},{value},"headers":[{headers}]}}'
    )


def field_of(name: str, data: bytes | None) -> str:
    """Returns a field with bytes: as text if they are UTF-8, else as base64."""
    if data is None:
        return f'"{name}":null'
    try:
        return f'"{name}":{quoted(data.decode())}'
    except UnicodeDecodeError:
        return f'"{name}_base64":"{base64.b64encode(data).decode()}"'


def object_field(name: str, thing: Any) -> str:
    """Returns a field with what a deserializer made."""
    return f'"{name}":{as_json(thing)}'


def failed_field(name: str, data: bytes, reason: str) -> str:
    """Returns the bytes that no deserializer could read, and why."""
    return f'{field_of(name, data)},"{name}_error":{quoted(reason)}'


def _header(name: str, data: bytes | None) -> str:
    return f"{{{field_of('name', name.encode('utf-8', 'surrogateescape'))},{field_of('value', data)}}}"


# --- from JSON ----------------------------------------------------------------------------------------


def envelope_of(line: bytes) -> Envelope:
    """Reads a line; WrongData says what is wrong with it."""
    try:
        given = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise WrongData(f"this is no JSON: {error}") from None
    if not isinstance(given, dict):
        raise WrongData('a record is a JSON object, as in {"key": "k", "value": "v"}')
    unknown = given.keys() - _FIELDS - _KNOWN_BY_THE_BROKER
    if unknown:
        raise WrongData(f"a record has no field {sorted(unknown)[0]!r}; it has {', '.join(sorted(_FIELDS))}")
    timestamp = _whole_number(given, "timestamp")
    return Envelope(
        _bytes_of(given, "key"),
        _bytes_of(given, "value"),
        _headers_of(given.get("headers")),
        _whole_number(given, "partition"),
        None if timestamp == NO_TIMESTAMP else timestamp,
    )


def _bytes_of(given: dict[str, Any], name: str) -> bytes | None:
    """Returns the bytes of a field: a text as it is, base64 decoded, and any other value as JSON."""
    encoded = given.get(f"{name}_base64")
    if encoded is not None:
        if given.get(name) is not None:
            raise WrongData(f"{name} and {name}_base64 are both given; one is enough")
        if not isinstance(encoded, str):
            raise WrongData(f"{name}_base64 is a text, not {as_json(encoded)[:40]}")
        return from_base64(encoded)
    thing = given.get(name)
    if thing is None:
        return None
    try:
        return (thing if isinstance(thing, str) else as_json(thing)).encode()
    except UnicodeEncodeError:
        raise WrongData(f"{name} holds half of a surrogate pair, which UTF-8 cannot say") from None


def _headers_of(given: object) -> Headers | None:
    if given is None or given == [] or given == {}:
        return None
    if isinstance(given, dict):
        given = [{"name": name, "value": value} for name, value in given.items()]
    if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
        raise WrongData('headers are written {"name": "value"} or [{"name": "name", "value": "value"}]')
    return [_header_of(each) for each in given]


def _header_of(given: dict[str, Any]) -> tuple[str, bytes | None]:
    name = _bytes_of(given, "name")
    if name is None:
        raise WrongData(f"a header needs a name: {as_json(given)[:80]}")
    try:
        return name.decode(), _bytes_of(given, "value")
    except UnicodeDecodeError:
        raise WrongData(f"the name of a header is no UTF-8, as Kafka wants it: {name!r}") from None


def _whole_number(given: dict[str, Any], name: str) -> int | None:
    number = given.get(name)
    if number is None:
        return None
    if not isinstance(number, int) or isinstance(number, bool):
        raise WrongData(f"{name} is a whole number, not {as_json(number)[:40]}")
    return number
