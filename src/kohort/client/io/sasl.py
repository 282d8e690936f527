"""What a client logs in with: passwords and tokens from its settings, made ready before a connection needs them."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, Protocol

from kohort.client.config import ClientConfig
from kohort.client.core.sasl_login import Credentials, Exchange, oauthbearer, plain, scram
from kohort.client.core.security_settings import credentials
from kohort.client.io.reactor import Reactor
from kohort.client.io.tokens import Prepared, TokenStore, token_source
from kohort.security.scram import ScramMechanism

_PASSWORD = "sasl.username and sasl.password"
_TOKEN = "the token: who issued it, until when it is good, and for whom (aud)"


class SaslMechanism(Protocol):
    """A mechanism of SASL with its credentials."""

    @property
    def credentials(self) -> Credentials: ...
    def prepare(self, reactor: Reactor, then: Prepared) -> None:
        """Calls `then` when the credentials can be shown, at once or later."""


class PasswordMechanism:
    """PLAIN or SCRAM: there is nothing to wait for."""

    def __init__(self, credentials: Credentials) -> None:
        self.credentials = credentials

    def prepare(self, reactor: Reactor, then: Prepared) -> None:
        then(None)


class TokenMechanism:
    """OAUTHBEARER: the token may have to come first."""

    def __init__(self, store: TokenStore) -> None:
        self._store = store
        self.prepare = store.prepare
        self.credentials = Credentials("OAUTHBEARER", self._begin, _TOKEN)

    def _begin(self) -> Exchange:
        token = self._store.token
        return oauthbearer(token.value, token.extensions)


def mechanism_for(config: ClientConfig, objects: Mapping[str, Any]) -> SaslMechanism:
    """Returns what sasl.mechanism names, with its credentials."""
    name = config.sasl_mechanism
    if name == "OAUTHBEARER":
        return TokenMechanism(
            TokenStore(token_source(config, objects), config.sasl_login_refresh_window_factor)
        )
    username, password = credentials(config)
    if name == "PLAIN":
        return PasswordMechanism(Credentials(name, lambda: plain(username, password), _PASSWORD))
    mechanism = ScramMechanism[name.replace("-", "_")]
    return PasswordMechanism(
        Credentials(name, lambda: scram(mechanism, username, password, secrets.token_urlsafe(24)), _PASSWORD)
    )
