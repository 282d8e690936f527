"""Encodes and decodes the bytes of Kafka's ConsumerProtocol, versions 0 to 3: subscriptions and assignments.

Their layout is in `schema/`. A newer version only adds fields at the end: it is read as the highest known one, and what
follows is ignored.
"""

from __future__ import annotations

import struct
from typing import Any

from kohort.wire.compiler.compile import data_codec
from kohort.wire.errors import BadFrame
from kohort.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from kohort.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription

PROTOCOL_TYPE = "consumer"
HIGHEST_VERSION = 3
LONGEST_STRING = 0x7FFF


class BadConsumerProtocol(BadFrame, ValueError):
    """Bytes that are not a subscription or assignment of Kafka's consumer protocol, or fields that do not fit it."""

    what_to_do = "Look at the other members' clients: one of them does not follow Kafka's consumer protocol."


def encode_subscription(message: ConsumerProtocolSubscription, version: int) -> bytes:
    """The bytes for JoinGroup."""
    return _encode("consumer_protocol_subscription", "a subscription", version, message)


def decode_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """What a member sent in JoinGroup."""
    found: ConsumerProtocolSubscription = _decode("consumer_protocol_subscription", "a subscription", data)
    return found


def encode_assignment(message: ConsumerProtocolAssignment, version: int) -> bytes:
    """The bytes for SyncGroup."""
    return _encode("consumer_protocol_assignment", "an assignment", version, message)


def decode_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """What a SyncGroup answer holds."""
    found: ConsumerProtocolAssignment = _decode("consumer_protocol_assignment", "an assignment", data)
    return found


def _encode(module: str, what: str, version: int, message: Any) -> bytes:
    codec = data_codec(module, _known(version, what))
    try:
        return codec.encode(message)
    except struct.error:
        raise BadConsumerProtocol(
            f"{what} cannot hold a name of more than {LONGEST_STRING} bytes or a number that does not fit 32 bits: "
            f"{str(message)[:200]}"
        ) from None


def _decode(module: str, what: str, data: bytes) -> Any:
    if len(data) < 2:
        raise BadConsumerProtocol(f"not {what} of Kafka's consumer protocol: it has only {len(data)} bytes")
    codec = data_codec(module, _known(int.from_bytes(data[:2], "big", signed=True), what))
    try:
        return codec.decode(data)
    except BadFrame as error:
        raise BadConsumerProtocol(
            f"not {what} of Kafka's consumer protocol: {error} ({len(data)} bytes)"
        ) from None


def _known(version: int, what: str) -> int:
    if version < 0:
        raise BadConsumerProtocol(f"version {version} of {what} does not exist; versions start with 0")
    return min(version, HIGHEST_VERSION)
