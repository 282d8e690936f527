"""What the calls of Admin have in common: asking, waiting for the answer, and saying what failed."""

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
    def __init__(self, requests: Requests, metadata: Metadata, clock: Callable[[], int]) -> None:
        self._requests, self._metadata, self._clock = requests, metadata, clock
        self.obstacle: Callable[[], str] = lambda: ""
        """What the network is struggling with, for the text of a timeout."""

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
        """Asks without waiting: several nodes answer at the same time."""
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
        """Metadata of these topics (None: of all), fresh."""
        wanted = None if topics is None else frozenset(topics)
        operation = self._metadata.look_up(wanted, self._clock(), deadline_ms)
        return (yield from self.wait(operation, deadline_ms))

    def wait(self, operation: Operation[T], deadline_ms: int) -> Steps[T]:
        yield Until(lambda: operation.done, deadline_ms)
        if not operation.done:
            operation.fail(TimedOut("no answer in time"))
        if isinstance(operation.error, TimedOut) and (obstacle := self.obstacle()):
            raise TimedOut(f"{operation.error}; {obstacle}")
        return operation.value()

    def may_try_again(self, attempts: int, deadline_ms: int) -> bool:
        """For calls that ask again by themselves, because another node may know it then."""
        return attempts <= self._requests.retries and self._clock() < deadline_ms

    def timeout_ms(self, deadline_ms: int) -> int:
        """What is left, for requests that tell the broker how long it may take."""
        return max(1, min(deadline_ms - self._clock(), 2**31 - 1))


def raise_partly(errors: Mapping[Any, KafkaError], results: Mapping[Any, Any]) -> NoReturn:
    """One thing that failed alone raises its own error."""
    if len(errors) == 1 and not results:
        raise next(iter(errors.values()))
    raise PartlyFailed(errors, results)


def outcome(rows: Iterable[tuple[Any, Any, Any]]) -> dict[Any, Any]:
    """(item, row with error_code and maybe error_message, result): the results, if nothing failed."""
    results: dict[Any, Any] = {}
    errors: dict[Any, KafkaError] = {}
    for item, row, result in rows:
        if row.error_code:
            errors[item] = error_for(row.error_code, getattr(row, "error_message", None) or str(item))
        else:
            results[item] = result
    if errors:
        raise_partly(errors, results)
    return results
