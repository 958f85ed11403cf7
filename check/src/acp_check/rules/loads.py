"""The rules for `session/load` and `session/resume`: restored conversations."""

from __future__ import annotations

from contextlib import suppress
from itertools import takewhile

from msgspec import Struct

from acp_check import bounds
from acp_check.checks import EXPECTED, MUST, Rules
from acp_check.dialogue import Call, Dialogue
from acp_check.errands import COUNT, GREET, RECALL, Errand
from acp_check.record import Json, WireLine
from acp_check.rules.beginnings import RELATIVE
from acp_check.rules.listings import (
    CODE_WORD,
    OTHER_WORD,
    USER,
    Loaded,
    ReplayedConversation,
    bare_text,
    conversation_with_replay,
    load,
    load_after_restart,
    load_elsewhere,
    newest,
    reading,
    sequence,
    text_of,
    tool_calls,
)
from acp_check.rules.prompt_turns import begin_long_turn, is_of_turn, plain_turn
from acp_check.stage import CheckedSession, CheckedTurn, Stage, chunk_text
from acp_check.verdicts import NotObservable, Reach, RuleSource, Violation
from acp_wire.schema.session_requests import ResumeSessionResponse

RULES = Rules()

PAGE = "Session Setup"
SUPPORT = RuleSource(PAGE, "Loading Sessions")
LOADING = RuleSource(PAGE, "Loading a Session")
RESUMING = RuleSource(PAGE, "Resuming a Session")
ROOTS = RuleSource(PAGE, "Additional Workspace Roots")

# -- load -----------------------------------------------------------------------------------


@RULES.case("load.after-restart", MUST, SUPPORT, "load")
async def after_restart(stage: Stage) -> None:
    """A session can be loaded after the agent's restart."""
    await stage.judge(load_after_restart)


@RULES.case("load.user-messages", MUST, LOADING, "load")
async def user_messages(stage: Stage) -> None:
    """A load replays the user's messages."""
    conversation = await stage.need(conversation_with_replay)
    replayed, place = bare_text(conversation.loaded.replay, "user_message_chunk"), 0
    for prompt in conversation.prompts:
        text = "".join(prompt.split())
        place = replayed.find(text, place)
        if place < 0:
            raise Violation(
                f"{prompt!r} is missing or out of order", *conversation.loaded.all_lines
            )
        if replayed.count(text) > 1:
            raise Violation(f"{prompt!r} is replayed twice", *conversation.loaded.all_lines)
        place += len(text)
    if OTHER_WORD in replayed:
        raise Violation("a prompt of another session is replayed", *conversation.loaded.all_lines)


@RULES.case("load.agent-messages", MUST, LOADING, "load")
async def agent_messages(stage: Stage) -> None:
    """A load replays the agent's messages."""
    await _replays_all(stage, "agent_message_chunk", "said")


async def _replays_all(stage: Stage, kind: str, what: str) -> None:
    """Raise Violation unless a load replays all chunks of a kind."""
    conversation = await stage.need(conversation_with_replay)
    live, replayed = (
        bare_text(conversation.live, kind),
        bare_text(conversation.loaded.replay, kind),
    )
    if not live:
        raise NotObservable(f"the agent {what} nothing in the conversation")
    if live != replayed:
        raise Violation(_differs(what, live, replayed), *_apart(conversation, kind))


@RULES.case("load.exact-text", MUST, LOADING, "load")
async def exact_text(stage: Stage) -> None:
    """A load replays texts exactly, with their white space."""
    conversation = await stage.need(conversation_with_replay)
    replay = conversation.loaded.replay
    replayed, place = text_of(replay, "user_message_chunk"), 0
    for prompt in conversation.prompts:
        if not conversation.loaded.has_prompt(prompt):
            continue  # another rule is about missing ones
        found = replayed.find(prompt, place)
        if found < 0:
            raise Violation(f"{prompt!r} has other white space", *conversation.loaded.all_lines)
        place = found + len(prompt)
    for kind in ("agent_message_chunk", "agent_thought_chunk"):
        live, again = text_of(conversation.live, kind), text_of(replay, kind)
        if live != again and bare_text(conversation.live, kind) == bare_text(replay, kind):
            raise Violation(_differs("said or thought", live, again), *_apart(conversation, kind))


