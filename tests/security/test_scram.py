"""What an unknown user of SCRAM is shown: nothing that tells it from one that exists."""

from __future__ import annotations

import base64
import os
from collections import Counter

import pytest

from kohort.broker.running import running
from kohort.client.io.blocking_connection import BlockingConnection
from kohort.security.mechanism import Challenge
from kohort.security.scram import ScramExchange, ScramMechanism, ScramShape
from kohort.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramUpsertion,
)
from kohort.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from kohort.wire.messages.sasl_handshake import SaslHandshakeRequest

JAVA = ScramShape(8192, 26, True)
OTHERS = ScramShape(16384, 64, False)
TWO = "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0"


def shown(shapes: Counter[ScramShape], user: str, secret: bytes = b"of the broker") -> ScramShape:
    exchange = ScramExchange(
        ScramMechanism.SCRAM_SHA_256, lambda user: None, "SERVER", secret, lambda: shapes
    )
    answer = exchange.step(f"n,,n={user},r=abc".encode(), 0)
    assert isinstance(answer, Challenge)
    return shape_of(answer.told)


def shape_of(server_first: bytes) -> ScramShape:
    parts = dict(part.split("=", 1) for part in server_first.decode().split(","))
    return ScramShape.of(base64.b64decode(parts["s"]), int(parts["i"]))


def test_made_up_users_look_like_those_that_exist_and_are_as_many_of_each_kind() -> None:
    seen = Counter(shown(Counter({JAVA: 30, OTHERS: 10}), f"user{number}") for number in range(400))
    assert set(seen) == {JAVA, OTHERS}
    assert 220 < seen[JAVA] < 370


def test_a_name_is_always_shown_the_same_and_each_broker_has_its_own_salts() -> None:
    shapes = Counter({JAVA: 1, OTHERS: 1})
    assert shown(shapes, "eve") == shown(shapes, "eve")
    assert len({shown(shapes, "eve", bytes([n])) for n in range(20)}) == 2


def test_without_any_user_there_is_a_usual_shape() -> None:
    assert shown(Counter(), "eve") == ScramShape(4096, 24, False)


@pytest.mark.parametrize("iterations", [4096, 12345])
def test_a_broker_shows_no_difference(iterations: int) -> None:
    settings = {"listeners": TWO, "sasl.enabled.mechanisms": "SCRAM-SHA-256"}
    with running(settings=settings) as broker:
        for _ in range(2):  # the second user changes nothing of it
            salt = os.urandom(33)
            with BlockingConnection(broker.bootstrap_servers) as admin:
                user = ScramUpsertion(f"u{salt.hex()[:8]}", 1, iterations, salt, os.urandom(32))
                answer = admin.call(AlterUserScramCredentialsRequest([], [user]))
                assert answer.results[0].error_code == 0
            shapes = {first_answer(broker, name) for name in (user.name, "nobody", "eve", "mallory")}
            assert shapes == {ScramShape(iterations, 33, False)}


def first_answer(broker: running, user: str) -> ScramShape:
    with BlockingConnection(str(broker.server.listeners[1].told)) as client:
        assert client.call(SaslHandshakeRequest("SCRAM-SHA-256"), 1).error_code == 0
        answer = client.call(SaslAuthenticateRequest(f"n,,n={user},r=abc".encode()), 2)
        assert answer.error_code == 0
        return shape_of(answer.auth_bytes)
