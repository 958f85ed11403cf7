"""The rules for `session/list`, and the ended conversations that many cases look at.

Two sessions are made in their own process: one with three turns, one with two turns in another
folder; and, if the agent has a list, some in folders easily confused with that other folder. Then
that process is left, and another one is asked for them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from datetime import datetime

import msgspec
from msgspec import Struct

from acp_check import bounds
from acp_check.checks import EXPECTED, MUST, SHOULD, Rules, Witness, one_by_one
from acp_check.dialogue import Call, Dialogue, unobservable
from acp_check.errands import GREET, PLAN, Errand
from acp_check.record import (
    Exchange,
    Json,
    Record,
    WireLine,
    in_time,
    objects,
    sessions_in,
    time_of_day,
    twice,
)
from acp_check.rules.beginnings import RELATIVE
from acp_check.rules.prompt_turns import plain_turn, session_with_turn
from acp_check.stage import (
    CheckedSession,
    CheckedTurn,
    Stage,
    advertises,
    chunk_text,
    first_answer,
)
from acp_check.verdicts import NotObservable, RuleSource, Violation
from acp_wire.schema import ListSessionsResponse
from acp_wire.schema.session_requests import LoadSessionResponse

CODE_WORD = "heron-4711"
OTHER_WORD = "stork-1147"
ODD_TEXT = "Thank you, J\u00fcrgen \U0001f41d \u2028 (tabs\tand  blanks)."
ELSEWHERE = "elsewhere"
NEIGHBOURS = ("elsewhere-more", "elsewhere/inside", "deeper/elsewhere", "ELSEWHERE")
"""Folders that begin like it, are below it, end like it, or differ only in case."""


class Past(Struct, frozen=True):
    """The sessions of the process that was left; `other` is the one in another folder."""

    session: CheckedSession
    turns: tuple[CheckedTurn, ...]
    other: CheckedSession
    neighbours: tuple[CheckedSession, ...]
    updates: tuple[WireLine, ...]
    """All updates of `session`."""
    record: Record


async def past(stage: Stage) -> Past:
    """Make two sessions in a process, and leave it properly."""
    await stage.need(plain_turn)
    dialogue = await stage.meet("conversation")
    session = await stage.new_session(dialogue, cwd=stage.new_folder("conversation"))
    remember = Errand("remember", CODE_WORD).words
    prompts = (f"  {remember}\n\n\t{ODD_TEXT} \n", PLAN, reading(stage))
    turns = [await stage.prompt(dialogue, session, prompt) for prompt in prompts]
    other = await stage.new_session(dialogue, cwd=stage.new_folder(ELSEWHERE))
    for prompt in (Errand("remember", OTHER_WORD), reading(stage)):
        await stage.prompt(dialogue, other, prompt)
    # Sessions in folders whose paths look like that of `other`, if they can be listed.
    can = await stage.capabilities()
    more = {"additionalDirectories": [other.cwd]} if advertises(can, "directories") else {}
    neighbours = []
    for name in NEIGHBOURS if advertises(can, "list") else ():
        folder = stage.other_folder(name, than=other.cwd)
        if folder is not None:
            neighbour = await stage.new_session(dialogue, cwd=folder, **more)
            await stage.prompt(dialogue, neighbour, GREET)
            neighbours.append(neighbour)
    await dialogue.catch_up()
    updates = tuple(dialogue.record.updates(session.id))
    await stage.leave_gracefully(dialogue)
    return Past(session, tuple(turns), other, tuple(neighbours), updates, dialogue.record)


def reading(stage: Stage) -> Errand:
    """Return the errand to read a file: a tool call."""
    return Errand("read", str(stage.new_file("note.txt", "heron\n")))


async def restart(stage: Stage) -> Dialogue:
    """Return a process started after the sessions of `past` were over."""
    await stage.need(past)
    return await stage.meet("restart", is_restart=True, stays=True)


class Loaded(Struct, frozen=True):
    """A load: its answer, the replay before it, and the lines after it."""

    answer: Call
    replay: tuple[WireLine, ...]
    after_answer: tuple[WireLine, ...]

    @property
    def asked(self) -> WireLine:
        return self.answer.asked

    @property
    def all_lines(self) -> tuple[WireLine, ...]:
        """The request, the replay and the answer."""
        return (self.asked, *self.replay, self.answer.line)

    def has_prompt(self, words: str) -> bool:
        """Return True if a prompt is replayed, with whatever white space."""
        return "".join(words.split()) in bare_text(self.replay, "user_message_chunk")


async def load(stage: Stage, dialogue: Dialogue, session: CheckedSession) -> Loaded:
    """Load a session; raises Violation if it is refused."""
    answer = await stage.reopen(dialogue, "load", session)
    await dialogue.settle()
    answer.fitting(LoadSessionResponse)
    since = list(dialogue.record.updates(session.id, since=answer.asked.number))
    return Loaded(
        answer,
        tuple(line for line in since if line.number < answer.line.number),
        tuple(line for line in since if line.number > answer.line.number),
    )


async def load_elsewhere(
    stage: Stage, name: str, session: CheckedSession
) -> tuple[Dialogue, Loaded]:
    """Load a session in a new process; raises Violation if it is refused."""
    dialogue = await stage.meet(name, is_restart=True)
    return dialogue, await load(stage, dialogue, session)


async def load_after_restart(stage: Stage) -> Loaded:
    """Load the first session of `past` in another process."""
    return (await load_elsewhere(stage, "a load", (await stage.need(past)).session))[1]


class ReplayedConversation(Struct, frozen=True):
    """A conversation, and its replay by a load."""

    turns: tuple[CheckedTurn, ...]
    live: tuple[WireLine, ...]
    loaded: Loaded

    @property
    def prompts(self) -> tuple[str, ...]:
        return tuple(str(turn.asked.params["prompt"][0]["text"]) for turn in self.turns)


async def conversation_with_replay(stage: Stage) -> ReplayedConversation:
    """Return the conversation of `past` and its load; if none survives a restart, another one's."""
    before = await stage.need(past)
    try:
        loaded = await stage.judge(load_after_restart)
    except Violation:
        return await stage.need(_replay_at_once)
    return ReplayedConversation(before.turns, before.updates, loaded)


