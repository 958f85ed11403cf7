"""Updates that acphold itself adds to a conversation: each carries a `_meta` key of ours.

Source for the shapes: ACP v1 schema, `ToolCallUpdate`, `CompactionUpdate`, `SubagentUpdate`,
`SessionInfoUpdate`, `Notice`; for the keys: spec v1, extensibility.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from typing import Final
from uuid import uuid4

import msgspec
from msgspec import Raw

from acp_wire.schema import encode, splice
from acp_wire.schema.splice import json_value
from acphold.conversation.history.children import OpenChild
from acphold.conversation.history.entries import PROMPT, UPDATE, Segment, iso
from acphold.conversation.history.fold import Fold
from acphold.conversation.history.raw_update import (
    MESSAGES,
    METHOD,
    NOTICE,
    is_the_persons,
    items,
    members,
    storable,
    string,
    update_kind,
)
from acphold.conversation.history.replay import CLIENT_MARK
from acphold.conversation.history.timeline import Message, ToolCall
from acphold.conversation.history.titles import is_own, shorten
from acphold.errors import AcpError
from acphold.journal.journal import Journal
from acphold.journal.rows import TITLE, SessionRow
from acphold.live.hub import bounds

AGENT = "acphold/agent"
"""The `_meta` key of a session of another agent: the name of that agent."""

FAILED = "acphold/failed"
CHOICE = "acphold/choice"

CONTEXT = r"(?s)\s*<([a-z]+[_-][a-z_-]+)>(.*?</\1>\s*|.*$)"
"""Elements that agents put before a person's words. Their names have two words; those of HTML,
which people write about, do not."""

NOTICE_START = b'{"sessionUpdate":"notice","_meta":{"acphold/notice"'
"""The start of every notice of ours: tells it from an agent's without decoding."""


def fail_tool(tool: ToolCall, why: str) -> bytes:
    """Return an update that closes a tool call whose end will never be reported; the agent's
    `_meta` stays."""
    known = tool.fields.get("_meta", b"{}")
    meta = splice(known if known.startswith(b"{") else b"{}", {FAILED: encode(why)})
    return encode(
        {
            "sessionUpdate": "tool_call_update",
            "toolCallId": tool.tool_call_id,
            "status": "failed",
            "_meta": Raw(meta),
        }
    )


def end_compaction(compaction_id: str, why: str, *, cancelled: bool) -> bytes:
    """Return an update that closes a compaction of the agent's context whose end will never be
    reported."""
    ended = {"status": "cancelled"} if cancelled else {"status": "failed", "error": why}
    return encode(
        {
            "sessionUpdate": "compaction_update",
            "compactionId": compaction_id,
            **ended,
            "_meta": {FAILED: why},
        }
    )


def end_child(child: OpenChild, session_id: str, why: str, *, cancelled: bool) -> bytes:
    """Return the report of a sub-agent's end that the agent will never send, in the agent's form.

    An update of its parent; for opencode, the params of a notification.
    """
    report: dict[str, object]
    if child.spelling == "spawned":
        state = "cancelled" if cancelled else "failed"
        kind = "subagent_state_update"
        report = {"sessionUpdate": kind, "subagentSessionId": child.session_id, "state": state}
    elif child.spelling == "opencode":
        report = {
            "rootSessionId": session_id,
            "childSessionId": child.session_id,
            "parentSessionId": child.parent or session_id,
            "depth": child.depth,
            "type": "status",
            "status": "interrupted",
        }
    else:
        stopped: dict[str, object] = {"stopReason": "cancelled"}
        if not cancelled:
            stopped = {"stopReason": "error", "error": {"code": AcpError.code, "message": why}}
        report = {
            "sessionUpdate": "subagent_update",
            "sessionId": child.session_id,
            "state": {"state": "idle", **stopped},
        }
    return encode({**report, "_meta": {FAILED: why}})


def title_update(title: str, made_from: str = "first prompt") -> bytes:
    """Return a `session_info_update` with a title that was made, by default by rule."""
    return msgspec.json.encode(
        {
            "sessionUpdate": "session_info_update",
            "title": title,
            "_meta": {TITLE: made_from},
        }
    )


def time_update(updated_at: int) -> bytes:
    """Return a `session_info_update` with the time of the last activity, in ms since the epoch."""
    return msgspec.json.encode(
        {"sessionUpdate": "session_info_update", "updatedAt": iso(updated_at)}
    )


def notice(title: str, description: str, severity: str = "info") -> bytes:
    """Return a notice to the person; never part of a replay (RFD session notices)."""
    body = {"severity": severity, "title": title, "description": description}
    meta = {"kind": "context"}
    return NOTICE_START + b":%b},%b" % (msgspec.json.encode(meta), msgspec.json.encode(body)[1:])


LEFT_OUT = "An update is missing here"
LEFT_OUT_HOW = "It could not be delivered: {}. `max_message` in the settings file sets the limit."


