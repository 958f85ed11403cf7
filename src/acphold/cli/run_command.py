"""`acphold run` as click shows it: for its help.

A usable command line has been taken by `acphold.cli.run` before click was imported.
"""

from __future__ import annotations

import click

from acphold.cli.run import RUN_OPTIONS, run


@click.command(
    name="run",
    options_metavar="[OPTIONS]",
    context_settings={"ignore_unknown_options": True},
)
@click.argument("agent", metavar="MODULE:NAME", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(ctx: click.Context, /, agent: tuple[str, ...], **given: str | None) -> None:
    """Speak ACP on stdio for an editor, with an agent written in Python.

    MODULE:NAME is a module and the acphold.Agent in it, or a file and the agent in it:

    \b
      acphold run my_package.reviewer:agent
      acphold run agent.py

    NAME is `agent` if it is left out. What the agent prints goes to stderr.
    """
    options = [f"--{name.replace('_', '-')}={value}" for name, value in given.items() if value]
    ctx.exit(run([*options, *agent]))


command.params += [
    click.Option(
        [f"--{option.name}"],
        metavar=option.metavar,
        help=option.help + ("" if option.default is None else f"  [default: {option.default}]"),
    )
    for option in RUN_OPTIONS
]
