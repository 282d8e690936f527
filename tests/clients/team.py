"""A group under test: members of any client that come and go, and what must be true of them together."""

from __future__ import annotations

from collections import Counter
from types import TracebackType
from typing import Any

from kohort import Consumer, TopicPartition
from kohort.client.io.blocking_connection import BlockingConnection
from kohort.coordinator.settings import partition_for
from kohort.wire.errors import ErrorCode
from kohort.wire.group_records import decode_group_metadata, decode_key
from kohort.wire.messages.group_metadata_key import GroupMetadataKey
from kohort.wire.messages.heartbeat import HeartbeatRequest
from tests.clients.client import GroupView, Member, Partition, Sent
from tests.clients.process import eventually

# For what never happens; longer than a session, so that a member that was lost does not fail a test that goes on.
PATIENCE_S = 90.0


class Team:
    """Members of one group over some topics; all of them leave at the end of the `with`."""

    def __init__(self, observer: Any, group: str, partitions: list[Partition]) -> None:
        self.observer = observer  # a client that describes the group
        self.group = group
        self.partitions = sorted(partitions)
        self.members: list[Member] = []
        self.gone: list[Member] = []
        self.produced: dict[Partition, int] = dict.fromkeys(partitions, 0)

    def __enter__(self) -> Team:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for member in self.members:
            member.leaving.set()
            member.polling.set()
        if error is None:
            for member in list(self.members):
                self.leave(member)

    def join(
        self, client: Any, count: int = 1, topics: list[str] | str | None = None, **options: Any
    ) -> list[Member]:
        wanted = sorted({topic for topic, _ in self.partitions}) if topics is None else topics
        number = len(self.members) + len(self.gone)
        joined = [
            client.member(
                self.group, wanted, options.pop("client_id", f"{client.name}-{number + i}"), **options
            )
            for i in range(count)
        ]
        self.members.extend(joined)
        return joined

    def begin_at_0(self) -> None:
        """Commits the beginning of every partition before anybody joins.

        Where nothing is committed, librdkafka asks for the first offset. If a rebalance comes before the answer (and
        a slow machine makes that likely), 2.16 takes it for "outdated, ask again" even though the next assignment has
        begun at a committed offset: seconds later it goes back to the first offset and reads everything once more.
        """
        self.observer.alter_offsets(self.group, dict.fromkeys(self.partitions, 0))

    def leave(self, member: Member) -> None:
        self.members.remove(member)
        self.gone.append(member)
        member.leave()

    def produce(self, client: Any, count: int = 20) -> None:
        """So many records to every partition."""
        records = [(part, Sent(b"%d" % i, b"key")) for part in self.partitions for i in range(count)]
        client.send(records)
        for part in self.partitions:
            self.produced[part] += count

    def settle(self, timeout_s: float = PATIENCE_S, others: int = 0) -> GroupView:
        """Waits until the group is stable, every partition has one owner, and members see what the broker says.

        `others`: members of the group that are not of this process.
        """
        last: list[Any] = []

        def is_settled() -> GroupView | None:
            for member in self.members:
                if member.failure is not None:
                    raise member.failure
            view = self.observer.group(self.group)
            last[:] = [view, {member.client_id: sorted(member.assignment) for member in self.members}]
            told = {member.client_id: member.assignment for member in view.members}
            seen = {member.client_id: member.assignment for member in self.members}
            agree = view.state == "stable" and view.owned == self.partitions
            everyone = len(view.members) == len(self.members) + others
            return view if agree and everyone and seen.items() <= told.items() else None

        try:
            view: GroupView = eventually(
                is_settled, f"{len(self.members) + others} members settled", timeout_s
            )
        except BaseException:
            print(f"last seen of {self.group}: {last}")
            raise
        return view

    def all_received(self, timeout_s: float = PATIENCE_S) -> None:
        """Waits until every record was received at least once and is committed, and nothing beyond."""

        def missing() -> int:
            everyone = self.members + self.gone
            got = {(r.topic, r.partition, r.offset) for member in everyone for r in list(member.received)}
            return sum(self.produced.values()) - len(got)

        eventually(
            lambda: missing() == 0, f"all of {sum(self.produced.values())} records received", timeout_s
        )
        eventually(lambda: self.committed() == self.produced, "all of them committed", timeout_s)

    def each_once(self, producer: Any, count: int = 20) -> None:
        """In a settled group every new record goes to the owner of its partition, once."""
        already = {member: len(member.received) for member in self.members}
        first = dict(self.produced)
        self.produce(producer, count)
        self.all_received()
        got = [(m, r) for m, known in already.items() for r in list(m.received[known:])]
        for member, record in got:
            assert (record.topic, record.partition) in member.assignment, f"{member.client_id} got {record}"
        counts = Counter((record.topic, record.partition, record.offset) for _, record in got)
        counts.subtract((*part, first[part] + i) for part in self.partitions for i in range(count))
        wrong = {place: number for place, number in counts.items() if number}
        who = [
            (m.client_id, r.partition, r.offset) for m, r in got if (r.topic, r.partition, r.offset) in wrong
        ]
        assert not wrong, f"too often, or too seldom: {wrong}; received by {who}"

    def committed(self) -> dict[Partition, int]:
        """The highest offset per partition that the broker acknowledged to any member."""
        highest = dict.fromkeys(self.partitions, 0)
        for member in self.members + self.gone:
            for part, offset in list(member.committed.items()):
                highest[part] = max(highest.get(part, 0), offset)
        return highest


def new_team(observer: Any, name: str, partitions: int, topics: int = 1) -> Team:
    """A team without members over new topics."""
    names = [f"{name}-{i}" for i in range(topics)]
    for topic in names:
        observer.create_topic(topic, partitions)
    return Team(observer, name, [(topic, index) for topic in names for index in range(partitions)])


def generation_of(
    bootstrap_servers: str, group: str, member_id: str, group_instance_id: str | None = None
) -> int:
    """No answer to a client tells the generation from outside: only a heartbeat of the right one is accepted."""
    with BlockingConnection(bootstrap_servers) as broker:
        for generation in range(1, 300):
            beat = HeartbeatRequest(group, generation, member_id, group_instance_id)
            code = ErrorCode(broker.call(beat, version=4).error_code)
            if code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
                return generation
            assert code is ErrorCode.ILLEGAL_GENERATION, code.name
    raise AssertionError(f"{group} has no generation below 300")


def leader_of(bootstrap_servers: str, group: str) -> str:
    """The member id of the group's leader; it stands in no answer, but in the group's record."""
    leader = ""
    with Consumer(bootstrap_servers=bootstrap_servers) as consumer:
        topic = "__consumer_offsets"
        at = TopicPartition(topic, partition_for(group, len(consumer.partitions_for(topic))))
        consumer.assign([at])
        consumer.seek_to_beginning(at)
        (end,) = consumer.end_offsets(at).values()
        while consumer.position(at) < end:
            for record in consumer.poll(5.0).get(at, ()):
                if record.value is not None and decode_key(record.key or b"") == GroupMetadataKey(group):
                    leader = decode_group_metadata(record.value).leader or ""
    return leader