async def _replay_at_once(stage: Stage) -> ReplayedConversation:
    dialogue = await stage.main()
    session = await stage.new_session(dialogue)
    errands = (Errand("remember", CODE_WORD), PLAN)
    turns = [await stage.prompt(dialogue, session, errand) for errand in errands]
    await dialogue.catch_up()
    live = tuple(dialogue.record.updates(session.id))
    return ReplayedConversation(tuple(turns), live, await load(stage, dialogue, session))


# -- replayed content -------------------------------------------------------------------------


def bare_text(lines: Sequence[WireLine], kind: str) -> str:
    """Return the text of all chunks of one kind, without white space (see another rule)."""
    return "".join(text_of(lines, kind).split())


def text_of(lines: Sequence[WireLine], kind: str) -> str:
    """Return the text of all chunks of one kind."""
    return "".join(chunk_text(line) for line in lines if line.update_kind == kind)


USER = "a prompt"


def sequence(lines: Sequence[WireLine]) -> list[str]:
    """Return the order of prompts, messages between them, and the starts of calls."""
    found: list[str] = []
    for line in lines:
        text = "".join(chunk_text(line).split())
        match line.update_kind:
            case "user_message_chunk":
                if found[-1:] != [USER]:
                    found.append(USER)
            case "agent_message_chunk" if found and found[-1].startswith("said: "):
                found[-1] += text
            case "agent_message_chunk":
                found.append(f"said: {text}")
            case "tool_call":
                found.append(f"call: {line.update.get('toolCallId')}")
    return found


