"""The assignors, which divide partitions among the members of a group with the same results as Kafka's.

assignor.py      what an assignor is; subclass it for one of your own      loading.py  assignors by name
range.py         `range`            roundrobin.py   `roundrobin`
sticky.py        `sticky`           cooperative.py  `cooperative-sticky`
constrained.py   the sticky division of equal subscriptions; general.py of different ones
claims.py racks.py movements.py hash_order.py   what both need
"""

from kohort.client.group.assignors.assignor import Assignor, RebalanceProtocol, TopicPartitions
from kohort.client.group.assignors.cooperative import CooperativeStickyAssignor
from kohort.client.group.assignors.loading import common_protocol, load_assignors
from kohort.client.group.assignors.range import RangeAssignor
from kohort.client.group.assignors.roundrobin import RoundRobinAssignor
from kohort.client.group.assignors.sticky import StickyAssignor
from kohort.client.group.consumer_protocol import Assignment, Subscription

__all__ = [
    "Assignment",
    "Assignor",
    "CooperativeStickyAssignor",
    "RangeAssignor",
    "RebalanceProtocol",
    "RoundRobinAssignor",
    "StickyAssignor",
    "Subscription",
    "TopicPartitions",
    "common_protocol",
    "load_assignors",
]
