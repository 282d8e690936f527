"""SASL over a socket: the table of the specification, its limits, and what a hostile client cannot do."""

from __future__ import annotations

import logging
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kohort.broker.net import sasl_connection
from kohort.broker.net.refusals import Refusals
from kohort.broker.running import running
from kohort.broker.security.password_file import PasswordFile
from kohort.client.io.blocking_connection import BlockingConnection
from kohort.security.credentials_file import PasswordHash, format_credentials
from kohort.settings import SettingError
from kohort.wire.compiler.compile import codec
from kohort.wire.errors import ErrorCode
from kohort.wire.frame import request_frame
from kohort.wire.messages.api_versions import ApiVersionsRequest
from kohort.wire.messages.fetch import FetchRequest
from kohort.wire.messages.metadata import MetadataRequest
from kohort.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from kohort.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.broker.peer import PATIENCE_S, batch_of, create_topic, fetch_request, produce_request
from tests.clients.process import eventually
from tests.security.transcript import bearer, unsecured_jwt

PLAIN = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret" user_bob="secret";'
)
OAUTH = "org.apache.kafka.common.security.oauthbearer"
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN,
    "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": f"{OAUTH}.OAuthBearerLoginModule required;",
    "connection.failed.authentication.delay.ms": "0",
}
TOKEN = b"\0alice\0secret"
QUICK = PasswordHash.of("secret", b"0123456789abcdef", 10)


def sasl_broker(*, is_metered: bool = False, directory: Path | None = None, **more: object) -> running:
    own = {name.replace("_", "."): str(value) for name, value in more.items()}
    return running(directory, settings={**SETTINGS, **own}, is_metered=is_metered)


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "metered"])
def broker(request: pytest.FixtureRequest) -> Iterator[running]:
    with sasl_broker(is_metered=request.param) as started:
        yield started


@pytest.fixture
def client(broker: running) -> Iterator[BlockingConnection]:
    with BlockingConnection(broker.bootstrap_servers, timeout_s=PATIENCE_S) as connected:
        yield connected


def is_closed(client: BlockingConnection) -> bool:
    try:
        client._receive_exactly(1)
    except ConnectionError:
        return True
    return False


def handshake(client: BlockingConnection, mechanism: str = "PLAIN", version: int = 1) -> None:
    assert client.call(SaslHandshakeRequest(mechanism), version).error_code == 0


def login(client: BlockingConnection, token: bytes = TOKEN) -> int:
    handshake(client)
    answer = client.call(SaslAuthenticateRequest(token), 2)
    assert answer.error_code == 0, answer.error_message
    lifetime_ms: int = answer.session_lifetime_ms
    return lifetime_ms


def raw(client: BlockingConnection, token: bytes) -> None:
    client.send_bytes(struct.pack(">i", len(token)) + token)


# --- the table -----------------------------------------------------------------------------------------------------


def test_versions_then_handshake_then_token_then_everything(client):
    assert len(client.call(ApiVersionsRequest(), 0).api_keys) > 30
    answer = client.call(SaslHandshakeRequest("PLAIN"), 1)
    assert list(answer.mechanisms) == ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"]
    answer = client.call(SaslAuthenticateRequest(TOKEN), 1)
    assert (answer.error_code, answer.auth_bytes, answer.session_lifetime_ms) == (0, b"", 0)
    assert client.call(MetadataRequest()).brokers
    assert client.call(SaslAuthenticateRequest(TOKEN), 2).error_code == ErrorCode.ILLEGAL_SASL_STATE
    again = client.call(SaslHandshakeRequest("PLAIN"), 1)
    assert (again.error_code, list(again.mechanisms)) == (ErrorCode.ILLEGAL_SASL_STATE, [])
    assert client.call(MetadataRequest()).brokers


def test_a_newer_api_versions_is_answered_and_may_come_again(client):
    frame = request_frame(codec(18, 3), 7, "x", codec(18, 3).encode_request(ApiVersionsRequest()))
    for _ in range(2):
        client.send_bytes(frame[:6] + struct.pack(">h", 99) + frame[8:])
        size, correlation_id, error = struct.unpack(">iih", client._receive_exactly(10))
        client._receive_exactly(size - 6)
        assert (correlation_id, error) == (7, ErrorCode.UNSUPPORTED_VERSION)
    assert client.call(ApiVersionsRequest("", ""), 3).error_code == ErrorCode.INVALID_REQUEST
    assert client.call(ApiVersionsRequest(), 0).error_code == 0
    client.send(ApiVersionsRequest(), 0)
    assert is_closed(client)


