"""SASL PLAIN (RFC 4616), the server's side."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from functools import partial

from kohort.security.credentials_file import ITERATIONS, SALT_BYTES, PasswordHash
from kohort.security.mechanism import LoginAccepted, LoginRefused, Outcome, SlowStep

_REFUSED = "Authentication failed: Invalid username or password"
_OTHER_ID = "Authentication failed: Client requested an authorization id that is different from username"
_USER = "user_"


class PlainPasswords:
    """Checks passwords: those in clear of the JAAS setting at once, those of a file by a hash that takes its time.

    A password of the file that was right is remembered by its HMAC, under a key of this process, until its user gets
    another one. An unknown user takes as long as a wrong password: as many iterations as one of the file has.
    """

    def __init__(
        self,
        in_clear: Mapping[str, str],
        hashed: Callable[[], Mapping[str, PasswordHash]] | None,
        secret: bytes,
    ) -> None:
        self._in_clear, self._hashed, self._secret = in_clear, hashed, secret
        self._users: Mapping[str, PasswordHash] = {}
        self._iterations: tuple[int, ...] = ()  # of each of these users
        self._good: dict[str, bytes] = {}

    def check(self, user: str, password: str) -> LoginAccepted | LoginRefused | SlowStep:
        """Tells whether this is the user's password, or how to find out."""
        expected = self._in_clear.get(user)
        is_right = hmac.compare_digest((expected or "").encode(), password.encode())
        if expected is not None and is_right:
            return LoginAccepted(f"User:{user}")
        if self._hashed is None:
            return LoginRefused(_REFUSED)
        users = self._hashed()
        stored = users.get(user)
        checked = stored or self._nobody(user, users)
        mark = self._mark(user, password, checked)
        good = self._good.get(user)
        if good is not None and hmac.compare_digest(good, mark):
            return LoginAccepted(f"User:{user}")
        work = partial(checked.matches, password)
        return SlowStep(work, partial(self._checked, user, None if stored is None else mark), mark)

    def _nobody(self, user: str, users: Mapping[str, PasswordHash]) -> PasswordHash:
        """Returns what an unknown user is checked against: it takes as long as one of the others, always the same."""
        if users is not self._users:
            self._users, self._iterations = users, tuple(sorted(each.iterations for each in users.values()))
        number = int.from_bytes(hmac.digest(self._secret, user.encode(), "sha256")[:8], "big")
        iterations = self._iterations[number % len(self._iterations)] if self._iterations else ITERATIONS
        return PasswordHash(self._secret[:SALT_BYTES], bytes(64), iterations)

    def _mark(self, user: str, password: str, stored: PasswordHash) -> bytes:
        """Returns what a password is remembered by, for this hash alone: another file, or a new password, has another.

        Logins with the same mark share one piece of work, so the mark must say all that its outcome depends on.
        """
        said = f"{user}\0{password}\0{stored.iterations}".encode()
        return hmac.digest(self._secret, stored.salt + stored.digest + said, "sha256")

    def _checked(self, user: str, mark: bytes | None, is_right: bool, now_ms: int) -> Outcome:
        if mark is None or not is_right:
            return LoginRefused(_REFUSED)
        self._good[user] = mark
        return LoginAccepted(f"User:{user}")


class PlainExchange:
    """One login: `[authzid] NUL user NUL password`."""

    def __init__(self, passwords: PlainPasswords) -> None:
        self._passwords = passwords

    def step(self, said: bytes, now_ms: int) -> Outcome | SlowStep:
        """Takes the one message of the client."""
        try:
            authorization_id, user, password = said.decode().split("\0")
        except ValueError:  # it is not UTF-8, or has not three parts
            return LoginRefused(reason="malformed PLAIN message")
        if not user or not password:
            return LoginRefused(reason="PLAIN message without a user or a password")
        if authorization_id in ("", user):
            return self._passwords.check(user, password)
        return _with_other_id(self._passwords.check(user, password))


def _with_other_id(checked: LoginAccepted | LoginRefused | SlowStep) -> Outcome | SlowStep:
    """Refuses a client that wants to be somebody else; the wrong password comes first, as in Kafka."""
    if isinstance(checked, SlowStep):

        def then(found: object, now_ms: int) -> Outcome:
            outcome = checked.then(found, now_ms)
            return LoginRefused(_OTHER_ID) if isinstance(outcome, LoginAccepted) else outcome

        return SlowStep(checked.work, then, checked.key)
    return LoginRefused(_OTHER_ID) if isinstance(checked, LoginAccepted) else checked


def passwords_of(options: Mapping[str, str]) -> dict[str, str]:
    """Returns the users of a JAAS entry: `user_alice="secret"`."""
    return {name.removeprefix(_USER): value for name, value in options.items() if name.startswith(_USER)}
