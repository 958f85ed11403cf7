"""`acphold wrap -- CMD`: ACP on stdio for an editor, in front of CMD.

Beside it, it imports the conversations that the agent held elsewhere: a process with the lowest
priority does that and ends with `wrap` at the latest. The next import does the rest.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from acp_wire.surroundings import Surroundings
from acp_wire.tasks import end
from acp_wire.transports.pipes import PipeTransport
from acphold.errors import AcpError
from acphold.extras import require
from acphold.faces.cli import bounds, options
from acphold.faces.cli.command_line import Exit, UsageError, command
from acphold.faces.cli.starts import Start
from acphold.faces.cli.terminal_text import visible
from acphold.journal.journal import Journal
from acphold.known_agents import KNOWN_AGENTS, short_name
from acphold.live.agents.identity import far_machine
from acphold.live.agents.interface import AgentListener, HubAgent
from acphold.live.agents.wrapped import ProcessAgent, ProcessOptions
from acphold.live.server.service import Service, refuse, stop_at_signals
from acphold.serve_options import ServeOptions

if TYPE_CHECKING:
    from acp_wire.schema import McpServerStdio
    from acphold.faces.cli.parser import Parser
    from acphold.faces.cli.settings import NamedAgent
    from acphold.live.hub.alerts import Alerts

log = logging.getLogger(__name__)


TYPED = ("name", "recall", "journal", "all_agents", "log_level", "log_file")
"""The options that are on the command line, too."""


class WrapSettings(ServeOptions, frozen=True, kw_only=True):
    """The options of one `wrap`; times in seconds, sizes in bytes.

    `called` is the agent's name in the settings file or the table; "" for a command. `given` are
    the options as words of the command line.
    """

    name: str | None = options.value(
        "NAME", "store the agent's sessions under this name, whatever it calls itself"
    )
    recall: bool = options.flag(
        "give the agent the tools of `acphold mcp`, to search and read earlier sessions"
    )
    log_level: str = options.LOG_LEVEL
    log_file: str | None = options.LOG_FILE
    no_import: bool = options.flag(
        "do not import this agent's other conversations of the last 30 days"
    )
    recall_folder: bool = options.flag(
        "like `recall`, but only for sessions of the session's own folder"
    )
    linger: float | None = options.value(
        "SECONDS",
        "how long an idle agent keeps running with no client, turn or question "
        f"[default: {bounds.LINGER_SECONDS:g} behind an editor, ten minutes behind `serve`]",
    )
    start_timeout: float = options.value(
        "SECONDS",
        "how long the agent may take to answer `initialize` "
        f"[default: {bounds.AGENT_START_SECONDS:g}]",
        default=bounds.AGENT_START_SECONDS,
    )
    program: tuple[str, ...] = ()
    called: str = ""
    given: tuple[str, ...] = ()


def parser() -> Parser:
    """The arguments of `wrap`."""
    from acphold.faces.cli.parser import declared_parser  # late: see `options_of`

    return declared_parser("wrap")


def _add_typed(made: Parser) -> None:
    made.add_fields(WrapSettings, (name for name in TYPED if name != "journal"))
    made.add("journal", options.JOURNAL)


def settings_parser() -> Parser:
    """The options of `wrap`, and those that only the settings file has."""
    made = parser()
    own = ("no_import", "recall_folder", "linger", "start_timeout")
    others = [name for name in ServeOptions.__struct_fields__ if name not in TYPED]
    made.add_fields(WrapSettings, (*own, *others))
    return made


def options_of(agent: NamedAgent, arguments: Sequence[str] = ()) -> dict[str, Any]:
    """Return the options of `wrap` for an agent, by name: those of its settings file, and over them
    these arguments of a command line. Raises UsageError, SettingsError.

    For an agent without a name, they are the defaults that only the settings file has.
    """
    from acphold.faces.cli.settings import default_options, wrap_arguments

    if not agent.name:
        defaults = default_options(agent.file)
        only_there = {it: its for it, its in defaults.items() if it not in TYPED}
        agent = agent._replace(defaults=only_there)
    program = ("--", *(agent.command or ("",)))
    read: dict[str, Any] = {}
    match arguments:  # an editor waits for this, and no parser is made without need
        case []:
            pass
        case ["--journal", url] if not url.startswith("-"):
            read["journal"] = url
        case _:
            read = parser().read([*arguments, *program])
    if agent.options:
        reading = settings_parser()
        # The file's options come first, so that later ones override them.
        read = reading.read([*wrap_arguments(agent, reading), *arguments, *program])
    read = _if_none_is_given() | read
    read.pop("agent", None)
    read.pop("program", None)
    return read


def _if_none_is_given() -> dict[str, Any]:
    """Return the options of `wrap`, by name, as `settings_parser` reads them from no words."""
    defaults = zip(WrapSettings.__struct_fields__, WrapSettings.__struct_defaults__, strict=True)
    return {
        name: default.otherwise if isinstance(default, options.Declared) else default
        for name, default in defaults
        if name not in ("program", "called", "given")
    }


def split_name(arguments: list[str]) -> tuple[str, list[str]]:
    """Return the agent's name among the arguments of `wrap`, and the options.

    The name is "" if there is none.
    """
    if arguments and not arguments[0].startswith("-"):
        return arguments[0], arguments[1:]
    takes_value = {
        flag: action.nargs is None for action in parser().actions for flag in action.option_strings
    }
    is_value = False
    for place, word in enumerate(arguments):
        if not is_value and not word.startswith("-"):
            return word, arguments[:place] + arguments[place + 1 :]
        is_value = not is_value and takes_value.get(word, False)
    return "", arguments


@command("wrap", "[OPTIONS] {AGENT | -- CMD...}", adds=_add_typed)
def _without_program(
    *,
    agent: str | None = options.AGENT,
    program: tuple[str, ...] = options.PROGRAM,
    **_: object,
) -> int:
    """Run an agent for your editor, with durable sessions.

    CMD is the command that starts the agent; everything after `--` is passed on unchanged:

      acphold wrap -- gemini --acp

    The editor sees that agent, plus session/list, session/load, session/resume, session/close and
    session/delete. Everything shown to the editor is in the journal first. With --log-file, the
    agent's stderr goes there, too.

    A running turn goes on when the editor closes, and its question waits: one process, the
    daemon, keeps all sessions, for all editors. An editor that comes back finds its agent again,
    and so do your other clients. `acphold agent status` shows what runs, `acphold agent stop` ends
    it.

    AGENT is a name that acphold knows, such as `claude` or `gemini`, or one from the settings file,
    which then supplies the command and options.
    """
    # `cli.start` runs valid command lines: only invalid ones arrive here.
    if agent is not None:
        from acphold.faces.cli.settings import agent_command

        agent_command(agent)  # this reports that there is none
    raise UsageError("no agent command after `--`, as in `acphold wrap -- CMD`")


def settings_of(arguments: Sequence[str], agent: NamedAgent) -> WrapSettings:
    """Return the options; those of the settings file are as in `options_of`.

    Raises UsageError for these arguments, SettingsError for options of the settings file, and for a
    missing extra.
    """
    if not agent.command:
        _without_program(agent=None)
    settings = WrapSettings(
        **options_of(agent, arguments),  # whose parser has checked each value
        program=agent.command,
        called=agent.name,
        given=tuple(arguments),
    )
    if settings.recall or settings.recall_folder:
        require("mcp", "--recall")
    return settings


def refuse_all(error: AcpError, streams: tuple[int, int]) -> int:
    """Answer all requests of an editor with the reason why its agent is not served; exit code."""

    async def answer() -> None:
        await refuse(PipeTransport(*streams), error, stop_at_signals())

    print(visible(f"acphold wrap: {error}"), file=sys.stderr)
    asyncio.run(answer())
    return Exit.USAGE


def make_service(
    settings: WrapSettings,
    within: Surroundings,
    start: Start,
    alerts: Alerts,
    log_file: str | None,
    *,
    relay_to: tuple[int, ...],
    at_once: bool,
) -> Service:
    """Return the service for these settings; `within` are the agent's surroundings, and its
    sessions remember `start`. Its stderr goes to the descriptors `relay_to`, too. It starts
    `at_once` if a client is there already."""

    if far_machine(settings.program, within.folder):  # neither its files nor its past are here
        settings = replace(settings, snapshots=False, no_import=True)

    def recall_in(cwd: str) -> McpServerStdio:
        from acphold.faces.cli.mcp_command import recall_server

        return recall_server(service.journal, cwd if settings.recall_folder else None)

    def make_agent(listener: AgentListener, journal: Journal) -> HubAgent:
        agent = AgentWithImport(
            settings.program,
            listener,
            within,
            ProcessOptions(
                name=settings.name,
                called=settings.called or None,
                start_timeout=settings.start_timeout,
                limit=settings.max_message,
                stderr_log=log_file,
                relay_to=relay_to,
                cwd=within.folder,
                added=recall_in if settings.recall or settings.recall_folder else None,
            ),
            journal=journal,
        )
        if at_once:
            agent.launch()
        agent.start = start.mark
        agent.import_into = None if settings.no_import else service.journal
        return agent

    service = Service(make_agent=make_agent, options=settings, alerts=alerts)
    return service


# -- the import beside it --------------------------------------------------------------------

SINCE: Final = "30d"
"""`acphold import` imports older ones, of which there may be many."""


class AgentWithImport(ProcessAgent):
    """An agent whose conversations are imported into a journal once its name is known."""

    import_into: str | None = None
    """The journal's place; None for no import."""

    _importing: asyncio.Task[None] | None = None

    async def initialize(self, params: bytes) -> bytes:
        answer = await super().initialize(params)
        known = KNOWN_AGENTS.get(short_name(self.key))
        if (
            known is not None
            and known.is_imported
            and self.import_into is not None
            and self._importing is None
        ):
            importing = _import(known.name, self.import_into, self.surroundings.env)
            self._importing = asyncio.create_task(importing, name="import beside wrap")
        return answer

    async def aclose(self) -> None:
        await end(self._importing)
        await super().aclose()


async def _import(name: str, journal: str, env: Mapping[str, str]) -> None:
    # Late: few agents need it.
    from acphold.machine.own_program import own_command, run_beside

    command = own_command("import", "--agent", name, "--since", SINCE, "--journal", journal)
    try:
        _, output, errors = await run_beside(
            command, bounds.IMPORT_BESIDE_SECONDS, env=env, niceness=bounds.NICENESS
        )
    except TimeoutError:
        log.info(
            "importing the agent's other conversations took too long; the next import continues"
        )
    except OSError as error:
        log.warning("the agent's other conversations were not imported: %s", error)
    else:
        log.info("imported: %s", output.decode(errors="replace").strip())
        if errors:
            log.info("import: %s", errors.decode(errors="replace").strip())
