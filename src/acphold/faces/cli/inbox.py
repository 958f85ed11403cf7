"""`acphold inbox`: the questions of all sessions, answered one after another."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from acphold.conversation.history.entries import now_ms
from acphold.conversation.history.timeline import ToolCall
from acphold.errors import NoJournalError
from acphold.faces.cli import bounds, options
from acphold.faces.cli.command_line import Exit, UsageError, command
from acphold.faces.cli.inbox_items import NOTHING, describe_hold, how_to_resume, new_rules, where
from acphold.faces.cli.journals import reading
from acphold.faces.cli.terminal_text import (
    age,
    on_one_line,
    on_terminal,
    say,
    tell,
    transcript_layout,
    visible,
)
from acphold.live.reading.inbox import InboxQuestion
from acphold.live.reading.json_facts import question_json, question_line, queue_json
from acphold.live.reading.listed_sessions import ListedSession, News, is_held
from acphold.live.reading.local_reader import sessions_on_hold

if TYPE_CHECKING:
    from acphold.faces.screen.layout import Passage


@command("inbox", "[OPTIONS]", *options.PLACES)
async def inbox(
    *,
    only_lists: bool = options.flag("print the questions and exit, as in a pipe", "--list"),
    follow: bool = options.flag("then print changes until Ctrl-C"),
    history: bool = options.flag("show past decisions and who made them, newest first"),
    limit: int = options.limit(
        f"with --history: about this many [default: {bounds.DECISIONS}]", bounds.DECISIONS
    ),
    as_json: bool = options.json(),
) -> int:
    """Answer what agents are waiting for.

    Shows each pending question with the whole command and diff and the session it belongs to,
    longest waiting first. Press a key and Enter to answer, as in `chat`. `l` leaves a question
    for later; it stays open in all clients. Ctrl-C leaves. After the questions it lists the
    sessions whose queue is paused, why, and until when, unless you paused it yourself.

    In a pipe, and with --list, the questions are printed. With --json each line is an object with
    id, sessionId, seq, place, at (pending since; ISO 8601, UTC), agent, cwd, title, asks, method
    params (the agent's request, as in ACP), toolCall (everything it reported about the call) and
    shows (blocks and answers as they are shown here); then {"held": …} for each session
    whose queue is paused: sessionId, agent, cwd, title, queued, held (the reason) and heldUntil.
    With --follow the first line has all `questions` and all that is `held`; each later line is a
    new `question` or `held`, or the id of a question that was `closed` or a session that `goesOn`.

    --history shows past decisions in the most recently active sessions: with --json each has
    answeredAt, outcome, how, said, client (who answered) and rules instead of params, toolCall
    and shows.
    """
    if history and follow:
        raise UsageError("--history cannot be combined with --follow")
    try:
        if history:
            await _history(limit, as_json=as_json)
        elif as_json or only_lists or not on_terminal():
            await _print_questions(follow=follow, as_json=as_json)
        else:
            from acphold.faces.cli.inbox_answers import answer_all  # late: it brings the screen

            return await answer_all(follow=follow)
    except NoJournalError:
        tell(NOTHING)
    return Exit.OK


async def _history(limit: int, *, as_json: bool) -> None:
    async with reading() as reader:
        found, _ = await reader.decisions(limit)
        short_ids = await reader.short_ids(it.row.session_id for it in found)
    if as_json:
        sys.stdout.writelines(f"{question_json(it)}\n" for it in found)
        return
    from acphold.conversation.reports.transcript import DecidedQuestion
    from acphold.faces.screen.layout import passage

    layout = transcript_layout()
    now = now_ms()
    for it in found:
        assert it.decided is not None, "a decision"
        layout.head(age(it.answered_at, now), [where(it.row, short_ids[it.row.session_id])])
        by = it.decided.client, bool(it.decided.rules)
        layout.put(passage(DecidedQuestion(it.asks, it.came, *by)))
    if not found:
        tell("Nothing was asked yet.")


async def _print_questions(*, follow: bool, as_json: bool) -> None:
    """Print the pending questions; with `follow`, also changes until nobody reads."""
    show = _print_json if as_json else _print_words
    async with reading() as reader:
        queues = {it.row.session_id: it for it in await sessions_on_hold(reader)}
        if not follow:
            questions = {it.question.id: it for it in await reader.questions()}
            ids = {*queues, *(it.row.session_id for it in questions.values())}
            short_ids = await reader.short_ids(ids)
            is_whole = not reader.silent
            found = _InboxState(questions, queues, short_ids, is_whole)
            show(found, None, follow=False)
            if not as_json and (told_rules := await new_rules(reader)):
                say(told_rules)
            return
        from acphold.faces.cli.followed_list import ID_WIDTH, follow_list  # late: few follow it

        known: dict[str, Sequence[InboxQuestion]] = {}
        told: _InboxState | None = None

        def report(news: News) -> None:
            nonlocal told
            if news.is_all:
                known.clear()
            for it in news.sessions:
                known[it.row.session_id] = it.questions
                queues.pop(it.row.session_id, None)
                if is_held(it):
                    queues[it.row.session_id] = it
            for session_id in news.gone:
                known.pop(session_id, None)
                queues.pop(session_id, None)
            found = sorted(chain(*known.values()), key=lambda it: it.at)
            short_ids = {it: it[:ID_WIDTH] for it in {*queues, *known}}
            questions = {it.question.id: it for it in found}
            now = _InboxState(questions, {**queues}, short_ids)
            show(now, told, follow=True)
            told = now

        await follow_list(reader, report)


class _InboxState(NamedTuple):
    """The open questions by their ids, the sessions whose prompts are held by theirs, their short
    ids, and whether every process has answered."""

    questions: Mapping[str, InboxQuestion] = {}
    queues: Mapping[str, ListedSession] = {}
    short_ids: Mapping[str, str] = {}
    is_whole: bool = True

    def is_new(self, session_id: str, told: _InboxState) -> bool:
        """Return True if the prompts of a session are held in another way than was told."""
        before = told.queues.get(session_id)
        return before is None or describe_hold(before.row) != describe_hold(
            self.queues[session_id].row
        )


def _print_json(found: _InboxState, told: _InboxState | None, *, follow: bool) -> None:
    if not follow:
        sys.stdout.writelines(f"{question_json(it)}\n" for it in found.questions.values())
        sys.stdout.writelines(f'{{"held":{queue_json(it)}}}\n' for it in found.queues.values())
    elif told is None:
        questions = ",".join(map(question_json, found.questions.values()))
        queues = ",".join(map(queue_json, found.queues.values()))
        sys.stdout.write(f'{{"questions":[{questions}],"held":[{queues}]}}\n')
    else:
        new = [it for id_, it in found.questions.items() if id_ not in told.questions]
        sys.stdout.writelines(f'{{"question":{question_json(it)}}}\n' for it in new)
        for id_ in told.questions.keys() - found.questions.keys():
            sys.stdout.write(f'{{"closed":{msgspec.json.encode(id_).decode()}}}\n')
        for id_, queue in found.queues.items():
            if found.is_new(id_, told):
                sys.stdout.write(f'{{"held":{queue_json(queue)}}}\n')
        for id_ in told.queues.keys() - found.queues.keys():
            sys.stdout.write(f'{{"goesOn":{msgspec.json.encode(id_).decode()}}}\n')


def _print_words(found: _InboxState, told: _InboxState | None, *, follow: bool) -> None:
    from rich.text import Text

    from acphold.faces.screen.layout import Passage

    layout = transcript_layout()
    told = told or _InboxState()
    for it in (it for id_, it in found.questions.items() if id_ not in told.questions):
        layout.head(
            on_one_line(question_line(it)),
            [where(it.row, found.short_ids[it.row.session_id]), f"asked {age(it.at, now_ms())}"],
        )
        layout.put(question_passage(it))
    for row in (it.row for id_, it in found.queues.items() if found.is_new(id_, told)):
        short = found.short_ids[row.session_id]
        layout.head(describe_hold(row), [where(row, short)])
        how = f"to resume: {how_to_resume(short)}"
        layout.put(Passage("queue", "acphold", [Text(how)]))
    for it in (it for id_, it in told.questions.items() if id_ not in found.questions):
        layout.gap(visible(f"closed: {on_one_line(it.asks)}"))
    for row in (it.row for id_, it in told.queues.items() if id_ not in found.queues):
        layout.gap(f"no longer paused: {where(row, told.short_ids[row.session_id])}")
    if not (found.questions or found.queues or follow) and found.is_whole:
        tell(NOTHING)


def question_passage(found: InboxQuestion) -> Passage:
    """Return the whole question: command and diff against the files, or the form, and the possible
    answers."""
    from rich.text import Text

    from acphold.conversation.presentation.present_diffs import present_diffs, present_files
    from acphold.faces.screen.layout import Passage
    from acphold.faces.screen.panels import call_details

    question = found.question
    if found.call:
        reader = present_files(found.row.cwd, found.row.additional_directories)
        present = present_diffs(found.call, reader)
        about = call_details(ToolCall(question.id, dict(found.call)), present)
    else:
        lines = visible(question.title).splitlines()
        about = Passage("asks", "acphold", [Text(line) for line in lines])
    answers = [Text(f"  [{on_one_line(name)}]", "faint") for name in question.option_names]
    return msgspec.structs.replace(about, lines=[*about.lines, *answers])