@pytest.mark.parametrize(
    "request_", [MetadataRequest(), SaslAuthenticateRequest(TOKEN)], ids=["metadata", "token"]
)
def test_what_comes_too_early_closes_without_an_answer(client, request_):
    client.send(request_, 1)
    assert is_closed(client)


def test_a_mechanism_that_is_not_there_is_answered_by_the_list_and_closed(client):
    answer = client.call(SaslHandshakeRequest("GSSAPI"), 1)
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert list(answer.mechanisms) == ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"]
    assert is_closed(client)


def test_fetch_between_handshake_and_token_gets_34_in_its_own_shape(client):
    handshake(client)
    answer = client.call(fetch_request("t", 0), 11)
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert is_closed(client)


def test_metadata_between_handshake_and_token_gets_34_for_its_topics(client):
    handshake(client)
    client.send(MetadataRequest([]), 9)
    client.receive()
    assert is_closed(client)


def test_a_newer_api_versions_between_them_gets_34_in_version_0(client):
    handshake(client)
    frame = request_frame(codec(18, 3), 7, "x", codec(18, 3).encode_request(ApiVersionsRequest()))
    client.send_bytes(frame[:6] + struct.pack(">h", 99) + frame[8:])
    size, correlation_id, error = struct.unpack(">iih", client._receive_exactly(10))
    assert (correlation_id, error) == (7, ErrorCode.ILLEGAL_SASL_STATE)
    client._receive_exactly(size - 6)
    assert is_closed(client)


def test_raw_tokens_after_a_handshake_of_version_0(client):
    handshake(client, version=0)
    raw(client, TOKEN)
    assert client._receive_exactly(4) == bytes(4)
    assert client.call(MetadataRequest()).brokers


@pytest.mark.parametrize(
    "token", [b"\0alice\0wrong", b"", b"\0", b"\x7f\xff" * 500], ids=["wrong", "empty", "nul", "bytes"]
)
def test_a_wrong_raw_token_closes_without_bytes(client, token):
    handshake(client, version=0)
    raw(client, token)
    assert is_closed(client)


def test_a_raw_token_and_what_follows_may_come_in_one_write(client):
    hello = request_frame(codec(17, 0), 1, "x", codec(17, 0).encode_request(SaslHandshakeRequest("PLAIN")))
    asks = request_frame(codec(3, 1), 2, "x", codec(3, 1).encode_request(MetadataRequest([])))
    client.send_bytes(hello + struct.pack(">i", len(TOKEN)) + TOKEN + asks)
    (size,) = struct.unpack(">i", client._receive_exactly(4))
    client._receive_exactly(size)
    assert client._receive_exactly(4) == bytes(4)
    _, correlation_id = struct.unpack(">ii", client._receive_exactly(8))
    assert correlation_id == 2


def test_a_wrong_password_is_58_with_a_text(client):
    handshake(client)
    answer = client.call(SaslAuthenticateRequest(b"\0alice\0wrong"), 2)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == "Authentication failed: Invalid username or password"
    assert answer.auth_bytes == b""
    assert is_closed(client)


def test_a_bad_token_of_oauthbearer_is_told_as_json_and_then_58(client):
    handshake(client, "OAUTHBEARER")
    expired = unsecured_jwt(sub="alice", exp=1)
    answer = client.call(SaslAuthenticateRequest(bearer(expired)), 2)
    assert (answer.error_code, bytes(answer.auth_bytes)) == (0, b'{"status":"invalid_token"}')
    answer = client.call(SaslAuthenticateRequest(b"\x01"), 2)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == '{"status":"invalid_token"}'
    assert is_closed(client)


def test_a_listener_without_sasl_advertises_both_and_answers_34():
    with running() as plain, BlockingConnection(plain.bootstrap_servers) as client:
        assert {17, 36} <= {key.api_key for key in client.call(ApiVersionsRequest(), 0).api_keys}
        answer = client.call(SaslHandshakeRequest("PLAIN"), 1)
        assert (answer.error_code, list(answer.mechanisms)) == (ErrorCode.ILLEGAL_SASL_STATE, [])
        assert client.call(SaslAuthenticateRequest(TOKEN), 2).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert client.call(MetadataRequest()).brokers


