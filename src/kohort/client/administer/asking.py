"""Asks brokers and waits for their answers: what all calls of Admin have in common."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NoReturn

from kohort.client.core.cluster import Cluster
from kohort.client.core.metadata import Metadata
from kohort.client.core.operation import Operation
from kohort.client.core.requests import Requests, Target, Verdict
from kohort.client.core.steps import Steps, T, Until
from kohort.client.errors import PartlyFailed, TimedOut, error_for
from kohort.wire.errors import KafkaError
from kohort.wire.struct import Message


class Asking:
    """The base of the calls; they are written as steps (core/steps.py)."""

    def __init__(
        self,
        requests: Requests,
        metadata: Metadata,
        clock: Callable[[], int],
        obstacle: Callable[[], str] = lambda: "",
    ) -> None:
        """`obstacle` says what the network is struggling with, for the text of a timeout."""
        self._requests, self._metadata, self._clock, self._obstacle = requests, metadata, clock, obstacle

    def ask(
        self,
        request: Message | Callable[[int], Message],
        target: Target,
        deadline_ms: int,
        *,
        api_key: int | None = None,
        verdict: Verdict = lambda response: 0,
        max_version: int | None = None,
    ) -> Steps[Any]:
        operation = self.begin(
            request, target, deadline_ms, api_key=api_key, verdict=verdict, max_version=max_version
        )
        return (yield from self.wait(operation, deadline_ms))

    def begin(
        self,
        request: Message | Callable[[int], Message],
        target: Target,
        deadline_ms: int,
        *,
        api_key: int | None = None,
        verdict: Verdict = lambda response: 0,
        max_version: int | None = None,
        retries: int | None = None,
    ) -> Operation[Any]:
        """Asks without waiting, so that several nodes can answer at the same time."""
        return self._requests.ask(
            request,
            target,
            self._clock(),
            deadline_ms,
            api_key=api_key,
            verdict=verdict,
            max_version=max_version,
            retries=retries,
        )

    def look_up(self, topics: Collection[str] | None, deadline_ms: int) -> Steps[Cluster]:
        """Returns fresh metadata of these topics (None: of all)."""
        wanted = None if topics is None else frozenset(topics)
        operation = self._metadata.look_up(wanted, self._clock(), deadline_ms)
        return (yield from self.wait(operation, deadline_ms))

    def wait(self, operation: Operation[T], deadline_ms: int) -> Steps[T]:
        yield Until(lambda: operation.done, deadline_ms)
        if not operation.done:
            operation.fail(TimedOut("no answer in time"))
        if isinstance(operation.error, TimedOut) and (obstacle := self._obstacle()):
            raise TimedOut(f"{operation.error}; {obstacle}")
        return operation.value()

    def may_try_again(self, attempts: int, deadline_ms: int) -> bool:
        """Whether a call may ask again by itself, because another node may know the answer then."""
        return attempts <= self._requests.retries and self._clock() < deadline_ms

    def timeout_ms(self, deadline_ms: int) -> int:
        """Returns the time that is left, for requests that tell the broker how long it may take."""
        return max(1, min(deadline_ms - self._clock(), 2**31 - 1))


def named(item: Any, said: str | None) -> str:
    """Returns what the broker says of an item, with the item's name: brokers often leave it out."""
    return str(item) if not said else said if str(item) in said else f"{item}: {said}"


def raise_partly(errors: Mapping[Any, KafkaError], results: Mapping[Any, Any]) -> NoReturn:
    """Raises PartlyFailed, or the error itself if there was only one thing to do."""
    if len(errors) == 1 and not results:
        raise next(iter(errors.values()))
    raise PartlyFailed(errors, results)


def outcome(rows: Iterable[tuple[Any, Any, Any]]) -> dict[Any, Any]:
    """Returns the results of (item, row with error_code, result); raises what failed."""
    results: dict[Any, Any] = {}
    errors: dict[Any, KafkaError] = {}
    for item, row, result in rows:
        if row.error_code:
            errors[item] = error_for(row.error_code, named(item, getattr(row, "error_message", None)))
        else:
            results[item] = result
    if errors:
        raise_partly(errors, results)
    return results
