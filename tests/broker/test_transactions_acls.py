"""Who may do what in transactions: the rights that each request asks for, and the error that it is refused with."""

from __future__ import annotations

import pytest

from kohort.wire.errors import ErrorCode
from kohort.wire.messages import add_partitions_to_txn as add
from kohort.wire.messages import write_txn_markers as markers
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from kohort.wire.messages.list_transactions import ListTransactionsRequest
from tests.broker import peer
from tests.broker.secured import allowed, codes_in, login, secured
from tests.broker.transactional import TV1, TV2, TransactionalPeer, state_of

E = ErrorCode
X53, T29, G30, C31 = (
    E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    E.TOPIC_AUTHORIZATION_FAILED,
    E.GROUP_AUTHORIZATION_FAILED,
    E.CLUSTER_AUTHORIZATION_FAILED,
)


@pytest.fixture(scope="module")
def broker():
    with secured() as started:
        yield started


@pytest.fixture(scope="module")
def admin(broker):
    with login(broker.bootstrap_servers, "admin") as connection:
        for key_type in (0, 1):
            connection.call(FindCoordinatorRequest("any", key_type), 3)
        for name in ("t", "u"):
            assert peer.create_topic(connection, name).error_code == 0
        yield connection


@pytest.fixture
def alice(broker, admin):
    with login(broker.bootstrap_servers, "alice") as connection:
        yield connection


def test_without_a_right_to_the_transactional_id(admin, alice):
    mine = TransactionalPeer(alice, "x", TV1, looks_for_coordinator=False)
    found = alice.call(FindCoordinatorRequest("x", 1), 3)
    assert found.error_code == X53
    with allowed(admin, "WRITE TOPIC t", "READ TOPIC t", "READ GROUP g"):
        assert mine.init() is X53
        mine.producer_id, mine.producer_epoch = 7, 0
        assert mine.add(("t", 0)) == [X53]
        assert mine.add_group("g") is X53
        assert mine.end(commit=True) is X53
        assert mine.commit_offsets("g", {("t", 0): 1}) == [X53]
        assert mine.produce("t", b"x").error_code == X53
        assert state_of(alice, "x").error_code == X53


@pytest.mark.parametrize("version", [TV1, TV2])
def test_topics_and_groups_are_asked_for_too(admin, alice, version):
    name = f"y{version}"
    mine = TransactionalPeer(alice, name, version, looks_for_coordinator=False)
    with allowed(admin, f"WRITE TRANSACTIONAL_ID {name}"):  # which includes to describe it
        assert mine.init() is E.NONE
        assert mine.add(("t", 0)) == [T29]
        assert mine.produce("t", b"x").error_code == T29
        assert mine.add_group("g") is G30
        assert mine.commit_offsets("g", {("t", 0): 1}) == [G30]
        with allowed(admin, "READ GROUP g"):
            assert mine.commit_offsets("g", {("t", 0): 1}) == [T29]
        with allowed(admin, "WRITE TOPIC t"):
            assert mine.add(("t", 0), ("u", 0)) == [E.OPERATION_NOT_ATTEMPTED, T29]
            assert state_of(alice, name).transaction_state == "Empty"  # nothing was added in passing
            mine.write("t", b"x")
            assert [t.topic for t in state_of(alice, name).topics] == ["t"]
        assert state_of(alice, name).topics == []  # topics that may not be described are left out
        mine.commit()


def test_only_nodes_and_administrators_do_these(admin, alice):
    with allowed(admin, "WRITE TRANSACTIONAL_ID z", "WRITE TOPIC t"):
        asked = add.AddPartitionsToTxnTransaction("z", 7, 0, True, [add.AddPartitionsToTxnTopic("t", [0])])
        assert alice.call(add.AddPartitionsToTxnRequest([asked]), version=5).error_code == C31
        marker = markers.WritableTxnMarker(7, 0, False, [markers.WritableTxnMarkerTopic("t", [0])], 0)
        request = markers.WriteTxnMarkersRequest([marker])
        assert codes_in(alice.call(request, version=2)) == {C31}
        for right in ("ALTER CLUSTER", "CLUSTER_ACTION CLUSTER"):
            with allowed(admin, right):
                assert codes_in(alice.call(request, version=2)) == set()


def test_a_list_leaves_out_what_may_not_be_described(admin, alice):
    for name in ("shown", "hidden"):
        assert TransactionalPeer(admin, name).init() is E.NONE
    with allowed(admin, "DESCRIBE TRANSACTIONAL_ID shown"):
        answer = alice.call(ListTransactionsRequest(), version=2)
        assert answer.error_code == 0
        assert [each.transactional_id for each in answer.transaction_states] == ["shown"]
