"""A process that writes transactions into a partition until it is killed: `python -m … DIRECTORY SEED`.

It prints the high watermark after each step. What is before it must be there when the directory is opened again.
"""

from __future__ import annotations

import sys
from itertools import count
from pathlib import Path
from random import Random

from kohort.log.durability import tracker
from tests.log.support import Inbox, Node
from tests.log.test_transactions import Scene, drawn_steps, events_in, open_store, run

LASTING_STEPS = ("data", "plain", "marker", "sync")


def main() -> None:
    directory, seed = Path(sys.argv[1]), sys.argv[2]
    tracker.STATE_EVERY_BATCHES = 7
    inbox = Inbox()
    store = open_store(directory, inbox)
    partition = store.topics["t"].partitions[0]
    node = Node(partition.directory, "disk")
    node.syncer, node.inbox = partition._syncer, inbox
    scene = Scene(node, partition, events_in(partition))
    for number in count():
        for step in drawn_steps(Random(f"{seed}-{number}")):
            if step[0] in LASTING_STEPS:
                run(scene, step)
                inbox.run_ready()
                print(partition.high_watermark, flush=True)


if __name__ == "__main__":
    main()
