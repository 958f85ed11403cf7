"""`acphold queue`: the prompts that wait in a session, seen and changed."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from uuid import uuid4

import msgspec
from msgspec import UNSET, Raw, UnsetType

from acphold.cli import bounds
from acphold.cli.ask_streams import prompt_and_stdin
from acphold.cli.command_line import Exit, Parser, UsageError, a_later_moment
from acphold.cli.continuation import fetched, meant, settled_in, start_name, start_of
from acphold.cli.journals import opened, opened_if_any
from acphold.cli.places import named
from acphold.cli.terminal_text import on_one_line, visible
from acphold.client.advertised import content_blocks
from acphold.client.endpoints import ProgramEndpoint, ProgramStart
from acphold.errors import AcpholdError, RemoteError
from acphold.history.prompt_queue import (
    QueueChange,
    WaitingPrompt,
    held,
    held_prompts,
    moment,
    rules,
    wait,
)
from acphold.journal import ListFilter, SessionRow, stores
from acphold.reading.local_reader import LocalReader
from acphold.reading.neighbours import NAME, QueueAnswer, ask_queue, asked_over
from acphold.reading.session_reader import Wanted
from acphold.schema import RESUME_SESSION, encode
from acphold.schema.initialize import PromptCapabilities

DEEDS = ("add", "edit", "move", "drop", "hold", "go")


def parser() -> Parser:
    """The arguments of `queue`."""
    made = Parser(queue, "queue", "[OPTIONS] [ID [add|edit|move|drop|hold|go [WORDS...]]]")
    made.add_value("session_id", "ID", "the session's id, or a prefix of it", nargs="?")
    made.add_value(
        "deed",
        "DO",
        "add TEXT; edit N TEXT; move N [BEFORE]; drop N...; hold; go",
        nargs="?",
        choices=DEEDS,
    )
    made.add_value("words", "WORDS", "what DO is about; see above", nargs="*")
    made.add_value("--at", "TIME", "add, edit: begin no earlier, as 02:00", type=a_later_moment)
    made.add_argument(
        "--on-failure",
        choices=("hold", "go-on"),
        help="what happens to the rest behind a turn that failed or was refused [default: hold]",
    )
    made.add_argument(
        "--restart",
        choices=("hold", "go-on"),
        help="what happens when another process opens the session [default: hold]",
    )
    made.add_flag("--json", "print the queue as JSON")
    made.add_journal()
    return made


async def queue(
    *,
    session_id: str | None,
    deed: str | None,
    words: list[str],
    at: int | None,
    on_failure: str | None,
    restart: str | None,
    json: bool,
    journal: str | None,
) -> int:
    """See and change the prompts that wait in a session.

    Without ID it lists the sessions in which prompts wait.

      acphold queue ab12
      acphold queue ab12 add "Now run the tests"
      acphold queue ab12 add "Write the summary" --at 02:00
      acphold queue ab12 move 3 1
      acphold queue ab12 go

    N is the number in the list, or the prompt's id (`--json`). What waits begins in its order, one
    after the other, once no turn runs and no question is open, in the process that has the session
    open. It needs no client. If a turn fails, is refused, cancelled or cut off, or if another
    process opens the session, the rest is held until you say `go`. A prompt begins at most once.
    If no process has the session open, `go` opens it in the background, with its agent.
    """
    if session_id is None:
        return await _list(journal, as_json=json)
    change = _change_of(deed, words, at, on_failure, restart)
    return await _at(journal, session_id, change, as_json=json)


def ask_later(arguments: Mapping[str, object]) -> int:
    """Put the prompt of `ask` into the queue of the session that it continues; returns the exit
    code. Files go as links. Raises UsageError."""
    asked = msgspec.convert(arguments, _LaterPrompt)
    content: list[str | Path] = [*prompt_and_stdin(asked.prompt, None), *map(Path, asked.file)]
    blocks = content_blocks(content, PromptCapabilities(), "the agent")
    when: int | UnsetType = UNSET if asked.at is None else asked.at
    change = QueueChange("add", uuid4().hex[:8], Raw(encode(blocks)), at=when)

    async def put() -> int:
        row = await meant(asked.journal, asked.session, asked.cwd or os.getcwd())
        if row is None:
            raise UsageError(
                "--later: there is no session to continue in this folder; name one with --session"
            )
        return await _at(asked.journal, row.session_id, _Wish((change,)), as_json=asked.json)

    return asyncio.run(put())


class _LaterPrompt(msgspec.Struct):
    prompt: str
    file: list[str]
    session: str | None
    cwd: str | None
    at: int | None
    json: bool
    journal: str | None


class _Wish(msgspec.Struct, frozen=True):
    """Changes that a person wants; `numbers` are the prompts that they name, as typed."""

    changes: tuple[QueueChange, ...] = ()
    numbers: tuple[str, ...] = ()
    before: str | None = None


def _change_of(
    deed: str | None,
    words: Sequence[str],
    at: int | None,
    on_failure: str | None,
    restart: str | None,
) -> _Wish:
    """Return the changes that the arguments mean; UsageError."""
    if at is not None and deed not in ("add", "edit"):
        raise UsageError("--at goes with add and edit")
    wish = _Wish()
    when: int | UnsetType = UNSET if at is None else at
    match deed, list(words):
        case "add", [_, *_]:
            added = QueueChange("add", uuid4().hex[:8], _blocks(words), at=when)
            wish = _Wish((added,))
        case "edit", [number, *text] if text or at is not None:
            edited = QueueChange("edit", prompt=_blocks(text) if text else Raw(), at=when)
            wish = _Wish((edited,), (number,))
        case "move", [number]:
            wish = _Wish((QueueChange("move"),), (number,))
        case "move", [number, before]:
            wish = _Wish((QueueChange("move"),), (number,), before)
        case "drop", [_, *_]:
            wish = _Wish((QueueChange("drop"),) * len(words), tuple(words))
        case ("hold" | "go") as one, []:
            wish = _Wish((QueueChange(one),))
        case None, []:
            pass
        case _:
            raise UsageError(f"{deed}: see `acphold queue --help` for what comes behind it")
    if on_failure is not None or restart is not None:
        rules = QueueChange(
            "set",
            goes_on=UNSET if on_failure is None else on_failure == "go-on",
            restarts=UNSET if restart is None else restart == "go-on",
        )
        wish = msgspec.structs.replace(wish, changes=(*wish.changes, rules))
    return wish


def _blocks(words: Sequence[str]) -> Raw:
    return Raw(encode([{"type": "text", "text": " ".join(words)}]))


async def _list(location: str | None, *, as_json: bool) -> int:
    async with opened_if_any(location) as journal:
        rows: list[SessionRow] = []
        if journal is not None:
            reader = LocalReader(journal)
            wanted = ListFilter(queued=True, include_unprompted=True, archived="include")
            page = await reader.page(Wanted(wanted), limit=bounds.QUEUES_AT_ONCE)
            rows = [it.row for it in page.sessions]
            short_ids = await reader.short_ids([row.session_id for row in rows])
        if not rows and not as_json:
            print("No prompt waits.")
        for row, short in zip(rows, short_ids if rows else (), strict=True):
            if as_json:
                told = {"sessionId": row.session_id, "queued": row.queued, "held": row.held}
                print(json.dumps({**told, "until": row.held_until}))
                continue
            facts = held_prompts(row.queued, row.held, row.held_until)
            title = on_one_line(row.title or "(no title)")
            print(f"{on_one_line(short)}  {title}  {facts}")
    return Exit.OK


async def _at(location: str | None, given: str, wish: _Wish, *, as_json: bool) -> int:
    async with opened(location) as journal:
        row = await named(LocalReader(journal), given, "shows its queue")
        answer = await ask_queue(journal, row.session_id)
        ids = [_meant(answer.queue.waiting, number) for number in wish.numbers]
        before = "" if wish.before is None else _meant(answer.queue.waiting, wish.before)
        for place, change in enumerate(wish.changes):
            if change.do in ("edit", "move", "drop"):
                change = msgspec.structs.replace(change, id=ids[place], before=before)
            if change.do == "go" and not answer.is_live and answer.queue.waiting:
                await _open_in_background(row, location)
            try:
                answer = await ask_queue(journal, row.session_id, change)
            except RemoteError as error:
                raise UsageError(str(error)) from None
    if as_json:
        print(encode(answer.queue).decode())
    else:
        print("\n".join(map(visible, lines(row, answer))))
    return Exit.OK


async def _open_in_background(row: SessionRow, location: str | None) -> None:
    """Open a session that no process has, with its agent; UsageError if that is not known, or does
    not start."""
    there = f"open it here with `acphold resume {row.session_id}`, then type `/queue go`"
    start = fetched(start_of(row))
    if start.verb != "wrap":
        raise UsageError(
            f"no process has this session open, and {start_name(start)} does not run in the "
            f"background; {there}"
        )
    cwd = await settled_in(location, row, None)
    command = start.served(stores.named(location), "--background")
    wrap = ProgramEndpoint(ProgramStart(command=command, cwd=start.folder or cwd), is_acphold=True)
    params = {"sessionId": row.session_id, "cwd": cwd, "mcpServers": []}
    try:
        stream, asked, seconds = await wrap.open(), encode(params), bounds.AGENT_OPEN_SECONDS
        await asked_over(stream, NAME, RESUME_SESSION.name, asked, seconds, watches=True)
    except AcpholdError as error:
        raise UsageError(f"the session cannot be opened: {error}; {there}") from None
    finally:
        await wrap.aclose()
    print(f"Opened in the background, with {start_name(start)}.", file=sys.stderr)


def _meant(waiting: Sequence[WaitingPrompt], number: str) -> str:
    """Return the id of the prompt with this number in the list, or this id; UsageError."""
    if number.isdecimal() and 1 <= int(number) <= len(waiting):
        return waiting[int(number) - 1].id
    if any(it.id == number for it in waiting):
        return number
    raise UsageError(f"no prompt has the number {number}; {wait(len(waiting))}")


def lines(row: SessionRow, answer: QueueAnswer) -> Iterator[str]:
    """Yield the lines of a queue."""
    state = answer.queue
    count = wait(len(state.waiting)) if state.waiting or state.begun else "no prompt waits"
    how = rules(goes_on=state.goes_on, restarts=state.restarts)
    facts = [count, how, held(state.held, state.until)]
    yield f"{on_one_line(row.title or '(no title)')}: {', '.join(filter(None, facts))}"
    for ended in state.ended:
        how = "taken back" if ended.state == "takenBack" else ended.state
        yield f"  {how}: {on_one_line(ended.words)}"
    if state.begun is not None:
        yield f"  runs: {on_one_line(state.begun.words)}"
    for number, it in enumerate(state.waiting, 1):
        when = "" if it.at is None else f"at {moment(it.at)}: "
        yield f"  {number}  {when}{on_one_line(it.words)}"
    if state.waiting and not answer.is_live:
        go = f"acphold queue {row.session_id} go"
        yield f"No process has the session open; `{go}` opens it and begins."
