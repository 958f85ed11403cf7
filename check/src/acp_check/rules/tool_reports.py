"""The rules for an agent's reports on its work: tool calls and permissions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import Struct

from acp_check.checks import EXPECTED, MUST, SHOULD, Rules, Witness
from acp_check.dialogue import Call, Dialogue, Silence
from acp_check.errands import Errand
from acp_check.record import Exchange, Json, Record, WireLine, objects, twice
from acp_check.rules.prompt_turns import (
    CANCELLATION,
    Cancelled,
    end_by_cancel,
    plain_turn,
)
from acp_check.stage import CheckedTurn, Stage, begin_prompt
from acp_check.verdicts import NotObservable, Reach, RuleSource, Signal, Violation

PAGE = "Tool Calls"
CREATING = RuleSource(PAGE, "Creating")
UPDATING = RuleSource(PAGE, "Updating")
STATUS = RuleSource(PAGE, "Status")
PERMISSION = RuleSource(PAGE, "Requesting Permission")
OPTIONS = RuleSource(PAGE, "Permission Options")
ARGUMENTS = RuleSource("Overview", "Argument requirements")
CALLS = ("tool.*", "permission.*", "cancel.*", "prompt.side-by-side", "resume.folder")
"""The cases in which the agent has requests for the client that offers everything."""

TOOLS = (*CALLS, "load.tool-calls", "load.folder", "load.grows", "load.links")
"""The cases with tool calls, and their replays."""

RULES = Rules(over=TOOLS)
DIFFS = RuleSource(PAGE, "Diffs")

NO_TOOLS = "the agent made no tool call: it has no model, or its model chose not to"
NO_PERMISSION = "the agent requested no permission"

MISSING = "no-such-file.txt"
SECRET = "walnut-7219"
"""A word in files and commands: an agent that repeats it has used a tool."""

# -- turns with tools -----------------------------------------------------------------------


async def _tool_turn(stage: Stage, errand: Errand) -> CheckedTurn:
    """Run a turn with the client that offers everything."""
    dialogue, session = await stage.full_session_after(plain_turn)
    return await stage.prompt(dialogue, session, errand)


async def read_turn(stage: Stage) -> CheckedTurn:
    """Have the agent read a file, then send nothing for a while."""
    path = stage.new_file("walnut.txt", f"{SECRET}\n")
    turn = await _tool_turn(stage, Errand("read", str(path)))
    await (await stage.full_client()).settle()
    return turn


async def write_turn(stage: Stage) -> CheckedTurn:
    """Have the agent write a file, with permission."""
    return await _tool_turn(stage, Errand("write", str(stage.work / "written.txt"), SECRET))


async def run_turn(stage: Stage) -> CheckedTurn:
    """Have the agent run a command, with permission."""
    return await _tool_turn(stage, Errand("run", f"echo {SECRET}"))


async def bare_turns(stage: Stage) -> list[CheckedTurn]:
    """Run the same turns with a client that offers nothing."""
    await stage.need(plain_turn)
    return await _all_tools(stage, await stage.main(), "bare")


async def _all_tools(stage: Stage, dialogue: Dialogue, name: str) -> list[CheckedTurn]:
    session = await stage.new_session(dialogue)
    errands = _one_of_each(stage, name, SECRET)
    return [await stage.prompt(dialogue, session, errand) for errand in errands]


def _one_of_each(stage: Stage, name: str, word: str) -> tuple[Errand, ...]:
    """Return errands that need a file to be read, one to be written, and a command."""
    return (
        Errand("read", str(stage.new_file(f"{name}.txt", f"{word}\n"))),
        Errand("write", str(stage.work / f"{name}-written.txt"), word),
        Errand("run", f"echo {word}"),
    )


async def partial_turns(stage: Stage) -> list[CheckedTurn]:
    """Run the same turns with clients that offer some of it, so that the rest is not offered."""
    await stage.need(plain_turn)
    turns: list[CheckedTurn] = []
    for name, offers in PARTIAL.items():
        dialogue = await stage.meet(name, offers)
        turns += await _all_tools(stage, dialogue, name)
    return turns


PARTIAL: dict[str, Json] = {
    "reads": {"fs": {"readTextFile": True, "writeTextFile": False}, "terminal": False},
    "writes": {"fs": {"writeTextFile": True}},
}
"""Capabilities of clients that only read files, and that only write them."""


@RULES.case("tool.turns", MUST, RuleSource("Prompt Turn", "4. Check for Completion"))
async def turns(stage: Stage) -> None:
    """Turns that ask for tools end with a stop reason."""
    # Play all of them, because observers look at them as well.
    ended: list[Signal] = []
    for episode in (read_turn, write_turn, run_turn, bare_turns, partial_turns):
        try:
            await stage.judge(episode)
        except Signal as signal:
            ended.append(signal)
    if ended:
        raise next((it for it in ended if isinstance(it, Violation)), ended[0])


@RULES.case(
    "tool.root-set", SHOULD, RuleSource("Session Setup", "Working Directory"), only=Reach.PROGRAM
)
async def root_set(stage: Stage) -> None:
    """Files outside of a session's folders are not written without permission."""
    await stage.need(bare_turns)
    if not stage.has("bare-written.txt"):
        raise NotObservable("the agent wrote none of the files that it was asked to write")
    # Temporary files are what an agent may write anywhere: so it is beside them.
    with suppress(OSError), TemporaryDirectory(prefix="acphold-check-", dir=OUTSIDE) as folder:
        path = Path(folder, "outside.txt")
        dialogue, session = await stage.session_after(plain_turn)
        turn = await stage.prompt(dialogue, session, Errand("write", str(path), SECRET))
        first, last = turn.asked.number, turn.answer.line.number
        asked = [it.method for it in dialogue.record.lines[first:last] if it.by == "agent"]
        if stage.has(str(path)) and "session/request_permission" not in asked:
            raise Violation("the agent wrote a file outside of them", turn.asked, *turn.updates)
        return
    raise NotObservable(f"the check cannot create a folder in {OUTSIDE}")


