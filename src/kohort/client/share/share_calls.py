"""Says what each call of a share consumer does, step by step, for the blocking and the asyncio one alike.

Nothing here waits or locks: core/steps.py says how the fronts run it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kohort.client.consume.poll_metrics import PollMetrics
from kohort.client.core import arguments
from kohort.client.core.metrics import MetricSource
from kohort.client.core.steps import CallUser, Look, Steps, Until
from kohort.client.errors import CorruptRecord, DeserializationFailed, IllegalState, TimedOut, WrongArgument
from kohort.client.records import Record
from kohort.client.share.acknowledgements import AcknowledgeType
from kohort.client.share.share_core import ShareConsumerCore
from kohort.client.share.share_fetcher import Acknowledgement
from kohort.client.share.share_metrics import SHARE_POLLS
from kohort.client.types import TopicPartition
from kohort.wire.errors import KohortError

log = logging.getLogger("kohort.client.share")

SharePolled = dict[TopicPartition, list[Record[Any, Any]]]
CommitCallback = Callable[[dict[TopicPartition, frozenset[int]], KohortError | None], Any]
"""Called with the offsets that were acknowledged, by partition, and with None or why that failed."""

LOOK = Look()


class ShareConsumerCalls:
    """The calls of one share consumer; each returns its steps."""

    def __init__(
        self, core: ShareConsumerCore, clock: Callable[[], int], obstacle: Callable[[], str] = lambda: ""
    ) -> None:
        """`obstacle` says what the network is struggling with, for the text of a timeout."""
        self.core, self.clock, self._obstacle = core, clock, obstacle
        self._explicit = core.config.is_explicit
        self._callback: CommitCallback | None = None
        self._told: list[Acknowledgement] = []  # what the callback is to be told
        self._in_callback = False
        self._unseen = False  # whether nobody has got what the last poll has put in flight
        self._metrics = PollMetrics(core.config.metric_window())

    def metric_sources(self) -> Iterator[MetricSource]:
        """Yields what the calls and the parts of this consumer count."""
        yield MetricSource(SHARE_POLLS, self._metrics)
        yield from self.core.metric_sources()

    # --- what to read -------------------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str]) -> Steps[None]:
        if isinstance(topics, str) or not isinstance(topics, Iterable):
            raise WrongArgument(
                f"a share consumer subscribes to a list of topics, as in subscribe(['orders']), not to "
                f"{arguments.shown(topics)}"
            )
        names = [arguments.topic_name(name) for name in topics]
        return self._subscribe(names) if names else self.unsubscribe()

    def _subscribe(self, names: list[str]) -> Steps[None]:
        self.core.subscribe(names, self.clock())
        log.info("subscribed to %s", ", ".join(sorted(names)))
        yield from ()

    def unsubscribe(self) -> Steps[None]:
        """Leaves the group. What is in flight can still be acknowledged and committed."""
        core = self.core
        deadline_ms = self.clock() + core.config.default_api_timeout_ms
        left = core.membership.leave(self.clock())
        yield Until(lambda: left.done, deadline_ms)
        core.unsubscribe(self.clock())

    # --- poll ---------------------------------------------------------------------------------------------

    def poll(self, deadline_ms: int) -> Steps[SharePolled]:
        core = self.core
        if self._in_callback:
            raise IllegalState(
                "the acknowledgement commit callback runs within poll and cannot call it again"
            )
        if not core.membership.topics:
            raise IllegalState("the share consumer reads nothing: call subscribe(topics) first")
        began_ms = self.clock()
        self._metrics.poll_began(began_ms)
        try:
            return (yield from self._poll(began_ms, deadline_ms))
        finally:
            now_ms = self.clock()
            self._metrics.poll_ended(now_ms)
            core.membership.poll_ended(now_ms)

    def _poll(self, now_ms: int, deadline_ms: int) -> Steps[SharePolled]:
        core = self.core
        core.membership.poll(now_ms)
        if not self._unseen:
            self._settle_in_flight()
            core.fetcher.send_with_next_fetch(core.in_flight.take())
            if not core.fetcher.buffered and not core.in_flight.has_renewals:
                core.fetcher.fetch()
        yield LOOK  # also while records are buffered: the group, metadata and a wakeup do not wait for their end
        while True:
            yield from self._tell()
            core.raise_errors()
            if taken := self._take():
                return taken
            now_ms = self.clock()
            if now_ms >= deadline_ms:
                return {}
            yield Until(lambda: core.has_news or core.in_flight.has_renewed, deadline_ms)

    def _settle_in_flight(self) -> None:
        """Accepts what the last poll returned, or in explicit mode checks that something was said of each record."""
        in_flight = self.core.in_flight
        if not self._explicit:
            in_flight.accept_all()
            return
        if (left := in_flight.first_open()) is not None:
            partition, offset = left
            raise IllegalState(
                f"the record of {partition} at offset {offset} was not acknowledged: with "
                "share.acknowledgement.mode=explicit, call acknowledge(record, type) for each record before the next "
                "poll"
            )

    def _take(self) -> SharePolled:
        """Puts what there is for the user in flight, and returns it."""
        core, in_flight = self.core, self.core.in_flight
        if self._unseen:
            self._unseen = False
        elif in_flight.has_renewals:
            in_flight.take_renewed()
        elif core.fetcher.buffered:
            core.collect(self.clock())
            if not in_flight.count:  # there were only gaps
                core.fetcher.send_with_next_fetch(in_flight.take())
                core.fetcher.fetch()
        return in_flight.by_partition()

    def give_back(self) -> None:
        """Takes back what the last poll has taken, because nobody has got it: the next poll returns it."""
        self._unseen = self.core.in_flight.count > 0

    # --- acknowledgements ---------------------------------------------------------------------------------

    def acknowledge(self, record: object, kind: object) -> None:
        """Notes what became of a record; the next poll or commit sends it. Touches nothing that other threads do."""
        if type(record) is Record and type(kind) is AcknowledgeType and self._explicit:
            self.core.in_flight.acknowledge(record, kind)  # the usual case, once for each record
            return
        if not isinstance(kind, AcknowledgeType):
            raise WrongArgument(
                f"a record is acknowledged with AcknowledgeType.ACCEPT, RELEASE, REJECT or RENEW, not "
                f"{arguments.shown(kind)}"
            )
        in_flight = self.core.in_flight
        if not isinstance(record, (Record, DeserializationFailed, CorruptRecord)):
            raise WrongArgument(
                "acknowledge() takes a record that poll has returned, or the error that it has raised for one, not "
                f"{arguments.shown(record)}"
            )
        if not self._explicit:
            raise IllegalState(
                "acknowledge() needs share.acknowledgement.mode=explicit; in implicit mode the next poll or commit "
                "accepts all records"
            )
        if isinstance(record, Record):
            in_flight.acknowledge(record, kind)
        else:
            in_flight.acknowledge_failed(record, kind)

    def commit_sync(self, deadline_ms: int) -> Steps[dict[TopicPartition, KohortError | None]]:
        core = self.core
        yield from self._tell()
        self._accept_if_implicit()
        operation = core.fetcher.commit(core.in_flight.take(), deadline_ms, wait=True)
        began_ms = self.clock()
        try:
            yield Until(lambda: operation.done, deadline_ms)
        finally:
            self._metrics.waited_for_commit(self.clock() - began_ms)
        if not operation.done:
            obstacle = self._obstacle()
            raise TimedOut(
                "time was up before the acknowledgements were answered; they may hold or not"
                + (f": {obstacle}" if obstacle else "")
            )
        yield from self._tell()
        return _by_partition(operation.value())

    def commit_async(self) -> Steps[None]:
        core = self.core
        yield from self._tell()
        self._accept_if_implicit()
        deadline_ms = self.clock() + core.config.default_api_timeout_ms
        core.fetcher.commit(core.in_flight.take(), deadline_ms, wait=False)

    def _accept_if_implicit(self) -> None:
        if not self._explicit and not self._unseen:
            self.core.in_flight.accept_all()

    def set_callback(self, callback: CommitCallback | None) -> None:
        self._callback = arguments.function(callback, "the acknowledgement commit callback")
        self._told = []

    def _tell(self) -> Steps[None]:
        """Takes in what came of acknowledgements, and calls the callback. If it raises, the next call goes on."""
        self._take_answered()
        while self._told and not self._in_callback:
            result = self._told.pop(0)
            assert self._callback is not None, "without a callback nothing is kept for it"
            offsets = frozenset(result.said.types)
            self._in_callback = True
            try:
                yield CallUser(self._callback, ({result.origin.partition.place: offsets}, result.error))
            finally:
                self._in_callback = False

    def _take_answered(self) -> None:
        while (result := self.core.take_answered()) is not None:
            if result.error is not None:
                log.info("%s: acknowledgements failed: %s", result.origin.partition, result.error)
            if self._callback is not None and result.said.types:
                self._told.append(result)

    # --- the end ------------------------------------------------------------------------------------------

    def close(self, deadline_ms: int) -> Steps[None]:
        """Sends the last acknowledgements, closes the share sessions, which releases all other records, and leaves."""
        core = self.core
        core.membership.poll_ended(self.clock())
        closed = core.fetcher.close(core.in_flight.take(), self.clock(), deadline_ms)
        yield Until(lambda: closed.done, deadline_ms)
        left = core.membership.leave(self.clock())
        yield Until(lambda: left.done, deadline_ms)
        failed = yield from self._tell_last()
        if failed is not None:
            raise failed

    def _tell_last(self) -> Steps[Exception | None]:
        """Calls the callback for all that is left, whatever it raises; returns the first error."""
        failed: Exception | None = None
        self._take_answered()
        while self._told:
            try:
                yield from self._tell()
            except Exception as error:
                failed = failed or error
        return failed


def _by_partition(results: list[Acknowledgement]) -> dict[TopicPartition, KohortError | None]:
    """Returns what came of a commit; a partition of which anything failed has that error."""
    found: dict[TopicPartition, KohortError | None] = {}
    for result in results:
        place = result.origin.partition.place
        found[place] = found.get(place) or result.error
    return found
