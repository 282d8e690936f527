"""A connection with SASL that counts its requests."""

from __future__ import annotations

from kohort.broker.net.metered import MeteredConnection
from kohort.broker.net.sasl_connection import SaslConnection


class MeteredSaslConnection(SaslConnection, MeteredConnection):
    """The connection of one client that has to say who it is, of a broker whose metrics are served."""