# --- re-authentication -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def short_sessions() -> Iterator[running]:
    with sasl_broker(connections_max_reauth_ms=60_000) as started:
        yield started


def test_requests_before_a_reauthentication_are_answered_first(tmp_path):
    with (
        sasl_broker(directory=tmp_path / "data", connections_max_reauth_ms=60_000) as broker,
        BlockingConnection(broker.bootstrap_servers, timeout_s=PATIENCE_S) as client,
    ):
        assert login(client) == 60_000
        create_topic(client, "t")
        for number in range(20):  # they wait for the disk
            client.send(produce_request("t", batch_of(b"%d" % number)), 9)
        client.send(SaslHandshakeRequest("PLAIN"), 1)
        client.send(SaslAuthenticateRequest(TOKEN), 2)
        client.send(MetadataRequest([]))
        offsets = [client.receive().responses[0].partition_responses[0].base_offset for _ in range(20)]
        assert offsets == list(range(20))
        assert client.receive().error_code == 0
        assert client.receive().session_lifetime_ms == 60_000
        assert client.receive().brokers


def test_requests_before_a_failed_reauthentication_are_answered_too(tmp_path):
    with (
        sasl_broker(directory=tmp_path / "data", connections_max_reauth_ms=60_000) as broker,
        BlockingConnection(broker.bootstrap_servers, timeout_s=PATIENCE_S) as client,
    ):
        login(client)
        create_topic(client, "t")
        for number in range(20):
            client.send(produce_request("t", batch_of(b"%d" % number)), 9)
        client.send(SaslHandshakeRequest("PLAIN"), 1)
        client.send(SaslAuthenticateRequest(b"\0alice\0wrong"), 2)
        assert [client.receive().responses[0].partition_responses[0].base_offset for _ in range(20)][-1] == 19
        assert client.receive().error_code == 0
        refused = client.receive()
        assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "password" in refused.error_message
        assert is_closed(client)


def test_a_session_that_is_over_is_closed_by_the_next_request(short_sessions):
    with BlockingConnection(short_sessions.bootstrap_servers, timeout_s=PATIENCE_S) as client:
        assert login(client) == 60_000
        short_sessions.server.broker.clock.shift_ms += 59_000
        assert client.call(MetadataRequest()).brokers
        short_sessions.server.broker.clock.shift_ms += 1_001
        client.send(MetadataRequest())
        assert is_closed(client)


def test_a_session_that_is_over_may_be_renewed(short_sessions):
    with BlockingConnection(short_sessions.bootstrap_servers, timeout_s=PATIENCE_S) as client:
        login(client)
        short_sessions.server.broker.clock.shift_ms += 120_000
        assert login(client) == 60_000
        assert client.call(MetadataRequest()).brokers


def test_another_mechanism_in_a_reauthentication_closes_at_the_next_frame(short_sessions):
    with BlockingConnection(short_sessions.bootstrap_servers, timeout_s=PATIENCE_S) as client:
        login(client)
        handshake(client, "OAUTHBEARER")
        client.send(SaslAuthenticateRequest(bearer(unsecured_jwt(sub="alice", exp=2**33))), 2)
        assert is_closed(client)


def test_another_user_in_a_reauthentication_is_refused(short_sessions):
    with BlockingConnection(short_sessions.bootstrap_servers, timeout_s=PATIENCE_S) as client:
        login(client)
        handshake(client)
        answer = client.call(SaslAuthenticateRequest(b"\0bob\0secret"), 2)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert (
            answer.error_message
            == "Cannot change principals during re-authentication from User.alice: User.bob"
        )
        assert is_closed(client)


# --- the pause after a failure -----------------------------------------------------------------------------------


def test_a_refused_client_waits_for_answer_and_close_and_is_not_read():
    with (
        sasl_broker(connection_failed_authentication_delay_ms=300) as broker,
        BlockingConnection(broker.bootstrap_servers, timeout_s=PATIENCE_S) as client,
    ):
        handshake(client)
        begun_s = time.monotonic()
        client.send(SaslAuthenticateRequest(b"\0alice\0wrong"), 2)
        client.send(SaslAuthenticateRequest(TOKEN), 2)  # not read any more
        assert client.receive().error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert time.monotonic() - begun_s >= 0.3
        assert is_closed(client)


