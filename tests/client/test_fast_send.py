"""`fast_send` beside the ordinary way: the same sends have the same batches, deliveries, callbacks and errors."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.client.core.cluster import Cluster, PartitionInfo, TopicInfo
from kohort.client.core.steps import Until
from kohort.client.produce.accumulator import record_size
from kohort.client.produce.batch import Batch, RecordHandle
from kohort.client.produce.calls import ProducerCalls
from kohort.client.produce.fast_send import fast_send
from kohort.client.produce.outgoing import ProducerRecord
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.init_producer_id import InitProducerIdResponse
from tests.client.producing import TOPIC_ID, Core, cluster, parts

CHOOSERS: dict[str, Callable[[list[Any]], Any]] = {
    "murmur2": lambda seen: "murmur2",
    "consistent_random": lambda seen: "consistent_random",
    "fnv1a_random": lambda seen: "fnv1a_random",
    "random": lambda seen: "random",
    "round_robin": lambda seen: "round_robin",
    "own": lambda seen: _own_partitioner(seen),
}


def _own_partitioner(seen: list[Any]) -> Callable[[str, bytes | None, int], int]:
    """Takes note of each call; its choice depends on how many there were, and is wrong now and then."""

    def choose(topic: str, key: bytes | None, count: int) -> int:
        seen.append(("partitioner", topic, key, count))
        if key == b"raise":
            raise LookupError("the user's partitioner failed")
        return len(seen) % (count + (key == b"outside"))

    return choose


class World(Core):
    """A producer's core in virtual time, whose records go the fast way, or all of them the ordinary one."""

    def __init__(self, fast: bool, seed: int, chooser: str, **given: Any) -> None:
        self.seen: list[Any] = []
        self.clock_ns = 5_000_000_000
        super().__init__(jitter=random.Random(seed).random, partitioner=CHOOSERS[chooser](self.seen), **given)
        self.calls: ProducerCalls[RecordHandle] = ProducerCalls(
            self.outgoing, self.accumulator, self.out, self.metadata, random.Random(seed).random,
            lambda: self.now_ms, lambda: self.clock_ns // 1_000_000, lambda: "",
        )  # fmt: skip
        self.calls.add_part(lambda: None, lambda: None, lambda error: self.seen.append(repr(error)))
        self.sender = self.calls.sender
        self.sender.want_topic("orders", self.now_ms)
        self.ordinary = 0
        self.send_record = self.send_ordinarily
        if fast:
            self.send_record = fast_send(
                self.accumulator,
                self.outgoing,
                lambda: self.clock_ns,
                lambda: self.now_ms,
                self.send_ordinarily,
            )
        self.tick()

    def send_ordinarily(self, *record: Any) -> RecordHandle:
        self.ordinary += 1
        *rest, on_delivery = record
        steps = self.calls.send(ProducerRecord(*rest), on_delivery)
        in_time: bool | None = None
        while True:
            try:
                until = steps.send(in_time)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            assert isinstance(until, Until)
            for _ in range(50):  # the broker answers while the caller waits
                if until.condition():
                    break
                self.go_on()
            in_time = until.condition()
            if not in_time:
                self.now_ms = max(self.now_ms, until.deadline_ms)

    def go_on(self, code: ErrorCode = ErrorCode.NONE) -> None:
        """One round: what is due is sent, and what is under way is answered."""
        self.requests()
        for send in list(self.under_way):
            if send.purpose == "sender.init_producer_id":
                self.answer(send, InitProducerIdResponse(producer_id=7, producer_epoch=0), 5)
            else:
                self.reply(send, code, base_offset=len(self.seen))
        self.take_completed()

    def requests(self, after_ms: int = 0) -> None:
        for send in self.tick(after_ms):
            if send.purpose == "sender.produce":
                self.seen += [("request", data.index, bytes(data.records or b"")) for data in parts(send)]

    def take_completed(self) -> int:
        self.calls.part.tick(self.now_ms)
        return 0

    def delivered(self, name: int) -> Callable[[Any, Any], None]:
        """A callback; that of a multiple of five fails."""

        def on_delivery(metadata: Any, error: Any) -> None:
            self.seen.append(("delivered", name, metadata, repr(error)))
            if name % 5 == 0:
                raise RuntimeError(f"callback {name} failed")

        return on_delivery

    def to_the_brim(self, more: int, key: bytes | None) -> tuple[Any, ...]:
        """The send that fills what an open batch may have without asking, and `more` bytes."""
        topic = self.accumulator.topics.get("orders")
        batch = topic.queues[0].open if topic is not None else None
        free = batch.limit - batch.size - record_size(key, b"", None) if batch is not None else 0
        return "send", "orders", b"x" * max(0, free + more), key, None, 0, None, None

    def described(self) -> list[Any]:
        """All that a user, a broker or the sender could see of it."""
        accumulator = self.accumulator
        state: list[Any] = [
            accumulator.used_bytes, accumulator.fresh, accumulator.closed, accumulator.waiting_for_memory, self.woken,
            len(accumulator.incomplete), [str(queue) for queue in accumulator.ready],
            [self.batch(batch) for batch in accumulator.full], accumulator.next_linger_ms(), self.now_ms,
            self.sender.next_deadline_ms(), repr(self.sender.fatal),
        ]  # fmt: skip
        for name, topic in accumulator.topics.items():
            state += [name, topic.sticky, topic.sticky_bytes, topic.used_ms, topic.available]
            for queue in topic.queues:
                state += [self.batch(batch) for batch in (queue.open, *queue.closed, *queue.in_flight)]
        return state

    def batch(self, batch: Batch) -> Any:
        callbacks = [(each._index, each._timestamp) for each, _ in batch.callbacks or ()]
        return (
            repr(batch.queue), batch.created_ms, batch.size, batch.limit, batch.charge, batch.count, batch.values[:],
            batch.keys and batch.keys[:], batch.timestamps[:], batch.headers, callbacks, batch.done, batch.sequence,
        )  # fmt: skip


