"""`acphold diff`: the file changes of a session, as a patch."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial

from acphold.conversation.history.entries import span_at, turn_spans
from acphold.conversation.history.raw_update import storable
from acphold.conversation.reports.session_diff import FileDiff, on_disk
from acphold.faces.cli import options
from acphold.faces.cli.command_line import Exit, UsageError, command
from acphold.faces.cli.journals import sessions_here
from acphold.faces.cli.places import place
from acphold.faces.cli.terminal_text import console, on_one_line, quantity, visible
from acphold.journal.journal import history
from acphold.live.origins.kept_changes import How, KeptChanges, session_changes, some
from acphold.live.reading.json_facts import facts_json


@command("diff", "[OPTIONS] [ID]", options.ON_HOST, options.JOURNAL, is_read=True)
async def diff(
    *,
    session_id: str | None = options.argument(
        "ID", "the session's id, or a prefix of it; with @SEQ, one turn", nargs="?"
    ),
    turn: int | None = options.value(
        "N", "only this turn: 1 is the first, -1 the last [default: all turns]", type=int
    ),
    by_turn: bool = options.flag(
        "one patch per turn, and one for the changes between two turns, in order"
    ),
    root: str | None = options.value(
        "FOLDER", "the changes in this folder [default: the repository of the session's folder]"
    ),
    as_json: bool = options.json(),
) -> int:
    """Show what changed in files during a session, as a patch.

    If acphold kept the files, as it does in a git repository, the patch has every change between
    the first snapshot and the last one. A line above each file lists the turns in which the agent
    showed that change, the turns in which something else made it (a command, you, or another
    session), and changes between two turns. --by-turn prints a patch for each of these. Paths are
    relative to the top of the repository. On stderr it lists late and missing snapshots, files that
    were left out, and other sessions that worked in the same folder.

    Otherwise the patch has the edits that the agent showed, one per file. Paths are relative to the
    session's folder. Many agents show only the lines around a change; acphold takes the rest from
    the file on disk, if the change is still in it, or not in it yet. Otherwise stderr says which
    file is missing and why, and the exit code is 1. Changes made by commands are not in the patch.

    `git apply` applies the patch and `git apply -R` reverts it. ID@SEQ selects the turn with that
    entry; without ID you choose from a list.
    """
    if root is not None:
        root = os.path.realpath(root)
    async with sessions_here() as (reader, kept):
        session = await place(reader, session_id, "shows its changes", by_words="found")
        if session.seq is not None and turn is not None:
            raise UsageError(f"{session} and --turn {turn} each name a turn; use one of them")
        row = session.row
        spans = await turn_spans(history(kept, row.session_id, brief=True))
        if session.seq is not None:
            span = span_at(spans, session.seq)
            turn = 0 if span is None else span.number
        elif turn is not None:
            if not 1 <= abs(turn) <= len(spans):
                raise UsageError(f"--turn: this session has {quantity(len(spans), 'turn')}")
            turn %= len(spans) + 1
        look = partial(on_disk, folder=row.cwd)
        steps = by_turn or as_json
        found = await session_changes(kept, row, spans, turn, look, root=root, by_turn=steps)
    if found.problem:
        _note(found.problem)
    if found.kept is not None:
        _print_kept(found.kept, by_turn=by_turn, as_json=as_json)
        return Exit.OK
    if root is not None and not found.problem:
        raise UsageError("--root: no files were kept with this session")
    return _print_reported(found.reported, as_json=as_json)


def _print_kept(kept: KeptChanges, *, by_turn: bool, as_json: bool) -> None:
    """Print all changes, and on stderr remarks about them."""
    undone: list[str] = []  # files that are at the end as they were at the beginning
    if as_json:
        for part in kept.parts:
            step = part.step
            facts = {
                "path": part.path,
                "how": part.how.name.lower(),
                "turns": list(step.turns),
                "between": None if step.turns else list(step.between),
                "isSure": step.is_certain,
                "others": list(step.others),
                "root": storable(kept.root),
                "patch": part.patch.decode(errors="replace"),
            }
            print(facts_json(facts))
    elif by_turn:
        pieces: list[bytes] = []
        heading = ""
        for part in kept.parts:
            if part.step.words != heading:
                heading = part.step.words
                pieces.append(f"# {heading[0].upper()}{heading[1:]}\n".encode())
            mark = "" if part.how in (How.BETWEEN, How.SHOWN) else f": {part.how.value}"
            pieces.append(_comment(f"{part.path}{mark}") + part.patch)
        _print(b"".join(pieces))
    else:
        _print(b"".join(_comment(f"{it.path}: {it.words}") + it.patch for it in kept.files))
        known = {it.path for it in kept.files}.union(kept.left_out)
        undone = sorted({it.path for it in kept.parts} - known)
    if not (kept.parts if by_turn or as_json else kept.files):
        _note("No kept files changed." if kept.notes else "No files changed.")
    if undone:
        _note(f"changed and changed back: {some(undone)}")
    for note in kept.notes:
        _note(note)
    for other in kept.others:
        _note(f"files in {other} were also kept; `--root {other}` shows their changes")


def _print_reported(files: Sequence[FileDiff], *, as_json: bool) -> int:
    """Print the edits that the agent showed; return the exit code."""
    if as_json:
        for file in files:
            gap = None if file.gap is None else file.gap.value
            facts = {
                "path": storable(file.path),
                "how": "reported",
                "turns": list(file.turns),
                "gap": gap,
                "patch": storable(file.patch),
            }
            print(facts_json(facts))
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
