"""What a model does while it streams in, shown to the client: text, thoughts, tool calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct
from pydantic_ai.messages import (
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
    ToolReturnPart,
)

from holdfast.agents.model.sketches import Sketch, absolute, partial_arguments
from holdfast.schema import ToolCallLocation

if TYPE_CHECKING:
    from pydantic_ai.messages import AgentStreamEvent

    from holdfast.agents.toolcall import RunningTool
    from holdfast.agents.turn import Turn

UNSHOWN = frozenset({"plan"})
"""Tools whose calls are no news of their own: what they do is shown in another way."""

PEEK_BYTES = 4096
"""Behind so much of its arguments, a call's title is not looked for any more."""

SETTLED = ("completed", "failed")

Draw = Callable[[str, dict[str, object]], Sketch]
"""How a call looks, by the name of the tool and its arguments so far."""


class _Streaming(Struct):
    """A call whose arguments arrive: what there is of them, and how much was looked at last."""

    call: RunningTool
    name: str
    arguments: str
    looked_at: int = 0


class Showing:
    """The tool calls of a turn by the model's ids, and where in its stream it is.

    A call is pending from its first word on; what runs it says the rest, see `Work.running`.
    """

    def __init__(self, turn: Turn, draw: Draw) -> None:
        self._turn = turn
        self._draw = draw
        self._calls: dict[str, RunningTool] = {}
        self._streaming: dict[int, _Streaming] = {}
        self._said = False

    def call(self, call_id: str) -> RunningTool | None:
        """The call with this id, if it is shown."""
        return self._calls.get(call_id)

    async def event(self, event: AgentStreamEvent) -> None:
        """Show one event of the stream."""
        match event:
            case PartStartEvent(index=index, part=ToolCallPart() as part):
                await self._begin(index, part)
            case PartStartEvent(part=TextPart(content=text)):
                await self._say(text, begins=True)
            case PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
                await self._say(text)
            case PartStartEvent(part=ThinkingPart(content=text)):
                await self._think(text)
            case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=text)):
                await self._think(text or "")
            case PartDeltaEvent(index=index, delta=ToolCallPartDelta() as delta):
                await self._go_on(index, delta)
            case PartEndEvent(index=index, part=ToolCallPart() as part):
                await self._end(index, part)
            case FunctionToolCallEvent(part=part):
                await self._known(part)
            case FunctionToolResultEvent(part=part):
                await self._result(part)
            case _:
                pass  # of no interest to the person, or newer than this release

    def next_response(self) -> None:
        """The model begins anew: what it says now is another paragraph, calls are other calls."""
        self._streaming.clear()
        self._apart = self._said

    # -- words ----------------------------------------------------------------------------

    async def _say(self, text: str, *, begins: bool = False) -> None:
        if not text:
            return
        if begins and self._apart:
            text = f"\n\n{text}"
        self._apart = False
        self._said = True
        await self._turn.say(text)

    async def _think(self, text: str) -> None:
        if text:
            await self._turn.think(text)

    # -- tool calls -----------------------------------------------------------------------

    async def _begin(self, index: int, part: ToolCallPart) -> None:
        if part.tool_name in UNSHOWN:
            return
        arguments = part.args_as_json_str() if isinstance(part.args, dict) else part.args or ""
        call = await self._announce(part, partial_arguments(arguments))
        self._streaming[index] = _Streaming(call, part.tool_name, arguments, len(arguments))

    async def _announce(self, part: ToolCallPart, arguments: dict[str, object]) -> RunningTool:
        look = self._draw(part.tool_name, arguments)
        call = self._turn.tool(look.title, kind=look.kind, locations=self._locations(look))
        self._calls[part.tool_call_id] = call
        self._said = self._apart = False  # a call stands between
        await call.announce()
        return call

    async def _go_on(self, index: int, delta: ToolCallPartDelta) -> None:
        streaming = self._streaming.get(index)
        if streaming is None or not isinstance(delta.args_delta, str):
            return
        streaming.arguments += delta.args_delta
        size = len(streaming.arguments)
        # Not at each piece: what has come is read from its beginning.
        if size < 2 * streaming.looked_at or streaming.looked_at > PEEK_BYTES:
            return
        streaming.looked_at = size
        look = self._draw(streaming.name, partial_arguments(streaming.arguments))
        if look.title != streaming.call.title:
            await self._redraw(streaming.call, look)

    async def _end(self, index: int, part: ToolCallPart) -> None:
        if self._streaming.pop(index, None) is not None:
            await self._known(part)

    async def _known(self, part: ToolCallPart) -> None:
        """All arguments are there."""
        if part.tool_name in UNSHOWN:
            return
        arguments = partial_arguments(part.args_as_json_str())
        call = self._calls.get(part.tool_call_id)
        if call is None:
            call = await self._announce(part, arguments)
        elif call.inputs is arguments:
            return
        await self._redraw(call, self._draw(part.tool_name, arguments), arguments)

    async def _redraw(
        self, call: RunningTool, look: Sketch, arguments: dict[str, object] | None = None
    ) -> None:
        ...

    async def _result(self, part: ToolReturnPart) -> None:
        """A call that never ran: a tool there is not, or arguments that it does not take."""
        call = self._calls.get(part.tool_call_id)
        if call is not None and call.status not in SETTLED:
            await call.fail(part.model_response_str(wrap_if_error=False))

    def _locations(self, look: Sketch) -> list[ToolCallLocation]:
        if look.path is None:
            return []
        path = absolute(look.path, self._turn.session.cwd)
        return [ToolCallLocation(path=path, line=look.line)]
