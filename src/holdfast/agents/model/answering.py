"""One prompt, answered by a model: its requests, its tools, and how that ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from pydantic_ai import Agent, RunContext, UsageLimits
from pydantic_ai.exceptions import (
    ContentFilterError,
    ModelAuthenticationError,
    ModelContextWindowExceededError,
    ModelNotFoundError,
    ModelRequestRejectedError,
)

from holdfast.agents.model.accounts import Accounts
from holdfast.agents.model.instructing import MODES, instructions
from holdfast.agents.model.memory import Memory
from holdfast.agents.model.modes import PLAN
from holdfast.agents.model.prompting import joined, user_content
from holdfast.agents.model.servers import ServerTools
from holdfast.agents.model.tools import CHANGING, own_tools
from holdfast.agents.model.work import Work
from holdfast.agents.stopping import MaxTokens, Refusal

if TYPE_CHECKING:
    from pydantic_ai.agent import AgentRun
    from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse
    from pydantic_ai.models import Model
    from pydantic_ai.settings import ModelSettings
    from pydantic_ai.tools import ToolDefinition

    from holdfast.agents.turn import Turn

    Run: TypeAlias = AgentRun[Work, str | None]

RETRIES = 5
"""How often in a row a model may call a tool with arguments that it does not take."""

NOT_ABOUT_IT = (
    ModelAuthenticationError,
    ModelContextWindowExceededError,
    ModelNotFoundError,
)
"""Rejections of a request that can be mended without taking it back."""


class Answering:
    """Answers prompts with models; keeps nothing between them.

    `max_requests` is how often a model is asked in one turn. `context_window`, in tokens, is for
    models of which nobody knows it.
    """

    def __init__(self, max_requests: int, context_window: int | None) -> None:
        self._limits = UsageLimits(request_limit=max_requests)
        self._context_window = context_window
        self._agent: Agent[Work, str | None] = Agent(
            deps_type=Work,
            name="holdfast",
            # A model that has nothing to add to what its tools did need not be asked again.
            output_type=[str, type(None)],
            toolsets=[own_tools().filtered(_is_offered)],
            retries=RETRIES,
        )

    async def answer(self, turn: Turn, model: Model, settings: ModelSettings) -> list[ModelMessage]:
        """Run the turn; the whole conversation behind it.

        Raises StopTurn, and what pydantic-ai raises. What was said and done until then is
        remembered, but for a prompt that the model refused (spec v1, prompt turn, "Stop Reasons").
        """
        memory = Memory(turn.session)
        history = await memory.read()
        before = memory.steps
        servers = ServerTools()
        work = Work(turn, servers.draw)
        progress: _Progress | None = None
        try:
            async with self._agent.iter(
                joined(user_content(turn.prompt)),
                message_history=history,
                model=model,
                model_settings=settings,
                deps=work,
                instructions=[await instructions(turn.session), _mode],
                toolsets=[servers],
                usage_limits=self._limits,
                infer_name=False,
            ) as run:
                progress = _Progress(run, memory)
                await self._follow(progress, work)
        except (ContentFilterError, Refusal):
            progress = None
            memory.forget_after(before)
            raise Refusal from None
        except ModelRequestRejectedError as error:
            if progress is not None and not isinstance(error, NOT_ABOUT_IT):
                # The service takes it no more tomorrow than today: an image it cannot read, say.
                memory.forget_after(progress.before_request)
                progress = None
            raise
        finally:
            if progress is not None:
                progress.keep_rest()
        return progress.run.all_messages()

    async def _follow(self, progress: _Progress, work: Work) -> None:
        """Take the run from step to step."""
        run = progress.run
        reason = None
        async for node in run:
            if Agent.is_model_request_node(node):
                await progress.asking(node.request)
                work.showing.next_response()
                async with node.stream(run.ctx) as stream:
                    async for event in stream:
                        await work.showing.event(event)
            elif Agent.is_call_tools_node(node):
                await progress.answered()
                await self._account(work.turn, node.model_response, run)
                reason = node.model_response.finish_reason
                async with node.stream(run.ctx) as happening:
                    async for event in happening:
                        await work.showing.event(event)
        if reason == "length":
            raise MaxTokens
        if reason == "content_filter":
            raise Refusal

    async def _account(self, turn: Turn, response: ModelResponse, run: Run) -> None:
        accounts = Accounts(turn.session)
        accounts.pay(response.usage)
        window = self._context_window or run.ctx.deps.model.context_window
        await accounts.tell(turn, response.usage, window)


class _Progress:
    """A run, and how many of its messages have been kept.

    `before_request` is how many steps the memory had before the last request.
    """

    def __init__(self, run: Run, memory: Memory) -> None:
        self.run = run
        self.before_request = memory.steps
        self._memory = memory
        self._kept = 0

    async def asking(self, request: ModelRequest) -> None:
        """Keep a request before it is sent: if we are killed, the model hears of it again."""
        self.before_request = self._memory.steps
        self._memory.add([request])
        self._kept += 1
        await self._memory.save()

    async def answered(self) -> None:
        """Keep what there is since."""
        self.keep_rest()
        await self._memory.save()

    def keep_rest(self) -> None:
        """Have kept what there is since, half an answer included, at the end of the turn."""
        new = self.run.new_messages()[self._kept :]
        self._memory.add(new)
        self._kept += len(new)


def _is_offered(ctx: RunContext[Work], tool: ToolDefinition) -> bool:
    return ctx.deps.mode != PLAN or tool.name not in CHANGING


def _mode(ctx: RunContext[Work]) -> str:
    return MODES.get(ctx.deps.mode, "")
