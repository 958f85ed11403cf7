"""`acphold show`: the transcript of a session, once or while it runs."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from acphold.conversation.history import entries
from acphold.conversation.history.decisions import AskedQuestion, asked_question, closed_question
from acphold.conversation.history.entries import Entry, now_ms
from acphold.conversation.history.prompt_queue import describe_queue
from acphold.conversation.history.timeline import turn_end
from acphold.conversation.reports.transcript import (
    DecidedQuestion,
    at_present,
    entries_by_turn,
    scene_at,
    scenes,
    turn_scenes,
)
from acphold.errors import RewrittenError
from acphold.faces.cli import bounds, options
from acphold.faces.cli.background_import import list_growth
from acphold.faces.cli.command_line import Exit, UsageError, command
from acphold.faces.cli.journals import reading
from acphold.faces.cli.places import place
from acphold.faces.cli.settings import agent_name
from acphold.faces.cli.ssh import host_option
from acphold.faces.cli.terminal_text import (
    age,
    folder,
    local,
    on_one_line,
    quantity,
    tell,
    titled,
    transcript_layout,
)
from acphold.journal.moves import destination
from acphold.journal.rows import SessionRow
from acphold.live.reading.json_facts import entry_json, place_name
from acphold.live.reading.local_reader import LocalReader, newest_first

if TYPE_CHECKING:
    from acphold.faces.screen.flow import Flow


@command("show", "[OPTIONS] [ID]", *options.PLACES, is_read=True)
async def show(
    *,
    session_id: str | None = options.argument(
        "ID",
        "the session's id, or a prefix of it, or `-` for the newest session of the folder; with "
        "@SEQ, one entry, with @last, the last",
        nargs="?",
    ),
    last: bool = options.flag("the newest session of the folder, like `-`"),
    full: bool = options.flag("whole tool output; with @SEQ, the whole turn"),
    follow: bool = options.flag("print the last turn, then follow the session while it runs"),
    as_json: bool = options.json("one object per journal entry"),
) -> int:
    """Print a session's transcript, or the part around one entry.

    Without ID you choose from a list. ID@SEQ, as printed by `search`, names one entry: you see the
    prompt of its turn, and the entries around it.

      acphold show -              the newest session of this folder
      acphold show 3f9a           the one whose id begins with 3f9a
      acphold show 3f9a --full    with all output of its tools

    --follow prints the last turn and then new entries, until the process that runs the session
    ends, or Ctrl-C. It only reads the journal: the agent does not wait for it, and it cannot answer
    questions; `continue` can.

    With --json each line is an object with seq, kind, at (ISO 8601, UTC) and update, an object as
    it was journalled: an ACP update, a prompt ({"prompt": [content blocks]}), or the end of a turn.
    """
    if follow and full:
        raise UsageError("use --follow or --full, not both")
    if last and session_id is not None:
        raise UsageError("use --last or an ID, not both")
    session_id = "-" if last else session_id
    if follow:
        await follow_session(session_id, as_json=as_json)
        return Exit.OK
    async with reading() as reader:
        await list_growth(reader)
        row, seq = await place(reader, session_id, "shows it", by_words="found")
        is_brief = not (full or as_json or seq is not None)
        all_entries = reader.entries(row.session_id, brief=is_brief)
        number, turn = 0, list[Entry]()
        if seq is not None:
            async for turn in entries_by_turn(all_entries):
                number += any(entry.kind == entries.PROMPT for entry in turn)
                if turn[-1].seq >= seq:
                    break
        if as_json:
            if seq is not None:
                sys.stdout.buffer.writelines(map(_json_line, turn))
            else:
                async for entry in all_entries:
                    sys.stdout.buffer.write(_json_line(entry))
            return Exit.OK
        from acphold.faces.cli.findings import files_of  # late: JSON does without these
        from acphold.faces.screen.layout import passage

        live = await reader.live_state(row.session_id)
        ids = [row.session_id, *(origin.session_id for origin in row.origins)]
        short_ids = await reader.short_ids(ids)
        command = _command(short_ids[row.session_id])
        facts = _facts(row, short_ids) + await files_of(reader.journal, row)
        if ruled := await reader.rule_answers(row.session_id):
            facts.append(f"your rules answered {quantity(ruled, 'question')}")
        layout = transcript_layout()
        if seq is None:
            more = f"; `{command} --full` shows them"
            layout.head(titled(row.title), facts)
            is_empty = True
            async for scene in scenes(all_entries):
                layout.put(passage(at_present(scene, live), full=full, more=more))
                is_empty = False
            if is_empty:
                layout.head("", ["This session has no messages."])
            return Exit.OK
        more = f"; `{command}@{seq} --full` shows them"
        layout.head(titled(row.title), [*facts, f"turn {number}, around @{seq}"])
        inside = [at_present(scene, live) for scene in turn_scenes(turn)]
        if not inside:
            layout.head("", ["This turn has no messages."])
            return Exit.OK
        wanted = scene_at(turn, seq)
        shown = [
            index
            for index in range(len(inside))
            if full or index == 0 or abs(index - wanted) <= bounds.SCENES_AROUND
        ]
        for index, following in zip(shown, [*shown[1:], len(inside)], strict=True):
            scene = inside[index]
            is_wanted = index == wanted
            layout.put(passage(scene, full=full or is_wanted, more=more), marked=is_wanted)
            if left_out := following - index - 1:
                layout.gap(f"… {left_out} more in this turn{more}")
    return Exit.OK


async def show_in_pager(session_id: str) -> None:
    """Show a session's whole transcript in the pager, until the person leaves it."""
    from acphold.faces.screen.terminal import output_paged  # late, as in `command_line`

    options = {"last": False, "full": False, "follow": False, "as_json": False}
    with output_paged(stays=True):
        await show(session_id=session_id, **options)


