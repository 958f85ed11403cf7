"""`acphold run module:agent`: serve an agent written in Python on stdio.

Like `wrap` it reads its options by hand: an editor waits for it.
"""

from __future__ import annotations

import logging
import os
import sys
from getopt import GetoptError, gnu_getopt
from importlib import import_module
from typing import TYPE_CHECKING, cast

from acphold.cli.exits import Exit
from acphold.cli.options import WRAP_OPTIONS, Option, UsageError
from acphold.errors import AcpholdError, DeclarationError
from acphold.transports.imports import importing
from acphold.transports.late_tls import load_asyncio

if TYPE_CHECKING:
    from types import ModuleType

    from acphold.library.agent import Agent

_OF_WRAP = {option.name: option for option in WRAP_OPTIONS}

RUN_OPTIONS = (
    _OF_WRAP["journal"],
    Option(
        "mcp-timeout",
        "SECONDS",
        _OF_WRAP["start-timeout"].read,
        10.0,
        "For each MCP server of a session to be ready.",
    ),
    _OF_WRAP["cancel-grace"],
    _OF_WRAP["max-message"],
    _OF_WRAP["log-level"],
    Option("log-file", "FILE", str, None, "Log here instead of stderr."),
)


def run(arguments: list[str]) -> int:
    """Serve until the editor leaves; the exit code. `arguments` follow `run`."""
    with importing():
        load_asyncio()
        from acphold.library.agent import claimed_stdio

    try:
        target, options = _read(arguments)
        streams = claimed_stdio(target)  # what the agent's module prints disturbs nobody
        _log(options)
        agent = load_agent(target)
    except UsageError as exc:
        print(f"acphold run: {exc}", file=sys.stderr)
        return Exit.USAGE
    except AcpholdError as exc:
        # A traceback says where the agent's own code failed; of a name that leads nowhere it
        # would only show ours.
        theirs = None if isinstance(exc.__cause__, ImportError | OSError) else exc.__cause__
        logging.getLogger("acphold").error("%s", exc, exc_info=theirs)
        return Exit.AGENT
    agent.run_on(
        streams,
        journal=cast("str | None", options["journal"]),
        mcp_timeout=cast(float, options["mcp-timeout"]),
        cancel_grace=cast(float, options["cancel-grace"]),
        max_message=cast(int, options["max-message"]),
    )
    return Exit.OK


def load_agent(target: str) -> Agent:
    """The agent that `module:name` or `path/to/file.py:name` names; `name` is `agent` by default.

    Raises DeclarationError with what is wrong; what the module raised is its cause.
    """
    from acphold.library.agent import Agent

    place, _, name = target.rpartition(":") if ":" in target else (target, "", "agent")
    try:
        with Agent.imported():
            module = _from_file(place) if place.endswith(".py") else _by_name(place)
    except (Exception, SystemExit) as exc:
        raise DeclarationError(f"{place} cannot be imported: {exc!r}") from exc
    found = getattr(module, name, None)
    if not isinstance(found, Agent):
        is_not = "has nothing" if found is None else f"has a {type(found).__name__}"
        raise DeclarationError(f"{place} {is_not} called {name!r}: a acphold.Agent is wanted")
    found.prompt_handler  # noqa: B018 — an agent without one is refused before it is asked
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


def _read(arguments: list[str]) -> tuple[str, dict[str, object]]:
    """What to serve, and option name to value; raises UsageError."""
    known = {option.name: option for option in RUN_OPTIONS}
    try:
        given, rest = gnu_getopt(arguments, "", [f"{name}=" for name in known])
    except GetoptError as exc:
        raise UsageError(f"{exc.msg}; see `acphold run --help`") from None
    if len(rest) != 1:
        raise UsageError("one agent is wanted, as in `acphold run agent.py:agent`")
    values = {option.name: option.default for option in RUN_OPTIONS}
    for flag, text in given:
        option = known[flag[2:]]
        try:
            values[option.name] = option.read(text)
        except ValueError as exc:
            raise UsageError(f"{flag} {text!r}: {exc}") from None
    return rest[0], values


def _log(options: dict[str, object]) -> None:
    file = cast("str | None", options["log-file"])
    try:
        logging.basicConfig(
            level=cast(str, options["log-level"]),
            filename=None if file is None else os.path.expanduser(file),
            format="%(asctime)s %(name)s %(levelname)s %(message)s",
        )
    except OSError as exc:
        raise UsageError(f"--log-file {file!r}: {exc.strerror}") from None
