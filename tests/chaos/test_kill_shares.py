"""SIGKILL at random moments under a share group: no record is lost, and what was accepted never comes again."""

from __future__ import annotations

import os
import random
import threading
import time

import pytest

from kohort.client.io.blocking_connection import BlockingConnection
from kohort.wire.errors import ErrorCode
from kohort.wire.messages import read_share_group_state_summary as summary
from tests.broker.peer import PATIENCE_S, batch_of, create_topic, produce
from tests.broker.share_peer import ShareMember, data_of, initialize_state, topic_id_of
from tests.clients.process import BrokerProcess

SEED = int(os.environ.get("KOHORT_CHAOS_SEED", "20261118"))
LONGEST_LIFE_S = 0.2
RECORDS = 200
MEMBERS = 3
# What a member is told while a node comes back; it asks again.
PASSING = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER)


@pytest.mark.timeout(600)
def test_share_groups_survive_kills(broker: BrokerProcess) -> None:
    kill_during_sharing(broker, cycles=4, seed=SEED)


@pytest.mark.chaos
@pytest.mark.timeout(0)
def test_share_groups_survive_many_kills(broker: BrokerProcess) -> None:
    cycles = int(os.environ.get("KOHORT_CHAOS_CYCLES", "200"))
    kill_during_sharing(broker, cycles=cycles, seed=SEED + 1)


class Worker(threading.Thread):
    """A member that takes a few records at a time, accepts most of them and gives the others back."""

    def __init__(self, address: str, topic_id: bytes, number: int, seed: int) -> None:
        super().__init__(daemon=True)
        self.address, self.topic_id, self.member_id = address, topic_id, f"m{number}"
        self.chance = random.Random(seed)
        self.accepted: set[int] = set()
        """What the broker has answered for."""
        self.unsure: set[int] = set()
        """What was accepted, and the answer was lost."""
        self.twice: list[int] = []
        self.is_over = threading.Event()

    def run(self) -> None:
        while not self.is_over.is_set():
            try:
                with BlockingConnection(self.address) as client:
                    self.work(ShareMember(client, "g", self.member_id, self.topic_id))
            except (OSError, EOFError):
                time.sleep(0.01)

    def work(self, member: ShareMember) -> None:
        while not self.is_over.is_set():
            answer = member.fetch(max_wait_ms=50, max_records=self.chance.randint(1, 6))
            if answer.error_code:
                return  # the session is gone with its connection
            if not answer.responses or (data := data_of(answer)).error_code in PASSING:
                continue
            assert data.error_code == 0, data.error_code
            for got in data.acquired_records:
                self.twice += [o for o in range(got.first_offset, got.last_offset + 1) if o in self.accepted]
                self.acknowledge(member, got.first_offset, got.last_offset, got.delivery_count)

    def acknowledge(self, member: ShareMember, first: int, last: int, count: int) -> None:
        kinds = [1 if count >= 3 or self.chance.random() < 0.8 else 2 for _ in range(first, last + 1)]
        accepted = {first + index for index, kind in enumerate(kinds) if kind == 1}
        self.unsure |= accepted
        error = member.acknowledge((first, last, *kinds))
        if error == 0:
            self.accepted |= accepted
        if error in (0, ErrorCode.INVALID_RECORD_STATE):
            self.unsure -= accepted


def kill_during_sharing(broker: BrokerProcess, cycles: int, seed: int) -> None:
    print(f"\nseed {seed}, {cycles} cycles (KOHORT_CHAOS_SEED to choose another)")
    chance = random.Random(seed)
    with BlockingConnection(broker.bootstrap_servers) as client:
        assert create_topic(client, "jobs").error_code == 0
        topic_id = topic_id_of(client, "jobs")
        assert initialize_state(client, "g", topic_id) == 0
    workers = [Worker(broker.bootstrap_servers, topic_id, n, seed + n) for n in range(MEMBERS)]
    for worker in workers:
        worker.start()
    total = 0
    for cycle in range(cycles):
        with BlockingConnection(broker.bootstrap_servers) as client:
            for start in range(0, RECORDS, 50):
                values = [b"%d" % number for number in range(total + start, total + start + 50)]
                assert produce(client, "jobs", batch_of(*values)).error_code == 0
        total += RECORDS
        time.sleep(chance.uniform(0.02, LONGEST_LIFE_S))  # how long this life lasts, not a wait for something
        broker.kill()
        broker.restart()
        print(f"  cycle {cycle + 1}: {sum(len(w.accepted) for w in workers)} of {total} accepted")
    deadline = time.monotonic() + PATIENCE_S
    with BlockingConnection(broker.bootstrap_servers) as client:
        while lag(client, topic_id, total) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert lag(client, topic_id, total) == 0, "not every record ends"
    for worker in workers:
        worker.is_over.set()
    for worker in workers:
        worker.join(PATIENCE_S)
    assert done(workers) == set(range(total)), "records are lost"
    answered = [offset for worker in workers for offset in worker.accepted]
    assert len(answered) == len(set(answered)), "a record was accepted by two members"
    assert not [offset for worker in workers for offset in worker.twice], "an accepted record came again"


def lag(client: BlockingConnection, topic_id: bytes, end_offset: int) -> int:
    """Returns how many records are not done, as the share coordinator says it."""
    topic = summary.ReadStateSummaryData(topic_id, [summary.PartitionData(0, -1)])
    answer = client.call(summary.ReadShareGroupStateSummaryRequest("g", [topic]), version=1)
    state = answer.results[0].partitions[0]
    return end_offset - int(state.start_offset) - int(state.delivery_complete_count)


def done(workers: list[Worker]) -> set[int]:
    return set().union(*(worker.accepted | worker.unsure for worker in workers))
