"""A connection with SASL that counts its requests."""

from __future__ import annotations

from kohort.broker.net.connection import Connection
from kohort.broker.net.metered import MeteredConnection
from kohort.broker.net.sasl_connection import SaslConnection
from kohort.security.sasl import SASL_AUTHENTICATE


class MeteredSaslConnection(SaslConnection, MeteredConnection):
    """The connection of one client that has to say who it is, of a broker whose metrics are served.

    What a client says until it is authenticated counts as SaslAuthenticate: tokens may have no header that says what
    they are.
    """

    _is_login = True

    def buffer_updated(self, nbytes: int) -> None:
        if self.sasl.is_authenticated:
            super().buffer_updated(nbytes)
        else:
            Connection.buffer_updated(self, nbytes)  # each read is counted by _count

    def _consume(self, data: memoryview) -> int:
        self._is_login = not self.sasl.is_authenticated
        return super()._consume(data)

    def _count(self, frames: memoryview) -> None:
        if self._is_login:
            super()._count(frames[:0])
            self._apis[SASL_AUTHENTICATE].request_bytes += len(frames)
        else:
            super()._count(frames)
