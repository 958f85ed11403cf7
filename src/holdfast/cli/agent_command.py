"""`holdfast agent --model NAME`: a coding agent on a language model, for an editor on stdio."""

from __future__ import annotations

import logging
import os
import sys
from importlib.util import find_spec
from typing import TypedDict, Unpack

import click

from holdfast import __version__
from holdfast.cli.options import Option
from holdfast.cli.run import RUN_OPTIONS
from holdfast.errors import ModelError

NAME = "holdfast"
"""What the sessions are kept under; it stays the same whichever model answers."""


class Shared(TypedDict):
    """The options that `holdfast run` has too; times in seconds, sizes in bytes."""

    journal: str | None
    mcp_timeout: float
    cancel_grace: float
    max_message: int
    log_level: str
    log_file: str | None


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
def command(
    models: tuple[str, ...],
    max_requests: int,
    context_window: int | None,
    **options: Unpack[Shared],
) -> None:
    """Speak ACP on stdio with a coding agent on a language model, for an editor.

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
    from holdfast.agent import Agent
    from holdfast.agents.model import coding
    from holdfast.transports.stdio import claim_stdio

    if sys.stdin.isatty():
        click.echo(
            "holdfast agent: this is an ACP agent and waits for an editor on stdin; "
            "name this command in your editor's settings",
            err=True,
        )
    streams = claim_stdio()
    _log(options["log_level"], options["log_file"])
    agent = Agent(NAME, version=__version__, title="holdfast agent")
    coding(agent, models, max_requests=max_requests, context_window=context_window)
    agent.run_on(
        streams,
        journal=options["journal"],
        mcp_timeout=options["mcp_timeout"],
        cancel_grace=options["cancel_grace"],
        max_message=options["max_message"],
    )


def _log(level: str, file: str | None) -> None:
    try:
        logging.basicConfig(
            filename=None if file is None else os.path.expanduser(file),
            format="%(asctime)s %(name)s %(levelname)s %(message)s",
        )
    except OSError as exc:
        raise click.BadParameter(exc.strerror or "", param_hint="--log-file") from None
    # Libraries below would log what they send, which is the person's.
    logging.getLogger("holdfast").setLevel(level)


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ImportError:
        return False


def _shared(option: Option) -> click.Option:
    def read(ctx: click.Context, param: click.Parameter, text: str | None) -> object:
        if text is None:
            return option.default
        try:
            return option.read(text)
        except ValueError as exc:
            raise click.BadParameter(str(exc)) from None

    default = "" if option.default is None else f"  [default: {option.default}]"
    return click.Option(
        [f"--{option.name}"], metavar=option.metavar, callback=read, help=option.help + default
    )


command.params += map(_shared, RUN_OPTIONS)
