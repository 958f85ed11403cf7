"""An agent on the official Python SDK, without session support: it forgets all at its end.

Its session ids begin at 0 in every process. Words in a prompt steer it: `slow` (an open tool
call, then words until it is cancelled or killed), `recall` (repeats all prompts to this
process), `run` (a command in a terminal of the client); else a thought, a plan, words, and a tool
call with a permission and a diff.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast
from uuid import uuid4

from acp import (
    PROTOCOL_VERSION,
    Agent,
    Client,
    InitializeResponse,
    NewSessionResponse,
    PromptResponse,
    RequestError,
    plan_entry,
    run_agent,
    start_tool_call,
    text_block,
    tool_content,
    tool_diff_content,
    tool_terminal_ref,
    update_agent_message_text,
    update_agent_thought_text,
    update_plan,
    update_tool_call,
)
from acp.schema import (
    AgentCapabilities,
    AllowedOutcome,
    Implementation,
    PermissionOption,
    PromptCapabilities,
    StopReason,
    ToolCallStatus,
    ToolCallUpdate,
)

PAUSE = 0.02
"""Seconds between two words of a slow turn."""


class Plain:
    """One conversation after the other, all in memory."""

    def __init__(self) -> None:
        self._client: Client | None = None
        self._heard: list[list[str]] = []
        self._cancelled = False

    def on_connect(self, conn: Client) -> None:
        self._client = conn

    async def initialize(self, protocol_version: int, **_: Any) -> InitializeResponse:
        can = AgentCapabilities(prompt_capabilities=PromptCapabilities(embedded_context=True))
        who = Implementation(name="plain-python", version="1")
        return InitializeResponse(
            protocol_version=PROTOCOL_VERSION, agent_capabilities=can, agent_info=who
        )

    async def new_session(self, cwd: str, **_: Any) -> NewSessionResponse:
        self._heard.append([])
        return NewSessionResponse(session_id=str(len(self._heard) - 1))

    async def cancel(self, session_id: str, **_: Any) -> None:
        self._cancelled = True

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> PromptResponse:
        if not session_id.isdigit() or int(session_id) >= len(self._heard):
            raise RequestError.resource_not_found(session_id)
        self._cancelled = False
        said = [_text(block) for block in prompt]
        heard = self._heard[int(session_id)]
        heard += said
        if "recall" in said[-1]:
            await self._say(session_id, f"I was given: {' | '.join(heard)}")
        elif "slow" in said[-1]:
            await self._dawdle(session_id)
        elif "run" in said[-1]:
            await self._run(session_id)
        else:
            await self._work(session_id, said[-1])
        stop: StopReason = "cancelled" if self._cancelled else "end_turn"
        return PromptResponse(stop_reason=stop)

    async def _work(self, session_id: str, said: str) -> None:
        await self._tell(session_id, update_agent_thought_text("Let me "))
        await self._tell(session_id, update_agent_thought_text("think."))
        plan = [plan_entry("look", status="in_progress"), plan_entry("change")]
        await self._tell(session_id, update_plan(plan))
        for word in ("You ", "said: ", said):
            await self._say(session_id, word)
        call = f"call-{uuid4().hex}"  # as those of models are: in no other process either
        started = start_tool_call(call, "Change a file", kind="edit", raw_input={"n": 1})
        await self._tell(session_id, started)
        allowed = await self._may(session_id, call)
        diff = tool_diff_content("/tmp/a.txt", "new\n", "old\n")
        await self._tell(session_id, update_tool_call(call, status="in_progress", content=[diff]))
        await self._say(session_id, "Changing it. ")
        status: ToolCallStatus = "completed" if allowed else "failed"
        both = (diff, tool_content(text_block("ok")))
        done = update_tool_call(call, status=status, content=both, raw_output={"lines": 1})
        await self._tell(session_id, done)
        plan = [plan_entry("look", status="completed"), plan_entry("change", status="completed")]
        await self._tell(session_id, update_plan(plan))
        await self._say(session_id, "Done.")

    async def _dawdle(self, session_id: str) -> None:
        call = f"call-{uuid4().hex}"
        started = start_tool_call(call, "Wait", kind="execute", status="in_progress")
        await self._tell(session_id, started)
        number = 0
        while not self._cancelled:
            await self._say(session_id, f"tick{number} ")
            number += 1
            await asyncio.sleep(PAUSE)
        await self._tell(session_id, update_tool_call(call, status="failed"))

    async def _run(self, session_id: str) -> None:
        assert self._client is not None
        shell = ["-c", "echo shown; echo in a terminal"]
        made = await self._client.create_terminal(command="sh", session_id=session_id, args=shell)
        where = {"session_id": session_id, "terminal_id": made.terminal_id}
        shown = [tool_terminal_ref(made.terminal_id)]
        started = start_tool_call("run-1", "Run it", kind="execute", content=shown)
        await self._tell(session_id, started)
        ended = await self._client.wait_for_terminal_exit(**where)
        await self._client.release_terminal(**where)
        await self._tell(session_id, update_tool_call("run-1", status="completed", content=shown))
        await self._say(session_id, f"It ended with {ended.exit_code}.")

    async def _may(self, session_id: str, call: str) -> bool:
        assert self._client is not None
        answer = await self._client.request_permission(
            session_id=session_id,
            tool_call=ToolCallUpdate(tool_call_id=call, title="Change a file"),
            options=[
                PermissionOption(kind="allow_once", name="Yes", option_id="yes"),
                PermissionOption(kind="reject_once", name="No", option_id="no"),
            ],
        )
        return isinstance(answer.outcome, AllowedOutcome) and answer.outcome.option_id == "yes"

    async def _say(self, session_id: str, text: str) -> None:
        await self._tell(session_id, update_agent_message_text(text))

    async def _tell(self, session_id: str, update: Any) -> None:
        assert self._client is not None
        await self._client.session_update(session_id, update)


def _text(block: Any) -> str:
    resource = getattr(block, "resource", None)
    return str(getattr(block if resource is None else resource, "text", ""))


if __name__ == "__main__":
    asyncio.run(run_agent(cast(Agent, Plain())))