@RULES.case("load.thoughts", EXPECTED, LOADING, "load")
async def thoughts(stage: Stage) -> None:
    """A load replays the agent's thoughts."""
    await _replays_all(stage, "agent_thought_chunk", "thought")


@RULES.case("load.tool-calls", MUST, LOADING, "load")
async def all_tool_calls(stage: Stage) -> None:
    """A load replays the tool calls and their final status."""
    conversation = await stage.need(conversation_with_replay)
    live, replayed = _both_tool_calls(conversation)
    if more := replayed.keys() - live.keys():
        raise Violation(
            f"the replay has a tool call {min(more)} that was never made",
            *_of_call(conversation, min(more)),
        )
    for id, fields in live.items():
        if id not in replayed:
            raise Violation(f"the tool call {id} is not replayed", *_of_call(conversation, id))
        status, again = fields.get("status"), replayed[id].get("status")
        if status in ENDED and again != status:
            why = f"the tool call {id} was {status}, but is {again} in the replay"
            raise Violation(why, *_of_call(conversation, id))


ENDED = ("completed", "failed")


def _both_tool_calls(conversation: ReplayedConversation) -> tuple[dict[str, Json], dict[str, Json]]:
    """Return the tool calls as seen live, and as replayed."""
    live = tool_calls(conversation.live)
    if not live:
        raise NotObservable("the agent made no tool call in the conversation")
    return live, tool_calls(conversation.loaded.replay)


@RULES.case("load.tool-details", EXPECTED, LOADING, "load")
async def tool_details(stage: Stage) -> None:
    """A load replays the titles and the output of tool calls."""
    conversation = await stage.need(conversation_with_replay)
    live, replayed = _both_tool_calls(conversation)
    both = live.keys() & replayed.keys()
    if not both:
        raise NotObservable("no tool call is replayed")
    for id in sorted(both):
        for name in ("title", "kind", "content", "locations"):
            if name in live[id] and live[id][name] != replayed[id].get(name):
                why = f"the {name} of the tool call {id} differs"
                raise Violation(why, *_of_call(conversation, id))


@RULES.case("load.plan", EXPECTED, LOADING, "load")
async def plan(stage: Stage) -> None:
    """A load replays the newest plan."""
    conversation = await stage.need(conversation_with_replay)
    live = newest(conversation.live, "plan")
    if live is None:
        raise NotObservable("the agent made no plan in the conversation")
    again = newest(conversation.loaded.replay, "plan")
    if again is None or again.get("entries") != live.get("entries"):
        raise Violation("the plan is not replayed, or differs", *conversation.loaded.all_lines)


@RULES.case("load.order", MUST, LOADING, "load")
async def order(stage: Stage) -> None:
    """A load replays messages and tool calls in their original order."""
    conversation = await stage.need(conversation_with_replay)
    replay = conversation.loaded.replay
    if not any(is_of_turn(line) for line in replay):
        raise NotObservable("nothing is replayed")
    # An agent may echo the prompt in its turn, and say nothing in one.
    live: list[str] = []
    for turn in conversation.turns:
        live += [USER] if live[-1:] != [USER] else []
        live += [part for part in sequence(turn.updates) if part != USER]
    again = sequence(replay)
    # Another rule is about missing or changed text; the rest must still be in order.
    if not all(map(conversation.loaded.has_prompt, conversation.prompts)):
        live, again = ([it for it in one if it != USER] for one in (live, again))
    kept = {it for it in live if it in again}
    live, again = ([it for it in one if it in kept] for one in (live, again))
    if live != again:
        raise Violation("the order differs", *conversation.loaded.all_lines)


@RULES.case("load.replay-first", MUST, LOADING, "load")
async def replay_first(stage: Stage) -> None:
    """The whole conversation is replayed before `session/load` is answered."""
    conversation = await stage.need(conversation_with_replay)
    late = [line for line in conversation.loaded.after_answer if is_of_turn(line)]
    if late:
        raise Violation(
            "a part of the conversation arrived after the answer",
            *conversation.loaded.answer.lines,
            late[0],
        )
    if not any(is_of_turn(line) for line in conversation.loaded.replay):
        raise NotObservable("nothing is replayed")


