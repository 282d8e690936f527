"""How a command reaches its cluster: options, environment variables and profiles, and the first answer of a broker.

The settings of a client come from the first of these that is given; they are never mixed, because a name on the command
line may mean another cluster, with another password, than the one that the environment stands for.
1. The command line: `--profile NAME`, over which go `--config FILE`, a properties file of any Kafka client, and
   `--bootstrap`.
2. The environment: KOHORT_PROFILE, over which go KOHORT_CONFIG and KOHORT_BOOTSTRAP.
3. The profile `default` in `profiles.toml`.
Where these name no brokers, KOHORT_BOOTSTRAP does, and otherwise it is 127.0.0.1:9092.
"""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click

from kohort.cli.frame.completion import complete_profile
from kohort.cli.frame.properties import read_properties
from kohort.client.admin import Admin
from kohort.client.config import ADMIN, CONSUMER, PRODUCER, ClientConfig
from kohort.client.errors import TimedOut
from kohort.settings import SettingError, Table

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
SILENCE_S = 2.0  # after this time a message says what is waited for
FIRST_ANSWER_S = 10.0  # how long a broker may take to answer at all
PATIENCE_MS = 30_000  # `default.api.timeout.ms` if the file of settings does not have it: a person waits
_COMMON = Table(ClientConfig, "client").settings
_OF_OTHER_CLIENTS = {
    *CONSUMER.settings, *PRODUCER.settings, *ADMIN.settings, "partition.assignment.strategy", "interceptor.classes",
    "key.serializer", "value.serializer", "key.deserializer", "value.deserializer", "partitioner.class",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """What the user said about the cluster; `settings` puts it together."""

    bootstrap: str | None = None
    config: str | None = None
    profile: str | None = None

    def settings(self, *own: str) -> dict[str, str]:
        """Returns the settings of a client; of those of consumers or producers alone, only the names in `own`."""
        given = self._given()
        settings = {
            name: value
            for name, value in given.items()
            if name in _COMMON or name in own or name not in _OF_OTHER_CLIENTS
        }
        return {
            "bootstrap.servers": os.environ.get("KOHORT_BOOTSTRAP") or DEFAULT_BOOTSTRAP,
            "default.api.timeout.ms": str(PATIENCE_MS),
            **settings,
        }

    def connect(self) -> Admin:
        """Returns an Admin to which a broker has answered; use it with `with`."""
        settings = self.settings()
        admin = Admin(settings)
        try:
            _wait_for_broker(admin, settings)
        except BaseException:
            admin.close()
            raise
        return admin

    def _given(self) -> dict[str, str]:
        for said in (self, _of_environment()):
            if said != ClusterOptions():
                return said._read()
        return read_profiles().get("default", {})

    def _read(self) -> dict[str, str]:
        given = {} if self.profile is None else _profile(self.profile)
        if self.config is not None:
            given |= read_properties(Path(self.config))
        if self.bootstrap is not None:
            given["bootstrap.servers"] = self.bootstrap
        return given


def _of_environment() -> ClusterOptions:
    """Returns what the environment says; an empty variable says nothing."""
    return ClusterOptions(
        *(os.environ.get(name) or None for name in ("KOHORT_BOOTSTRAP", "KOHORT_CONFIG", "KOHORT_PROFILE"))
    )


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--bootstrap`, `--config` and `--profile`; the command takes them as `cluster`, a ClusterOptions."""

    @click.option(
        "--bootstrap",
        metavar="HOST:PORT[,HOST:PORT…]",
        help="Some brokers of the cluster. Default: KOHORT_BOOTSTRAP, the profile, or 127.0.0.1:9092.",
    )
    @click.option(
        "--config",
        metavar="FILE",
        type=click.Path(),
        help="The properties file of a Kafka client: security.protocol, ssl.…, sasl.…. Default: KOHORT_CONFIG.",
    )
    @click.option(
        "--profile",
        metavar="NAME",
        shell_complete=complete_profile,
        help="A cluster in the file of profiles. Default: KOHORT_PROFILE, or the profile `default`.",
    )
    @wraps(command)
    def with_cluster(
        *arguments: Any, bootstrap: str | None, config: str | None, profile: str | None, **keywords: Any
    ) -> Any:
        return command(*arguments, cluster=ClusterOptions(bootstrap, config, profile), **keywords)

    return with_cluster


def profiles_file() -> Path:
    """Returns where the profiles are; the file need not exist."""
    if told := os.environ.get("KOHORT_PROFILES"):
        return Path(told)
    from platformdirs import user_config_path

    return user_config_path("kohort") / "profiles.toml"


def read_profiles() -> dict[str, dict[str, str]]:
    """Returns the profiles by name; none if there is no file."""
    path = profiles_file()
    try:
        tables = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise SettingError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingError(f"{path}: {error}") from None
    for name, table in tables.items():
        if not isinstance(table, dict) or any(isinstance(value, (dict, list)) for value in table.values()):
            raise SettingError(
                f"{path}: write each profile as a table, [{name}], and each setting in quotes: "
                '"bootstrap.servers" = "HOST:PORT"'
            )
    return {name: {key: _as_setting(value) for key, value in table.items()} for name, table in tables.items()}


def _as_setting(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _profile(name: str) -> dict[str, str]:
    profiles = read_profiles()
    if name not in profiles:
        known = f"it has {', '.join(sorted(profiles))}" if profiles else "it does not exist or is empty"
        raise SettingError(f"there is no profile {name} in {profiles_file()}: {known}")
    return profiles[name]


def _wait_for_broker(admin: Admin, settings: dict[str, str]) -> None:
    """Waits for a broker to answer, because it may be starting, and says what is waited for."""
    where = settings["bootstrap.servers"]
    try:
        patience_s = min(int(settings["default.api.timeout.ms"]) / 1000, FIRST_ANSWER_S)
        try:
            admin.describe_cluster(timeout=min(SILENCE_S, patience_s))
        except TimedOut as late:
            if patience_s <= SILENCE_S:
                raise
            print(f"kohort: waiting for {where}: {late}", file=sys.stderr)
            admin.describe_cluster(timeout=patience_s - SILENCE_S)
    except TimedOut as late:
        raise TimedOut(
            f"no broker answers at {where}: {late}; is one running there? "
            "See --bootstrap, and --config for TLS and SASL"
        ) from None
