"""Scenes in words: who speaks, how something stands, how it ended. For every face.

Whose word something is must be seen, so our words come first in each of these, and what an agent
has chosen stands behind them, at the end: it cannot go on as if it were us.
"""

from __future__ import annotations

from typing import Final, assert_never

from acphold.history.speakers import is_the_persons
from acphold.history.timeline import ContextCompaction, Message, SubAgent, TurnEnd, TurnOutcome
from acphold.presentation.visible_text import on_one_line
from acphold.reports.transcript import Decision, ModeChanged, Noticed, TurnOpen, reason
from acphold.schema import PermissionOption

STATUS_MARKS: Final = {"pending": "○", "in_progress": "◐", "completed": "●", "failed": "✗"}
"""How a tool call or a step of a plan stands, by the statuses that there are."""

ENDINGS: Final[dict[TurnOutcome, str]] = {
    "completed": "ended",
    "limited": "stopped at a limit",
    "refused": "refused: for the agent, this prompt and the answer were never said",
    "cancelled": "cancelled",
    "failed": "failed",
    "interrupted": "interrupted: a crash or a kill cut it off",
}
"""How a turn ended."""

OFFERED: Final = {
    "allow_once": "allow once",
    "allow_always": "allow always",
    "reject_once": "reject once",
    "reject_always": "reject always",
}
"""What an answer does that an agent offers, by its kind."""

DECIDED: Final = {
    "allow_once": "allowed once",
    "allow_always": "allowed for always",
    "reject_once": "rejected",
    "reject_always": "rejected for always",
    "accept": "accepted",
    "decline": "declined",
    "cancel": "cancelled",
    "cancelled": "cancelled",
    "refused": "refused",
    "rejected": "rejected, since nobody was there",
    "expired": "expired",
    "withdrawn": "withdrawn",
    "interrupted": "interrupted",
    "elsewhere": "settled without an answer from here",
}
"""What came of a question; see `history.decisions.Came`."""

TOLD: Final = "as the agent tells it"
"""Behind who said something, where only the agent says that they did."""

Beside = Noticed | ModeChanged | Decision | ContextCompaction | TurnEnd | TurnOpen
"""What stands beside a conversation."""


def is_told(message: Message) -> bool:
    """Whether only the agent says that the person said this: in its replay of a session that was
    held without us, or because it makes it up."""
    return message.role == "user" and not is_the_persons(message.message_id)


def speaker(message: Message) -> str:
    """Who says it."""
    if is_told(message):
        return f"You, {TOLD}"
    return {"user": "You", "agent": "Agent", "thought": "Thought"}[message.role]


def step_mark(status: str) -> str:
    """The mark of a tool call or a step; one whose status nobody knows has not begun."""
    return STATUS_MARKS.get(status, STATUS_MARKS["pending"])


def noticed(scene: Noticed) -> str:
    """What a notice says."""
    return ". ".join(filter(None, (scene.title, scene.description)))


def offered(option: PermissionOption) -> str:
    """An answer that an agent offers: what it does, in words of ours, and what the agent calls
    it, which may be anything."""
    what = OFFERED.get(option.kind, f"of the unknown kind {on_one_line(option.kind)}")
    return f"{what}: {on_one_line(option.name) or '(no name)'}"


def decided(scene: Decision) -> str:
    """What came of a question, with where a person answered it; in words of ours."""
    how = "not answered yet" if scene.came is None else DECIDED.get(scene.came.how, "answered")
    return f"{how} (in {scene.client})" if scene.client else how


COMPACTIONS: Final = {
    "in_progress": "is being compacted",
    "completed": "compacted",
    "failed": "not compacted",
    "cancelled": "not compacted: cancelled",
}
"""What became of what the model is told, by the statuses of a compaction that there are."""


def compacted(scene: ContextCompaction) -> str:
    """What the agent has done to its context."""
    words = COMPACTIONS.get(scene.status, "a compaction")
    return f"{words}: {scene.error}" if scene.error else words


AT_WORK: Final = {
    "running": "at work",
    "created": "at work",
    "paused": "paused",
    "requires_action": "waits for an answer",
}
"""What a sub-agent is doing, by the states that there are but `idle`."""

DONE: Final = {
    None: ("idle", "completed"),
    "end_turn": ("done", "completed"),
    "cancelled": ("cancelled", "failed"),
    "error": ("failed", "failed"),
    "refusal": ("refused", "failed"),
}
"""Why it does nothing more, with the status of a tool call that has gone so."""


def sub_agent_stands(scene: SubAgent) -> tuple[str, str]:
    """How a sub-agent stands in words, and as the status of a tool call."""
    if scene.state == "idle":
        return DONE.get(scene.stop_reason, ("stopped", "failed"))
    words = AT_WORK.get(scene.state or "", "")
    return words, "in_progress" if words else "pending"


def speaker_in_child(message: Message) -> str:
    """Who says something in a sub-agent's session: what comes in is what it was told to do."""
    return {"user": "Task", "agent": "Sub-agent", "thought": "Thought"}[message.role]


def ended(scene: TurnEnd | TurnOpen) -> str:
    """How a turn stands or has ended, and why."""
    if isinstance(scene, TurnOpen):
        return scene.words
    why = reason(scene)
    return f"{ENDINGS[scene.outcome]}: {why}" if why else ENDINGS[scene.outcome]


def aside(scene: Beside) -> tuple[str, str, str] | None:
    """What stands beside a conversation in a document: its kind, of which there are a handful, who
    speaks or what it is, and the words. None for the plain end of a turn."""
    match scene:
        case Noticed(is_ours=True):
            return "ours", "acphold", noticed(scene)
        case Noticed():
            return "notice", "notice of the agent", noticed(scene)
        case ModeChanged():
            return "mode", "mode", scene.mode
        case Decision():
            said = f" → {scene.came.said}" if scene.came is not None and scene.came.said else ""
            return "asked", "asked", f"{decided(scene)}: {scene.question}{said}"
        case ContextCompaction():
            return "compaction", "context", compacted(scene)
        case TurnEnd(outcome="completed") if not reason(scene):
            return None
        case TurnEnd():
            return f"end {scene.outcome}", "turn", ended(scene)
        case TurnOpen():
            return "end open", "turn", ended(scene)
        case _:
            assert_never(scene)
