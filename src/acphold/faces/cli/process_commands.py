"""`acphold agent status` and `agent stop`: the daemons, and the other processes with sessions."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from msgspec import to_builtins
from msgspec.structs import replace

from acp_wire.processes import process_tree
from acp_wire.schema import encode
from acphold.conversation.history.entries import iso, now_ms
from acphold.errors import AcpError, JournalError, RuntimeFolderError
from acphold.faces.cli import bounds, options
from acphold.faces.cli.command_line import Exit, UsageError, command, is_confirmed
from acphold.faces.cli.continuation import title_of
from acphold.faces.cli.front import daemon_address, daemon_lock, journal_of
from acphold.faces.cli.journals import sessions_here, short_id
from acphold.faces.cli.list_table import Column, Table
from acphold.faces.cli.places import find_session
from acphold.faces.cli.settings import agent_name
from acphold.faces.cli.terminal_text import (
    folder,
    on_one_line,
    quantity,
    say,
    short_age,
    size,
    tell,
    titled,
    visible,
)
from acphold.journal.journal import other_owner, row_of
from acphold.live.reading.local_reader import existing_journal
from acphold.live.reading.one_question import STOP, ask_process
from acphold.live.reading.processes import (
    EditorFront,
    LiveSession,
    Process,
    SilentProcess,
    end_hung,
    ending_processes,
    processes,
    silent_processes,
)
from acphold.machine.addresses import pid_at, unix_address
from acphold.machine.first_frame import BRIEF, EDITOR, SERVER
from acphold.machine.runtime_folder import is_running, runtime_folder
from acphold.machine.unix import is_listening

FRONTS: Final = {BRIEF: "acphold ask", SERVER: "acphold serve"}
"""The programs of these kinds of fronts."""


@command("agent status", "[OPTIONS]")
async def status(*, as_json: bool = options.json("one object for each process")) -> int:
    """Show what runs: processes, agents and sessions.

    Of each agent it shows the editor that it is for and its folder, the time that it has run, its
    memory with that of the programs that it has started, and its sessions: waiting means for your
    answer. Nothing is started. A process whose files were replaced by an upgrade
    goes on with its own code, and makes room for the new one when nobody needs it. The exit code
    is 1 if a process does not answer.

    With --json each object also has since (ISO 8601, UTC) and memory (bytes), and so has each of
    its programs.
    """
    _require_folder()
    found, silent, ending = await processes_here()
    if as_json:
        for process in found:
            programs = [{**to_builtins(it), **_facts(it.pid)} for it in process.programs]
            facts = {**to_builtins(process), **_facts(process.pid), "programs": programs}
            print(encode(facts).decode())
    else:
        ids = [session.session_id for process in found for session in process.sessions]
        short_ids, titles = {session_id: session_id for session_id in ids}, dict[str, str]()
        with suppress(JournalError):  # it cannot be read, or is not there
            async with sessions_here() as (reader, journal):
                short_ids = await reader.short_ids(ids)
                rows = [await row_of(journal, session_id) for session_id in ids]
                titles = {it.session_id: titled(it.title) for it in rows if it}
        for process in found:
            print_process(process)
            table = Table(SESSIONS)
            for it in sorted(process.sessions, key=lambda it: not it.waiting):
                short, title = short_ids[it.session_id], titles.get(it.session_id, titled(None))
                waits = quantity(len(it.questions), "question") if it.questions else ""
                clients = quantity(it.clients, "client")
                table.add([title, on_one_line(short), it.state, clients, waits])
            if table.lines:
                table.print()
        for each in ending:
            say(f"process {each.pid}: daemon, ends or just begins")
        if not (found or silent or ending):
            print("Nothing is running.")
    for each in silent:
        say(each.words)
    return Exit.ERROR if silent else Exit.OK


SESSIONS = (
    Column("SESSION", "heading"),
    Column("ID", "id"),
    Column("STATE", "busy"),
    Column("OPEN IN", "faint"),
    Column("WAITS", "busy"),
)

AGENTS = (
    Column("AGENT", "agent"),
    Column("FOR", "faint", most=48, least=10),
    Column("SINCE", ""),
    Column("MEMORY", ""),
    Column("SESSIONS", "busy"),
)


def print_process(process: Process) -> None:
    """Print a process, and a table of its agents and fronts."""
    kind = "daemon" if process.is_daemon else "for an editor or a program"
    old = ", replaced by an upgrade" if process.is_replaced else ""
    since, memory = _since_and_memory(process.pid, alone=True)
    release = f"release {process.release}{old}"
    say(f"process {process.pid}: {kind}, {release}, since {since}, {memory}")
    for front in process.fronts:
        if front.own_homes:
            say(f"{_front_words(front)} has its own {', '.join(front.own_homes)}")
    if process.limited:
        say(process.limited)
    table = Table(AGENTS)
    numbers = {program.number for program in process.programs}
    # Agents of `ask` and `serve` are nobody else's, so that one alone is known.
    shared = [it for it in process.fronts if it.agent not in numbers and it.kind in FRONTS]
    unknown = numbers - {it.agent for it in process.fronts}
    for program in process.programs:
        fronts = [it for it in process.fronts if it.agent == program.number]
        fronts += shared if unknown == {program.number} and len(shared) == 1 else []
        own = [it for it in process.sessions if it.agent == program.number]
        states, clients = Counter(it.state for it in own), sum(it.clients for it in own)
        sessions = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        table.add(
            [
                on_one_line(agent_name(program.key)) or "starts",
                "; ".join(map(_front_words, fronts))
                or (clients and quantity(clients, "client"))
                or "nobody now",
                *_since_and_memory(program.pid),
                sessions or "none",
            ]
        )
    for front in process.fronts:
        if front.agent not in numbers and not (
            front in shared and len(unknown) == 1 == len(shared)
        ):
            its = ("-", "-") if front.pid is None else _since_and_memory(front.pid, alone=True)
            table.add(["-", _front_words(front), its[0], "-", "-"])
    if table.lines:
        table.print()


def _front_words(front: EditorFront) -> str:
    """Return the program that a front is for, and its folder."""
    names = []
    if front.pid is not None and front.kind == EDITOR:
        words = process_tree.command_line(process_tree.parents().get(front.pid, 0))
        names = [os.path.basename(word) for word in words[:4]]
    if "acphold" in names[:-1]:  # `acphold chat`
        who = f"acphold {names[names.index('acphold') + 1]}"
    else:
        who = names[0] if names else FRONTS.get(front.kind, "editor")
    return on_one_line(f"{who} in {folder(front.folder)}")


def _facts(pid: int) -> dict[str, object]:
    """Return the facts of a program for JSON; null where they are unknown."""
    at = process_tree.started_at(pid)
    since = None if at is None else iso(int(at * 1000))
    return {"since": since, "memory": process_tree.resident_bytes(process_tree.family(pid)) or None}


def _since_and_memory(pid: int, *, alone: bool = False) -> tuple[str, str]:
    """Return the age of a program in a table, and its memory with its family's or `alone`."""
    at, memory = (
        process_tree.started_at(pid),
        process_tree.resident_bytes({pid} if alone else process_tree.family(pid)),
    )
    since = "-" if at is None else short_age(int(at * 1000), now_ms())
    return since, size(memory) if memory else "-"


