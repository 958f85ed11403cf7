"""The words for scenes, content blocks and tool calls, as plain values, drawn by each face.

A reader must see whose words they are, so ours come first in each of these, and the agent's come
last: they cannot pretend to be ours.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, assert_never

import msgspec

from acp_wire import schema
from acp_wire.errors import InvalidParamsError
from acphold.conversation.history.raw_update import array, is_the_persons
from acphold.conversation.history.timeline import (
    ContextCompaction,
    Message,
    SubAgent,
    ToolCall,
    TurnEnd,
    TurnOutcome,
)
from acphold.conversation.presentation.visible_text import local, on_one_line, size, visible
from acphold.conversation.reports.transcript import (
    DecidedQuestion,
    ModeChanged,
    Noticed,
    TurnOpen,
    reason,
)

STATUS_MARKS: Final = {"pending": "○", "in_progress": "◐", "completed": "●", "failed": "✗"}
"""Marks of a tool call or a step of a plan, by status."""

STATUSES: Final = {
    "pending": "waiting",
    "in_progress": "running",
    "completed": "done",
    "failed": "failed",
}
"""Words for the status of a tool call, where its mark is not seen."""

STEPS: Final = {"pending": "to do", "in_progress": "now", "completed": "done"}
"""Words for the status of a step of a plan, where its mark is not seen."""

KINDS: Final = {
    "read": "Read",
    "edit": "Edit",
    "delete": "Delete",
    "move": "Move",
    "search": "Search",
    "execute": "Run",
    "think": "Think",
    "fetch": "Fetch",
    "switch_mode": "Mode",
}
"""The word before the title of a tool call, by its kind."""

SHORT_ENDINGS: Final[dict[str, str]] = {
    "limited": "stopped at a limit",
    "refused": "refused",
    "cancelled": "cancelled",
    "failed": "failed",
    "interrupted": "interrupted",
    "unanswered": "no answer",
}
"""Words for the outcome of a turn in a few words, unless it was completed."""

ENDINGS: Final[dict[TurnOutcome, str]] = {
    "completed": "ended",
    "limited": SHORT_ENDINGS["limited"],
    "refused": "refused: the agent keeps neither this prompt nor its answer",
    "cancelled": SHORT_ENDINGS["cancelled"],
    "failed": SHORT_ENDINGS["failed"],
    "interrupted": "interrupted by a crash or a kill",
    "unanswered": SHORT_ENDINGS["unanswered"],
}
"""Words for the outcome of a turn."""

DECIDED: Final = {
    "allow_once": "allowed once",
    "allow_always": "always allowed",
    "reject_once": "rejected",
    "reject_always": "always rejected",
    "accept": "accepted",
    "decline": "declined",
    "cancel": "cancelled",
    "cancelled": "not answered",
    "refused": "refused",
    "rejected": "rejected: nobody could answer",
    "expired": "expired",
    "withdrawn": "withdrawn",
    "interrupted": "interrupted",
    "elsewhere": "settled without an answer from here",
}
"""Words for the outcome of a question; see `history.decisions.Came`."""

PAGE: Final = "acphold-page"
"""The name that the page of `acphold serve` gives itself."""

SPEAKERS: Final = {"user": "You", "agent": "Agent", "thought": "Thought"}

TOLD: Final = "as reported by the agent"
"""Added to a speaker known only from the agent."""

AsideScene = Noticed | ModeChanged | DecidedQuestion | ContextCompaction | TurnEnd | TurnOpen
"""Scenes beside the conversation."""


def is_told(message: Message) -> bool:
    """Return True if only the agent claims that the person said this.

    It does so in its replay of a session held without us, or because it makes it up.
    """
    return message.role == "user" and not is_the_persons(message.message_id)


def speaker(message: Message) -> str:
    """Return the speaker of a message."""
    if is_told(message):
        return f"You, {TOLD}"
    return on_one_line(message.user) or SPEAKERS[message.role]


def step_mark(status: str) -> str:
    """Return the mark of a tool call; an unknown status counts as pending."""
    return STATUS_MARKS.get(status, STATUS_MARKS["pending"])


def plan_mark(status: str) -> str:
    """Return the mark of a step of a plan, which is ticked off."""
    return "✓" if status == "completed" else step_mark(status)


def notice_text(scene: Noticed) -> str:
    """Return the text of a notice."""
    return ". ".join(filter(None, (scene.title, scene.description)))


def decision_text(scene: DecidedQuestion) -> str:
    """Return a question's outcome, and the program a person answered it in; in our words."""
    how = "not answered yet" if scene.came is None else DECIDED.get(scene.came.how, "answered")
    if scene.client == PAGE:
        return f"{how} on the page"
    return f"{how} ({'by' if scene.is_by_rule else 'in'} {scene.client})" if scene.client else how


def question_text(scene: DecidedQuestion) -> str:
    """Return a question's title; one of a turn that was stopped is marked."""
    is_stopped = scene.came is not None and scene.came.how == "cancelled"
    return f"{scene.question} (stopped)" if is_stopped else scene.question


COMPACTIONS: Final = {
    "in_progress": "is being compacted",
    "completed": "compacted",
    "failed": "not compacted",
    "cancelled": "not compacted: cancelled",
}
"""Words for the result of a compaction, by status."""


def compaction_text(scene: ContextCompaction) -> str:
    """Return the words for a compaction of the agent's context."""
    words = COMPACTIONS.get(scene.status, "a compaction")
    return f"{words}: {scene.error}" if scene.error else words


AT_WORK: Final = {
    "running": "at work",
    "created": "at work",
    "paused": "paused",
    "requires_action": "waits for an answer",
}
"""Words for a sub-agent's activity, by state, except `idle`."""

