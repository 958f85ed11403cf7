"""`acphold export`: writes sessions as Markdown, JSON lines, or HTML pages."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TextIO

from msgspec import Struct

from acphold.conversation.exports import forms
from acphold.conversation.exports.forms import FORMS, INDEX, Form, Head, form_of
from acphold.conversation.exports.redacted import Redaction
from acphold.conversation.history.entries import Entry
from acphold.conversation.reports.transcript import entries_by_turn
from acphold.errors import UnknownSessionError
from acphold.faces.cli import bounds, options
from acphold.faces.cli.command_line import UsageError, command
from acphold.faces.cli.journals import reading
from acphold.faces.cli.places import place
from acphold.faces.cli.settings import agent_keys, agent_name
from acphold.faces.cli.ssh import host_option
from acphold.faces.cli.terminal_text import (
    at_work,
    folder,
    on_one_line,
    on_terminal,
    quantity,
    tell,
    visible_json,
)
from acphold.journal.rows import ListFilter, SessionRow
from acphold.live.reading.json_facts import place_name
from acphold.live.reading.listed_sessions import Wanted
from acphold.live.reading.local_reader import LocalReader, session_pages


@command("export", "[OPTIONS] [ID...]", *options.PLACES)
async def export(
    *,
    session_ids: list[str] = options.argument(
        "ID", "a session's id, or a prefix of it; with @SEQ, one turn", nargs="*"
    ),
    everything: bool = options.flag("every session with a prompt, archived ones too", "--all"),
    agent: str | None = options.value("NAME", "with --all: only this agent's sessions"),
    cwd: str | None = options.value("DIR", "with --all: only this folder's sessions"),
    since: int = options.since("with --all: only sessions active"),
    form: str | None = options.value(
        "FORMAT",
        f"{', '.join(FORMS)} [default: by the name of PATH, else markdown]",
        "--format",
        choices=FORMS,
    ),
    output: str | None = options.value(
        "PATH", "a file, or a folder for one file per session [default: stdout]", "--output", "-o"
    ),
    redact: bool = options.flag(
        "remove secrets, home paths, mail and network addresses, and report how many"
    ),
    report: str | None = options.value(
        "FILE", "with --redact: write a JSON line for each thing that was removed"
    ),
) -> None:
    """Write sessions as Markdown, JSON lines or HTML pages.

    Each ID can be any unique prefix, or `-` for the newest session of the folder; without any you
    choose from a list. ID@SEQ, as printed by `search`, is the turn that has this entry, and ID@last
    the last one. JSON lines contain everything in the journal, and `acphold import --from
    FOLDER` reads them back. An HTML page is one self-contained file; several pages, with an index,
    go into a folder.

    With --redact, acphold writes only text that it has checked; it leaves out pictures and other
    encoded data. It recognises secrets by their form, their name and their place. Still, read the
    result before you share it.
    """
    if (host_typed := host_option()) and (output not in (None, "-") or report is not None):
        raise UsageError(
            "--output and --report would write on that machine; "
            f"`acphold export{host_typed} … > FILE` writes here"
        )
    if (everything and session_ids) or not (everything or session_ids or on_terminal()):
        raise UsageError("name the sessions, or use --all; see `acphold export --help`")
    if (agent, cwd, since) != (None, None, 0) and not everything:
        raise UsageError("--agent, --cwd and --since need --all")
    if report is not None and not redact:
        raise UsageError("--report needs --redact")
    several = everything or len(session_ids) > 1
    chosen, path, is_folder = _destination(output, form, several=several)
    turns: dict[str, list[int]] = {}  # the numbers of entries, where not all turns are wanted
    fitting = ListFilter(agents=agent_keys(agent), cwd=cwd, archived="include")
    redaction = Redaction() if redact else None
    async with reading() as reader:
        if everything:
            pages = session_pages(reader, Wanted(fitting, since=since))
            found = [it.row async for page in pages for it in page]
        else:
            names: Sequence[str | None] = session_ids or [None]
            meant = [await place(reader, given, "exports it", by_words="found") for given in names]
            found = [each.row for each in meant]
            for each in meant:
                if each.seq is not None:
                    turns.setdefault(each.row.session_id, []).append(each.seq)
            for whole in (each.row.session_id for each in meant if each.seq is None):
                turns.pop(whole, None)
        # Not while listing: reading a session moves it in the list.
        rows = [await reader.whole(row) for row in {row.session_id: row for row in found}.values()]
        # With --all, sessions that are deleted meanwhile are skipped.
        passed = (UnknownSessionError,) if everything else ()
        entries = partial(_entries, reader, turns)
        writing = _ExportWriter(entries, chosen, redaction, passed)
        if path is None:
            await writing.print(rows)
        elif is_folder:
            with at_work():
                await writing.fill(forms.folder(path), rows)
        else:
            with at_work(), forms.replace_file(path) as file:
                await writing.write(rows, file)
    if path is not None or not rows:
        where = f" to {folder(path)}" if path and rows else ""
        tell(f"Wrote {quantity(len(rows), 'session')}{where}.")
    if redaction:
        _report_removed(redaction, report)


async def _entries(
    reader: LocalReader, turns: Mapping[str, Sequence[int]], session_id: str
) -> AsyncIterator[Entry]:
    """Yield the entries of a session, or of the turns that have these entries."""
    wanted = turns.get(session_id)
    if wanted is None:
        async for entry in reader.entries(session_id):
            yield entry
        return
    async for turn in entries_by_turn(reader.entries(session_id)):
        if any(turn[0].seq <= seq <= turn[-1].seq for seq in wanted):
            for entry in turn:
                yield entry


async def export_here(session_id: str) -> str:
    """Write a session as Markdown into this folder; return the name of the file."""
    async with reading() as reader:
        row = await reader.whole(await reader.session(session_id))
        form = FORMS["markdown"]
        await _ExportWriter(reader.entries, form, None, ()).fill(os.curdir, [row])
    return head_of(row).file_name + form.suffix


def _destination(
    output: str | None, form: str | None, *, several: bool
) -> tuple[Form, str | None, bool]:
    """Return the form, the path, None for stdout, and True if that is a folder."""
    path = None if output in (None, "-") else os.path.expanduser(output or "")
    named_form = form_of(path) if path else None
    is_folder = path is not None and (
        os.path.isdir(path)
        or path.endswith(os.sep)
        # A device or a pipe takes all sessions in a row.
        or (several and named_form is None and (os.path.isfile(path) or not os.path.exists(path)))
    )
    chosen = FORMS[form] if form else named_form or FORMS["markdown"]
    if several and chosen.has_pages and not is_folder:
        raise UsageError("several pages need a folder: --output FOLDER/")
    return chosen, path, is_folder


# -- writing ------------------------------------------------------------------------------------


def head_of(row: SessionRow) -> Head:
    """Return the head of a session of the journal."""
    theirs = None if row.downstream_id == row.session_id else row.downstream_id
    ours = ("agent_session_id", "agent_name")
    same = {name: getattr(row, name) for name in Head.__struct_fields__ if name not in ours}
    called = agent_name(row.agent)
    return Head(**same, agent_session_id=theirs, agent_name="" if called == row.agent else called)


class _ExportWriter(Struct, frozen=True):
    """Writes sessions in one form; errors that it `passes_over` skip a session."""

    entries: Callable[[str], AsyncIterator[Entry]]
    form: Form
    redaction: Redaction | None
    passes_over: tuple[type[Exception], ...]

    async def write(self, rows: list[SessionRow], file: TextIO) -> None:
        """Write sessions one after another."""
        for row in rows:
            with suppress(*self.passes_over):
                await self._write(*await self._redact(row), file)

    async def print(self, rows: list[SessionRow]) -> None:
        """Write sessions to stdout; with redaction, only after all of them were checked."""
        if self.redaction is None:
            await self.write(rows, sys.stdout)
            return
        with tempfile.TemporaryFile("w+", encoding="utf-8", newline="") as file:
            await self.write(rows, file)
            file.seek(0)
            shutil.copyfileobj(file, sys.stdout)

    async def fill(self, path: str, rows: list[SessionRow]) -> None:
        """Write each session into its own file in a folder, and an index of them."""
        heads = []
        for row in rows:
            with suppress(*self.passes_over):
                head, found = await self._redact(row)
                name = head.file_name + self.form.suffix
                with forms.replace_file(os.path.join(path, name)) as file:
                    await self._write(head, found, file)
                heads.append(head)
        if len(heads) > 1 and (text := self.form.index(heads)):
            with forms.replace_file(os.path.join(path, INDEX + self.form.suffix)) as file:
                file.write(text)

    async def _redact(self, row: SessionRow) -> tuple[Head, AsyncIterator[Entry]]:
        """Return the head and the entries of a session, redacted if asked for."""
        head = head_of(row)

        def read() -> AsyncIterator[Entry]:
            return self.entries(row.session_id)

        return await self.redaction.of(head, read) if self.redaction else (head, read())

    async def _write(self, head: Head, found: AsyncIterator[Entry], file: TextIO) -> None:
        # Markdown and pages contain nothing that controls a terminal.
        tame = visible_json if self.form.name == "jsonl" and file.isatty() else str
        async for text in self.form.writer()(head, found):
            for at in range(0, len(text), bounds.WRITTEN_CHARACTERS):  # each is encoded at once
                file.write(tame(text[at : at + bounds.WRITTEN_CHARACTERS]))


def _report_removed(redaction: Redaction, report: str | None) -> None:
    """Print what was removed and where; never the text itself."""
    if report is not None:
        with forms.replace_file(os.path.expanduser(report)) as file:
            file.writelines(removed.line() for removed in redaction.removed)
    if not redaction.removed:
        tell("Nothing was removed.")
        return
    kinds = [f"{kind} {count}" for kind, count in redaction.summary()]
    tell(f"Removed: {', '.join(kinds)}")
    if report is not None:
        return
    for removed in redaction.removed[: bounds.REMOVED_TEXTS]:
        place = place_name(on_one_line(removed.session), removed.seq)
        tell(f"  {place}  {removed.kind} {removed.count}")
    if (more := len(redaction.removed) - bounds.REMOVED_TEXTS) > 0:
        tell(f"  and {quantity(more, 'more line')}; --report FILE lists all")