OUTSIDE = "/var/tmp"


@RULES.case("tool.reported", SHOULD, CREATING)
async def report(stage: Stage) -> None:
    """A used tool is reported as a tool call."""
    turn = await stage.need(read_turn)
    turn.repeats(SECRET)
    if not any(line.update_kind == "tool_call" for line in turn.updates):
        raise Violation("the agent read a file without a tool call", turn.asked, *turn.updates)


@RULES.case("tool.folder", MUST, RuleSource("Session Setup", "Working Directory"))
async def folder(stage: Stage) -> None:
    """A relative path starts at the session's folder."""
    await stage.need(plain_turn)
    dialogue = await stage.full_client()
    # Several, made before the first is used: catches one folder for all, the newest or the oldest.
    files = [stage.new_file("beside.txt", f"{SECRET}-{n}\n", f"folder {n}") for n in range(3)]
    sessions = [await stage.new_session(dialogue, cwd=str(file.parent)) for file in files]
    was_read = False
    for n in (1, 0, 2):
        file, secret = files[n], f"{SECRET}-{n}"
        turn = await stage.prompt(dialogue, sessions[n], Errand("read", file.name))
        for line in dialogue.record.lines[turn.asked.number : turn.answer.line.number]:
            path = line.params.get("path") if line.method == "fs/read_text_file" else None
            if isinstance(path, str) and path.endswith(file.name) and not stage.is_same(path, file):
                raise Violation(f"the agent asked for {path}", turn.asked, line)
        if SECRET in turn.text and secret not in turn.text:
            raise Violation("the agent read the file in the folder of another session", turn.asked)
        was_read = was_read or secret in turn.text
    if not was_read:
        raise NotObservable("the agent did not read the file that it was asked to read")


async def turns_of_broken_client(stage: Stage) -> list[CheckedTurn]:
    """Have the agent use files and terminals of a client that answers everything with errors."""
    dialogue, session = await stage.full_session_after(run_turn)
    before = len(dialogue.record.lines)
    errands = _one_of_each(stage, "broken", "nothing")
    with dialogue.host.deciding("fail"):
        turns = [await stage.prompt(dialogue, session, errand) for errand in errands]
    asked = [line for line in dialogue.record.lines[before:] if line.by == "agent"]
    if not any((line.method or "").startswith(("fs/", "terminal/")) for line in asked):
        raise NotObservable("the agent used neither files nor terminals of its client")
    return turns


