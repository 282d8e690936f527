"""What reading leaves behind in the processes that Spark uses again for other tasks."""

from __future__ import annotations

import gc
import subprocess
import sys

from kohort.spark.worker_process import is_kept_by_daemon, keep_what_is_loaded

IN_A_CHILD_OF_THE_DAEMON = """
import gc, sys
import pyspark.daemon
from kohort.spark.source import KohortDataSource

KohortDataSource({})
kept = gc.get_freeze_count()
assert kept > 10_000, f"objects of modules: {kept}"
assert gc.collect() >= 0
KohortDataSource({})
assert gc.get_freeze_count() == kept, "nothing was loaded since"
import colorsys
KohortDataSource({})
assert gc.get_freeze_count() > kept
"""


def test_what_a_worker_of_spark_has_loaded_is_not_looked_through_after_every_task() -> None:
    subprocess.run([sys.executable, "-c", IN_A_CHILD_OF_THE_DAEMON], check=True, timeout=60)


def test_other_processes_are_left_alone() -> None:
    assert not is_kept_by_daemon()
    keep_what_is_loaded()
    assert gc.get_freeze_count() == 0
