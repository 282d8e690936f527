"""Certificates for tests, made by `openssl`: an authority, a broker signed by it, a client, and a stranger.

They say what they may be used for and who signed them: Python 3.13 and newer insist on it.
"""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

_OF_AUTHORITY = """[req]
distinguished_name = subject
x509_extensions = extensions
[subject]
[extensions]
basicConstraints = critical, CA:true
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
"""
_OF_SIGNED = """basicConstraints = critical, CA:false
keyUsage = critical, digitalSignature
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = """


@dataclass(frozen=True)
class Certificates:
    directory: Path

    def path(self, name: str) -> str:
        return str(self.directory / name)

    @property
    def authority(self) -> str:
        return self.path("authority.pem")

    def server_context(self, *, ask_client: bool = False, name: str = "broker") -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.path(f"{name}.pem"), self.path(f"{name}.key"))
        if ask_client:
            context.load_verify_locations(self.authority)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


def make_certificates(directory: Path) -> Certificates:
    made = Certificates(directory)
    _self_signed(made, "authority", "/CN=Kohort test authority")
    _self_signed(made, "stranger", "/CN=localhost")
    _signed(made, "broker", "DNS:localhost,IP:127.0.0.1")
    _signed(made, "elsewhere", "DNS:elsewhere.test")
    _signed(made, "client", "DNS:client.test")
    _openssl("pkey", "-in", made.path("client.key"), "-aes256", "-passout", "pass:sesame",
             "-out", made.path("client.locked.key"))  # fmt: skip
    return made


def _self_signed(made: Certificates, name: str, subject: str) -> None:
    config = made.directory / f"{name}.cnf"
    config.write_text(_OF_AUTHORITY)
    _openssl("req", "-x509", "-config", str(config), "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
             "-nodes", "-days", "2",
             "-subj", subject, "-keyout", made.path(f"{name}.key"), "-out", made.path(f"{name}.pem"))  # fmt: skip


def _signed(made: Certificates, name: str, alternative_names: str) -> None:
    request, extensions = made.path(f"{name}.csr"), made.directory / f"{name}.ext"
    extensions.write_text(_OF_SIGNED + alternative_names)
    _openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
             "-keyout", made.path(f"{name}.key"), "-out", request)  # fmt: skip
    _openssl("x509", "-req", "-in", request, "-CA", made.authority, "-CAkey", made.path("authority.key"),
             "-CAcreateserial", "-days", "2", "-extfile", str(extensions),
             "-out", made.path(f"{name}.pem"))  # fmt: skip


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=120)
