"""What goes wrong with a model, in words for the person; and the ends of a turn it stands for."""

from __future__ import annotations

import json
from http import HTTPStatus

from pydantic_ai.exceptions import (
    AgentRunError,
    ContentFilterError,
    FallbackExceptionGroup,
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelNotFoundError,
    ModelRateLimitError,
    OutputTokenLimitExceeded,
    UnexpectedModelBehavior,
    UsageLimitExceeded,
    UserError,
)

from holdfast.agents.model.secrecy import without_lookalikes
from holdfast.agents.stopping import MaxTokens, MaxTurnRequests, Refusal, StopTurn
from holdfast.errors import ModelError

LONGEST = 600
"""Characters of what a service says that are passed on."""

WHAT_TO_DO: tuple[tuple[type[ModelAPIError], str], ...] = (
    (ModelAuthenticationError, "check the API key that holdfast was started with"),
    (ModelContextWindowExceededError, "the conversation is too long; try /compact"),
    (ModelNotFoundError, "check the name of the model, and the base URL"),
    (ModelRateLimitError, "wait a little and try again"),
    (ModelConnectionError, "check the network, and the base URL"),
)

Failure = AgentRunError | UserError | FallbackExceptionGroup
"""What pydantic-ai raises when it is not our mistake."""

FAILURES = (AgentRunError, UserError, FallbackExceptionGroup)


def meaning(error: Failure, model: str) -> StopTurn | ModelError:
    """The end of the turn that `error` stands for, or what to tell the person."""
    match error:
        case UsageLimitExceeded():
            return MaxTurnRequests()
        case OutputTokenLimitExceeded():
            return MaxTokens()
        case ContentFilterError():
            return Refusal()
        case ModelAPIError():
            return _service_error(error, model)
        case UnexpectedModelBehavior():
            return ModelError(f"{model} does not answer as it should: {_clean(error.message)}")
        case _:
            return unusable(error, model)


def unusable(error: Exception, model: str) -> ModelError:
    """What to tell of a model that cannot even be asked."""
    return ModelError(f"{model} cannot be used: {_clean(str(error)) or type(error).__name__}")


def _service_error(error: ModelAPIError, model: str) -> ModelError:
    status = error.status_code if isinstance(error, ModelHTTPError) else None
    said = _clean(_said(error.body) or ("" if status else error.message))
    message = f"{model}: the service answered {_named(status)}" if status else f"{model}: no answer"
    if said:
        message += f": {said}"
    advice = next((advice for kind, advice in WHAT_TO_DO if isinstance(error, kind)), None)
    return ModelError(f"{message} — {advice}" if advice else message, status)


def _named(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def _said(body: object) -> str:
    """The message in the body of an error, however deep a service puts it."""
    if isinstance(body, str):
        try:
            return _said(json.loads(body)) or body
        except ValueError:
            return "" if body.lstrip().startswith("<") else body  # a proxy's page
    if isinstance(body, list):
        return next(filter(None, map(_said, body)), "")
    if isinstance(body, dict):
        found = (_said(body.get(key)) for key in ("message", "error", "detail"))
        return next(filter(None, found), "")
    return ""


def _clean(text: str) -> str:
    text = " ".join(without_lookalikes(text).split())
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