@RULES.case("tool.refused", MUST, RuleSource("Prompt Turn", "4. Check for Completion"))
async def client_errors(stage: Stage) -> None:
    """A turn ends with a stop reason even if all requests get errors."""
    await stage.judge(turns_of_broken_client)


async def overwritten(stage: Stage) -> tuple[CheckedTurn, list[tuple[WireLine, Json]]]:
    """Have a file that exists written, and return the turn with its diffs of the file."""
    dialogue, session = await stage.full_session_after(write_turn)
    file = stage.new_file("older.txt", "linden\n")
    turn = await stage.need_turn(dialogue, session, Errand("write", str(file), SECRET))
    lines = dialogue.record.lines[turn.asked.number : turn.answer.line.number]
    shown = [
        (line, it)
        for line, update in _call_updates(dialogue.record)
        if line in lines
        for it in objects(update.get("content"))
        if it.get("type") == "diff" and stage.is_same(str(it.get("path")), file)
    ]
    if not shown:
        raise NotObservable("the agent showed no diff of the file that it was asked to write")
    return turn, shown


@RULES.case("tool.old-text", EXPECTED, DIFFS)
async def old_text(stage: Stage) -> None:
    """The diff of an existing file has its old text."""
    turn, shown = await stage.need(overwritten)
    for line, diff in shown:
        if diff.get("oldText") is None:
            raise Violation("the diff says that the file is new", turn.asked, line)


@RULES.case("tool.new-text", EXPECTED, DIFFS)
async def new_text(stage: Stage) -> None:
    """The diff of a file has the text that was written."""
    turn, shown = await stage.need(overwritten)
    if not any(SECRET in str(diff.get("newText")) for _, diff in shown):
        raise Violation(f"no diff has {SECRET!r} in its new text", turn.asked, shown[-1][0])


@RULES.case("tool.failed", EXPECTED, STATUS)
async def failure(stage: Stage) -> None:
    """A read that fails is reported as failed."""
    dialogue, session = await stage.full_session_after(read_turn)
    errand = Errand("read", str(stage.work / MISSING))
    turn = await stage.need_turn(dialogue, session, errand)
    reads = {
        id: line
        for line in turn.updates
        if (id := line.update.get("toolCallId"))
        and line.update.get("kind") == "read"
        and MISSING in line.words  # a call may be about something else
    }
    ends: dict[object, WireLine] = {}
    for line in turn.updates:
        if line.update.get("status") in ("completed", "failed"):
            ends.setdefault(line.update.get("toolCallId"), line)  # a way back is another fault
    for id, line in reads.items():
        if id in ends and ends[id].update["status"] == "completed":
            raise Violation("the call is reported as completed", turn.asked, line, ends[id])
    if not reads:
        raise NotObservable(NO_TOOLS)


# -- permission -----------------------------------------------------------------------------


class RejectedTurn(Struct, frozen=True):
    """A turn, the request for a permission that was rejected in it, and what came of it: if the
    file exists, and the request that writes a file of the rejected call.
    """

    turn: CheckedTurn
    asked: WireLine
    exists: bool
    written: WireLine | None


async def reject_turn(stage: Stage) -> RejectedTurn:
    """Run a turn with a rejected permission."""
    dialogue, session = await stage.full_session_after(plain_turn)
    path = str(stage.work / "rejected.txt")
    with dialogue.host.deciding("reject"):
        turn = await stage.prompt(dialogue, session, Errand("write", path, SECRET))
    await dialogue.settle()
    lines = dialogue.record.lines[turn.asked.number : turn.answer.line.number]
    for line in lines:
        if line.method == "session/request_permission" and line.session_id == session.id:
            call = line.params.get("toolCall") or {}
            reports = [update for _, update in _call_updates(dialogue.record)]
            its = [it for it in reports if it["toolCallId"] == call.get("toolCallId")]
            paths = {place["path"] for update in its for place in _places(update)}
            writes = (it for it in lines if it.method == "fs/write_text_file")
            written = next((it for it in writes if it.params.get("path") in paths), None)
            return RejectedTurn(turn, line, stage.has("rejected.txt"), written)
    raise NotObservable(NO_PERMISSION)


