"""`acphold queue`: the queued prompts in a session, seen and changed."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from json import dumps
from pathlib import Path
from uuid import uuid4

from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from acp_wire.processes.program import on_path
from acp_wire.schema import RESUME_SESSION, PromptCapabilities, encode
from acphold.client.advertised import content_blocks
from acphold.conversation.history.prompt_queue import (
    QueueChange,
    WaitingPrompt,
    describe_queue,
    moment,
    prompt_quantity,
    rules,
    why_held,
)
from acphold.errors import (
    AUTH_REQUIRED,
    AcpError,
    AgentStartError,
    AuthRequiredError,
    ConnectionLostError,
    JournalError,
    NoJournalError,
    RemoteError,
    SettingsError,
)
from acphold.faces.cli import bounds, options
from acphold.faces.cli.ask_arguments import AskArguments
from acphold.faces.cli.ask_streams import prompt_and_stdin
from acphold.faces.cli.command_line import Exit, UsageError, command
from acphold.faces.cli.continuation import (
    make_startable,
    move_to_folder,
    session_to_continue,
    start_name,
    start_of,
    wrap_of,
)
from acphold.faces.cli.journals import sessions_here
from acphold.faces.cli.places import find_session
from acphold.faces.cli.settings import NamedAgent, agent_command
from acphold.faces.cli.terminal_text import on_one_line, tell, titled, visible
from acphold.journal.rows import SessionRow
from acphold.live.reading.listed_sessions import QUEUED
from acphold.live.reading.one_question import QueueAnswer, ask_over, ask_queue
from acphold.live.reading.processes import require_answer

DEEDS = ("add", "drop", "pause", "resume")


def _in_order(arguments: Sequence[str]) -> str:
    """Return the hint for words that stand in another order, or without what to do."""
    if len(arguments) < 2 or any(word.startswith("-") for word in arguments):
        return ""
    first, second, *rest = arguments
    words = [second, first, *rest] if first in DEEDS else [first, "add", second, *rest]
    return f"did you mean: acphold queue {shlex.join(words)}"


@command(
    "queue",
    "[OPTIONS] [ID [add|drop|pause|resume [WORDS...]]]",
    options.JOURNAL,
    meant=_in_order,
)
async def queue(
    *,
    session_id: str | None = options.SESSION_IF_ANY,
    deed: str | None = options.argument(
        "DO",
        "add TEXT; drop N...; pause; resume",
        nargs="?",
        choices=DEEDS,
    ),
    words: list[str] = options.argument("WORDS", "arguments of DO; see above", nargs="*"),
    at: int | None = options.value("TIME", "add: start no earlier than this, such as 02:00"),
    on_failure: str | None = options.value(
        None,
        "what happens to the other prompts after a failed or refused turn [default: pause]",
        choices=("pause", "continue"),
    ),
    restart: str | None = options.value(
        None,
        "what happens to the prompts when another process opens the session [default: pause]",
        choices=("pause", "continue"),
    ),
    json: bool = options.flag("print the queue as JSON"),
) -> int:
    """Show and change the queued prompts in a session.

    Without ID, lists the sessions with queued prompts.

      acphold queue ab12
      acphold queue ab12 add "Now run the tests"
      acphold queue ab12 add "Write the summary" --at 02:00
      acphold queue ab12 resume

    N is the number in the list, or the prompt's id (`--json`). The process that has the session
    open starts the prompts in this order, each once no turn is running and no question is open. No
    client has to be connected. If a turn fails, is refused, cancelled or interrupted, or if another
    process opens the session, the queue is paused until you run `resume`. A prompt starts at
    most once. If no process has the session open, `resume` opens it in the daemon, with its
    agent.
    """
    if session_id in DEEDS and deed is None:
        raise UsageError(f"the ID comes first: acphold queue ID {session_id}")
    if session_id is not None:
        changes = _changes_of(deed, words, at, on_failure, restart)
        return await _apply(session_id, changes, as_json=json)
    rows: list[SessionRow] = []
    short_ids: dict[str, str] = {}
    with suppress(NoJournalError):
        async with sessions_here() as (reader, _):
            page = await reader.page(QUEUED, limit=bounds.QUEUES_AT_ONCE)
            rows = [it.row for it in page.sessions]
            short_ids = await reader.short_ids(row.session_id for row in rows)
    if not rows and not json:
        print("No prompts are waiting.")
    for row in rows:
        if json:
            facts = {"sessionId": row.session_id, "queued": row.queued, "held": row.held}
            print(dumps({**facts, "until": row.held_until}))
            continue
        state = describe_queue(row.queued, row.held, row.held_until)
        title = titled(row.title)
        print(f"{on_one_line(short_ids[row.session_id])}  {title}  {state}")
    return Exit.OK


def ask_later(asked: AskArguments) -> int:
    """Put the prompt of `ask` into the queue of the session that it continues; returns the exit
    code. Files go as links. Raises UsageError."""
    content: list[str | Path] = [*prompt_and_stdin(asked.prompt, None), *map(Path, asked.file)]
    blocks = content_blocks(content, PromptCapabilities(), "the agent")
    when: int | UnsetType = UNSET if asked.at is None else asked.at
    change = QueueChange("add", uuid4().hex[:8], Raw(encode(blocks)), at=when)

    async def put() -> int:
        row = await session_to_continue(asked.session, asked.cwd or os.getcwd())
        if row is None:
            raise UsageError(
                "--later: there is no session to continue in this folder; name one with --session"
            )
        return await _apply(row.session_id, [change], as_json=asked.json)

    return asyncio.run(put())


def _changes_of(
    deed: str | None,
    words: Sequence[str],
    at: int | None,
    on_failure: str | None,
    restart: str | None,
) -> list[QueueChange]:
    """Return the changes that the arguments mean, of prompts as they are typed; UsageError."""
    if at is not None and deed != "add":
        raise UsageError("--at works only with add")
    when: int | UnsetType = UNSET if at is None else at
    changes: list[QueueChange] = []
    match deed, list(words):
        case "add", [_, *_]:
            blocks = Raw(encode([{"type": "text", "text": " ".join(words)}]))
            changes = [QueueChange("add", uuid4().hex[:8], blocks, at=when)]
        case "drop", [_, *_]:
            changes = [QueueChange("drop", number) for number in words]
        case ("pause" | "resume") as one, []:
            changes = [QueueChange("hold" if one == "pause" else "go")]
        case None, []:
            pass
        case _:
            raise UsageError(f"{deed}: missing or unexpected arguments; see `acphold queue --help`")
    if on_failure is not None or restart is not None:
        goes_on = UNSET if on_failure is None else on_failure == "continue"
        restarts = UNSET if restart is None else restart == "continue"
        changes.append(QueueChange("set", goes_on=goes_on, restarts=restarts))
    return changes


async def _apply(given: str, changes: Sequence[QueueChange], *, as_json: bool) -> int:
    async with sessions_here() as (reader, journal):
        row = await find_session(reader, given, "shows its queue", by_words="found")
        short = (await reader.short_ids([row.session_id]))[row.session_id]
        await require_answer(journal, row.session_id)
        answer = await ask_queue(journal, row.session_id)
        # Numbers are those of the list before the first change.
        waiting = answer.queue.waiting
        named = [
            replace(it, id=_prompt_id(waiting, it.id)) if it.do == "drop" else it for it in changes
        ]
        for change in named:
            if change.do == "go" and not answer.is_live and answer.queue.waiting:
                await _open_in_daemon(row, short)
            try:
                answer = await ask_queue(journal, row.session_id, change)
            except RemoteError as error:
                raise UsageError(str(error)) from None
    if answer.queue.waiting and not answer.is_live and (why := _why_unstartable(row)):
        tell(f"acphold: the prompts are kept, but their agent cannot be started: {why}")
    if as_json:
        print(encode(answer.queue).decode())
    else:
        print("\n".join(map(visible, lines(row, answer, short))))
    return Exit.OK


def _why_unstartable(row: SessionRow) -> str:
    """Return why the agent of a session cannot be started here now; "" if it probably can."""
    try:
        start = start_of(row)
        agent = agent_command(start.agent) if start.agent else NamedAgent(start.command)
    except (SettingsError, UsageError) as error:
        return str(error)
    program = agent.command[0]
    place = os.path.join(start.folder or "", program) if "/" in program else program
    if on_path(place, agent.env.get("PATH")):
        return ""
    return f"there is no program {program!r}; install it, or its agent"


async def _open_in_daemon(row: SessionRow, short: str) -> None:
    """Open a session that no process has, with its agent.

    Raises UsageError if that is not known, AgentStartError if it does not start, and JournalError.
    """
    there = f"open it here with `acphold continue {on_one_line(short)}`, then type `/queue resume`"
    start = make_startable(start_of(row), row)
    cwd = await move_to_folder(row, None)
    wrap = wrap_of(start, cwd)
    params = {"sessionId": row.session_id, "cwd": cwd, "mcpServers": []}
    try:
        stream, asked, seconds = await wrap.open(), encode(params), bounds.AGENT_OPEN_SECONDS
        await ask_over(stream, RESUME_SESSION.name, asked, seconds, watches=True)
    except JournalError:
        raise
    except AcpError as error:
        if isinstance(error, RemoteError) and error.code == AUTH_REQUIRED:
            raise AuthRequiredError(f"cannot open the session: {error}; {there}") from None
        why = await wrap.how_it_ended() if type(error) is ConnectionLostError else error
        raise AgentStartError(f"cannot open the session: {why}; {there}") from None
    finally:
        await wrap.aclose()
    tell(f"Opened in the daemon, with {start_name(start)}.")


def _prompt_id(waiting: Sequence[WaitingPrompt], number: str) -> str:
    """Return the id of the prompt with this number in the list, or this id; UsageError."""
    if re.fullmatch("[0-9]{1,9}", number) and 1 <= int(number) <= len(waiting):
        return waiting[int(number) - 1].id
    if any(it.id == number for it in waiting):
        return number
    raise UsageError(f"there is no prompt {number}; {prompt_quantity(len(waiting))}")


def lines(row: SessionRow, answer: QueueAnswer, short: str) -> Iterator[str]:
    """Yield the lines of the queue of a session with this `short` id."""
    state = answer.queue
    how = rules(goes_on=state.goes_on, restarts=state.restarts)
    facts = [prompt_quantity(len(state.waiting)), how, why_held(state.held, state.until_ms)]
    yield f"{titled(row.title)}: {', '.join(filter(None, facts))}"
    for ended in state.ended:
        how = "taken back" if ended.status == "takenBack" else ended.status
        yield f"  {how}: {on_one_line(ended.words)}"
    if state.begun is not None:
        yield f"  running: {on_one_line(state.begun.words)}"
    for number, it in enumerate(state.waiting, 1):
        when = "" if it.at_ms is None else f"at {moment(it.at_ms)}: "
        yield f"  {number}  {when}{on_one_line(it.words)}"
    if state.waiting and not answer.is_live:
        resume = f"acphold queue {on_one_line(short)} resume"
        yield f"No process has the session open; `{resume}` opens it and starts the prompts."
