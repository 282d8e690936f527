"""Simulated brokers: the real handlers for groups over the coordinator's runtime, and topics as data.py has them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any, cast

from kohort.broker.apis import group_membership, group_offsets
from kohort.broker.apis.table import TABLE
from kohort.broker.broker import Broker
from kohort.broker.call import Call
from kohort.broker.fetch_sessions import FetchSessions
from kohort.coordinator.effects import CommitResponse, Response
from kohort.coordinator.events import GroupRequest, JoinGroup
from kohort.coordinator.runtime import Runtime
from kohort.sim.data import HOST, Data, port_of
from kohort.sim.world import Node
from kohort.wire.compiler.compile import codec
from kohort.wire.errors import ErrorCode
from kohort.wire.messages import find_coordinator as find
from kohort.wire.struct import Message

SESSIONS = 100
Reply = Callable[[Message], None]

FETCH, LIST_OFFSETS, METADATA, FIND_COORDINATOR, OFFSET_FOR_LEADER_EPOCH = 1, 2, 3, 10, 23
GROUP_HANDLERS: dict[int, Callable[[Broker, Call], Any]] = {
    8: group_offsets.offset_commit,
    9: group_offsets.offset_fetch,
    11: group_membership.join_group,
    12: group_membership.heartbeat,
    13: group_membership.leave_group,
    14: group_membership.sync_group,
}


@dataclass(slots=True)
class _Peer:
    address: str


class SimCall:
    """What the broker's handlers use of a call."""

    __slots__ = ("api_key", "client_id", "connection", "request", "reply", "version")

    def __init__(self, api_key: int, version: int, client_id: str, request: Any, reply: Reply) -> None:
        self.api_key, self.version, self.client_id = api_key, version, client_id
        self.connection = _Peer("sim")
        self.request, self.reply = request, reply

    def park(self, on_close: Callable[[], None] | None = None) -> None:
        """Nothing to do: links.py serves one request of a connection after the other."""

    def reply_encoded(self, body: bytes) -> None:
        self.reply(codec(self.api_key, self.version).decode_response(memoryview(body)))


class SimGroups:
    """Where the handlers of one broker bring their requests: the coordinator, if it lives here."""

    def __init__(self, brokers: Brokers, broker_id: int) -> None:
        self._brokers, self._broker_id = brokers, broker_id

    def heartbeat(self, group_id: str, member_id: str, generation_id: int) -> ErrorCode | None:
        """Every heartbeat is an event here: those who look on must see it."""
        return None

    def commit(self, *_: object) -> CommitResponse | None:
        """The same for commits."""
        return None

    def submit(self, request: GroupRequest) -> None:
        self._brokers.submit(self._broker_id, request)


class SimBroker:
    """One of the brokers, and what handlers use of the real one."""

    def __init__(self, brokers: Brokers, broker_id: int, data: Data, random: Random) -> None:
        self.broker_id = broker_id
        self.up = True
        self.groups = SimGroups(brokers, broker_id)
        self.store = data
        self._random = random
        self.lives = 0
        self.restart()

    def restart(self) -> None:
        self.up = True
        self.lives += 1
        self.sessions = FetchSessions(SESSIONS, lambda: self._random.randint(1, 2**31 - 1))


class Brokers:
    """The cluster. The coordinator's runtime lives on one of the brokers, and moves to another when that one dies."""

    def __init__(self, node: Node, data: Data, random: Random, versions: dict[int, int]) -> None:
        self.node, self.data, self.random = node, data, random
        self.versions = versions
        """The newest version of an API that these brokers have, where it is not the newest there is."""
        self.brokers = {n: SimBroker(self, n, data, random) for n in data.broker_ids}
        self.coordinator_id = data.broker_ids[0]
        self.requests = self._tokens = 0
        # A runtime that was never given a partition: it says NOT_COORDINATOR to everything.
        self._stranger = Runtime(node.settings, node.disk, _answer)

    def alive(self) -> list[int]:
        return [broker_id for broker_id, broker in self.brokers.items() if broker.up]

    def version_for(self, api_key: int, max_version: int | None) -> int:
        newest = min(TABLE[api_key].last, self.versions.get(api_key, TABLE[api_key].last))
        return newest if max_version is None else min(newest, max_version)

    def serve(
        self, broker_id: int, api_key: int, version: int, client_id: str, body: bytes, reply: Reply
    ) -> None:
        """`reply` is called once, at once or later; or never, if the broker dies first."""
        self.requests += 1
        layout = codec(api_key, version)
        request: Any = layout.decode_request(memoryview(body))
        broker = self.brokers[broker_id]

        def back(message: Message) -> None:
            reply(layout.decode_response(memoryview(b"".join(layout.encode_response(message)))))

        if api_key == FETCH:
            self.data.fetch(broker_id, broker.sessions, request, version, back)
        elif api_key == LIST_OFFSETS:
            back(self.data.list_offsets(broker_id, request))
        elif api_key == METADATA:
            back(self.data.metadata(request, self.alive()))
        elif api_key == OFFSET_FOR_LEADER_EPOCH:
            back(self.data.offset_for_leader_epoch(broker_id, request))
        elif api_key == FIND_COORDINATOR:
            back(self._find_coordinator(request, version))
        else:
            call = SimCall(api_key, version, client_id, request, back)
            answer = GROUP_HANDLERS[api_key](cast(Broker, broker), cast(Call, call))
            if answer is not None:
                back(answer)

    def _find_coordinator(
        self, request: find.FindCoordinatorRequest, version: int
    ) -> find.FindCoordinatorResponse:
        keys = request.coordinator_keys if version >= 4 else [request.key]
        at, error = self.coordinator_id, ErrorCode.NONE
        if not self.node.up:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        found = [find.Coordinator(key, at, HOST, port_of(at), error) for key in keys]
        if version >= 4:
            return find.FindCoordinatorResponse(coordinators=found)
        return find.FindCoordinatorResponse(0, error, None, at, HOST, port_of(at))

    def submit(self, broker_id: int, request: GroupRequest) -> None:
        """What a handler made of a request: its token is the function that answers."""
        answer = cast(Callable[[Response], None], request.request)
        if broker_id != self.coordinator_id:
            self._stranger.submit(request, self.node.clock.now_ms)
            return
        if isinstance(request, JoinGroup) and request.fresh_uuid:
            request = replace(request, fresh_uuid=f"{self.random.getrandbits(64):016x}")
        self._tokens += 1
        numbered = replace(request, request=("client", self._tokens))
        self.node.deliver(numbered, lambda response: None if response is None else answer(response))


def _answer(token: Any, response: Response) -> None:
    token(response)
