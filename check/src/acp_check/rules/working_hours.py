"""An hour with an agent, played once, and what its sessions have to be afterwards.

Two sessions, ALDER and BIRCH, are used side by side; a third one shares the folder of BIRCH.

    one process      both read a file at once; ALDER gets links and pictures, is cancelled while a
                     command runs and while it counts, BIRCH is refused a permission; a mode is set
    the next one     ALDER is resumed and goes on; the third session is deleted, another one made
    the one after    ALDER and BIRCH are loaded

All of it is one episode. A step that goes wrong is judged by its own rule; the others are played
all the same. Observers look at all of it besides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from msgspec import Struct

from acp_check import bounds
from acp_check.checks import EXPECTED, MUST, SHOULD, Rules
from acp_check.dialogue import EQUIPPED, Call, Dialogue, Silence
from acp_check.errands import COUNT, GREET, Errand
from acp_check.record import Json, WireLine, objects
from acp_check.rules.listings import (
    Loaded,
    bare_text,
    entries,
    load,
    load_after_restart,
    load_elsewhere,
    pages,
    tool_calls,
)
from acp_check.rules.prompt_turns import (
    CANCELLATION,
    OUTPUT,
    PIXEL,
    SILENT,
    Cancelled,
    begin_long_turn,
    end_by_cancel,
    plain_turn,
)
from acp_check.rules.selections import other_values, set_other_mode, set_to
from acp_check.stage import (
    CheckedSession,
    CheckedTurn,
    Episode,
    Stage,
    advertises,
    begin_prompt,
)
from acp_check.verdicts import NotObservable, RuleSource, Signal, Violation

RULES = Rules()

PAGE = "Session Setup"
LOADING = RuleSource(PAGE, "Loading a Session")

ALDER, BIRCH, THIRD = "alder-6120", "birch-2891", "rowan-7034"
"""Words in the file of each session, or in its prompt, of which the others hear nothing."""

FINE = f"{GREET.words} It is a rainy day."
"""The prompt after a resume."""


class Hour(Struct, frozen=True):
    """The sessions of an hour, and the process they were made in; `third` is in BIRCH's folder."""

    dialogue: Dialogue
    alder: CheckedSession
    birch: CheckedSession
    third: CheckedSession


async def begin_hour(stage: Stage) -> Hour:
    """Make the sessions."""
    await stage.need(plain_turn)
    dialogue = await stage.meet("an hour", EQUIPPED, stays=True)
    alder = await stage.new_session(dialogue, cwd=stage.new_folder("under alders"))
    birch = await stage.new_session(dialogue, cwd=stage.new_folder("under birches"))
    third = await stage.new_session(dialogue, cwd=birch.cwd)
    return Hour(dialogue, alder, birch, third)


async def hour(stage: Stage) -> Hour:
    """Play all steps in their order; each keeps how it ended."""
    now = await stage.need(begin_hour)
    for step in STEPS:
        with suppress(Signal):
            await stage.judge(step)
    return now


# -- side by side ---------------------------------------------------------------------------


async def side_by_side(stage: Stage) -> tuple[CheckedTurn, CheckedTurn]:
    """Have both sessions read a file of their own at the same time."""
    now = await stage.need(begin_hour)
    running: list[tuple[CheckedSession, Call]] = []
    for session, word in ((now.alder, ALDER), (now.birch, BIRCH)):
        path = stage.new_file(f"{word}.txt", f"{word}\n", folder=session.cwd)
        call = begin_prompt(now.dialogue, session, Errand("read", str(path)))
        running.append((session, call))
    one, other = [await stage.turn(now.dialogue, *it) for it in running]
    await now.dialogue.settle()
    await stage.prompt(now.dialogue, now.third, Errand("remember", THIRD))
    return one, other


@RULES.case("prompt.side-by-side", MUST, OUTPUT)
async def own_turn(stage: Stage) -> None:
    """Two simultaneous turns are reported in their own sessions."""
    now = await stage.need(hour)
    turns = await stage.need(side_by_side)
    lines = now.dialogue.record.lines[turns[0].asked.number :]
    messages = [line for line in lines if line.by == "agent" and line.method is not None]
    if not any(word in line.words for word in (ALDER, BIRCH) for line in messages):
        raise NotObservable("the agent does not repeat anything from the files")
    for session, foreign in ((now.alder, BIRCH), (now.birch, ALDER)):
        for line in messages:
            if line.session_id == session.id and foreign in line.words:
                raise Violation("this message is about the other session", turns[0].asked, line)


