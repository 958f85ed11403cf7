"""`acphold run-agent module:agent`: serve an agent written in Python on stdio."""

from __future__ import annotations

import gc
import importlib
import logging
import os
import sys
from traceback import walk_tb
from typing import TYPE_CHECKING

import acp_wire
from acp_wire.transports.late_tls import load_asyncio
from acphold import errors
from acphold.errors import AcpError, DeclarationError
from acphold.faces.cli.command_line import Exit, Parser
from acphold.faces.cli.starts import made_here, remembered
from acphold.faces.cli.terminal_text import visible
from acphold.serve_options import AgentOptions

if TYPE_CHECKING:
    from acphold.library.agent import Agent


def parser() -> Parser:
    """The arguments of `run-agent`."""
    made = Parser(run_agent, "run-agent", "[OPTIONS] MODULE:NAME")
    made.add_value("target", "MODULE:NAME", "the module or file with the agent")
    made.add_journal()
    made.add_log()
    return made


def run_agent(*, target: str, journal: str | None, log_level: str, log_file: str | None) -> int:
    """Run an agent written in Python for your editor.

    MODULE:NAME is a module and the acphold.Agent in it, or a file and the agent in it:

      acphold run-agent my_package.reviewer:agent
      acphold run-agent agent.py

    NAME defaults to `agent`. What the agent prints goes to stderr. To set other options,
    call `agent.run(...)` in the file, and start it with `python agent.py`.
    """
    gc.disable()
    load_asyncio()
    from acphold.faces.cli.alert_settings import AlertFile
    from acphold.faces.cli.log import start_log
    from acphold.library.agent import claimed_stdio, run_on

    gc.freeze()  # as in `cli.start`
    gc.enable()
    streams = claimed_stdio(target)  # from here on, output of the agent's module is harmless
    start_log(log_level, log_file)
    try:
        agent = load_agent(target)
    except AcpError as exc:
        log = logging.getLogger("acphold")
        if log_file is not None:
            log.error("%s", exc)
        print(visible(f"acphold run-agent: {exc}"), file=sys.stderr)
        log.debug("it was raised here", exc_info=exc.__cause__)
        return Exit.AGENT
    start = made_here("run-agent", "", [target], [])
    with remembered(start):
        run_on(agent, streams, AgentOptions(journal=journal), AlertFile(journal), start.mark)
    return Exit.OK


def load_agent(target: str) -> Agent:
    """Load the agent at `module:name` or `path/to/file.py:name`; `name` defaults to `agent`.

    Raises DeclarationError that says what is wrong; the module's exception is its cause.
    """
    from importlib.util import find_spec, module_from_spec, spec_from_file_location

    from acphold.library.agent import Agent, definition_of, imported_only

    source, _, name = target.rpartition(":") if ":" in target else (target, "", "agent")
    if source.endswith(".py") and not os.path.exists(source):
        raise DeclarationError(f"there is no file {os.path.abspath(source)}")
    try:
        with imported_only():
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
        raise DeclarationError(f"cannot import {source}: {_failure(exc)}") from exc
    found = getattr(module, name, None)
    if not isinstance(found, Agent):
        is_not = "has nothing" if found is None else f"has a {type(found).__name__}"
        raise DeclarationError(f"{source} {is_not} called {name!r}; it must be an acphold.Agent")
    definition_of(found)  # refuse an agent without a prompt handler now
    return found


def _failure(error: BaseException) -> str:
    """Describe an exception, after the lines of the agent's file and of the code that raised it."""
    ours = tuple(os.path.dirname(str(one.__file__)) for one in (acp_wire, errors))
    library = os.path.dirname(importlib.__file__)
    lines = [
        (frame.f_code.co_filename, number)
        for frame, number in walk_tb(error.__traceback__)
        if not frame.f_code.co_filename.startswith((*ours, library, "<frozen "))
    ]
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        lines.append((error.filename, error.lineno))
        error = SyntaxError(error.msg)
    message = f"{type(error).__name__}: {error}"
    if not lines:
        return message
    in_file = [line for line in lines if line[0] == lines[0][0]][-1]
    from_where = "" if in_file == lines[-1] else f" ({_line(*lines[-1])})"
    return f"{_line(*in_file)}{from_where}: {message}"


def _line(file: str, line: int) -> str:
    path = os.path.relpath(file)
    return f"{file if path.startswith('..') else path}, line {line}"
