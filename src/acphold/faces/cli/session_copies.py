"""Copies of a conversation that `acphold continue` goes on in: from a prompt, with another agent,
with its files."""

from __future__ import annotations

import shlex
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Final

from msgspec import Struct

from acp_wire.schema import PROTOCOL_VERSION, Implementation, InitializeRequest, encode
from acp_wire.surroundings import Surroundings
from acphold.errors import AmbiguousIdError, MethodNotFoundError, SettingsError, UnknownSessionError
from acphold.faces.cli.command_line import UsageError, is_confirmed, require_folder
from acphold.faces.cli.continuation import title_of
from acphold.faces.cli.journals import sessions_here, short_id
from acphold.faces.cli.places import place, require_entry
from acphold.faces.cli.settings import agent_keys, agent_name, enter_agent
from acphold.faces.cli.terminal_text import on_one_line, quantity, say, visible
from acphold.faces.cli.wrap import options_of
from acphold.journal.journal import Journal
from acphold.journal.rows import ListFilter
from acphold.live.agents.interface import AgentRequest, Event
from acphold.live.agents.wrapped import ProcessAgent, ProcessOptions
from acphold.live.hub.forks import fork
from acphold.live.hub.kept_files import KeptThere, fork_with_files
from acphold.live.reading.local_reader import existing_journal
from acphold.safety.snapshots.worktree import newest_change, unlay
from acphold.version import __version__

BESIDE = ""
"""The value of `--files` without a folder."""

LAST = 0
"""The value of `--from last`; entries are numbered from 1."""


class WantedCopy(Struct, kw_only=True):
    """The options of a copy; `files` is the folder, BESIDE for one beside the project, or None."""

    start: int | None = None
    before: bool = False
    agent: str | None = None
    program: tuple[str, ...] = ()
    files: str | None = None
    include: bool = False
    cwd: str | None = None


class MadeCopy(Struct, frozen=True):
    """A copy: its last entry, and the folder with its files, if there is one, and when something
    changed there last."""

    session_id: str
    last_seq: int
    files: KeptThere | None
    changed_at: int

    async def remove_if_unused(self) -> str:
        """Delete it with its folder, if nobody has used them; return a sentence about that."""
        async with existing_journal() as journal:
            row = await journal.session(self.session_id)
            if row.last_seq != self.last_seq:
                return "The copy stays: it was continued."
            if (files := self.files) is not None:
                if newest_change(files.laid.folder) != self.changed_at:
                    return "The copy stays: its files have changed."
                unlay(files.laid, files.snapshot.root)
            await journal.delete(self.session_id)
        where = "" if files is None else f", and of {files.laid.folder}"
        return f"Nothing is left of the copy{where}."


async def copy_session(text: str | None, wanted: WantedCopy) -> MadeCopy:
    """Copy a session; prints the id of the copy, and what is in it.

    In a pipe only the id goes to stdout. Raises UsageError, and the errors of `place` and `fork`.
    """
    require_folder(wanted.cwd)
    async with sessions_here() as (reader, journal):
        if text is None and wanted.files:
            with suppress(UnknownSessionError, AmbiguousIdError):
                await reader.session(wanted.files.partition("@")[0])
                raise UsageError(
                    f"{wanted.files!r} is a session: put it first, as in `acphold continue "
                    f"{wanted.files} --files`"
                )
        found = await place(reader, text, "continues it in a copy", by_words="chosen")
        if found.seq is not None and wanted.start:
            raise UsageError("give the entry with --from or as ID@SEQ, not both")
        if wanted.start:
            start = str(wanted.start)
            require_entry(found.row, start, f"--from {start}")
        at = wanted.start or found.seq
        agent = await _agent_of(journal, wanted)
        if agent == found.row.agent and (wanted.start, at, wanted.files) == (None,) * 3:
            called = on_one_line(agent_name(agent))
            raise UsageError(f"this session already belongs to {called}; leave out --with")
        files = None
        if wanted.files is None:
            folders = (wanted.cwd, *found.row.additional_directories) if wanted.cwd else ()
            made = await fork(
                journal, found.row, at=at, before=wanted.before, agent=agent, folders=folders
            )
        else:
            files, made = await fork_with_files(
                journal,
                found.row,
                Surroundings.here(),
                wanted.files or None,
                at=at,
                before=wanted.before,
                agent=agent,
                include=wanted.include,
            )
        short = await short_id(journal, made.session_id)
        row = await journal.session(made.session_id)
        its_agent = row.agent
    if not sys.stdout.isatty():
        say(made.session_id)
    turns = f"({quantity(made.turns, 'turn')})"
    about = [f"Copied {title_of(found.row)} {turns} to {short}"]
    if its_agent != found.row.agent:
        about.append(f"it continues with {agent_name(its_agent)}")
    if made.runs:
        about.append("its last turn is still running and was left out")
    elif made.left_out:
        about.append(f"{quantity(made.left_out, 'later turn')} left out")
    if files is not None:
        about += _description_of_files(files)
    said = "\n  ".join(visible(on_one_line(line)) for line in about)
    print(said, file=sys.stdout if sys.stdout.isatty() else sys.stderr)
    changed_at = 0 if files is None else newest_change(files.laid.folder)
    return MadeCopy(made.session_id, row.last_seq, files, changed_at)


