"""What a model was told and said, kept with its session: one entry of the journal for each step.

The values `messages/0`, `messages/1`, … of the session's store are lists of messages in
pydantic-ai's own JSON. They are added to and never rewritten, so a long conversation costs no more
to continue than a short one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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

KEY = "messages/"
FIRST = "messages-begin"
"""The number of the first list that still counts: what was said before it has been summed up."""

CANCELLED = "cancelled: the call was stopped before it had a result"
"""What the model is told of a tool call that nobody finished."""


class Memory:
    """The messages of one session, in order; `next` is the number of the next list."""

    def __init__(self, session: AuthoredSession) -> None:
        self._session = session
        self._store = session.store
        self.next = 1 + max(self._numbers(), default=int(self._store.get(FIRST, 0)) - 1)

    def messages(self) -> list[ModelMessage]:
        """All that a model has to be given to go on, in a form that every model takes."""
        begin = int(self._store.get(FIRST, 0))
        found: list[ModelMessage] = []
        for number in sorted(self._numbers()):
            if number >= begin:
                found += ModelMessagesTypeAdapter.validate_python(self._store[f"{KEY}{number}"])
        if found and isinstance(found[-1], ModelRequest):
            found += self._unfinished(found[-1])
        return mended(found)

    async def add(self, messages: Sequence[ModelMessage]) -> None:
        """Journal these messages."""
        self.hold(messages)
        await self._session.store.save()

    def hold(self, messages: Sequence[ModelMessage]) -> None:
        """Have these messages journalled with what comes next, or at the end of the turn."""
        if messages:
            lean = [_lean(message) for message in messages]
            kept = ModelMessagesTypeAdapter.dump_python(lean, mode="json", exclude_none=True)
            self._store[f"{KEY}{self.next}"] = kept
            self.next += 1

    def forget_from(self, number: int) -> None:
        """Take back the lists from `number` on."""
        for late in [each for each in self._numbers() if each >= number]:
            del self._store[f"{KEY}{late}"]
        self.next = number

    def begin_with(self, messages: Sequence[ModelMessage]) -> None:
        """Let the conversation begin anew, with these messages."""
        self._store[FIRST] = self.next
        self.hold(messages)

    def _numbers(self) -> Iterator[int]:
        return (int(key[len(KEY) :]) for key in self._store if key.startswith(KEY))

    def _unfinished(self, request: ModelRequest) -> list[ModelMessage]:
        """The answer to `request` as far as the client saw it, when we were killed in it."""
        if any(isinstance(part, ToolReturnPart) for part in request.parts):
            said = ""  # what was said behind a tool is not told from what was said before it
        else:
            said = _last_said(self._session)
        return [ModelResponse(parts=[TextPart(said)], state="interrupted")] if said else []


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


def _last_said(session: AuthoredSession) -> str:
    """What the agent said last, if nothing has happened since."""
    timeline = session.state.timeline
    last = timeline[-1] if timeline else None
    if not isinstance(last, Message) or last.role != "agent":
        return ""
    return last.text
