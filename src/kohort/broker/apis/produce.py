"""Handles Produce: record batches are checked, given their offsets and appended as they came.

The first batches of a transaction wait until its coordinator has agreed; the connection is parked meanwhile, so that no
later batch overtakes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.broker.call import Call
from kohort.broker.names import INTERNAL
from kohort.broker.verification import PartitionsQuestion, TopicIndex, produce_error
from kohort.security.acls import AclOperation, AclResource
from kohort.wire.errors import ErrorCode, KafkaError
from kohort.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kohort.wire.records.batch import (
    FLAGS_AT,
    HEADER_SIZE,
    MAGIC,
    MAGIC_AT,
    PRODUCER_ID_AT,
    TRANSACTIONAL,
    BatchHeader,
    check_batch,
    check_keys,
    iter_records,
    recompress,
    with_append_time,
)
from kohort.wire.records.compression import Compression

if TYPE_CHECKING:
    from kohort.broker.broker import Broker
    from kohort.log.config import TopicConfig
    from kohort.log.storage.transactions import Verification
    from kohort.log.topic import Topic

ALL = -1
ADDS_SINCE = 12  # from this version on the broker adds partitions to a transaction; clients do before
# Requests ask by these; a look-up in an Enum is slow.
_WRITE = AclOperation.WRITE
_TOPIC = AclResource.TOPIC
NO_TIMESTAMP = -1
_CODECS = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}
_ADMIN_CLIENT = "__admin_client"  # Kafka's own tool for repairs may write to internal topics


def produce(broker: Broker, call: Call) -> ProduceResponse | None:
    request: ProduceRequest = call.request
    by_id = call.version >= 13
    now_ms = broker.now_ms()
    answer = ProduceResponse()
    waiting = _Waiting(call, answer)
    asks = broker.authorizer is not None
    refused_all = ErrorCode.NONE
    topics = request.topic_data
    # One batch alone is refused for itself.
    if request.transactional_id is not None or len(topics) != 1 or len(topics[0].partition_data) != 1:
        refused_all = _refused_transaction(broker, call)
    for data in topics:
        topic = broker.store.topics_by_id.get(data.topic_id) if by_id else broker.store.topics.get(data.name)
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        result = TopicProduceResponse(data.name, data.topic_id)
        answer.responses.append(result)
        refused = refused_all or (asks and _refused(broker, call, by_id, topic, data.name))
        if refused:
            result.partition_responses = [_failed(call, part, refused) for part in data.partition_data]
            continue
        for part in data.partition_data:
            outcome = _append(broker, call, topic, unknown, part, now_ms, waiting)
            result.partition_responses.append(outcome)
    if waiting.first_batches is not None:
        waiting.ask_coordinator(broker, waiting.first_batches)
    if request.acks == 0 and waiting.count == 1:
        _answer_nothing(call, answer)
        return None
    return waiting.answer_or_wait()


def _refused_transaction(broker: Broker, call: Call) -> ErrorCode:
    """Returns why a request with records of a transaction is refused as a whole; NONE if it is not."""
    request: ProduceRequest = call.request
    producer_ids = {
        bytes(batch[PRODUCER_ID_AT : PRODUCER_ID_AT + 8])
        for data in request.topic_data
        for part in data.partition_data
        if isinstance(batch := part.records, memoryview)
        and len(batch) >= HEADER_SIZE
        and batch[FLAGS_AT] & TRANSACTIONAL
        and batch[MAGIC_AT] == MAGIC
    }
    if not producer_ids:
        return ErrorCode.NONE
    transactional_id = request.transactional_id
    if transactional_id is not None and broker.may(
        call, AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, transactional_id
    ):
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING if len(producer_ids) > 1 else ErrorCode.NONE
    return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def _refused(broker: Broker, call: Call, by_id: bool, topic: Topic | None, name: str) -> ErrorCode:
    """Returns why the caller may not write to a topic; NONE if it may. An id that nobody knows is told before."""
    if by_id:
        if topic is None:
            return ErrorCode.NONE
        name = topic.name
    if broker.may(call, _WRITE, _TOPIC, name):
        return ErrorCode.NONE
    return ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _failed(call: Call, part: PartitionProduceData, code: ErrorCode) -> PartitionProduceResponse:
    outcome = PartitionProduceResponse(part.index)
    _fail(outcome, code, "")
    call.connection.failed(call, (code,))
    return outcome


class _RecordsRefused(KafkaError):
    """Raised if single records of a batch are at fault; `records` has their indexes in the batch, and why."""

    def __init__(self, code: ErrorCode, message: str, records: list[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.records = [BatchIndexAndErrorMessage(*record) for record in records]


class _FirstBatch:
    """A batch that begins a transaction in its partition, while the coordinator of the transaction is asked."""

    __slots__ = ("batch", "header", "index", "outcome", "topic", "verification")

    def __init__(
        self,
        topic: Topic,
        index: int,
        batch: memoryview,
        header: BatchHeader,
        outcome: PartitionProduceResponse,
        verification: Verification,
    ) -> None:
        self.topic, self.index = topic, index
        # The bytes of the request are overwritten when its handler returns.
        self.batch = memoryview(bytearray(batch))
        self.header = header
        self.outcome = outcome
        self.verification = verification

    @property
    def key(self) -> TopicIndex:
        return self.topic.name, self.index


class _Waiting:
    """Partitions of one request whose records are written but not durable, or wait for their coordinator."""

    __slots__ = ("answer", "broker", "call", "count", "first_batches")

    def __init__(self, call: Call, answer: ProduceResponse) -> None:
        self.call, self.answer = call, answer
        self.first_batches: list[_FirstBatch] | None = None
        self.count = 1  # the request itself, until all of its partitions are appended

    def add(self, outcome: PartitionProduceResponse) -> _Durable:
        self.count += 1
        return _Durable(self, outcome)

    def done(self) -> None:
        self.count -= 1
        if self.count:
            return
        if self.call.request.acks == 0:
            _answer_nothing(self.call, self.answer)
        else:
            self.call.reply(self.answer)

    def answer_or_wait(self) -> ProduceResponse | None:
        self.count -= 1
        return None if self.count else self.answer

    def ask_coordinator(self, broker: Broker, first_batches: list[_FirstBatch]) -> None:
        """Asks for all first batches at once. They are of one producer."""
        call, self.broker = self.call, broker
        header = first_batches[0].header
        question = PartitionsQuestion(
            broker.transactions,
            call.connection.loop,
            broker.config,
            call.request.transactional_id,
            (header.producer_id, header.producer_epoch),
            adds=call.version >= ADDS_SINCE,
            done=self._coordinator_answered,
            meter=broker.meter,
        )
        self.count += 1
        question.ask(frozenset(first.key for first in first_batches))
        if self.first_batches is not None:
            call.park()

    def _coordinator_answered(self, error: ErrorCode, missing: frozenset[TopicIndex]) -> None:
        now_ms = self.broker.now_ms()
        first_batches, self.first_batches = self.first_batches, None
        for first in first_batches or ():
            code = error or (ErrorCode.TRANSACTION_ABORTABLE if first.key in missing else ErrorCode.NONE)
            if code:
                told = produce_error(code, self.call.version)
                _fail(first.outcome, told, _why_not_added(code))
                self.call.connection.failed(self.call, (told,))
            else:
                self._append(first, now_ms)
        self.done()

    def _append(self, first: _FirstBatch, now_ms: int) -> None:
        outcome, waiting = first.outcome, self if self.call.request.acks == ALL else None
        try:
            if first.topic.deleted:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            _append_batch(
                first.topic,
                first.index,
                first.batch,
                first.header,
                now_ms,
                outcome,
                waiting,
                first.verification,
            )
        except KafkaError as error:
            _refuse(self.call, outcome, error)


def _why_not_added(code: ErrorCode) -> str:
    if code is ErrorCode.CONCURRENT_TRANSACTIONS:
        return "the transaction before is still being completed: CONCURRENT_TRANSACTIONS"
    return f"the partition is not part of the transaction: {code.name}"


class _Durable:
    """Is called when the records of one partition are durable, or never will be."""

    __slots__ = ("outcome", "waiting")

    def __init__(self, waiting: _Waiting, outcome: PartitionProduceResponse) -> None:
        self.waiting, self.outcome = waiting, outcome

    def __call__(self, error: ErrorCode) -> None:
        if error is not ErrorCode.NONE:
            _fail(self.outcome, error, "the records could not be made durable; the broker's log says why")
            self.waiting.call.connection.failed(self.waiting.call, (error,))
        self.waiting.done()


def _append(
    broker: Broker,
    call: Call,
    topic: Topic | None,
    unknown: ErrorCode,
    part: PartitionProduceData,
    now_ms: int,
    waiting: _Waiting,
) -> PartitionProduceResponse:
    outcome = PartitionProduceResponse(part.index)
    acks = call.request.acks
    try:
        if not -1 <= acks <= 1:
            raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
        if topic is None:
            raise KafkaError(unknown)
        if not 0 <= part.index < len(topic.partitions):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if topic.name in INTERNAL and call.client_id != _ADMIN_CLIENT:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"cannot append to internal topic {topic.name}"
            )
        batch = part.records
        assert isinstance(batch, memoryview) or batch is None
        if batch is None or not len(batch):
            raise KafkaError(
                ErrorCode.INVALID_RECORD, "a produce request holds one record batch per partition"
            )
        header = check_batch(batch)
        if call.version < 7 and header.compression == Compression.ZSTD:
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or newer")
        if header.attributes & TRANSACTIONAL:
            first = _first_batch(call, topic, batch, header, outcome, now_ms)
            if first is not None:
                waiting.first_batches = [*(waiting.first_batches or ()), first]
                return outcome
        _append_batch(topic, part.index, batch, header, now_ms, outcome, waiting if acks == ALL else None)
    except KafkaError as error:
        _refuse(call, outcome, error)
    return outcome


def _refuse(call: Call, outcome: PartitionProduceResponse, error: KafkaError) -> None:
    _fail(outcome, error.code, error.message)
    call.connection.failed(call, (error.code,))
    if isinstance(error, _RecordsRefused):
        outcome.record_errors = error.records


def _first_batch(
    call: Call,
    topic: Topic,
    batch: memoryview,
    header: BatchHeader,
    outcome: PartitionProduceResponse,
    now_ms: int,
) -> _FirstBatch | None:
    """Returns a transactional batch that must wait for its coordinator; None if its transaction is open here."""
    if call.request.transactional_id is None:
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "there is no transactional id")
    if header.producer_id < 0:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a transactional batch needs a producer id")
    index = outcome.index
    verification = topic.partitions[index].begin_verification(
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        adds=call.version >= ADDS_SINCE,
        now_ms=now_ms,
    )
    if verification is None:
        return None
    return _FirstBatch(topic, index, batch, header, outcome, verification)


def _append_batch(
    topic: Topic,
    index: int,
    batch: memoryview,
    header: BatchHeader,
    now_ms: int,
    outcome: PartitionProduceResponse,
    waiting: _Waiting | None,
    verification: Verification | None = None,
) -> None:
    config, partition = topic.config, topic.partitions[index]
    _check_size(config, topic.name, index, header)
    if config.compact and (keyless := check_keys(batch)):
        why = f"{topic.name} is compacted: every record needs a key"
        records = [(i, "a compacted topic takes no record without a key") for i in keyless]
        raise _RecordsRefused(ErrorCode.INVALID_RECORD, why, records)
    duplicate = partition.producers.check(header, verification) if header.producer_id >= 0 else None
    if duplicate is not None:
        # A retry of what was appended already gets the first answer again, once the records are durable.
        outcome.base_offset, end_offset = duplicate.base_offset, duplicate.last_offset + 1
        if config.append_time:
            outcome.log_append_time_ms = duplicate.timestamp
    else:
        if config.append_time:
            outcome.log_append_time_ms = now_ms
        else:
            _check_times(config, batch, header, now_ms)
        if config.compression_type != "producer":
            codec = _CODECS[config.compression_type]
            if codec != header.compression:
                batch = memoryview(recompress(batch, codec, _level(config)))
                header = check_batch(batch)
                _check_size(config, topic.name, index, header)  # it may have grown
        if config.append_time:
            header = with_append_time(batch, header, now_ms)
        outcome.base_offset = partition.append(batch, header, now_ms)
        end_offset = outcome.base_offset + header.last_offset_delta + 1
    outcome.log_start_offset = partition.log_start_offset
    if waiting is not None and partition.high_watermark < end_offset:
        partition.when_durable(end_offset, waiting.add(outcome))


def _check_size(config: TopicConfig, topic: str, index: int, header: BatchHeader) -> None:
    if header.size > (limit := config.max_message_bytes):
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch of {header.size} bytes for {topic}-{index} is larger than max.message.bytes {limit}",
        )


def _level(config: TopicConfig) -> int | None:
    """Returns the compression level for compression.type, if it has one."""
    levels = {
        "gzip": config.compression_gzip_level,
        "lz4": config.compression_lz4_level,
        "zstd": config.compression_zstd_level,
    }
    return levels.get(config.compression_type)


def _check_times(config: TopicConfig, batch: memoryview, header: BatchHeader, now_ms: int) -> None:
    """Checks each record against message.timestamp.before.max.ms and .after.max.ms.

    The header has the latest time of the batch but not the earliest. So the records themselves are read only if the
    latest is too late, or if there is a limit to how old a record may be.
    """
    earliest = now_ms - config.message_timestamp_before_max_ms
    latest = now_ms + config.message_timestamp_after_max_ms
    if header.max_timestamp <= latest and earliest < 0:
        return
    at_fault = [
        (i, f"timestamp {record.timestamp} is not between {earliest} and {latest}")
        for i, record in enumerate(iter_records(batch))
        if record.timestamp != NO_TIMESTAMP and not earliest <= record.timestamp <= latest
    ]
    if at_fault:
        why = f"{len(at_fault)} records are too old or in the future; the broker's clock says {now_ms}"
        raise _RecordsRefused(ErrorCode.INVALID_TIMESTAMP, why, at_fault)


def _fail(outcome: PartitionProduceResponse, code: ErrorCode, message: str) -> None:
    outcome.error_code = code
    outcome.error_message = message or None
    outcome.base_offset = outcome.log_append_time_ms = outcome.log_start_offset = -1


def _answer_nothing(call: Call, answer: ProduceResponse) -> None:
    """Answers nothing, as acks=0 asks; if something failed close the connection, as Kafka does to tell the client."""
    failed = [p.error_code for topic in answer.responses for p in topic.partition_responses if p.error_code]
    call.reply_nothing()
    if failed:
        call.connection.close_because(f"acks=0 and a partition answered {ErrorCode(failed[0]).name}")
