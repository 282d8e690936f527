"""Answers who may come in and who may do what, from the settings and from what the registry has."""

from __future__ import annotations

import logging
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from logging import DEBUG
from typing import TYPE_CHECKING

from kohort.broker.clock import Clock
from kohort.broker.config import BrokerConfig
from kohort.broker.listeners import Listener
from kohort.broker.security.audit import AuditLog, audit_log
from kohort.broker.security.listener_settings import LIMITS, ListenerSettings, read_listener_settings
from kohort.broker.security.login_workers import LoginWorkers
from kohort.broker.security.sasl_offer import sasl_offer
from kohort.log.registry import AclCreated, AclDeleted, RegistryEntry, ScramUserSet
from kohort.log.store import Store
from kohort.security.acls import Acl, AclOperation, AclResource, PatternType, Permission, all_operations
from kohort.security.authorizer import Authorizer
from kohort.security.sasl import SaslOffer
from kohort.security.scram import ScramCredential, ScramExchange, ScramMechanism, ScramShape
from kohort.settings import INT_MAX, SettingError

if TYPE_CHECKING:
    from kohort.broker.call import Call
    from kohort.broker.security.tls import ListenerTls, TlsStores

log = logging.getLogger("kohort.broker")

_AUTHORIZERS = {
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
    "kafka.security.auth.SimpleAclAuthorizer",
}
_NONCE_BYTES = 18
_LONGEST_KEPT = 300  # characters of a name in what a caller was granted


class BrokerGuard:
    """The security of one node: its offers of SASL, its users, its ACLs. Belongs to the event loop's thread."""

    def __init__(
        self, config: BrokerConfig, store: Store, of_listeners: Mapping[str, ListenerSettings]
    ) -> None:
        self._store, self._of_listeners = store, of_listeners
        self._static = {**config.static_values, **config.listener_values}
        self._secret = secrets.token_bytes(32)
        self._shapes: dict[int, Counter[ScramShape]] = {}
        self._shapes_at = -1  # which changes of the users they are of
        self._offers = {
            name: sasl_offer(name, settings, self._scram, self._secret, [])
            for name, settings in of_listeners.items()
            if settings.mechanisms
        }
        self.workers = LoginWorkers()
        self._audit = AuditLog(Clock())
        self.tls = _tls_of_listeners(of_listeners)
        self.authorizer = authorizer_of(config)
        if self.authorizer is not None:
            for entry in store.acls():
                self.authorizer.add(acl_of(entry))

    # --- authentication ---------------------------------------------------------------------------

    def offer(self, listener: str) -> SaslOffer:
        """Returns what a listener with SASL offers."""
        return self._offers[listener]

    def limits(self, listener: str) -> tuple[int, int]:
        """Returns how many connections a listener may have, and how many may begin in a second."""
        values = self._of_listeners[listener].values
        most, a_second = (int(values.get(name, INT_MAX)) for name in LIMITS)
        return most, a_second

    def _scram(self, mechanism: ScramMechanism) -> ScramExchange:
        def look_up(user: str) -> ScramCredential | None:
            row = self._store.scram_user(user, mechanism)
            return None if row is None else credential_of(row)

        nonce = secrets.token_urlsafe(_NONCE_BYTES)
        return ScramExchange(mechanism, look_up, nonce, self._secret, partial(self._scram_shapes, mechanism))

    def _scram_shapes(self, mechanism: ScramMechanism) -> Counter[ScramShape]:
        """Counts what the users of a mechanism look like to somebody who does not know their passwords."""
        changes = self._store.scram_changes
        if self._shapes_at != changes:
            self._shapes_at, self._shapes = changes, {}
            for entry in self._store.scram_entries():
                shape = ScramShape.of(bytes.fromhex(entry.salt), entry.iterations)
                self._shapes.setdefault(entry.mechanism, Counter())[shape] += 1
        return self._shapes.get(mechanism, Counter())

    # --- certificates -----------------------------------------------------------------------------

    def renewed(self, dynamic: Mapping[str, str], touched: Iterable[str]) -> dict[str, TlsStores]:
        """Loads the stores of the listeners whose settings are touched; SettingError if one cannot be renewed.

        `dynamic` are the dynamic settings as they will be. Nothing changes until `renew`.
        """
        names, settings = list(self._of_listeners), {**self._static, **dynamic}
        stores = {}
        for name in touched:
            listener = next(
                (n for n in names if name.lower().startswith(f"listener.name.{n.lower()}.")), None
            )
            if listener is None or listener not in self.tls:
                raise SettingError(
                    f"{name}: there is no such listener with TLS; listeners has {', '.join(names)}"
                )
            if listener not in stores:
                values = read_listener_settings(self._of_listeners[listener].listener, settings, names).values
                stores[listener] = self.tls[listener].renewed(values)
        return stores

    def renew(self, stores: Mapping[str, TlsStores]) -> None:
        """Uses these stores for new connections."""
        for listener, loaded in stores.items():
            self.tls[listener].renew(loaded)
            log.info("listener %s uses the certificates that were loaded now, for new connections", listener)

    # --- authorization ----------------------------------------------------------------------------

    def applied(self, entry: RegistryEntry) -> None:
        """Puts a change of the registry into force."""
        if self.authorizer is None:
            return
        if isinstance(entry, AclCreated):
            self.authorizer.add(acl_of(entry))
        elif isinstance(entry, AclDeleted):
            acl = acl_of(entry)
            if acl in self.authorizer:
                self.authorizer.remove(acl)

    def may(
        self, call: Call, operation: AclOperation, resource_type: AclResource, name: str, audits_denial: bool
    ) -> bool:
        """Tells whether the caller may do this; everybody may where there is no authorizer."""
        authorizer = self.authorizer
        if authorizer is None:
            return True
        caller = call.connection
        principal, host = caller.principal, caller.address
        question = (principal, host, operation, resource_type, name)
        allowed = authorizer.allows(*question)
        if not allowed:
            if audits_denial:
                self._audit.denied(authorizer, question, call)
        elif audit_log.isEnabledFor(DEBUG):  # then nothing is kept, so that each question is written
            self._audit.allowed(authorizer, question, call)
        elif len(name) <= _LONGEST_KEPT:
            caller.granted = granted = authorizer.granted_to(principal, host)
            granted.keep((operation, resource_type, name))
        return allowed

    def operations(self, call: Call, resource_type: AclResource, name: str) -> int:
        """Returns what the caller may do to a resource, a bit for each operation."""
        authorizer, caller = self.authorizer, call.connection
        if authorizer is None:
            return all_operations(resource_type)
        return authorizer.allowed_operations(caller.principal, caller.address, resource_type, name)