@RULES.case("load.goes-on", MUST, LOADING, "load")
async def goes_on(stage: Stage) -> None:
    """A loaded session accepts prompts."""
    await stage.need(load_after_restart)
    session = await stage.session_to_reopen("before a load", GREET)
    dialogue, _ = await load_elsewhere(stage, "prompts after a load", session)
    for prompt in (GREET, reading(stage)):
        await stage.prompt(dialogue, session, prompt)


@RULES.case("load.remembers", EXPECTED, LOADING, "load")
async def remembers(stage: Stage) -> None:
    """After a restart and a load the agent knows the conversation."""
    await stage.need(_remembers_code_word)
    await stage.need(load_after_restart)
    session = await stage.session_to_reopen("remembers", Errand("remember", CODE_WORD), GREET)
    dialogue, _ = await load_elsewhere(stage, "recalls after a load", session)
    turn = await stage.prompt(dialogue, session, RECALL)
    if CODE_WORD not in turn.text:
        raise Violation("the agent no longer knows the code word", *turn.answer.lines)


async def _remembers_code_word(stage: Stage) -> None:
    """Raise NotObservable if the agent cannot repeat a code word at all, like an echo."""
    dialogue, session = await stage.session_after(plain_turn)
    await stage.prompt(dialogue, session, Errand("remember", CODE_WORD))
    turn = await stage.prompt(dialogue, session, RECALL)
    if CODE_WORD not in turn.text:
        raise NotObservable("the agent cannot repeat a code word that it was given")


@RULES.case("session.own-context", MUST, RuleSource(PAGE, ""))
async def own_context(stage: Stage) -> None:
    """A session does not know what other sessions said."""
    await stage.need(_remembers_code_word)
    dialogue = await stage.main()
    turn = await stage.prompt(dialogue, await stage.new_session(dialogue), RECALL)
    if CODE_WORD in turn.text:
        raise Violation("the agent repeats a word from another session", turn.asked, *turn.updates)


class Grown(Struct, frozen=True):
    """A session that was loaded, prompted once more in `turn`, and loaded again.

    Each load is in a process of its own, and no other has the session open.
    """

    session: CheckedSession
    first: Loaded
    turn: CheckedTurn
    second: Loaded


async def grow(stage: Stage) -> Grown:
    """Load a session, prompt it, and load it again."""
    await stage.need(load_after_restart)
    # A new session: others are open elsewhere, and may get this one's updates.
    session = await stage.session_to_reopen("begins a session", GREET)
    dialogue, first = await load_elsewhere(stage, "prompt after a load", session)
    turn = await stage.prompt(dialogue, session, GROWING)
    await stage.leave_gracefully(dialogue)
    dialogue, second = await load_elsewhere(stage, "load of the longer session", session)
    await stage.leave_gracefully(dialogue)
    return Grown(session, first, turn, second)


@RULES.case("load.grows", MUST, LOADING, "load")
async def grows(stage: Stage) -> None:
    """The next load also replays what followed a load."""
    now = await stage.judge(grow)
    for kind, who, new in (
        ("user_message_chunk", "the user", "".join(GROWING.split())),
        ("agent_message_chunk", "the agent", bare_text(now.turn.updates, "agent_message_chunk")),
    ):
        before, after = (
            bare_text(now.first.replay, kind),
            bare_text(now.second.replay, kind),
        )
        more = after[len(before) :]
        # It may be more: a remark on the load itself is no part of the conversation.
        if not after.startswith(before) or more not in new or bool(more) != bool(new):
            why = _differs("said", before + new, after, who=who)
            raise Violation(why, *now.second.all_lines)


@RULES.case("load.again", EXPECTED, LOADING, "load")
async def again(stage: Stage) -> None:
    """A second load replays the same conversation."""
    now = await stage.need(grow)
    dialogue, other = await load_elsewhere(stage, "another load", now.session)
    _same(now.second, other)
    third: Loaded | None = None
    with suppress(Violation):  # a session that is open need not be opened again
        third = await load(stage, dialogue, now.session)
    if third is not None:
        _same(other, third)