@RULES.case("permission.rejected", EXPECTED, PERMISSION)
async def rejection(stage: Stage) -> None:
    """A rejected tool call is not executed."""
    found = await stage.need(reject_turn)
    if found.exists:
        raise Violation("the file was written anyway", found.asked, *found.turn.answer.lines)
    if found.written is not None:
        raise Violation("the file was written anyway", found.asked, found.written)


@RULES.case("permission.rejected-ends", MUST, RuleSource("Prompt Turn", "4. Check for Completion"))
async def ends_after_rejection(stage: Stage) -> None:
    """A turn with a denied permission ends with a stop reason."""
    await stage.judge(reject_turn)


async def _is_held(dialogue: Dialogue, call: Call) -> bool:
    """Wait until a turn waits for its client, or has ended; return True if it waits."""

    def waits() -> bool | None:
        return False if call.answer is not None else dialogue.host.holds or None

    return await dialogue.until(waits, 3 * dialogue.timeout)


async def hold_turn(stage: Stage) -> Cancelled:
    """Cancel a turn while it waits for a permission."""
    dialogue, session = await stage.full_session_after(reject_turn)
    with dialogue.host.deciding("hold"):
        path = str(stage.work / "held.txt")
        call = begin_prompt(dialogue, session, Errand("write", path, SECRET))
        try:
            is_waiting = await _is_held(dialogue, call)
        except Silence as silence:  # nothing was cancelled yet, so no rule is broken
            raise NotObservable(f"{NO_PERMISSION}: {silence.why}", call.asked) from None
        if not is_waiting:
            raise NotObservable(NO_PERMISSION)
        return await end_by_cancel(dialogue, session, call)


@RULES.case("cancel.permission", MUST, CANCELLATION)
async def cancel_at_permission(stage: Stage) -> None:
    """A turn cancelled while waiting for permission ends with `cancelled`."""
    (await stage.judge(hold_turn)).require_cancelled()


@RULES.case("cancel.file", MUST, CANCELLATION)
async def cancel_at_file(stage: Stage) -> None:
    """A turn cancelled while waiting for a file ends with `cancelled`."""
    dialogue, session = await stage.full_session_after(read_turn)
    with dialogue.host.deciding("hold files"):
        path = str(stage.new_file("awaited.txt", f"{SECRET}\n"))
        call = begin_prompt(dialogue, session, Errand("read", path))
        is_waiting = False
        with suppress(Silence):
            is_waiting = await _is_held(dialogue, call)
        cancellation = dialogue.notify("session/cancel", {"sessionId": session.id})
        await dialogue.pause_briefly()
    answer = await dialogue.answer_to(call, 3 * dialogue.timeout)
    if not is_waiting:
        raise NotObservable("the agent read no file of its client")
    answer.require_cancelled(call.asked, cancellation, answer.line)


@RULES.case("permission.cancelled-is-no-yes", EXPECTED, CANCELLATION)
async def cancel_is_no_yes(stage: Stage) -> None:
    """A call waiting for permission when its turn is cancelled is not executed."""
    cancelled = await stage.need(hold_turn)
    if stage.has("held.txt"):
        raise Violation("the file was written anyway", *cancelled.lines[1:])


@RULES.observer("permission.options", MUST, OPTIONS, NO_PERMISSION, over=CALLS)
def options(record: Record, witness: Witness) -> None:
    """A permission request has options with unique ids."""
    for line in record.calls("agent", "session/request_permission"):
        witness.saw()
        entries = objects(line.params.get("options"))
        if not entries:
            witness.accuse("the request has no options", line)
        if (id := twice(str(it.get("optionId")) for it in entries)) is not None:
            witness.accuse(f"two options have the id {id!r}", line)


