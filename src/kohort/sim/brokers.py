"""Simulated brokers: the real handlers for groups over the coordinator's runtime, and the topics of data.py."""

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
from kohort.broker.groups.commit_frames import CommitCodec
from kohort.broker.permissions import Permissions
from kohort.coordinator.commit_layout import CommitLayout
from kohort.coordinator.effects import CommitResponse, Response
from kohort.coordinator.events import GroupRequest, JoinGroup, OffsetCommit
from kohort.coordinator.runtime import Runtime
from kohort.sim.data import HOST, Data, port_of
from kohort.sim.world import Answered, SimulatedNode
from kohort.wire.compiler.compile import Codec, codec
from kohort.wire.errors import ErrorCode
from kohort.wire.messages import find_coordinator as find
from kohort.wire.struct import Message

SESSIONS = 100
Reply = Callable[[Message], None]

FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, FIND_COORDINATOR, OFFSET_FOR_LEADER_EPOCH = 1, 2, 3, 8, 10, 23
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
    """The part of a call that the broker's handlers use."""

    __slots__ = ("api_key", "client_id", "connection", "reply", "request", "version")

    def __init__(self, api_key: int, version: int, client_id: str, request: Any, reply: Reply) -> None:
        self.api_key, self.version, self.client_id = api_key, version, client_id
        self.connection = _Peer("sim")
        self.request, self.reply = request, reply

    def park(self, on_close: Callable[[], None] | None = None) -> None:
        """Does nothing: links.py serves one request of a connection after the other."""

    def reply_encoded(self, body: bytes) -> None:
        self.reply(codec(self.api_key, self.version).decode_response(memoryview(body)))


class SimGroups:
    """The `groups` of one broker: it passes requests on to the coordinator, if that is on this broker."""

    def __init__(self, brokers: Brokers, broker_id: int) -> None:
        self._brokers, self._broker_id = brokers, broker_id

    @property
    def _is_here(self) -> bool:
        return self._broker_id == self._brokers.coordinator_id

    def heartbeat(self, group_id: str, member_id: str, generation_id: int) -> ErrorCode | None:
        return self._brokers.node.heartbeat(group_id, member_id, generation_id) if self._is_here else None

    def commit(
        self,
        layout: CommitLayout,
        offsets: tuple[int, ...],
        generation_id: int,
        member_id: str,
        group_instance_id: str | None,
    ) -> CommitResponse | None:
        if not self._is_here:
            return None
        who = (generation_id, member_id, group_instance_id)
        return self._brokers.node.commit(layout, offsets, *who)

    def submit_commit(self, request: OffsetCommit) -> None:
        self._brokers.submit(self._broker_id, request, in_layout=True)

    def submit(self, request: GroupRequest) -> None:
        self._brokers.submit(self._broker_id, request)


class SimBroker(Permissions):
    """One of the brokers, with the part of the real one that handlers use."""

    def __init__(self, brokers: Brokers, broker_id: int, data: Data, random: Random) -> None:
        self.broker_id = broker_id
        self.up = True
        self.groups = SimGroups(brokers, broker_id)
        self.store = data
        self.guard = None  # everybody may do everything
        self._random = random
        self.lives = 0
        self.restart()

    def restart(self) -> None:
        self.up = True
        self.lives += 1
        self.sessions = FetchSessions(SESSIONS, lambda: self._random.randint(1, 2**31 - 1))
        self._commit_codecs: dict[int, CommitCodec] = {}

    def codec(self, api_key: int, version: int) -> Codec:
        """The codec of an API as in the broker's table; that of OffsetCommit learns, so each broker has its own."""
        if api_key != OFFSET_COMMIT:
            return codec(api_key, version)
        if version not in self._commit_codecs:
            self._commit_codecs[version] = CommitCodec(version)
        return self._commit_codecs[version]


class Brokers:
    """The cluster; the coordinator's runtime is on one of the brokers, and moves to another one when that one dies."""

    def __init__(self, node: SimulatedNode, data: Data, random: Random, versions: dict[int, int]) -> None:
        self.node, self.data, self.random = node, data, random
        self.versions = versions
        """API key -> the newest version that these brokers have, if it is not the newest there is."""
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
        """Serves a request; `reply` is called once, now or later, or never if the broker dies first."""
        self.requests += 1
        broker = self.brokers[broker_id]
        layout = broker.codec(api_key, version)
        request: Any = layout.decode_request(memoryview(body))

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

    def submit(self, broker_id: int, request: GroupRequest, *, in_layout: bool = False) -> None:
        """Takes what a handler made of a request: its token is the function that answers."""
        answer = cast(Callable[[Response], None], request.request)
        if broker_id != self.coordinator_id:
            self._stranger.submit(request, self.node.clock.now_ms)
            return
        if isinstance(request, JoinGroup) and request.fresh_uuid:
            request = replace(request, fresh_uuid=f"{self.random.getrandbits(64):016x}")
        self._tokens += 1
        numbered = replace(request, request=("client", self._tokens))
        deliver: Callable[[Any, Answered], None] = self.node.submit_commit if in_layout else self.node.deliver
        deliver(numbered, lambda response: None if response is None else answer(response))


def _answer(token: Any, response: Response) -> None:
    token(response)
