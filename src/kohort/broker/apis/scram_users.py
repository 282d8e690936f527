"""Handles DescribeUserScramCredentials and AlterUserScramCredentials."""

from __future__ import annotations

from collections import Counter

from kohort.broker.broker import Broker
from kohort.broker.call import Call
from kohort.broker.security.guard import scram_entry
from kohort.log.registry import RegistryEntry, ScramUserRemoved
from kohort.security.acls import AclOperation
from kohort.security.scram import MAX_ITERATIONS, MIN_ITERATIONS, ScramCredential, ScramMechanism
from kohort.wire.errors import ErrorCode, KafkaError
from kohort.wire.messages.alter_user_scram_credentials import (
    AlterScramResult,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramDeletion,
    ScramUpsertion,
)
from kohort.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    ScramCredentialInfo,
    ScramUserResult,
)


def describe_user_scram_credentials(broker: Broker, call: Call) -> DescribeUserScramCredentialsResponse:
    """Tells which mechanisms users have, and how many iterations; null or no names mean all users."""
    request: DescribeUserScramCredentialsRequest = call.request
    if not broker.may_in_cluster(call, AclOperation.DESCRIBE):
        return DescribeUserScramCredentialsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    users = broker.store.scram_users()
    asked = [user.name for user in request.users or ()]
    counts = Counter(asked or sorted(users))
    results = []
    for name, count in counts.items():
        if count > 1:
            results.append(
                ScramUserResult(
                    name,
                    ErrorCode.DUPLICATE_RESOURCE,
                    f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}",
                )
            )
        elif name not in users:
            results.append(
                ScramUserResult(
                    name,
                    ErrorCode.RESOURCE_NOT_FOUND,
                    f"Attempt to describe a user credential that does not exist: {name}",
                )
            )
        else:
            infos = [
                ScramCredentialInfo(mechanism, iterations)
                for mechanism, iterations in sorted(users[name].items())
            ]
            results.append(ScramUserResult(name, credential_infos=infos))
    return DescribeUserScramCredentialsResponse(results=results)


async def alter_user_scram_credentials(broker: Broker, call: Call) -> AlterUserScramCredentialsResponse:
    """Sets and deletes passwords, durably before it answers. Open sessions go on."""
    request: AlterUserScramCredentialsRequest = call.request
    changes: list[ScramDeletion | ScramUpsertion] = [*request.deletions, *request.upsertions]
    named = Counter([each.name for each in changes])
    if not broker.may_in_cluster(call, AclOperation.ALTER):
        refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return AlterUserScramCredentialsResponse(results=[AlterScramResult(name, refused) for name in named])
    async with broker.changes:
        entries: list[RegistryEntry] = []
        outcomes: dict[str, KafkaError | None] = {}
        for each in changes:
            if named[each.name] > 1:
                text = "A user credential cannot be altered twice in the same request"
                outcomes[each.name] = KafkaError(ErrorCode.DUPLICATE_RESOURCE, text)
                continue
            try:
                entries.append(_entry(broker, each))
                outcomes[each.name] = None
            except KafkaError as error:
                outcomes[each.name] = error
        failed = await broker.commit(entries)
    return AlterUserScramCredentialsResponse(
        results=[_result(name, error or failed) for name, error in outcomes.items()]
    )


def _entry(broker: Broker, wanted: ScramDeletion | ScramUpsertion) -> RegistryEntry:
    """Returns the change, or raises what is wrong with it."""
    if not wanted.name:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if wanted.mechanism not in (1, 2):
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    mechanism = ScramMechanism(wanted.mechanism)
    if isinstance(wanted, ScramDeletion):
        if broker.store.scram_user(wanted.name, mechanism) is None:
            text = "Attempt to delete a user credential that does not exist"
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, text)
        return ScramUserRemoved(wanted.name, int(mechanism))
    if wanted.iterations < MIN_ITERATIONS:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if wanted.iterations > MAX_ITERATIONS:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    credential = ScramCredential.of(
        mechanism, bytes(wanted.salted_password), bytes(wanted.salt), wanted.iterations
    )
    return scram_entry(wanted.name, mechanism, credential)


def _result(name: str, error: KafkaError | None) -> AlterScramResult:
    return AlterScramResult(name) if error is None else AlterScramResult(name, error.code, error.message)