@RULES.observer(
    "permission.once", EXPECTED, PERMISSION, "no permission was granted or denied", over=CALLS
)
def once(record: Record, witness: Witness) -> None:
    """A granted or denied permission is not requested again."""
    decided: dict[tuple[object, ...], Exchange] = {}
    for exchange in record.exchanges("agent", "session/request_permission"):
        asked, call = exchange.asked, exchange.asked.params.get("toolCall")
        id = call.get("toolCallId") if isinstance(call, dict) else None
        key = asked.session_id, id
        before = decided.get(key)
        if before is not None and not _is_another(record, before, exchange, id):
            witness.accuse("the agent asked the same question again", *before.lines, asked)
        if isinstance(exchange.result.get("outcome"), dict):
            witness.saw()
            if exchange.result["outcome"].get("outcome") == "selected":
                decided[key] = exchange


def _is_another(record: Record, before: Exchange, now: Exchange, call: object) -> bool:
    """Return True if the second question about a call asks for something else, or more of it."""
    if before.answer is None or before.answer.number > now.asked.number:
        return True
    between = record.lines[before.asked.number : now.asked.number]
    said = [it.update for it in between if it.update.get("toolCallId") == call]
    if any(name in update for update in said for name in ("title", "content", "rawInput")):
        return True
    return _question(before.asked) != _question(now.asked)


def _question(asked: WireLine) -> Json:
    """Return what a permission is asked for: all but the state of the call."""
    call = {name: it for name, it in asked.params["toolCall"].items() if name != "status"}
    return {**asked.params, "toolCall": call}


# -- over all tool calls --------------------------------------------------------------------


def _call_updates(record: Record) -> Iterator[tuple[WireLine, Json]]:
    """Yield each `tool_call` and `tool_call_update`, including those of permission requests."""
    for line in record.by("agent"):
        asks = line.method == "session/request_permission"
        update = line.params.get("toolCall") if asks else line.update
        if isinstance(update, dict) and "toolCallId" in update:
            yield line, update


def _live(record: Record) -> list[tuple[WireLine, Json]]:
    """Return the updates outside of replays."""
    replays = [
        (exchange.asked.number, answered)
        for answered, exchange in record.exchanges_by_answer(
            "client", "session/load", "session/resume"
        ).items()
    ]
    return [
        (line, update)
        for line, update in _call_updates(record)
        if not any(first < line.number < last for first, last in replays)
    ]


@RULES.overview("tool.unique-ids", MUST, CREATING, NO_TOOLS)
def unique_ids(records: Sequence[Record], witness: Witness) -> None:
    """Each tool call of a session has a unique id."""
    # A session outlives its process, so this spans all records, one after the other. A call ends
    # with its status, with its turn, or with its process.
    ended: dict[tuple[object, object], WireLine] = {}
    for record in records:
        running: dict[tuple[object, object], WireLine] = {}
        answers = record.exchanges_by_answer("client", "session/prompt")
        made = record.exchanges_by_answer("client", "session/new")
        updates = {line.number: update for line, update in _live(record)}
        for line in record.lines:
            if (exchange := answers.get(line.number)) is not None:
                of_turn = [key for key in running if key[0] == exchange.asked.session_id]
                ended |= {key: running.pop(key) for key in of_turn}
            if line.number in made:  # some count their sessions from 0 in every process
                ended = {
                    it: at for it, at in ended.items() if it[0] != made[line.number].session_id
                }
            if (update := updates.get(line.number)) is None:
                continue
            key = line.session_id, update.get("toolCallId")
            if update.get("sessionUpdate") == "tool_call":
                witness.saw()
                if key in ended:
                    why = "an earlier call with this id has already ended"
                    witness.accuse(why, ended[key], line)
            if update.get("status") in ("completed", "failed"):
                ended[key] = line
            else:
                running[key] = line
        ended |= running


@RULES.observer("tool.known-id", EXPECTED, UPDATING, "no tool call was updated")
def only_known_ids(record: Record, witness: Witness) -> None:
    """Updates of a tool call arrive after the call."""
    known: set[tuple[object, object]] = set()
    for line, update in _call_updates(record):
        key = line.session_id, update.get("toolCallId")
        if update.get("sessionUpdate") == "tool_call":
            known.add(key)
        elif update.get("sessionUpdate") == "tool_call_update":
            witness.check(key in known, "no tool call with this id was reported before", line)


