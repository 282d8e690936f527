"""Admin and AsyncAdmin: ACLs, SCRAM users and quotas of a broker with SASL and an authorizer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from kohort import (
    Acl,
    AclFilter,
    AclOperation,
    AclResource,
    Admin,
    AsyncAdmin,
    AuthenticationFailed,
    AuthorizationFailed,
    ClientQuotaEntity,
    ClientQuotaFilter,
    EntityName,
    ErrorCode,
    KafkaError,
    PartlyFailed,
    PatternType,
    Permission,
    Producer,
    ScramCredentialInfo,
    ScramMechanism,
    TopicPartition,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
    WrongArgument,
)
from kohort.broker.running import running
from tests.client.secured import login, secured_broker

READ = Acl(
    AclResource.TOPIC,
    "orders",
    PatternType.LITERAL,
    "User:alice",
    "*",
    AclOperation.READ,
    Permission.ALLOW,
)
DENY = replace(READ, resource_name="ord", pattern_type=PatternType.PREFIXED, permission=Permission.DENY)
SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512


@pytest.fixture(scope="module")
def broker() -> Iterator[running]:
    with secured_broker() as started:
        yield started


@pytest.fixture
def admin(broker: running) -> Iterator[Admin]:
    with Admin(login(broker)) as client:
        yield client
        client.delete_acls(AclFilter())


def test_acls_are_made_found_and_deleted(admin: Admin) -> None:
    admin.create_acls([READ, DENY])
    admin.create_acls([READ])  # it is there already
    assert admin.describe_acls() == sorted([READ, DENY])
    assert admin.describe_acls(AclFilter(AclResource.TOPIC, "orders")) == [READ]
    matching = AclFilter(AclResource.TOPIC, "orders", PatternType.MATCH)
    assert admin.describe_acls(matching) == sorted([READ, DENY])
    nobodys = AclFilter(principal="User:nobody")
    denied = AclFilter(permission=Permission.DENY)
    assert admin.delete_acls(nobodys, denied) == {nobodys: [], denied: [DENY]}
    assert admin.describe_acls() == [READ]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (replace(READ, principal="alice"), "no colon"),
        (replace(READ, resource_type=AclResource.ANY), "on ANY LITERAL:orders: Invalid"),
        (replace(READ, operation=AclOperation.UNKNOWN), "is one of AclOperation"),
        (replace(READ, operation=3), "is one of AclOperation"),
        (replace(READ, resource_type=AclResource.CLUSTER), "kafka-cluster"),
        ("orders", "these are ACLs, as in"),
    ],
)
def test_a_wrong_acl_is_refused_before_it_is_sent(admin: Admin, wrong: Acl, says: str) -> None:
    with pytest.raises(WrongArgument, match=says):
        admin.create_acls([wrong])
    with pytest.raises(WrongArgument):
        admin.delete_acls(wrong)


def test_without_an_authorizer_it_is_said() -> None:
    with running() as open_broker, Admin(bootstrap_servers=open_broker.bootstrap_servers) as admin:
        with pytest.raises(KafkaError) as refused:
            admin.describe_acls()
        assert refused.value.code is ErrorCode.SECURITY_DISABLED
        with pytest.raises(PartlyFailed) as both:
            admin.create_acls([READ, DENY])
        assert {error.code for error in both.value.errors.values()} == {ErrorCode.SECURITY_DISABLED}
        assert set(both.value.errors) == {READ, DENY}


def test_a_user_logs_in_by_the_password_it_was_given(broker: running, admin: Admin) -> None:
    password = 'a = b, "c" \\ é'
    admin.alter_user_scram_credentials([UserScramCredentialUpsertion("alice,=1", password)])
    admin.alter_user_scram_credentials(
        [
            UserScramCredentialUpsertion("alice,=1", password, SHA_256, iterations=8192),
            UserScramCredentialUpsertion("bob", "b", SHA_512),
        ]
    )
    expected = (ScramCredentialInfo(SHA_256, 8192), ScramCredentialInfo(SHA_512, 4096))
    assert admin.describe_user_scram_credentials("alice,=1") == {"alice,=1": expected}
    assert set(admin.describe_user_scram_credentials()) == {"alice,=1", "bob"}
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        with Admin(login(broker, "alice,=1", password, mechanism)) as theirs:
            assert theirs.describe_cluster().nodes
            with pytest.raises(AuthorizationFailed):
                theirs.describe_acls()
            with pytest.raises(AuthorizationFailed):
                theirs.alter_user_scram_credentials([UserScramCredentialUpsertion("x", "y")])
    with (
        Admin(login(broker, "alice,=1", "wrong", "SCRAM-SHA-512")) as theirs,
        pytest.raises(AuthenticationFailed),
    ):
        theirs.describe_cluster()
    admin.alter_user_scram_credentials(
        [UserScramCredentialDeletion("alice,=1", SHA_256), UserScramCredentialDeletion("bob", SHA_512)]
    )
    assert set(admin.describe_user_scram_credentials()) == {"alice,=1"}


def test_each_user_has_an_error_of_its_own(admin: Admin) -> None:
    with pytest.raises(PartlyFailed) as partly:
        admin.alter_user_scram_credentials(
            [
                UserScramCredentialUpsertion("carol", "c"),
                UserScramCredentialUpsertion("weak", "w", iterations=10),
                UserScramCredentialDeletion("nobody", SHA_256),
                UserScramCredentialUpsertion("twice", "t", SHA_256),
                UserScramCredentialUpsertion("twice", "t", SHA_512),
            ]
        )
    codes = {user: error.code for user, error in partly.value.errors.items()}
    assert codes == {
        "weak": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "nobody": ErrorCode.RESOURCE_NOT_FOUND,
        "twice": ErrorCode.DUPLICATE_RESOURCE,
    }
    assert set(partly.value.results) == {"carol"}
    with pytest.raises(KafkaError) as missing:
        admin.describe_user_scram_credentials("nobody")
    assert missing.value.code is ErrorCode.RESOURCE_NOT_FOUND


def test_a_password_is_in_no_text(admin: Admin) -> None:
    change = UserScramCredentialUpsertion("alice", "hush", salt=b"salty")
    assert "hush" not in repr(change)
    assert "salty" not in repr(change)
    for wrong in (
        replace(change, user=""),
        replace(change, mechanism="SCRAM-SHA-512"),
        replace(change, password="hush\udc80"),
        replace(change, iterations="hush"),
        replace(change, salt=b""),
        "hush",
    ):
        with pytest.raises(WrongArgument) as refused:
            admin.alter_user_scram_credentials([wrong])
        assert wrong == replace(change, iterations="hush") or "hush" not in str(refused.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"alice": {"producer_byte_rate": 1}},
        {ClientQuotaEntity(): {"producer_byte_rate": 1}},
        {ClientQuotaEntity(user=EntityName.ANY): {"producer_byte_rate": 1}},
        {ClientQuotaEntity(user=""): {"producer_byte_rate": 1}},
        {ClientQuotaEntity(user="alice"): {"producer_byte_rate": "1"}},
        {ClientQuotaEntity(user="alice"): 1},
    ],
)
def test_a_wrong_quota_is_refused_before_it_is_sent(admin: Admin, wrong: object) -> None:
    with pytest.raises(WrongArgument):
        admin.alter_client_quotas(wrong)


def test_a_filter_of_quotas_is_one(admin: Admin) -> None:
    with pytest.raises(WrongArgument, match="ClientQuotaFilter"):
        admin.describe_client_quotas(ClientQuotaEntity(user="alice"))


def test_directories_tell_the_sizes_of_partitions(broker: running, admin: Admin) -> None:
    admin.create_topic("sized", partitions=2)
    with Producer(login(broker)) as producer:
        producer.send("sized", value=b"x" * 5000, partition=1)
    ((_, directories),) = admin.describe_log_dirs().items()
    ((_, described),) = directories.items()
    assert described.replicas[TopicPartition("sized", 1)].size > 5000
    assert described.replicas[TopicPartition("sized", 0)].size == 0


async def test_the_same_from_an_event_loop(broker: running) -> None:
    async with AsyncAdmin(login(broker)) as admin:
        await admin.create_acls([READ])
        assert await admin.describe_acls() == [READ]
        assert (await admin.delete_acls(AclFilter()))[AclFilter()] == [READ]
        await admin.alter_user_scram_credentials([UserScramCredentialUpsertion("dora", "d")])
        assert (await admin.describe_user_scram_credentials("dora"))["dora"][0].mechanism is SHA_512
        assert await admin.describe_log_dirs()


def test_what_each_needs_is_what_the_docs_say(broker: running, admin: Admin) -> None:
    """The table in docs/security.md under ACLs: with these operations it works, without them it is refused."""
    everywhere = ((AclResource.TOPIC, "*"), (AclResource.GROUP, "*"), (AclResource.CLUSTER, "kafka-cluster"))
    admin.create_topic("shop")

    def needs(user: str, *allowed: tuple[AclResource, str, AclOperation]) -> Admin:
        admin.alter_user_scram_credentials([UserScramCredentialUpsertion(user, user)])
        admin.create_acls(
            Acl(kind, name, PatternType.LITERAL, f"User:{user}", "*", operation, Permission.ALLOW)
            for kind, name, operation in allowed
        )
        return Admin(login(broker, user, user, "SCRAM-SHA-512"))

    with needs("onlooker", *((kind, name, AclOperation.DESCRIBE) for kind, name in everywhere)) as theirs:
        assert "shop" in theirs.list_topics()
        assert theirs.describe_acls()
        assert theirs.describe_log_dirs()
        with pytest.raises(AuthorizationFailed):
            theirs.create_topic("stall")
    with needs("maker", (AclResource.TOPIC, "stall", AclOperation.CREATE)) as theirs:
        theirs.create_topic("stall")
        with pytest.raises(AuthorizationFailed):
            theirs.delete_topics("stall")
    reads = ((AclResource.GROUP, "till", AclOperation.READ), (AclResource.TOPIC, "shop", AclOperation.READ))
    with needs("resetter", *reads) as theirs:
        theirs.alter_group_offsets("till", {("shop", 0): 0})
        with pytest.raises(AuthorizationFailed, match="the group till"):
            theirs.delete_group_offsets("till", ("shop", 0))
    with needs("deleter", *reads, (AclResource.GROUP, "till", AclOperation.DELETE)) as theirs:
        theirs.delete_group_offsets("till", ("shop", 0))
    with needs("warden", (AclResource.CLUSTER, "kafka-cluster", AclOperation.ALTER)) as theirs:
        theirs.alter_user_scram_credentials([UserScramCredentialUpsertion("erin", "e")])
        theirs.create_acls([READ])
        assert READ in theirs.describe_acls()
        with pytest.raises(AuthorizationFailed):
            theirs.alter_client_quotas({ClientQuotaEntity(user="erin"): {"producer_byte_rate": 1_000}})
    with needs("waiter", (AclResource.CLUSTER, "kafka-cluster", AclOperation.ALTER_CONFIGS)) as theirs:
        quota = ClientQuotaEntity(user=EntityName.DEFAULT, client_id="app")
        theirs.alter_client_quotas({quota: {"producer_byte_rate": 1_000}})
        assert theirs.describe_client_quotas(ClientQuotaFilter(client_id=EntityName.ANY)) == {
            quota: {"producer_byte_rate": 1_000}
        }
        theirs.alter_client_quotas({quota: {"producer_byte_rate": None}})
        assert theirs.describe_client_quotas() == {}
