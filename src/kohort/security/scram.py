"""SCRAM-SHA-256 and -512 (RFC 5802): the keys of both sides, and the server's side with what it stores."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from kohort.security.mechanism import Challenge, LoginAccepted, LoginRefused, Outcome

MIN_ITERATIONS, MAX_ITERATIONS = 4096, 16384
_SALT_BYTES = 24
_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_NONCE = r"[\x21-\x2b\x2d-\x7e]+"
_EXTENSIONS = r"(?:,[A-Za-z]+=[\x01-\x2b\x2d-\x7f]+)*"
# RFC 5802 reserves m= for extensions that a server must know, or refuse. Kafka lets it pass, unsigned, and so do we:
# what a client means by it is not known to anybody, and its login is checked as any other.
_CLIENT_FIRST = re.compile(
    rf"n,(?:a=(?P<authzid>{_NAME}))?,(?:m=[\x01-\x2b\x2d-\x7f]+,)?"
    rf"(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>{_NONCE})(?P<extensions>{_EXTENSIONS}))"
)
_CLIENT_FINAL = re.compile(
    rf"(?P<signed>c=[A-Za-z0-9/+=]*,r=(?P<nonce>{_NONCE})){_EXTENSIONS},p=(?P<proof>[A-Za-z0-9/+=]+)"
)
_OTHER_ID = "Authentication failed: Client requested an authorization id that is different from username"


class ScramMechanism(IntEnum):
    """The mechanisms, with the codes of AlterUserScramCredentials."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        return self.name.replace("_", "-")

    @property
    def digest(self) -> str:
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What the broker keeps of a password: enough to check it, not enough to log in with it elsewhere."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"

    @staticmethod
    def of(
        mechanism: ScramMechanism, salted_password: bytes, salt: bytes, iterations: int
    ) -> ScramCredential:
        """Makes it of a password that the client has salted."""
        client_key, server_key = scram_keys(mechanism, salted_password)
        return ScramCredential(salt, stored_key(mechanism, client_key), server_key, iterations)


def salted_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Salts a password; this takes milliseconds on purpose."""
    return hashlib.pbkdf2_hmac(mechanism.digest, password.encode(), salt, iterations)


def scram_keys(mechanism: ScramMechanism, salted: bytes) -> tuple[bytes, bytes]:
    """Returns the client's key and the server's key of a salted password."""
    digest = mechanism.digest
    return hmac.digest(salted, b"Client Key", digest), hmac.digest(salted, b"Server Key", digest)


def stored_key(mechanism: ScramMechanism, client_key: bytes) -> bytes:
    """Returns what is stored of the client's key: a client shows the key, which nobody can make of this."""
    return hashlib.new(mechanism.digest, client_key).digest()


def masked(key: bytes, signature: bytes) -> bytes:
    """Returns the proof of a client's key, or the key of a proof: one XOR the signature is the other."""
    return bytes(a ^ b for a, b in zip(key, signature, strict=True))


def escaped(name: str) -> str:
    """Returns the name of a user as SCRAM messages have it."""
    return name.replace("=", "=3D").replace(",", "=2C")


Lookup = Callable[[str], ScramCredential | None]


class ScramShape(NamedTuple):
    """What everybody can see of a credential before they have shown a password, and what depends on who made it."""

    iterations: int
    salt_bytes: int
    is_text: bool
    """Whether the salt is digits and small letters, as Java makes it, or any bytes, as others do."""

    @staticmethod
    def of(salt: bytes, iterations: int) -> ScramShape:
        return ScramShape(iterations, len(salt), all(byte in _JAVA_DIGITS for byte in salt))


_JAVA_DIGITS: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"
_NO_USERS: Final = Counter({ScramShape(MIN_ITERATIONS, _SALT_BYTES, False): 1})