async def copy_listed(session_id: str, agent: str | None) -> MadeCopy:
    """Copy a session that was chosen from a list, for this agent, by default its own; ask for its
    files if they were kept."""
    question = "Also copy its files, as they were at its end, into a new folder?"
    async with existing_journal() as kept:
        newest = (await kept.snapshots.newest([session_id])).get(session_id)
    files = BESIDE if newest and newest.is_kept and is_confirmed(question) else None
    return await copy_session(session_id, WantedCopy(start=LAST, agent=agent, files=files))


async def _agent_of(journal: Journal, wanted: WantedCopy) -> str | None:
    """Return the key of the wanted agent, which is started and asked; None for the session's own.

    An agent that cannot be started may be one that the list has. Raises SettingsError.
    """
    if wanted.agent is None and not wanted.program:
        return None
    try:
        chosen = enter_agent(wanted.agent, wanted.program)
    except SettingsError:
        listed = ListFilter(agents=agent_keys(wanted.agent), archived="include")
        if rows := await journal.page(listed, None, 1):
            return rows[0].agent
        raise
    name = chosen.options.get("name")
    options = ProcessOptions(
        name=name if isinstance(name, str) else None,
        start_timeout=options_of(chosen)["start_timeout"],
    )
    async with introduced(chosen.command, options) as (asked, _):
        return asked.key


@asynccontextmanager
async def introduced(
    command: Sequence[str], options: ProcessOptions
) -> AsyncIterator[tuple[ProcessAgent, bytes]]:
    """Start an agent that is only asked who it is; yield it with its answer to `initialize`."""
    asking = InitializeRequest(
        protocol_version=PROTOCOL_VERSION,
        client_info=Implementation(name="acphold", version=__version__),
    )
    async with aclosing(ProcessAgent(command, _Nobody(), Surroundings.here(), options)) as agent:
        yield agent, await agent.initialize(encode(asking))


class _Nobody:
    """Ignores and answers nothing."""

    async def hear(self, event: Event) -> None:
        return None

    async def answer(self, asked: AgentRequest) -> bytes:
        raise MethodNotFoundError(asked.method)


def removal_of(folder: str, project: str) -> str:
    """Return the sentence with the command that removes a work tree of a project, and its losses.

    The files that were copied are changes to git, so it has to be told to remove them.
    """
    command = shlex.join(["git", "-C", project, "worktree", "remove", "--force", folder])
    return f"`{command}` removes it, with every change there that no branch has"


def not_copied(left_out: int, names: Sequence[str], which: str = "Files") -> str:
    """Return a sentence about files that were not copied: ignored ones, and so many others that
    were left out, the first of which are named."""
    others = ""
    if left_out:
        named = ", ".join(names) + (", …" if left_out > len(names) else "")
        others = f", nor {quantity(left_out, 'file')} ({named})"
    return f"{which} in .gitignore, if any, were not copied{others}."


def _description_of_files(copied: KeptThere) -> list[str]:
    """Describe the folder that was made, and what is not in it, in lines."""
    lines = [f"its files are in {copied.cwd}"]
    if copied.laid.why_plain:
        lines.append(f"a plain folder: {copied.laid.why_plain}")
    else:
        lines.append(removal_of(copied.laid.folder, copied.snapshot.root))
    first = [path for path, _ in copied.snapshot.left_out[:3]]
    more = copied.included
    if more.count:
        names = ", ".join(more.names) + (", …" if more.count > len(more.names) else "")
        lines.append(f"copied as they are now: {quantity(more.count, 'ignored file')} ({names})")
    if more.missing:
        lines.append(f"not all of .worktreeinclude was copied: {more.missing}")
    hint = " --include copies those of .worktreeinclude." if more.is_possible else ""
    which = "Other files" if more.count else "Files"
    lines.append(f"{not_copied(copied.snapshot.left_out_count, first, which)}{hint}")
    if (moment := _MOMENTS.get(copied.snapshot.state)) is not None:
        lines.append(moment)
    return lines


_MOMENTS: Final = {
    "later": "acphold exited in that turn: these files are from the start of the next one",
    "late": "taken late: they may contain the first changes of the next turn",
    "likely": "likely as they were: the agent had spoken before they were all read",
}
"""What is said of files that may be others than at that moment."""
