"""What a model was told and said, kept with its session: one entry of the journal for each step.

A step is a list of messages in pydantic-ai's own JSON, appended to the session's store. Only what
is new is written, so a long conversation costs no more to continue than a short one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
)

from holdfast.journal.fold import Message

if TYPE_CHECKING:
    from holdfast.agents.authored import AuthoredSession

log = logging.getLogger(__name__)

KEY = "messages"
"""Where in the session's store the steps are: a list of lists of messages."""

CANCELLED = "cancelled: the call was stopped before it had a result"
"""What the model is told of a tool call that nobody finished."""


class Memory:
    """The messages of one session; `steps` counts what was kept of them."""

    def __init__(self, session: AuthoredSession) -> None:
        self._session = session
        self._store = session.store
        self.steps = 0

    async def read(self) -> list[ModelMessage]:
        """All that a model has to be given to go on, in a form that every model takes."""
        found: list[ModelMessage] = []
        steps = self._store.get(KEY, [])
        self.steps = len(steps)
        for step in steps:
            try:
                found += ModelMessagesTypeAdapter.validate_python(step)
            except ValueError:
                log.warning("session %s: messages that cannot be read", self._session.id)
        if found and isinstance(found[-1], ModelRequest):
            found += await self._unfinished(found)
        return mended(found)

    async def save(self) -> None:
        """Wait until what was added is in the journal."""
        await self._store.save()

    def add(self, messages: Sequence[ModelMessage]) -> None:
        """Have these messages journalled with what comes next, or at the end of the turn."""
        if messages:
            self._store.append(KEY, _dumped(messages))
            self.steps += 1

    def forget_after(self, steps: int) -> None:
        """Take back what was kept after so many steps."""
        self._store[KEY] = self._store.get(KEY, [])[:steps]
        self.steps = steps

    def begin_with(self, messages: Sequence[ModelMessage]) -> None:
        """Let the conversation begin anew, with these messages."""
        self._store[KEY] = [_dumped(messages)]
        self.steps = 1

    async def _unfinished(self, messages: Sequence[ModelMessage]) -> list[ModelMessage]:
        """The answer to the last request as far as the client saw it, when we were killed in it."""
        timeline = (await self._session.history()).timeline
        last = timeline[-1] if timeline else None
        if not isinstance(last, Message) or last.role != "agent" or not last.text:
            return []
        known = (message.text for message in messages if isinstance(message, ModelResponse))
        if any(text and text in last.text for text in known):
            return []  # it is, or begins with, what was said earlier
        return [ModelResponse(parts=[TextPart(last.text)], state="interrupted")]


def mended(messages: Iterable[ModelMessage]) -> list[ModelMessage]:
    """The messages with one result behind each tool call, and none without a call.

    Model services refuse anything else. Calls of which only half arrived are left out.
    """
    whole: list[ModelMessage] = []
    called: dict[str, str] = {}
    for message in messages:
        if isinstance(message, ModelRequest):
            message = _answering(message, called)
            called = {}
        else:
            if called:
                whole.append(_answering(ModelRequest(parts=[]), called))
            message = _usable(message)
            called = {
                part.tool_call_id: part.tool_name
                for part in message.parts
                if isinstance(part, ToolCallPart)
            }
        if message.parts:
            whole.append(message)
    if called:
        whole.append(_answering(ModelRequest(parts=[]), called))
    return whole


def _answering(request: ModelRequest, called: dict[str, str]) -> ModelRequest:
    """The request with a result for each of the calls, in front of what else it holds."""
    results: dict[str, ToolReturnPart | RetryPromptPart] = {}
    others = []
    for part in request.parts:
        if isinstance(part, ToolReturnPart) or (
            isinstance(part, RetryPromptPart) and part.tool_name is not None
        ):
            if part.tool_call_id in called:
                results.setdefault(part.tool_call_id, part)
        else:
            others.append(part)
    for call_id, name in called.items():
        cancelled = ToolReturnPart(name, CANCELLED, tool_call_id=call_id, outcome="interrupted")
        results.setdefault(call_id, cancelled)
    return replace(request, parts=[*results.values(), *others], state="complete")


def _usable(response: ModelResponse) -> ModelResponse:
    """A response that was cut off without what a service would stumble over."""
    if response.state == "complete":
        return response
    # Thoughts are signed when they are complete, and refused when they are not.
    parts = [
        part
        for part in response.parts
        if not isinstance(part, ThinkingPart)
        and not (isinstance(part, ToolCallPart) and not _is_whole(part))
        and not (isinstance(part, TextPart) and not part.content)
    ]
    return replace(response, parts=parts, state="interrupted")


def _is_whole(call: ToolCallPart) -> bool:
    try:
        call.args_as_dict(raise_if_invalid=True)
    except (ValueError, AssertionError):
        return False
    return True


def _lean(message: ModelMessage) -> ModelMessage:
    """Without what is the same each time, or says where the service is: URLs can hold passwords."""
    if isinstance(message, ModelRequest):
        return replace(message, instructions=None, run_id=None, conversation_id=None)
    return replace(message, provider_url=None, run_id=None, conversation_id=None)


def _dumped(messages: Sequence[ModelMessage]) -> object:
    lean = [_lean(message) for message in messages]
    return ModelMessagesTypeAdapter.dump_python(lean, mode="json", exclude_none=True)
