"""Seeks, pauses, revokes, leaders that move and failures in any order: no record is skipped, none comes twice."""

from __future__ import annotations

from random import Random

import pytest

from kohort.client.core.effects import FailureKind
from kohort.client.types import TopicPartition
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.fetch import PartitionData
from kohort.wire.records.batch import ControlKind, encode_control_batch
from tests.client.fetching import World, batch, data

PARTITIONS = [TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("clicks", 0)]
END = 120
MAX_BYTES = 2000


class Log:
    """Batches of one partition: records, markers that no user sees, and gaps."""

    def __init__(self, random: Random) -> None:
        self.batches: list[tuple[int, bytes]] = []  # end offset, bytes
        self.visible: list[int] = []
        at = 0
        while at < END:
            kind, count = random.random(), random.randint(1, 9)
            if kind < 0.15:
                made = encode_control_batch(
                    ControlKind.COMMIT, producer_id=1, producer_epoch=0, timestamp=1, base_offset=at
                )
                self.batches.append((at + 1, bytes(made)))
                at += 1
            elif kind < 0.25:
                at += count
            else:
                self.batches.append((at + count, batch(at, count, size=random.choice([3, 100]))))
                self.visible += range(at, at + count)
                at += count
        self.end = self.batches[-1][0]

    def read(self, offset: int, random: Random) -> bytes:
        records = b"".join(made for end, made in self.batches if end > offset)
        first = next((len(made) for end, made in self.batches if end > offset), 0)
        return records[: max(first, random.randint(0, 1500))]


class Play:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world = World(
            {partition: self.random.randint(1, 2) for partition in PARTITIONS},
            version=self.random.choice([6, 12, 18]),
            fetch_max_bytes=MAX_BYTES,
        )
        self.logs = {partition: Log(self.random) for partition in PARTITIONS}
        self.next = dict.fromkeys(PARTITIONS, 0)

    def step(self) -> None:
        choose: list[tuple[int, object]] = [
            (30, self.take), (30, self.answer), (4, self.seek), (4, self.pause), (2, self.fail),
            (2, self.reassign), (2, self.move_leader), (5, self.wait),
        ]  # fmt: skip
        act = self.random.choices([do for _, do in choose], [weight for weight, _ in choose])[0]
        act()  # type: ignore[operator]
        self.world.tick()
        per_answer = 3 * 1500  # the log of this test gives more than it is asked for
        assert self.world.fetcher.buffered_bytes <= MAX_BYTES + 2 * per_answer

    def take(self) -> None:
        limit = self.random.randint(1, 30)
        paused = {p for p, state in self.world.subscription.partitions.items() if state.paused}
        taken = self.world.take(limit)
        assert sum(map(len, taken.values())) <= limit
        assert not paused & taken.keys()
        for partition, offsets in taken.items():
            due = [offset for offset in self.logs[partition].visible if offset >= self.next[partition]]
            assert offsets == due[: len(offsets)]
            self.next[partition] = offsets[-1] + 1
        for partition in self.world.subscription.partitions:
            between = range(self.next[partition], self.world.offset(partition))
            assert not set(between) & set(self.logs[partition].visible), "the position skipped a record"

    def answer(self, errors: float = 0.1) -> None:
        world = self.world
        if not world.under_way:
            return
        node = self.random.choice(list(world.under_way))
        if self.random.random() < errors / 2:
            world.answer({}, node=node, error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            return
        found: dict[TopicPartition, PartitionData] = {}
        for partition, offset in world.reads[node].items():
            if world.leaders[partition] != node or self.random.random() < errors:
                found[partition] = data(error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
            else:
                found[partition] = data(self.logs[partition].read(offset, self.random))
        world.answer(found, node=node)

    def seek(self) -> None:
        partition = self.random.choice(list(self.world.subscription.partitions))
        self.next[partition] = self.random.randint(0, self.logs[partition].end)
        self.world.seek(partition, self.next[partition])

    def pause(self) -> None:
        state = self.world.state(self.random.choice(list(self.world.subscription.partitions)))
        state.paused = not state.paused

    def fail(self) -> None:
        if self.world.under_way:
            node = self.random.choice(list(self.world.under_way))
            self.world.fail(self.random.choice(list(FailureKind)), node=node)

    def reassign(self) -> None:
        """A partition goes and comes back, and goes on where it was."""
        partition = self.random.choice(PARTITIONS)
        self.world.subscription.assign([p for p in PARTITIONS if p != partition])
        if self.random.random() < 0.5:
            self.world.tick()
        self.world.subscription.assign(PARTITIONS)
        self.world.seek(partition, self.next[partition])

    def move_leader(self) -> None:
        partition = self.random.choice(PARTITIONS)
        self.world.leaders[partition] = 3 - self.world.leaders[partition]
        self.world.epochs[partition] += 1
        self.world.metadata.request_update("test")
        self.world.update_metadata()

    def wait(self) -> None:
        self.world.now_ms += 500

    def calm(self) -> None:
        """No more faults: everything that is left must come."""
        for state in self.world.subscription.partitions.values():
            state.paused = False
        for _ in range(1000):
            if all(self.world.offset(p) >= self.logs[p].end for p in PARTITIONS):
                return
            self.wait()
            self.world.tick()
            self.answer(errors=0)
            self.take()
        raise AssertionError(f"stuck at {self.next}")


@pytest.mark.parametrize("seed", range(40))
def test_no_record_is_skipped_and_none_comes_twice(seed: int) -> None:
    play = Play(seed)
    for _ in range(250):
        play.step()
    play.calm()
