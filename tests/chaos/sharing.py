"""Workers of a share group that are killed, and what must hold of the records that they shared."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from kohort import Admin, Producer, TopicPartition
from tests.clients.process import eventually

WORKER = Path(__file__).with_name("share_worker.py")
GROUP, TOPIC, PARTITIONS = "sharers", "shared", 2
PATIENCE_S = 120.0


class Workers:
    """Some processes that read as one share group; those that are killed are replaced."""

    def __init__(self, servers: str, directory: Path, count: int) -> None:
        self.servers, self.directory, self.count = servers, directory, count
        self.starts = 0
        self._running: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Workers:
        for _ in range(self.count):
            self._start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for process in self._running:
            process.kill()
            process.wait(30)

    def _start(self) -> None:
        self.starts += 1
        mode = "record_limit" if self.starts % 2 else "batch_optimized"
        words = [self.servers, GROUP, TOPIC, str(self.directory / f"said-{self.starts}"), mode]
        with (self.directory / f"errors-{self.starts}").open("wb") as errors:
            process = subprocess.Popen([sys.executable, str(WORKER), *words], stderr=errors)
        self._running.append(process)

    def kill(self, number: int) -> None:
        """Kills a worker without a goodbye, and starts another."""
        victim = self._running.pop(number)
        assert victim.poll() is None, self.errors()
        victim.kill()
        victim.wait(30)
        self._start()

    def errors(self) -> str:
        return "\n".join(path.read_text()[-2000:] for path in sorted(self.directory.glob("errors-*")))

    def said(self, word: str) -> Counter[tuple[int, int]]:
        """How often some worker has said this of each record (partition, offset)."""
        found: Counter[tuple[int, int]] = Counter()
        for path in self.directory.glob("said-*"):
            for line in path.read_text().splitlines():
                parts = line.split()
                if (
                    len(parts) == 4 and parts[0] == word
                ):  # the last line of one that was killed may be cut off
                    found[int(parts[1]), int(parts[2])] += 1
        return found


def share_through_kills(
    servers: str,
    directory: Path,
    cycles: int,
    seed: int,
    *,
    lock_ms: int,
    between: Callable[[int], None] = lambda cycle: None,
) -> None:
    """Kills workers at random moments; every record is accepted in the end, and then the group is at the end.

    `between` may do something else to the cluster after each kill. The limit of deliveries is the highest there is: a
    worker that is killed has used one up for each record that it held.
    """
    chance = random.Random(seed)
    print(f"\nseed {seed}, {cycles} cycles")
    total = 0
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topic(TOPIC, partitions=PARTITIONS)
        admin.alter_group_configs(
            {
                GROUP: {
                    "share.auto.offset.reset": "earliest",
                    "share.record.lock.duration.ms": lock_ms,
                    "share.delivery.count.limit": 10,
                }
            }
        )
        with Workers(servers, directory, 3) as workers:
            for cycle in range(cycles):
                total = add_records(servers, total, 40)
                before = workers.said("accepted").total()
                eventually(
                    lambda: workers.said("accepted").total() >= before + 10,  # noqa: B023 - it is called at once
                    f"the workers go on\n{workers.errors()}",
                    PATIENCE_S,
                )
                time.sleep(chance.uniform(0.0, 0.2))  # how long this life lasts, not a wait for something
                workers.kill(chance.randrange(3))
                between(cycle)
            expected = {(p, n) for p in range(PARTITIONS) for n in range(total)}
            eventually(
                lambda: is_done(admin),
                f"the group is done with all records\n{workers.errors()}",
                PATIENCE_S,
            )
        accepted = workers.said("accepted")
    twice = [record for record, count in accepted.items() if count > 1]
    assert not twice, f"the broker has taken two acceptances of one record: {sorted(twice)}"
    # What a worker has accepted and not written down before it was killed is known to the broker alone.
    unknown = expected - set(accepted)
    assert len(unknown) <= 20 * cycles, f"{len(unknown)} records were never accepted: {sorted(unknown)[:20]}"
    print(
        f"  {len(expected)} records, {workers.starts} workers, {len(unknown)} accepted by ones that died of it"
    )


def add_records(servers: str, first: int, count: int) -> int:
    with Producer(bootstrap_servers=servers) as producer:
        for number in range(first, first + count):
            for partition in range(PARTITIONS):
                producer.send(TOPIC, b"%d" % number, partition=partition)
    return first + count


def is_done(admin: Admin) -> bool:
    """Whether nothing of the topic is left to do for the group."""
    partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    stands = admin.share_group_offsets(GROUP, partitions)
    return len(stands) == PARTITIONS and all(each.lag == 0 for each in stands.values())
