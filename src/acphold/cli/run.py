"""`acphold run module:agent`: serve an agent written in Python on stdio."""

from __future__ import annotations

import gc
import logging
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING

from acphold.cli.command_line import Exit, Parser, add_mcp_timeout, add_serving
from acphold.errors import AcpholdError, DeclarationError
from acphold.transports.late_tls import load_asyncio

if TYPE_CHECKING:
    from types import ModuleType

    from acphold.library.agent import Agent


def parser() -> Parser:
    """The arguments of `run`."""
    made = Parser(run, "run", "[OPTIONS] MODULE:NAME")
    made.add_argument("target", metavar="MODULE:NAME", help="where the agent is")
    add_mcp_timeout(made)
    add_serving(made)
    return made


def run(
    *,
    target: str,
    journal: str | None,
    mcp_timeout: float,
    cancel_grace: float,
    max_message: int,
    log_level: str,
    log_file: str | None,
) -> int:
    """Speak ACP on stdio for an editor, with an agent written in Python.

    MODULE:NAME is a module and the acphold.Agent in it, or a file and the agent in it:

      acphold run my_package.reviewer:agent
      acphold run agent.py

    NAME is `agent` if it is left out. What the agent prints goes to stderr.
    """
    gc.disable()
    load_asyncio()
    from acphold.cli.log import start_log
    from acphold.library.agent import claimed_stdio, run_on

    gc.freeze()  # as in `acphold.cli.start`
    gc.enable()
    streams = claimed_stdio(target)  # what the agent's module prints disturbs nobody
    start_log(log_level, log_file)
    try:
        agent = load_agent(target)
    except AcpholdError as exc:
        # A traceback says where the agent's own code failed; of a name that leads nowhere it
        # would only show ours.
        theirs = None if isinstance(exc.__cause__, ImportError | OSError) else exc.__cause__
        logging.getLogger("acphold").error("%s", exc, exc_info=theirs)
        return Exit.AGENT
    run_on(
        agent,
        streams,
        journal=journal,
        mcp_timeout=mcp_timeout,
        cancel_grace=cancel_grace,
        max_message=max_message,
    )
    return Exit.OK


def load_agent(target: str) -> Agent:
    """The agent that `module:name` or `path/to/file.py:name` names; `name` is `agent` by default.

    Raises DeclarationError with what is wrong; what the module raised is its cause.
    """
    from acphold.library.agent import Agent, definition_of, imported_only

    place, _, name = target.rpartition(":") if ":" in target else (target, "", "agent")
    try:
        with imported_only():
            module = _from_file(place) if place.endswith(".py") else _by_name(place)
    except (Exception, SystemExit) as exc:
        raise DeclarationError(f"{place} cannot be imported: {exc!r}") from exc
    found = getattr(module, name, None)
    if not isinstance(found, Agent):
        is_not = "has nothing" if found is None else f"has a {type(found).__name__}"
        raise DeclarationError(f"{place} {is_not} called {name!r}: a acphold.Agent is wanted")
    definition_of(found)  # one without a prompt handler is refused before it is asked
    return found


def _from_file(path: str) -> ModuleType:
    from importlib.util import module_from_spec, spec_from_file_location

    folder, file = os.path.split(os.path.abspath(path))
    sys.path.insert(0, folder)  # as for `python path/to/file.py`
    name = file.removesuffix(".py")
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not os.path.exists(path):
        raise FileNotFoundError(path)
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _by_name(name: str) -> ModuleType:
    sys.path.insert(0, os.getcwd())  # as for `python -m name`
    return import_module(name)