def test_failures_of_one_address_make_the_pause_longer_until_they_are_forgotten():
    refusals = Refusals()
    pauses = [refusals.pause_ms("10.0.0.1", 100, 1_000) for _ in range(12)]
    assert pauses == [100] * 4 + [200, 400, 800, 1600, 3200, 5000, 5000, 5000]
    assert refusals.pause_ms("10.0.0.2", 100, 1_000) == 100
    assert refusals.pause_ms("10.0.0.1", 100, 31_000) == 100
    assert refusals.pause_ms("10.0.0.3", 0, 1_000) == 0
    assert refusals.pause_ms("10.0.0.4", 9_000, 1_000) == 9_000


def test_an_attacker_with_a_network_of_ipv6_is_one_address():
    refusals = Refusals()
    pauses = [refusals.pause_ms(f"2001:db8:0:0:0:0:0:{number:x}", 100, 0) for number in range(6)]
    assert pauses[-1] == 400


def test_the_log_has_one_line_a_minute_for_each_address_and_reason(caplog):
    refusals = Refusals()
    for number in range(100):
        refusals.tell(f"10.0.0.1:{number}", "10.0.0.1", f"a frame of {number} bytes", number)
    refusals.tell("10.0.0.2:1", "10.0.0.2", "a frame of 7 bytes", 200)
    refusals.tell("10.0.0.1:1", "10.0.0.1", "something else", 200)
    refusals.tell("10.0.0.1:1", "10.0.0.1", "a frame of 8 bytes", 60_000)
    assert [record.getMessage() for record in caplog.records] == [
        "closing the connection of 10.0.0.1:0: a frame of 0 bytes",
        "closing the connection of 10.0.0.2:1: a frame of 7 bytes",
        "closing the connection of 10.0.0.1:1: something else",
        "closing the connection of 10.0.0.1:1: a frame of 8 bytes (99 more of its kind in the last minutes)",
    ]


def test_what_is_remembered_of_addresses_is_bounded():
    refusals = Refusals()
    for number in range(10_000):
        refusals.pause_ms(f"10.0.{number // 250}.{number % 250}", 100, number)
        refusals.tell("peer", f"10.0.{number // 250}.{number % 250}", "a reason", number)
    assert len(refusals._failures) == len(refusals._lines) == 4_096


# --- limits before authentication ---------------------------------------------------------------------------------


def test_a_frame_may_have_16_kb_before_authentication(client):
    client.send_bytes(struct.pack(">i", 16 * 1024 + 1))
    assert is_closed(client)


def test_the_hello_of_tls_is_closed(client):
    client.send_bytes(bytes.fromhex("16030100f8010000f40303"))
    assert is_closed(client)


def test_a_token_of_oauthbearer_may_have_64_kb(client, broker):
    handshake(client, "OAUTHBEARER")
    client.send_bytes(struct.pack(">i", 64 * 1024))
    assert is_closed(client)
    with BlockingConnection(broker.bootstrap_servers) as other:
        handshake(other, "OAUTHBEARER")
        long_one = unsecured_jwt(sub="alice", exp=2**33, padding="x" * 40_000)
        assert other.call(SaslAuthenticateRequest(bearer(long_one)), 2).error_code == 0


def test_a_limit_that_was_set_holds_instead():
    with (
        sasl_broker(sasl_server_max_receive_size=500_000) as broker,
        BlockingConnection(broker.bootstrap_servers) as client,
    ):
        handshake(client)
        answer = client.call(SaslAuthenticateRequest(b"\0alice\0" + b"x" * 400_000), 2)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_after_authentication_a_frame_may_be_large(client):
    login(client)
    create_topic(client, f"large-{os.getpid()}-{time.monotonic_ns()}")
    assert client.call(FetchRequest(rack_id="x" * 30_000), 11).error_code == 0