def _same(first: Loaded, second: Loaded) -> None:
    for kind in ("user_message_chunk", "agent_message_chunk"):
        if bare_text(first.replay, kind) != bare_text(second.replay, kind):
            raise Violation("the second load replays something else", *second.all_lines)


LONG_WORDS = " ".join(f"word-{number}" for number in range(1200))
"""Some ten thousand letters."""


class LongTexts(Struct, frozen=True):
    """A long prompt, a turn that repeats a long file, and their load."""

    prompt: str
    read: CheckedTurn
    loaded: Loaded


async def long_texts(stage: Stage) -> LongTexts:
    """Have a session with long texts, leave its process, and load it."""
    await stage.need(load_after_restart)
    dialogue = await stage.meet("long texts")
    session = await stage.new_session(dialogue)
    prompt = f"{LONG_WORDS}\n{GREET.words}"
    await stage.prompt(dialogue, session, prompt)
    file = stage.new_file("long.txt", f"{LONG_WORDS}\n")
    read = await stage.prompt(dialogue, session, Errand("read", str(file)))
    await stage.leave_gracefully(dialogue)
    _, loaded = await load_elsewhere(stage, "a load of long texts", session)
    return LongTexts(prompt, read, loaded)


@RULES.case("load.long-texts", MUST, LOADING, "load")
async def whole_texts(stage: Stage) -> None:
    """A load replays texts of ten thousand letters whole."""
    found = await stage.need(long_texts)
    # Other rules are about texts that are missing altogether.
    beginning = f"{LONG_WORDS[:100]}"
    if found.loaded.has_prompt(beginning) and not found.loaded.has_prompt(found.prompt):
        raise Violation("the prompt is cut", found.loaded.asked, found.loaded.answer.line)
    said = bare_text(found.read.updates, "agent_message_chunk")
    again = bare_text(found.loaded.replay, "agent_message_chunk")
    if said[:100] in again and said not in again:
        raise Violation("the answer is cut", found.loaded.asked, found.loaded.answer.line)


@RULES.case("load.relative-folder", EXPECTED, RuleSource(PAGE, "Working Directory"), "load")
async def relative_folder(stage: Stage) -> None:
    """A load with a relative working directory is refused."""
    await stage.need(load_after_restart)
    session = await stage.session_to_reopen("before a relative load", GREET)
    dialogue = await stage.meet("a relative load", is_restart=True)
    answer = await stage.reopen(dialogue, "load", session, cwd=RELATIVE)
    answer.require_error("the agent accepted a relative path")


@RULES.case("load.folder", MUST, RuleSource(PAGE, "Working Directory"), "load")
async def folder(stage: Stage) -> None:
    """In a loaded session, relative paths start at its folder."""
    await stage.need(load_after_restart)
    file = stage.new_file("beside.txt", f"{SECRET}\n", "loaded from here")
    dialogue = await stage.meet("before a load")
    session = await stage.new_session(dialogue, cwd=str(file.parent))
    before = await stage.prompt(dialogue, session, Errand("read", file.name))
    await stage.leave_gracefully(dialogue)
    before.repeats(SECRET)
    dialogue, _ = await load_elsewhere(stage, "a load elsewhere", session)
    after = await stage.prompt(dialogue, session, Errand("read", file.name))
    if SECRET not in after.text:
        raise Violation("the agent no longer reads the file", after.asked, *after.updates)


@RULES.case("load.directories", MUST, ROOTS, "load", "directories")
async def load_directories(stage: Stage) -> None:
    """A load can name additional folders if the agent advertises them."""
    await stage.need(load_after_restart)
    await _reopen_with_directories(stage, "load")


async def _reopen_with_directories(stage: Stage, how: str) -> None:
    session = await stage.session_to_reopen(f"before a {how} with folders", GREET)
    dialogue = await stage.meet(f"a {how} with folders", is_restart=True)
    more = [stage.new_folder("more")]
    answer = await stage.reopen(dialogue, how, session, additionalDirectories=more)
    answer.require_result()