# --- what happens -----------------------------------------------------------------------------------------


class Text(str):
    """A str that is none exactly."""


class Raw(bytes):
    """Bytes that are none exactly."""


class Number:
    """A whole number, as NumPy has them."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __index__(self) -> int:
        return self.number


contents = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([700, 1500, 6000]).map(lambda size: b"x" * size),
    st.sampled_from([b"x" * 1500, "x" * 1000]),
    st.text(max_size=20),
    st.sampled_from(
        [None, "", b"", "\ud800", "é" * 300, bytearray(b"array"), memoryview(b"view"), Text("text"), Raw(b"raw"), 7]
    ),
)  # fmt: skip
keys = st.one_of(st.none(), st.sampled_from([b"a", b"b", "a", b"", b"raise", b"outside"]), contents)
usual = st.tuples(
    st.just("send"),
    st.just("orders"),
    st.one_of(st.binary(max_size=40), st.integers(0, 400).map(lambda size: b"x" * size)),
    st.sampled_from([None, None, b"a", "b"]),
    st.none(),
    st.sampled_from([None, None, 0, 1]),
    st.sampled_from([None, None, 99]),
    st.sampled_from([None, None, 1, 5]),
)
"""The sends that should be fast, more often than by chance."""
unusual = {
    1: st.sampled_from(["elsewhere", Text("orders"), ["orders"], 7, "", None]),
    2: contents,
    3: keys,
    4: st.sampled_from([[], [("h", b"1")], [("h", None), ("é", b"")], [("h", "text")], "headers", 3]),
    5: st.sampled_from([2, 3, -1, True, 1.0, "0", Number(0), 2**40]),
    6: st.sampled_from([1, 77, 2**63 - 1, 2**63, -1, 1.5, True, Number(3)]),
    7: st.sampled_from([2, 3, "not a function"]),
}
"""By its place, what an argument may be besides."""


@st.composite
def odd(draw: st.DrawFn) -> tuple[Any, ...]:
    """A usual send, but for some of its arguments."""
    action = list(draw(usual))
    for at in draw(st.lists(st.sampled_from([1, 2, 2, 2, 3, 3, 4, 5, 6, 7]), min_size=1, max_size=2)):
        action[at] = draw(unusual[at])
    return tuple(action)


others = st.one_of(
    st.tuples(st.just("tick"), st.sampled_from([0, 1, 5, 200, 40_000])),
    st.tuples(st.just("answer"), st.sampled_from([ErrorCode.NONE] * 3 + [
        ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_RECORD,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ])),
    st.tuples(st.just("clock"), st.sampled_from([1, 400_000, 1_000_000, 7_500_000_000, -2_000_000_000])),
    st.tuples(st.sampled_from(["flush", "more partitions", "no leader", "forget", "close"])),
)  # fmt: skip
to_the_brim = st.tuples(st.just("to the brim"), st.integers(-1, 2), st.sampled_from([None, b"a"]))
actions = st.lists(st.one_of(usual, usual, odd(), odd(), to_the_brim, others), min_size=8, max_size=40)
worlds = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 3),
        "chooser": st.sampled_from([*CHOOSERS, "own", "own", "round_robin"]),
        "partitions": st.integers(1, 3),
        "partitioner_ignore_keys": st.booleans(),
        "enable_idempotence": st.booleans(),
        "batch_size": st.sampled_from([16_384, 2000, 300, 0]),
        "buffer_memory": st.sampled_from([1 << 20, 4000, 1200]),
        "max_request_size": st.sampled_from([1 << 20, 5000, 1000]),
        "linger_ms": st.sampled_from([0, 5, 1000]),
        "max_block_ms": st.sampled_from([0, 100]),
        "delivery_timeout_ms": st.just(60_000),
    }
)


def act(world: World, action: tuple[Any, ...]) -> Any:
    """What the user gets of it."""
    what, *given = action
    if what == "send":
        *record, on_delivery = given
        if isinstance(on_delivery, int):
            on_delivery = world.delivered(on_delivery)
        try:
            sent = world.send_record(*record, on_delivery)
        except Exception as error:
            return type(error), str(error)
        return repr(sent._batch.queue), sent._index, sent._timestamp, sent._key_size, sent._value_size
    if what == "to the brim":
        return act(world, world.to_the_brim(*given))
    if what == "tick":
        world.requests(given[0])
    elif what == "answer":
        world.go_on(given[0])
    elif what == "clock":
        world.clock_ns = max(0, world.clock_ns + given[0])
    elif what == "flush":
        world.accumulator.flush()
    elif what == "more partitions":
        world.metadata.cluster = cluster(4, version=world.metadata.cluster.version + 1)
    elif what == "no leader":
        known = world.metadata.cluster
        infos = {**known.topics["orders"].partitions, 0: PartitionInfo()}
        topics = {"orders": TopicInfo("orders", TOPIC_ID, infos)}
        world.metadata.cluster = Cluster("c", 1, known.nodes, topics, {}, known.version + 1)
    elif what == "forget":
        world.accumulator.forget_idle(0, world.now_ms)
        world.sender._cluster = None  # it is learned again at the next tick
    else:
        world.accumulator.shut()
    return None


@settings(max_examples=300, deadline=None)
@given(worlds, actions)
def test_the_fast_way_does_what_the_ordinary_way_does(
    given: dict[str, Any], actions: list[tuple[Any, ...]]
) -> None:
    fast, ordinary = World(True, **given), World(False, **given)
    for action in [*actions, ("flush",), *[("answer", ErrorCode.NONE)] * 3]:
        assert act(fast, action) == act(ordinary, action), action
        assert fast.described() == ordinary.described(), action
        assert fast.seen == ordinary.seen, action


def test_usual_records_go_the_fast_way() -> None:
    world = World(
        True, 1, "murmur2", partitions=2, linger_ms=1000, enable_idempotence=False, max_block_ms=100
    )
    for n in range(100):
        world.send_record("orders", f"{n}", b"key" if n % 2 else None, None, None, None, world.delivered(1))
    assert world.ordinary == 0
