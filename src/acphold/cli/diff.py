"""`acphold diff`: the file changes of a session, as a patch."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence

import msgspec

from acphold.cli.command_line import Exit, Parser, UsageError
from acphold.cli.journals import opened
from acphold.cli.places import place
from acphold.cli.terminal_text import console, counted, on_one_line, visible
from acphold.history.raw_update import storable
from acphold.history.turn_spans import TurnSpan, span_at, turn_spans
from acphold.journal import Journal, SessionRow, history
from acphold.origins.kept_changes import How, KeptChanges, kept_changes, some
from acphold.presentation.visible_text import visible_json
from acphold.reading.local_reader import LocalReader
from acphold.reports.session_diff import FileDiff, on_disk, session_diff
from acphold.snapshots.git import GitError


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
    made.add_argument(
        "--by-turn",
        action="store_true",
        help="a patch for each turn, and for the time between two of them, in order",
    )
    made.add_argument(
        "--root",
        metavar="FOLDER",
        help="the changes in this folder [default: the repository of the session's folder]",
    )
    made.add_json()
    made.add_host()
    made.add_journal()
    return made


def diff(
    *,
    session_id: str | None,
    turn: int | None,
    by_turn: bool,
    root: str | None,
    as_json: bool,
    journal: str | None,
) -> int:
    """Show what changed in files during a session, as a patch.

    If its files were kept (`snapshots = true` in the settings), the patch has every change between
    the first snapshot and the last one. A line above each file says in which turns the agent showed
    that change, in which something else made it (a command, you, or another session), and what
    changed between two turns. --by-turn prints a patch for each of these. Paths are relative to the
    top of the repository. Late and missing snapshots, files that were left out and other sessions
    at work in the same folder are named on stderr.

    Otherwise the patch is built from the edits that the agent showed, one per file. Paths are
    relative to the session's folder. Many agents show only the lines around a change. The rest is
    taken from the file as it is now, if the change is still in it, or not yet. Otherwise stderr
    says which file is missing and why, and the exit code is 1. Changes made by commands are not in
    the patch.

    `git apply` applies the patch and `git apply -R` reverts it. ID@SEQ selects the turn with that
    entry; without ID you choose from a list.
    """
    root = None if root is None else os.path.realpath(root)
    return asyncio.run(
        _diff(journal, session_id, turn, by_turn=by_turn, root=root, as_json=as_json)
    )


async def _diff(
    location: str | None,
    text: str | None,
    turn: int | None,
    *,
    by_turn: bool,
    root: str | None,
    as_json: bool,
) -> int:
    async with opened(location) as journal:
        found = await place(LocalReader(journal), text, "shows its changes")
        row, cwd = found.row, found.row.cwd
        spans = await turn_spans(history(journal, row.session_id))
        if found.seq is not None:
            if turn is not None:
                raise UsageError(f"{found} and --turn {turn} are two turns; name one")
            span = span_at(spans, found.seq)
            turn = 0 if span is None else span.number
        elif turn is not None:
            turn += len(spans) + 1 if turn < 0 else 0
            if not 1 <= turn <= len(spans):
                raise UsageError(f"--turn: this session has {counted(len(spans), 'turn')}")
        kept = await _kept(journal, row, spans, turn, root, by_turn=by_turn or as_json)
        if kept is not None:
            _print_kept(kept, by_turn=by_turn, as_json=as_json)
            return Exit.OK
        files = await session_diff(journal, row, spans, turn, lambda path: on_disk(path, cwd))
    return _print_reported(files, as_json=as_json)


async def _kept(
    journal: Journal,
    row: SessionRow,
    spans: Sequence[TurnSpan],
    turn: int | None,
    root: str | None,
    *,
    by_turn: bool,
) -> KeptChanges | None:
    """Return the changes by the kept files; None without any, with a note if reading failed."""
    try:
        found = await kept_changes(journal, row, spans, turn, root=root, by_turn=by_turn)
    except (GitError, TimeoutError, BufferError, OSError) as error:
        _note(f"the kept files cannot be read: {error}")
        return None
    if found is None and root is not None:
        raise UsageError("--root: no files were kept with this session")
    return found


def _print_kept(kept: KeptChanges, *, by_turn: bool, as_json: bool) -> None:
    """Print all changes, and on stderr what is to be known of them."""
    if as_json:
        for part in kept.parts:
            step = part.step
            _print_json(
                path=storable(part.path),
                how=part.how.value,
                turns=list(step.turns),
                between=None if step.turns else list(step.between),
                isSure=step.is_sure,
                others=[it.session_id for it in kept.company if it.step == step],
                root=storable(kept.root),
                patch=part.patch.decode(errors="replace"),
            )
    elif by_turn:
        pieces: list[bytes] = []
        said = ""
        for part in kept.parts:
            if part.step.words != said:
                said = part.step.words
                pieces.append(f"# {said[0].upper()}{said[1:]}\n".encode())
            mark = "" if part.how is How.BETWEEN else f": {part.how.words}"
            pieces.append(_comment(f"{part.path}{mark}") + part.patch)
        _print(b"".join(pieces))
    else:
        _print(b"".join(_comment(f"{it.path}: {it.words}") + it.patch for it in kept.files))
    if not (kept.parts if by_turn or as_json else kept.files):
        _note("No files changed.")
    gone = sorted({it.path for it in kept.parts} - {it.path for it in kept.files})
    if gone and not (by_turn or as_json):
        _note(f"changed and changed back: {some(gone)}")
    if any(part.how in (How.OTHER, How.IN_PART) for part in kept.parts):
        _note('"something else" is a command of the agent, you, or another session')
    for note in kept.notes:
        _note(note)
    for other in kept.others:
        _note(f"files in {other} were kept, too: `--root {other}` shows them")


def _print_reported(files: Sequence[FileDiff], *, as_json: bool) -> int:
    """Print the edits that the agent showed; return the exit code."""
    if as_json:
        for file in files:
            gap = None if file.gap is None else file.gap.value
            _print_json(
                path=storable(file.path),
                how="reported",
                turns=list(file.turns),
                gap=gap,
                patch=storable(file.patch),
            )
    else:
        _print("".join(file.patch for file in files).encode(errors="replace"))
    for file in files:
        if file.gap is not None:
            _note(f"{file.path}: {file.gap.value}")
    if not any(file.patch or file.gap for file in files):
        _note("The agent reported no changed files.")
    _note("Only edits that the agent reported are shown: no files were kept.")
    return Exit.ERROR if any(file.is_missing for file in files) else Exit.OK


def _note(text: str) -> None:
    print(on_one_line(text), file=sys.stderr)


def _comment(text: str) -> bytes:
    """A line in front of a file's patch: `git apply` skips it."""
    return f"# {on_one_line(text)}\n".encode(errors="replace")


def _print_json(**facts: object) -> None:
    print(visible_json(msgspec.json.encode(facts).decode(errors="replace")))


def _print(patch: bytes) -> None:
    """Print to a program byte for byte; to a person in colour, without control characters."""
    if not sys.stdout.isatty():
        sys.stdout.flush()
        sys.stdout.buffer.write(patch)
        return
    from rich.text import Text

    terminal = console()
    in_hunk = False  # a line of a header is no change
    text = patch.decode(errors="replace")
    for line in text.removesuffix("\n").split("\n") if text else ():
        is_head = line.startswith(("diff --git ", "# "))
        in_hunk = not is_head and (in_hunk or line.startswith("@@"))
        if line.startswith("# "):
            style = "faint"
        elif not in_hunk:
            style = "heading"
        elif line.startswith("@@"):
            style = "id"
        else:
            style = {"+": "added", "-": "removed", "\\": "faint"}.get(line[:1], "")
        terminal.print(Text(visible(line), style), soft_wrap=True)
