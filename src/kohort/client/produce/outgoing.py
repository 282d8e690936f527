"""Makes of a record what goes into its batch: interceptors, serializers, size checks, the partition. Sans-IO."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kohort.client.config import PRODUCER, SECURITY_OBJECTS, ProducerConfig, read_config
from kohort.client.core.arguments import encoded, raised_by, record_partition, shown
from kohort.client.core.backoff import Jitter
from kohort.client.errors import SerializationFailed, WrongArgument, error_for
from kohort.client.produce.accumulator import TopicQueues, record_size
from kohort.client.produce.batch import Headers, OnDelivery
from kohort.client.produce.partitioners import make_partitioner
from kohort.client.types import RecordMetadata
from kohort.settings import SettingError
from kohort.wire.errors import ErrorCode
from kohort.wire.records.batch import HEADER_SIZE

_log = logging.getLogger("kohort.client.producer")

Plain = bytes | bytearray | memoryview | str
"""The types that need no serializer; str is sent as UTF-8."""

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # with `default`; every type checker brings it

    K = TypeVar("K", default=Plain)
    V = TypeVar("V", default=Plain)
    Taken = TypeVar("Taken")
else:
    from typing import TypeVar

    K, V, Taken = TypeVar("K"), TypeVar("V"), TypeVar("Taken")

Serializer = Callable[[str, Taken], Plain | None]
"""A function that is called with the topic and the key or value."""

OBJECTS = ("key.serializer", "value.serializer", "interceptors", "partitioner", *SECURITY_OBJECTS)


class ProducerRecord(NamedTuple):
    """A record as it was given to `send`; an interceptor may replace it."""

    topic: str
    value: Any = None
    key: Any = None
    headers: Headers | None = None
    partition: int | None = None
    timestamp_ms: int | None = None


class ProducerInterceptor(Protocol):
    """What an interceptor may implement: both methods are optional, and what they raise is only logged."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Called before serializers and partitioner; returns the record that is sent."""

    def on_ack(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        """Called when the record is written, or will not be, on the producer's own thread: it must be quick."""


class Outgoing:
    """The settings of a producer, and what they mean for a record."""

    def __init__(
        self, settings: Mapping[str, object] | None, keywords: Mapping[str, object], jitter: Jitter
    ) -> None:
        config, objects = read_config(PRODUCER, settings, keywords, objects=OBJECTS)
        self.config: ProducerConfig = config
        self.objects = objects
        self.key_serializer: Serializer[Any] | None = _callable(objects, "key.serializer")
        self.value_serializer: Serializer[Any] | None = _callable(objects, "value.serializer")
        interceptors: Iterable[Any] = objects.get("interceptors", ())
        if not isinstance(interceptors, Sequence) or isinstance(interceptors, str):
            raise SettingError("interceptors takes a list of objects with on_send or on_ack")
        self.interceptors = tuple(interceptors)
        chosen = objects.get("partitioner", config.partitioner)
        self.partitioner = make_partitioner(chosen, config.partitioner_ignore_keys, jitter)
        self.null_keys_stick = chosen in ("murmur2", "consistent_random", "fnv1a_random")
        self.uses_murmur2 = chosen == "murmur2"
        self.batch_limit = max(1, min(config.batch_size, config.max_request_size))

    @property
    def is_plain(self) -> bool:
        """Whether there are neither serializers nor interceptors of the user."""
        return not self.interceptors and self.key_serializer is None and self.value_serializer is None

    def intercept(self, record: ProducerRecord) -> ProducerRecord:
        for interceptor in self.interceptors:
            on_send = getattr(interceptor, "on_send", None)
            if on_send is None:
                continue
            try:
                changed = on_send(record)
            except Exception:
                _log.exception("on_send of %s failed; going on with the record as it was", shown(interceptor))
                continue
            if not isinstance(changed, ProducerRecord):
                raise WrongArgument(
                    f"on_send of {shown(interceptor)} returned {shown(changed)}: it must return a ProducerRecord"
                )
            record = changed
        return record

    def acknowledge(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        for interceptor in self.interceptors:
            on_ack = getattr(interceptor, "on_ack", None)
            if on_ack is None:
                continue
            try:
                on_ack(metadata, error)
            except Exception:
                _log.exception("on_ack of %s failed", shown(interceptor))

    def close_interceptors(self) -> None:
        for interceptor in self.interceptors:
            try:
                getattr(interceptor, "close", lambda: None)()
            except Exception:
                _log.exception("close of %s failed", shown(interceptor))

    def with_acknowledgement(self, callback: OnDelivery | None) -> OnDelivery | None:
        """Returns a callback that calls the interceptors and then the user's callback."""
        if not self.interceptors:
            return callback

        def both(metadata: RecordMetadata | None, error: Exception | None) -> None:
            try:
                self.acknowledge(metadata, error)
            finally:  # also if an interceptor wants to end the program
                if callback is not None:
                    callback(metadata, error)

        return both

    def key_bytes(self, topic: str, key: Any) -> bytes | None:
        return _serialized(topic, key, self.key_serializer, "key")

    def value_bytes(self, topic: str, value: Any) -> bytes | None:
        return _serialized(topic, value, self.value_serializer, "value")

    def partition_for(self, queues: TopicQueues, partition: int | None, key: bytes | None) -> int:
        count = len(queues.queues)
        if partition is None:
            return self.partitioner(queues.name, key, count)
        return record_partition(partition, queues.name, count)

    def check_size(self, key: bytes | None, value: bytes | None, headers: Headers | None) -> None:
        """Raises MESSAGE_TOO_LARGE if no batch could hold the record; says which setting is the limit."""
        size = HEADER_SIZE + record_size(key, value, headers)
        for limit, name in (
            (self.config.max_request_size, "max.request.size"),
            (self.config.buffer_memory, "buffer.memory"),
        ):
            if size > limit:
                raise error_for(
                    ErrorCode.MESSAGE_TOO_LARGE,
                    f"the record takes {size} bytes, which is more than {name} ({limit}): raise it (and the topic's "
                    "max.message.bytes), or send smaller records",
                )


def _serialized(topic: str, thing: Any, serializer: Serializer[Any] | None, what: str) -> bytes | None:
    if serializer is not None:
        try:
            thing = serializer(topic, thing)
        except Exception as error:
            words = str(raised_by(f"the {what} serializer", error))
            raise SerializationFailed(f"the {what} serializer failed for topic {topic}: {words}") from error
    if thing is None or type(thing) is bytes:
        return thing
    if isinstance(thing, str):
        return encoded(thing, f"the {what} of a record for topic {topic}")
    if isinstance(thing, (bytes, bytearray, memoryview)):
        return bytes(thing)
    if serializer is not None:
        raise SerializationFailed(
            f"the {what} serializer must return bytes, str or None, but returned {type(thing).__name__}"
        )
    raise SerializationFailed(
        f"a {what} of type {type(thing).__name__} cannot be sent as it is: give bytes, str or None, or set "
        f"{what}_serializer, a function (topic, {what}) -> bytes"
    )


def _callable(objects: dict[str, Any], name: str) -> Any:
    given = objects.get(name)
    if given is not None and not callable(given):
        raise SettingError(f"{name} takes a callable (topic, object) -> bytes, not {given!r}")
    return given
