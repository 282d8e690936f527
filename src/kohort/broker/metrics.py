"""The metrics of a node: what there is, and the values of a moment.

Metrics of topics and groups have the names that exporters for Kafka use, so that dashboards find them: those of
danielqsj/kafka_exporter with the label `consumergroup`, and the lag in seconds of seglo/kafka-lag-exporter with the
label `group`. docs/metrics.md is written from this table (`make supported`).
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Final

import kohort
from kohort.broker.lag_times import LagTimes
from kohort.broker.meter import BrokerMeter, TimeHistogram
from kohort.broker.net.server import Server
from kohort.broker.request_meter import BOUNDS_S, ApiMeter
from kohort.coordinator.classic.describe import shown_state
from kohort.coordinator.classic.state import GroupState
from kohort.coordinator.consumer.state import ConsumerGroupState
from kohort.coordinator.shard import Shard, ShardStatus
from kohort.exposition import HistogramValue, MetricSpec, Samples
from kohort.settings import LONG_MAX
from kohort.transactions.shard import TransactionEnd, TransactionShardStatus
from kohort.transactions.state import TransactionState
from kohort.wire.errors import ErrorCode

_PARTITION = ("topic", "partition")
_OF_GROUP = ("consumergroup", "topic", "partition")

UP = MetricSpec("kohort_up", "gauge", "1, with the version that runs and the node's id.", ("version", "node"))
BROKERS = MetricSpec("kafka_brokers", "gauge", "Nodes of the cluster.")
BROKER_INFO = MetricSpec(
    "kafka_broker_info",
    "gauge",
    "1 for each node, with the address that clients are told.",
    ("id", "address"),
)
CONNECTIONS = MetricSpec("kohort_connections", "gauge", "Connections of clients that are open.")
OPENED = MetricSpec("kohort_connections_opened_total", "counter", "Connections that were accepted.")
REFUSED = MetricSpec(
    "kohort_connections_refused_total",
    "counter",
    "Connections that were closed at once, because there were too many.",
)
REQUEST_TIME = MetricSpec(
    "kohort_request_duration_seconds",
    "histogram",
    "Time from a complete request to its answer, long polls and waiting for other members included; "
    "its _count is the number of requests.",
    ("api",),
)
REQUEST_BYTES = MetricSpec("kohort_request_bytes_total", "counter", "Bytes of requests.", ("api",))
RESPONSE_BYTES = MetricSpec("kohort_response_bytes_total", "counter", "Bytes of answers.", ("api",))
ERRORS = MetricSpec(
    "kohort_request_errors_total",
    "counter",
    "Error codes in answers; an answer about many partitions may hold many.",
    ("api", "error"),
)
LOOP_LAG = MetricSpec(
    "kohort_event_loop_lag_seconds",
    "histogram",
    "How late the event loop runs what is due, four times a second.",
)
THROTTLES = MetricSpec(
    "kohort_throttle_seconds",
    "histogram",
    "For how long clients were throttled, by the quota that asked for the longest time; its _count is how often.",
    ("quota",),
)
JOURNAL = MetricSpec(
    "kohort_journal_write_seconds",
    "histogram",
    "Time of one synced write of the journal, which makes many small appends durable (durability disk).",
)

PARTITIONS = MetricSpec("kafka_topic_partitions", "gauge", "Partitions of a topic.", ("topic",))
END = MetricSpec(
    "kafka_topic_partition_current_offset",
    "gauge",
    "The offset after the last record, of partitions that were written to.",
    _PARTITION,
)
START = MetricSpec(
    "kafka_topic_partition_oldest_offset",
    "gauge",
    "The offset of the first record, of partitions that were written to.",
    _PARTITION,
)
SIZE = MetricSpec(
    "kohort_topic_partition_bytes",
    "gauge",
    "Bytes in the segments of a partition, of partitions that were written to.",
    _PARTITION,
)
LOG_BYTES = MetricSpec("kohort_log_bytes", "gauge", "Bytes in the segments of all partitions.")
STOPPED = MetricSpec(
    "kohort_stopped_partitions", "gauge", "Partitions that take no records any more, because a write failed."
)
DISK_FREE = MetricSpec("kohort_disk_free_bytes", "gauge", "Bytes that are free where the data is.")

_GROUP_STATES = dict.fromkeys(
    (
        *(state.value for state in GroupState),
        ConsumerGroupState.ASSIGNING,
        ConsumerGroupState.RECONCILING,
    )
)
STATES = MetricSpec("kohort_groups", "gauge", "Groups in each state.", ("state",))
SHARDS = MetricSpec(
    "kohort_group_shards",
    "gauge",
    "Partitions of __consumer_offsets, by whether they are loaded.",
    ("status",),
)
MEMBERS = MetricSpec("kafka_consumergroup_members", "gauge", "Members of a group.", ("consumergroup",))
COMMITTED = MetricSpec(
    "kafka_consumergroup_current_offset", "gauge", "The offset that a group has committed.", _OF_GROUP
)
LAG = MetricSpec(
    "kafka_consumergroup_lag",
    "gauge",
    "Records between the committed offset and the end of the log.",
    _OF_GROUP,
)
# Their names end as parts of a histogram do. As gauges `promtool check metrics` would reject them.
COMMITTED_SUM = MetricSpec(
    "kafka_consumergroup_current_offset_sum",
    "untyped",
    "The committed offsets of all partitions of a topic together.",
    ("consumergroup", "topic"),
)
LAG_SUM = MetricSpec(
    "kafka_consumergroup_lag_sum",
    "untyped",
    "The lag of all partitions of a topic together.",
    ("consumergroup", "topic"),
)
LAG_SECONDS = MetricSpec(
    "kafka_consumergroup_group_lag_seconds",
    "gauge",
    "Seconds since the log ended at the committed offset, estimated from the ends of the log at earlier scrapes; "
    "missing until they tell how fast it grows.",
    ("cluster_name", "group", "topic", "partition"),
)
MAX_LAG_SECONDS = MetricSpec(
    "kafka_consumergroup_group_max_lag_seconds",
    "gauge",
    "The largest lag in seconds of a group's partitions.",
    ("cluster_name", "group"),
)
GROUP_REBALANCES = MetricSpec(
    "kohort_group_rebalances_total", "counter", "Rebalances since the group was made.", ("consumergroup",)
)
REBALANCES = MetricSpec(
    "kohort_rebalances_total",
    "counter",
    "Rebalances of all groups since the start, by their reason.",
    ("reason",),
)
JOIN_TIME = MetricSpec(
    "kohort_rebalance_join_seconds",
    "histogram",
    "Time from the beginning of a rebalance until all members have joined or were given up.",
)
SYNC_TIME = MetricSpec(
    "kohort_rebalance_sync_seconds",
    "histogram",
    "Time from there until the assignment of the leader is durable.",
)
LOADS = MetricSpec(
    "kohort_group_load_seconds", "histogram", "Time that it took to load the groups from __consumer_offsets."
)
LOAD_FAILURES = MetricSpec(
    "kohort_group_load_failures_total",
    "counter",
    "Partitions of __consumer_offsets that could not be loaded.",
)
EXPIRED_OFFSETS = MetricSpec(
    "kohort_expired_offsets_total",
    "counter",
    "Committed offsets that were deleted after offsets.retention.minutes.",
)
EXPIRED_GROUPS = MetricSpec(
    "kohort_expired_groups_total", "counter", "Groups that were deleted because nothing was left of them."
)

TRANSACTIONS = MetricSpec("kohort_transactions", "gauge", "Transactional ids in each state.", ("state",))
TRANSACTION_SHARDS = MetricSpec(
    "kohort_transaction_shards",
    "gauge",
    "Partitions of __transaction_state, by whether they are loaded.",
    ("status",),
)
ENDED = MetricSpec(
    "kohort_transactions_ended_total",
    "counter",
    "Transactions that were decided since the start: committed, aborted by their producer, fenced by a new producer of "
    "the same id, timed_out.",
    ("outcome",),
)
UNMARKED = MetricSpec(
    "kohort_transactions_completing",
    "gauge",
    "Transactions that are decided, and whose markers are not all written yet.",
)
MARKER_RETRIES = MetricSpec(
    "kohort_transaction_marker_retries",
    "gauge",
    "Those of them whose markers or last record failed, and wait to be tried again (Kafka: LogAppendRetryQueueSize, "
    "UnknownDestinationQueueSize).",
)
OPEN_PARTITIONS = MetricSpec(
    "kohort_partitions_with_open_transactions", "gauge", "Partitions in which a transaction is open."
)
LATE_PARTITIONS = MetricSpec(
    "kohort_partitions_with_late_transactions",
    "gauge",
    "Partitions in which one is open for longer than transaction.max.timeout.ms and five minutes: it hangs, and read_"
    "committed stops there (Kafka: PartitionsWithLateTransactionsCount).",
)
VERIFICATIONS = MetricSpec(
    "kohort_transaction_verification_seconds",
    "histogram",
    "Time in which the coordinator answered about the first batch of a transaction in a partition, with the wait for "
    "the transaction before (Kafka: VerificationTimeMs).",
)
VERIFICATION_FAILURES = MetricSpec(
    "kohort_transaction_verification_failures_total",
    "counter",
    "First batches that were refused because they belong to no open transaction (Kafka: VerificationFailureRate).",
)
TRANSACTION_LOADS = MetricSpec(
    "kohort_transaction_load_seconds",
    "histogram",
    "Time that it took to load the transactional ids from __transaction_state (Kafka: partition-load-time).",
)
TRANSACTION_LOAD_FAILURES = MetricSpec(
    "kohort_transaction_load_failures_total",
    "counter",
    "Partitions of __transaction_state that could not be loaded.",
)

NODE_METRICS: Final = (
    UP, BROKERS, BROKER_INFO, CONNECTIONS, OPENED, REFUSED, REQUEST_TIME, REQUEST_BYTES, RESPONSE_BYTES, ERRORS,
    THROTTLES, LOOP_LAG, JOURNAL,
)  # fmt: skip
TOPIC_METRICS: Final = (PARTITIONS, END, START, SIZE, LOG_BYTES, STOPPED, DISK_FREE)
GROUP_METRICS: Final = (
    MEMBERS, COMMITTED, COMMITTED_SUM, LAG, LAG_SUM, LAG_SECONDS, MAX_LAG_SECONDS,
)  # fmt: skip
COORDINATOR_METRICS: Final = (
    STATES, SHARDS, GROUP_REBALANCES, REBALANCES, JOIN_TIME, SYNC_TIME, LOADS, LOAD_FAILURES, EXPIRED_OFFSETS,
    EXPIRED_GROUPS,
)  # fmt: skip
TRANSACTION_METRICS: Final = (
    TRANSACTIONS, ENDED, UNMARKED, MARKER_RETRIES, OPEN_PARTITIONS, LATE_PARTITIONS, VERIFICATIONS,
    VERIFICATION_FAILURES, TRANSACTION_SHARDS, TRANSACTION_LOADS, TRANSACTION_LOAD_FAILURES,
)  # fmt: skip
METRICS: Final = (
    *NODE_METRICS, *TOPIC_METRICS, *GROUP_METRICS, *COORDINATOR_METRICS, *TRANSACTION_METRICS,
)  # fmt: skip
_LATE_AFTER_MS = 5 * 60_000
"""How long a transaction may be open after transaction.max.timeout.ms until it counts as hanging, as in Kafka."""


class BrokerMetrics:
    """Takes the samples of one node. Call it on the event loop; what is made of them need not be there."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._lag_times = LagTimes()

    def samples(self) -> Samples:
        """Returns the values of this moment."""
        taken: Samples = {spec: [] for spec in METRICS}
        broker = self._server.broker
        self._node(taken)
        self._topics(taken)
        if broker.meter is not None:
            _counted(taken, broker.meter)
        if broker.has_groups:
            self._groups(taken)
        if broker.has_transactions:
            self._transactions(taken)
        return taken

    def _node(self, taken: Samples) -> None:
        broker = self._server.broker
        node = str(broker.node_id)
        taken[UP].append(((kohort.__version__, node), 1))
        taken[BROKERS].append(((), 1))
        taken[BROKER_INFO].append(((node, f"{broker.host}:{broker.port}"), 1))
        taken[CONNECTIONS].append(((), self._server.connection_count))

    def _topics(self, taken: Samples) -> None:
        store = self._server.broker.store
        in_all = stopped = 0
        ends, starts, sizes = taken[END], taken[START], taken[SIZE]
        for name, topic in store.topics.items():
            taken[PARTITIONS].append(((name,), len(topic.partitions)))
            for index, partition in enumerate(topic.partitions):
                if partition.stopped is not None:
                    stopped += 1
                if not partition.log_end_offset:
                    continue  # never written to, as most partitions of a node with 10,000
                labels = (name, str(index))
                ends.append((labels, partition.log_end_offset))
                starts.append((labels, partition.log_start_offset))
                size = partition.size
                sizes.append((labels, size))
                in_all += size
        taken[LOG_BYTES].append(((), in_all))
        taken[STOPPED].append(((), stopped))
        if store.directory is not None:
            disk = os.statvfs(store.directory)
            taken[DISK_FREE].append(((), disk.f_bavail * disk.f_frsize))

    def _transactions(self, taken: Samples) -> None:
        states = Counter[str]({state.label: 0 for state in TransactionState})
        statuses = Counter(dict.fromkeys(TransactionShardStatus, 0))
        ended: Counter[TransactionEnd] = Counter(dict.fromkeys(TransactionEnd, 0))
        unmarked = retries = 0
        for shard in self._server.broker.transactions.runtime.shards:
            statuses[shard.status] += 1
            states.update(each.state.label for each in shard.durable.known.values())
            ended.update(shard.ended)
            unmarked += len(shard.unmarked)
            retries += len(shard.retries)
        taken[TRANSACTIONS] += [((state,), number) for state, number in states.items()]
        taken[TRANSACTION_SHARDS] += [((status.value,), number) for status, number in statuses.items()]
        taken[ENDED] += [((end.value,), number) for end, number in ended.items()]
        taken[UNMARKED].append(((), unmarked))
        taken[MARKER_RETRIES].append(((), retries))
        self._open_transactions(taken)

    def _open_transactions(self, taken: Samples) -> None:
        broker = self._server.broker
        late_before_ms = broker.now_ms() - broker.config.transaction_max_timeout_ms - _LATE_AFTER_MS
        is_open = late = 0
        for topic in broker.store.topics.values():
            for partition in topic.partitions:
                if partition.first_unstable_offset == LONG_MAX:
                    continue
                oldest_ms = partition.producers.oldest_open_ms
                is_open += oldest_ms is not None
                late += oldest_ms is not None and oldest_ms < late_before_ms
        taken[OPEN_PARTITIONS].append(((), is_open))
        taken[LATE_PARTITIONS].append(((), late))

    # --- groups ------------------------------------------------------------------------------------

    def _groups(self, taken: Samples) -> None:
        states = Counter[str](dict.fromkeys(_GROUP_STATES, 0))
        statuses = Counter(dict.fromkeys(ShardStatus, 0))
        expired_offsets = expired_groups = 0
        shards = self._server.broker.groups.runtime.shards
        self._note_ends(shards)
        for shard in shards:
            statuses[shard.status] += 1
            expired_offsets += shard.expired_offsets
            expired_groups += shard.expired_groups
            for group_id, group in shard.groups.items():
                states[shown_state(group).value] += 1
                taken[MEMBERS].append(((group_id,), len(group.members)))
                history = shard.histories.get(group_id)
                if history is not None:
                    taken[GROUP_REBALANCES].append(((group_id,), history.total))
            for group_id, consumer_group in shard.consumer_groups.items():
                states[consumer_group.state_name()] += 1
                taken[MEMBERS].append(((group_id,), len(consumer_group.members)))
                history = shard.histories.get(group_id)
                if history is not None:
                    taken[GROUP_REBALANCES].append(((group_id,), history.total))
            self._offsets(taken, shard)
        taken[STATES] += [((state,), number) for state, number in states.items()]
        taken[SHARDS] += [((status.value,), number) for status, number in statuses.items()]
        taken[EXPIRED_OFFSETS].append(((), expired_offsets))
        taken[EXPIRED_GROUPS].append(((), expired_groups))

    def _note_ends(self, shards: list[Shard]) -> None:
        """Notes where the logs end that groups read, for the lag in seconds of this scrape and of later ones."""
        topics, ends = self._server.broker.store.topics, {}
        for shard in shards:
            for committed in shard.durable.offsets.values():
                for key in committed:
                    topic = topics.get(key[0])
                    if topic is not None and key[1] < len(topic.partitions):
                        ends[key] = topic.partitions[key[1]].log_end_offset
        self._lag_times.note(self._server.broker.clock.steady_ms(), ends)

    def _offsets(self, taken: Samples, shard: Shard) -> None:
        broker = self._server.broker
        topics, cluster, now_ms = broker.store.topics, broker.store.cluster_id, broker.clock.steady_ms()
        for group_id, committed in shard.durable.offsets.items():
            lags: Counter[str] = Counter()
            sums: Counter[str] = Counter()
            most_s: float | None = None
            for (topic, index), positioned in sorted(committed.items()):
                labels = (group_id, topic, str(index))
                at = positioned.committed.offset
                taken[COMMITTED].append((labels, at))
                sums[topic] += at
                found = topics.get(topic)
                if found is None or index >= len(found.partitions):
                    continue
                lag = max(found.partitions[index].log_end_offset - max(at, 0), 0)
                taken[LAG].append((labels, lag))
                lags[topic] += lag
                lag_s = self._lag_times.lag_s(topic, index, now_ms, at)
                if lag_s is not None:
                    taken[LAG_SECONDS].append(((cluster, *labels), lag_s))
                    most_s = max(most_s or 0.0, lag_s)
            taken[COMMITTED_SUM] += [((group_id, topic), at) for topic, at in sums.items()]
            taken[LAG_SUM] += [((group_id, topic), lag) for topic, lag in lags.items()]
            if most_s is not None:
                taken[MAX_LAG_SECONDS].append(((cluster, group_id), most_s))


