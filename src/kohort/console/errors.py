"""How what goes wrong is answered: one form of JSON, with a status that fits and words that say what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from kohort.client.errors import (
    AuthenticationFailed,
    AuthorizationFailed,
    PartlyFailed,
    TimedOut,
    WrongArgument,
)
from kohort.console.models import ErrorAnswer
from kohort.errors import KohortError
from kohort.wire.errors import ErrorCode, KafkaError

_NOT_FOUND = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.OFFSET_OUT_OF_RANGE,
}
_CONFLICT = {
    ErrorCode.NON_EMPTY_GROUP,
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
}
_WRONG = {
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.INVALID_GROUP_ID,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.INVALID_PARTITIONS,
    ErrorCode.UNSUPPORTED_VERSION,
}
_AWAY = {
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.BROKER_NOT_AVAILABLE,
}
_WORDS = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    409: "conflict",
    413: "too_large",
    415: "unsupported_media_type",
    421: "wrong_host",
    503: "unreachable",
}
ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": ErrorAnswer, "description": "A parameter is wrong; the message says which one."},
    403: {
        "model": ErrorAnswer,
        "description": "The request came from another site, or the cluster forbids it.",
    },
    404: {"model": ErrorAnswer, "description": "There is no such group, topic, node or message (any more)."},
    421: {"model": ErrorAnswer, "description": "The Host header names another machine."},
    502: {"model": ErrorAnswer, "description": "The cluster answered with an error."},
    503: {"model": ErrorAnswer, "description": "The cluster cannot be reached."},
}
"""The answers that any request may get, for the description in OpenAPI."""
CHANGE_ERRORS: dict[int | str, dict[str, Any]] = {
    **ERRORS,
    401: {"model": ErrorAnswer, "description": "The token is missing or wrong."},
    409: {
        "model": ErrorAnswer,
        "description": "The group does not allow it now, for example because it has members.",
    },
    413: {"model": ErrorAnswer, "description": "The body is too large."},
    415: {"model": ErrorAnswer, "description": "The body is not application/json."},
}


class RequestRefused(Exception):
    """What the console itself answers with an error."""

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message = status, message
        self.code = code or _WORDS.get(status, "error")


def error_response(
    status: int, code: str, message: str, headers: dict[str, str] | None = None
) -> JSONResponse:
    """Makes the answer."""
    return JSONResponse({"error": {"code": code, "message": message}}, status, headers)


def status_of(error: KohortError) -> tuple[int, str]:
    """Returns the status and the word for an error of the client."""
    if isinstance(error, PartlyFailed) and error.errors:
        return status_of(next(iter(error.errors.values())))
    if isinstance(error, TimedOut):
        return 503, "unreachable"
    if isinstance(error, (AuthenticationFailed, AuthorizationFailed)):
        return 403, "forbidden"
    if isinstance(error, WrongArgument):
        return 400, "bad_request"
    if isinstance(error, KafkaError):
        for codes, status in ((_NOT_FOUND, 404), (_CONFLICT, 409), (_WRONG, 400), (_AWAY, 503)):
            if error.code in codes:
                return status, error.code.name
        return 502, error.code.name
    return 502, "cluster_error"


def answer_errors(app: FastAPI) -> None:
    """Makes the app answer every error in the form of the API."""

    @app.exception_handler(RequestRefused)
    async def refused(request: Request, error: RequestRefused) -> JSONResponse:
        return error_response(error.status, error.code, error.message)

    @app.exception_handler(KohortError)
    async def of_the_client(request: Request, error: KohortError) -> JSONResponse:
        status, code = status_of(error)
        return error_response(status, code, str(error))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        return error_response(400, "bad_request", _in_words(error.errors()))

    @app.exception_handler(HTTPException)
    async def of_starlette(request: Request, error: HTTPException) -> JSONResponse:
        code = _WORDS.get(error.status_code, "error")
        message = str(error.detail)
        if error.status_code == 404:
            message = "there is nothing here; /api/openapi.json lists what there is"
        return error_response(error.status_code, code, message, dict(error.headers or {}))


def _in_words(errors: Sequence[Any]) -> str:
    """Says for each wrong parameter what is wrong with it, without repeating what may be a megabyte long."""
    said = []
    for each in errors[:5]:
        place = ".".join(str(part) for part in each["loc"] if part not in ("query", "body")) or "body"
        said.append(f"{place[:200]}: {str(each['msg'])[:300]}")
    more = f"; and {len(errors) - 5} more" if len(errors) > 5 else ""
    return "; ".join(said) + more