@command("agent stop", "[OPTIONS] [ID]", options.ON_HOST, options.JOURNAL)
async def stop(
    *,
    session_id: str | None = options.argument("ID", "a running session", nargs="?"),
    everything: bool = options.flag("stop the daemons of other journals, too", "--all"),
    force: bool = options.flag("kill what does not answer or does not end; ask nothing"),
    sure: bool = options.SURE,
) -> int:
    """Stop the daemon, or one agent.

    With ID, stops the agent that runs this session, and its other sessions with it. Without ID,
    stops the daemon of the journal with all its agents. Running turns are cancelled
    first: if there are any, or open questions, you are asked. The conversations stay in the journal
    and can be loaded again.

    With --force, a process that hangs or is stopped is killed. Nothing that was shown is lost, and
    its running turns are marked as interrupted.
    """
    if session_id is not None and (everything or force):
        raise UsageError(f"use ID or {'--all' if everything else '--force'}, not both")
    _require_folder()
    stopped, known = await _look(session_id, everything=everything), ""
    while stopped.at_work != known and stopped.at_work and not (sure or force):
        known = stopped.at_work
        if not sys.stdin.isatty():
            return _complain(f"{known}; --yes stops it anyway")
        if not is_confirmed(visible(f"{known}. Stop anyway?")):
            return Exit.ERROR
        # Meanwhile other work may have begun, also in another process.
        stopped = await _look(session_id, everything=everything)
    return await stopped.stop(force=force)


