"""The clocks of a group member: when a heartbeat is due, when the session is over, when poll is overdue.

membership.py and consumer_membership.py send the heartbeats themselves.
"""

from __future__ import annotations

from dataclasses import dataclass

from kohort.client.core.backoff import Backoff


@dataclass(slots=True, kw_only=True)
class PollClock:
    """Whether the user is in poll, and since when it is not."""

    max_poll_interval_ms: int
    polled_ms: int = 0
    """The last moment at which the user was in poll."""
    in_poll: bool = False
    """Whether the user is in poll now."""

    def poll_began(self, now_ms: int) -> None:
        self.in_poll = True
        self.polled(now_ms)

    def poll_ended(self, now_ms: int) -> None:
        self.in_poll = False
        self.polled(now_ms)

    def user_works(self) -> None:
        """The user is not in poll, whatever was said last."""
        self.in_poll = False

    def polled(self, now_ms: int) -> None:
        """`max.poll.interval.ms` counts from now."""
        self.polled_ms = max(self.polled_ms, now_ms)

    @property
    def poll_deadline_ms(self) -> int:
        return self.polled_ms + self.max_poll_interval_ms

    def poll_is_overdue(self, now_ms: int) -> bool:
        return now_ms >= self.poll_deadline_ms


@dataclass(slots=True, kw_only=True)
class Heartbeats(PollClock):
    """The clocks of a classic member."""

    interval_ms: int
    session_timeout_ms: int
    backoff: Backoff
    next_ms: int = 0
    session_deadline_ms: int = 0
    coordinators_found: int = 0
    """How often a coordinator had been found when the clocks last began with one."""
    in_flight: int | None = None
    """The number of the heartbeat that is under way; answers to earlier ones say nothing about the clocks."""
    sent: int = 0
    failures: int = 0

    def joined(self, now_ms: int) -> None:
        """A join was answered: all clocks begin again."""
        self.next_ms = now_ms + self.interval_ms
        self.session_deadline_ms = now_ms + self.session_timeout_ms
        self.polled_ms = max(self.polled_ms, now_ms)
        self.in_flight, self.failures = None, 0

    def coordinator_found(self, coordinators_found: int, now_ms: int) -> None:
        """Another coordinator gets a heartbeat at once, and a whole session to answer it."""
        self.coordinators_found = coordinators_found
        self.session_deadline_ms = now_ms + self.session_timeout_ms
        self.next_ms = min(self.next_ms, now_ms)
        self.in_flight = None

    def joins(self, coordinators_found: int) -> None:
        """A join goes to the coordinator that was found last; the clocks begin with its answer."""
        self.coordinators_found = coordinators_found

    def is_for_another(self, coordinators_found: int) -> bool:
        """Whether another coordinator was found since the clocks began."""
        return self.coordinators_found != coordinators_found

    def send(self, now_ms: int) -> int:
        """A heartbeat goes out; returns its number."""
        self.sent += 1
        self.in_flight = self.sent
        self.next_ms = now_ms + self.interval_ms
        return self.sent

    def received(self, now_ms: int) -> None:
        """The coordinator answered: the session begins again."""
        self.in_flight, self.failures = None, 0
        self.session_deadline_ms = now_ms + self.session_timeout_ms

    def failed(self, now_ms: int) -> None:
        """No answer, or one that helps nothing: the next heartbeat waits for the backoff."""
        self.in_flight = None
        self.failures += 1
        self.next_ms = now_ms + self.backoff.after(self.failures)

    def is_due(self, now_ms: int) -> bool:
        return self.in_flight is None and now_ms >= self.next_ms

    def session_is_over(self, now_ms: int) -> bool:
        return now_ms >= self.session_deadline_ms

    def next_deadline_ms(self, with_poll: bool) -> int:
        due = [self.session_deadline_ms]
        if with_poll:
            due.append(self.poll_deadline_ms)
        if self.in_flight is None:
            due.append(self.next_ms)
        return min(due)


@dataclass(slots=True, kw_only=True)
class EpochHeartbeats(PollClock):
    """The clocks of a member of the consumer protocol: the coordinator says the interval, and keeps the session."""

    backoff: Backoff
    interval_ms: int = 0
    next_ms: int = 0
    not_before_ms: int = 0
    """No heartbeat is sent before this, whatever it has to say."""
    in_flight: int | None = None
    """The number of the heartbeat that is under way."""
    sent: int = 0
    failures: int = 0

    def send(self, now_ms: int) -> int:
        """A heartbeat goes out; returns its number."""
        self.sent += 1
        self.in_flight = self.sent
        self.next_ms = now_ms + self.interval_ms
        return self.sent

    def received(self, interval_ms: int, now_ms: int) -> None:
        """The coordinator answered, and said how often it wants to hear of this member."""
        self.in_flight, self.failures, self.not_before_ms = None, 0, 0
        if interval_ms > 0:
            self.next_ms += interval_ms - self.interval_ms
            self.interval_ms = interval_ms
        self.next_ms = max(self.next_ms, now_ms)

    def failed(self, now_ms: int) -> None:
        """No answer, or one that helps nothing: the next heartbeat waits for the backoff."""
        self.in_flight = None
        self.failures += 1
        self.not_before_ms = self.next_ms = now_ms + self.backoff.after(self.failures)

    def restart(self, now_ms: int) -> None:
        """The next heartbeat may leave at once: to another coordinator, or to join again."""
        self.in_flight, self.not_before_ms = None, 0
        self.next_ms = now_ms

    def hurry(self, now_ms: int) -> None:
        """The next heartbeat does not wait for the interval, only for the answer to the one before."""
        self.next_ms = min(self.next_ms, now_ms)

    def due_ms(self, *, at_once: bool) -> int | None:
        """When the next heartbeat may leave; None while one is under way."""
        if self.in_flight is not None:
            return None
        return self.not_before_ms if at_once else max(self.next_ms, self.not_before_ms)
