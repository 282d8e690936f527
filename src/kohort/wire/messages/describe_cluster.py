"""The brokers of the cluster.

Generated from schema/describe_cluster.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import Message, Struct


class DescribeClusterRequest(Message):
    API_KEY = 60
    __slots__ = ("include_cluster_authorized_operations", "endpoint_type", "include_fenced_brokers",)
    FIELDS = __slots__

    def __init__(
        self,
        include_cluster_authorized_operations: bool = False,
        endpoint_type: int = 1,
        include_fenced_brokers: bool = False,
    ) -> None:
        self.include_cluster_authorized_operations = include_cluster_authorized_operations
        self.endpoint_type = endpoint_type
        self.include_fenced_brokers = include_fenced_brokers


class DescribeClusterBroker(Struct):
    __slots__ = ("broker_id", "host", "port", "rack", "is_fenced",)
    FIELDS = __slots__

    def __init__(
        self,
        broker_id: int = 0,
        host: str = "",
        port: int = 0,
        rack: str | None = None,
        is_fenced: bool = False,
    ) -> None:
        self.broker_id = broker_id
        self.host = host
        self.port = port
        self.rack = rack
        self.is_fenced = is_fenced


class DescribeClusterResponse(Message):
    API_KEY = 60
    __slots__ = ("throttle_time_ms", "error_code", "error_message", "endpoint_type", "cluster_id", "controller_id", "brokers", "cluster_authorized_operations",)
    FIELDS = __slots__

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        endpoint_type: int = 1,
        cluster_id: str = "",
        controller_id: int = -1,
        brokers: list[DescribeClusterBroker] | None = None,
        cluster_authorized_operations: int = -2147483648,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.endpoint_type = endpoint_type
        self.cluster_id = cluster_id
        self.controller_id = controller_id
        self.brokers: list[DescribeClusterBroker] = [] if brokers is None else brokers
        self.cluster_authorized_operations = cluster_authorized_operations
