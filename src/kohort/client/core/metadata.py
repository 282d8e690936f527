"""Metadata: keeps the client's snapshot of the cluster up to date, and decides when to ask again. Sans-IO.

Readers hold `cluster`, a snapshot that is replaced as a whole; its `version` tells whether a new one came. It is
asked for again when a topic is wanted that is not in it, when someone saw that it is out of date
(`request_update`), and when it is older than `metadata.max.age.ms`; never faster than the backoff allows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from kohort.client.config import ClientConfig
from kohort.client.core.backoff import Backoff, Jitter
from kohort.client.core.cluster import NO_NODE, Cluster, Node, PartitionInfo, TopicInfo
from kohort.client.core.effects import ANY_NODE, Answer, FailureKind, Lane, Outbox, Send
from kohort.client.core.operation import Operation
from kohort.client.core.warning_limits import AWAY_EVERY_MS, LastingCondition, NodeWarnings
from kohort.client.errors import AuthenticationFailed, TimedOut, error_for_failure
from kohort.client.types import TopicPartition
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kohort.wire.struct import ZERO_UUID

_log = logging.getLogger("kohort.client.metadata")

Topics = frozenset[str] | None  # None: all there are

# The topic may be there in a moment: it is being created, or its leader elected.
ASK_AGAIN = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
)


# A topic that is being created is there in a moment; one that stays away may be misspelled.
MISSING_AFTER_MS, MISSING_EVERY_MS = 2_000, 60_000


BY_ID_SINCE = 12
"""The version of Metadata that can be asked for topics by their ids."""


@dataclass(slots=True, eq=False)
class _LookUp:
    topics: Topics
    operation: Operation[Cluster]
    at_ms: int
    """The look-up is not sent before this."""
    asked: bool = False
    failures: int = 0
    obstacle: str = ""


class Metadata:
    """A part; see the module's docstring."""

    def __init__(self, out: Outbox, config: ClientConfig, jitter: Jitter) -> None:
        self.cluster = Cluster()
        self.bootstrap = config.bootstrap_servers
        self.failures = 0
        """Requests in a row that brought nothing new: no answer, or topics that are not there (yet)."""
        self.last_failure = ""
        self.error: AuthenticationFailed | None = None
        """What asking again will not cure, so that the user must know. Kept until it is taken or a request succeeds."""
        self.features: dict[str, int] = {}
        """The levels of the cluster's finalized features, by name; as of `features_epoch`."""
        self.features_epoch = -1
        self.warnings = NodeWarnings()
        """Shared by all parts of this client: they all have its metadata."""
        self._out, self._config = out, config
        self._silence = LastingCondition(0, AWAY_EVERY_MS)
        self._topics_missing = LastingCondition(MISSING_AFTER_MS, MISSING_EVERY_MS)
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, jitter)
        self._wanted: Topics = frozenset()
        self._wanted_ids: frozenset[bytes] = frozenset()
        self._allow_auto_create = False
        self._learned: dict[int, Node] = {}
        self._names: dict[bytes, str] = {}
        self._due = True
        self._attempt = 0
        self._asked: int | None = None  # the attempt that is under way
        self._not_before_ms = 0
        self._refreshed_ms = 0
        self._silent_since_ms: int | None = None
        self._look_ups: list[_LookUp] = []
        self.lane_of_look_ups: Callable[[], Lane] = lambda: Lane.DATA
        """A consumer replaces it, so that no look-up waits behind a fetch that waits for records."""

    # --- what others ask -------------------------------------------------------------------------

    @property
    def is_due(self) -> bool:
        """Whether an update is wanted or under way: what is known may be out of date."""
        return self._due or self._asked is not None

    def age_ms(self, now_ms: int) -> int:
        """How long ago the cluster described itself."""
        return now_ms - self._refreshed_ms

    def node(self, node_id: int) -> Node | None:
        return self.cluster.nodes.get(node_id) or self._learned.get(node_id)

    def name_of(self, node_id: int) -> str:
        """The address of a node for people, as the network part names it."""
        node = self.node(node_id)
        return f"{node.host}:{node.port}" if node is not None else f"node {node_id}"

    def topic_name(self, topic_id: bytes) -> str | None:
        return self._names.get(topic_id)

    def want(
        self,
        topics: Topics,
        *,
        ids: frozenset[bytes] = frozenset(),
        allow_auto_create: bool = False,
        now_ms: int,
    ) -> None:
        """Keeps these topics up to date from now on, and drops all others. None means all topics.

        `ids` are those of further topics, whose names are not known yet.
        """
        self._allow_auto_create = allow_auto_create
        if topics == self._wanted and ids == self._wanted_ids:
            return
        before, self._wanted = self._wanted, topics
        new_ids, self._wanted_ids = ids - self._wanted_ids, ids
        if topics is None:
            if before is not None:
                self._ask_soon("all topics are wanted", now_ms)
            return
        known = self.cluster.topics
        if any(not self._is_wanted(name, info.topic_id) for name, info in known.items()) or any(
            topic not in topics for topic in self.cluster.errors
        ):
            self._replace(
                topics={name: info for name, info in known.items() if self._is_wanted(name, info.topic_id)},
                errors={name: code for name, code in self.cluster.errors.items() if name in topics},
            )
        missing = sorted(topic for topic in topics if topic not in self.cluster.topics)
        if missing and (before is None or any(topic not in before for topic in missing)):
            self._ask_soon(f"wants {', '.join(missing[:5])}", now_ms)
        elif new_ids - {info.topic_id for info in self.cluster.topics.values()}:
            self._ask_soon("topics are wanted by their ids", now_ms)

    def _is_wanted(self, name: str, topic_id: bytes) -> bool:
        return self._wanted is None or name in self._wanted or topic_id in self._wanted_ids

    def request_update(self, reason: str) -> None:
        """Asks again as soon as the backoff allows, because somebody saw that the snapshot is out of date."""
        if not self._due:
            _log.debug("metadata is asked for again: %s", reason)
        self._due = True

    def learn(self, node: Node) -> None:
        """Adds a node that another answer named (a coordinator) and that may not be in the snapshot."""
        self._learned[node.node_id] = node

    def learn_features(self, epoch: int, levels: dict[str, int]) -> None:
        """Takes in which features a broker says are finalized; the highest epoch has the newest."""
        if epoch > self.features_epoch:
            self.features_epoch, self.features = epoch, levels

    def look_up(self, topics: Topics, now_ms: int, deadline_ms: int) -> Operation[Cluster]:
        """Asks what the cluster says about these topics now (None: about all), whatever is wanted otherwise.

        A topic that does not exist is in `errors` of the result. Nothing is created.
        """
        question = _LookUp(topics, Operation(deadline_ms), now_ms)
        self._look_ups.append(question)
        return question.operation

    def update_leader(
        self, partition: TopicPartition, leader_id: int, leader_epoch: int, nodes: Iterable[Node] = ()
    ) -> bool:
        """Takes in which leader a broker named (KIP-951). Returns False if that is not newer than what is known."""
        known = self.cluster.partition(partition)
        if known is None or leader_epoch <= known.leader_epoch:
            return False
        topic = self.cluster.topics[partition.topic]
        changed = replace(known, leader_id=leader_id, leader_epoch=leader_epoch)
        partitions = {**topic.partitions, partition.partition: changed}
        self._replace(
            nodes={**self.cluster.nodes, **{node.node_id: node for node in nodes}},
            topics={**self.cluster.topics, topic.name: replace(topic, partitions=partitions)},
        )
        return True

    def rebootstrap(self, reason: str) -> None:
        """Forgets the nodes, so that the next request goes to `bootstrap.servers`; topics stay."""
        _log.info("begins again with bootstrap.servers=%s: %s", ",".join(self.bootstrap), reason)
        self._learned.clear()
        self._silent_since_ms = None
        self._replace(nodes={}, controller_id=NO_NODE)
        self._due = True

    def take_error(self) -> AuthenticationFailed | None:
        error, self.error = self.error, None
        return error

    # --- the part --------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        self._tick_look_ups(now_ms)
        if self._asked is not None:
            return
        if now_ms - self._refreshed_ms >= self._config.metadata_max_age_ms:
            self._due = True
        if not self._due or now_ms < self._not_before_ms:
            return
        self._rebootstrap_if_silent(now_ms)
        self._attempt += 1
        self._asked, self._due = self._attempt, False
        wanted, ids, create = self._wanted, self._wanted_ids, self._allow_auto_create
        self._out.append(
            Send(
                ANY_NODE,
                MetadataRequest.API_KEY,
                lambda version: _request(version, wanted, create, ids),
                "metadata.update",
                self._config.request_timeout_ms,
                on_answer=partial(self._updated, self._attempt, wanted, ids),
            )
        )

    def next_deadline_ms(self) -> int | None:
        dues = [q.at_ms for q in self._look_ups if not q.asked]
        dues += [q.operation.deadline_ms for q in self._look_ups if q.operation.deadline_ms is not None]
        if self._asked is None:
            expires_ms = self._refreshed_ms + self._config.metadata_max_age_ms
            dues.append(self._not_before_ms if self._due else max(expires_ms, self._not_before_ms))
        return min(dues, default=None)

    def _updated(
        self, attempt: int, wanted: Topics, ids: frozenset[bytes], answer: Answer, now_ms: int
    ) -> None:
        if attempt != self._asked:
            return
        self._asked = None
        if answer.failure is not None:
            if answer.failure.kind in (FailureKind.DISCONNECTED, FailureKind.TIMED_OUT):
                since = self._silent_since_ms
                self._silent_since_ms = now_ms if since is None else since
            if answer.failure.kind is FailureKind.AUTHENTICATION:
                self.error = AuthenticationFailed(answer.failure.message)
            # The network warns about a node that cannot be reached; it goes on trying.
            told = answer.failure.kind in (FailureKind.DISCONNECTED, FailureKind.AUTHENTICATION)
            tell = not told and self._silence.is_worth_a_warning(now_ms)
            self._failed(f"{answer.failure.kind.value}: {answer.failure.message}", now_ms, tell=tell)
            return
        self.error = None
        response: MetadataResponse = answer.response
        if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
            self.rebootstrap("the broker asks for it")
            self._failed("the broker asks to begin again with bootstrap.servers", now_ms, tell=True)
            return
        if not response.brokers:  # a broker that is just starting knows nobody
            tell = self._silence.is_worth_a_warning(now_ms)
            self._failed("the answer names no brokers", now_ms, tell=tell)
            return
        self._take(response, wanted, ids, now_ms)

    # --- look-ups --------------------------------------------------------------------------------

    def _tick_look_ups(self, now_ms: int) -> None:
        for question in list(self._look_ups):
            deadline_ms = question.operation.deadline_ms
            if deadline_ms is not None and now_ms >= deadline_ms and not question.operation.done:
                question.operation.fail(
                    TimedOut(f"no metadata in time: {question.obstacle or 'no answer yet'}")
                )
            if question.operation.done:
                self._look_ups.remove(question)
            elif not question.asked and now_ms >= question.at_ms:
                question.asked = True
                self._out.append(
                    Send(
                        ANY_NODE,
                        MetadataRequest.API_KEY,
                        partial(_request, wanted=question.topics, allow_auto_create=False),
                        "metadata.look_up",
                        self._config.request_timeout_ms,
                        self.lane_of_look_ups(),
                        on_answer=partial(self._looked_up, question),
                    )
                )

    def _looked_up(self, question: _LookUp, answer: Answer, now_ms: int) -> None:
        question.asked = False
        if answer.failure is not None and answer.failure.kind is FailureKind.UNENCODABLE:
            question.operation.fail(error_for_failure(answer.failure, "looking up topics"))
            return
        if answer.failure is not None or not answer.response.brokers:
            question.failures += 1
            question.obstacle = (
                answer.failure.message if answer.failure is not None else "no brokers are named"
            )
            question.at_ms = now_ms + self._backoff.after(question.failures)
            return
        response: MetadataResponse = answer.response
        nodes = {b.node_id: Node(b.node_id, b.host, b.port, b.rack) for b in response.brokers}
        named = [t for t in response.topics if t.name is not None]
        found = Cluster(
            response.cluster_id,
            response.controller_id,
            nodes,
            {t.name or "": self._topic_info(t) for t in named if not t.error_code},
            {t.name or "": _error_code(t.error_code) for t in named if t.error_code},
            self.cluster.version + 1,
        )
        self._replace(response.cluster_id, response.controller_id, nodes)
        question.operation.finish(found)

    # --- inside ----------------------------------------------------------------------------------

    def _ask_soon(self, reason: str, now_ms: int) -> None:
        """Asks without the backoff, which is there for retries and not for new topics."""
        if self._silent_since_ms is None:
            self._not_before_ms = min(self._not_before_ms, now_ms)
            self.failures = 0
        self.request_update(reason)

    def _failed(self, reason: str, now_ms: int, *, tell: bool) -> None:
        self.failures += 1
        self.last_failure = reason
        self._due = True
        self._not_before_ms = now_ms + self._backoff.after(self.failures)
        _log.log(logging.WARNING if tell else logging.DEBUG, "no metadata (%s); asks again", reason)

    def _rebootstrap_if_silent(self, now_ms: int) -> None:
        if self._config.metadata_recovery_strategy != "rebootstrap" or self._silent_since_ms is None:
            return
        silent_ms = now_ms - self._silent_since_ms
        if self.cluster.nodes and silent_ms >= self._config.metadata_recovery_rebootstrap_trigger_ms:
            self.rebootstrap(f"no broker has answered for {silent_ms} ms")

    def _take(self, response: MetadataResponse, wanted: Topics, ids: frozenset[bytes], now_ms: int) -> None:
        nodes = {b.node_id: Node(b.node_id, b.host, b.port, b.rack) for b in response.brokers}
        topics: dict[str, TopicInfo] = {}
        errors: dict[str, ErrorCode] = {}
        missing = ""
        for topic in response.topics:
            name = topic.name
            if name is None:
                if topic.topic_id in self._wanted_ids:
                    missing = "a topic has an id that the broker does not know (yet)"
                continue
            if not self._is_wanted(name, topic.topic_id):
                continue
            if topic.error_code:
                errors[name] = code = _error_code(topic.error_code)
                missing = f"{name}: {code.name}" if code in ASK_AGAIN else missing
                continue
            topics[name] = info = self._topic_info(topic)
            if any(p.leader_id == NO_NODE for p in info.partitions.values()):
                missing = f"{name}: a partition has no leader"
        if self._wanted is not None:
            topics |= {
                t: info
                for t, info in self.cluster.topics.items()
                if _not_asked(t, wanted) and info.topic_id not in ids
            }
        self._replace(response.cluster_id, response.controller_id, nodes, topics, errors)
        self._learned = {i: node for i, node in self._learned.items() if i not in nodes}
        self._refreshed_ms, self._silent_since_ms = now_ms, None
        self._silence.is_over()
        if not missing:
            self._topics_missing.is_over()
        if self._wanted != wanted and (self._wanted is None or self._wanted - topics.keys()):
            self._due, self.failures, self._not_before_ms = True, 0, now_ms
        elif missing:
            self._failed(missing, now_ms, tell=self._topics_missing.is_worth_a_warning(now_ms))
        else:
            self.failures, self.last_failure = 0, ""
            self._not_before_ms = now_ms + self._backoff.after(1)

    def _topic_info(self, topic: MetadataResponseTopic) -> TopicInfo:
        name = topic.name or ""
        known = self.cluster.topics.get(name)
        same = known is not None and (known.topic_id == topic.topic_id or topic.topic_id == ZERO_UUID)
        partitions: dict[int, PartitionInfo] = {}
        for p in topic.partitions:
            old = known.partitions.get(p.partition_index) if known is not None and same else None
            # A broker that lags behind must not lead us back to an old leader.
            stale = old is not None and p.leader_epoch != -1 and old.leader_epoch > p.leader_epoch
            partitions[p.partition_index] = old if old is not None and stale else _partition_info(p)
        return TopicInfo(name, topic.topic_id, partitions, topic.is_internal)

    def _replace(
        self,
        cluster_id: str | None = None,
        controller_id: int | None = None,
        nodes: Mapping[int, Node] | None = None,
        topics: Mapping[str, TopicInfo] | None = None,
        errors: Mapping[str, ErrorCode] | None = None,
    ) -> None:
        old = self.cluster
        self.cluster = Cluster(
            cluster_id if cluster_id is not None else old.cluster_id,
            old.controller_id if controller_id is None else controller_id,
            old.nodes if nodes is None else nodes,
            old.topics if topics is None else topics,
            old.errors if errors is None else errors,
            old.version + 1,
        )
        if topics is not None:
            # Names of ids that are gone stay known: an answer that is still under way may name them.
            self._names |= {t.topic_id: t.name for t in topics.values() if t.topic_id != ZERO_UUID}


def _not_asked(topic: str, asked: Topics) -> bool:
    return asked is not None and topic not in asked


def _error_code(code: int) -> ErrorCode:
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def _partition_info(p: MetadataResponsePartition) -> PartitionInfo:
    leader = NO_NODE if p.error_code == ErrorCode.LEADER_NOT_AVAILABLE else p.leader_id
    return PartitionInfo(
        leader, p.leader_epoch, tuple(p.replica_nodes), tuple(p.isr_nodes), tuple(p.offline_replicas)
    )


def _request(
    version: int, wanted: Topics, allow_auto_create: bool, ids: frozenset[bytes] = frozenset()
) -> MetadataRequest:
    """The request for these topics. Version 0 cannot ask for no topic: there an empty list means all topics."""
    topics = None if wanted is None else [MetadataRequestTopic(name=name) for name in sorted(wanted)]
    if topics is not None and version >= BY_ID_SINCE:
        topics += [MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in sorted(ids)]
    if topics is None and version == 0:
        topics = []
    return MetadataRequest(topics, allow_auto_topic_creation=allow_auto_create)
