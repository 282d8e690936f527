"""`kohort acls`: shows and changes who may do what to topics, groups, transactional ids and the cluster."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import wraps
from itertools import product
from typing import Any

import click

from kohort.cli.frame.cluster import ClusterOptions, cluster_options
from kohort.cli.frame.completion import complete_group, complete_topic, complete_user
from kohort.cli.frame.exit_codes import ExitCode
from kohort.cli.frame.output import ask, json_option, print_json, print_table
from kohort.client.admin import Admin
from kohort.client.admin_types import Acl, AclFilter, AclOperation, AclResource, PatternType, Permission
from kohort.client.errors import error_for
from kohort.security.acls import ANY_HOST, CLUSTER_NAME
from kohort.wire.errors import ErrorCode, KafkaError

OPERATIONS = [each.name.lower() for each in AclOperation if each > AclOperation.ANY]
_PRINCIPAL = re.compile(r"[A-Za-z]+:.+", re.DOTALL)
Pair = tuple[AclResource, AclOperation]
PRODUCER: tuple[Pair, ...] = (
    (AclResource.TOPIC, AclOperation.WRITE),
    (AclResource.TOPIC, AclOperation.DESCRIBE),
    (AclResource.TOPIC, AclOperation.CREATE),
    (AclResource.TRANSACTIONAL_ID, AclOperation.WRITE),
    (AclResource.TRANSACTIONAL_ID, AclOperation.DESCRIBE),
)
CONSUMER: tuple[Pair, ...] = (
    (AclResource.TOPIC, AclOperation.READ),
    (AclResource.TOPIC, AclOperation.DESCRIBE),
    (AclResource.GROUP, AclOperation.READ),
)
"""What a producer and a consumer need; kafka-acls makes the same."""


@dataclass(frozen=True, slots=True)
class AclSelection:
    """What the options say; an empty part says nothing about it."""

    resources: tuple[tuple[AclResource, str], ...]
    pattern_type: PatternType
    principals: tuple[tuple[Permission, str], ...]
    """Permission ANY where either is meant."""
    operations: tuple[AclOperation, ...]
    roles: tuple[Pair, ...]
    hosts: tuple[str, ...]

    def acls(self) -> list[Acl]:
        """The ACLs that `add` makes; UsageError says what is missing."""
        if not self.resources:
            raise click.UsageError("say what it is about: --topic, --group, --transactional-id or --cluster")
        if not self.principals:
            raise click.UsageError("say who: --allow NAME or --deny NAME")
        if not (self.operations or self.roles):
            raise click.UsageError("say what they may do: --operation, --producer or --consumer")
        unused = {kind for kind, _ in self.roles} & {AclResource.TOPIC, AclResource.GROUP}
        if missing := unused - {kind for kind, _ in self.resources}:
            names = " and ".join(f"--{kind.name.lower()} NAME" for kind in sorted(missing))
            raise click.UsageError(
                f"a producer needs a topic, and a consumer a topic and a group: say {names} too"
            )
        return [
            Acl(kind, name, self._pattern_of(kind), principal, host, operation, permission)
            for (kind, name, operation), (permission, principal), host in product(
                self._operations_on_resources(), self.principals, self.hosts or (ANY_HOST,)
            )
        ]

    def filters(self) -> list[AclFilter]:
        """Filters that find what is selected; one that finds everything if nothing is said."""
        if self.operations or self.roles:
            wanted = list(self._operations_on_resources())
        else:
            wanted = [(kind, name, AclOperation.ANY) for kind, name in self._resources()]
        return [
            AclFilter(kind, name, self._pattern_of(kind), principal, host, operation, permission)
            for (kind, name, operation), (permission, principal), host in product(
                wanted, self.principals or ((Permission.ANY, None),), self.hosts or (None,)
            )
        ]

    @property
    def says_nothing(self) -> bool:
        return not (self.resources or self.principals or self.operations or self.roles or self.hosts)

    def _resources(self) -> tuple[tuple[AclResource, str | None], ...]:
        return self.resources or ((AclResource.ANY, None),)

    def _operations_on_resources(self) -> Iterator[tuple[AclResource, Any, AclOperation]]:
        for kind, name in self._resources():
            own = [operation for of, operation in self.roles if kind in (of, AclResource.ANY)]
            for operation in dict.fromkeys([*self.operations, *own]):
                yield kind, name, operation

    def _pattern_of(self, kind: AclResource) -> PatternType:
        """The cluster has one name, which is no prefix."""
        if kind is AclResource.CLUSTER and self.pattern_type is PatternType.PREFIXED:
            return PatternType.LITERAL
        return self.pattern_type


def selection_options(*, is_filter: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds the options of a selection, which the command takes as `selection`."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @click.option("--topic", "topics", multiple=True, metavar="NAME", shell_complete=complete_topic,
                      help="A topic; * is all.")  # fmt: skip
        @click.option("--group", "groups", multiple=True, metavar="NAME", shell_complete=complete_group,
                      help="A consumer group; * is all.")  # fmt: skip
        @click.option("--transactional-id", "transactional_ids", multiple=True, metavar="ID",
                      help="A transactional id; * is all.")  # fmt: skip
        @click.option("--cluster", "on_cluster", is_flag=True, help="The cluster itself.")
        @click.option("--prefix", is_flag=True, help="The names are prefixes: orders is also orders-eu.")
        @click.option("--allow", multiple=True, metavar="NAME", shell_complete=complete_user,
                      help="Who may: a user, or a principal as User:alice; * is everybody.")  # fmt: skip
        @click.option("--deny", multiple=True, metavar="NAME", shell_complete=complete_user,
                      help="Who may not, whatever else allows it.")  # fmt: skip
        @click.option("--operation", "operations", multiple=True,
                      type=click.Choice(OPERATIONS, case_sensitive=False), help="What.")  # fmt: skip
        @click.option(
            "--producer", is_flag=True, help="All that a producer needs of its topics and transactional ids."
        )
        @click.option("--consumer", is_flag=True, help="All that a consumer needs of its topics and groups.")
        @click.option("--host", "hosts", multiple=True, metavar="ADDRESS",
                      help="From this address. Default: any." if not is_filter else "From this address.")  # fmt: skip
        @wraps(command)
        def with_selection(*arguments: Any, **keywords: Any) -> Any:
            selection, rest = _selection(keywords, is_filter)
            return command(*arguments, selection=selection, **rest)

        if not is_filter:
            return with_selection
        return click.option(
            "--principal", "principals", multiple=True, metavar="NAME", shell_complete=complete_user,
            help="About this user, allowed or denied.",
        )(
            click.option("--matching", is_flag=True, help="All that apply to the names, with prefixes and *.")(
                with_selection
            )
        )  # fmt: skip

    return decorate


def _selection(given: dict[str, Any], is_filter: bool) -> tuple[AclSelection, dict[str, Any]]:
    rest = dict(given)
    kinds = {
        "topics": AclResource.TOPIC,
        "groups": AclResource.GROUP,
        "transactional_ids": AclResource.TRANSACTIONAL_ID,
    }
    resources = [(kind, name) for option, kind in kinds.items() for name in rest.pop(option)]
    if rest.pop("on_cluster"):
        resources.append((AclResource.CLUSTER, CLUSTER_NAME))
    is_prefix, is_matching = rest.pop("prefix"), rest.pop("matching", False)
    if is_prefix and is_matching:
        raise click.UsageError("--prefix and --matching: say one of them")
    pattern = PatternType.PREFIXED if is_prefix else PatternType.MATCH if is_matching else None
    principals = [
        (permission, _principal(name))
        for option, permission in (
            ("allow", Permission.ALLOW),
            ("deny", Permission.DENY),
            ("principals", Permission.ANY),
        )
        for name in rest.pop(option, ())
    ]
    roles = (PRODUCER if rest.pop("producer") else ()) + (CONSUMER if rest.pop("consumer") else ())
    if roles and AclResource.CLUSTER in {kind for kind, _ in resources}:
        raise click.UsageError(
            "--producer and --consumer say nothing about --cluster: say --operation for it"
        )
    return AclSelection(
        tuple(resources),
        pattern or (PatternType.ANY if is_filter else PatternType.LITERAL),
        tuple(principals),
        tuple(AclOperation[name.upper()] for name in rest.pop("operations")),
        roles,
        rest.pop("hosts"),
    ), rest


def _principal(name: str) -> str:
    """`alice` is User:alice; what has a type already stays as it is."""
    return name if _PRINCIPAL.fullmatch(name) else f"User:{name}"


@click.group(
    epilog="Example: kohort acls add --allow alice --consumer --topic orders --group billing",
    short_help="Who may do what to topics, groups and the cluster.",
)
def command() -> None:
    """ACLs: who may do what to topics, groups, transactional ids and the cluster."""


# --- add ----------------------------------------------------------------------------------------------


@command.command(epilog="Example: kohort acls add --allow alice --consumer --topic orders --group billing")
@selection_options(is_filter=False)
@click.option("--dry-run", is_flag=True, help="Show what would be added, and add nothing.")
@json_option
@cluster_options
def add(cluster: ClusterOptions, selection: AclSelection, dry_run: bool, as_json: bool) -> int:
    """Allows or denies operations. They take effect at once, on open connections too."""
    wanted = list(dict.fromkeys(selection.acls()))
    for acl in wanted:
        if why := acl.wrong():
            raise click.UsageError(f"{acl}: {why}")
    with cluster.connect() as admin:
        there = set(_described(admin, [AclFilter()]))
        new = [acl for acl in wanted if acl not in there]
        if new and not dry_run:
            _with_hint(lambda: admin.create_acls(new))
    if as_json:
        print_json({"dry_run": dry_run, "added": [_row(acl) for acl in new],
                    "there": [_row(acl) for acl in wanted if acl in there]})  # fmt: skip
        return ExitCode.DONE
    for acl in wanted:
        done = "was there" if acl in there else "would be added" if dry_run else "added"
        print(f"{done}: {acl}")
    return ExitCode.DONE


# --- list ---------------------------------------------------------------------------------------------


@command.command("list", epilog="Example: kohort acls list --topic orders --matching")
@selection_options(is_filter=True)
@json_option
@cluster_options
def list_command(cluster: ClusterOptions, selection: AclSelection, as_json: bool) -> int:
    """Lists ACLs: all, or those that the options select."""
    with cluster.connect() as admin:
        found = _described(admin, selection.filters())
    if as_json:
        print_json([_row(acl) for acl in found])
    elif found:
        print_table(
            ("PRINCIPAL", "PERMISSION", "OPERATION", "RESOURCE", "NAME", "PATTERN", "HOST"),
            [
                (a.principal, a.permission.name, a.operation.name, a.resource_type.name, a.resource_name,
                 a.pattern_type.name, a.host)
                for a in found
            ],
        )  # fmt: skip
    else:
        said = "there are no ACLs" if selection.says_nothing else "no ACL is selected by this"
        print(f"{said}; kohort acls add makes one", file=sys.stderr)
    return ExitCode.DONE


# --- remove -------------------------------------------------------------------------------------------


@command.command(
    epilog="Example: kohort acls remove --allow alice --consumer --topic orders --group billing --yes"
)
@selection_options(is_filter=True)
@click.option("--all", "everything", is_flag=True, help="All ACLs of the cluster.")
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and remove nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@cluster_options
def remove(
    cluster: ClusterOptions,
    selection: AclSelection,
    everything: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Removes the ACLs that the options select; the options of an `add` select what it added."""
    if selection.says_nothing != everything:
        raise click.UsageError("say which ACLs: --topic, --principal and so on, or --all")
    with cluster.connect() as admin:
        found = _described(admin, selection.filters())
        if not found:
            raise error_for(ErrorCode.RESOURCE_NOT_FOUND, "no ACL is selected by this; see kohort acls list")
        if not dry_run:
            if not yes and not as_json:
                for acl in found:
                    print(acl, file=sys.stderr)
            ask(f"Remove {len(found)} ACL{'s' * (len(found) > 1)}?", yes)
            admin.delete_acls(*map(_exactly, found))
    if as_json:
        print_json({"dry_run": dry_run, "removed": [_row(acl) for acl in found]})
        return ExitCode.DONE
    for acl in found:
        print(f"{'would be removed' if dry_run else 'removed'}: {acl}")
    return ExitCode.DONE