def missing_update(problem: str) -> bytes:
    """Return the notice in place of an update that was over a limit."""
    return notice(LEFT_OUT, LEFT_OUT_HOW.format(problem), "warning")


def notice_as_message(raw: bytes) -> bytes:
    """Return a notice of ours as a message that names its speaker, for clients without notices.

    If it only begins like one of ours it is an agent's own: b"", such a client may not be told it.
    """
    parts = members(raw)
    ours = members(parts.get("_meta", b"")).get(NOTICE, b"")
    if not ours.startswith(b"{") or string(parts.get("title")) is None:
        return b""
    words = ". ".join(filter(None, (string(parts.get(it)) for it in ("title", "description"))))
    speaker = string(members(ours).get("from")) or "acphold"  # or an agent of the library
    # A paragraph of its own: it comes in the middle of what the agent says.
    text = f"\n\n[{speaker}] {words}\n\n"
    return msgspec.json.encode(
        {
            "sessionUpdate": "agent_message_chunk",
            "content": {"type": "text", "text": text},
            "_meta": {NOTICE: True},
        }
    )


async def first_words(segments: AsyncIterator[Segment]) -> str | None:
    """Return the user's first words; None if there are none. Nothing is read behind them.

    Some agents replay their own context before those, as if the user had said it.
    """
    folding = Fold()
    async for segment in segments:
        for entry in segment.entries():
            is_said = entry.kind == UPDATE and update_kind(entry.raw) == "user_message_chunk"
            if entry.kind == PROMPT or is_said:
                folding.add(entry)
            elif len(folding) and (words := _first_words(folding)):
                return words
    return _first_words(folding)


async def may_rename(journal: Journal, row: SessionRow, agents_id: str | None, title: str) -> bool:
    """Return True if an agent's title may stand in the place of a session's: it held the
    conversation from its first prompt, under this id, and says more than one of its prompts."""
    if row.title is not None and (row.renamed or row.origins or agents_id != row.session_id):
        return False
    page = await journal.read_back(row.session_id, None, TITLE_PROMPTS, kinds=(PROMPT,))
    said = (map(members, items(entry.raw)) for entry in page.entries)
    prompts = ["".join(string(block.get("text")) or "" for block in blocks) for blocks in said]
    return is_own(title, [*prompts, await first_words(first_page(journal, row.session_id)) or ""])


async def first_page(journal: Journal, session_id: str) -> AsyncIterator[Segment]:
    """Yield the first segments of a session."""
    for segment in await journal.read(session_id, 0, bounds.FIRST_PAGE_BYTES):
        yield segment


def _first_words(said: Fold) -> str | None:
    for item in said.timeline():
        if isinstance(item, Message) and item.role == "user":
            sent = is_the_persons(item.message_id)
            text = item.text if sent else without_context(item.text)
            if text.strip():
                return text
    return None


def without_context(text: str) -> str:
    """Return a person's words, or a title, without what an agent has put before them.

    That is in elements: `<environment_context>…</environment_context>`. A title may have been cut
    in the middle of one.
    """
    while (found := re.match(CONTEXT, text)) is not None:
        text = text[found.end() :]
    return text


def first_line_of(text: str) -> str | None:
    """Return the first line that is not empty, cut to `TITLE_LENGTH`; None if there is none."""
    return next((shorten(line) for line in text.splitlines() if line.split()), None)


TITLE_PROMPTS: Final = 100
"""The newest prompts that an agent's title is compared with."""

GIVEN_LENGTH = 200
"""Most characters of a given title: one line wherever it is shown."""


def as_title(text: str) -> str | None:
    """Return `text` as a title, on one line and cut to GIVEN_LENGTH; None without a letter or
    digit."""
    line = storable(text)
    return shorten(line, GIVEN_LENGTH) if any(map(str.isalnum, line)) else None


def user_message(method: str, prompt: bytes, client: bytes = b"") -> Sequence[bytes]:
    """Return the updates that show it as said by the user, in this client (`Client.info`)."""
    message_id = f"{MESSAGES}{uuid4().hex}"
    meta: dict[str, object] = {METHOD: method}
    if client:
        meta[CLIENT_MARK] = Raw(client)
    return [
        encode(
            {
                "sessionUpdate": "user_message_chunk",
                "messageId": message_id,
                "content": Raw(block),
                "_meta": meta,
            }
        )
        for block in items(prompt)
    ]


def repeats(update: bytes, prompt: bytes) -> bool:
    """Return True if an update is one block of this prompt, or all of its text, sent back."""
    content = _bare(members(update).get("content", b"null"))
    blocks = [_bare(block) for block in items(prompt)]
    texts = [block["text"] for block in blocks if isinstance(block.get("text"), str)]
    joined = "".join(map(str, texts))
    return content in blocks or (content.get("type") == "text" and content.get("text") == joined)


def _bare(block: bytes) -> dict[str, object]:
    """Return a content block without members that programs add or leave out freely."""
    if (fields := json_value(block, dict[str, object])) is None:
        return {"raw": block}
    return {name: value for name, value in fields.items() if value is not None and name != "_meta"}
