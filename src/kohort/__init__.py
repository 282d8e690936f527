"""Kohort: Kafka's consumer-group system in Python.

    from kohort import Consumer, Producer, Admin

    with Producer(bootstrap_servers="127.0.0.1:9092") as producer:
        producer.send("orders", value=b"one", key=b"k")

    with Consumer(bootstrap_servers="127.0.0.1:9092", group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["orders"])
        for record in consumer:
            print(record)

Consumer, Producer and Admin block; AsyncConsumer, AsyncProducer and AsyncAdmin are for asyncio. All other names here
are classes that these take, return or raise. Names are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from kohort.client.admin import Admin as Admin
    from kohort.client.admin_types import ClientQuotaEntity as ClientQuotaEntity
    from kohort.client.admin_types import ClientQuotaFilter as ClientQuotaFilter
    from kohort.client.admin_types import ClusterDescription as ClusterDescription
    from kohort.client.admin_types import ConfigEntry as ConfigEntry
    from kohort.client.admin_types import EntityName as EntityName
    from kohort.client.admin_types import GroupDescription as GroupDescription
    from kohort.client.admin_types import GroupListing as GroupListing
    from kohort.client.admin_types import LogDirDescription as LogDirDescription
    from kohort.client.admin_types import MemberDescription as MemberDescription
    from kohort.client.admin_types import NewTopic as NewTopic
    from kohort.client.admin_types import PartitionDescription as PartitionDescription
    from kohort.client.admin_types import ReplicaInfo as ReplicaInfo
    from kohort.client.admin_types import ScramCredentialInfo as ScramCredentialInfo
    from kohort.client.admin_types import SharePartitionOffset as SharePartitionOffset
    from kohort.client.admin_types import TopicDescription as TopicDescription
    from kohort.client.admin_types import UserScramCredentialDeletion as UserScramCredentialDeletion
    from kohort.client.admin_types import UserScramCredentialUpsertion as UserScramCredentialUpsertion
    from kohort.client.async_admin import AsyncAdmin as AsyncAdmin
    from kohort.client.async_consumer import AsyncConsumer as AsyncConsumer
    from kohort.client.async_producer import AsyncProducer as AsyncProducer
    from kohort.client.async_share_consumer import AsyncShareConsumer as AsyncShareConsumer
    from kohort.client.consumer import Consumer as Consumer
    from kohort.client.core.metrics import MetricName as MetricName
    from kohort.client.core.metrics import Metrics as Metrics
    from kohort.client.errors import AuthenticationFailed as AuthenticationFailed
    from kohort.client.errors import AuthorizationFailed as AuthorizationFailed
    from kohort.client.errors import ClosedClient as ClosedClient
    from kohort.client.errors import CommitFailed as CommitFailed
    from kohort.client.errors import ConcurrentUse as ConcurrentUse
    from kohort.client.errors import CorruptRecord as CorruptRecord
    from kohort.client.errors import DeserializationFailed as DeserializationFailed
    from kohort.client.errors import FatalProducerError as FatalProducerError
    from kohort.client.errors import FencedInstanceId as FencedInstanceId
    from kohort.client.errors import IllegalState as IllegalState
    from kohort.client.errors import LogTruncation as LogTruncation
    from kohort.client.errors import NoOffsetForPartition as NoOffsetForPartition
    from kohort.client.errors import OffsetOutOfRange as OffsetOutOfRange
    from kohort.client.errors import PartlyFailed as PartlyFailed
    from kohort.client.errors import ProducerFenced as ProducerFenced
    from kohort.client.errors import RebalanceInProgress as RebalanceInProgress
    from kohort.client.errors import RetriableCommitFailed as RetriableCommitFailed
    from kohort.client.errors import SerializationFailed as SerializationFailed
    from kohort.client.errors import TimedOut as TimedOut
    from kohort.client.errors import TransactionAborted as TransactionAborted
    from kohort.client.errors import TransactionFailed as TransactionFailed
    from kohort.client.errors import Wakeup as Wakeup
    from kohort.client.errors import WrongArgument as WrongArgument
    from kohort.client.group.assignors import Assignment as Assignment
    from kohort.client.group.assignors import Assignor as Assignor
    from kohort.client.group.assignors import CooperativeStickyAssignor as CooperativeStickyAssignor
    from kohort.client.group.assignors import RangeAssignor as RangeAssignor
    from kohort.client.group.assignors import RebalanceProtocol as RebalanceProtocol
    from kohort.client.group.assignors import RoundRobinAssignor as RoundRobinAssignor
    from kohort.client.group.assignors import StickyAssignor as StickyAssignor
    from kohort.client.group.assignors import Subscription as Subscription
    from kohort.client.group.assignors import TopicPartitions as TopicPartitions
    from kohort.client.produce.arrow import WrittenRange as WrittenRange
    from kohort.client.produce.batch import BatchMemberFailed as BatchMemberFailed
    from kohort.client.produce.outgoing import ProducerRecord as ProducerRecord
    from kohort.client.producer import Delivery as Delivery
    from kohort.client.producer import Producer as Producer
    from kohort.client.records import Record as Record
    from kohort.client.records import Records as Records
    from kohort.client.share.acknowledgements import AcknowledgeType as AcknowledgeType
    from kohort.client.share_consumer import ShareConsumer as ShareConsumer
    from kohort.client.types import GroupMetadata as GroupMetadata
    from kohort.client.types import OffsetAndMetadata as OffsetAndMetadata
    from kohort.client.types import OffsetAndTimestamp as OffsetAndTimestamp
    from kohort.client.types import RecordMetadata as RecordMetadata
    from kohort.client.types import SubscriptionPattern as SubscriptionPattern
    from kohort.client.types import TopicPartition as TopicPartition
    from kohort.security.acls import Acl as Acl
    from kohort.security.acls import AclFilter as AclFilter
    from kohort.security.acls import AclOperation as AclOperation
    from kohort.security.acls import AclResource as AclResource
    from kohort.security.acls import PatternType as PatternType
    from kohort.security.acls import Permission as Permission
    from kohort.security.scram import ScramMechanism as ScramMechanism
    from kohort.settings import SettingError as SettingError
    from kohort.wire.errors import ErrorCode as ErrorCode
    from kohort.wire.errors import KafkaError as KafkaError
    from kohort.wire.errors import KohortError as KohortError

# The same names at run time: each module and the public names that it defines.
_NAMES: dict[str, tuple[str, ...]] = {
    "client.admin": ("Admin",),
    "client.admin_types": (
        "ClientQuotaEntity",
        "ClientQuotaFilter",
        "ClusterDescription",
        "ConfigEntry",
        "EntityName",
        "GroupDescription",
        "GroupListing",
        "LogDirDescription",
        "MemberDescription",
        "NewTopic",
        "PartitionDescription",
        "ReplicaInfo",
        "ScramCredentialInfo",
        "SharePartitionOffset",
        "TopicDescription",
        "UserScramCredentialDeletion",
        "UserScramCredentialUpsertion",
    ),
    "client.group.assignors": (
        "Assignment",
        "Assignor",
        "CooperativeStickyAssignor",
        "RangeAssignor",
        "RebalanceProtocol",
        "RoundRobinAssignor",
        "StickyAssignor",
        "Subscription",
        "TopicPartitions",
    ),
    "client.async_admin": ("AsyncAdmin",),
    "client.async_consumer": ("AsyncConsumer",),
    "client.async_producer": ("AsyncProducer",),
    "client.async_share_consumer": ("AsyncShareConsumer",),
    "client.produce.batch": ("BatchMemberFailed",),
    "client.consumer": ("Consumer",),
    "client.core.metrics": ("MetricName", "Metrics"),
    "client.errors": (
        "AuthenticationFailed",
        "AuthorizationFailed",
        "ClosedClient",
        "CommitFailed",
        "ConcurrentUse",
        "CorruptRecord",
        "DeserializationFailed",
        "FatalProducerError",
        "FencedInstanceId",
        "ProducerFenced",
        "TransactionAborted",
        "TransactionFailed",
        "IllegalState",
        "LogTruncation",
        "NoOffsetForPartition",
        "OffsetOutOfRange",
        "PartlyFailed",
        "RebalanceInProgress",
        "RetriableCommitFailed",
        "SerializationFailed",
        "TimedOut",
        "Wakeup",
        "WrongArgument",
    ),
    "client.produce.outgoing": ("ProducerRecord",),
    "client.producer": ("Delivery", "Producer"),
    "client.produce.arrow": ("WrittenRange",),
    "client.records": ("Record", "Records"),
    "client.share.acknowledgements": ("AcknowledgeType",),
    "client.share_consumer": ("ShareConsumer",),
    "client.types": (
        "GroupMetadata",
        "OffsetAndMetadata",
        "OffsetAndTimestamp",
        "RecordMetadata",
        "SubscriptionPattern",
        "TopicPartition",
    ),
    "security.acls": (
        "Acl",
        "AclFilter",
        "AclOperation",
        "AclResource",
        "PatternType",
        "Permission",
    ),
    "security.scram": ("ScramMechanism",),
    "settings": ("SettingError",),
    "wire.errors": ("ErrorCode", "KafkaError", "KohortError"),
}
_HOME = {name: f"kohort.{module}" for module, names in _NAMES.items() for name in names}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'kohort' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