def test_what_an_unknown_client_sends_allocates_little(broker):
    with ExitStack() as stack:
        clients = [stack.enter_context(BlockingConnection(broker.bootstrap_servers)) for _ in range(50)]
        for each in clients:
            each.send_bytes(struct.pack(">i", 16 * 1024) + b"x" * 16_000)
        connections = broker.server.admission.connections
        eventually(lambda: sum(c._filled for c in connections) >= 50 * 16_000, "all bytes have arrived")
        assert max(len(c._own or b"") for c in connections) <= 16 * 1024 + 4
        assert all(c._own is None or len(c._own) < 1 << 20 for c in connections)


def test_a_client_that_says_nothing_is_closed_after_ten_seconds(monkeypatch):
    assert sasl_connection.AUTHENTICATE_WITHIN_S == 10
    monkeypatch.setattr(sasl_connection, "AUTHENTICATE_WITHIN_S", 0.2)
    with (
        sasl_broker() as broker,
        BlockingConnection(broker.bootstrap_servers, timeout_s=PATIENCE_S) as silent,
        BlockingConnection(broker.bootstrap_servers) as good,
    ):
        login(good)
        assert is_closed(silent)
        assert good.call(MetadataRequest()).brokers


def test_silent_connections_keep_no_good_client_out():
    with sasl_broker(max_connections=100) as broker, ExitStack() as stack:
        silent = [stack.enter_context(BlockingConnection(broker.bootstrap_servers)) for _ in range(300)]
        good = stack.enter_context(BlockingConnection(broker.bootstrap_servers, timeout_s=PATIENCE_S))
        login(good)
        assert good.call(MetadataRequest()).brokers
        assert is_closed(silent[0])  # the oldest gave way
        assert broker.server.connection_count <= 100


def test_silent_connections_give_way_when_all_are_taken():
    with sasl_broker(max_connections=3) as broker, ExitStack() as stack:
        silent = [
            stack.enter_context(BlockingConnection(broker.bootstrap_servers, timeout_s=PATIENCE_S))
            for _ in range(3)
        ]
        good = stack.enter_context(BlockingConnection(broker.bootstrap_servers, timeout_s=PATIENCE_S))
        login(good)  # after the second that the others have
        assert is_closed(silent[0])


# --- no crash, nobody let in ------------------------------------------------------------------------------------

FRAMES = st.one_of(
    st.binary(max_size=200),
    st.builds(
        lambda key, version, rest: struct.pack(">hhi", key, version, 1) + rest,
        st.sampled_from([0, 1, 3, 17, 18, 18, 36, 36, 99, -1]),
        st.integers(-1, 5),
        st.binary(max_size=100),
    ),
    st.builds(
        lambda mechanism, version: request_frame(
            codec(17, version), 1, "fuzz", codec(17, version).encode_request(SaslHandshakeRequest(mechanism))
        )[4:],
        st.sampled_from(["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER", "GSSAPI"]),
        st.sampled_from([0, 1]),
    ),
    st.builds(
        lambda token: request_frame(
            codec(36, 2), 2, "fuzz", codec(36, 2).encode_request(SaslAuthenticateRequest(token))
        )[4:],
        st.one_of(
            st.binary(max_size=100),
            st.sampled_from(
                [
                    b"\0alice\0", b"\0alice\0wrong", b"n,,n=alice,r=x", b"c=biws,r=x,p=AAAA",
                    b"n,,\x01auth=Bearer a.b.\x01\x01", b"\x01",
                ]
            ),
        ),
    ),
)  # fmt: skip


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(frames=st.lists(FRAMES, max_size=6), cut=st.integers(0, 40))
def test_random_frames_let_nobody_in_and_break_nothing(frames, cut, broker, caplog):
    """Whatever comes, no connection gets a principal, and no exception is logged."""
    caplog.clear()
    with BlockingConnection(broker.bootstrap_servers, timeout_s=PATIENCE_S) as client:
        whole = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
        try:
            client.send_bytes(whole[: len(whole) - cut])
            client._socket.shutdown(socket.SHUT_WR)
            while True:
                client._receive_exactly(1)
        except OSError:
            pass
        assert all(c.principal == "User:ANONYMOUS" for c in broker.server.admission.connections)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


# --- secrets, settings, the file of users -----------------------------------------------------------------------