def _exactly(acl: Acl) -> AclFilter:
    """A filter that finds this ACL alone: what was shown is removed, and not what somebody adds meanwhile."""
    return AclFilter(
        acl.resource_type, acl.resource_name, acl.pattern_type, acl.principal, acl.host, acl.operation, acl.permission
    )  # fmt: skip


# --- inside -------------------------------------------------------------------------------------------


def _described(admin: Admin, filters: Iterable[AclFilter]) -> list[Acl]:
    """All ACLs that one of the filters finds: by one request, whatever the number of filters."""
    wanted = list(filters)
    one = wanted[0] if len(wanted) == 1 else replace(AclFilter())
    found = _with_hint(lambda: admin.describe_acls(one))
    return sorted(acl for acl in found if any(each.matches(acl) for each in wanted))


def _with_hint(call: Callable[[], Any]) -> Any:
    """Makes a call; a cluster without an authorizer is told how to get one."""
    try:
        return call()
    except KafkaError as error:
        if error.code is not ErrorCode.SECURITY_DISABLED:
            raise
        raise error_for(
            ErrorCode.SECURITY_DISABLED,
            "this cluster has no authorizer, so everybody may do everything and there are no ACLs: start its brokers "
            "with authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        ) from None


def _row(acl: Acl) -> dict[str, str]:
    return {
        "principal": acl.principal,
        "permission": acl.permission.name,
        "operation": acl.operation.name,
        "resource_type": acl.resource_type.name,
        "resource_name": acl.resource_name,
        "pattern_type": acl.pattern_type.name,
        "host": acl.host,
    }
