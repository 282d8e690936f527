"""Certificates for tests of TLS, made by trustme: an authority, brokers and clients that it signed, a stranger.

    made = make_certificates(tmp_path)
    with running(settings=made.listener("SSL")) as broker: …
    Producer({**made.client(), "bootstrap.servers": broker.bootstrap_servers})

Keys are elliptic and in PKCS#8, which is the only form that Java reads.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

LOCAL = ("localhost", "127.0.0.1")


@dataclass(frozen=True)
class Certified:
    """One who has a key and a certificate. `store` is the file that has both, as ssl.keystore.location wants it."""

    directory: Path
    name: str

    @property
    def key(self) -> str:
        return str(self.directory / f"{self.name}.key")

    @property
    def certificate(self) -> str:
        return str(self.directory / f"{self.name}.pem")

    @property
    def store(self) -> str:
        return str(self.directory / f"{self.name}.store.pem")

    def text(self, kind: str) -> str:
        """The content of `key`, `certificate` or `store`."""
        return Path(getattr(self, kind)).read_text()


class Authority:
    """A certificate authority whose files are in one directory."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self.directory, self._ca = directory, trustme.CA()
        directory.mkdir(parents=True, exist_ok=True)
        self.certificate = str(directory / f"{name}.pem")
        self._ca.cert_pem.write_to_path(self.certificate)

    def certify(
        self,
        name: str,
        *hosts: str,
        password: str | None = None,
        organization: str = "Kohort",
        directory: Path | None = None,
        unit: str = "Tests",
    ) -> Certified:
        """Makes a key and a certificate for CN=name; a file that is there already is replaced."""
        made, leaf = Certified(directory or self.directory, name), self._ca.issue_cert(
            *(hosts or LOCAL), common_name=name, organization_name=organization, organization_unit_name=unit
        )  # fmt: skip
        made.directory.mkdir(exist_ok=True)
        how: KeySerializationEncryption = NoEncryption()
        if password is not None:
            how = BestAvailableEncryption(password.encode())
        loaded = load_pem_private_key(leaf.private_key_pem.bytes(), None)
        key = loaded.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how)
        chain = b"".join(pem.bytes() for pem in leaf.cert_chain_pems)
        Path(made.key).write_bytes(key)
        Path(made.certificate).write_bytes(chain)
        Path(made.store).write_bytes(key + chain)
        return made


@dataclass(frozen=True)
class Certificates:
    """What most tests need. The certificates of others are made when they are first asked for."""

    directory: Path
    authority: Authority
    broker: Certified

    @cached_property
    def alice(self) -> Certified:
        """A client whom the authority knows: CN=alice,OU=Tests,O=Kohort."""
        return self.authority.certify("alice", "alice.test")

    @cached_property
    def strange_authority(self) -> Authority:
        """An authority that nobody trusts."""
        return Authority(self.directory / "strange")

    @cached_property
    def stranger(self) -> Certified:
        """A client of the strange authority, who calls herself alice too."""
        return self.strange_authority.certify("alice", "alice.test")

    def listener(
        self, protocol: str, *, port: int = 0, name: str | None = None, **more: str
    ) -> dict[str, str]:
        """Settings of a broker with one listener: SSL or SASL_SSL. Keywords have _ for each dot."""
        name = name or protocol
        return {
            "listeners": f"{name}://127.0.0.1:{port}",
            "listener.security.protocol.map": f"{name}:{protocol}",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.broker.store,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.authority.certificate,
            **{key.replace("_", "."): value for key, value in more.items()},
        }

    def client(self, who: Certified | None = None) -> dict[str, str]:
        """Settings of our client and of librdkafka's: it trusts the authority, and shows the certificate of `who`."""
        own = (
            {} if who is None else {"ssl.certificate.location": who.certificate, "ssl.key.location": who.key}
        )
        return {"security.protocol": "SSL", "ssl.ca.location": self.authority.certificate, **own}

    def context(self, who: Certified | None = None, *, authority: Authority | None = None) -> ssl.SSLContext:
        """What a client in Python connects with."""
        context = ssl.create_default_context(cafile=(authority or self.authority).certificate)
        if who is not None:
            context.load_cert_chain(who.certificate, who.key)
        return context


def make_certificates(directory: Path) -> Certificates:
    authority = Authority(directory)
    return Certificates(directory, authority, authority.certify("broker"))