def tool_calls(lines: Sequence[WireLine]) -> dict[str, Json]:
    """Return each tool call, with the newest value of each field."""
    found: dict[str, Json] = {}
    for line in lines:
        update = line.update
        if update.get("sessionUpdate") in ("tool_call", "tool_call_update"):
            fields = {name: value for name, value in update.items() if value is not None}
            found.setdefault(str(update.get("toolCallId")), {}).update(fields)
    return found


def newest(lines: Sequence[WireLine], kind: str) -> Json | None:
    """Return the last update of a kind."""
    return next((line.update for line in reversed(lines) if line.update_kind == kind), None)


# -- the list -------------------------------------------------------------------------------

PAGE = "Session List"
LISTING = RuleSource(PAGE, "Listing Sessions")
LISTS = ("list.*", "delete.*", "close.listed")
"""The cases with lists."""

RULES = Rules(over=LISTS)
PAGES = RuleSource(PAGE, "Pagination")
OTHERS = RuleSource(PAGE, "Interaction with Other Session Methods")


class Page(Struct, frozen=True):
    """One answer, and its sessions, undecoded."""

    answer: Call
    sessions: tuple[Json, ...]
    cursor: str | None


async def page(dialogue: Dialogue, **params: str) -> Page:
    """Return one page; raises Violation if it is none."""
    return _page(await dialogue.ask("session/list", params))


def _page(answer: Call) -> Page:
    fitting = answer.fitting(ListSessionsResponse)
    sessions = answer.result.get("sessions")
    if not isinstance(sessions, list):
        raise Violation("`sessions` is no array", *answer.lines)
    return Page(answer, tuple(objects(sessions)), fitting.next_cursor)


async def pages(dialogue: Dialogue, **params: str) -> list[Page]:
    """Return all pages, `bounds.LIST_PAGES` at most."""
    found = [await page(dialogue, **params)]
    while found[-1].cursor is not None and len(found) < bounds.LIST_PAGES:
        found.append(await page(dialogue, **params, cursor=found[-1].cursor))
    return found


@RULES.observer(
    "list.page-size", SHOULD, PAGES, "every list had one page with fewer sessions", "list"
)
def page_size(record: Record, witness: Witness) -> None:
    """A page of a list has at most a thousand sessions."""
    for exchange in record.exchanges("client", "session/list"):
        number = len(sessions_in(exchange))
        if number > bounds.PAGE_SESSIONS or exchange.result.get("nextCursor") is not None:
            witness.saw()
        if number > bounds.PAGE_SESSIONS:
            witness.accuse(f"this page has {number} sessions", exchange.asked)


def entries(found: Sequence[Page]) -> dict[str, Json]:
    """Return the sessions of these pages by id."""
    return {str(it.get("sessionId")): it for one in found for it in one.sessions}


async def session_before(stage: Stage) -> CheckedSession:
    """Make a session in the main process, and run a turn in it."""
    dialogue, session = await session_with_turn(stage)
    await dialogue.catch_up()
    return session


async def first_page(stage: Stage) -> Page:
    """Return the first page of all sessions, from a process that has made one."""
    await stage.need(session_before)
    return await page(await stage.main())


async def many(stage: Stage) -> str:
    """Make a dozen sessions in a folder and return it; a turn runs in each that needs one."""
    await stage.need(first_page)
    folder = stage.new_folder("a dozen")
    dialogue = await stage.main()
    made = [await stage.new_session(dialogue, cwd=folder) for _ in range(bounds.DOZEN)]
    listed = entries(await pages(dialogue, cwd=folder))
    for session in made:
        if session.id not in listed:  # some agents list what was used
            await stage.need_turn(dialogue, session, GREET)
    await dialogue.catch_up()
    return folder


async def pages_after_restart(stage: Stage) -> list[Page]:
    """Return all sessions of the usual folder, from a process that has made none."""
    dialogue = await stage.need(restart)
    return await pages(dialogue, cwd=(await stage.need(past)).session.cwd)


