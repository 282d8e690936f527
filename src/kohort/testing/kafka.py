"""The broker of a test: `Kafka`, which is also what the fixture `kafka` gives."""

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
from kohort.testing.faults import AFTER, BEFORE, Fault, Faults, Match, Request
from kohort.testing.local import ask
from kohort.testing.names import api_key, error_code
from kohort.testing.records import Record, Value, batch_of, by_partition, new_record, records_in
from kohort.testing.waiting import wait_until, wait_until_async
from kohort.wire.errors import ErrorCode, KafkaError
from kohort.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kohort.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kohort.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

if TYPE_CHECKING:
    from kohort.broker.broker import Broker
    from kohort.log.topic import Topic
    from kohort.testing.groups import Group, Member

T = TypeVar("T")

# Records of a test may be of any age: they go only where a topic says when. One partition is enough for its groups.
_DEFAULTS = {"log.retention.ms": "-1", "offsets.topic.num.partitions": "1"}
_PORTS = range(15_000, 32_000)
_ATTEMPTS = 50
_LONGEST_S = 60.0  # that a call may take; TimeoutError then: the broker's thread has ended or is stuck


class Kafka:
    """A broker in this process, everything in memory, gone at the end of the `with` (or of the `async with`).

    with Kafka(num_partitions=3) as kafka:
        kafka.produce("orders", ["one", "two"])
        Consumer({"bootstrap.servers": kafka.bootstrap_servers, …})

    Settings are the broker's by Kafka's names, in a dict or as keywords with underscores; without `listeners` it takes
    a free port of 127.0.0.1. `directory` keeps the data on disk.

    Methods may be called from any thread but the broker's own; they return when what they say has happened.
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
        self._faults = Faults()
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
        """Starts it; after `stop` on the same port, with the same data. Nothing if it runs."""
        if self._running is None:
            self._running = self._start_somewhere()
        elif self._is_away:
            self._running.call(self._running.come_back(), _LONGEST_S)
        self._is_away = False

    def stop(self) -> None:
        """Closes the port and all connections, as a broker that is shut down; `start` brings it back."""
        if not self._is_away:
            thread = self._broker_thread()
            thread.call(thread.go_away(), _LONGEST_S)
            self._is_away = True

    def restart(self) -> None:
        """`stop` and `start`: connections break, groups are loaded from the log, fetch sessions are gone."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Throws it away."""
        if self._running is not None:
            self.stop()
            self._running.stop()
        self._running, self._is_away = None, False

    def _start_somewhere(self) -> running:
        is_told = "listeners" in self._settings
        for attempt in range(_ATTEMPTS):
            thread = running(
                self._directory,
                listen=None if is_told else f"127.0.0.1:{_free_port()}",
                settings=self._settings,
                clock=self._clock,
                table=self._faults.table,
            )
            try:
                thread.start()
                return thread
            except SettingError as error:
                if is_told or "is in use" not in str(error) or attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")

    def _broker_thread(self) -> running:
        if self._running is None:
            raise RuntimeError("this broker does not run: start() it, or use it in a `with`")
        return self._running

    def on_broker(self, work: Callable[[Broker], T]) -> T:
        """Runs `work` on the broker's own thread, where nothing else moves meanwhile. For looking inside."""
        thread = self._broker_thread()
        if self._is_away:
            raise RuntimeError("this broker is stopped: start() it first")

        async def run() -> T:
            return work(thread.server.broker)

        return thread.call(run(), _LONGEST_S)

    # --- topics and records ------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int = 1, **configs: object) -> None:
        """Settings of the topic as keywords: `create_topic("t", retention_ms=60_000, cleanup_policy="compact")`."""
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
        placed = by_partition(records, len(found.partitions))
        for partition, positions in placed.items():
            batch = batch_of([records[position] for position in positions], now_ms)
            data.partition_data.append(PartitionProduceData(partition, batch))
        for result in self._call(ProduceRequest(acks=-1, topic_data=[data])).responses[0].partition_responses:
            if result.error_code:
                code = ErrorCode(result.error_code)
                raise KafkaError(code, f"{topic}-{result.index}: {result.error_message or ''}")
            for number, position in enumerate(placed[result.index]):
                offsets[position] = result.base_offset + number
        return offsets

    def consume_all(self, topic: str) -> list[Record]:
        """All records that are in a topic now, by partition and offset."""
        partitions = self._topic(topic).partitions
        return self.on_broker(lambda _: [record for part in partitions for record in records_in(part)])

    def end_offsets(self, topic: str) -> dict[int, int]:
        """The offset that the next record of each partition will have."""
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
    # The coordinator is loaded when a group is first asked for, as in the broker: a test without groups starts sooner.

    def group(self, group_id: str) -> Group:
        """The group of this id, whether it exists yet or not."""
        from kohort.testing.groups import Group

        return Group(self, group_id)

    def groups(self) -> list[Group]:
        """All that exist."""
        from kohort.testing.groups import all_groups

        return [self.group(group_id) for group_id in sorted(self.on_broker(all_groups))]

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """Partition -> the offset that the group has committed, of those that have one."""
        offsets = self.group(group).committed()
        return {index: offset for (name, index), offset in offsets.items() if name == topic}

    def rebalance(self, group: str, reason: str = "asked for by the test") -> None:
        """Makes a group rebalance, as if a member had asked for it; its members hear of it with their heartbeats."""
        from kohort.testing.groups import ask_to_rebalance

        self.on_broker(lambda broker: ask_to_rebalance(broker, group, reason))

    def kill_member(self, member: str | Member) -> None:
        """The coordinator gives a member up, as if its session had expired; it learns so from its next request.

        By member id, or by group.instance.id, or by client.id if only one member has it.
        """
        from kohort.testing.groups import end_session

        name = member if isinstance(member, str) else member.id
        self.on_broker(lambda broker: end_session(broker, name))

    # --- time --------------------------------------------------------------------------------------

    def advance(self, ms: int) -> None:
        """Time passes, without anybody waiting: sessions and rebalance timeouts end, offsets and records expire.

        It passes for the group coordinator and for retention. Clients do not notice: to the coordinator they were
        silent all the time, so members whose session.timeout.ms is over are gone when this returns.
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
        """The next `times` requests of an API are answered with an error, and not carried out.

        `kafka.fail("OffsetCommit", with_error="NOT_COORDINATOR", times=3)`; times=None: until it is removed.
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
        """Requests of an API are carried out so much later; in real time, and that connection waits."""
        if ms <= 0:
            raise ValueError(f"delay({api!r}, ms={ms}): a delay is longer than nothing")
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
        """The connection is closed instead of an answer; `after_handling`: the work is done, the answer is lost."""
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
        """Nothing goes wrong any more."""
        self._faults.clear()

    # --- requests ----------------------------------------------------------------------------------

    def requests(self, api: str | None = None) -> list[Request]:
        """The requests that clients have sent since the start or the last `clear`, of one API or of all."""
        name = None if api is None else self._faults.table[api_key(api)].name
        seen = self._faults.requests()
        return [request for request in seen if name is None or request.api == name]

    def wait_for_request(self, api: str, count: int = 1, timeout: float = 30) -> None:
        """Until `requests(api)` has so many; TimeoutError if it has not after `timeout` seconds."""
        enough = partial(self._has_seen, api, count)
        wait_until(enough, timeout, lambda: self._too_few(api, count))

    async def wait_for_request_async(self, api: str, count: int = 1, timeout: float = 30) -> None:
        """As `wait_for_request`, for a test with an event loop of its own."""
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
    """Below the ports that clients get for themselves.

    While the broker is stopped, a client that reconnects might otherwise be given that very port, and talk to itself.
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