def test_no_secret_is_in_the_log(client, broker, caplog):
    broker.server.broker.clock.shift_ms += 60_000
    with caplog.at_level(logging.DEBUG):
        handshake(client)
        assert client.call(SaslAuthenticateRequest(b"\0alice\0hunter2"), 2).error_code
        assert is_closed(client)
        with BlockingConnection(broker.bootstrap_servers) as other:
            handshake(other, "OAUTHBEARER")
            token = unsecured_jwt(sub="alice", exp=1)
            other.call(SaslAuthenticateRequest(bearer(token)), 2)
            other.call(SaslAuthenticateRequest(b"\x01"), 2)
            assert is_closed(other)
    assert "the token has expired" in caplog.text
    assert "Invalid username or password" in caplog.text
    assert "hunter2" not in caplog.text
    assert token not in caplog.text


def test_a_name_cannot_forge_a_line_of_the_log(client, broker, caplog):
    broker.server.broker.clock.shift_ms += 60_000
    handshake(client, "OAUTHBEARER")
    token = unsecured_jwt(sub="alice", exp=2**33).encode()
    said = b"n,a=eve\nWARNING all is well,\x01auth=Bearer " + token + b"\x01\x01"
    assert client.call(SaslAuthenticateRequest(said), 2).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert is_closed(client)
    assert "authorization id" in caplog.text
    assert "all is well" not in caplog.text


def wrong(**changes: str) -> str:
    """Returns what a start with these settings of the listener says."""
    given = {**SETTINGS, **{f"listener.name.sasl_plaintext.{name}": text for name, text in changes.items()}}
    with pytest.raises(SettingError) as raised, running(settings=given):
        pass
    return str(raised.value)


def test_settings_that_would_let_in_the_wrong_people_stop_the_start(tmp_path):
    own = "sasl.server.callback.handler.class"
    signed = {f"oauthbearer.{own}": f"{OAUTH}.OAuthBearerValidatorCallbackHandler"}
    assert "cannot be run here" in wrong(**{f"plain.{own}": "com.example.Handler"})
    assert "the login module of PLAIN" in wrong(**{"plain.sasl.jaas.config": "a.ScramLoginModule required;"})
    assert "sasl.oauthbearer.jwks.endpoint.url" in wrong(**signed)
    missing = {"oauthbearer.sasl.oauthbearer.jwks.endpoint.url": (tmp_path / "none").as_uri()}
    assert "No such file" in wrong(**signed, **missing)
    assert "anybody can write" in wrong(**missing)
    assert "cannot read" in wrong(**{"sasl.credentials.file": str(tmp_path / "none")})
    nobody = {name: text for name, text in SETTINGS.items() if "jaas" not in name}
    with pytest.raises(SettingError, match="offers PLAIN but has no users"), running(settings=nobody):
        pass


def test_without_pyjwt_the_start_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "kohort.security.signed_tokens", None)
    monkeypatch.delitem(__import__("sys").modules, "kohort.broker.security.jwks", raising=False)
    handler = {
        "oauthbearer.sasl.server.callback.handler.class": f"{OAUTH}.OAuthBearerValidatorCallbackHandler"
    }
    assert "pip install 'kohort[oauth]'" in wrong(**handler)


def test_tokens_without_signatures_cause_a_warning(broker):
    (warning,) = broker.server.broker.config.warnings
    assert "anybody can be anybody" in warning


def test_an_open_listener_causes_a_warning_that_says_how_to_close_it():
    with running(listen="0.0.0.0:0", advertise="127.0.0.1:0") as everywhere:
        (warning,) = everywhere.server.broker.config.warnings
        assert "SASL_SSL" in warning
        assert "--listen 127.0.0.1" in warning
    with running() as here:
        assert here.server.broker.config.warnings == ()


def test_users_of_a_file_log_in_and_changes_count_at_once(tmp_path):
    path = tmp_path / "users"
    path.write_text(format_credentials({"al,i=ce": QUICK}))
    with sasl_broker(sasl_credentials_file=path) as broker:
        with BlockingConnection(broker.bootstrap_servers) as client:
            login(client, b"\0al,i=ce\0secret")
            assert {c.principal for c in broker.server.admission.connections} == {"User:al,i=ce"}
        PasswordFile(path).set("al,i=ce", "another")
        PasswordFile(path).set("carol", "hers")
        for token, is_right in (
            (b"\0al,i=ce\0secret", False),
            (b"\0al,i=ce\0another", True),
            (b"\0carol\0hers", True),
        ):
            with BlockingConnection(broker.bootstrap_servers, timeout_s=PATIENCE_S) as client:
                handshake(client)
                answer = client.call(SaslAuthenticateRequest(token), 2)
                assert (answer.error_code == 0) is is_right