def _counted(taken: Samples, meter: BrokerMeter) -> None:
    """Adds what was counted since the start."""
    taken[OPENED].append(((), meter.connections_opened))
    taken[REFUSED].append(((), meter.connections_refused))
    taken[LOOP_LAG].append(((), _histogram(meter.loop_lag)))
    taken[JOURNAL].append(((), _histogram(meter.journal)))
    taken[THROTTLES] += [((kind.value,), _histogram(times)) for kind, times in meter.throttles.items()]
    taken[JOIN_TIME].append(((), _histogram(meter.join)))
    taken[SYNC_TIME].append(((), _histogram(meter.sync)))
    taken[LOADS].append(((), _histogram(meter.loads)))
    taken[LOAD_FAILURES].append(((), meter.load_failures))
    taken[TRANSACTION_LOADS].append(((), _histogram(meter.transaction_loads)))
    taken[TRANSACTION_LOAD_FAILURES].append(((), meter.transaction_load_failures))
    taken[VERIFICATIONS].append(((), _histogram(meter.verifications)))
    taken[VERIFICATION_FAILURES].append(((), meter.verification_failures))
    taken[REBALANCES] += [((reason,), number) for reason, number in meter.rebalances.items()]
    for api in meter.requests.used():
        labels = (api.name,)
        taken[REQUEST_TIME].append((labels, _request_times(api)))
        taken[REQUEST_BYTES].append((labels, api.request_bytes))
        taken[RESPONSE_BYTES].append((labels, api.response_bytes))
        taken[ERRORS] += [((api.name, _error_name(code)), number) for code, number in api.errors.items()]


def _histogram(times: TimeHistogram) -> HistogramValue:
    return HistogramValue(times.bounds, tuple(times.buckets), times.total_s)


def _request_times(api: ApiMeter) -> HistogramValue:
    return HistogramValue(BOUNDS_S, (api.quick + api.buckets[0], *api.buckets[1:]), api.seconds)


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)