@RULES.case("list.answer", MUST, LISTING, "list")
async def answer(stage: Stage) -> None:
    """`session/list` gives an array, also if its parameters are missing, null or unknown."""
    first = await stage.judge(first_page)
    dialogue = await stage.main()
    for params in (msgspec.UNSET, {"cwd": None, "cursor": None}, {"weather": "fine", "_meta": {}}):
        found = _page(await dialogue.ask("session/list", params))
        if first.sessions and not found.sessions:
            raise Violation("in this form, the answer is an empty array", *found.answer.lines)


@RULES.case("initialize.capabilities", MUST, RuleSource("Initialization", ""))
async def capabilities(stage: Stage) -> None:
    """An agent that lists sessions has `agentCapabilities`."""
    hello = await stage.need(first_answer)
    if "agentCapabilities" in hello.result:
        return
    await stage.need(session_before)
    listed = await (await stage.main()).ask("session/list", {})
    if objects(listed.result.get("sessions")):
        raise Violation(
            "the agent lists sessions without advertising it", *hello.lines, *listed.lines
        )
    raise NotObservable(
        "the agent neither advertises capabilities nor lists sessions", *hello.lines
    )


@RULES.case("list.known-session", EXPECTED, RuleSource(PAGE, ""), "list")
async def lists_session(stage: Stage) -> None:
    """A used session is listed, with its folder."""
    session = await stage.need(session_before)
    _is_listed(session, await pages(await stage.main(), cwd=session.cwd))


@RULES.also("list.known-session", over=LISTS)
@one_by_one
def folders_throughout(record: Record, witness: Witness) -> None:
    made = {it.session_id: it for it in record.exchanges("client", "session/new")}
    moved = {line.session_id for line in record.calls("client", *REOPENING)}
    for exchange, entry in _list_entries(record):
        id = entry.get("sessionId")
        if (opened := made.get(id)) is None or id in moved:
            continue
        cwd = str(opened.asked.params.get("cwd"))
        if cwd != RELATIVE and not _same_folder(entry.get("cwd"), cwd):
            why = f"a session made in {cwd!r} is listed with the folder {entry.get('cwd')!r}"
            witness.accuse(why, *opened.lines, *exchange.lines)


REOPENING = ("session/load", "session/resume", "session/fork")


def _is_listed(session: CheckedSession, found: Sequence[Page]) -> None:
    listed = entries(found).get(session.id)
    lines = [line for one in found for line in one.answer.lines]
    if listed is None:
        raise Violation(f"session {session.id} is not listed", *lines)
    if not _same_folder(listed.get("cwd"), session.cwd):
        raise Violation(f"the session is listed with the folder {listed.get('cwd')!r}", *lines)


def _same_folder(one: object, other: str) -> bool:
    if one == other:
        return True
    return isinstance(one, str) and os.path.realpath(one) == os.path.realpath(other)


@RULES.case("list.last-activity", EXPECTED, LISTING, "list")
async def last_activity(stage: Stage) -> None:
    """A session is listed with the time of its last use."""
    dialogue, session = await session_with_turn(stage)
    before, _ = await _time_of(dialogue, session)
    await asyncio.sleep(bounds.LIST_TIME_SECONDS)
    await stage.need_turn(dialogue, session, GREET)
    await dialogue.catch_up()
    then, listed = await _time_of(dialogue, session)
    if abs(time_of_day(asyncio.get_running_loop()) - then) > bounds.CLOCK_OFFSET:
        raise Violation(f"it is listed with the time {then.isoformat()}", *listed.answer.lines)
    if then <= before and (then.second or then.microsecond):  # minutes are fine enough for people
        why = f"the session is listed with the time {then.isoformat()}, as before the last prompt"
        raise Violation(why, *listed.answer.lines)


async def _time_of(dialogue: Dialogue, session: CheckedSession) -> tuple[datetime, Page]:
    """Return the time with which a session is listed, and the first page."""
    found = await pages(dialogue, cwd=session.cwd)
    at = entries(found).get(session.id, {}).get("updatedAt")
    if not isinstance(at, str) or not _is_time(at):
        raise NotObservable("the session is listed without a time")
    then = datetime.fromisoformat(at)
    if then.tzinfo is None:
        raise NotObservable("its time has no zone")
    return then, found[0]


