"""Group and Member: the soft state of a group, with its questions and its changes, but no replies."""

from __future__ import annotations

from dataclasses import dataclass, field

from kohort.coordinator.classic.state import EMPTY, TRANSITIONS, GroupState
from kohort.coordinator.classic.subscription import subscribed_topics
from kohort.coordinator.effects import JoinedMember
from kohort.coordinator.events import Token
from kohort.coordinator.member_session import MemberSession
from kohort.coordinator.replay import TopicPartition
from kohort.wire.consumer_protocol import PROTOCOL_TYPE
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.group_metadata_value import GroupMetadataValue, MemberMetadata

Protocols = tuple[tuple[str, bytes], ...]


@dataclass(slots=True)
class Member:
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    """Whether it has not been through a join yet."""
    awaiting_join: Token | None = None
    awaiting_sync: Token | None = None
    session: MemberSession = field(default_factory=MemberSession)

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    def metadata(self, protocol_name: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        return b""

    def needs_no_heartbeat(self) -> bool:
        """Whether it is parked and cannot send heartbeats; a new member that waits is still given up after a while."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)


@dataclass(slots=True)
class Group:
    group_id: str
    state: GroupState = GroupState.EMPTY
    previous_state: GroupState = GroupState.DEAD
    state_timestamp_ms: int = -1
    generation_id: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    """Group instance id -> member id."""
    pending_joins: dict[str, MemberSession] = field(default_factory=dict)
    """Ids that were given out with MEMBER_ID_REQUIRED and have not come back; a running join waits for them."""
    pending_syncs: set[str] = field(default_factory=set)
    pending_commits: list[tuple[TopicPartition, ...]] = field(default_factory=list)
    """The partitions of each commit that is on its way to the log."""
    votes: dict[str, int] = field(default_factory=dict)
    """Protocol -> how many members support it."""
    awaiting_joins: int = 0
    topics: frozenset[str] | None = None
    """The topics that the members subscribe to; None if they cannot be known."""
    member_added: bool = False
    """Whether a member joined during the initial delay, which may then be extended."""
    delay_ms: int = 0
    delay_left_ms: int = 0
    join_deadline_ms: int | None = None
    sync_deadline_ms: int | None = None
    assignment_in_flight: bool = False

    # ---- questions

    @property
    def pending_offsets(self) -> set[TopicPartition]:
        return {key for keys in self.pending_commits for key in keys}

    @property
    def is_consumer_group(self) -> bool:
        return self.protocol_type == PROTOCOL_TYPE

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((0, *(m.rebalance_timeout_ms for m in self.members.values())))

    def all_joined(self) -> bool:
        return len(self.members) == self.awaiting_joins and not self.pending_joins

    def check_member(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        if group_instance_id is not None:
            mapped = self.static_members.get(group_instance_id)
            if mapped is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if mapped != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        if self.state is EMPTY:
            return bool(protocol_type) and bool(protocols)
        size = len(self.members)
        if self.protocol_type == protocol_type:
            for name, _ in protocols:
                if self.votes.get(name, 0) == size:
                    return True
        return False

    def select_protocol(self) -> str:
        """Returns the protocol with most votes; each member votes for its first one that all members support."""
        size = len(self.members)
        counts: dict[str, int] = {}
        for member in self.members.values():
            for name, _ in member.protocols:
                if self.votes.get(name) == size:
                    counts[name] = counts.get(name, 0) + 1
                    break
        return max(counts, key=counts.__getitem__)

    def is_subscribed_to(self, topic: str) -> bool:
        return self.is_consumer_group if self.topics is None else topic in self.topics

    def joined_members(self) -> tuple[JoinedMember, ...]:
        name = self.protocol_name
        return tuple(
            JoinedMember(m.member_id, m.group_instance_id, m.metadata(name)) for m in self.members.values()
        )

    def as_record(self, assignments: dict[str, bytes]) -> GroupMetadataValue:
        return GroupMetadataValue(
            self.protocol_type or "",
            self.generation_id,
            self.protocol_name,
            self.leader_id,
            self.state_timestamp_ms,
            tuple(
                MemberMetadata(
                    m.member_id,
                    m.group_instance_id,
                    m.client_id,
                    m.client_host,
                    m.rebalance_timeout_ms,
                    m.session_timeout_ms,
                    m.metadata(self.protocol_name),
                    assignments.get(m.member_id, b""),
                )
                for m in self.members.values()
            ),
        )

    # ---- changes

    def move_to(self, state: GroupState, now_ms: int) -> None:
        assert (self.state, state) in TRANSITIONS, f"{self.group_id}: {self.state} to {state}"
        self.previous_state, self.state = self.state, state
        self.state_timestamp_ms = now_ms

    def next_generation(self, now_ms: int) -> None:
        self.generation_id += 1
        self.pending_syncs.clear()
        if self.members:
            self.protocol_name = self.select_protocol()
            self.move_to(GroupState.COMPLETING_REBALANCE, now_ms)
        else:
            self.protocol_name = None
            self.move_to(GroupState.EMPTY, now_ms)
        self.topics = self.known_topics()

    def known_topics(self) -> frozenset[str] | None:
        if not self.is_consumer_group:
            return None
        if not self.members:
            return frozenset()
        return subscribed_topics(m.metadata(self.protocol_name) for m in self.members.values())

    def add(self, member: Member, protocol_type: str) -> None:
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self.static_members
            self.static_members[member.group_instance_id] = member.member_id
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count(member.protocols, 1)
        self.awaiting_joins += member.awaiting_join is not None
        self.pending_joins.pop(member.member_id, None)

    def remove(self, member_id: str) -> Member | None:
        """Forgets a member or a pending id; its parked requests must have been answered."""
        self.pending_joins.pop(member_id, None)
        self.pending_syncs.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        assert (member.awaiting_join, member.awaiting_sync) == (None, None)
        self._count(member.protocols, -1)
        if member.group_instance_id is not None:
            self.static_members.pop(member.group_instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        return member

    def update(self, member: Member, protocols: Protocols, rebalance_ms: int, session_ms: int) -> None:
        if member.protocols != protocols:
            self._count(member.protocols, -1)
            member.protocols = protocols
            self._count(protocols, 1)
        member.rebalance_timeout_ms = rebalance_ms
        member.session_timeout_ms = session_ms

    def rename(self, member: Member, new_id: str) -> None:
        """Gives another id to a static member that came back; leadership follows the instance."""
        assert member.group_instance_id is not None
        del self.members[member.member_id]
        if self.leader_id == member.member_id:
            self.leader_id = new_id
        self.pending_syncs.discard(member.member_id)
        member.member_id = new_id
        member.session = MemberSession()
        self.members[new_id] = member
        self.static_members[member.group_instance_id] = new_id

    def elect_joined_leader(self) -> bool:
        """Keeps a leader that rejoined, else takes another member that did; False if none did."""
        leader = self.members.get(self.leader_id or "")
        if leader is not None and leader.awaiting_join is not None:
            return True
        for member in self.members.values():
            if member.awaiting_join is not None:
                self.leader_id = member.member_id
                return True
        return False

    def _count(self, protocols: Protocols, change: int) -> None:
        for name, _ in protocols:
            count = self.votes.get(name, 0) + change
            if count:
                self.votes[name] = count
            else:
                self.votes.pop(name, None)


def from_record(group_id: str, record: GroupMetadataValue) -> Group:
    """Makes a group as it was when its record was written: Stable with members, else Empty."""
    group = Group(
        group_id,
        state=GroupState.STABLE if record.members else GroupState.EMPTY,
        state_timestamp_ms=record.current_state_timestamp_ms,
        generation_id=record.generation,
        protocol_type=record.protocol_type or None,
        protocol_name=record.protocol,
        leader_id=record.leader,
    )
    for loaded in record.members:
        member = Member(
            loaded.member_id,
            loaded.group_instance_id,
            loaded.client_id,
            loaded.client_host,
            loaded.rebalance_timeout_ms,
            loaded.session_timeout_ms,
            ((record.protocol or "", loaded.subscription),),
            loaded.assignment,
        )
        group.add(member, record.protocol_type)
    group.topics = group.known_topics()
    return group
