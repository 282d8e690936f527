"""`kohort quotas`: shows and changes how much users, client ids and addresses may take."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from kohort.cli.frame.cluster import ClusterOptions, cluster_options
from kohort.cli.frame.completion import complete_user
from kohort.cli.frame.exit_codes import ExitCode
from kohort.cli.frame.output import ask, json_option, print_json, print_table
from kohort.client.admin import Admin
from kohort.client.admin_types import ClientQuotaEntity, ClientQuotaFilter, EntityName
from kohort.client.errors import error_for
from kohort.wire.errors import ErrorCode

KEYS = {
    "producer_byte_rate": "bytes a second that are written",
    "consumer_byte_rate": "bytes a second that are read",
    "request_percentage": "percent of one thread of the broker",
    "controller_mutation_rate": "partitions a second that are made and deleted",
    "connection_creation_rate": "new connections a second, of an address",
}
_OPTIONS = ("user", "client_id", "ip")


def entity_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds whom quotas are for; the command takes `entity`, a ClientQuotaEntity."""

    @click.option("--user", metavar="NAME", shell_complete=complete_user, help="A user.")
    @click.option("--default-user", is_flag=True, help="Users that have no quota by name.")
    @click.option("--client-id", metavar="ID", help="A client id; with --user, that user's alone.")
    @click.option("--default-client-id", is_flag=True, help="Client ids that have no quota by name.")
    @click.option("--ip", metavar="ADDRESS", help="An address.")
    @click.option("--default-ip", is_flag=True, help="Addresses that have no quota of their own.")
    @wraps(command)
    def with_entity(*arguments: Any, **keywords: Any) -> Any:
        names: dict[str, str | EntityName | None] = {}
        for option in _OPTIONS:
            name, is_default = keywords.pop(option), keywords.pop(f"default_{option}")
            if name is not None and is_default:
                words = option.replace("_", "-")
                raise click.UsageError(f"--{words} and --default-{words}: say one of them")
            names[option] = EntityName.DEFAULT if is_default else name
        return command(*arguments, entity=ClientQuotaEntity(**names), **keywords)

    return with_entity


