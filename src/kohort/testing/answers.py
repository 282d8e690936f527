"""Error responses to any request, with the error in the fields where clients look for it.

A response holds errors in fields named `error_code`: one at its top, or one in each entry of an array (a topic, a
partition, a group, a resource …), or both. The schema says which. An array of the response is filled from the array of
the request that it answers: the one of the same name, or the only one there is. Only Fetch and Metadata need more than
their request: a fetch session knows partitions that the request does not name, and a client that learns of no broker
has none left to ask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.broker.api_row import unsupported_version
from kohort.broker.apis.table import TABLE
from kohort.broker.call import Call
from kohort.broker.error_answers import mirrored
from kohort.broker.names import HIDDEN
from kohort.wire.compiler.compile import codec
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from kohort.wire.messages.metadata import MetadataResponse, MetadataResponseBroker, MetadataResponseTopic
from kohort.wire.struct import Message

if TYPE_CHECKING:
    from kohort.broker.broker import Broker

FETCH, METADATA, API_VERSIONS = 1, 3, 18
MESSAGE = "a fault that the test asked for"
# A Fetch response holds these errors at its top, not in its partitions.
_TOP_LEVEL_FETCH_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    ErrorCode.INCONSISTENT_CLUSTER_ID,
)


def error_answer(broker: Broker, call: Call, error: ErrorCode) -> Message:
    """Returns the response that the broker would give if this request failed with `error`."""
    key = call.codec.api_key
    if key == FETCH:
        return _fetch(broker, call, error)
    if key == METADATA:
        return _metadata(broker, call, error)
    if key == API_VERSIONS and error is ErrorCode.UNSUPPORTED_VERSION:
        call.codec = codec(API_VERSIONS, 0)  # a client of any age must be able to read this one
        return unsupported_version(TABLE[API_VERSIONS])
    return mirrored(key, call.version, call.request, error, MESSAGE)


def _fetch(broker: Broker, call: Call, error: ErrorCode) -> FetchResponse:
    request: FetchRequest = call.request
    if error in _TOP_LEVEL_FETCH_ERRORS and call.version >= 7:
        return FetchResponse(error_code=error, session_id=request.session_id)
    plan = broker.sessions.plan(request, call.version, broker.now_ms(), call.connection.principal)
    if plan.error:
        return FetchResponse(error_code=plan.error)
    response = FetchResponse(session_id=plan.session_id)
    topics: dict[tuple[str, bytes], FetchableTopicResponse] = {}
    for wanted in plan.wanted:
        name = wanted.key[:2]
        if name not in topics:
            topics[name] = FetchableTopicResponse(*name)
            response.responses.append(topics[name])
        data = PartitionData(wanted.key.partition, error, high_watermark=-1, records=b"")
        topics[name].partitions.append(data)
        # In a session the next response names the partition again, as after any error.
        wanted.high_watermark = wanted.log_start_offset = -1
    return response


def _metadata(broker: Broker, call: Call, error: ErrorCode) -> MetadataResponse:
    """Fails the topics and still names the broker; REBOOTSTRAP_REQUIRED is an error of the whole response (v13)."""
    if error is ErrorCode.REBOOTSTRAP_REQUIRED and call.version >= 13:
        return MetadataResponse(error_code=error)
    asked = call.request.topics
    if asked is None or (call.version == 0 and not asked):
        asked = [topic for name, topic in broker.store.topics.items() if name not in HIDDEN]
    topics = []
    for topic in asked:
        known = broker.store.topics_by_id.get(topic.topic_id)
        name = topic.name if known is None else known.name
        topics.append(MetadataResponseTopic(error, name, topic.topic_id))
    address = broker.address_for(call)
    here = [] if address is None else [MetadataResponseBroker(broker.node_id, *address)]
    return MetadataResponse(
        brokers=here,
        cluster_id=broker.store.cluster_id,
        controller_id=broker.node_id,
        topics=topics,
    )