class _Stopped(NamedTuple):
    """The processes that are to be stopped, and those that are `ending`; or the `session_id` whose
    agent is. `others` run for other journals. `at_work` is what the end cuts short."""

    answering: Sequence[Process]
    silent: Sequence[SilentProcess] = ()
    ending: Sequence[SilentProcess] = ()
    others: bool = False
    session_id: str | None = None
    at_work: str = ""

    async def stop(self, *, force: bool) -> int:
        """Stop them; return the exit code."""
        if self.session_id is not None:
            return await _stop_session(self.answering, self.session_id)
        if not force:
            for process in self.silent:
                _complain(process.words)
            if self.silent and not self.answering:
                return Exit.ERROR
        if self.answering or self.silent:
            return await _stop(self.answering, self.silent, force=force)
        if left := await _still_running(self.ending):
            if force:
                return await _kill(left)
            pids = " and ".join(str(process.pid) for process in left)
            return _complain(f"process {pids} is still ending; --force kills it")
        if self.ending:
            tell("The daemon has just ended.")
        elif self.others:
            tell("This journal has no daemon; `acphold agent stop --all` stops those of others.")
        else:
            tell("No daemon is running.")
        return Exit.OK


async def _look(session_id: str | None, *, everything: bool) -> _Stopped:
    """Find what is to be stopped. Raises JournalError and UsageError for a session that cannot be
    found."""
    found, silent, ending = await processes_here()
    if session_id is not None:
        async with sessions_here() as (reader, _):
            row = await find_session(reader, session_id, "ends its process")
        its = [it for it in found for live in it.sessions if live.session_id == row.session_id]
        at_work = await _at_work([it for each in its for it in _beside(each, row.session_id)])
        return _Stopped(found, session_id=row.session_id, at_work=at_work)
    daemons = [process for process in found if process.is_daemon]
    silent = [it for it in silent if not it.hangs]  # these end all the same
    others = False
    if not everything:
        is_own = await _find_own()
        before = len(daemons) + len(silent)
        daemons = [it for it in daemons if is_own(it.path)]
        silent = [it for it in silent if is_own(it.path)]
        others = len(daemons) + len(silent) < before
    at_work = await _at_work([it for process in daemons for it in process.sessions])
    return _Stopped(daemons, silent, ending, others, at_work=at_work)


async def processes_here() -> tuple[list[Process], list[SilentProcess], list[SilentProcess]]:
    """Return the processes that serve sessions, the daemons that do not answer, and this journal's
    one if it ends or just begins."""
    held = daemon = ""
    with suppress(JournalError, OSError):
        daemon = daemon_address(held := daemon_lock(journal_of(())))
    found = await processes(daemon=daemon)
    ending = ending_processes(held, daemon) if held else []
    return found, silent_processes(found, held, daemon), ending


async def _find_own() -> Callable[[str], bool]:
    """Return a test for the sockets of processes that have this journal open."""
    daemon = daemon_address(daemon_lock(journal_of(())))
    addresses: set[str] = set()
    with suppress(JournalError):  # it is damaged: its owners are unknown; or not there
        async with existing_journal() as journal:
            owners = await journal.owners()
        addresses = {address for owner in owners for address in owner.addresses}
    return lambda path: path == daemon or unix_address(path) in addresses


def _beside(process: Process, session_id: str) -> list[LiveSession]:
    """Return the sessions that end with this one: those of the same agent."""
    agents = {it.agent for it in process.sessions if it.session_id == session_id}
    return [it for it in process.sessions if it.agent in agents]


async def _at_work(live: Sequence[LiveSession]) -> str:
    """Return, in words, the turns that run and the questions that wait in these sessions; "" if
    there are none."""
    busy = [it for it in live if it.running or it.waiting]
    titles = {it.session_id: it.session_id for it in busy}
    with suppress(JournalError):  # of another journal, say
        async with existing_journal() as journal:
            for it in busy:
                if (row := await row_of(journal, it.session_id)) is not None:
                    titles[it.session_id] = title_of(row)
    told = []
    for it in busy[: bounds.NAMED_AT_WORK]:
        number = max(1, len(it.questions))
        what = f"{quantity(number, 'question')} wait{'s' * (number == 1)}"
        told.append(f"{what if it.waiting else 'a turn runs'} in {titles[it.session_id]}")
    if left := busy[bounds.NAMED_AT_WORK :]:
        told.append(f"and {quantity(len(left), 'more session')} at work")
    return ", ".join(told)


def _require_folder() -> None:
    """Raise RuntimeFolderError where the folder of the sockets is there and cannot be trusted: the
    processes cannot be seen then, and may run all the same."""
    try:
        runtime_folder()
    except RuntimeFolderError as exc:
        if os.path.lexists(exc.folder):
            raise


def _complain(words: str) -> Exit:
    tell(f"acphold stop: {words}")
    return Exit.ERROR


