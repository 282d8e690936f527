"""One bad argument does not poison a client.

Every public call of every front, found by reflection, is given hostile arguments: wrong types, huge and negative
numbers, halves of surrogate pairs, functions that raise SystemExit, objects that fail in `__str__` or `__index__`. It
returns, or raises what says so; and then the same client still sends, polls, commits, rejoins and closes.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pyarrow
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

import kohort
from kohort import KohortError, NewTopic, OffsetAndMetadata, Producer, TimedOut
from kohort.testing import Kafka

TOPIC, OTHER = "healthy", "other"
EXAMPLES = 12  # of each call
PATIENCE_S = 60.0

FRONTS = [
    name
    for name in (
        "Producer",
        "AsyncProducer",
        "Consumer",
        "AsyncConsumer",
        "ShareConsumer",
        "AsyncShareConsumer",
        "Admin",
        "AsyncAdmin",
    )
    if hasattr(kohort, name)
]


class Hostile(Exception):
    """Raised by an argument, so it may come out of the call that was given it."""


def fails(*args: object) -> Any:
    raise Hostile


def exits(*args: object) -> Any:
    raise SystemExit(3)


class Unsayable:
    __str__ = __repr__ = fails


class Trap:
    """Fails wherever it is touched."""

    __str__ = __repr__ = __index__ = __int__ = __float__ = __iter__ = __len__ = __bool__ = __getitem__ = fails
    __hash__ = fails  # type: ignore[assignment]
    __eq__ = fails  # type: ignore[assignment]


class Exit:
    __index__ = __iter__ = __str__ = __repr__ = exits


class Sly(str):
    """A string that encodes itself in its own way."""

    def encode(self, *args: object) -> Any:
        return exits()


def broken() -> Iterator[Any]:
    yield (OTHER, 0)
    raise Hostile


WRONG: list[Callable[[], Any]] = [
    lambda: None,
    lambda: True,
    lambda: -1,
    lambda: -(2**63) - 1,
    lambda: 2**31,
    lambda: 2**63,
    lambda: 10**5000,
    lambda: 1.5,
    lambda: float("nan"),
    lambda: numpy.int64(0),
    lambda: numpy.float32(0.5),
    lambda: "",
    lambda: "\ud800",
    lambda: "a\0b",
    lambda: "x" * 40_000,
    lambda: Sly("sly"),
    lambda: b"\xff",
    list,
    lambda: (),
    dict,
    lambda: [None],
    lambda: {None: None},
    lambda: {OTHER: "3"},
    lambda: {OTHER: {"retention.ms": Unsayable()}},
    lambda: {OTHER: {"retention.ms": "\ud800"}},
    lambda: {(OTHER, 0): 1.5},
    lambda: {(OTHER, 0): 2**70},
    lambda: {(OTHER, 0): OffsetAndMetadata(0, 5)},  # type: ignore[arg-type]
    lambda: {(OTHER, 0): OffsetAndMetadata(0, "\ud800")},
    lambda: {(OTHER, 0): OffsetAndMetadata(0, "", "1")},  # type: ignore[arg-type]
    lambda: {("\ud800", 0): 0},
    lambda: (OTHER, "0"),
    lambda: (OTHER, -1),
    lambda: (OTHER, 2**40),
    lambda: ("\ud800", 0),
    lambda: [(OTHER, 0), 5],
    lambda: [("trace", "\ud800")],
    lambda: [(5, b"")],
    lambda: ["\ud800"],
    lambda: [NewTopic("new", "3")],  # type: ignore[arg-type]
    lambda: [NewTopic("new", 1, 2**20)],
    lambda: [NewTopic("new", configs={"retention.ms": Trap()})],
    lambda: [NewTopic("new", assignments={0: "12"})],  # type: ignore[dict-item]
    lambda: re.compile(b"other"),
    lambda: pyarrow.table({"value": [1.5]}),
    lambda: pyarrow.table({"value": [b"v"], "timestamp": [-5]}),
    lambda: pyarrow.table({"value": [b"v"], "partition": [-1]}),
    lambda: pyarrow.table({"value": [b"v"], "headers": [[{"key": None, "value": b""}]]}),
    lambda: object(),
    Unsayable,
    Trap,
    Exit,
    broken,
    lambda: exits,
    lambda: fails,
]
WAITS_TOO_LONG = (2**31, 2**63, 10**5000)

RIGHT: dict[str, list[Any]] = {
    "topic": [OTHER],
    "topics": [[OTHER], OTHER, [NewTopic(OTHER, 1)]],
    "name": [OTHER],
    "value": [b"v", "v"],
    "key": [b"k"],
    "headers": [[("h", b"1")]],
    "timestamp_ms": [1_700_000_000_000],
    "records": [pyarrow.table({"value": [b"v"]})],
    "partition": [0, (OTHER, 0)],  # of a record; of a consumer
    "partitions": [(OTHER, 0), 1],  # of a consumer; of a topic to make
    "offset": [0],
    "offsets": [{(OTHER, 0): 0}],
    "times": [{(OTHER, 0): 0}],
    "before": [{(OTHER, 0): 0}],
    "counts": [{OTHER: 1}],
    "changes": [{OTHER: {"retention.ms": 1_000_000}}],
    "group_id": ["others"],
    "groups": ["others"],
    "members": ["somebody"],
    "instances": [["somebody"]],
    "states": ["Stable"],
    "brokers": [0],
    "configs": [{"retention.ms": 1_000_000}],
    "columns": [("value",)],
    "max_records": [10],
    "reason": ["to see"],
    "on_delivery": [lambda metadata, error: None],
    "callback": [lambda offsets, error: None],
    "record": [kohort.Record(OTHER, 0, 0)],
    "type": [kohort.AcknowledgeType.RELEASE],
    "timeout": [0.2],
}


def calls_of(front: str) -> list[str]:
    """All that users may call, whatever it is called; new ones too."""
    kind = getattr(kohort, front)
    return [name for name, _ in inspect.getmembers(kind, callable) if not name.startswith("_")]


CALLS = [(front, call) for front in FRONTS for call in calls_of(front)]


@st.composite
def arguments_for(draw: st.DrawFn, method: Any) -> tuple[list[Any], dict[str, Any]]:
    """One or two wrong ones among right ones, so that they get far; what has a default may be left out."""
    parameters = list(inspect.signature(method).parameters.values())[1:]
    names = [parameter.name for parameter in parameters]
    hostile = set(draw(st.lists(st.sampled_from(names), min_size=1, max_size=2))) if names else set()
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    for parameter in parameters:
        right, is_hostile = RIGHT.get(parameter.name), parameter.name in hostile
        values = st.sampled_from(right or [None]) if right and not is_hostile else _wrong(parameter.name)
        if parameter.kind is parameter.VAR_POSITIONAL:
            positional += draw(st.lists(values, min_size=is_hostile, max_size=2))
        elif parameter.kind is parameter.VAR_KEYWORD:
            keywords["headers"] = draw(values)
        elif parameter.default is parameter.empty:
            positional.append(draw(values))
        elif is_hostile or parameter.name == "timeout" or (right and draw(st.booleans())):
            keywords[parameter.name] = draw(values)
    return positional, keywords


def _wrong(name: str) -> st.SearchStrategy[Any]:
    made = st.sampled_from(WRONG).map(lambda make: make())
    if name == "timeout":
        return made.filter(lambda value: type(value) is not int or value not in WAITS_TOO_LONG)
    return made


class Subject:
    """A client that is called, on a loop of its own if it is one for asyncio; made anew only where it was closed."""

    def __init__(self, front: str, bootstrap_servers: str) -> None:
        self.front, self._servers = front, bootstrap_servers
        self.runner = asyncio.Runner()
        self._client: Any = None
        self._sent = 0

    @property
    def client(self) -> Any:
        if self._client is None:
            given: dict[str, Any] = {"bootstrap_servers": self._servers, "default_api_timeout_ms": 400}
            if "Consumer" in self.front:
                given["group_id"] = f"group-{self.front}"
                if "Share" not in self.front:
                    given["auto_offset_reset"] = "earliest"
            if "Producer" in self.front:
                given |= {"max_block_ms": 400, "linger_ms": 0}

            async def make() -> Any:
                return getattr(kohort, self.front)(**given)

            self._client = self.runner.run(make())
        return self._client

    def call(self, name: str, *args: Any, **keywords: Any) -> Any:
        """What the call returns, or the exception, SystemExit too."""

        client = self.client

        async def call() -> Any:
            try:
                made = getattr(client, name)(*args, **keywords)
                return await made if inspect.isawaitable(made) else made
            except BaseException as error:
                return error

        result = self.runner.run(call())
        if name == "close" and not isinstance(result, BaseException):
            self._client = None
        return result

    def must(self, name: str, *args: Any, **keywords: Any) -> Any:
        result = self.call(name, *args, **keywords)
        if isinstance(result, BaseException):
            raise result
        return result

    # --- what a healthy client does -----------------------------------------------------------------

    def is_alive(self) -> None:
        """A look after each example; it must not take long."""
        if "Producer" in self.front:
            self.sends()
        elif "Share" in self.front:
            self.must("subscription")
            assert not isinstance(self.call("commit_sync", timeout=PATIENCE_S), TimedOut)
        elif "Consumer" in self.front:
            assert TOPIC in self.must("list_topics", timeout=PATIENCE_S)
            committed = self.call("commit", {(TOPIC, 0): 0}, timeout=PATIENCE_S)
            assert not isinstance(committed, TimedOut), committed
        else:
            assert TOPIC in self.must("list_topics", timeout=PATIENCE_S)

    def is_healthy(self) -> None:
        if "Producer" in self.front:
            self.sends()
            self.must("flush", PATIENCE_S)
        elif "Consumer" in self.front:
            self.reads_shared() if "Share" in self.front else self.reads()
        else:
            self.must("describe_topics", TOPIC, timeout=PATIENCE_S)
            self.must("alter_group_offsets", "healed", {(TOPIC, 0): 1}, timeout=PATIENCE_S)
            assert self.must("group_offsets", "healed", timeout=PATIENCE_S) == {
                (TOPIC, 0): OffsetAndMetadata(1)
            }

    def sends(self) -> None:
        self.must(
            "partitions_for", TOPIC, PATIENCE_S
        )  # else max.block.ms, which is short, bounds the first send
        delivery = self.must("send", TOPIC, b"sent")
        if self.front == "Producer":
            assert delivery.result(PATIENCE_S).topic == TOPIC
            return

        async def wait() -> None:
            assert (await asyncio.wait_for(delivery, PATIENCE_S)).topic == TOPIC

        self.runner.run(wait())

    def reads(self) -> None:
        """Subscribes, reads a record that is new, commits, rejoins."""
        for _ in range(3):  # callbacks that were left with the client before raise once each
            if not isinstance(self.call("unsubscribe"), BaseException):
                break
        self.must("subscribe", [TOPIC])
        self._sent += 1
        value = b"%s %d" % (self.front.encode(), self._sent)
        with Producer(bootstrap_servers=self._servers) as producer:
            producer.send(TOPIC, value).result(PATIENCE_S)
        self._poll_until(lambda polled: any(record.value == value for record in polled))
        self.must("commit", timeout=PATIENCE_S)
        generation = self.client.group_metadata().generation_id
        self.must("enforce_rebalance", "to see whether it can")
        self._poll_until(lambda polled: self.client.group_metadata().generation_id > generation)
        (at,) = self.must("committed", (TOPIC, 0), timeout=PATIENCE_S).values()
        assert at is not None

    def reads_shared(self) -> None:
        """Subscribes, reads a record that is new, and has the broker take that it is accepted."""
        self.must("set_acknowledgement_commit_callback", None)
        self.must("subscribe", [TOPIC])
        self._sent += 1
        value = b"%s %d" % (self.front.encode(), self._sent)
        with Producer(bootstrap_servers=self._servers) as producer:
            producer.send(TOPIC, value).result(PATIENCE_S)
        self._poll_until(lambda polled: any(record.value == value for record in polled))
        assert self.must("commit_sync", timeout=PATIENCE_S) == {(TOPIC, 0): None}

    def _poll_until(self, condition: Callable[[list[Any]], bool]) -> None:
        for _ in range(600):
            polled = self.call("poll", 0.1)
            if isinstance(polled, BaseException):
                assert isinstance(polled, (Hostile, SystemExit)), polled
                continue
            if condition([record for records in polled.values() for record in records]):
                return
        raise AssertionError("it does not come to that")

    def end(self) -> None:
        client = self.client
        self.must("close", timeout=PATIENCE_S) if "Admin" not in self.front else self.must("close")
        assert client._engine.is_closed
        thread = getattr(client._engine, "_thread", None)
        assert thread is None or not thread.is_alive()
        self.runner.close()


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Kafka(auto_create_topics_enable=False) as kafka:
        for topic in (TOPIC, OTHER):
            kafka.create_topic(topic)
        with kohort.Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
            soon = {"share.auto.offset.reset": "earliest", "share.assignment.interval.ms": 0}
            admin.alter_group_configs({f"group-{front}": soon for front in FRONTS if "Share" in front})
        yield kafka.bootstrap_servers


@pytest.fixture(scope="module")
def subjects(servers: str) -> Iterator[dict[str, Subject]]:
    made = {front: Subject(front, servers) for front in FRONTS}
    yield made
    for subject in made.values():
        subject.end()


@pytest.mark.parametrize(("front", "call"), CALLS)
def test_a_client_outlives_hostile_arguments(
    subjects: dict[str, Subject], servers: str, front: str, call: str
) -> None:
    subject = subjects[front]
    if call == "wakeup":
        subject.must("subscribe", [TOPIC])
        subject.call("wakeup")  # the next poll raises it, once
        assert isinstance(subject.call("poll", PATIENCE_S), kohort.Wakeup)
    else:

        @settings(max_examples=EXAMPLES)
        @given(arguments_for(getattr(getattr(kohort, front), call)))
        def hostile(arguments: tuple[list[Any], dict[str, Any]]) -> None:
            positional, keywords = arguments
            raised = subject.call(call, *positional, **keywords)
            if isinstance(raised, BaseException):
                note(f"{type(raised).__name__}")
                assert isinstance(raised, (KohortError, Hostile, SystemExit)), repr(raised)
            subject.is_alive()

        hostile()
    subject.is_healthy()
