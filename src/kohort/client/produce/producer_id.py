"""Asks a broker for the producer's id until there is one. Sans-IO; belongs to the sender."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kohort.client.config import ProducerConfig
from kohort.client.core.backoff import Backoff
from kohort.client.core.effects import ANY_NODE, Answer, FailureKind, Outbox, Send
from kohort.client.errors import AuthenticationFailed, error_for
from kohort.client.produce.idempotence import Idempotence
from kohort.client.produce.produce_errors import RETRIABLE, code_of, outcome_of
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


class ProducerId:
    """Has at most one InitProducerId request in flight, and hands its answer to Idempotence."""

    def __init__(
        self,
        out: Outbox,
        config: ProducerConfig,
        idempotence: Idempotence,
        backoff: Backoff,
        fail: Callable[[Exception], None],
    ) -> None:
        """`fail` ends all records that wait for an id, when there will be none."""
        self._out, self._config, self._idempotence, self._backoff = out, config, idempotence, backoff
        self._fail = fail
        self._asking: int | None = None  # the attempt that is in flight
        self._attempts = 0
        self._failures = 0
        self._not_before_ms = 0

    def tick(self, now_ms: int) -> int | None:
        """Asks if there is no id and it is time; else returns when to look again."""
        if self._idempotence.has_id or self._asking is not None:
            return None
        if now_ms < self._not_before_ms:
            return self._not_before_ms
        self._attempts += 1
        self._asking = self._attempts
        self._out.append(
            Send(
                ANY_NODE,
                InitProducerIdRequest.API_KEY,
                lambda version: InitProducerIdRequest(
                    transactional_id=None, transaction_timeout_ms=0x7FFF_FFFF
                ),
                "sender.init_producer_id",
                self._config.request_timeout_ms,
                on_answer=partial(self._answered, self._attempts),
            )
        )
        return None

    def _answered(self, attempt: int, answer: Answer, now_ms: int) -> None:
        if attempt != self._asking:
            return
        self._asking = None
        error = self._take(answer, now_ms)
        if error is not None:
            self._fail(error)

    def _take(self, answer: Answer, now_ms: int) -> Exception | None:
        """Returns the error that ends all records that wait for an id; None if it is there, or is asked for again."""
        if answer.failure is None:
            response: InitProducerIdResponse = answer.response
            code = code_of(response.error_code)
            if code is ErrorCode.NONE:
                self._failures = 0
                self._idempotence.take_id(response.producer_id, response.producer_epoch)
                return None
        self._failures += 1
        self._not_before_ms = now_ms + self._backoff.after(self._failures)
        if answer.failure is not None:
            if answer.failure.is_retriable:
                return None
            if answer.failure.kind is FailureKind.AUTHENTICATION:
                return AuthenticationFailed(answer.failure.message)
            code = outcome_of(answer.failure).code
        if code in RETRIABLE:
            return None
        return error_for(
            code,
            "the broker gives no producer id, which enable.idempotence=true needs: allow this client to write "
            "(IDEMPOTENT_WRITE on the cluster, or WRITE on a topic) or set enable.idempotence=false",
        )
