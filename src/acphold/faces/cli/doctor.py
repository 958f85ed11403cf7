"""`acphold doctor`: checks the installation, the journal and an agent."""

from __future__ import annotations

import asyncio
import os
import platform
import re
import shlex
import stat
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from typing import NoReturn

import msgspec

from acp_wire import schema
from acp_wire.processes.program import launch, on_path
from acphold import errors
from acphold.extras import EXTRAS, is_installed
from acphold.faces.cli import bounds, options
from acphold.faces.cli.alert_settings import alert_rules
from acphold.faces.cli.command_line import Exit, at_ctrl_c, command
from acphold.faces.cli.findings import (
    Diagnosis,
    DiagnosisReport,
    check_files,
    check_journal,
    repair_journal,
)
from acphold.faces.cli.import_command import name_unknown
from acphold.faces.cli.importable import find_importable
from acphold.faces.cli.process_commands import processes_here
from acphold.faces.cli.scopes import what_ends_us
from acphold.faces.cli.session_copies import introduced
from acphold.faces.cli.settings import (
    NamedAgent,
    agent_name,
    agents_in_file,
    default_options,
    enter_agent,
    read_settings,
    settings_path,
    wrap_arguments,
)
from acphold.faces.cli.setup import absolute_command
from acphold.faces.cli.terminal_text import folder, on_one_line, quantity
from acphold.faces.cli.wrap import options_of, settings_parser
from acphold.imports import (
    NAMES,
    OUTCOMES,
    Deletion,
    Home,
    deletions,
    reader,
    searching,
)
from acphold.journal.stores import engine_has_search, engine_version
from acphold.journal_location import belongings, default_location
from acphold.known_agents import KNOWN_AGENTS
from acphold.live.agents.capabilities import ClientOffer, answer_for_client
from acphold.live.agents.identity import display_name
from acphold.live.agents.wrapped import ProcessOptions
from acphold.live.reading.local_reader import existing_journal
from acphold.machine.program_group import read_within
from acphold.machine.runtime_folder import runtime_folder
from acphold.version import __version__
from acphold.web.page_files import is_checkout, why_missing


@command("doctor", "[OPTIONS] [AGENT | -- CMD...]", options.JOURNAL)
def doctor(
    *,
    agent: str | None = options.AGENT,
    program: tuple[str, ...] = options.PROGRAM,
    deep: bool = options.flag(
        "also read the whole journal: every page and every history, and what takes room"
    ),
    repair: bool = options.flag(
        "first rebuild the journal's counts, sums and search index, and remove kept files "
        "if `snapshots` is false; then as with --deep"
    ),
) -> int:
    """Check the installation, the settings, the journal and an agent.

    With AGENT, a name that acphold knows or one from the settings file, or with `-- CMD`, the agent
    is started as `acphold wrap` would start it, and its capabilities are shown. The exit code is 1
    if something is wrong; each problem says what to do.
    """
    chosen = enter_agent(agent, program)
    program = chosen.command
    report = DiagnosisReport()
    with at_ctrl_c(_leave):
        report.section("Installation", check_installation())
        report.section("Settings", check_settings())
        report.section("Agents on PATH", check_agents())
        report.section("Processes", asyncio.run(check_processes()))
        if repair:
            report.wait("recounting every session and rebuilding the search index")
            report.section("Repair", asyncio.run(repair_journal()))
        if deep or repair:
            report.wait("checking every page and every history of the journal")
        report.section("Journal", check_journal(deep=deep or repair))
        report.section("Files of conversations", asyncio.run(check_files()))
        if found := asyncio.run(check_transcripts()):
            report.section("Transcripts of other agents", found)
        if program:
            called = agent or display_name(program, os.getcwd())
            try:
                start_timeout = float(options_of(chosen)["start_timeout"])
            except errors.SettingsError:  # reported among the settings
                start_timeout = bounds.AGENT_START_SECONDS
            report.wait(f"waiting for {called} to answer, {start_timeout:g} s at most")
            report.section("Agent", asyncio.run(check_agent(program, start_timeout)))
    report.sum_up()
    return Exit.ERROR if report.problems else Exit.OK


