"""The look-up of a group's coordinator; how it goes on over time is in the transcripts joining-1-*."""

from __future__ import annotations

import pytest

from kohort.client.config import CONSUMER, ConsumerConfig, read_config
from kohort.client.core.cluster import Node
from kohort.client.core.effects import ANY_NODE, Answer, Failure, FailureKind, Lane, Outbox
from kohort.client.core.metadata import Metadata
from kohort.client.errors import AuthorizationFailed
from kohort.client.group.coordinator import GroupCoordinator
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from kohort.wire.messages.metadata import MetadataResponse, MetadataResponseBroker


def config(**more: object) -> ConsumerConfig:
    return read_config(CONSUMER, {"bootstrap.servers": "b:1", "group.id": "g"}, more)[0]


class Setup:
    def __init__(self, jitter: float = 0.5) -> None:
        self.out: Outbox = []
        self.metadata = Metadata(self.out, config(), lambda: jitter)
        self.coordinator = GroupCoordinator(self.out, config(), self.metadata, lambda: jitter)

    def reply(self, now_ms: int, code: int = 0, node_id: int = 3, version: int = 6) -> None:
        found = Coordinator("g", node_id, "b3", 9093, code, "words")
        response = FindCoordinatorResponse(0, code, "words", node_id, "b3", 9093, [found])
        send = self.out.pop(0)
        send.on_answer(Answer(send, version, response), now_ms)


def test_the_look_up_goes_to_whichever_node_is_least_loaded_on_the_data_lane() -> None:
    s = Setup()
    assert s.coordinator.ensure(0) is None
    (send,) = s.out
    assert (send.node_id, send.lane, send.purpose) == (ANY_NODE, Lane.DATA, "coordinator.find")


@pytest.mark.parametrize("version", range(7))
def test_every_version_finds_it_and_teaches_the_metadata_where_it_is(version: int) -> None:
    s = Setup()
    s.coordinator.ensure(0)
    request = s.out[0].make(version)
    assert (request.key, request.coordinator_keys) == (("", ["g"]) if version >= 4 else ("g", []))  # type: ignore[attr-defined]
    s.reply(0, version=version)
    assert s.coordinator.ensure(0) == 3
    assert s.metadata.node(3) == Node(3, "b3", 9093)


def test_it_is_asked_for_once_at_a_time() -> None:
    s = Setup()
    for _ in range(3):
        s.coordinator.ensure(0)
        s.coordinator.tick(0)
    assert len(s.out) == 1


def test_it_is_not_asked_for_before_somebody_needs_it() -> None:
    s = Setup()
    s.coordinator.tick(10_000)
    assert s.out == []
    assert s.coordinator.next_deadline_ms() is None


def test_a_forgotten_coordinator_is_asked_for_again_when_needed_after_the_backoff() -> None:
    s = Setup()
    s.coordinator.ensure(0)
    s.reply(0)
    s.coordinator.forget("NOT_COORDINATOR", 1_000)
    assert s.coordinator.ensure(1_000) is None
    assert s.out == []
    assert s.coordinator.next_deadline_ms() == 1_100
    s.coordinator.tick(1_099)
    assert s.out == []
    s.coordinator.tick(1_100)
    assert len(s.out) == 1


@pytest.mark.parametrize(("jitter", "wait_ms"), [(0.0, 80), (0.5, 100), (0.999999, 119)])
def test_the_backoff_has_jitter(jitter: float, wait_ms: int) -> None:
    s = Setup(jitter)
    s.coordinator.ensure(0)
    s.reply(0, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert s.coordinator.next_deadline_ms() == wait_ms


def test_a_coordinator_that_worked_ends_the_row_of_failures() -> None:
    s = Setup()
    for now_ms in (0, 1_000, 3_000):
        s.coordinator.ensure(now_ms)
        s.reply(now_ms)
        s.coordinator.forget("NOT_COORDINATOR", now_ms)
    s.coordinator.ensure(4_000)
    s.reply(4_000)
    s.coordinator.worked()
    s.coordinator.forget("NOT_COORDINATOR", 5_000)
    s.coordinator.ensure(5_000)
    assert s.coordinator.next_deadline_ms() == 5_100


def test_a_failed_look_up_asks_for_fresh_metadata() -> None:
    s = Setup()
    s.metadata.tick(0)
    known = MetadataResponse(brokers=[MetadataResponseBroker(1, "b1", 9092)])
    send = s.out.pop()
    send.on_answer(Answer(send, 12, known), 0)
    due_before = s.metadata.is_due
    s.coordinator.ensure(0)
    send = s.out.pop()
    send.on_answer(Answer(send, failure=Failure(FailureKind.DISCONNECTED, "connection refused")), 0)
    assert (due_before, s.metadata.is_due) == (False, True)
    assert "connection refused" in s.coordinator.last_failure


def test_a_refusal_is_an_error_until_somebody_asks_again() -> None:
    s = Setup()
    s.coordinator.ensure(0)
    s.reply(0, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert isinstance(s.coordinator.error, AuthorizationFailed)
    assert "READ" in str(s.coordinator.error)
    s.coordinator.tick(10_000)
    assert s.out == []
    s.coordinator.ensure(10_000)
    assert len(s.out) == 1
    assert s.coordinator.error is None


def test_a_late_answer_says_nothing() -> None:
    s = Setup()
    s.coordinator.ensure(0)
    slow = s.out.pop()
    s.coordinator.ensure(0, Lane.GROUP)  # who serves the group lane alone cannot wait for the other
    assert s.out[0].lane is Lane.GROUP
    s.reply(0)
    slow.on_answer(Answer(slow, failure=Failure(FailureKind.TIMED_OUT)), 30_000)
    assert s.coordinator.node_id == 3
    assert s.coordinator.last_failure == ""


def test_an_answer_without_a_coordinator_is_asked_again() -> None:
    s = Setup()
    s.coordinator.ensure(0)
    send = s.out.pop()
    send.on_answer(Answer(send, 6, FindCoordinatorResponse()), 0)
    assert s.coordinator.next_deadline_ms() == 100


def test_its_repr_says_where_it_is_and_what_is_in_the_way() -> None:
    s = Setup()
    s.coordinator.ensure(0)
    assert repr(s.coordinator) == "<coordinator of g: unknown, being looked up>"
    s.reply(0, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert repr(s.coordinator) == "<coordinator of g: unknown, last failure: COORDINATOR_NOT_AVAILABLE words>"