def test_a_password_is_hashed_once_for_all_who_log_in_with_it(tmp_path, monkeypatch):
    hashed: list[str] = []
    matches = PasswordHash.matches

    def counted(self: PasswordHash, password: str) -> bool:
        hashed.append(threading.current_thread().name)
        return matches(self, password)

    monkeypatch.setattr(PasswordHash, "matches", counted)
    path = tmp_path / "users"
    path.write_text(format_credentials({"carol": QUICK}))
    with sasl_broker(sasl_credentials_file=path) as broker, ExitStack() as stack:
        for _ in range(5):
            login(stack.enter_context(BlockingConnection(broker.bootstrap_servers)), b"\0carol\0secret")
        assert len(hashed) == 1
        assert hashed[0].startswith("kohort-hash")


def test_an_unknown_user_takes_as_long_as_one_of_the_file(tmp_path, monkeypatch):
    """A file may have passwords of other iterations than the usual ones, which would tell its users from others."""
    took: list[int] = []
    matches = PasswordHash.matches

    def counted(self: PasswordHash, password: str) -> bool:
        took.append(self.iterations)
        return matches(self, password)

    monkeypatch.setattr(PasswordHash, "matches", counted)
    path = tmp_path / "users"
    path.write_text(format_credentials({"carol": QUICK, "dora": QUICK}))
    with sasl_broker(sasl_credentials_file=path) as broker:
        for user in (b"carol", b"nobody", b"eve"):
            with BlockingConnection(broker.bootstrap_servers) as client:
                handshake(client)
                answer = client.call(SaslAuthenticateRequest(b"\0%s\0wrong" % user), 2)
                assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert took == [QUICK.iterations] * 3


def test_a_password_of_one_listener_is_not_that_of_another(tmp_path):
    """The hashes of both run at once for one user and one password, and are not taken for each other."""
    slow = 200_000
    here, there = tmp_path / "here", tmp_path / "there"
    here.write_text(format_credentials({"carol": PasswordHash.of("secret", b"0123456789abcdef", slow)}))
    there.write_text(format_credentials({"carol": PasswordHash.of("another", b"fedcba9876543210", slow)}))
    settings = {
        "listeners": "HERE://127.0.0.1:0,THERE://127.0.0.1:0",
        "listener.security.protocol.map": "HERE:SASL_PLAINTEXT,THERE:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.here.sasl.credentials.file": str(here),
        "listener.name.there.sasl.credentials.file": str(there),
        "connection.failed.authentication.delay.ms": "0",
    }
    with running(settings=settings) as broker, ExitStack() as stack:
        clients = [
            stack.enter_context(BlockingConnection(str(listener.told), timeout_s=PATIENCE_S))
            for listener in broker.server.listeners
        ]
        for client in clients:
            handshake(client)
        for client in clients:
            client.send(SaslAuthenticateRequest(b"\0carol\0secret"), 2)
        codes = [client.receive().error_code for client in clients]
        assert codes == [0, ErrorCode.SASL_AUTHENTICATION_FAILED]


def test_an_old_password_is_not_right_because_it_was_being_checked(tmp_path):
    path = tmp_path / "users"
    path.write_text(format_credentials({"carol": PasswordHash.of("secret", b"0123456789abcdef", 200_000)}))
    with sasl_broker(sasl_credentials_file=path) as broker, ExitStack() as stack:
        early, late = (
            stack.enter_context(BlockingConnection(broker.bootstrap_servers, timeout_s=PATIENCE_S))
            for _ in range(2)
        )
        handshake(early)
        handshake(late)
        early.send(SaslAuthenticateRequest(b"\0carol\0secret"), 2)
        eventually(lambda: broker.server.broker.guard.workers._hashes._running, "a check that runs")
        path.write_text(format_credentials({"carol": PasswordHash.of("another", b"fedcba9876543210", 10)}))
        late.send(SaslAuthenticateRequest(b"\0carol\0secret"), 2)
        assert late.receive().error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
