"""Sends single requests to the right node, and repeats them where that helps; Admin is built on it. Sans-IO.

A request says whom it is for: any node, a node by its id, the controller, or the coordinator of a group. This part
finds that node, and looks for it again when the answer says that it has moved.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from kohort.client.config import ClientConfig
from kohort.client.core.backoff import Backoff, Jitter
from kohort.client.core.cluster import NO_NODE, Node
from kohort.client.core.effects import ANY_NODE, Answer, FailureKind, Outbox, Send
from kohort.client.core.metadata import Metadata
from kohort.client.core.operation import Operation
from kohort.client.errors import AuthenticationFailed, TimedOut, error_for, error_for_failure
from kohort.settings import INT_MAX
from kohort.wire.errors import ErrorCode, KafkaError
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kohort.wire.struct import Message


class Controller:
    """The target of a request that changes the cluster."""


@dataclass(frozen=True, slots=True)
class GroupOf:
    """The target of a request about a group: its coordinator."""

    group_id: str


Target = int | Controller | GroupOf
CONTROLLER = Controller()

MOVED = (
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)
RETRIABLE = (
    *MOVED,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
)

Verdict = Callable[[Any], int]
"""Returns the error code of a response that asking again may cure, or 0 if the response is to be returned as it is."""


@dataclass(slots=True, eq=False)
class _Question:
    api_key: int
    make: Callable[[int], Message]
    target: Target
    verdict: Verdict
    operation: Operation[Any]
    max_version: int | None
    retries: int
    attempts: int = 0
    at_ms: int = 0
    """Not before this."""
    waiting: bool = False
    """The request is under way."""
    obstacle: str = ""


class Requests:
    """The part that sends single requests; see the module's docstring."""

    def __init__(self, out: Outbox, config: ClientConfig, metadata: Metadata, jitter: Jitter) -> None:
        self._out, self._config, self._metadata = out, config, metadata
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, jitter)
        self.retries: int = getattr(config, "retries", INT_MAX)  # a setting of Admin's
        self._open: list[_Question] = []
        self._coordinators: dict[str, int] = {}

    def ask(
        self,
        request: Message | Callable[[int], Message],
        target: Target,
        now_ms: int,
        deadline_ms: int,
        *,
        api_key: int | None = None,
        verdict: Verdict = lambda response: 0,
        max_version: int | None = None,
        retries: int | None = None,
    ) -> Operation[Any]:
        """Asks for the response; the operation fails with TimedOut when no node has given a final one in time.

        `retries` is how often it may be asked again, instead of what the settings say.
        """
        operation: Operation[Any] = Operation(deadline_ms)
        make = request if callable(request) else (lambda version: request)
        key = request.API_KEY if isinstance(request, Message) else api_key
        assert key is not None, "a request that is made later needs its API key"
        most = self.retries if retries is None else retries
        question = _Question(key, make, target, verdict, operation, max_version, most)
        self._open.append(question)
        self._try(question, now_ms)
        return operation

    def coordinator_of(self, group_id: str) -> Node | None:
        """The node that coordinated the group when somebody last asked."""
        node_id = self._coordinators.get(group_id)
        return None if node_id is None else self._metadata.node(node_id)

    def learn_coordinator(self, group_id: str, node: Node) -> None:
        """Takes note of a coordinator that somebody has found in another way."""
        self._metadata.learn(node)
        self._coordinators[group_id] = node.node_id

    # --- the part -------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        for question in list(self._open):
            deadline_ms = question.operation.deadline_ms
            if deadline_ms is not None and now_ms >= deadline_ms:
                self._fail(question, TimedOut(f"no final answer in time: {question.obstacle or 'none came'}"))
            elif not question.waiting and now_ms >= question.at_ms:
                self._try(question, now_ms)

    def next_deadline_ms(self) -> int | None:
        times = [q.operation.deadline_ms for q in self._open if q.operation.deadline_ms is not None]
        times += [q.at_ms for q in self._open if not q.waiting]
        return min(times, default=None)

    def _answered(self, question: _Question, answer: Answer, now_ms: int) -> None:
        if not self._is_usable(question, answer, now_ms):
            return
        if code := question.verdict(answer.response):
            self._again(question, code, ErrorCode(code).name, now_ms)
        else:
            self._close(question)
            question.operation.finish(answer.response)

    def _coordinator_answered(self, question: _Question, answer: Answer, now_ms: int) -> None:
        if self._is_usable(question, answer, now_ms):
            self._found_coordinator(question, answer.response, now_ms)

    def _is_usable(self, question: _Question, answer: Answer, now_ms: int) -> bool:
        """Whether there is a response and somebody still waits for it. A failure is dealt with here."""
        question.waiting = False
        if question.operation.done:
            self._close(question)
        elif answer.failure is not None:
            self._failed(question, answer, now_ms)
        else:
            return True
        return False

    # --- inside ---------------------------------------------------------------------------------------

    def _try(self, question: _Question, now_ms: int) -> None:
        if question.operation.done:
            self._close(question)
            return
        node_id = self._node_for(question)
        if node_id is None:
            question.at_ms = now_ms + self._backoff.after(1)
            return
        question.waiting = True
        timeout_ms = self._config.request_timeout_ms
        if node_id == _LOOK_UP:
            assert isinstance(question.target, GroupOf)
            send = Send(
                ANY_NODE,
                FindCoordinatorRequest.API_KEY,
                _find(question.target.group_id),
                "requests.coordinator",
                timeout_ms,
                on_answer=partial(self._coordinator_answered, question),
            )
        else:
            send = Send(
                node_id,
                question.api_key,
                question.make,
                "requests.ask",
                timeout_ms,
                max_version=question.max_version,
                on_answer=partial(self._answered, question),
            )
        self._out.append(send)

    def _node_for(self, question: _Question) -> int | None:
        """The node to ask, or None if it is not known yet; then it is being looked up."""
        target, cluster = question.target, self._metadata.cluster
        if isinstance(target, GroupOf):
            return self._coordinators.get(target.group_id, _LOOK_UP)
        if isinstance(target, Controller):
            if cluster.version == 0:
                self._metadata.request_update("the controller is not known yet")
                question.obstacle = "the cluster has not answered yet"
                return None
            return cluster.controller_id if cluster.controller_id != NO_NODE else ANY_NODE
        return target

    def _found_coordinator(self, question: _Question, response: FindCoordinatorResponse, now_ms: int) -> None:
        assert isinstance(question.target, GroupOf)
        found: Any = response.coordinators[0] if response.coordinators else response
        if found.error_code:
            self._again(question, found.error_code, _no_coordinator(question.target, found), now_ms)
            return
        self.learn_coordinator(question.target.group_id, Node(found.node_id, found.host, found.port))
        self._try(question, now_ms)

    def _failed(self, question: _Question, answer: Answer, now_ms: int) -> None:
        failure = answer.failure
        assert failure is not None
        if failure.kind is FailureKind.AUTHENTICATION:
            self._fail(question, AuthenticationFailed(failure.message))
        elif failure.kind is FailureKind.UNSUPPORTED_VERSION:
            self._fail(question, KafkaError(ErrorCode.UNSUPPORTED_VERSION, failure.message))
        elif failure.kind is FailureKind.UNENCODABLE:
            self._fail(question, error_for_failure(failure, "asking the broker"))
        else:
            obstacle = failure.message or failure.kind.value
            # A coordinator that does not answer may have moved.
            self._again(
                question, ErrorCode.NOT_COORDINATOR, obstacle, now_ms, told=ErrorCode.NETWORK_EXCEPTION
            )

    def _again(
        self, question: _Question, code: int, obstacle: str, now_ms: int, *, told: int | None = None
    ) -> None:
        """Asks again later, if that may help; `told` is the code that the user sees when no `retries` are left."""
        question.obstacle = obstacle
        if code not in RETRIABLE:
            self._fail(question, error_for(code, obstacle))
            return
        if code in MOVED:
            if isinstance(question.target, GroupOf):
                self._coordinators.pop(question.target.group_id, None)
            else:
                self._metadata.request_update(obstacle)
        question.attempts += 1
        if question.attempts > question.retries:
            self._fail(question, error_for(code if told is None else told, obstacle))
            return
        question.at_ms = now_ms + self._backoff.after(question.attempts)

    def _fail(self, question: _Question, error: Exception) -> None:
        self._close(question)
        question.operation.fail(error)

    def _close(self, question: _Question) -> None:
        if question in self._open:
            self._open.remove(question)


def _no_coordinator(target: GroupOf, found: Any) -> str:
    if found.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
        return f"not allowed to see group {target.group_id}: this user needs DESCRIBE on it"
    return f"FindCoordinator of group {target.group_id}: {found.error_message or 'no coordinator'}"


_LOOK_UP = -2  # the coordinator must be looked up first


def _find(group_id: str) -> Callable[[int], Message]:
    return lambda version: (
        FindCoordinatorRequest(coordinator_keys=[group_id])
        if version >= 4
        else FindCoordinatorRequest(key=group_id)
    )
