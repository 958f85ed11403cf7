"""One prompt, answered by a model: shown as it comes, kept as it was, ended in plain words."""

from __future__ import annotations

from collections.abc import AsyncIterable

import pydantic_ai.exceptions as errors
import pydantic_ai.messages as events
from pydantic_ai import Agent, FunctionToolset, RunContext, UsageLimits, capture_run_messages
from pydantic_ai.models import Model

import acphold
from memory import Memory
from models import in_plain_words
from prompt import MODES, for_the_model, instructions
from toolbox import TOOLS, server_tools

MAX_REQUESTS = 100  # how often the model is asked in one turn
AGENT: Agent[acphold.Turn, str | None] = Agent(
    deps_type=acphold.Turn,
    output_type=[str, type(None)],  # behind its tool calls a model may have nothing to add
    toolsets=[TOOLS],
    instructions=lambda ctx: MODES[ctx.deps.session.mode or "ask"],  # with each request
    retries=5,  # calls in a row with arguments that do not fit
)


async def answer_prompt(turn: acphold.Turn, model: Model) -> None:
    """Have `model` answer; raises what ends the turn, AcpError for what went wrong."""
    memory = await Memory.recall(turn)
    try:
        await _run(turn, model, memory)
    except errors.UsageLimitExceeded:
        raise acphold.MaxTurnRequests from None
    except errors.OutputTokenLimitExceeded:
        raise acphold.MaxTokens from None
    except (errors.ContentFilterError, acphold.Refusal):
        memory.forget()  # editors take a refused prompt out of the conversation
        raise acphold.Refusal from None
    except (errors.AgentRunError, errors.UserError) as error:
        if isinstance(error, errors.ModelRequestRejectedError):
            memory.forget(last_only=True)  # it would be rejected for ever, an image for instance
        raise in_plain_words(error, model) from None


async def _run(turn: acphold.Turn, model: Model, memory: Memory) -> None:
    """Ask the model and do what it says, until it calls no more tools."""

    async def follow(
        ctx: RunContext[acphold.Turn], stream: AsyncIterable[events.AgentStreamEvent]
    ) -> None:
        """Called with each request that is sent, and with each answer once it is there."""
        memory.keep(ctx.messages)
        await turn.session.store.save()
        if isinstance(answer := ctx.messages[-1], events.ModelResponse):
            await _account(turn, model, answer)
        async for event in stream:
            await _show(turn, event)

    with capture_run_messages() as messages:
        try:
            await AGENT.run(
                for_the_model(turn.prompt),
                model=model,
                message_history=memory.earlier,
                deps=turn,
                instructions=await instructions(turn.session),
                toolsets=[FunctionToolset(await server_tools(turn))],
                event_stream_handler=follow,
                usage_limits=UsageLimits(request_limit=MAX_REQUESTS),
            )
        finally:
            memory.keep(messages)  # of an answer that was cancelled, what there is
    ends = {"length": acphold.MaxTokens, "content_filter": acphold.Refusal}
    if end := ends.get(getattr(messages[-1], "finish_reason", None) or ""):
        raise end


async def _show(turn: acphold.Turn, event: events.AgentStreamEvent) -> None:
    """Show what the model says and thinks; its tools show themselves."""
    match event:
        case (
            events.PartStartEvent(part=events.TextPart(content=text))
            | events.PartDeltaEvent(delta=events.TextPartDelta(content_delta=text))
        ):
            await turn.say(text)
        case (
            events.PartStartEvent(part=events.ThinkingPart(content=text))
            | events.PartDeltaEvent(delta=events.ThinkingPartDelta(content_delta=str(text)))
        ):
            await turn.think(text)
        case events.FunctionToolResultEvent(part=part) if part.outcome == "retried":
            # It never ran: there is no such tool, or it does not take these arguments.
            await turn.tool(part.tool_name).fail(part.model_response_str())
        case _:
            pass


async def _account(turn: acphold.Turn, model: Model, answer: events.ModelResponse) -> None:
    """Show how full the context is and what the session has cost, as far as anybody knows."""
    usage, store = answer.usage, turn.session.store
    if usage.cost is not None:
        store["cost"] = store.get("cost", 0.0) + float(usage.cost)
    if model.context_window:
        await turn.usage(usage.total_tokens, model.context_window, store.get("cost"))