def authorizer_of(config: BrokerConfig) -> Authorizer | None:
    """Returns the authorizer of the settings without ACLs; None if there is none. SettingError if it is not known."""
    name = config.authorizer_class_name.strip()
    if not name:
        return None
    if name not in _AUTHORIZERS:
        raise SettingError(
            f"authorizer.class.name={name} is not known here, and the broker would be open without it. Say "
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
        )
    users = [user.strip() for user in config.super_users.split(";") if user.strip()]
    wrong = [user for user in users if ":" not in user]
    if wrong:
        raise SettingError(
            f"super.users: {wrong[0]} is not a principal; write User:{wrong[0]}, separated by ;"
        )
    joined = next((user for user in users if ",User:" in user.replace(" ", "")), None)
    if joined is not None:
        raise SettingError(f"super.users: {joined} is one principal to Kafka; separate principals by ;")
    return Authorizer(users, allow_everyone_if_no_acl_found=config.allow_everyone_if_no_acl_found)


def with_dynamic_settings(
    settings: Mapping[str, str], config: BrokerConfig, names: Sequence[str]
) -> dict[str, str]:
    """Returns the settings with those of listeners that were changed while the broker ran; a listener may be gone."""
    prefixes = tuple(f"listener.name.{name.lower()}." for name in names)
    dynamic = config.dynamic_listener_values
    gone = [name for name in dynamic if not name.lower().startswith(prefixes)]
    if gone:
        log.warning("%s: there is no such listener any more, so it has no effect", ", ".join(gone))
    return {**settings, **{name: text for name, text in dynamic.items() if name not in gone}}


def settings_of_listeners(
    listeners: Sequence[Listener], settings: Mapping[str, str]
) -> dict[str, ListenerSettings]:
    """Returns the security settings of each listener by its name."""
    names = [listener.name for listener in listeners]
    return {listener.name: read_listener_settings(listener, settings, names) for listener in listeners}


def warnings_of_listeners(of_listeners: Mapping[str, ListenerSettings]) -> list[str]:
    """Returns what people should know of the SASL of their listeners; SettingError says what is wrong with it."""

    def no_scram(mechanism: ScramMechanism) -> ScramExchange:
        raise AssertionError("nobody logs in here")

    warnings: list[str] = []
    for name, settings in of_listeners.items():
        if settings.mechanisms:
            sasl_offer(name, settings, no_scram, bytes(32), warnings)
    return warnings


def _tls_of_listeners(of_listeners: Mapping[str, ListenerSettings]) -> dict[str, ListenerTls]:
    """Loads the keys and certificates of the listeners with TLS; SettingError says what is wrong with them."""
    with_tls = [settings for settings in of_listeners.values() if settings.listener.uses_tls]
    if not with_tls:
        return {}
    from kohort.broker.security.tls import ListenerTls

    return {settings.listener.name: ListenerTls(settings.listener, settings.values) for settings in with_tls}


# --- the registry's entries ----------------------------------------------------------------------------


def acl_of(entry: AclCreated | AclDeleted) -> Acl:
    return Acl(
        AclResource(entry.resource_type),
        entry.resource_name,
        PatternType(entry.pattern_type),
        entry.principal,
        entry.host,
        AclOperation(entry.operation),
        Permission(entry.permission),
    )


def credential_of(entry: ScramUserSet) -> ScramCredential:
    salt, stored_key, server_key = map(bytes.fromhex, (entry.salt, entry.stored_key, entry.server_key))
    return ScramCredential(salt, stored_key, server_key, entry.iterations)


def scram_entry(user: str, mechanism: ScramMechanism, credential: ScramCredential) -> ScramUserSet:
    return ScramUserSet(
        user,
        int(mechanism),
        credential.salt.hex(),
        credential.stored_key.hex(),
        credential.server_key.hex(),
        credential.iterations,
    )
