"""`acphold show`: the transcript of a session, once or as it goes on."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from acphold.cli.command_line import Exit, Parser, UsageError
from acphold.cli.places import place
from acphold.cli.readers import reading
from acphold.cli.servers import server_of
from acphold.cli.settings import agent_name
from acphold.cli.terminal_text import (
    age,
    console,
    counted,
    folder,
    local,
    on_one_line,
)
from acphold.history import Entry
from acphold.history.entries import PROMPT
from acphold.history.times import now_ms
from acphold.journal import SessionRow
from acphold.journal.moves import moved_to
from acphold.presentation.json_facts import entry_json, place_name
from acphold.reading.local_reader import LocalReader

if TYPE_CHECKING:
    from acphold.reports.transcript import Scene

AROUND = 4
"""Scenes shown on either side of the requested one, within its turn."""


def parser() -> Parser:
    """The arguments of `show`."""
    made = Parser(show, "show", "[OPTIONS] [ID]", is_read=True)
    made.add_value(
        "session_id", "ID", "the session's id, or a prefix of it; with @SEQ, one entry", nargs="?"
    )
    made.add_flag("--full", "whole tool output; with @SEQ, the whole turn")
    made.add_flag("--follow", "print the last turn, then follow the session while it runs")
    made.add_json("one object per journal entry")
    made.add_machines()
    return made


async def show(
    *,
    session_id: str | None,
    full: bool,
    follow: bool,
    as_json: bool,
    server: str | None,
    journal: str | None,
) -> int:
    """Print a session's transcript, or the part around one entry.

    ID may be any unique prefix of a session's id, or `-` for the newest session of the folder;
    without it you choose from a list. ID@SEQ, as printed by `search`, names one entry: you see the
    prompt of its turn, and what stands around that entry.

    --follow prints the last turn, and then what follows, until the process that runs the session
    ends, or Ctrl-C. It reads the journal, so it disturbs nobody: the agent does not wait for it,
    and it shows no questions to answer; `resume` does.

    With --json each line is an object with seq, kind, at (ISO 8601, UTC) and update, an object as
    it was journalled: an ACP update, a prompt ({"prompt": [content blocks]}), or the end of a turn.
    """
    if follow and full:
        raise UsageError("use --follow or --full, not both")
    source = reading(server_of(server, journal), journal)
    if follow:
        from acphold.cli import followed_session  # late: `show` does without it

        await followed_session.follow(source, session_id, as_json=as_json)
        return Exit.OK
    async with source as reader:
        row, seq = await place(reader, session_id, "shows it")
        runs = await reader.is_live(row.session_id)
        told = reader.entries(row.session_id)
        facts = _facts(row)
        if isinstance(reader, LocalReader):
            from acphold.cli.kept_findings import files_of  # late: JSON does without it

            facts += await files_of(reader.journal, row)
            from acphold.reading.inbox import rule_answers

            if ruled := await rule_answers(reader.journal, row.session_id):
                facts.append(f"your rules answered {counted(ruled, 'question')}")
        if seq is not None:
            await _show_place(row, seq, told, facts, full=full, as_json=as_json, runs=runs)
        elif as_json:
            async for entry in told:
                sys.stdout.buffer.write(_json_line(entry))
        else:
            await _print_transcript(row, told, facts, full=full, runs=runs)
    return Exit.OK


async def _show_place(
    row: SessionRow,
    seq: int,
    told: AsyncIterator[Entry],
    facts: list[str],
    *,
    full: bool,
    as_json: bool,
    runs: bool,
) -> None:
    from acphold.reports.transcript import entries_by_turn, scene_at, turn_scenes
    from acphold.screen.layout import Gutter, LabelledText, passage

    number, turn = 0, list[Entry]()
    async for turn in entries_by_turn(told):
        number += any(entry.kind == PROMPT for entry in turn)
        if turn[-1].seq >= seq:
            break
    if as_json:
        sys.stdout.buffer.writelines(map(_json_line, turn))
        return
    layout = Gutter(console()) if sys.stdout.isatty() else LabelledText(sys.stdout)
    where = place_name(on_one_line(row.session_id), seq)
    layout.head(_title(row), [*facts, f"turn {number}, around {where}"])
    scenes = [_told(scene, runs=runs) for scene in turn_scenes(turn)]
    found = scene_at(turn, seq)
    shown = [
        here for here in range(len(scenes)) if full or here == 0 or abs(here - found) <= AROUND
    ]
    for here, next_one in zip(shown, [*shown[1:], len(scenes)], strict=True):
        layout.put(passage(scenes[here], full=full or here == found), marked=here == found)
        if left_out := next_one - here - 1:
            layout.gap(f"… {left_out} more in this turn; --full shows them")


def _json_line(entry: Entry) -> bytes:
    return f"{entry_json(entry)}\n".encode()


async def _print_transcript(
    row: SessionRow, told: AsyncIterator[Entry], facts: list[str], *, full: bool, runs: bool
) -> None:
    from acphold.reports.transcript import scenes
    from acphold.screen.layout import Gutter, LabelledText, passage

    layout = Gutter(console()) if sys.stdout.isatty() else LabelledText(sys.stdout)
    layout.head(_title(row), facts)
    is_empty = True
    async for scene in scenes(told):
        layout.put(passage(_told(scene, runs=runs), full=full))
        is_empty = False
    if is_empty:
        layout.head("", ["This session has no messages."])


def _told(scene: Scene, *, runs: bool) -> Scene:
    """Return the scene; a turn without an end also says if it still runs."""
    from acphold.reports.transcript import TurnOpen

    return TurnOpen(runs) if isinstance(scene, TurnOpen) else scene


def _title(row: SessionRow) -> str:
    return on_one_line(row.title or "(no title)")


def _facts(row: SessionRow) -> list[str]:
    """Return the facts about a session; its origins with the last step first."""
    origins, later = list[str](), row.agent
    for origin in reversed(row.origins):
        from_where = place_name(origin.session_id, origin.seq)
        if origin.session_id == row.session_id:
            origins.append(f"held with {agent_name(origin.agent)} up to {from_where}")
        elif origin.agent == later:
            origins.append(f"forked from {from_where}")
        else:
            origins.append(f"handed off from {agent_name(origin.agent)}, {from_where}")
        later = origin.agent
    dates = f"started {local(row.created_at)}, last active {age(row.updated_at, now_ms())}"
    return [
        f"session {on_one_line(row.session_id)}",
        f"{on_one_line(agent_name(row.agent))} in {folder(row.cwd)}",
        f"{counted(row.message_count, 'message')}, {dates}",
        *map(on_one_line, origins),
        *([f"continues on {on_one_line(moved_to(row))}"] if moved_to(row) else []),
        *(["archived"] if row.archived else []),
    ]
