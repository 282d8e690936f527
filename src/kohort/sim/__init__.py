"""The simulator: coordinator and client under virtual time, on a network and a disk that fail; one seed is one run."""

from kohort.sim.consumer_groups import ConsumerGroupsReport, run_consumer_groups
from kohort.sim.consumers import ConsumerReport, run_consumers
from kohort.sim.faults import FaultRates
from kohort.sim.invariants import Broken
from kohort.sim.share import ShareReport, run_share
from kohort.sim.simulation import Report, run
from kohort.sim.transactions import TransactionReport, run_transactions

__all__ = [
    "Broken",
    "ConsumerGroupsReport",
    "ConsumerReport",
    "FaultRates",
    "Report",
    "ShareReport",
    "TransactionReport",
    "run",
    "run_consumer_groups",
    "run_consumers",
    "run_share",
    "run_transactions",
]
