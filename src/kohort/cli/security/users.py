"""`kohort users`: who may log in, with which password: of a cluster, of a stopped broker, or in a file for PLAIN."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Protocol

import click

from kohort.cli.frame.cluster import ClusterOptions, cluster_options
from kohort.cli.frame.completion import complete_user
from kohort.cli.frame.exit_codes import ExitCode
from kohort.cli.frame.output import ask, json_option, print_json, print_table
from kohort.cli.security.passwords import password_options
from kohort.client.admin_types import (
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kohort.client.errors import WrongArgument, error_for
from kohort.settings import SettingError
from kohort.wire.errors import ErrorCode

MECHANISMS = {each.sasl_name: each for each in reversed(ScramMechanism)}
PLAIN = "PLAIN"
Rows = list[tuple[str, str, int]]
"""A user, a mechanism, the iterations: what all that has users can tell about them."""


class UserStore(Protocol):
    """Where users are kept."""

    def rows(self) -> Rows:
        """All users, sorted by name."""

    def set(self, user: str, mechanism: str, password: str, iterations: int | None) -> int:
        """Gives a user a password, and returns the iterations by which it is kept."""

    def remove(self, user: str, mechanism: str) -> None:
        """Takes a password away that is there."""

    def mechanisms(self, given: Sequence[str]) -> Sequence[str]:
        """The mechanisms to set, of those that were asked for."""


def place_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds where the users are: a cluster, `--data DIR` or `--credentials-file FILE`; the command takes `place`."""

    @click.option(
        "--data",
        metavar="DIR",
        type=click.Path(),
        help="Not of a cluster: of the stopped broker with its data in DIR. So the first user is made.",
    )
    @click.option(
        "--credentials-file",
        metavar="FILE",
        type=click.Path(),
        help="Not of a cluster: the users of SASL PLAIN in the file that sasl.credentials.file names.",
    )
    @cluster_options
    @wraps(command)
    def with_place(
        *arguments: Any,
        cluster: ClusterOptions,
        data: str | None,
        credentials_file: str | None,
        **keywords: Any,
    ) -> Any:
        if data is not None and credentials_file is not None:
            raise click.UsageError("--data and --credentials-file: say one of them")
        if (data or credentials_file) and cluster != ClusterOptions():
            raise click.UsageError(
                "--bootstrap, --config and --profile are about a cluster, --data and --credentials-file are not"
            )
        place: UserStore
        if data is not None:
            place = _StoppedBroker(Path(data), keywords.pop("node_id", None))
        elif credentials_file is not None:
            keywords.pop("node_id", None)
            place = _CredentialsFile(Path(credentials_file))
        else:
            keywords.pop("node_id", None)
            place = _Cluster(cluster)
        return command(*arguments, place=place, **keywords)

    return with_place


@click.group(
    epilog="Example: kohort users list",
    short_help="Who may log in: users and their passwords.",
)
def command() -> None:
    """Users and their passwords: of a cluster (SCRAM), of a stopped broker, or in a file (PLAIN)."""


# --- add ----------------------------------------------------------------------------------------------


@command.command(epilog="Example: kohort users add alice --password-file alice.password")
@click.argument("user", metavar="NAME", shell_complete=complete_user)
@click.option(
    "--mechanism",
    "mechanisms",
    multiple=True,
    type=click.Choice(tuple(MECHANISMS), case_sensitive=False),
    help="Default: SCRAM-SHA-512. Say both for clients that know only one of them.",
)
@click.option(
    "--iterations",
    type=click.IntRange(min=1),
    help="How much work a guess is, for SCRAM: 4096 to 16384. Default: 4096.",
)
@click.option(
    "--node-id",
    type=click.IntRange(min=0),
    default=1,
    help="With --data, for a new DIR: the broker's node.id.",
)
@password_options
@place_options
def add(
    place: UserStore,
    user: str,
    mechanisms: tuple[str, ...],
    iterations: int | None,
    read_password: Callable[[str], str],
) -> int:
    """Lets NAME log in, or gives it a new password. Connections that are open stay open."""
    wanted = place.mechanisms(mechanisms)
    known = {(name, mechanism) for name, mechanism, _ in place.rows()}
    password = read_password(user)
    for mechanism in wanted:
        kept = place.set(user, mechanism, password, iterations)
        done = "new password" if (user, mechanism) in known else "added"
        print(f"{user}: {done} ({mechanism}, {kept} iterations)")
    return ExitCode.DONE


# --- list ---------------------------------------------------------------------------------------------


@command.command("list", epilog="Example: kohort users list --json")
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=complete_user)
@json_option
@place_options
def list_command(place: UserStore, names: tuple[str, ...], as_json: bool) -> int:
    """Lists users and how their passwords are kept; the passwords themselves nobody can list."""
    rows = [row for row in place.rows() if not names or row[0] in names]
    _check_known(names, rows)
    if as_json:
        print_json([{"user": u, "mechanism": m, "iterations": i} for u, m, i in rows])
    elif rows:
        print_table(("USER", "MECHANISM", "ITERATIONS"), rows)
    else:
        print("there are no users; kohort users add NAME makes one", file=sys.stderr)
    return ExitCode.DONE


def _check_known(names: Iterable[str], rows: Rows) -> None:
    there = {row[0] for row in rows}
    if missing := [name for name in names if name not in there]:
        raise error_for(ErrorCode.RESOURCE_NOT_FOUND, f"there is no user {', '.join(missing)}")


# --- remove -------------------------------------------------------------------------------------------