def _command(short: str) -> str:
    """Return the command that shows this session, for a person to type."""
    return f"acphold show{host_option()} {on_one_line(short)}"


def _json_line(entry: Entry) -> bytes:
    return f"{entry_json(entry)}\n".encode()


def _facts(row: SessionRow, short_ids: Mapping[str, str]) -> list[str]:
    """Return the facts about a session; its origins with the last step first."""
    origins, later = list[str](), row.agent
    for origin in reversed(row.origins):
        from_where = place_name(short_ids[origin.session_id], origin.seq)
        if origin.session_id == row.session_id:
            origins.append(f"held with {agent_name(origin.agent)} up to {from_where}")
        elif origin.agent == later:
            origins.append(f"forked from {from_where}")
        else:
            origins.append(f"handed off from {agent_name(origin.agent)}, {from_where}")
        later = origin.agent
    dates = f"started {local(row.created_at)}, last active {age(row.updated_at, now_ms())}"
    return [
        f"session {on_one_line(short_ids[row.session_id])}",
        f"{on_one_line(agent_name(row.agent))} in {folder(row.cwd)}",
        f"{quantity(row.message_count, 'message')}, {dates}",
        *map(on_one_line, origins),
        *([f"continues on {on_one_line(destination(row))}"] if destination(row) else []),
        *([describe_queue(row.queued, row.held, row.held_until)] if row.queued else []),
        *(["archived"] if row.archived else []),
    ]


# -- while it runs --------------------------------------------------------------------------

# It reads the journal, and is no client: one that shows no questions would have to leave them open,
# or reject them.


async def follow_session(given: str | None, *, as_json: bool) -> None:
    """Print the last turn, and new entries until the session is not live or nobody reads."""
    from acphold.faces.screen.plain import is_unread

    put = _put_json
    after: int | None = None
    was_live = False
    async with reading() as reader:
        row, seq = await place(reader, given, "follows it", by_words="found")
        if seq is not None:
            raise UsageError("use --follow or @SEQ, not both: @SEQ is one entry")
        session_id = row.session_id
        short = (await reader.short_ids([session_id]))[session_id]
        if not as_json:
            put = _PrintedSession(_command(short)).put
        while True:
            lives, fresh = True, list[Entry]()
            try:
                lives = await reader.is_live(session_id)  # first: then the last entries are read
                fresh = await _since(reader, session_id, after)
                put(fresh)
                after = fresh[-1].seq if fresh else after or 0
            except RewrittenError:  # a turn is being compacted
                lives = True
            if not lives:
                break
            if is_unread(sys.stdout):
                return
            was_live = True
            await asyncio.sleep(bounds.TRANSCRIPT_LOOK_SECONDS)
    put(None)
    why = "ended with its process" if was_live else "is not live"
    tell(f"Session {short} {why}.")


async def _since(reader: LocalReader, session_id: str, after: int | None) -> list[Entry]:
    """Return the entries of a session after a seq; for None, its last turn."""
    fresh: list[Entry] = []
    async for entry in newest_first(reader, session_id, bounds.ENTRIES_AT_ONCE):
        if entry.seq <= (after or 0):
            break
        fresh.append(entry)
        if after is None and entry.kind == entries.PROMPT:
            break
    return fresh[::-1]


def _put_json(fresh: list[Entry] | None) -> None:
    for entry in fresh or ():
        sys.stdout.write(f"{entry_json(entry)}\n")
        sys.stdout.flush()


class _PrintedSession:
    """Prints entries as the screen of `chat` shows them."""

    def __init__(self, command: str) -> None:
        from acphold.faces.screen.flow import Flow

        self._flow: Flow = Flow(thoughts="whole")  # nobody can press a key here
        self._flow.transcript = command
        self._layout = transcript_layout()
        self._questions: dict[str, tuple[AskedQuestion, str]] = {}

    def put(self, fresh: list[Entry] | None) -> None:
        """Print what these entries finish; None stands for the end of all of them.

        A question that is answered among them is not printed as open first.
        """
        if fresh is None:
            self._flow.turn_over()
            self._print()
            return
        answered = {closed_question(it.raw).question for it in fresh if it.kind == entries.ANSWER}
        for entry in fresh:
            match entry.kind:
                case entries.UPDATE | entries.PARAMS:
                    self._flow.add_update(entry.update)
                case entries.CHILD:
                    self._flow.add_child_update(entry.raw)
                case entries.PROMPT:
                    self._flow.add_prompt(entry.raw)
                case entries.TURN_END:
                    self._flow.turn_over(turn_end(entry.raw, entry.at))
                case entries.QUESTION:
                    question = asked_question(entry.raw)
                    title = self._flow.tool_title(question.untitled_call or "") or question.title
                    self._questions[question.id] = question, title
                    if question.id not in answered:
                        self._put_question(DecidedQuestion(title))
                case entries.ANSWER:
                    closed = closed_question(entry.raw)
                    if closed.question in self._questions:
                        question, title = self._questions[closed.question]
                        came, by_rule = closed.came(question), bool(closed.rules)
                        self._put_question(DecidedQuestion(title, came, closed.client, by_rule))
            self._print()

    def _print(self) -> None:
        for passage in self._flow.take():
            self._layout.put(passage)
        sys.stdout.flush()

    def _put_question(self, question: DecidedQuestion) -> None:
        from acphold.faces.screen.layout import passage

        self._flow.put(passage(question))
