"""The `acphold` command: which commands there are, and what becomes of their errors."""

from __future__ import annotations

import io
import os
import sys
from importlib import import_module
from typing import NamedTuple

import click

from acphold import __version__
from acphold.cli.exits import MEANINGS, Exit, exit_code
from acphold.errors import AcpholdError


class Entry(NamedTuple):
    """Where a command is found (its module has a `command`), and its line in the help."""

    module: str
    summary: str


COMMANDS = {
    "wrap": Entry("wrap_command", "Speak ACP on stdio for an editor, in front of an agent."),
    "run": Entry(
        "run_command", "Speak ACP on stdio for an editor, with an agent written in Python."
    ),
    "list": Entry("list", "List the sessions of the journal, newest first."),
    "show": Entry("show", "Show the transcript of a session."),
    "delete": Entry("delete", "Delete sessions for good."),
    "doctor": Entry("doctor", "Check this installation, the journal and an agent."),
    "mcp-bridge": Entry("mcp_bridge", "Speak MCP on stdio for a server behind a URL."),
    "demo": Entry("demo.command", "See it work: talk, kill -9, list, load, go on."),
}
"""In the order of the help. None is imported before it is called."""

EPILOG = "\b\nExit codes:\n" + "\n".join(
    f"  {code.value:>3}  {meaning}" for code, meaning in MEANINGS.items()
)


class Commands(click.Group):
    """A group that imports a command when it is called, and explains what goes wrong in it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        command = import_module(f"acphold.cli.{entry.module}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> object:
        try:
            result: object = super().invoke(ctx)
            sys.stdout.flush()
        except AcpholdError as error:
            click.echo(f"acphold: {error}", err=True)
            ctx.exit(exit_code(error))
        except BrokenPipeError:
            _discard_output()  # `| head` has seen enough
            ctx.exit(Exit.OK)
        except KeyboardInterrupt:
            ctx.exit(Exit.INTERRUPTED)
        return result


def _discard_output() -> None:
    """Let what is still buffered go nowhere, so that the exit does not fail over it."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=EPILOG,
)
@click.version_option(__version__, prog_name="acphold", message="%(prog)s %(version)s")
def cli() -> None:
    """Durable, listable, shareable sessions for the Agent Client Protocol (ACP).

    Put `acphold wrap -- CMD` where your editor's settings name the command of an agent. Its
    conversations then outlive crashes and restarts, and can be listed and loaded again.

    A session ID may be given as any prefix that fits only one. The journal is the one that
    --journal names, else ACPHOLD_JOURNAL, else a file in your data folder.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that is not UTF-8 gets question marks, not a traceback.
            stream.reconfigure(errors="replace")
