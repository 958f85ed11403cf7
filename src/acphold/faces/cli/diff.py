"""`acphold diff`: the file changes of a session, as a patch."""

from __future__ import annotations

import os
import sys
from functools import partial

from acphold.conversation.history.entries import span_at, turn_spans
from acphold.conversation.history.raw_update import storable
from acphold.conversation.reports.session_diff import on_disk
from acphold.faces.cli import options
from acphold.faces.cli.command_line import Exit, UsageError, command
from acphold.faces.cli.journals import sessions_here
from acphold.faces.cli.places import place
from acphold.faces.cli.terminal_text import console, on_one_line, quantity, visible
from acphold.journal.journal import history
from acphold.live.origins.kept_changes import FoundChanges, session_changes
from acphold.live.reading.json_facts import facts_json
from acphold.safety.snapshots.comparison import ranges


@command("diff", "[OPTIONS] [ID]", options.ON_HOST, options.JOURNAL, is_read=True)
async def diff(
    *,
    session_id: str | None = options.argument(
        "ID", "the session's id, or a prefix of it; with @SEQ, one turn", nargs="?"
    ),
    turn: int | None = options.value(
        "N", "only this turn: 1 is the first, -1 the last [default: all turns]", type=int
    ),
    by_turn: bool = options.flag("one patch per turn, in order"),
    root: str | None = options.value(
        "FOLDER", "the changes in this folder [default: the repository of the session's folder]"
    ),
    as_json: bool = options.json(),
) -> int:
    """Show what changed in files during a session, as a patch.

    If acphold kept the files, as it does in a git repository, the patch has every change between
    the first snapshot and the last one, whoever made it. A line above each file lists the turns in
    which it changed. Paths are relative to the top of the repository. On stderr it lists files that
    changed between two turns, late and missing snapshots, files that were left out, and other
    sessions that worked in the same folder.

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
        found = await session_changes(kept, row, spans, turn, look, root=root, by_turn=by_turn)
    if root is not None and not (found.root or found.problem):
        raise UsageError("--root: no files were kept with this session")
    if as_json:
        for file in found.files:
            facts = {
                "path": storable(file.path),
                "turns": list(file.turns),
                "gap": None if file.gap is None else file.gap.value,
                "root": storable(found.root) or None,
                "patch": storable(file.patch),
            }
            print(facts_json(facts))
    else:
        _print_patches(found, by_turn=by_turn)
    _tell(found)
    return Exit.ERROR if any(file.is_missing for file in found.files) else Exit.OK


def _print_patches(found: FoundChanges, *, by_turn: bool) -> None:
    """Print the patches, each below its file's turns; with `by_turn` those of a turn below its
    number. `git apply` skips these lines."""
    pieces, before = list[bytes](), ""
    for file in (it for it in found.files if it.patch):
        numbers = ", ".join(
            f"{first}" if first == last else f"{first}-{last}" for first, last in ranges(file.turns)
        )
        turns = f"turn{'s' * (len(file.turns) > 1)} {numbers}" if numbers else "between turns"
        if not by_turn:
            pieces.append(f"# {on_one_line(file.path)}: {turns}\n".encode(errors="replace"))
        elif turns != before:
            pieces.append(f"# {turns.capitalize()}\n".encode())
        before = turns
        pieces.append(file.patch.encode(errors="surrogateescape" if found.root else "replace"))
    _print(b"".join(pieces))


def _tell(found: FoundChanges) -> None:
    """Print remarks about the changes on stderr."""
    if found.problem:
        _note(found.problem)
    for file in found.files:
        if file.gap is not None:
            _note(f"{file.path}: {file.gap.value}")
    if not any(file.patch or file.gap for file in found.files):
        kept = "No kept files changed." if found.notes else "No files changed."
        _note(kept if found.root else "The agent reported no changed files.")
    if not found.root:
        _note("Only edits that the agent reported are shown: no files were kept.")
    for note in found.notes:
        _note(note)
    for other in found.others:
        _note(f"files in {other} were also kept; `--root {other}` shows their changes")


def _note(text: str) -> None:
    print(on_one_line(text), file=sys.stderr)


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