# -- links and pictures ---------------------------------------------------------------------

LINKED, INSIDE = "linked-5507.txt", "inside-8834.txt"
"""Names of a file that is linked, and of one that is embedded."""


async def picture_turn(stage: Stage) -> CheckedTurn:
    """Send a prompt with every kind of content that the agent takes."""
    now = await stage.need(begin_hour)
    can = await stage.capabilities()
    linked = stage.new_file(LINKED, "linked\n", folder=now.alder.cwd)
    inside = {"uri": (linked.parent / INSIDE).as_uri(), "mimeType": "text/plain", "text": "in it\n"}
    blocks: list[Json] = [{"type": "resource_link", "uri": linked.as_uri(), "name": LINKED}]
    for needed, block in (
        ("image", {"type": "image", "mimeType": "image/png", "data": PIXEL}),
        ("audio", {"type": "audio", "mimeType": "audio/wav", "data": SILENT}),
        ("embedded", {"type": "resource", "resource": inside}),
    ):
        if advertises(can, needed):
            blocks.append(block)
    return await stage.prompt(now.dialogue, now.alder, GREET, *blocks)


# -- cancelled and refused ------------------------------------------------------------------


class CancelledTool(Cancelled, frozen=True):
    """`has_trace` is True if the command ran on to its end."""

    has_trace: bool


async def cancel_tool(stage: Stage) -> CancelledTool:
    """Cancel a turn of ALDER while a command runs, and wait until the command would be over."""
    now = await stage.need(begin_hour)
    dialogue = now.dialogue
    trace = stage.folder / "trace"
    command = Errand("run", f"sleep {bounds.COMMAND_SECONDS}; touch {trace}")
    call = begin_prompt(dialogue, now.alder, command)
    since = call.asked.number

    def runs() -> bool | None:
        if call.answer is not None:
            return False
        for line in dialogue.record.lines[since:]:
            waits = line.method == "terminal/wait_for_exit"
            is_told = waits or line.update.get("status") == "in_progress"
            if is_told and line.by == "agent" and line.session_id == now.alder.id:
                return True
        return None

    try:
        is_running = await dialogue.until(runs, 3 * dialogue.timeout)
    except Silence:
        is_running = False
    await dialogue.pause_briefly()  # a command that fails does so now
    lines = dialogue.record.lines[since:]
    is_over = any(it.update.get("status") in ("completed", "failed") for it in lines)
    is_running = is_running and call.answer is None and not is_over
    wait = bounds.COMMAND_SECONDS if is_running else 0.0
    found = await end_by_cancel(dialogue, now.alder, call, wait=wait)
    if not is_running:
        raise NotObservable("the agent ran no command that could be cancelled")
    return CancelledTool(now.alder, call, found.cancel, found.late, trace.exists())


@RULES.case("cancel.tool", MUST, CANCELLATION)
async def tool_cancelled(stage: Stage) -> None:
    """A turn cancelled during a tool ends with `cancelled`."""
    await stage.need(hour)
    (await stage.judge(cancel_tool)).require_cancelled()


@RULES.case("cancel.tool-updates-first", MUST, CANCELLATION)
async def tool_updates_first(stage: Stage) -> None:
    """Updates of a turn cancelled during a tool precede its answer."""
    await stage.need(hour)
    (await stage.need(cancel_tool)).require_updates_first()


@RULES.case("cancel.stops-tools", SHOULD, CANCELLATION)
async def tool_stopped(stage: Stage) -> None:
    """Cancelling a turn stops its running command."""
    await stage.need(hour)
    cancelled = await stage.need(cancel_tool)
    if cancelled.has_trace:
        raise Violation("the command ran to its end", *cancelled.lines)


async def cancel_count(stage: Stage) -> Cancelled:
    """Cancel a turn of ALDER that says something."""
    now = await stage.need(begin_hour)
    call = await begin_long_turn(stage, now.dialogue, now.alder)
    return await end_by_cancel(now.dialogue, now.alder, call)


