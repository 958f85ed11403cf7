"""`acphold doctor`: what is installed, is the journal whole, does the agent answer."""

from __future__ import annotations

import asyncio
import os
import platform
import shlex
import shutil
import signal
import sqlite3
import stat
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

import msgspec
from msgspec import Struct
from rich.text import Text

from acphold import __version__
from acphold.agents import Answered, Asked, Event
from acphold.agents.wrapped import ProcessAgent
from acphold.cli.alert_settings import alert_rules
from acphold.cli.command_line import Exit, Parser, add_journal, add_start_timeout
from acphold.cli.journals import opened, path_of, sessions
from acphold.cli.layout import Beside
from acphold.cli.settings import (
    NamedAgent,
    chosen_agent,
    named_agents,
    read_settings,
    settings_path,
    unknown_tables,
    wrap_arguments,
)
from acphold.cli.terminal_text import console, counted, folder, local, on_one_line, size, visible
from acphold.cli.wrap import parser as wrap_parser
from acphold.errors import AcpholdError, MethodNotFoundError, RemoteError, SettingsError
from acphold.imports import Home, deletions
from acphold.journal import Journal, ListFilter
from acphold.schema import (
    PROTOCOL_VERSION,
    AgentCapabilities,
    Implementation,
    InitializeRequest,
    InitializeResponse,
    decode,
    encode,
)
from acphold.server.initialization import with_ours

GUTTER = 5
"""Columns for the marks."""

LITTLE_SPACE = 64 << 20
"""Bytes free on the journal's disk below which it is time to make room."""


def parser() -> Parser:
    """The arguments of `doctor`."""
    usage = "[OPTIONS] [AGENT | -- CMD...]"
    made = Parser(doctor, "doctor", usage, runs_program=True, takes_agent=True)
    add_start_timeout(made)
    add_journal(made)
    return made


def doctor(
    *, start_timeout: float, journal: str | None, agent: str | None, program: tuple[str, ...]
) -> int:
    """Check this installation, the settings, the journal and an agent.

    With AGENT, a name of the settings file, or `-- CMD` the agent is started as `acphold wrap`
    would start it, and asked what it can do. The exit code is 1 when something is wrong; each
    problem says what to do.
    """
    program = chosen_agent(agent, program).command
    report = Report()
    with _ctrl_c_leaves_at_once():
        report.section("Installation", checked_installation())
        report.section("Settings", checked_settings())
        report.wait("reading every page and every history of the journal")
        report.section("Journal", checked_journal(journal))
        if found := checked_transcripts():
            report.section("Transcripts of other agents", found)
        if program:
            report.wait(f"waiting for {program[0]} to answer, {start_timeout:g} s at most")
            report.section("Agent", asyncio.run(checked_agent(program, start_timeout)))
    report.sum_up()
    return Exit.ERROR if report.problems else Exit.OK