@RULES.case("list.after-restart", EXPECTED, RuleSource(PAGE, ""), "list")
async def after_restart(stage: Stage) -> None:
    """Sessions are listed after the agent's restart."""
    session = (await stage.need(past)).session
    _is_listed(session, await stage.judge(pages_after_restart))


@RULES.case("list.filter", MUST, LISTING, "list")
async def filter(stage: Stage) -> None:
    """A list for one folder has only sessions in that folder."""
    before = await stage.need(past)
    dialogue = await stage.need(restart)
    for session in (*before.neighbours, before.other):
        found = await pages(dialogue, cwd=session.cwd)
        for one in found:
            for listed in one.sessions:
                if not _same_folder(listed.get("cwd"), session.cwd):
                    raise Violation(
                        f"there is a session in {listed.get('cwd')!r}", *one.answer.lines
                    )
    if before.other.id not in entries(found):
        raise NotObservable("the session in that folder is not listed", *found[0].answer.lines)


@RULES.also("list.filter", over=LISTS)
@one_by_one
def filter_throughout(record: Record, witness: Witness) -> None:
    for exchange, entry in _list_entries(record):
        cwd = exchange.asked.params.get("cwd")
        if isinstance(cwd, str) and not _same_folder(entry.get("cwd"), cwd):
            witness.accuse(f"there is a session in {entry.get('cwd')!r}", *exchange.lines)


@RULES.case("list.no-match", MUST, LISTING, "list")
async def no_match(stage: Stage) -> None:
    """A folder without sessions gives an empty array."""
    await stage.need(first_page)
    for folder in (stage.new_folder("nobody was here"), str(stage.folder / "never made")):
        found = await page(await stage.main(), cwd=folder)
        if found.sessions:
            raise Violation("the list is not empty", *found.answer.lines)


@RULES.case("list.pages", MUST, PAGES, "list")
async def each_once(stage: Stage) -> None:
    """The pages of a list have each session once, and an end."""
    folder = await stage.need(many)
    dialogue = await stage.main()
    for params in ({"cwd": folder}, {}):
        found = await pages(dialogue, **params)
        lines = [line for one in found for line in one.answer.lines]
        listed = (str(it.get("sessionId")) for one in found for it in one.sessions)
        if (id := twice(listed)) is not None:
            raise Violation(f"session {id} is listed twice", *lines)
        if (cursor := twice(one.cursor for one in found if one.cursor is not None)) is not None:
            raise Violation(f"the cursor {cursor!r} is returned twice", *lines)
        if len(found) == bounds.LIST_PAGES:
            # An agent may leave out some that it has paged, but none leaves out so many in a row.
            last = (await pages(dialogue) if params else found)[-bounds.EMPTY_PAGES :]
            if len(last) == bounds.EMPTY_PAGES and not any(one.sessions for one in last):
                raise Violation("the list goes on, without any session", *last[-1].answer.lines)
            if params:
                raise NotObservable(f"the list has more than {bounds.LIST_PAGES} pages")
            return  # the person has that many
        if params and len(found) == 1:
            raise NotObservable("the list has only one page")
        missing = {session for session, cwd in stage.made.items() if cwd == folder}
        if lost := missing - entries(found).keys():
            raise Violation(f"session {min(lost)} is on no page", *lines)


@RULES.case("list.bad-cursor", SHOULD, PAGES, "list")
async def bad_cursor(stage: Stage) -> None:
    """An invalid cursor is refused."""
    await stage.need(first_page)
    dialogue = await stage.main()
    found = await dialogue.ask("session/list", {"cursor": "check-no-such-cursor"})
    found.require_error("the agent accepted an invalid cursor")