async def refuse_permission(stage: Stage) -> CheckedTurn:
    """Refuse BIRCH a permission."""
    now = await stage.need(begin_hour)
    path = str(stage.folder / "refused.txt")
    with now.dialogue.host.deciding("reject"):
        return await stage.prompt(now.dialogue, now.birch, Errand("write", path, "nothing"))


# -- modes ----------------------------------------------------------------------------------


async def change_mode(stage: Stage) -> None:
    """Set another mode for ALDER."""
    now = await stage.need(begin_hour)
    (await set_other_mode(now.dialogue, now.alder)).require_result()
    await now.dialogue.catch_up()
    # The answer to any other option has all of them, that for the mode as well.
    for option in objects(now.alder.answer.result.get("configOptions")):
        if option.get("category") != "mode" and option.get("type") == "select":
            await set_to(now.dialogue, now.alder, option, option.get("currentValue"))
            break


async def change_option(stage: Stage) -> None:
    """Set an option of BIRCH, which is not prompted any more, and another one to what it is."""
    now = await stage.need(begin_hour)
    options = objects(now.birch.answer.result.get("configOptions"))
    options = [it for it in options if it.get("category") != "mode"]  # other rules are about modes

    for option in options:
        if others := other_values(option):
            unchanged = [(it, it.get("currentValue")) for it in options if it is not option]
            for changed, value in ((option, others[0]), *unchanged[:1]):
                await set_to(now.dialogue, now.birch, changed, value)
                await now.dialogue.catch_up()
            return


# -- afterwards -----------------------------------------------------------------------------


async def read_beside(stage: Stage) -> CheckedTurn:
    """Have ALDER read a file by its name alone."""
    now = await stage.need(begin_hour)
    stage.new_file(BESIDE, f"{MAPLE}\n", folder=now.alder.cwd)
    return await stage.prompt(now.dialogue, now.alder, Errand("read", BESIDE))


STEPS: tuple[Episode[object], ...] = (
    side_by_side,
    read_beside,
    picture_turn,
    cancel_tool,
    cancel_count,
    refuse_permission,
    change_mode,
    change_option,
)


BESIDE, MAPLE = "beside.txt", "maple-4405"
"""A file that ALDER is to find by its name alone, and the word in it."""


class GoneOn(Struct, frozen=True):
    """The second process, and two turns of ALDER in it."""

    dialogue: Dialogue
    read: CheckedTurn
    last: CheckedTurn


async def go_on(stage: Stage) -> GoneOn:
    """End the process, resume ALDER in another one, have it read a file, and go on.

    Where nothing can be resumed, the session is loaded.
    """
    now = await stage.need(hour)
    await stage.leave_gracefully(now.dialogue)
    dialogue = await stage.meet("the next hour", EQUIPPED, is_restart=True, stays=True)
    is_resumable = advertises(await stage.capabilities(), "resume")
    how = "resume" if is_resumable else "load"
    (await stage.reopen(dialogue, how, now.alder)).require_result()
    if is_resumable:
        await stage.reopen(dialogue, how, now.birch)
    await dialogue.settle()
    read = await stage.prompt(dialogue, now.alder, Errand("read", BESIDE))
    last = await stage.prompt(dialogue, now.alder, FINE)
    await dialogue.settle()
    return GoneOn(dialogue, read, last)


@RULES.case("resume.folder", MUST, RuleSource(PAGE, "Working Directory"), "resume")
async def folder_after_resume(stage: Stage) -> None:
    """In a resumed session, relative paths start at its folder."""
    turn = (await stage.need(go_on)).read
    (await stage.need(read_beside)).repeats(MAPLE)
    if MAPLE not in turn.text:
        raise Violation(
            "the answer does not repeat the file in the session's folder", turn.asked, *turn.updates
        )


class TriedDeletion(Struct, frozen=True):
    """The third session was deleted; `before` and `after` are lists, `another` was made then."""

    answer: Call
    before: dict[str, Json]
    after: dict[str, Json]
    listed: Call
    another: CheckedSession


