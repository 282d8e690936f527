"""The steps of Admin's calls that concern ACLs, SCRAM passwords and quotas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, TypeVar

from kohort.client.admin_types import (
    Acl,
    AclFilter,
    AclOperation,
    AclResource,
    ClientQuotaEntity,
    ClientQuotaFilter,
    EntityName,
    PatternType,
    Permission,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kohort.client.administer.asking import Asking, outcome, raise_partly
from kohort.client.core import arguments
from kohort.client.core.effects import ANY_NODE
from kohort.client.core.requests import CONTROLLER, RETRIABLE
from kohort.client.core.steps import Steps
from kohort.client.errors import WrongArgument, error_for
from kohort.security.scram import salted_password
from kohort.wire.errors import KafkaError
from kohort.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterQuotaEntity,
    AlterQuotaEntry,
    QuotaOp,
)
from kohort.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramDeletion,
    ScramUpsertion,
)
from kohort.wire.messages.create_acls import AclCreation, CreateAclsRequest
from kohort.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
)
from kohort.wire.messages.describe_acls import DescribeAclsRequest
from kohort.wire.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    QuotaFilterComponent,
)
from kohort.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    ScramUserName,
)

EXACT, DEFAULT, ANY = 0, 1, 2  # how a component of a filter matches
SALT_BYTES = 24
ScramChange = UserScramCredentialUpsertion | UserScramCredentialDeletion
E = TypeVar("E", bound=IntEnum)
_KINDS = {"user": "user", "client_id": "client-id", "ip": "ip"}  # fields of an entity, and Kafka's words


def first_retriable(response: Any) -> int:
    """A verdict for answers with one error of their own."""
    return response.error_code if response.error_code in RETRIABLE else 0


class SecurityCalls(Asking):
    """The calls that concern ACLs, SCRAM passwords and quotas."""

    # --- ACLs -----------------------------------------------------------------------------------------

    def create_acls(self, acls: Sequence[Acl], deadline_ms: int) -> Steps[None]:
        creations = [
            AclCreation(
                acl.resource_type,
                acl.resource_name,
                acl.pattern_type,
                acl.principal,
                acl.host,
                acl.operation,
                acl.permission,
            )
            for acl in acls
        ]
        response = yield from self.ask(
            CreateAclsRequest(creations), ANY_NODE, deadline_ms, verdict=_first_of("results")
        )
        outcome((acl, row, None) for acl, row in zip(acls, response.results, strict=True))

    def describe_acls(self, wanted: AclFilter, deadline_ms: int) -> Steps[list[Acl]]:
        request = DescribeAclsRequest(*_filter_fields(wanted))
        response = yield from self.ask(request, ANY_NODE, deadline_ms, verdict=first_retriable)
        if response.error_code:
            raise error_for(response.error_code, response.error_message or "describing ACLs")
        return sorted(
            _acl(
                resource.resource_type,
                resource.resource_name,
                resource.pattern_type,
                row.principal,
                row.host,
                row.operation,
                row.permission_type,
            )
            for resource in response.resources
            for row in resource.acls
        )

    def delete_acls(
        self, filters: Sequence[AclFilter], deadline_ms: int
    ) -> Steps[dict[AclFilter, list[Acl]]]:
        request = DeleteAclsRequest([DeleteAclsFilter(*_filter_fields(each)) for each in filters])
        response = yield from self.ask(request, ANY_NODE, deadline_ms, verdict=_first_of("filter_results"))
        gone: dict[AclFilter, list[Acl]] = {}
        errors: dict[Any, KafkaError] = {}
        for wanted, result in zip(filters, response.filter_results, strict=True):
            if result.error_code:
                errors[wanted] = error_for(result.error_code, result.error_message or "deleting ACLs")
                continue
            gone[wanted] = _deleted(result, errors)
        if errors:
            raise_partly(errors, gone)
        return gone

    # --- SCRAM ----------------------------------------------------------------------------------------

    def describe_user_scram_credentials(
        self, users: Sequence[str], deadline_ms: int
    ) -> Steps[dict[str, tuple[ScramCredentialInfo, ...]]]:
        request = DescribeUserScramCredentialsRequest([ScramUserName(user) for user in users] or None)
        response = yield from self.ask(request, ANY_NODE, deadline_ms, verdict=first_retriable)
        if response.error_code:
            raise error_for(response.error_code, response.error_message or "describing users")
        found = outcome((row.user, row, row.credential_infos) for row in response.results)
        return {
            user: tuple(ScramCredentialInfo(ScramMechanism(i.mechanism), i.iterations) for i in infos)
            for user, infos in sorted(found.items())
        }

    def alter_user_scram_credentials(
        self, changes: Sequence[ScramChange], salts: Sequence[bytes], deadline_ms: int
    ) -> Steps[None]:
        """`salts` has a random one for each change; one that brings its own does not use it."""
        upsertions = [
            _upsertion(change, salt)
            for change, salt in zip(changes, salts, strict=True)
            if isinstance(change, UserScramCredentialUpsertion)
        ]
        deletions = [
            ScramDeletion(change.user, change.mechanism)
            for change in changes
            if isinstance(change, UserScramCredentialDeletion)
        ]
        response = yield from self.ask(
            AlterUserScramCredentialsRequest(deletions, upsertions),
            CONTROLLER,
            deadline_ms,
            verdict=_first_of("results"),
        )
        outcome((row.user, row, None) for row in response.results)

    # --- quotas ---------------------------------------------------------------------------------------

    def describe_client_quotas(
        self, wanted: ClientQuotaFilter, deadline_ms: int
    ) -> Steps[dict[ClientQuotaEntity, dict[str, float]]]:
        components = [
            _component(kind, name)
            for field, kind in _KINDS.items()
            if (name := getattr(wanted, field)) is not None
        ]
        request = DescribeClientQuotasRequest(components, wanted.strict)
        response = yield from self.ask(request, ANY_NODE, deadline_ms, verdict=first_retriable)
        if response.error_code:
            raise error_for(response.error_code, response.error_message or "describing quotas")
        return {
            _entity(entry.entity): {row.key: row.value for row in sorted(entry.values, key=_by_key)}
            for entry in response.entries or ()
        }

    def alter_client_quotas(
        self,
        changes: Mapping[ClientQuotaEntity, Mapping[str, float | None]],
        validate_only: bool,
        deadline_ms: int,
    ) -> Steps[None]:
        entries = [
            AlterQuotaEntry(
                [AlterQuotaEntity(kind, name) for kind, name in _parts(entity)],
                [QuotaOp(key, value or 0.0, value is None) for key, value in values.items()],
            )
            for entity, values in changes.items()
        ]
        response = yield from self.ask(
            AlterClientQuotasRequest(entries, validate_only),
            ANY_NODE,
            deadline_ms,
            verdict=_first_of("entries"),
        )
        outcome((_entity(row.entity), row, None) for row in response.entries)


# --- arguments ------------------------------------------------------------------------------------------


def checked_acls(given: object) -> list[Acl]:
    example = 'ACLs, as in [Acl(AclResource.TOPIC, "orders", PatternType.LITERAL, "User:alice", "*", …)]'
    acls = list(arguments.iterable(given, example))
    for acl in acls:
        if not isinstance(acl, Acl):
            raise WrongArgument(f"these are {example}, not {arguments.shown(acl)}")
        _checked_codes(acl)
        for said, what in ((acl.principal, "principal"), (acl.host, "host")):
            arguments.text(said, f"the {what} of an ACL")
        arguments.text(acl.resource_name, "the name of the resource of an ACL", may_be_empty=True)
        if why := acl.wrong():
            raise WrongArgument(f"{acl}: {why}")
    return acls


def checked_filters(given: Iterable[object]) -> list[AclFilter]:
    filters = []
    for each in given:
        if not isinstance(each, AclFilter):
            example = 'AclFilter(AclResource.TOPIC, "orders")'
            raise WrongArgument(
                f"ACLs are found by a filter, as in {example}, not by {arguments.shown(each)}"
            )
        _checked_codes(each)
        for said, what in (
            (each.principal, "principal"),
            (each.host, "host"),
            (each.resource_name, "resource's name"),
        ):
            if said is not None:
                arguments.text(said, f"the {what} of a filter")
        filters.append(each)
    return filters


def _checked_codes(given: Acl | AclFilter) -> None:
    kinds: dict[str, type[IntEnum]] = {
        "resource_type": AclResource,
        "pattern_type": PatternType,
        "operation": AclOperation,
        "permission": Permission,
    }
    for name, kind in kinds.items():
        value = getattr(given, name)
        if not isinstance(value, kind) or not value:  # a broker closes the connection on UNKNOWN
            raise WrongArgument(
                f"{name} of an ACL is one of {kind.__name__}, as in {kind.__name__}.{list(kind)[2].name}, "
                f"not {arguments.shown(value)}"
            )


def checked_scram_changes(given: object) -> list[ScramChange]:
    example = 'changes of users, as in [UserScramCredentialUpsertion("alice", "a password")]'
    changes: list[ScramChange] = []
    for change in arguments.iterable(given, example):
        if not isinstance(change, (UserScramCredentialUpsertion, UserScramCredentialDeletion)):
            raise WrongArgument(f"these are {example}, not {type(change).__name__}")  # it may be a password
        arguments.text(change.user, "the name of a user")
        if not isinstance(change.mechanism, ScramMechanism):
            raise WrongArgument(
                f"the mechanism of {change.user} is ScramMechanism.SCRAM_SHA_256 or .SCRAM_SHA_512, "
                f"not {arguments.shown(change.mechanism)}"
            )
        if isinstance(change, UserScramCredentialUpsertion):
            _check_password(change)
        changes.append(change)
    return changes


def _check_password(change: UserScramCredentialUpsertion) -> None:
    # The password itself stands in no text of an error.
    if not isinstance(change.password, str) or not change.password:
        raise WrongArgument(f"the password of {change.user} is a string that is not empty")
    try:
        change.password.encode()
    except UnicodeEncodeError:
        raise WrongArgument(f"the password of {change.user} cannot be encoded in UTF-8") from None
    arguments.whole_number(change.iterations, f"the iterations of {change.user}", 1, arguments.INT32)
    if change.salt is not None and (not isinstance(change.salt, bytes) or not change.salt):
        raise WrongArgument(f"the salt of {change.user} is bytes, or None for a random one")


def checked_quota_filter(given: object) -> ClientQuotaFilter:
    if not isinstance(given, ClientQuotaFilter):
        raise WrongArgument(
            f'quotas are found by a filter, as in ClientQuotaFilter(user="alice"), not by {arguments.shown(given)}'
        )
    for field in _KINDS:
        _check_name(getattr(given, field), field, is_filter=True)
    arguments.choice(given.strict, "strict")
    return given


def checked_quota_changes(given: object) -> dict[ClientQuotaEntity, dict[str, float | None]]:
    example = (
        'quotas go by entity, as in {ClientQuotaEntity(user="alice"): {"producer_byte_rate": 1_000_000}}'
    )
    changes: dict[ClientQuotaEntity, dict[str, float | None]] = {}
    for entity, values in arguments.mapping(given, example):
        if not isinstance(entity, ClientQuotaEntity):
            raise WrongArgument(f"{example}, not by {arguments.shown(entity)}")
        for field in _KINDS:
            _check_name(getattr(entity, field), field, is_filter=False)
        if entity == ClientQuotaEntity():
            raise WrongArgument("a quota is for a user, a client_id, both, or an ip; this one is for nobody")
        changes[entity] = {
            arguments.text(key, "the name of a quota"): _checked_value(key, value)
            for key, value in arguments.mapping(values, example)
        }
    return changes


def _check_name(given: object, field: str, *, is_filter: bool) -> None:
    if given is None or (isinstance(given, EntityName) and (is_filter or given is EntityName.DEFAULT)):
        return
    if isinstance(given, EntityName):
        raise WrongArgument(
            f"{field} of an entity is a name or EntityName.DEFAULT; EntityName.ANY is for filters"
        )
    arguments.text(given, f"the {field} of a quota")


def _checked_value(key: str, given: object) -> float | None:
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, (int, float)):
        raise WrongArgument(f"{key} is a number, or None to remove it, not {arguments.shown(given)}")
    return float(given)


# --- messages -------------------------------------------------------------------------------------------


def _first_of(field: str) -> Any:
    """Makes a verdict for answers about many things: the first error that may pass, so that it is asked again."""
    return lambda response: next(
        (row.error_code for row in getattr(response, field) if row.error_code in RETRIABLE), 0
    )


def _filter_fields(wanted: AclFilter) -> tuple[Any, ...]:
    return (
        wanted.resource_type,
        wanted.resource_name,
        wanted.pattern_type,
        wanted.principal,
        wanted.host,
        wanted.operation,
        wanted.permission,
    )


def _known(kind: type[E], code: int) -> E:
    """The meaning of a code; UNKNOWN for one of a newer broker."""
    return kind(code) if code in kind._value2member_map_ else kind(0)


def _acl(
    resource_type: int,
    name: str,
    pattern_type: int,
    principal: str,
    host: str,
    operation: int,
    permission: int,
) -> Acl:
    return Acl(
        _known(AclResource, resource_type),
        name,
        _known(PatternType, pattern_type),
        principal,
        host,
        _known(AclOperation, operation),
        _known(Permission, permission),
    )


def _deleted(result: DeleteAclsFilterResult, errors: dict[Any, KafkaError]) -> list[Acl]:
    """Returns the ACLs of a result that are gone; what could not be deleted goes to `errors`."""
    gone = []
    for row in result.matching_acls:
        acl = _acl(
            row.resource_type,
            row.resource_name,
            row.pattern_type,
            row.principal,
            row.host,
            row.operation,
            row.permission_type,
        )
        if row.error_code:
            errors[acl] = error_for(row.error_code, row.error_message or "it was not deleted")
        else:
            gone.append(acl)
    return gone


def _upsertion(change: UserScramCredentialUpsertion, random_salt: bytes) -> ScramUpsertion:
    salt = change.salt if change.salt is not None else random_salt
    salted = salted_password(change.mechanism, change.password, salt, change.iterations)
    return ScramUpsertion(change.user, change.mechanism, change.iterations, salt, salted)


def _component(kind: str, name: str | EntityName) -> QuotaFilterComponent:
    if isinstance(name, EntityName):
        return QuotaFilterComponent(kind, DEFAULT if name is EntityName.DEFAULT else ANY, None)
    return QuotaFilterComponent(kind, EXACT, name)


def _parts(entity: ClientQuotaEntity) -> list[tuple[str, str | None]]:
    """The kinds and names of an entity as Kafka has them: a name of None is the default."""
    named = ((kind, getattr(entity, field)) for field, kind in _KINDS.items())
    return [(kind, None if isinstance(n, EntityName) else n) for kind, n in named if n is not None]


def _entity(parts: Iterable[Any]) -> ClientQuotaEntity:
    fields = {kind: field for field, kind in _KINDS.items()}
    return ClientQuotaEntity(
        **{
            fields[part.entity_type]: EntityName.DEFAULT if part.entity_name is None else part.entity_name
            for part in parts
            if part.entity_type in fields
        }
    )


def _by_key(row: Any) -> str:
    return str(row.key)