@RULES.case("list.only-lists", MUST, OTHERS, "list")
async def only_lists(stage: Stage) -> None:
    """Listing sessions opens, replays and closes none."""
    await _listing_leaves_open(stage)
    await stage.need(pages_after_restart)
    dialogue = await stage.need(restart)
    cwd = (await stage.need(past)).session.cwd
    first, second = [entries(await pages(dialogue, cwd=cwd)) for _ in range(2)]
    if first != second:
        raise Violation("listing the sessions changed the list", *dialogue.record.lines[-4:])
    await dialogue.settle()
    known = {
        str(line.session_id) for line in dialogue.record.by("client") if line.session_id is not None
    }
    for line in dialogue.record.updates():
        if line.session_id not in known:
            raise Violation("the agent sent an update of a session that was only listed", line)


async def _listing_leaves_open(stage: Stage) -> None:
    """Raise Violation if a session answers no prompt once it is listed, its first or the next."""
    await stage.need(plain_turn)
    dialogue = await stage.main()
    session = await stage.new_session(dialogue)
    for _ in range(2):
        try:
            listed = await pages(dialogue)
        except Violation as violation:  # of another rule
            raise unobservable(violation) from None
        try:
            await stage.prompt(dialogue, session, GREET)
        except Violation as violation:
            why = f"once the session was listed, its next prompt failed: {violation.why}"
            lines = (*listed[-1].answer.lines, *violation.lines)
            raise Violation(why, *lines) from None


# -- over all lists -------------------------------------------------------------------------

NO_LIST = "the agent returned no sessions"


def _list_entries(record: Record) -> list[tuple[Exchange, Json]]:
    return [
        (exchange, entry)
        for exchange in record.exchanges("client", "session/list")
        for entry in sessions_in(exchange)
    ]


@RULES.observer("list.absolute-folders", MUST, LISTING, NO_LIST)
def absolute_folders(record: Record, witness: Witness) -> None:
    """The folders in a list are absolute."""
    for exchange, entry in _list_entries(record):
        if entry.get("cwd") == RELATIVE:
            continue  # another rule is about an agent that has taken it
        witness.saw()
        more = entry.get("additionalDirectories")
        for path in (entry.get("cwd"), *(more if isinstance(more, list) else ())):
            if not isinstance(path, str) or not path.startswith("/"):
                witness.accuse(f"{path!r} is not absolute", *exchange.lines)


@RULES.observer("list.times", MUST, LISTING, "no listed session has a time")
def times(record: Record, witness: Witness) -> None:
    """`updatedAt` is a time in ISO 8601."""
    told = [(exchange.lines, entry) for exchange, entry in _list_entries(record)]
    told += [((line,), line.update) for line in record.lines if line.update_kind == INFO]
    for lines, entry in told:
        at = entry.get("updatedAt")
        if at is not None:
            witness.check(
                isinstance(at, str) and _is_time(at), f"{at!r} is not such a time", *lines
            )


INFO = "session_info_update"


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return "T" in text.upper()


@RULES.overview(
    "list.titles",
    EXPECTED,
    RuleSource(PAGE, "Updating Session Metadata"),
    "no session was listed after its title was reported",
)
def titles(records: Sequence[Record], witness: Witness) -> None:
    """The list has the title that was reported last."""
    # A title outlives its process, and two clients of a server get it one after the other.
    reported: dict[object, tuple[WireLine, object]] = {}
    methods = ("session/list", "session/new")
    asked = (exchange for record in records for exchange in record.exchanges("client", *methods))
    answers = {exchange.answer: exchange for exchange in asked if exchange.answer}
    for line in in_time(records):
        update = line.update
        if update.get("sessionUpdate") == "session_info_update" and "title" in update:
            reported[line.session_id] = (line, update["title"])
        if (exchange := answers.get(line)) is None:
            continue
        if exchange.asked.method == "session/new":
            reported.pop(exchange.session_id, None)
        for entry in sessions_in(exchange):
            last, title = reported.get(entry.get("sessionId"), (None, None))
            if last is not None and last.at <= exchange.asked.at:
                why = f"the agent reported {title!r}, but lists {entry.get('title')!r}"
                witness.check(entry.get("title") == title, why, *exchange.lines)
