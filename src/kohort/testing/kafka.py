"""`Kafka`: the broker of a test, which is also the value of the fixture `kafka`."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from kohort.broker.clock import Clock
from kohort.broker.running import running
from kohort.settings import SettingError, nearest
from kohort.testing import stepping
from kohort.testing.faults import AFTER, BEFORE, Fault, FaultTable, Match, SeenRequest
from kohort.testing.local import ask
from kohort.testing.names import api_key, error_code
from kohort.testing.records import StoredRecord, Value, batch_of, by_partition, new_record, records_in
from kohort.testing.waiting import wait_until, wait_until_async
from kohort.wire.errors import ErrorCode, KafkaError
from kohort.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kohort.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kohort.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

if TYPE_CHECKING:
    from kohort.broker.broker import Broker
    from kohort.log.topic import Topic
    from kohort.testing.groups import GroupView, MemberView

T = TypeVar("T")

# The records of a test may have any timestamp, so they expire only in topics that set retention.ms.
# One partition is enough for the groups of a test. Members of KIP-848 and share groups hear of changes by heartbeats,
# whose interval the broker says: by default 5 s, which would be the time that a test takes.
_DEFAULTS = {
    "log.retention.ms": "-1",
    "offsets.topic.num.partitions": "1",
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "50",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.assignment.interval.ms": "0",
    "group.share.min.heartbeat.interval.ms": "50",
    "group.share.heartbeat.interval.ms": "50",
    "group.share.min.session.timeout.ms": "1000",
    "group.share.assignment.interval.ms": "0",
}
_PORTS = range(15_000, 32_000)
_ATTEMPTS = 50
_LONGEST_S = 60.0  # A call that takes longer raises TimeoutError: the broker's thread has ended or is stuck.


class Kafka:
    """A broker in this process that keeps everything in memory until the end of the `with` (or `async with`).

    with Kafka(num_partitions=3) as kafka:
        kafka.produce("orders", ["one", "two"])
        Consumer({"bootstrap.servers": kafka.bootstrap_servers, …})

    Settings are those of the broker by Kafka's names, in a dict or as keywords with underscores. Without `listeners` it
    takes a free port of 127.0.0.1. With `directory` the data is kept on disk.

    Methods may be called from any thread but the broker's own. They return when they have taken effect.
    """

    def __init__(
        self,
        *,
        settings: Mapping[str, object] | None = None,
        directory: str | Path | None = None,
        **keywords: object,
    ) -> None:
        given = {name.replace("_", "."): value for name, value in keywords.items()}
        self._settings = {**_DEFAULTS, **(settings or {}), **given}
        self._directory = directory
        self._clock = Clock()
        self._faults = FaultTable()
        self._running: running | None = None
        self._is_away = False

    # --- its life ----------------------------------------------------------------------------------

    def __enter__(self) -> Kafka:
        self.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    async def __aenter__(self) -> Kafka:
        await asyncio.get_running_loop().run_in_executor(None, self.start)
        return self

    async def __aexit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self.close)

    @property
    def bootstrap_servers(self) -> str:
        return self._broker_thread().bootstrap_servers

    def start(self) -> None:
        """Starts the broker; after `stop`, on the same port with the same data. Does nothing if it runs."""
        if self._running is None:
            self._running = self._start_somewhere()
        elif self._is_away:
            self._running.call(self._running.come_back(), _LONGEST_S)
        self._is_away = False

    def stop(self) -> None:
        """Closes the port and all connections, as a broker that shuts down does; `start` brings it back."""
        if not self._is_away:
            thread = self._broker_thread()
            thread.call(thread.go_away(), _LONGEST_S)
            self._is_away = True

    def restart(self) -> None:
        """Stops and starts the broker: connections break, groups are loaded from the log, fetch sessions are gone."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stops the broker for good; data in memory is lost."""
        if self._running is not None:
            self.stop()
            self._running.stop()
        self._running, self._is_away = None, False

    def _start_somewhere(self) -> running:
        has_listeners = "listeners" in self._settings
        for attempt in range(_ATTEMPTS):
            thread = running(
                self._directory,
                listen=None if has_listeners else f"127.0.0.1:{_free_port()}",
                settings=self._settings,
                clock=self._clock,
                table=self._faults.table,
            )
            try:
                thread.start()
                return thread
            except SettingError as error:
                if has_listeners or "is in use" not in str(error) or attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")

    def _broker_thread(self) -> running:
        if self._running is None:
            raise RuntimeError("this broker does not run: start() it, or use it in a `with`")
        return self._running

    def on_broker(self, work: Callable[[Broker], T]) -> T:
        """Runs `work` on the broker's own thread, where nothing changes meanwhile; for tests that look inside."""
        thread = self._broker_thread()
        if self._is_away:
            raise RuntimeError("this broker is stopped: start() it first")

        async def run() -> T:
            return work(thread.server.broker)

        return thread.call(run(), _LONGEST_S)

    # --- topics and records ------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int = 1, **configs: object) -> None:
        """Creates a topic; its settings are keywords: `create_topic("t", retention_ms=60_000)`."""
        settings = [CreatableTopicConfig(key.replace("_", "."), _text(v)) for key, v in configs.items()]
        topic = CreatableTopic(name, partitions, -1, configs=settings)
        answer = self._call(CreateTopicsRequest([topic]))
        result = answer.topics[0]
        if result.error_code:
            raise KafkaError(ErrorCode(result.error_code), result.error_message or "")

    def produce(self, topic: str, values: Iterable[Value] | bytes | str) -> list[int]:
        """Writes records and returns their offsets, in the order of `values`. A missing topic is created.

        A value is bytes or str; or a pair (key, value); or a dict with any of value, key, headers, partition and
        timestamp. Records with a key go where Java's producer would send them, others to the partitions in turn.
        """
        given = [values] if isinstance(values, bytes | str) else values
        records = [new_record(value) for value in given]
        found = self._topic(topic, create=True)
        now_ms = self._clock.now_ms()
        data, offsets = TopicProduceData(topic_id=found.topic_id), [-1] * len(records)
        positions_in = by_partition(records, len(found.partitions))
        for partition, positions in positions_in.items():
            batch = batch_of([records[position] for position in positions], now_ms)
            data.partition_data.append(PartitionProduceData(partition, batch))
        for result in self._call(ProduceRequest(acks=-1, topic_data=[data])).responses[0].partition_responses:
            if result.error_code:
                code = ErrorCode(result.error_code)
                raise KafkaError(code, f"{topic}-{result.index}: {result.error_message or ''}")
            for number, position in enumerate(positions_in[result.index]):
                offsets[position] = result.base_offset + number
        return offsets

    def consume_all(self, topic: str) -> list[StoredRecord]:
        """Returns all records that are in a topic now, by partition and offset."""
        partitions = self._topic(topic).partitions
        return self.on_broker(lambda _: [record for part in partitions for record in records_in(part)])

    def end_offsets(self, topic: str) -> dict[int, int]:
        """Returns for each partition the offset that its next record will have."""
        partitions = self._topic(topic).partitions
        return self.on_broker(lambda _: {part.index: part.high_watermark for part in partitions})

    def _topic(self, name: str, *, create: bool = False) -> Topic:
        if create and name not in self.on_broker(lambda broker: broker.store.topics):
            answer = self._call(MetadataRequest([MetadataRequestTopic(name=name)]))
            code = ErrorCode(answer.topics[0].error_code)
            if name not in self.on_broker(lambda broker: broker.store.topics):
                raise KafkaError(code, f"the topic {name!r} could not be created")
        topics = self.on_broker(lambda broker: dict(broker.store.topics))
        if name not in topics:
            raise ValueError(f"there is no topic {name!r}{nearest(name, topics)}")
        return topics[name]

    def _call(self, request: CreateTopicsRequest | MetadataRequest | ProduceRequest) -> Any:
        thread = self._broker_thread()
        if self._is_away:
            raise RuntimeError("this broker is stopped: start() it first")
        return thread.call(ask(thread.server.broker, request), _LONGEST_S)

    # --- groups ------------------------------------------------------------------------------------
    # The coordinator is imported on first use, as in the broker: a test without groups starts sooner.

    def group(self, group_id: str) -> GroupView:
        """Returns the view of the group of this id, whether it exists yet or not."""
        from kohort.testing.groups import GroupView

        return GroupView(self, group_id)

    def groups(self) -> list[GroupView]:
        """Returns the views of all groups that exist."""
        from kohort.testing.groups import all_groups

        return [self.group(group_id) for group_id in sorted(self.on_broker(all_groups))]

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """Returns the offset that the group has committed for each partition that has one."""
        offsets = self.group(group).committed()
        return {index: offset for (name, index), offset in offsets.items() if name == topic}

    def rebalance(self, group: str, reason: str = "asked for by the test") -> None:
        """Makes a group rebalance, as if a member had asked for it; heartbeats tell the members."""
        from kohort.testing.groups import ask_to_rebalance

        self.on_broker(lambda broker: ask_to_rebalance(broker, group, reason))

    def kill_member(self, member: str | MemberView) -> None:
        """Ends the session of a member, as if it had expired; the member learns of it from its next request.

        The member is named by its id, or by its group.instance.id, or by a client.id that only one member has.
        """
        from kohort.testing.groups import end_session

        name = member if isinstance(member, str) else member.id
        self.on_broker(lambda broker: end_session(broker, name))

    # --- time --------------------------------------------------------------------------------------

    def advance(self, ms: int) -> None:
        """Moves the broker's time forward: sessions, rebalance timeouts and locks end, offsets and records expire.

        Time passes for the group coordinator, for share groups and for retention. Clients do not notice. To the
        coordinator they were silent all that time, so members whose session.timeout.ms is over are gone when this
        returns.
        """
        if ms < 0:
            raise ValueError(f"advance({ms}): time goes forward only")
        thread = self._broker_thread()
        if self._is_away:
            self._clock.shift_ms += ms
        else:
            thread.call(stepping.advance(thread.server, ms), _LONGEST_S)

    # --- faults ------------------------------------------------------------------------------------

    def fail(
        self,
        api: str,
        with_error: str | int | ErrorCode,
        times: int | None = 1,
        *,
        group: str | None = None,
        topic: str | None = None,
        client_id: str | None = None,
    ) -> Fault:
        """Answers the next `times` requests of an API with an error, without carrying them out.

        `kafka.fail("OffsetCommit", with_error="NOT_COORDINATOR", times=3)`; times=None means until it is removed.
        """
        return self._add(api, Match(group, topic, client_id), times, error=error_code(with_error))

    def delay(
        self,
        api: str,
        ms: float,
        times: int | None = None,
        *,
        group: str | None = None,
        topic: str | None = None,
        client_id: str | None = None,
    ) -> Fault:
        """Carries out requests of an API `ms` milliseconds later, in real time; their connections wait."""
        if ms <= 0:
            raise ValueError(f"delay({api!r}, ms={ms}): a delay must be longer than 0 ms")
        return self._add(api, Match(group, topic, client_id), times, delay_ms=ms)

    def disconnect(
        self,
        api: str,
        times: int | None = 1,
        *,
        after_handling: bool = False,
        group: str | None = None,
        topic: str | None = None,
        client_id: str | None = None,
    ) -> Fault:
        """Closes the connection instead of answering; with `after_handling` the request is carried out first."""
        cut = AFTER if after_handling else BEFORE
        return self._add(api, Match(group, topic, client_id), times, cut=cut)

    def _add(
        self,
        api: str,
        match: Match,
        times: int | None,
        *,
        error: ErrorCode | None = None,
        delay_ms: float = 0,
        cut: str = "",
    ) -> Fault:
        remove = self._faults.remove
        fault = Fault(api_key(api), match, times, remove, error=error, delay_ms=delay_ms, cut=cut)
        return self._faults.add(fault)

    def remove_faults(self) -> None:
        """Ends all faults."""
        self._faults.clear()

    # --- requests ----------------------------------------------------------------------------------

    def requests(self, api: str | None = None) -> list[SeenRequest]:
        """Returns the requests that clients have sent since the start or the last `clear`, of one API or of all."""
        name = None if api is None else self._faults.table[api_key(api)].name
        seen = self._faults.requests()
        return [request for request in seen if name is None or request.api == name]

    def wait_for_request(self, api: str, count: int = 1, timeout: float = 30) -> None:
        """Waits until `requests(api)` has `count` requests; raises TimeoutError after `timeout` seconds."""
        enough = partial(self._has_seen, api, count)
        wait_until(enough, timeout, lambda: self._too_few(api, count))

    async def wait_for_request_async(self, api: str, count: int = 1, timeout: float = 30) -> None:
        """Does what `wait_for_request` does, for a test with an event loop of its own."""
        enough = partial(self._has_seen, api, count)
        await wait_until_async(enough, timeout, lambda: self._too_few(api, count))

    def _has_seen(self, api: str, count: int) -> bool:
        return len(self.requests(api)) >= count

    def _too_few(self, api: str, count: int) -> str:
        return f"{len(self.requests(api))} {api} requests have come, {count} were waited for"

    def clear(self) -> None:
        """Forgets the requests seen so far."""
        self._faults.forget_requests()


def _free_port() -> int:
    """Returns a free port below those that the system gives to outgoing connections.

    Otherwise a client that reconnects while the broker is stopped might be given that very port, and talk to itself.
    """
    for _ in range(_ATTEMPTS):
        port = _PORTS.start + secrets.randbelow(len(_PORTS))
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"no free port between {_PORTS.start} and {_PORTS.stop}")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
