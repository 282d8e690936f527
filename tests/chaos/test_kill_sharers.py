"""Share groups through SIGKILL of their members and of the broker at random moments."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.chaos.sharing import share_through_kills
from tests.clients.process import BrokerProcess

SEED = int(os.environ.get("KOHORT_CHAOS_SEED", "20261118"))
LOCK_MS = 15_000


@pytest.mark.timeout(300)
def test_no_record_is_lost_when_workers_are_killed(broker: BrokerProcess, tmp_path: Path) -> None:
    share_through_kills(broker.bootstrap_servers, tmp_path, cycles=2, seed=SEED, lock_ms=LOCK_MS)


@pytest.mark.chaos
@pytest.mark.timeout(0)
def test_no_record_is_lost_when_workers_and_broker_are_killed(broker: BrokerProcess, tmp_path: Path) -> None:
    chance = random.Random(SEED + 1)

    def between(cycle: int) -> None:
        if chance.random() < 0.5:
            broker.kill()
            broker.restart()

    cycles = int(os.environ.get("KOHORT_CHAOS_CYCLES", "25"))
    share_through_kills(
        broker.bootstrap_servers, tmp_path, cycles, SEED + 1, lock_ms=LOCK_MS, between=between
    )