async def deletion(stage: Stage) -> TriedDeletion:
    """Delete the third session, list its folder, and make another session there."""
    await stage.needs("delete", "list")
    now = await stage.need(hour)
    dialogue = (await stage.need(go_on)).dialogue
    before = entries(await pages(dialogue, cwd=now.third.cwd))
    answer = await dialogue.ask("session/delete", {"sessionId": now.third.id})
    answer.require_result()
    found = await pages(dialogue, cwd=now.third.cwd)
    another = await stage.new_session(dialogue, cwd=now.third.cwd)
    return TriedDeletion(answer, before, entries(found), found[0].answer, another)


@RULES.case(
    "delete.same-folder", EXPECTED, RuleSource("Session Delete", "Semantics"), "delete", "list"
)
async def same_folder(stage: Stage) -> None:
    """Deleting a session does not delete others in its folder."""
    now = await stage.need(hour)
    done = await stage.need(deletion)
    if now.birch.id not in done.before:
        raise NotObservable("the other session was not listed before")
    if now.birch.id not in done.after:
        raise Violation("the other session is gone, too", *done.answer.lines, *done.listed.lines)


@RULES.case("delete.own-id", EXPECTED, RuleSource(PAGE, "Session ID"), "delete", "list")
async def own_id(stage: Stage) -> None:
    """The id of a deleted session is not used again."""
    now = await stage.need(hour)
    done = await stage.need(deletion)
    if done.another.id in (now.alder.id, now.birch.id, now.third.id):
        raise Violation(
            "a new session has the id of the deleted one",
            *done.answer.lines,
            *done.another.answer.lines,
        )


async def reopen(stage: Stage) -> tuple[Loaded, Loaded]:
    """Load ALDER and BIRCH in a third process."""
    await stage.need(load_after_restart)
    now = await stage.need(hour)
    dialogue = (await stage.need(go_on)).dialogue
    with suppress(Signal):
        another = (await stage.judge(deletion)).another  # it takes the third one's place
        await stage.prompt(dialogue, another, Errand("remember", THIRD))
    await stage.leave_gracefully(dialogue)
    dialogue, alder = await load_elsewhere(stage, "the hour after that", now.alder)
    return alder, await load(stage, dialogue, now.birch)


def _prompts_of(loaded: Loaded) -> list[WireLine]:
    return [line for line in loaded.replay if line.update_kind == "user_message_chunk"]


def _some(loaded: Loaded, *lines: WireLine) -> tuple[WireLine, ...]:
    return (*lines, loaded.asked, *_prompts_of(loaded), loaded.answer.line)


async def _has(stage: Stage, what: str, fits: Callable[[WireLine], bool]) -> None:
    """Raise Violation unless some chunk of the user in ALDER's replay fits."""
    loaded, _ = await stage.need(reopen)
    asked = (await stage.need(picture_turn)).asked
    if not any(map(fits, _prompts_of(loaded))):
        raise Violation(f"{what} is not replayed", *_some(loaded, asked))


async def _has_data(stage: Stage, kind: str, data: str) -> None:
    """Raise Violation if a block of this kind in ALDER's replay has other data."""
    loaded, _ = await stage.need(reopen)
    for line in _prompts_of(loaded):
        if _type(line) == kind and line.update["content"].get("data") != data:
            raise Violation(f"the {kind} is replayed with other data", loaded.asked, line)


def _type(line: WireLine) -> object:
    content = line.update.get("content")
    return content.get("type") if isinstance(content, dict) else None


@RULES.case("load.links", MUST, LOADING, "load")
async def links(stage: Stage) -> None:
    """A load replays the links in a prompt."""
    await _has(stage, "the link", lambda line: LINKED in line.words)


@RULES.case("load.images", MUST, LOADING, "load", "image")
async def images(stage: Stage) -> None:
    """A load replays images in a prompt."""
    await _has(stage, "the image", lambda line: _type(line) == "image" or "image/png" in line.words)
    await _has_data(stage, "image", PIXEL)


@RULES.case("load.audio", MUST, LOADING, "load", "audio")
async def audio(stage: Stage) -> None:
    """A load replays audio in a prompt."""
    await _has(stage, "the audio", lambda line: _type(line) == "audio" or "audio/wav" in line.words)
    await _has_data(stage, "audio", SILENT)


@RULES.case("load.embedded", MUST, LOADING, "load", "embedded")
async def files(stage: Stage) -> None:
    """A load replays files in a prompt."""
    await _has(stage, "the file", lambda line: INSIDE in line.words)


