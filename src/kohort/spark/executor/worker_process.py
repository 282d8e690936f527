"""Keeps the garbage collector short in Spark's worker processes, which are used for one task after the other."""

from __future__ import annotations

import gc
import sys

DAEMON = "pyspark.daemon"
_modules_kept = 0


def keep_what_is_loaded() -> None:
    """Takes all that is in memory out of the garbage collector's sight, if modules were loaded since the last time.

    To be called at the beginning of a task, or of what Spark asks when it plans.

    Spark's daemon runs a full collection after every task. With pyspark, pyarrow and Numba loaded that takes 55 to
    80 ms, ten times as long as the work of a task that reads a thousand rows. Modules are never garbage; the few other
    objects of the moment are freed as ever with their last reference; only cycles among them are never freed.
    """
    global _modules_kept
    if len(sys.modules) != _modules_kept and is_kept_by_daemon():
        gc.freeze()
        _modules_kept = len(sys.modules)


def is_kept_by_daemon() -> bool:
    """Whether this is a process of Spark's daemon, which serves many tasks."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return (spec is not None and spec.name == DAEMON) or DAEMON in sys.modules