def _leave() -> NoReturn:
    """Leave at once: nothing here has to be finished; the guardian ends the agent."""
    with suppress(RuntimeError):  # in the middle of a print
        sys.stdout.flush()
    if sys.stderr.isatty():
        with suppress(OSError):  # a terminal that has gone
            os.write(2, b"\x1b[?25h")  # the cursor, which what counts seconds hides
    os._exit(Exit.INTERRUPTED)


# -- processes ------------------------------------------------------------------------------


async def check_processes() -> list[Diagnosis]:
    """Find the processes that serve sessions, where they find each other, and where they log."""
    try:
        found = [Diagnosis(f"sockets: {folder(runtime_folder())}")]
    except errors.RuntimeFolderError as exc:
        found = [Diagnosis("sessions are not shared", str(exc))]
    found.append(Diagnosis(f"logs of the daemon: {folder(belongings(default_location()))}"))
    answered, silent, _ = await processes_here()
    for process in answered:
        where = "the daemon" if process.is_daemon else "for an editor or a program"
        count = quantity(len(process.sessions), "session")
        called = on_one_line(", ".join(map(agent_name, process.agents))) or "no agent"
        found.append(Diagnosis(f"process {process.pid}: {called}, {where}, {count} live"))
    found += [Diagnosis.of(it.limited) for it in answered if it.limited]
    found += [Diagnosis.of(it.words) for it in silent]
    return found + [Diagnosis(text, is_past=True) for text in await what_ends_us()]


# -- this installation ----------------------------------------------------------------------


SEARCHED = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH")
"""Variables with the folders in which programs and their code are searched for."""


def check_installation() -> list[Diagnosis]:
    """Check versions, if editors find us, and if a stranger's program may be found instead."""
    findings = [
        Diagnosis(f"acphold {__version__}, msgspec {msgspec.__version__}"),
        Diagnosis(f"Python {platform.python_version()}, {folder(sys.executable)}"),
    ]
    if (system := platform.system()) != "Linux":
        text = f"acphold is untested on {'macOS' if system == 'Darwin' else system}"
        text += "; `acphold help versions` lists the differences"
        findings.append(Diagnosis(text, is_past=True))
    if engine_has_search():
        findings.append(Diagnosis(f"{engine_version()}, with full-text search (FTS5)"))
    else:
        text = f"{engine_version()} of this Python has no full-text search (FTS5)"
        advice = "install acphold with another Python; those of python.org and uv have it"
        findings.append(Diagnosis(text, advice))
    if not (missing := why_missing()):
        findings.append(Diagnosis("the web page that `acphold serve` shows is installed"))
    elif is_checkout():  # an unbuilt page is no problem there
        findings.append(Diagnosis(missing, is_past=True))
    else:
        findings.append(Diagnosis.of(missing))
    there = [extra for extra in EXTRAS if is_installed(extra)]
    text = f"extras: {', '.join(there) or 'none'}"
    if lacking := [extra for extra in EXTRAS if extra not in there]:
        text += f"; not installed: {', '.join(lacking)}"
    findings.append(Diagnosis(text))
    if found := on_path("acphold"):
        findings.append(Diagnosis(f"the command is {folder(found)}"))
    else:
        words = on_one_line(shlex.join(absolute_command()))
        findings.append(Diagnosis(f"`acphold` is not on PATH: use {words} in an editor's settings"))
    for name in SEARCHED:
        parts = os.environ[name].split(os.pathsep) if os.environ.get(name) else []
        if (part := next((part for part in parts if not os.path.isabs(part)), None)) is None:
            continue
        text = (
            f"{name} contains {part!r}, which is relative to the current folder: editors start "
            "agents and acphold in project folders"
        )
        advice = f"remove it from {name}, or a file in a project could run instead of your program"
        findings.append(Diagnosis(text, advice))
    return findings


# -- the settings file ----------------------------------------------------------------------


