"""`acphold agent run module:agent`: serve an agent written in Python on stdio."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from typing import TYPE_CHECKING

from acphold.errors import DeclarationError
from acphold.faces.cli import options
from acphold.faces.cli.command_line import command
from acphold.machine.late_tls import load_asyncio
from acphold.serve_options import AgentOptions

if TYPE_CHECKING:
    from acphold.library.agent import Agent


@command("agent run", "[OPTIONS] MODULE:NAME", options.JOURNAL)
def run_agent(
    *, target: str = options.argument("MODULE:NAME", "the module or file with the agent")
) -> None:
    """Run an agent written in Python for your editor, as its own `agent.run()` does.

    MODULE:NAME is a module and the acphold.Agent in it, or a file and the agent in it:

      acphold agent run my_package.reviewer:agent
      acphold agent run agent.py

    NAME defaults to `agent`. What the agent prints goes to stderr. To set other options,
    call `agent.run(...)` in the file, and start it with `python agent.py`.
    """
    gc.disable()
    load_asyncio()
    from acphold.library.agent import definition_of
    from acphold.library.stdio import claim_stdio_as, run_on

    gc.freeze()  # as in `cli.start`
    gc.enable()
    streams = claim_stdio_as(target)  # from here on, output of the agent's module is harmless
    run_on(definition_of(load_agent(target)), streams, AgentOptions())


def load_agent(target: str) -> Agent:
    """Load the agent at `module:name` or `path/to/file.py:name`; `name` defaults to `agent`.

    Raises DeclarationError that says what is wrong; the module's exception is its cause.
    """
    from importlib.util import find_spec, module_from_spec, spec_from_file_location

    from acphold.library.agent import Agent, definition_of, import_only

    source, _, name = target.rpartition(":") if ":" in target else (target, "", "agent")
    if source.endswith(".py") and not os.path.exists(source):
        raise DeclarationError(f"there is no file {os.path.abspath(source)}")
    try:
        with import_only():
            if source.endswith(".py"):
                folder, file = os.path.split(os.path.abspath(source))
                sys.path.insert(0, folder)  # as for `python path/to/file.py`
                called = file.removesuffix(".py")
                spec = spec_from_file_location(called, source)
                if spec is None or spec.loader is None:
                    raise FileNotFoundError(source)
                module = sys.modules[called] = module_from_spec(spec)
                spec.loader.exec_module(module)
            else:
                # The current folder may be anybody's: it is searched only for modules found nowhere
                # else, as for `python -m name`.
                if find_spec(source.partition(".")[0]) is None:
                    sys.path.insert(0, os.getcwd())
                module = importlib.import_module(source)
    except (Exception, SystemExit) as exc:
        why = f"{type(exc).__name__}: {exc}"
        raise DeclarationError(f"cannot import {source}: {why}") from exc
    found = getattr(module, name, None)
    if not isinstance(found, Agent):
        is_not = "has nothing" if found is None else f"has a {type(found).__name__}"
        raise DeclarationError(f"{source} {is_not} called {name!r}; it must be an acphold.Agent")
    definition_of(found)  # refuse an agent without a prompt handler now
    return found
