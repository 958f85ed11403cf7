"""`acphold diff`: the file changes of a session, as a patch."""

from __future__ import annotations

import asyncio
import sys

from acphold.cli.command_line import Exit, Parser, UsageError, add_journal
from acphold.cli.journals import opened
from acphold.cli.places import place
from acphold.cli.ssh import add_host
from acphold.cli.terminal_text import console, counted, on_one_line, visible
from acphold.history.turn_spans import span_at, turn_spans
from acphold.journal import history
from acphold.reading.local_reader import LocalReader
from acphold.reports.session_diff import FileDiff, on_disk, session_diff


def parser() -> Parser:
    """The arguments of `diff`."""
    made = Parser(diff, "diff", "[OPTIONS] [ID]", is_read=True)
    made.add_argument(
        "session_id",
        metavar="ID",
        nargs="?",
        help="the session's id, or a prefix of it; with @SEQ, one turn",
    )
    made.add_argument(
        "--turn",
        metavar="N",
        type=int,
        help="only this turn: 1 is the first, -1 the last [default: all turns]",
    )
    add_host(made)
    add_journal(made)
    return made


def diff(*, session_id: str | None, turn: int | None, host: str | None, journal: str | None) -> int:
    """Show what a session changed in files, as a patch.

    The patch is built from the edits that the agent showed, one per file. Paths are relative to the
    session's folder, where `git apply` applies it and `git apply -R` reverts it. ID@SEQ selects the
    turn with that entry; without ID you choose from a list.

    Many agents show only the lines around a change. The rest is taken from the file as it is now,
    if the change is still in it, or not yet. Otherwise stderr says which file is missing and why,
    and the exit code is 1. Changes made by commands are not in the patch.
    """
    assert host is None, "done there"
    found = asyncio.run(_found(journal, session_id, turn))
    _print("".join(file.patch for file in found))
    for file in found:
        if file.gap is not None:
            print(f"{on_one_line(file.path)}: {file.gap.value}", file=sys.stderr)
    if not any(file.patch or file.gap for file in found):
        print("The agent reported no changed files.", file=sys.stderr)
    return Exit.ERROR if any(file.is_missing for file in found) else Exit.OK


async def _found(location: str | None, text: str | None, turn: int | None) -> list[FileDiff]:
    async with opened(location) as journal:
        found = await place(LocalReader(journal), text, "shows its changes")
        spans = await turn_spans(history(journal, found.row.session_id))
        cwd = found.row.cwd
        if found.seq is not None:
            if turn is not None:
                raise UsageError(f"{found} and --turn {turn} are two turns; name one")
            span = span_at(spans, found.seq)
            turn = 0 if span is None else span.number
        elif turn is not None:
            turn += len(spans) + 1 if turn < 0 else 0
            if not 1 <= turn <= len(spans):
                raise UsageError(f"--turn: this session has {counted(len(spans), 'turn')}")
        return await session_diff(journal, found.row, spans, turn, lambda path: on_disk(path, cwd))


def _print(patch: str) -> None:
    """Print to a program byte for byte; to a person in colour, without control characters."""
    if not sys.stdout.isatty():
        sys.stdout.flush()
        sys.stdout.buffer.write(patch.encode(errors="replace"))
        return
    from rich.text import Text

    terminal = console()
    in_hunk = False  # a line of a header is no change
    for line in patch.removesuffix("\n").split("\n") if patch else ():
        in_hunk = not line.startswith("diff --git ") and (in_hunk or line.startswith("@@"))
        if not in_hunk:
            style = "heading"
        elif line.startswith("@@"):
            style = "id"
        else:
            style = {"+": "added", "-": "removed", "\\": "faint"}.get(line[:1], "")
        terminal.print(Text(visible(line), style), soft_wrap=True)
