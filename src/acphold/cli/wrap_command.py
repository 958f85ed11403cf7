"""`acphold wrap` as click shows it: for its help, and for a command line without `--`.

A usable one has been taken by `acphold.cli.start` before click was imported.
"""

from __future__ import annotations

import click

from acphold.cli.options import WRAP_OPTIONS


@click.command(
    name="wrap",
    options_metavar="[OPTIONS] --",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("agent", metavar="CMD...", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(ctx: click.Context, /, agent: tuple[str, ...], **_: object) -> None:
    """Speak ACP on stdio for an editor, in front of an agent.

    CMD starts the agent as your editor would start it; everything behind `--` is passed on
    as it is:

    \b
      acphold wrap -- gemini --acp

    The editor sees that agent, and besides it session/list, session/load, session/resume,
    session/close and session/delete. What is shown to the editor has been written to the
    journal before.
    """
    example = " ".join(agent) or "CMD"
    ctx.fail(f"the agent's command goes behind `--`: acphold wrap -- {example}")


command.params += [
    click.Option(
        [f"--{option.name}"],
        metavar=option.metavar,
        help=option.help + ("" if option.default is None else f"  [default: {option.default}]"),
    )
    for option in WRAP_OPTIONS
]