DONE: Final = {
    None: ("idle", "completed"),
    "end_turn": ("done", "completed"),
    "cancelled": ("cancelled", "failed"),
    "error": ("failed", "failed"),
    "refusal": ("refused", "failed"),
}
"""Words for the end of a sub-agent's work, with the matching status of a tool call."""


def sub_agent_stands(scene: SubAgent) -> tuple[str, str]:
    """Return a sub-agent's state in words, and as the status of a tool call."""
    if scene.status == "idle":
        return DONE.get(scene.stop_reason, ("stopped", "failed"))
    words = AT_WORK.get(scene.status or "", "")
    return words, "in_progress" if words else "pending"


def speaker_in_child(message: Message) -> str:
    """Return the speaker in a sub-agent's session: user messages there are its task."""
    return {"user": "Task", "agent": "Sub-agent", "thought": "Thought"}[message.role]


def ending_text(scene: TurnEnd | TurnOpen) -> str:
    """Return the state or the outcome of a turn, with the reason."""
    if isinstance(scene, TurnOpen):
        return scene.words
    words, why = ENDINGS[scene.outcome], reason(scene)
    if scene.resets_ms is not None:
        words = f"{words}, which resets at {local(scene.resets_ms)}"
    return f"{words}: {why}" if why else words


SAME: Final = {
    "allow": {"accept", "allow", "approve", "it", "ok", "proceed", "run", "the", "this", "yes"},
    "reject": {"cancel", "decline", "deny", "it", "no", "reject", "the", "this"},
}
"""Words of an agent's name for an answer that say no more than that it allows, or rejects."""


def says_more(kind: str, name: str) -> bool:
    """Return True if an agent's name for an answer says more than its effect, which is its kind."""
    effect, _, how_long = kind.partition("_")
    same = SAME.get(effect, set()) | {how_long}
    return not set(name.lower().replace(",", " ").split()) <= same


def said_more(scene: DecidedQuestion) -> str:
    """Return what others said about an answer, if that is more than our words for it; else ""."""
    came = scene.came
    return came.said if came is not None and says_more(came.how, came.said) else ""


def aside(scene: AsideScene) -> tuple[str, str, str] | None:
    """Return a scene beside a conversation for documents: its kind, its label, and the words.

    There are a handful of kinds. None for the plain end of a turn.
    """
    match scene:
        case Noticed(is_ours=True):
            return "ours", "acphold", notice_text(scene)
        case Noticed():
            return "notice", "notice of the agent", notice_text(scene)
        case ModeChanged():
            return "mode", "mode", scene.mode
        case DecidedQuestion():
            said = f" → {said_more(scene)}" if said_more(scene) else ""
            return "asked", "asked", f"{decision_text(scene)}: {question_text(scene)}{said}"
        case ContextCompaction():
            return "compaction", "context", compaction_text(scene)
        case TurnEnd(outcome="completed") if not reason(scene):
            return None
        case TurnEnd():
            return f"end {scene.outcome}", "turn", ending_text(scene)
        case TurnOpen():
            return "end open", "turn", ending_text(scene)
        case _:
            assert_never(scene)


def blocks_of(content: Sequence[bytes]) -> Sequence[schema.ContentBlock]:
    """Return raw content blocks decoded; none if they cannot be read."""
    try:
        return schema.decode_blocks(array(content)).value
    except InvalidParamsError:
        return ()


def describe_block(block: schema.ContentBlock) -> str:
    """Return a block in words: its text, or its kind and size."""
    match block:
        case schema.TextContent(text=text):
            return text
        case (
            schema.ImageContent(mime_type=kind, data=data)
            | schema.AudioContent(mime_type=kind, data=data)
        ):
            return f"[{kind}, {size(len(data) * 3 // 4)}]"
        case schema.ResourceLink(uri=uri):
            return f"[{uri}]"
        case schema.EmbeddedResource(resource=resource):
            inside = (
                resource.blob
                if isinstance(resource, schema.BlobResourceContents)
                else resource.text
            )
            return f"[{resource.uri}, {size(len(inside))}]"
        case schema.UnknownContent(kind=kind):
            return f"[{kind}]"
        case _:
            assert_never(block)


FENCE: Final = re.compile(r"\s*(`{3,}|~{3,})[\w+#.-]{0,20}[ \t]*\n")
"""The line that opens a fence."""


def without_fence(text: str) -> str:
    """Return a tool's output without the fence that agents' adapters put around it."""
    if (opening := FENCE.match(text)) is None:
        return text
    whole, fence = text.rstrip(), opening[1]
    inside = whole[opening.end() : -len(fence)].removesuffix("\n")
    if not whole.endswith(fence) or len(whole) < opening.end() + len(fence) or fence in inside:
        return text
    return inside


def resource_text(block: schema.ContentBlock) -> str | None:
    """Return the text of a resource embedded in a message; None for all other blocks."""
    if not isinstance(block, schema.EmbeddedResource):
        return None
    inside = block.resource
    return None if isinstance(inside, schema.BlobResourceContents) else inside.text


def pretty_json(raw: bytes) -> str:
    """Return JSON for people: over several lines, or if it is one string, that text."""
    text = raw.decode(errors="replace")
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return text
    if isinstance(value, str):
        return value
    return msgspec.json.format(text, indent=2)


def headline(call: ToolCall) -> str:
    """Return a tool call's title and status in one line of visible text."""
    title = " ".join((call.title or call.tool_call_id).split())
    return visible(
        f"{step_mark(call.status)} {title} — {call.kind}, {call.status.replace('_', ' ')}"
    )
