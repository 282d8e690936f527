"""The authorizer and the filters decide as an implementation does that is written straight from the specification."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kohort.security.acls import (
    OPERATIONS_OF,
    Acl,
    AclFilter,
    AclOperation,
    AclResource,
    PatternType,
    Permission,
    all_operations,
)
from kohort.security.authorizer import MOST_GRANTED, Authorizer

TOPIC, GROUP = AclResource.TOPIC, AclResource.GROUP
READ, WRITE, DESCRIBE, ALL = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.ALL
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = Permission.ALLOW, Permission.DENY
ALICE, HERE = "User:alice", "10.0.0.1"
FRESH = "~"  # no generated name has it

# --- straight from section 3 -------------------------------------------------------------------------------------


def naive_allows(
    acls: set[Acl], super_users: set[str], default: bool, who: str, host: str, operation: AclOperation,
    resource_type: AclResource, name: str,
) -> bool:  # fmt: skip
    if who in super_users:
        return True
    of_resource = [
        acl
        for acl in acls
        if acl.resource_type == resource_type
        and (
            (acl.pattern_type == LITERAL and acl.resource_name in (name, "*"))
            or (acl.pattern_type == PREFIXED and name.startswith(acl.resource_name))
        )
    ]
    if not of_resource:
        return default
    own = [acl for acl in of_resource if acl.principal in (who, "User:*") and acl.host in (host, "*")]
    if any(acl.permission == DENY and acl.operation in (operation, ALL) for acl in own):
        return False
    granting = {operation, ALL}
    if operation == DESCRIBE:
        granting |= {READ, WRITE, AclOperation.DELETE, AclOperation.ALTER}
    if operation == AclOperation.DESCRIBE_CONFIGS:
        granting |= {AclOperation.ALTER_CONFIGS}
    return any(acl.permission == ALLOW and acl.operation in granting for acl in own)


def naive_matches(wanted: AclFilter, acl: Acl) -> bool:
    pairs = [
        (wanted.resource_type, acl.resource_type),
        (wanted.operation, acl.operation),
        (wanted.permission, acl.permission),
    ]
    if any(mine not in (1, its) for mine, its in pairs):  # 1: ANY
        return False
    if wanted.principal not in (None, acl.principal) or wanted.host not in (None, acl.host):
        return False
    name, kind = wanted.resource_name, wanted.pattern_type
    if kind in (LITERAL, PREFIXED) and acl.pattern_type != kind:
        return False
    if name is None:
        return kind != PatternType.UNKNOWN
    if kind == PatternType.MATCH:
        if acl.pattern_type == LITERAL:
            return acl.resource_name in (name, "*")
        return name.startswith(acl.resource_name)
    return kind != PatternType.UNKNOWN and name == acl.resource_name


# --- what is tried -----------------------------------------------------------------------------------------------

patterns = st.sampled_from(["*", "a", "ab", "abc", "b", "ba", "a*"])
names = st.sampled_from(["a", "ab", "abc", "abcd", "b", "bab", "c", "a*", "*", ""])
principals = st.sampled_from([ALICE, "User:bob", "User:Alice", "Group:alice"])
hosts = st.sampled_from([HERE, "0:0:0:0:0:0:0:1"])
operations = st.sampled_from(
    [op for op in AclOperation if op not in (AclOperation.UNKNOWN, AclOperation.ANY, ALL)]
)
types = st.sampled_from([TOPIC, GROUP])
acls = st.builds(
    Acl,
    types,
    patterns,
    st.sampled_from([LITERAL, PREFIXED]),
    st.one_of(principals, st.just("User:*")),
    st.one_of(hosts, st.just("*")),
    st.one_of(operations, st.just(ALL), st.just(READ), st.just(WRITE)),
    st.sampled_from([ALLOW, ALLOW, DENY]),
)
questions = st.tuples(principals, hosts, operations, types, names)
filters = st.builds(
    AclFilter,
    st.sampled_from([AclResource.ANY, TOPIC, GROUP, AclResource.UNKNOWN]),
    st.one_of(st.none(), names),
    st.sampled_from(PatternType),
    st.one_of(st.none(), principals, st.just("User:*")),
    st.one_of(st.none(), hosts, st.just("*")),
    st.one_of(st.just(AclOperation.ANY), st.just(AclOperation.UNKNOWN), operations),
    st.sampled_from(Permission),
)


@given(st.lists(st.one_of(acls, questions), max_size=25), st.sets(principals, max_size=1), st.booleans())
def test_decisions_are_those_of_the_specification(steps, super_users, default):
    """An ACL that comes a second time is taken away. Questions come in between, so that old answers would show."""
    authorizer = Authorizer(super_users, allow_everyone_if_no_acl_found=default)
    there: set[Acl] = set()
    asked: list[tuple[str, str, AclOperation, AclResource, str]] = []
    for step in steps:
        if not isinstance(step, Acl):
            asked.append(step)
        elif step in there:
            there.remove(step)
            authorizer.remove(step)
        else:
            there.add(step)
            authorizer.add(step)
        for question in asked:
            assert authorizer.allows(*question) is naive_allows(there, super_users, default, *question)
            rule = authorizer.rule(*question)
            denied_by_acl = rule.startswith("MatchingAcl(acl=DENY")
            assert authorizer.allows(*question) is not (denied_by_acl or rule == "DefaultDeny")
    assert set(authorizer) == there
    assert len(authorizer) == len(there)


def one(name: str, kind: PatternType, permission: Permission) -> Acl:
    return Acl(TOPIC, name, kind, ALICE, "*", WRITE, permission)


@given(st.sets(acls, max_size=12), principals, hosts, st.sets(principals, max_size=1), st.booleans())
@example({one("*", LITERAL, ALLOW), one("a", PREFIXED, DENY)}, ALICE, HERE, set(), False)
@example({one("ab", PREFIXED, ALLOW), one("a", PREFIXED, DENY)}, ALICE, HERE, set(), False)
@example({one("a", PREFIXED, ALLOW), one("a", LITERAL, DENY)}, ALICE, HERE, set(), False)
@example({one("a", LITERAL, DENY), one("*", LITERAL, DENY)}, ALICE, HERE, set(), True)
def test_some_name_is_allowed_if_and_only_if_there_is_one(there, who, host, super_users, default):
    authorizer = Authorizer(super_users, allow_everyone_if_no_acl_found=default, acls=there)
    candidates = {FRESH}
    for acl in there:
        candidates.add(acl.resource_name + FRESH if acl.pattern_type is PREFIXED else acl.resource_name)
    candidates -= {"*"}  # stands for all names, and is none
    expected = any(
        naive_allows(there, super_users, default, who, host, WRITE, TOPIC, name) for name in candidates
    )
    assert authorizer.allows_on_some(who, host, WRITE, TOPIC) is expected
    assert authorizer.allows_on_some(who, host, WRITE, TOPIC) is expected, "the kept answer is the same"


@given(filters, st.lists(acls, max_size=8))
def test_filters_find_what_the_specification_says(wanted, there):
    assert [acl for acl in there if wanted.matches(acl)] == [
        acl for acl in there if naive_matches(wanted, acl)
    ]


@given(st.sets(acls, max_size=12), principals, hosts, names)
def test_allowed_operations_have_a_bit_for_each(there, who, host, name):
    authorizer = Authorizer(acls=there)
    bits = authorizer.allowed_operations(who, host, GROUP, name)
    for operation in AclOperation:
        asked = operation in OPERATIONS_OF[GROUP]
        assert bool(bits >> operation & 1) is (
            asked and naive_allows(there, set(), False, who, host, operation, GROUP, name)
        )


def test_all_operations_are_those_of_the_specification():
    assert [all_operations(kind) for kind in (TOPIC, GROUP, AclResource.CLUSTER)] == [3576, 3400, 8096]


def test_what_was_granted_is_kept_until_an_acl_changes():
    authorizer = Authorizer()
    granted = authorizer.granted_to(ALICE, HERE)
    assert authorizer.granted_to(ALICE, HERE) is granted
    assert authorizer.granted_to("User:bob", HERE) is not granted
    for change in (authorizer.add, authorizer.remove):
        granted.keep("something")
        change(one("a", LITERAL, ALLOW))
        assert not granted
    for number in range(3 * MOST_GRANTED):
        granted.keep(number)
        assert number in granted
    assert len(granted) <= MOST_GRANTED


def test_many_and_long_names_fill_no_memory():
    authorizer = Authorizer(acls=[one("a", PREFIXED, ALLOW)])
    for number in range(10_050):
        assert authorizer.allows(ALICE, HERE, WRITE, TOPIC, f"a{number}")
    assert len(authorizer._decided) <= 10_000
    kept = len(authorizer._decided)
    assert authorizer.allows(ALICE, HERE, WRITE, TOPIC, "a" * 30_000)
    assert len(authorizer._decided) == kept


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"resource_type": AclResource.ANY}, "resourceType ANY"),
        ({"resource_type": AclResource.UNKNOWN}, "resourceType UNKNOWN"),
        ({"resource_type": AclResource.CLUSTER, "resource_name": "x"}, "kafka-cluster"),
        ({"resource_name": ""}, "empty"),
        ({"pattern_type": PatternType.MATCH}, "patternType MATCH"),
        ({"operation": AclOperation.ANY}, "operation ANY"),
        ({"permission": Permission.ANY}, "permissionType ANY"),
        ({"principal": "alice"}, "no colon"),
    ],
)
def test_a_wrong_acl_says_what_is_wrong(change, text):
    right = {
        "resource_type": TOPIC,
        "resource_name": "t",
        "pattern_type": LITERAL,
        "principal": ALICE,
        "host": "*",
        "operation": READ,
        "permission": ALLOW,
    }
    assert Acl(**right).wrong() is None
    assert text in Acl(**{**right, **change}).wrong()
