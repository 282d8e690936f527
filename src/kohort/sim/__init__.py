"""The coordinator under virtual time, with members, a network and a disk that fail. One seed is one run."""

from kohort.sim.faults import Faults
from kohort.sim.invariants import Broken
from kohort.sim.simulation import Report, run

__all__ = ["Broken", "Faults", "Report", "run"]