@contextmanager
def _ctrl_c_leaves_at_once() -> Iterator[None]:
    """For a block in which nothing has to be finished; the guardian ends the agent."""

    def leave(number: int, frame: FrameType | None) -> NoReturn:
        with suppress(RuntimeError):  # in the middle of a print
            sys.stdout.flush()
        os._exit(Exit.INTERRUPTED)

    before = signal.signal(signal.SIGINT, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class Report:
    """Prints findings, and counts what is wrong."""

    def __init__(self) -> None:
        self.problems = 0
        self._console = console()

    def section(self, title: str, findings: Iterable[Finding]) -> None:
        """All that was found about one thing."""
        self._console.print(Text(title, "heading"))
        for finding in findings:
            self._put(finding)
        self._console.print()

    def wait(self, what: str) -> None:
        """What takes a while, for whoever looks on."""
        if self._console.is_terminal:
            self._console.print(Text(visible(f"{what}; Ctrl-C leaves"), "faint"))

    def _put(self, finding: Finding) -> None:
        mark, style = ("!", "busy") if finding.is_past else ("✓", "good")
        if finding.advice:
            mark, style = "✗", "bad"
        text = Text(visible(finding.text), "bad" if finding.advice else "")
        self._console.print(Beside(mark, style, text, gutter=GUTTER))
        if finding.advice:
            self.problems += 1
            self._console.print(Beside("→", "faint", Text(visible(finding.advice)), gutter=GUTTER))

    def sum_up(self) -> None:
        """The last line."""
        if self.problems:
            self._console.print(Text(f"{counted(self.problems, 'problem')} found", "bad"))
        else:
            self._console.print(Text("All is well", "good"))


class Finding(Struct, frozen=True):
    """One thing that was looked at; with `advice` it is wrong, and that is what to do.

    `is_past`: it was wrong, or is another program's way, and it is good to know it.
    """

    text: str
    advice: str = ""
    is_past: bool = False


# -- this installation ----------------------------------------------------------------------


def checked_installation() -> list[Finding]:
    """Versions, and whether editors find us."""
    return [
        Finding(f"acphold {__version__}, msgspec {msgspec.__version__}"),
        Finding(f"Python {platform.python_version()}, {folder(sys.executable)}"),
        _sqlite(),
        _on_path(),
    ]


def _sqlite() -> Finding:
    version = f"SQLite {sqlite3.sqlite_version}"
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("CREATE VIRTUAL TABLE words USING fts5 (text)")
    except sqlite3.OperationalError:
        return Finding(
            f"{version} of this Python has no full-text search (FTS5)",
            "install acphold with another Python; those of python.org and uv have it",
        )
    finally:
        connection.close()
    return Finding(f"{version}, with full-text search (FTS5)")


def _on_path() -> Finding:
    found = shutil.which("acphold")
    if found is not None:
        return Finding(f"the command is {folder(found)}")
    return Finding(
        f"`acphold` is not on PATH: in an editor's settings write {sys.executable} -m acphold"
    )


# -- the settings file ----------------------------------------------------------------------


def checked_settings() -> list[Finding]:
    """Where the file is, what in it means nothing, and whether its agents can be started."""
    path = settings_path()
    try:
        settings = read_settings(path)
        if settings is None:
            return [Finding(f"no {folder(path)}: it is where agents get names, if you want any")]
        agents = named_agents(settings, path)
    except SettingsError as error:
        return [Finding(str(error), _MEND)]
    reading = wrap_parser()
    return [
        Finding(f"{folder(path)}, {counted(len(agents), 'agent')}"),
        *(Finding(sentence, _MEND) for sentence in unknown_tables(settings, path)),
        *(_named(agent, reading) for agent in agents),
        *_alerts(settings, path),
    ]


_MEND = "mend the file; docs/operations.md has all of its keys"


def _named(agent: NamedAgent | SettingsError, reading: Parser) -> Finding:
    """Whether `wrap` can start an agent of the file, and takes its options."""
    if isinstance(agent, SettingsError):
        return Finding(str(agent), _MEND)
    try:
        wrap_arguments(agent, reading)
    except SettingsError as error:
        return Finding(str(error), _MEND)
    path = agent.env.get("PATH", os.environ.get("PATH", os.defpath))
    return _command(agent.name, agent.command, path)


def _alerts(settings: Mapping[str, object], path: str) -> list[Finding]:
    try:
        rules = alert_rules(settings, path)
    except SettingsError as error:
        return [Finding(str(error), _MEND)]
    commands = {
        f"on_waiting, after {rules.waiting_seconds:g} s": rules.on_waiting,
        f"on_turn_end, of {rules.turn_seconds:g} s or more": rules.on_turn_end,
    }
    return [_command(name, command) for name, command in commands.items() if command]


def _command(name: str, command: Sequence[str], path: str | None = None) -> Finding:
    """A command of the file, and whether there is such a program."""
    if shutil.which(command[0], path=path) is None:
        return Finding(
            f"{name}: there is no program {command[0]!r}",
            "install it, or write its full path into the settings file",
        )
    return Finding(f"{name}: {on_one_line(shlex.join(command))}")


# -- what other agents keep -------------------------------------------------------------------


def checked_transcripts() -> list[Finding]:
    """Who of them deletes conversations that `acphold import` would keep."""
    home = Home(Path.home(), dict(os.environ))
    return [
        Finding(
            f"{found.agent} {found.when}; `acphold import` keeps them here, and "
            f"{found.setting} in {folder(str(found.file))} keeps them there",
            is_past=True,
        )
        for found in deletions(home)
    ]


# -- the journal ----------------------------------------------------------------------------


def checked_journal(location: str | None) -> list[Finding]:
    """Where it is, what is in it, and whether it is whole and private."""
    try:
        path = Path(path_of(location))
        if not path.exists():
            none = Finding(f"none yet at {folder(str(path))}; the first session makes it")
            return [none, *_room(path)]
        inside = asyncio.run(_looked_inside(location, path))
    except AcpholdError as error:
        return [_problem(error)]
    return [Finding(f"{folder(str(path))}, {_sizes(path)}"), *inside, *_room(path)]


async def _looked_inside(location: str | None, path: Path) -> list[Finding]:
    async with opened(location) as journal:
        return [
            Finding(await _contents(journal)),
            *_whole(path, await journal.damage()),
            *_cut(journal.log_cut_at),
            *_private(path, was_open=journal.was_open_to_others),
        ]


def _problem(error: AcpholdError) -> Finding:
    """Errors of the journal say both what is wrong and, behind the last semicolon, what to do."""
    what, _, advice = str(error).rpartition("; ")
    return Finding(what, advice) if what else Finding(advice, "see docs/operations.md")


def _sizes(path: Path) -> str:
    log = path.with_name(f"{path.name}-wal")
    waiting = log.stat().st_size if log.exists() else 0
    return f"{size(path.stat().st_size)}, and {size(waiting)} in its write-ahead log"


async def _contents(journal: Journal) -> str:
    prompted = unprompted = 0
    async for row in sessions(journal, ListFilter(include_unprompted=True, archived="include")):
        prompted += row.prompted
        unprompted += not row.prompted
    rest = f", {unprompted} more without a prompt" if unprompted else ""
    return counted(prompted, "session") + rest


def _whole(path: Path, damage: list[str]) -> list[Finding]:
    if not damage:
        return [Finding("it is whole: every page and every history was read")]
    advice = f"keep a copy; `sqlite3 {path} .recover` saves what can be read"
    return [Finding(on_one_line(sentence), advice) for sentence in damage]


def _cut(at: int | None) -> list[Finding]:
    """What is known of a write-ahead log that lost its end."""
    if at is None:
        return []
    found = f"on {local(at)} its write-ahead log had lost its end: what was written last before "
    return [Finding(f"{found}that may be missing", is_past=True)]


def _private(path: Path, *, was_open: bool) -> list[Finding]:
    """Whether others can read the conversations, or put another file in their place."""
    mode, above = (stat.S_IMODE(place.stat().st_mode) for place in (path, path.parent))
    findings = []
    if mode & 0o077:
        findings.append(Finding(f"others can read it: mode {mode:04o}", f"chmod 600 {path}"))
    if above & 0o022 and not above & stat.S_ISVTX:
        findings.append(
            Finding(
                f"others can replace it: its folder has mode {above:04o}",
                f"chmod 700 {path.parent}, or move the journal to a folder of its own",
            )
        )
    if was_open and not findings:
        text = f"others could read it until now: it was made private, mode {mode:04o}"
        return [Finding(text, is_past=True)]
    return findings or [Finding(f"it is private: mode {mode:04o}, its folder {above:04o}")]


def _room(path: Path) -> list[Finding]:
    """Whether there is a folder to write to, and space."""
    place = next(parent for parent in path.parents if parent.exists())
    if not os.access(place, os.W_OK | os.X_OK):
        return [
            Finding(
                f"{folder(str(place))} cannot be written to",
                "make it writable, or name another journal with --journal",
            )
        ]
    free = shutil.disk_usage(place).free
    if free < LITTLE_SPACE:
        return [Finding(f"only {size(free)} are free on its disk", "make room there")]
    return [Finding(f"{size(free)} are free on its disk")]


# -- the agent ------------------------------------------------------------------------------


async def checked_agent(command: Sequence[str], start_timeout: float) -> list[Finding]:
    """Start it as `wrap` does, introduce ourselves, end it; `start_timeout` in seconds."""
    agent = ProcessAgent(command, _Deaf(), start_timeout=start_timeout)
    began = time.monotonic()
    try:
        answer = await agent.initialize(_INTRODUCTION)
    except AcpholdError as error:
        refused = f"{command[0]} refused `initialize`: " if isinstance(error, RemoteError) else ""
        return [Finding(on_one_line(f"{refused}{error}"), _ADVICE)]
    finally:
        await agent.aclose()
    return _met(command, answer, time.monotonic() - began)


def _met(command: Sequence[str], answer: bytes, seconds: float) -> list[Finding]:
    raw = decode(InitializeResponse, answer).value
    own = session_methods(raw.agent_capabilities)
    shown = session_methods(decode(InitializeResponse, with_ours(answer)).value.agent_capabilities)
    added = [method for method in shown if method not in own]
    findings = [
        Finding(f"{_name(raw.agent_info, command)} answered in {seconds:.2f} s"),
        Finding(f"by itself: {', '.join(own) or 'no session method but new and prompt'}"),
        Finding(f"acphold adds: {', '.join(added) or 'what a journal keeps that it may lose'}"),
        Finding(_afterwards(own)),
    ]
    if raw.auth_methods:
        names = ", ".join(on_one_line(method.name) for method in raw.auth_methods)
        findings.append(Finding(f"it may ask to sign in first: {names}"))
    return findings


def session_methods(can: AgentCapabilities) -> list[str]:
    """The methods on existing sessions that an agent offers."""
    sessions = can.session_capabilities
    offered = {
        "session/list": sessions.list,
        "session/load": can.load_session or None,
        "session/resume": sessions.resume,
        "session/close": sessions.close,
        "session/delete": sessions.delete,
    }
    return [method for method, capability in offered.items() if capability is not None]


def _afterwards(own: Sequence[str]) -> str:
    for method in ("session/resume", "session/load"):
        if method in own:
            return f"after a restart it gets its own session back, by {method}"
    return "after a restart it is handed the earlier conversation with the next prompt"


def _name(info: Implementation | None, command: Sequence[str]) -> str:
    if info is None:
        return on_one_line(command[0])
    return on_one_line(f"{info.title or info.name} {info.version}")


_ADVICE = (
    "run the command by itself: an ACP agent waits silently for JSON on stdin. Does it need "
    "another argument, like --acp, or the full path of a program?"
)


class _Deaf:
    """Hears nothing of what the agent reports: there is no session yet."""

    async def hear(self, event: Event) -> None:
        if isinstance(event, Answered):
            await event.call.take(event.answer)

    async def answer(self, asked: Asked) -> bytes:
        raise MethodNotFoundError(asked.method)


_INTRODUCTION = encode(
    InitializeRequest(
        protocol_version=PROTOCOL_VERSION,
        client_info=Implementation(name="acphold-doctor", version=__version__),
    )
)