@RULES.case("load.cancelled-turn", MUST, LOADING, "load")
async def cancellation(stage: Stage) -> None:
    """A load replays cancelled turns."""
    loaded, _ = await stage.need(reopen)
    cancelled = await stage.need(cancel_count)
    if not loaded.has_prompt(COUNT.words):
        raise Violation("the prompt is not replayed", *_some(loaded, *cancelled.lines))
    live = bare_text(await _live(stage, cancelled), "agent_message_chunk")
    if live and live[:FEW] not in bare_text(loaded.replay, "agent_message_chunk"):
        raise Violation("the agent's messages are not replayed", *_some(loaded, *cancelled.lines))


FEW = 3
"""Letters of a cancelled message: its end may be lost with the request to the model."""


@RULES.case("load.cancelled-text", EXPECTED, LOADING, "load")
async def text_before_cancel(stage: Stage) -> None:
    """A load replays what a turn said before its cancel."""
    loaded, _ = await stage.need(reopen)
    cancelled = await stage.need(cancel_count)
    live = bare_text(await _live(stage, cancelled), "agent_message_chunk")
    again = bare_text(loaded.replay, "agent_message_chunk")
    if not live or live[:FEW] not in again:
        raise NotObservable("the agent said nothing in the turn, or none of it is replayed")
    if live not in again:
        raise Violation(
            "the client received more of the turn than is replayed",
            *_some(loaded, *cancelled.lines),
        )


async def _live(stage: Stage, cancelled: Cancelled) -> Sequence[WireLine]:
    """Return the updates of a cancelled turn."""
    record = (await stage.need(hour)).dialogue.record
    updates = record.updates(cancelled.session.id, since=cancelled.call.asked.number)
    return [line for line in updates if line.number < cancelled.call.line.number]


@RULES.case("load.refused-turn", MUST, LOADING, "load")
async def turn_with_refusal(stage: Stage) -> None:
    """A load replays turns in which a permission was denied."""
    _, loaded = await stage.need(reopen)
    turn = await stage.need(refuse_permission)
    if not loaded.has_prompt(str(turn.asked.params["prompt"][0]["text"])):
        raise Violation("the prompt is not replayed", *_some(loaded, turn.asked))
    if bare_text(turn.updates, "agent_message_chunk") not in bare_text(
        loaded.replay, "agent_message_chunk"
    ):
        raise Violation("the agent's messages are not replayed", *_some(loaded, turn.asked))
    again = tool_calls(loaded.replay)
    for id, fields in tool_calls(turn.updates).items():
        status = again.get(id, {}).get("status")
        # Another rule is about calls that are missing.
        if {status, fields.get("status")} == ENDED:
            why = f"the tool call {id} was {fields['status']}, but is {status} in the replay"
            raise Violation(why, *turn.updates, *_some(loaded))


ENDED = {"completed", "failed"}


@RULES.case("load.own-session", MUST, LOADING, "load")
async def own_session(stage: Stage) -> None:
    """A load replays nothing from other sessions, at the same time or in the same folder."""
    both = await stage.need(reopen)
    await stage.need(side_by_side)
    for loaded, own in zip(both, (ALDER, BIRCH), strict=True):
        for line in loaded.replay:
            if any(word in line.words for word in (ALDER, BIRCH, THIRD) if word != own):
                raise Violation("this is from another session", loaded.asked, line)


@RULES.case("load.after-resume", MUST, LOADING, "load", "resume")
async def after_resume(stage: Stage) -> None:
    """A load replays what followed a resume."""
    turn = (await stage.need(go_on)).last
    loaded, _ = await stage.need(reopen)
    if not loaded.has_prompt(FINE):
        raise Violation("the prompt is not replayed", *_some(loaded, turn.asked))
    last = max(line.number for line in _prompts_of(loaded))
    again = bare_text([it for it in loaded.replay if it.number > last], "agent_message_chunk")
    answer = bare_text(turn.updates, "agent_message_chunk")
    # It may be more or less: a remark on the resume itself is no part of the conversation.
    if answer and (not again or (again not in answer and answer not in again)):
        raise Violation("the answer is not replayed", *_some(loaded, turn.asked))