SECRET = "walnut-3307"
GROWING = f"{GREET.words} It is a fine day."


@RULES.case("load.unknown-id", EXPECTED, LOADING, "load")
async def unknown_id(stage: Stage) -> None:
    """Unknown sessions cannot be loaded."""
    await _refuses_unknown(stage, "session/load")


async def _refuses_unknown(stage: Stage, method: str) -> None:
    dialogue = await stage.main()
    answer = await dialogue.ask(method, stage.params(sessionId="check-no-such-session"))
    answer.require_error("the request for an unknown session was answered with a result")


def _apart(conversation: ReplayedConversation, kind: str) -> tuple[WireLine, ...]:
    """Return the chunks of a kind from the first that differs: live ones, and their replay."""
    sides = conversation.live, conversation.loaded.replay
    texts = (text_of(lines, kind) for lines in sides)
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(*texts, strict=False)))
    live, replayed = ([line for line in lines if line.update_kind == kind] for lines in sides)
    for chunks in (live, replayed):
        length = same
        while chunks and len(chunk_text(chunks[0])) <= length:  # it lies in what is the same
            length -= len(chunk_text(chunks.pop(0)))
    return _both_sides(conversation, live, replayed)


def _of_call(conversation: ReplayedConversation, id: str) -> tuple[WireLine, ...]:
    """Return what was reported of a tool call, live and in the replay."""
    live, replayed = (
        [line for line in lines if line.update.get("toolCallId") == id]
        for lines in (conversation.live, conversation.loaded.replay)
    )
    return _both_sides(conversation, live, replayed)


def _both_sides(
    conversation: ReplayedConversation, live: list[WireLine], replayed: list[WireLine]
) -> tuple[WireLine, ...]:
    loaded = conversation.loaded
    return (
        *live[: bounds.DIFFERENCE_LINES],
        loaded.asked,
        *replayed[: bounds.DIFFERENCE_LINES],
        loaded.answer.line,
    )


def _differs(what: str, live: str, replayed: str, *, who: str = "the agent") -> str:
    """Return the first difference between a replay and the live text."""
    if not replayed:
        return f"nothing that {who} {what} is replayed"
    pairs = zip(live, replayed, strict=False)
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return f"{who} {what} {_quote(live[same:])}, but {_quote(replayed[same:])} is replayed"


def _quote(text: str) -> str:
    return f"{text[:60]!r}{' …' if len(text) > 60 else ''}" if text else "nothing more"


# -- killed in the middle of a turn ---------------------------------------------------------


class _Killed(Loaded, frozen=True):
    """`seen` was sent in the interrupted turn, `earlier` in the one before."""

    seen: str
    earlier: tuple[str, ...]


async def kill_and_load(stage: Stage) -> _Killed:
    """Load a session whose process was killed in the middle of its second turn."""
    await stage.need(load_after_restart)
    dialogue = await stage.meet("killed")
    session = await stage.new_session(dialogue)
    first = await stage.prompt(dialogue, session, GREET)
    call = await begin_long_turn(stage, dialogue, session)
    await dialogue.kill()
    seen = bare_text(
        list(dialogue.record.updates(session.id, since=call.asked.number)), "agent_message_chunk"
    )
    _, loaded = await load_elsewhere(stage, "after the kill", session)
    earlier = tuple(filter(None, ("".join(chunk_text(line).split()) for line in first.updates)))
    return _Killed(loaded.answer, loaded.replay, loaded.after_answer, seen, earlier)


@RULES.case("load.after-kill", EXPECTED, SUPPORT, "load", only=Reach.PROGRAM)
async def after_kill(stage: Stage) -> None:
    """Finished turns survive `kill -9`."""
    killed = await stage.judge(kill_and_load)
    if not killed.earlier:
        raise NotObservable("the agent said nothing in the earlier turn")
    # Only some of it: another rule is about text that every load leaves out.
    replayed = bare_text(killed.replay, "agent_message_chunk")
    if not any(text in replayed for text in killed.earlier):
        raise Violation("the turn before the kill is not replayed", *killed.all_lines)