@command.command(epilog="Example: kohort users remove alice --yes")
@click.argument("user", metavar="NAME", shell_complete=complete_user)
@click.option(
    "--mechanism",
    "mechanisms",
    multiple=True,
    type=click.Choice(tuple(MECHANISMS), case_sensitive=False),
    help="Default: all by which it has a password.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@place_options
def remove(place: UserStore, user: str, mechanisms: tuple[str, ...], yes: bool) -> int:
    """Takes the passwords of NAME away. Its ACLs and quotas stay, and so do its open connections."""
    rows = [row for row in place.rows() if row[0] == user]
    _check_known([user], rows)
    if missing := {*mechanisms} - {mechanism for _, mechanism, _ in rows}:
        raise error_for(ErrorCode.RESOURCE_NOT_FOUND, f"{user} has no password by {', '.join(missing)}")
    gone = [mechanism for _, mechanism, _ in rows if not mechanisms or mechanism in mechanisms]
    ask(f"Remove {user} ({', '.join(gone)})?", yes)
    for mechanism in gone:
        place.remove(user, mechanism)
        print(f"{user}: removed ({mechanism})")
    return ExitCode.DONE


# --- where users are ----------------------------------------------------------------------------------


class _Cluster:
    """The SCRAM users of a cluster. Each change is a request of its own: Kafka takes a user once in a request."""

    def __init__(self, options: ClusterOptions) -> None:
        self._options = options

    def rows(self) -> Rows:
        with self._options.connect() as admin:
            users = admin.describe_user_scram_credentials()
        return [
            (u, each.mechanism.sasl_name, each.iterations) for u, infos in users.items() for each in infos
        ]

    def set(self, user: str, mechanism: str, password: str, iterations: int | None) -> int:
        wanted = UserScramCredentialUpsertion(user, password, MECHANISMS[mechanism])
        if iterations is not None:
            wanted = UserScramCredentialUpsertion(user, password, MECHANISMS[mechanism], iterations)
        with self._options.connect() as admin:
            admin.alter_user_scram_credentials([wanted])
        return wanted.iterations

    def remove(self, user: str, mechanism: str) -> None:
        with self._options.connect() as admin:
            admin.alter_user_scram_credentials([UserScramCredentialDeletion(user, MECHANISMS[mechanism])])

    def mechanisms(self, given: Sequence[str]) -> Sequence[str]:
        return given or ("SCRAM-SHA-512",)


class _StoppedBroker:
    """The SCRAM users in the data directory of a broker that does not run."""

    def __init__(self, directory: Path, node_id: int | None) -> None:
        self._directory, self._node_id = directory, node_id

    def rows(self) -> Rows:
        from kohort.broker.security.stopped_node import stopped_registry

        if not self._directory.exists() and self._node_id is not None:
            return []  # it is made with its first user
        try:
            with stopped_registry(self._directory, create_for=self._node_id) as registry:
                users = sorted(registry.scram_users.values(), key=lambda each: (each.user, each.mechanism))
        except FileNotFoundError as missing:
            raise SettingError(str(missing)) from None
        return [(each.user, ScramMechanism(each.mechanism).sasl_name, each.iterations) for each in users]

    def set(self, user: str, mechanism: str, password: str, iterations: int | None) -> int:
        from kohort.broker.security.guard import scram_entry
        from kohort.broker.security.stopped_node import stopped_registry
        from kohort.security import scram

        if not user:
            raise WrongArgument("the name of a user must not be empty")
        kept, kind = iterations or scram.MIN_ITERATIONS, MECHANISMS[mechanism]
        if not scram.MIN_ITERATIONS <= kept <= scram.MAX_ITERATIONS:
            raise WrongArgument(
                f"SCRAM takes {scram.MIN_ITERATIONS} to {scram.MAX_ITERATIONS} iterations, not {kept}"
            )
        salt = secrets.token_bytes(24)
        salted = scram.salted_password(kind, password, salt, kept)
        entry = scram_entry(user, kind, scram.ScramCredential.of(kind, salted, salt, kept))
        with stopped_registry(self._directory, create_for=self._node_id) as registry:
            registry.append(entry)
        return kept

    def remove(self, user: str, mechanism: str) -> None:
        from kohort.broker.security.stopped_node import stopped_registry
        from kohort.log.registry import ScramUserRemoved

        with stopped_registry(self._directory) as registry:
            registry.append(ScramUserRemoved(user, int(MECHANISMS[mechanism])))

    def mechanisms(self, given: Sequence[str]) -> Sequence[str]:
        return given or ("SCRAM-SHA-512",)


class _CredentialsFile:
    """The users of SASL PLAIN in a file, which a broker reads again when it has changed."""

    def __init__(self, path: Path) -> None:
        from kohort.broker.security.password_file import PasswordFile

        self._path = path.resolve()  # a link stays one, and its target is replaced
        self._file = PasswordFile(self._path)

    def rows(self) -> Rows:
        users = self._file.load() if self._path.exists() else {}
        return [(user, PLAIN, each.iterations) for user, each in sorted(users.items())]

    def set(self, user: str, mechanism: str, password: str, iterations: int | None) -> int:
        if iterations is not None:
            raise click.UsageError("--iterations is for SCRAM; those of the file are always the same")
        self._file.set(user, password)
        return self._file.load()[user].iterations

    def remove(self, user: str, mechanism: str) -> None:
        self._file.remove(user)

    def mechanisms(self, given: Sequence[str]) -> Sequence[str]:
        if given:
            raise click.UsageError(
                "--mechanism is for SCRAM; the users of --credentials-file log in by PLAIN"
            )
        return (PLAIN,)
