"""Ended conversations, for the cases about list, load, resume and delete.

Two sessions are made in their own process: one with three turns, one with two turns in another
folder; and, if the agent has a list, some in folders easily confused with that other folder. Then
that process is left, and another one is asked for them.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from acphold.conformance.dialogue import AnswerLine, Dialogue
from acphold.conformance.errands import GREET, PLAN, Errand
from acphold.conformance.record import Json, WireLine
from acphold.conformance.rules.prompt_turns import plain_turn
from acphold.conformance.stage import CheckedSession, CheckedTurn, Stage, advertises, chunk_text
from acphold.conformance.verdicts import NotObservable, Violation
from acphold.schema.session_requests import LoadSessionResponse

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
    told: tuple[WireLine, ...]
    """All updates of `session`."""


async def past(stage: Stage) -> Past:
    """Make two sessions in a process, and leave it properly."""
    await stage.given(plain_turn)
    dialogue = await stage.meet("conversation")
    session = await stage.new_session(dialogue)
    remember = Errand("remember", CODE_WORD).words
    prompts = (f"  {remember}\n\n\t{ODD_TEXT} \n", PLAN, reading(stage))
    turns = [await stage.prompt(dialogue, session, prompt) for prompt in prompts]
    other = await stage.new_session(dialogue, cwd=stage.new_folder(ELSEWHERE))
    for prompt in (Errand("remember", OTHER_WORD), reading(stage)):
        await stage.prompt(dialogue, other, prompt)
    neighbours = await _neighbours(stage, dialogue, other)
    await dialogue.caught_up()
    told = tuple(dialogue.record.updates(session.id))
    await stage.part(dialogue)
    return Past(session, tuple(turns), other, neighbours, told)


async def _neighbours(
    stage: Stage, dialogue: Dialogue, other: CheckedSession
) -> tuple[CheckedSession, ...]:
    """Make sessions in folders whose paths look like that of `other`, if they can be listed."""
    can = await stage.capabilities()
    if not advertises(can, "list"):
        return ()
    found = []
    for name in NEIGHBOURS:
        folder = stage.other_folder(name, than=other.cwd)
        if folder is None:
            continue
        more = {"additionalDirectories": [other.cwd]} if advertises(can, "directories") else {}
        neighbour = await stage.new_session(dialogue, cwd=folder, **more)
        await stage.prompt(dialogue, neighbour, GREET)
        found.append(neighbour)
    return tuple(found)


def reading(stage: Stage) -> Errand:
    """Return the errand to read a file: a tool call."""
    return Errand("read", str(stage.new_file("note.txt", "heron\n")))


async def restarted(stage: Stage) -> Dialogue:
    """Return a process started after the sessions of `past` were over."""
    await stage.given(past)
    return await stage.meet("restart", is_restart=True)


class Loaded(Struct, frozen=True):
    """A load: its answer, the replay before it, and the lines after it."""

    asked: WireLine
    answer: AnswerLine
    replay: tuple[WireLine, ...]
    behind: tuple[WireLine, ...]

    @property
    def lines(self) -> tuple[WireLine, WireLine]:
        return self.answer.lines

    @property
    def all_lines(self) -> tuple[WireLine, ...]:
        """The request, the replay and the answer."""
        return (self.asked, *self.replay, self.answer.line)

    def has_prompt(self, words: str) -> bool:
        """Return True if a prompt is replayed, with whatever white space."""
        return "".join(words.split()) in said(self.replay, "user_message_chunk")


async def load(stage: Stage, dialogue: Dialogue, session: CheckedSession) -> Loaded:
    """Load a session; raises Violation if it is refused."""
    params = stage.params(sessionId=session.id, cwd=session.cwd)
    answer = await dialogue.ask("session/load", params, seconds=3 * dialogue.timeout)
    await dialogue.settled()
    answer.fitting(LoadSessionResponse)
    record = dialogue.record
    since = list(record.updates(session.id, since=answer.asked.number))
    return Loaded(
        answer.asked,
        answer,
        tuple(line for line in since if line.number < answer.line.number),
        tuple(line for line in since if line.number > answer.line.number),
    )


async def loaded_after_restart(stage: Stage) -> Loaded:
    """Load the first session of `past` in another process."""
    dialogue = await stage.given(restarted)
    return await load(stage, dialogue, (await stage.given(past)).session)


class ToldConversation(Struct, frozen=True):
    """A conversation, and its replay by a load."""

    turns: tuple[CheckedTurn, ...]
    live: tuple[WireLine, ...]
    loaded: Loaded

    @property
    def prompts(self) -> tuple[str, ...]:
        return tuple(str(turn.asked.params["prompt"][0]["text"]) for turn in self.turns)


async def told_again(stage: Stage) -> ToldConversation:
    """Return the conversation of `past` and its load; if none survives a restart, another one's."""
    before = await stage.given(past)
    try:
        loaded = await stage.judge(loaded_after_restart)
    except Violation:
        return await stage.given(_told_at_once)
    return ToldConversation(before.turns, before.told, loaded)


async def _told_at_once(stage: Stage) -> ToldConversation:
    dialogue = await stage.main()
    session = await stage.new_session(dialogue)
    errands = (Errand("remember", CODE_WORD), PLAN)
    turns = [await stage.prompt(dialogue, session, errand) for errand in errands]
    await dialogue.caught_up()
    live = tuple(dialogue.record.updates(session.id))
    return ToldConversation(tuple(turns), live, await load(stage, dialogue, session))


# -- replayed content -------------------------------------------------------------------------


def said(lines: Sequence[WireLine], kind: str) -> str:
    """Return the text of all chunks of one kind, without white space (see another rule)."""
    return "".join(said_exactly(lines, kind).split())


def said_exactly(lines: Sequence[WireLine], kind: str) -> str:
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


def something(live: str, what: str) -> str:
    """Return `live`; raises NotObservable if it is empty."""
    if not live:
        raise NotObservable(f"the agent {what} nothing in the conversation")
    return live