def check_settings() -> list[Diagnosis]:
    """Check the settings file: its place, unknown parts, and if its agents can be started."""
    path = settings_path()
    try:
        settings = read_settings(path)
        if settings is None:
            return [Diagnosis(f"no {folder(path)}; it is optional and gives agents names")]
        agents = agents_in_file()
    except errors.SettingsError as error:
        return [Diagnosis(str(error), _MEND)]
    reading = settings_parser()
    findings = [Diagnosis(f"{folder(path)}, {quantity(len(agents), 'agent')}")]
    for agent in agents:
        with _noting(findings):
            if isinstance(agent, errors.SettingsError):
                raise agent
            wrap_arguments(agent, reading)
            programs = agent.env.get("PATH", os.environ.get("PATH", os.defpath))
            findings.append(_command(agent.name, agent.command, programs))
    if not agents:  # then nothing has checked the options of all agents yet
        with _noting(findings):
            wrap_arguments(NamedAgent((), defaults=default_options()), reading)
    with _noting(findings):
        rules = alert_rules(settings, path)
        commands = {
            f"on_waiting, after {rules.waiting_seconds:g} s": rules.on_waiting,
            f"on_turn_end, of {rules.turn_seconds:g} s or more": rules.on_turn_end,
            "titles": rules.title,
        }
        findings += [_command(name, command) for name, command in commands.items() if command]
    names = [agent.name for agent in agents if isinstance(agent, NamedAgent) and agent.env]
    if names and stat.S_IMODE(os.stat(path).st_mode) & 0o077:  # the variables may be secrets
        variables = f"the variables of {on_one_line(', '.join(names))}"
        text = f"other users can read it, with {variables}: chmod 600 it if they are secret"
        findings.append(Diagnosis(text, is_past=True))
    return findings


_MEND = "fix the file; `acphold help settings` lists its keys"


@contextmanager
def _noting(findings: list[Diagnosis]) -> Iterator[None]:
    """Add an error of the file in this block to the findings."""
    try:
        yield
    except errors.SettingsError as error:
        findings.append(Diagnosis(str(error), _MEND))


def _command(name: str, command: Sequence[str], path: str | None = None) -> Diagnosis:
    """Check that the program of a command in the file exists."""
    if on_path(command[0], path) is None:
        return Diagnosis(
            f"{name}: the program {command[0]!r} was not found",
            "install it, or write its full path into the settings file",
        )
    return Diagnosis(f"{name}: {on_one_line(shlex.join(command))}")


# -- agents that people use -------------------------------------------------------------------

_VERSION = re.compile(r"\d+(?:\.\d+)+[\w.+-]{0,40}")


def check_agents() -> list[Diagnosis]:
    """List the known agents that are installed: their commands here, and their versions."""
    found = [
        (known, command)
        for known in KNOWN_AGENTS.values()
        for command in known.commands
        if on_path(command[0]) is not None
    ]
    if not found:
        names = ", ".join(KNOWN_AGENTS)
        text = f"none that acphold knows; `acphold chat NAME` shows how to install {names}"
        return [Diagnosis(text)]
    with ThreadPoolExecutor(len(found)) as threads:
        versions = [*threads.map(_version, [command[0] for _, command in found])]
    return [
        Diagnosis(f"{known.name}: {known.title}, {' '.join(command)}{version and f', {version}'}")
        for (known, command), version in zip(found, versions, strict=True)
    ]


def _version(program: str) -> str:
    """Return the version that the program prints; "" if it prints none in time."""
    try:
        started = launch([program, "--version"], merged=True)
    except errors.AgentStartError:
        return ""
    (output,) = started.fds
    try:
        told = b"".join(read_within(output, bounds.AGENT_VERSION_SECONDS, 4096))
    finally:
        started.end(grace=0)
        started.reap()
        os.close(output)
    version = _VERSION.search(told.decode(errors="replace"))
    return version[0] if version else ""


# -- what other agents keep -------------------------------------------------------------------