class ScramExchange:
    """One login: the client's first message, then its proof. Both sides show that they know the password.

    An unknown user gets a salt too, made of its name and a secret of this broker, so that nobody learns which users
    there are; the proof is refused. `shapes` counts the shapes of those that exist: the made-up ones look like them.
    """

    def __init__(
        self,
        mechanism: ScramMechanism,
        look_up: Lookup,
        nonce: str,
        secret: bytes,
        shapes: Callable[[], Counter[ScramShape]] = Counter,
    ) -> None:
        self._mechanism, self._look_up, self._nonce, self._secret = mechanism, look_up, nonce, secret
        self._shapes = shapes
        self._user: str | None = None
        self._is_known = False
        self._so_far = ""
        self._whole_nonce = ""

    def step(self, said: bytes, now_ms: int) -> Outcome:
        """Takes what the client said."""
        try:
            text = said.decode("ascii")
        except UnicodeDecodeError:
            return LoginRefused(reason="malformed SCRAM message")
        return self._first(text) if self._user is None else self._final(text)

    def _first(self, text: str) -> Challenge | LoginRefused:
        found = _CLIENT_FIRST.fullmatch(text)
        if found is None:
            return LoginRefused(reason="malformed SCRAM message")
        if "tokenauth=true" in found["extensions"].lower().split(","):
            return LoginRefused(reason="there are no delegation tokens")
        user = _unescaped(found["name"])
        if found["authzid"] is not None and _unescaped(found["authzid"]) != user:
            return LoginRefused(_OTHER_ID)
        known = self._look_up(user)
        self._user, self._is_known = user, known is not None
        self._credential = known or self._made_up(user)
        self._whole_nonce = found["nonce"] + self._nonce
        salt = base64.b64encode(self._credential.salt).decode()
        answer = f"r={self._whole_nonce},s={salt},i={self._credential.iterations}"
        self._so_far = f"{found['bare']},{answer}"
        return Challenge(answer.encode())

    def _made_up(self, user: str) -> ScramCredential:
        """Returns what an unknown user is checked against: always the same, and matched by no password."""
        salted = hashlib.shake_256(hmac.digest(self._secret, user.encode(), "sha256"))
        shape = _chosen(self._shapes() or _NO_USERS, int.from_bytes(salted.digest(8), "big"))
        salt = salted.digest(8 + shape.salt_bytes)[8:]
        if shape.is_text:
            salt = bytes(_JAVA_DIGITS[byte % len(_JAVA_DIGITS)] for byte in salt)
        key = hmac.digest(self._secret, salt, self._mechanism.digest)
        return ScramCredential(salt, key, key, shape.iterations)

    def _final(self, text: str) -> LoginAccepted | LoginRefused:
        found = _CLIENT_FINAL.fullmatch(text)
        credential, digest = self._credential, self._mechanism.digest
        if found is None or found["nonce"] != self._whole_nonce:
            return LoginRefused(reason="malformed SCRAM message")
        try:
            proof = base64.b64decode(found["proof"], validate=True)
        except (binascii.Error, ValueError):
            return LoginRefused(reason="malformed SCRAM message")
        signed = f"{self._so_far},{found['signed']}".encode()  # without extensions, as Kafka
        signature = hmac.digest(credential.stored_key, signed, digest)
        if len(proof) != len(signature):
            return LoginRefused(reason="malformed SCRAM message")
        shown = stored_key(self._mechanism, masked(proof, signature))
        is_right = hmac.compare_digest(shown, credential.stored_key)
        if not (is_right and self._is_known):
            return LoginRefused()
        server_signature = hmac.digest(credential.server_key, signed, digest)
        return LoginAccepted(f"User:{self._user}", b"v=" + base64.b64encode(server_signature))


def _chosen(shapes: Counter[ScramShape], number: int) -> ScramShape:
    """Returns one of the shapes, as often as it is there: the same for the same number while they do not change."""
    left = number % shapes.total()
    for shape, count in sorted(shapes.items()):
        if left < count:
            return shape
        left -= count
    raise AssertionError("there are as many as their total")


def _unescaped(name: str) -> str:
    """Returns a name with =2C and =3D replaced; the pattern lets no other = through."""
    return name.replace("=2C", ",").replace("=3D", "=")
