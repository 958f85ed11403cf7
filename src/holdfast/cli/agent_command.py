"""`holdfast agent --model NAME`: a coding agent on a language model, for an editor on stdio."""

from __future__ import annotations

import asyncio
import logging
import sys
from importlib.util import find_spec

import click

from holdfast import __version__
from holdfast.errors import ModelError
from holdfast.journal import default_location

NAME = "holdfast"
"""What the sessions are kept under; it stays the same whichever model answers."""


@click.command(name="agent")
@click.option(
    "--model",
    "models",
    metavar="NAME",
    multiple=True,
    required=True,
    envvar="HOLDFAST_MODEL",
    help="provider:model, such as openai:gpt-5; more than once to choose from several "
    "(HOLDFAST_MODEL).",
)
@click.option("--journal", metavar="URL", help="Where conversations are kept (HOLDFAST_JOURNAL).")
@click.option(
    "--max-requests",
    metavar="NUMBER",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="How often the model is asked in one turn.",
)
@click.option(
    "--context-window",
    metavar="TOKENS",
    type=click.IntRange(min=1),
    help="Of a model that is not widely known.",
)
@click.option(
    "--mcp-timeout",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    default=10.0,
    show_default=True,
    help="For each MCP server to be ready.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
    default="warning",
    show_default=True,
    help="What goes to stderr.",
)
def command(
    models: tuple[str, ...],
    journal: str | None,
    max_requests: int,
    context_window: int | None,
    mcp_timeout: float,
    log_level: str,
) -> None:
    """Serve a coding agent on stdio, for an editor; it answers with a language model.

    It needs `pip install 'holdfast[model]'`, and the key of the model's provider in the
    environment variable that its SDK reads:

    \b
      OPENAI_API_KEY=… holdfast agent --model openai:gpt-5
      ANTHROPIC_API_KEY=… holdfast agent --model anthropic:claude-sonnet-4-5
      OPENAI_BASE_URL=http://localhost:8080/v1 OPENAI_API_KEY=none \\
        holdfast agent --model openai-chat:my-local-model

    The names are those of pydantic-ai. A name that begins with `openai:` uses the responses
    interface, `openai-chat:` the older one, which most compatible servers have.
    """
    if not _is_installed("pydantic_ai"):
        raise ModelError("holdfast agent needs pydantic-ai: pip install 'holdfast[model]'")
    from holdfast.transports.stdio import claim_stdio

    if sys.stdin.isatty():
        click.echo(
            "holdfast agent speaks ACP on stdin and stdout: it is meant as an editor's agent "
            "command",
            err=True,
        )
    streams = claim_stdio()
    # The libraries below log what they send, keys left out; it is still none of our business.
    logging.basicConfig(format="%(asctime)s %(name)s %(levelname)s %(message)s")
    logging.getLogger("holdfast").setLevel(log_level.upper())
    asyncio.run(
        _serve(
            streams,
            journal or default_location(),
            models,
            max_requests=max_requests,
            context_window=context_window,
            mcp_timeout=mcp_timeout,
        )
    )


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ImportError:
        return False


async def _serve(
    streams: tuple[int, int],
    journal: str,
    models: tuple[str, ...],
    *,
    max_requests: int,
    context_window: int | None,
    mcp_timeout: float,
) -> None:
    from holdfast.agents.definition import AgentDefinition
    from holdfast.agents.inprocess import InProcessAgent
    from holdfast.agents.model import coding
    from holdfast.server.serving import serve, stop_at_signals
    from holdfast.transports.pipes import PipeTransport

    agent = AgentDefinition(NAME, version=__version__, title="holdfast agent")
    coding(agent, models, max_requests=max_requests, context_window=context_window)
    await serve(
        PipeTransport(*streams),
        journal,
        lambda listener, opened: InProcessAgent(agent, listener, opened, mcp_timeout=mcp_timeout),
        stop=stop_at_signals(),
    )
