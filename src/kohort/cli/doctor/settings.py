"""The checks of `kohort doctor settings FILE`: what is wrong with the settings of a client."""

from __future__ import annotations

import logging
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from kohort.cli.doctor.findings import NOTE, RIGHT, WRONG, Finding, report
from kohort.cli.frame.output import json_option
from kohort.cli.frame.properties import read_properties
from kohort.client.config import (
    ADMIN,
    CONSUMER,
    PRODUCER,
    ClientConfig,
    ConsumerConfig,
    ProducerConfig,
    canonical_name,
    is_secret,
    read_config,
)
from kohort.settings import SettingError, Table

_TABLES: dict[str, Table[Any]] = {"consumer": CONSUMER, "producer": PRODUCER, "admin": ADMIN}
_SERVERS, _SOMEWHERE = "bootstrap.servers", "127.0.0.1:9092"
_LOGGER = "kohort.client.config"


@click.command(epilog="Example: kohort doctor settings client.properties --client consumer")
@click.argument("file", metavar="FILE", type=click.Path())
@click.option(
    "--client",
    type=click.Choice(list(_TABLES)),
    help="Whose settings they are. Default: what the settings look like.",
)
@json_option
def command(file: str, client: str | None, as_json: bool) -> int:
    """Check a properties file of a client: what is unknown, contradictory, dangerous or without effect."""
    return report(check_settings(Path(file), client), as_json=as_json)


def check_settings(file: Path, client: str | None = None) -> Iterator[Finding]:
    """All checks: each setting by itself, then all together."""
    given = read_properties(file)
    table = _TABLES[client or _kind_of(given)]
    yield Finding("file", RIGHT, f"{file} has {len(given)} settings, read as those of a {table.what}")
    usable: dict[str, str] = {}
    for name, value in given.items():
        finding = _alone(table, name, value)
        if finding is None:
            usable[name] = value
        else:
            yield finding
    if not given.get(_SERVERS):
        yield Finding(
            "bootstrap.servers", WRONG, "is missing", "Name some brokers: bootstrap.servers=HOST:PORT."
        )
    try:
        config, _ = read_config(table, {_SERVERS: _SOMEWHERE, **usable}, {})
    except SettingError as error:
        yield Finding("together", WRONG, str(error))
        return
    yield from _security(config, given)
    if isinstance(config, ConsumerConfig):
        yield from _consumer(config, given)
    if isinstance(config, ProducerConfig):
        yield from _producer(config, given)
    yield from _readable_by_others(file, given)


def _kind_of(given: Mapping[str, str]) -> str:
    """The client whose own settings are the most; a consumer's and a producer's both know the common ones."""
    common = CONSUMER.settings.keys() & PRODUCER.settings.keys()
    counts = {kind: len(given.keys() & (table.settings.keys() - common)) for kind, table in _TABLES.items()}
    best = max(("consumer", "producer"), key=counts.__getitem__)
    return best if counts[best] else "admin"


