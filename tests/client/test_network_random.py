"""Brokers that misbehave at random: every request is answered exactly once, in time, and the client recovers."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from kohort.client.core.effects import ANY_NODE, Answer, Lane
from kohort.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.client.driving import HEARTBEAT, PATIENCE_MS, Driven, driven
from tests.client.scripted import (
    API_VERSIONS,
    CLOSE,
    HALF_CLOSE,
    METADATA,
    RESET,
    SILENCE,
    Part,
    Raw,
    Received,
    Reply,
    ScriptedCluster,
    WrongId,
)

OK = HeartbeatResponse()
NODES = 3
BEGINNINGS: list[Reply] = [CLOSE, SILENCE, RESET, Raw(b"\0\0\0\2xx"), Raw(b"garbage garbage")]


class Mischief:
    """Does something wrong in about one of five answers, while it is on."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.is_on = True

    def heartbeat(self, request: Received) -> Reply:
        return self._maybe() or HeartbeatResponse(0, request.message.generation_id)

    def _maybe(self) -> Reply | None:
        if not self.is_on or self.rng.random() > 0.2:
            return None
        garbage = Raw(self.rng.randbytes(self.rng.randint(1, 40)))
        late = HeartbeatResponse(throttle_time_ms=self.rng.randint(1, 20))
        replies: list[Reply] = [CLOSE, RESET, HALF_CLOSE, SILENCE, garbage, Part(OK, 5), WrongId(OK), late]
        return self.rng.choice(replies)


def ask_at_random(client: Driven, rng: random.Random, count: int) -> None:
    for number in range(count):
        client.asker.ask(
            HeartbeatRequest("g", number),
            rng.choice([ANY_NODE, 1, 2, 3]),
            timeout_ms=rng.choice([30, 100, 300]),
            lane=rng.choice([Lane.DATA, Lane.GROUP]),
        )
        if not rng.randrange(5):
            client.run(lambda: False, rng.randint(0, 5))


def number_of(answer: Answer) -> int:
    request: Any = answer.send.make(0)
    number: int = request.generation_id
    return number


def eventually_answered(client: Driven, node_id: int) -> Answer:
    """Ten requests at least: the first ones may meet what is left of the mischief. More if somebody was slow: we give
    a broker 100 ms to say which versions it has."""
    deadline_ms = client.engine.now_ms() + PATIENCE_MS
    answers = [client.call(node_id=node_id) for _ in range(10)]
    while answers[-1].failure is not None and client.engine.now_ms() < deadline_ms:
        answers.append(client.call(node_id=node_id))
    return answers[-1]


@pytest.mark.parametrize("seed", range(4))
def test_every_request_is_answered_once_whatever_the_brokers_do(seed: int) -> None:
    rng, mischief = random.Random(seed), Mischief(seed)
    settings = {"request_timeout_ms": 100, "retry_backoff_ms": 5, "reconnect_backoff_ms": 1}
    with ScriptedCluster(NODES) as cluster:
        for broker in cluster.nodes.values():
            broker.on(HEARTBEAT, mischief.heartbeat)
            broker.script(API_VERSIONS, *rng.choices(BEGINNINGS, k=2))
            broker.script(METADATA, *rng.choices(BEGINNINGS, k=2))
        with driven(cluster.bootstrap_servers, reconnect_backoff_max_ms=20, **settings) as client:
            client.know_nodes()
            ask_at_random(client, rng, 150)
            assert client.run(lambda: len(client.asker.answers) >= 150), f"seed {seed}"
            client.run(lambda: False, 20)
            counts = Counter(number_of(answer) for answer in client.asker.answers)
            assert counts == dict.fromkeys(range(150), 1), f"seed {seed}"
            for answer in client.asker.answers:
                if answer.failure is None and not answer.response.throttle_time_ms:
                    assert answer.response.error_code == number_of(answer), f"seed {seed}"  # its own answer
            mischief.is_on = False
            for node_id in (1, 2, 3):
                answered = eventually_answered(client, node_id)
                assert answered.failure is None, f"seed {seed}: {answered.failure}"