@RULES.case("load.after-kill-in-turn", EXPECTED, SUPPORT, "load", only=Reach.PROGRAM)
async def after_kill_in_turn(stage: Stage) -> None:
    """A load replays the seen part of a turn that `kill -9` interrupted."""
    killed = await stage.need(kill_and_load)
    if not killed.seen:
        raise NotObservable("the agent was killed before it said anything")
    if killed.seen not in bare_text(killed.replay, "agent_message_chunk"):
        raise Violation("the client received more of the turn than is replayed", *killed.all_lines)
    if not killed.has_prompt(COUNT.words):
        raise Violation("the prompt of the turn is not replayed", *killed.all_lines)


# -- resume ---------------------------------------------------------------------------------


class ResumedSession(Struct, frozen=True):
    """A session resumed in another process: the answer, and the updates without a prompt.

    `bare` is the answer to a request without servers, and differs from `answer` if it was refused.
    """

    dialogue: Dialogue
    session: CheckedSession
    bare: Call
    answer: Call
    updates: tuple[WireLine, ...]


async def resume(stage: Stage, *errands: Errand) -> ResumedSession:
    """Make a session with these turns, leave its process, and resume it in another one."""
    await stage.need(plain_turn)
    session = await stage.session_to_reopen("before a resume", *errands)
    dialogue = await stage.meet("a resume", is_restart=True)
    params = {"sessionId": session.id, "cwd": session.cwd}
    bare = answer = await dialogue.ask("session/resume", params, seconds=3 * dialogue.timeout)
    if bare.is_refused:
        answer = await stage.reopen(dialogue, "resume", session)
    await dialogue.settle()
    answer.fitting(ResumeSessionResponse)
    updates = tuple(dialogue.record.updates(session.id, since=answer.asked.number))
    return ResumedSession(dialogue, session, bare, answer, updates)


async def plain_resume(stage: Stage) -> ResumedSession:
    """Resume a session that read a file."""
    return await resume(stage, GREET, reading(stage))


@RULES.case("resume.after-restart", MUST, RuleSource(PAGE, "Resuming Sessions"), "resume")
async def resume_after_restart(stage: Stage) -> None:
    """A session can be resumed after a restart, with or without MCP servers."""
    (await stage.judge(plain_resume)).bare.require_result()


@RULES.case("resume.no-history", MUST, RESUMING, "resume")
async def no_history(stage: Stage) -> None:
    """A resume replays nothing, neither before its answer nor after it."""
    found = await stage.need(plain_resume)
    for line in found.updates:
        if is_of_turn(line):
            raise Violation("a part of the conversation is replayed", *found.answer.lines, line)


@RULES.case("resume.remembers", EXPECTED, RESUMING, "resume")
async def resume_remembers(stage: Stage) -> None:
    """After a restart and a resume the agent knows the conversation."""
    await stage.need(_remembers_code_word)
    await stage.need(plain_resume)
    found = await resume(stage, Errand("remember", OTHER_WORD), reading(stage))
    turn = await stage.prompt(found.dialogue, found.session, RECALL)
    if OTHER_WORD not in turn.text:
        raise Violation("the agent forgot the code word", *found.answer.lines, *turn.answer.lines)


@RULES.case("resume.goes-on", MUST, RESUMING, "resume")
async def resume_goes_on(stage: Stage) -> None:
    """A resumed session accepts prompts."""
    await stage.need(plain_resume)
    found = await resume(stage, GREET)
    for prompt in (GREET, reading(stage)):
        await stage.prompt(found.dialogue, found.session, prompt)


@RULES.case("resume.directories", MUST, ROOTS, "resume", "directories")
async def resume_directories(stage: Stage) -> None:
    """A resume with additional folders is accepted if the agent advertises them."""
    await stage.need(plain_resume)
    await _reopen_with_directories(stage, "resume")


@RULES.case("resume.unknown-id", EXPECTED, RESUMING, "resume")
async def resume_unknown(stage: Stage) -> None:
    """Unknown sessions cannot be resumed."""
    await _refuses_unknown(stage, "session/resume")