class _Warnings(logging.Handler):
    """Keeps what the reader of settings warns of."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def _alone(table: Table[Any], name: str, value: str) -> Finding | None:
    """Checks one setting; None if it is right by itself."""
    own = canonical_name(name)
    if own in table.settings:
        try:
            table.settings[own].parse(value)
        except SettingError as error:
            return Finding(name, WRONG, str(error))
        return None
    warnings, logger = _Warnings(), logging.getLogger(_LOGGER)
    propagates = logger.propagate
    logger.addHandler(warnings)
    logger.propagate = False
    try:
        read_config(table, {_SERVERS: _SOMEWHERE, name: value}, {})
    except SettingError as error:
        return Finding(name, WRONG, str(error), "Take it out, or use what is named here.")
    finally:
        logger.removeHandler(warnings)
        logger.propagate = propagates
    return Finding(name, NOTE, warnings.texts[0] if warnings.texts else "it has no effect", "Take it out.")


# --- all clients ----------------------------------------------------------------------------------------


def _security(config: ClientConfig, given: Mapping[str, str]) -> Iterator[Finding]:
    protocol = config.security_protocol.upper()
    for prefix, needed in (("sasl.", "SASL_SSL"), ("ssl.", "SSL")):
        idle = sorted(name for name in given if name.startswith(prefix))
        if idle and prefix.rstrip(".").upper() not in protocol.split("_"):
            text = f"{', '.join(idle)} have no effect with security.protocol={protocol}"
            yield Finding(f"{prefix}…", WRONG, text, f"Set security.protocol={needed}, or take them out.")
    if protocol == "SASL_PLAINTEXT":
        text = "passwords and records travel unencrypted with SASL_PLAINTEXT"
        yield Finding("security.protocol", NOTE, text, "Use SASL_SSL outside of a trusted network.")
    if (
        given.get("ssl.endpoint.identification.algorithm", "https").strip() in ("", "none")
        and "SSL" in protocol
    ):
        text = "the name in the broker's certificate is not checked: anyone with a certificate may pose as the broker"
        yield Finding(
            "ssl.endpoint.identification.algorithm", WRONG, text, "Take it out; https is the default."
        )
    if "SSL" in protocol and not config.enable_ssl_certificate_verification:
        text = (
            "any certificate is taken for the broker's: whoever is in between can read and change everything"
        )
        yield Finding("enable.ssl.certificate.verification", WRONG, text, "Take it out; true is the default.")
    if config.request_timeout_ms > config.default_api_timeout_ms:
        text = (
            f"request.timeout.ms ({config.request_timeout_ms}) is longer than default.api.timeout.ms"
            f" ({config.default_api_timeout_ms}): a call ends before a lost request is sent again"
        )
        yield Finding("request.timeout.ms", NOTE, text, "Make it at most half of default.api.timeout.ms.")


def _readable_by_others(file: Path, given: Mapping[str, str]) -> Iterator[Finding]:
    secret = sorted(name for name in given if is_secret(name))
    if secret and file.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
        text = f"others on this machine may read {', '.join(secret)}"
        yield Finding("permissions", NOTE, text, f"chmod 600 {file}")


# --- consumer -------------------------------------------------------------------------------------------


def _consumer(config: ConsumerConfig, given: Mapping[str, str]) -> Iterator[Finding]:
    if not config.enable_auto_commit and "auto.commit.interval.ms" in given:
        text = "has no effect, because enable.auto.commit is false"
        yield Finding("auto.commit.interval.ms", NOTE, text, "Take it out.")
    if config.group_id is None:
        idle = sorted(given.keys() & {"session.timeout.ms", "heartbeat.interval.ms", "max.poll.interval.ms"})
        if idle:
            yield Finding(
                ", ".join(idle), NOTE, "no effect without group.id", "Name the group, or take them out."
            )
        return
    if config.heartbeat_interval_ms * 3 > config.session_timeout_ms:
        text = (
            f"heartbeat.interval.ms ({config.heartbeat_interval_ms}) is more than a third of session.timeout.ms"
            f" ({config.session_timeout_ms}): two lost heartbeats end the membership"
        )
        yield Finding("heartbeat.interval.ms", NOTE, text, "Make it a third of session.timeout.ms or less.")
    if config.session_timeout_ms < 6_000:
        text = f"{config.session_timeout_ms} ms are short: a pause of the machine makes the group rebalance"
        yield Finding(
            "session.timeout.ms", NOTE, text, "10000 to 45000 is usual; brokers may refuse less than 6000."
        )
    if config.max_poll_interval_ms < config.session_timeout_ms:
        text = (
            f"max.poll.interval.ms ({config.max_poll_interval_ms}) is less than session.timeout.ms"
            f" ({config.session_timeout_ms}): work on one batch that takes longer makes the group rebalance"
        )
        yield Finding("max.poll.interval.ms", NOTE, text, "300000 is the default.")
    if config.fetch_max_wait_ms >= config.request_timeout_ms:
        text = "a broker may wait longer for records than this client waits for the broker"
        yield Finding("fetch.max.wait.ms", WRONG, text, "Make it much less than request.timeout.ms.")
    if config.enable_auto_commit:
        text = "offsets are committed by time, also of records whose work is not done when the process dies"
        yield Finding("enable.auto.commit", NOTE, text, "Set it to false and call commit() after the work.")


# --- producer -------------------------------------------------------------------------------------------


def _producer(config: ProducerConfig, given: Mapping[str, str]) -> Iterator[Finding]:
    if config.acks in ("0", "1"):
        text = f"acks={config.acks}: records are lost when a leader fails, and nobody is told"
        yield Finding("acks", NOTE, text, "acks=all is the default.")
    if not config.enable_idempotence:
        several = config.max_in_flight_requests_per_connection > 1
        text = "a retry may write a record twice" + (" or out of order" if several else "")
        yield Finding("enable.idempotence", NOTE, text, "Leave it on, with acks=all.")
    if given.get("retries") == "0":
        text = "the first lost connection loses records"
        yield Finding("retries", NOTE, text, "Leave it out; delivery.timeout.ms says for how long to try.")
    for name in sorted(given):
        kind = name.removeprefix("compression.").removesuffix(".level")
        if name == f"compression.{kind}.level" and config.compression_type != kind:
            text = f"has no effect with compression.type={config.compression_type}"
            yield Finding(name, NOTE, text, f"Set compression.type={kind}, or take it out.")