async def check_transcripts() -> list[Diagnosis]:
    """Find agents that delete conversations, and conversations that are not current here."""
    home = Home(Path.home(), dict(os.environ))
    findings = []
    deleting = {found.reader: found for found in deletions(home)}
    async with AsyncExitStack() as stack:
        journal = None
        with suppress(errors.JournalError):  # there is none, or it is reported as such
            journal = await stack.enter_async_context(existing_journal())
        importable = await find_importable(home, NAMES, journal)
        for name in NAMES:
            reading = reader(name)
            with searching() as search:
                sources = [*reading.find(home)]
                search.known.update(path for source in sources for path in source.paths)
                unknown = search.unknown()
            left = importable.left.get(name, Counter())
            if found := deleting.get(name):
                findings.append(_deletion(found, left.total()))
            elif left:
                why = ", ".join(f"{OUTCOMES[outcome]} {n:,}" for outcome, n in left.items())
                text = f"{name}: {quantity(left.total(), 'conversation')} not current ({why})"
                findings.append(Diagnosis(f"{text}; `acphold import` reads them", is_past=True))
            if unknown:
                findings.append(Diagnosis(f"{name}: {name_unknown(unknown)}", is_past=True))
            for problem in search.unreadable:
                where = f"{folder(problem.filename)}: " if problem.filename else ""
                text = f"{name}: cannot read {where}{problem.strerror or problem}"
                findings.append(Diagnosis(on_one_line(text), is_past=True))
    return findings


def _deletion(found: Deletion, left: int) -> Diagnosis:
    what = f"{found.agent} {found.when}"
    if not left:
        return Diagnosis(f"{what}; all current ones are imported")
    text = (
        f"{what}; `acphold import` keeps them here ({left:,} not yet), and "
        f"{found.setting} in {folder(str(found.file))} keeps them there"
    )
    return Diagnosis(text, is_past=True)


# -- the agent ------------------------------------------------------------------------------


async def check_agent(command: Sequence[str], start_timeout: float) -> list[Diagnosis]:
    """Start the agent as `wrap` does, initialize it, end it; `start_timeout` in seconds."""
    program = command[0]
    if "/" not in program and on_path(program) is None:
        text = f"cannot start {program!r}: no such program on PATH"
        return [Diagnosis(text, "install it, or give its full path")]
    began = time.monotonic()
    try:
        async with introduced(command, ProcessOptions(start_timeout=start_timeout)) as (_, answer):
            seconds = time.monotonic() - began
    except errors.AcpError as error:
        refused = (
            f"{command[0]} refused `initialize`: " if isinstance(error, errors.RemoteError) else ""
        )
        return [Diagnosis(on_one_line(f"{refused}{error}"), _ADVICE)]
    raw = schema.decode(schema.InitializeResponse, answer).value
    own = session_methods(raw.agent_capabilities)
    told = answer_for_client(answer, ClientOffer())
    shown = session_methods(schema.decode(schema.InitializeResponse, told).value.agent_capabilities)
    added = [method for method in shown if method not in own]
    info = raw.agent_info
    called = command[0] if info is None else f"{info.title or info.name} {info.version}"
    afterwards = "acphold passes the earlier conversation on with the next prompt"
    for method in ("session/load", "session/resume"):
        if method in own:
            afterwards = f"it restores its own session, with {method}"
    findings = [
        Diagnosis(f"{on_one_line(called)} answered in {seconds:.2f} s"),
        Diagnosis(f"by itself: {', '.join(own) or 'no session method but new and prompt'}"),
        Diagnosis(f"acphold adds: {', '.join(added) or 'a journal of what the agent may lose'}"),
        Diagnosis(f"after a restart {afterwards}"),
    ]
    if raw.auth_methods:
        names = ", ".join(on_one_line(method.name) for method in raw.auth_methods)
        findings.append(Diagnosis(f"it may ask to sign in first: {names}"))
    return findings


def session_methods(can: schema.AgentCapabilities) -> list[str]:
    """Return the methods on existing sessions that an agent offers."""
    sessions = can.session_capabilities
    offered = {
        "session/list": sessions.list,
        "session/load": can.load_session or None,
        "session/resume": sessions.resume,
        "session/close": sessions.close,
        "session/delete": sessions.delete,
    }
    return [method for method, capability in offered.items() if capability is not None]


_ADVICE = (
    "run the command by itself: an ACP agent waits silently for JSON on stdin. Does it need "
    "another argument, such as --acp, or the full path of a program?"
)