@RULES.observer("tool.ends", EXPECTED, STATUS, NO_TOOLS)
def ends(record: Record, witness: Witness) -> None:
    """At a turn's end its tool calls are completed or failed."""
    for exchange in record.exchanges("client", "session/prompt"):
        if exchange.answer is None or exchange.result.get("stopReason") in (None, "cancelled"):
            continue
        first, last = exchange.asked.number, exchange.answer.number
        statuses: dict[object, tuple[object, WireLine]] = {}
        for line in record.updates(exchange.asked.session_id, since=first):
            update = line.update
            if line.number < last and line.update_kind.startswith("tool_call"):
                before = statuses.get(update.get("toolCallId"), ("pending", line))[0]
                status = update.get("status") or before
                statuses[update.get("toolCallId")] = status, line
        for status, line in statuses.values():
            witness.check(
                status in ("completed", "failed"),
                f"one call is still {status}",
                line,
                exchange.answer,
            )


@RULES.observer("tool.no-way-back", EXPECTED, STATUS, NO_TOOLS)
def no_way_back(record: Record, witness: Witness) -> None:
    """A completed or failed tool call stays so."""
    ended: dict[tuple[object, object], WireLine] = {}
    for line, update in _live(record):
        key, status = (line.session_id, update.get("toolCallId")), update.get("status")
        if update.get("sessionUpdate") == "tool_call":
            ended.pop(key, None)
        if status in ("completed", "failed"):
            witness.saw()
            ended.setdefault(key, line)
        elif status is not None and key in ended:
            witness.accuse(f"the call is {status} again", ended[key], line)


@RULES.observer(
    "tool.in-progress",
    SHOULD,
    RuleSource("Prompt Turn", "5. Tool Invocation and Status Reporting"),
    NO_PERMISSION,
)
def in_progress(record: Record, witness: Witness) -> None:
    """A permitted tool call is reported as in progress, completed or failed."""
    for exchange in record.exchanges("agent", "session/request_permission"):
        outcome = exchange.result.get("outcome")
        chosen = outcome.get("optionId") if isinstance(outcome, dict) else None
        is_allowed = any(
            it.get("optionId") == chosen and str(it.get("kind")).startswith("allow")
            for it in objects(exchange.asked.params.get("options"))
        )
        if not is_allowed or _was_stopped(record, exchange.asked):
            continue
        call = exchange.asked.params.get("toolCall")
        id = call.get("toolCallId") if isinstance(call, dict) else None
        witness.saw()
        later = record.updates(exchange.asked.session_id, since=exchange.asked.number)
        statuses = {
            line.update.get("status") for line in later if line.update.get("toolCallId") == id
        }
        if not statuses & {"in_progress", "completed", "failed"}:
            witness.accuse("the agent reported nothing more about the call", *exchange.lines)


STOPS = ("session/cancel", "session/close", "$/cancel_request")


def _was_stopped(record: Record, asked: WireLine) -> bool:
    """Return True if the turn of a permission request was stopped before it was over."""
    later = record.lines[asked.number + 1 :]
    for line in later:
        about = line.by == "client" and line.session_id in (None, asked.session_id)
        if about and line.method in STOPS:
            return True
        if about and line.method == "session/prompt":
            return False
    return all(line.by == "client" for line in later)  # it was killed


@RULES.observer("tool.absolute", MUST, ARGUMENTS, "no tool call names a path")
def absolute(record: Record, witness: Witness) -> None:
    """The paths in tool calls are absolute."""
    for line, update in _call_updates(record):
        for place in _places(update):
            path = str(place.get("path"))
            witness.check(path.startswith("/"), f"{path!r} is not absolute", line)


@RULES.observer("tool.lines", MUST, ARGUMENTS, "no tool call names a line")
def lines(record: Record, witness: Witness) -> None:
    """Line numbers start at 1."""
    for line, update in _call_updates(record):
        for place in _places(update):
            if place.get("line") is not None:
                witness.check(place["line"] != 0, "the location has line 0", line)


def _places(update: Json) -> list[Json]:
    """Return the locations and diffs of a tool call."""
    entries = [*objects(update.get("locations")), *objects(update.get("content"))]
    return [it for it in entries if "path" in it]