async def _stop_session(found: Sequence[Process], wanted: str) -> int:
    async with existing_journal() as journal:
        short = await short_id(journal, wanted)
        owner = await other_owner(journal, wanted)
    for process in found:
        if wanted not in [session.session_id for session in process.sessions]:
            continue
        if not process.is_daemon:
            return _complain(
                f"session {short} is kept by another program (process {process.pid}), not by the "
                "daemon; close it there"
            )
        params = encode({"sessionId": wanted})
        try:
            await ask_process([unix_address(process.path)], STOP, params, bounds.STOP_SECONDS)
        except AcpError as error:
            return _complain(
                f"process {process.pid} does not end the agent of {short}: {error}; `acphold agent "
                "stop` ends the process"
            )
        say(f"Stopped the agent of session {short}.")
        return Exit.OK
    if owner is not None:
        number = pid_at(owner.addresses)
        how = (
            f"`kill -9 {number}` ends it, and nothing that was shown is lost"
            if number is not None
            else "that number may be another process here: stop it where it runs"
        )
        return _complain(f"session {short} is held by {owner}, which does not answer; {how}")
    tell(f"Session {short} is not running: there is nothing to stop.")
    return Exit.OK


async def stop_all_of() -> int:
    """End the daemons that have this journal open; returns the exit code."""
    stopped = await _look(None, everything=False)
    return await _stop(stopped.answering)


def _agent_names(keys: set[str]) -> list[str]:
    return [on_one_line(name) for name in sorted({agent_name(key) for key in keys})]


def _end_of(process: Process | SilentProcess) -> str:
    """Return what ended with a process, in words."""
    if not isinstance(process, Process):
        return f"Ended process {process.pid}, which did not answer."
    running = {it.key for it in process.programs} - {""}
    ended, idle = _agent_names(running), _agent_names({*process.agents} - running)
    if not running and idle:  # an earlier release does not tell which of them run
        ended, idle = [f"process {process.pid}"], []
    *others, last = ended or ["a daemon without an agent"]
    words = f"Ended {', '.join(others)}{' and ' * bool(others)}{last}."
    for name in idle:
        if name not in ended:
            words += f" {name} was not running."
    questions = sum(max(len(it.questions), it.waiting) for it in process.sessions)
    turns = sum(it.running and not it.waiting for it in process.sessions)
    for count, what, how in ((questions, "open question", "cancelled"), (turns, "turn", "stopped")):
        if count:
            words += f" {quantity(count, what)} {'was' if count == 1 else 'were'} {how}."
    return words


async def _stop(
    found: Sequence[Process], silent: Sequence[SilentProcess] = (), *, force: bool = False
) -> int:
    signalled, code = [], Exit.OK
    for process in found:
        number = pid_at([unix_address(process.path)])
        if process.hangs:
            await end_hung(process)
        elif number is not None:
            with suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(number, signal.SIGTERM)
        elif is_listening(process.path):
            code = _complain(
                f"the process at {process.path} has no process id here, as in a container; stop it "
                "where it runs"
            )
            continue
        signalled.append(replace(process, pid=number or process.pid))
    left = await _still_running(signalled)
    for process in signalled:
        if process not in left:
            say(_end_of(process))
            for pid in dict.fromkeys(it.pid for it in process.fronts if it.kind == SERVER):
                ends = "" if pid is None else f", or `kill {pid}`,"
                print(
                    "`acphold serve` still runs, and starts its agents again: Ctrl-C there"
                    f"{ends} ends it."
                )
        elif not force:
            _complain(f"process {process.pid} does not end; `acphold agent stop --force` kills it")
    if force:
        return max(code, await _kill([*left, *silent]))
    return Exit.ERROR if left or silent else code


async def _kill(found: Sequence[Process | SilentProcess]) -> int:
    """Kill processes that do not end by themselves, where their numbers are known."""
    killed = []
    for process in found:
        if process.pid is None:
            _complain(process.words)
            continue
        with suppress(ProcessLookupError):  # it has ended meanwhile
            os.kill(process.pid, signal.SIGKILL)
        killed.append(process)
    left = await _still_running(killed)
    for process in killed:
        if process in left:  # it waits for a disk, or such
            _complain(f"process {process.pid} was killed, but has not ended yet")
        else:
            say(_end_of(process))
    return Exit.OK if len(killed) == len(found) and not left else Exit.ERROR


async def _still_running(
    found: Sequence[Process | SilentProcess],
) -> list[Process | SilentProcess]:
    """Return those that have not ended within `bounds.STOP_SECONDS`."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + bounds.STOP_SECONDS
    while True:
        left = [it for it in found if it.pid is None or is_running(it.pid)]
        if not left or loop.time() > deadline:
            return left
        await asyncio.sleep(bounds.STOP_LOOK_SECONDS)