def _complete_key(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    end = "=" if param.name == "values" else ""
    return [f"{key}{end}" for key in KEYS if key.startswith(incomplete)]


@click.group(
    epilog="Example: kohort quotas set --user alice producer_byte_rate=1048576",
    short_help="How much a user, a client id or an address may take.",
)
def command() -> None:
    """Quotas: how much a user, a client id or an address may take."""


# --- set ----------------------------------------------------------------------------------------------


@command.command("set", epilog="Example: kohort quotas set --user alice producer_byte_rate=1048576")
@click.argument("values", metavar="KEY=VALUE...", nargs=-1, required=True, shell_complete=_complete_key)
@entity_options
@click.option("--dry-run", is_flag=True, help="Have the cluster check it, and change nothing.")
@json_option
@cluster_options
def set_command(
    cluster: ClusterOptions, entity: ClientQuotaEntity, values: tuple[str, ...], dry_run: bool, as_json: bool
) -> int:
    """Sets quotas, at once and for open connections too.

    Keys: producer_byte_rate and consumer_byte_rate (bytes a second), request_percentage (of one thread of the broker),
    controller_mutation_rate (partitions made and deleted a second), connection_creation_rate (of an --ip, a second).
    """
    _check_entity(entity)
    changes = dict(_change(text) for text in values)
    if unknown := changes.keys() - KEYS:
        raise click.UsageError(f"{', '.join(unknown)}: the keys are {', '.join(KEYS)}")
    with cluster.connect() as admin:
        before = _quotas_of(admin, entity)
        admin.alter_client_quotas({entity: changes}, validate_only=dry_run)
    _tell(entity, before, changes, dry_run, as_json)
    return ExitCode.DONE


def _change(text: str) -> tuple[str, float]:
    key, _, value = text.partition("=")
    if not value:
        raise click.UsageError(f"{text}: write KEY=VALUE, as in producer_byte_rate=1048576")
    try:
        return key, float(value)
    except ValueError:
        raise click.UsageError(f"{text}: write a number, as in {key}=1048576") from None


# --- list ---------------------------------------------------------------------------------------------


@command.command("list", epilog="Example: kohort quotas list --user alice")
@entity_options
@json_option
@cluster_options
def list_command(cluster: ClusterOptions, entity: ClientQuotaEntity, as_json: bool) -> int:
    """Lists the quotas: all, or those of whom the options name."""
    wanted = ClientQuotaFilter(entity.user, entity.client_id, entity.ip)
    with cluster.connect() as admin:
        found = admin.describe_client_quotas(wanted)
    rows = sorted(found.items(), key=lambda each: tuple(map(_shown, _names(each[0]))))
    if as_json:
        print_json([{**_json_names(each), "quotas": quotas} for each, quotas in rows])
    elif rows:
        print_table(
            ("USER", "CLIENT-ID", "IP", "QUOTA", "VALUE"),
            [
                (*map(_shown, _names(each)), key, _amount(value))
                for each, quotas in rows
                for key, value in sorted(quotas.items())
            ],
        )
    else:
        print("there are no such quotas; kohort quotas set makes one", file=sys.stderr)
    return ExitCode.DONE


# --- remove -------------------------------------------------------------------------------------------


@command.command(epilog="Example: kohort quotas remove --user alice producer_byte_rate --yes")
@click.argument("keys", metavar="[KEY]...", nargs=-1, shell_complete=_complete_key)
@entity_options
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@cluster_options
def remove(
    cluster: ClusterOptions, entity: ClientQuotaEntity, keys: tuple[str, ...], yes: bool, as_json: bool
) -> int:
    """Removes quotas of exactly whom the options name: the KEYs, or all."""
    _check_entity(entity)
    with cluster.connect() as admin:
        before = _quotas_of(admin, entity)
        gone = keys or tuple(before)
        if missing := [key for key in gone if key not in before] or ([] if gone else ["quotas"]):
            raise error_for(
                ErrorCode.RESOURCE_NOT_FOUND,
                f"{_words(entity)} has no {', '.join(missing)}; see kohort quotas list",
            )
        ask(f"Remove {', '.join(gone)} of {_words(entity)}?", yes)
        changes: dict[str, float | None] = dict.fromkeys(gone)
        admin.alter_client_quotas({entity: changes})
    _tell(entity, before, changes, False, as_json)
    return ExitCode.DONE


# --- inside -------------------------------------------------------------------------------------------


def _check_entity(entity: ClientQuotaEntity) -> None:
    if entity == ClientQuotaEntity():
        raise click.UsageError("say for whom: --user, --client-id, --ip, or the default of one of them")
    if entity.ip is not None and (entity.user is not None or entity.client_id is not None):
        raise click.UsageError("--ip stands alone: it is not for a user or a client id")


def _quotas_of(admin: Admin, entity: ClientQuotaEntity) -> dict[str, float]:
    wanted = ClientQuotaFilter(entity.user, entity.client_id, entity.ip, strict=True)
    return admin.describe_client_quotas(wanted).get(entity, {})


def _tell(
    entity: ClientQuotaEntity,
    before: dict[str, float],
    changes: dict[str, float] | dict[str, float | None],
    dry_run: bool,
    as_json: bool,
) -> None:
    if as_json:
        rows = [{"key": key, "before": before.get(key), "after": after} for key, after in changes.items()]
        print_json({**_json_names(entity), "dry_run": dry_run, "changes": rows})
        return
    for key, after in changes.items():
        was, now = (_amount(each) if each is not None else "none" for each in (before.get(key), after))
        print(f"{_words(entity)}: {key}: {was} → {now}{' (dry run)' if dry_run else ''}")


def _names(entity: ClientQuotaEntity) -> tuple[str | EntityName | None, ...]:
    return entity.user, entity.client_id, entity.ip


def _shown(name: str | EntityName | None) -> str:
    return name.value if isinstance(name, EntityName) else name or ""


def _json_names(entity: ClientQuotaEntity) -> dict[str, str]:
    return {
        option: _shown(name)
        for option, name in zip(_OPTIONS, _names(entity), strict=True)
        if name is not None
    }


def _words(entity: ClientQuotaEntity) -> str:
    return ", ".join(f"{option.replace('_', '-')} {name}" for option, name in _json_names(entity).items())


def _amount(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else f"{value:g}"
