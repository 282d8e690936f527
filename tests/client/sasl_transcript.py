"""Replays transcripts of logins: lines at the margin are events, indented lines are what client and broker said.

The client's side is `login` and `session_times`, the broker's side is the `SaslSession` of our broker; neither has a
socket or a clock. Events:
    broker PLAIN SCRAM-SHA-256 [lifetime=60000]     what the listener offers; all its users are ann with "secret"
    connect | at 54000                              a new connection at time 0; time passes
    login PLAIN ann secret                          a login, or one that renews the session
    request 3                                       what the broker does with a request of this API now
    answers 34 | answers 58 text                    what another broker would answer to a handshake, or to a token
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kohort.client.core.effects import Rejected
from kohort.client.core.sasl_login import (
    Credentials,
    Exchange,
    login,
    oauthbearer,
    plain,
    scram,
    session_times,
)
from kohort.security.mechanism import ServerExchange
from kohort.security.plain import PlainExchange, PlainPasswords
from kohort.security.sasl import AuthenticateAnswer, SaslOffer, SaslSession
from kohort.security.scram import ScramCredential, ScramExchange, ScramMechanism, salted_password
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.sasl_authenticate import SaslAuthenticateResponse
from kohort.wire.messages.sasl_handshake import SaslHandshakeResponse

FOLDER = Path(__file__).parent / "sasl_transcripts"
HANDSHAKE = 17


class LoginScript:
    """One method for each event of a transcript."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.now_ms = 0
        self.offer = SaslOffer({}, {})
        self.session = SaslSession(self.offer)
        self.forced: tuple[ErrorCode, str] | None = None

    def do_broker(self, words: list[str]) -> None:
        names = [word for word in words if "=" not in word]
        lifetime_ms = next((int(word.partition("=")[2]) for word in words if "=" in word), 0)
        self.offer = SaslOffer({name: _server(name) for name in names}, dict.fromkeys(names, lifetime_ms))

    def do_connect(self, words: list[str]) -> None:
        self.session, self.now_ms = SaslSession(self.offer), 0
        self.session.versions_told()

    def do_at(self, words: list[str]) -> None:
        self.now_ms = int(words[0])

    def do_request(self, words: list[str]) -> None:
        self.lines.append(self.session.gate(int(words[0]), self.now_ms).name)

    def do_answers(self, words: list[str]) -> None:
        self.forced = ErrorCode(int(words[0])), " ".join(words[1:])

    def do_login(self, words: list[str]) -> None:
        mechanism, *credentials = words
        requests = login(
            Credentials(mechanism, _client(mechanism, credentials), "the password"), {36: (0, 2)}
        )
        answer: Any = None
        try:
            while True:
                key, version, request = requests.send(answer)
                message: Any = request
                said = message.mechanism if key == HANDSHAKE else message.auth_bytes
                self.lines.append(f"-> {type(message).__name__.removesuffix('Request')} v{version}: {said!r}")
                answer = self._handshake(message) if key == HANDSHAKE else self._authenticate(message)
        except StopIteration as done:
            times = session_times(self.now_ms, done.value, 0.5)
            self.lines.append(
                f"logged in; {times}" if times else "logged in for as long as the connection lasts"
            )
        except Rejected as rejected:
            self.lines.append(f"{rejected.failure.kind.name}: {rejected.failure.message}")

    def _handshake(self, message: Any) -> SaslHandshakeResponse:
        if self.forced is not None and self.forced[0] is ErrorCode.ILLEGAL_SASL_STATE:
            answer = SaslHandshakeResponse(self.forced[0], [])
        elif self.forced is not None:
            answer = SaslHandshakeResponse(mechanisms=[message.mechanism])
        else:
            told = self.session.handshake(message.mechanism, 1, self.now_ms)
            answer = SaslHandshakeResponse(told.error, list(told.mechanisms))
        self.lines.append(f"<- {ErrorCode(answer.error_code).name} {', '.join(answer.mechanisms)}".rstrip())
        return answer

    def _authenticate(self, message: Any) -> SaslAuthenticateResponse:
        if self.forced is not None:
            answer = SaslAuthenticateResponse(self.forced[0], self.forced[1])
        else:
            told = self.session.authenticate(bytes(message.auth_bytes), self.now_ms)
            assert isinstance(told, AuthenticateAnswer)
            answer = SaslAuthenticateResponse(told.error, told.message, told.told, told.session_lifetime_ms)
        said = f" {answer.auth_bytes!r}" if answer.auth_bytes else ""
        lasts = f" for {answer.session_lifetime_ms} ms" if answer.session_lifetime_ms else ""
        words = f" {answer.error_message}" if answer.error_message else ""
        self.lines.append(f"<- {ErrorCode(answer.error_code).name}{words}{said}{lasts}")
        return answer


def _client(mechanism: str, words: list[str]) -> Callable[[], Exchange]:
    if mechanism == "OAUTHBEARER":
        return lambda: oauthbearer(words[0], {})
    if mechanism.startswith("SCRAM"):
        kind = ScramMechanism[mechanism.replace("-", "_")]
        return lambda: scram(kind, words[0], words[1], "client-nonce-")
    return lambda: plain(words[0], words[1])


def _server(name: str) -> Callable[[], ServerExchange]:
    if name == "PLAIN":
        passwords = PlainPasswords({"ann": "secret", "bob": "secret"}, None, b"secret of the broker")
        return lambda: PlainExchange(passwords)
    kind = ScramMechanism[name.replace("-", "_")]
    salt = b"salt of the broker"
    known = ScramCredential.of(kind, salted_password(kind, "secret", salt, 4096), salt, 4096)
    return lambda: ScramExchange(kind, {"ann": known}.get, "broker-nonce", b"secret of the broker")


def replay(text: str) -> str:
    """Runs the events of a transcript and returns it with what followed now."""
    script = LoginScript()
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith(" "):
            continue
        lines.append(line)
        if line and not line.startswith("#"):
            script.lines = []
            verb, *words = line.split()
            getattr(script, "do_" + verb)(words)
            lines += ["    " + said for said in script.lines]
    return "\n".join(lines) + "\n"


if __name__ == "__main__" and sys.argv[1:2] == ["--rerecord"]:
    for path in sorted(FOLDER.glob("*.txt")):
        path.write_text(replay(path.read_text("utf-8")), "utf-8")
