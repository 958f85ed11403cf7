"""The entry writer: readers give it a conversation, and it writes journal entries.

A turn is `none` → `open` at a prompt → `none` again at its end. If a transcript does not record the
end of a turn, one is added at the next prompt, or at the end of the file: calls without a result
fail, as nothing runs any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec

from acp_wire.schema import items, members
from acphold.conversation.history.children import child_update, opencode_child
from acphold.conversation.history.entries import (
    CHILD,
    ECHO,
    PARAMS,
    PROMPT,
    REPLY,
    SO_FAR,
    TERMINAL,
    TURN_END,
    UPDATE,
    PastEntry,
)
from acphold.conversation.history.raw_update import ROLES, string, update_kind
from acphold.conversation.history.titles import is_own
from acphold.errors import InvalidParamsError
from acphold.imports.content_blocks import content, plan_entries, text_block
from acphold.imports.sources import Facts
from acphold.imports.values import Object, digest_of, milliseconds, squeeze, text

_encode: Final = msgspec.json.Encoder().encode

TITLE_CHARACTERS: Final = 200
"""Characters kept of a title; some agents use a whole first prompt as one."""

BY_WORDS: Final = "0" * 8
"""Stands for the id of a prompt that is told from where it has none, unlike elsewhere."""

PARENT: Final = "acphold/parentToolCallId"
"""In `_meta` of a subagent's entries: the call that started it."""


class NotStraightError(Exception):
    """A source was begun in the middle, and what follows there does not simply go on."""


class EntryWriter:
    """Writes one conversation; see the module."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.caller = ""
        """The call whose subagent this is about; empty for the conversation itself."""
        self._marks: Object = {}
        self._is_heard = True
        self.missed = facts.missed
        self._entries: list[PastEntry] = []
        self._now = 0
        self._told_at = 0  # the last time told, which may be before `_now`
        self._prompted_at = 0
        self.went_back = False
        """True if something is older than the prompt before it."""
        self._turn_open = False
        self._open_calls: dict[str, None] = {}
        self._last = ""
        self._mode = ""
        self._usage: dict[str, int] = {}
        self._replies: dict[str, dict[str, int]] = {}
        self._replies_before: dict[str, dict[str, int]] = {}
        self._first_reply = self._turn = ""
        self._turn_meta: Object = {}
        self._session_usage: dict[str, int] = {}
        self._session_cost: float | None = None
        self._has_list_title = False
        self._compactions = 0
        self._told: dict[str, int] = {}
        self.offset = 0
        """The byte at which the line that is being told begins, if its reader says so."""
        self.offsets: dict[str, int] = {}
        """The offsets of prompts, by their identities."""

    def take(self) -> list[PastEntry]:
        """Return the entries since the last call."""
        if not self._entries:
            return []  # as after most records
        entries, self._entries = self._entries, []
        return entries

    # -- time ------------------------------------------------------------------------------------

    def clock(self, told: object) -> None:
        """Set the time to one as programs write it, see `milliseconds`; the clock never goes
        back."""
        if self.caller or (at := milliseconds(told)) is None:
            return
        facts, self._told_at = self.facts, at
        if facts.created_at is None or at < facts.created_at:
            facts.created_at = at
        if facts.updated_at is None or at > facts.updated_at:
            facts.updated_at = at
        if at > self._now:
            self._now = at
        self.went_back |= at < self._prompted_at

    # -- subagents -------------------------------------------------------------------------

    @contextmanager
    def within(
        self, caller: str, meta: Object | None = None, *, speaks: bool = False
    ) -> Iterator[None]:
        """Write, within the block, the conversation of the subagent of a call; not with "".

        Its calls are marked with that call, and with `meta`. Its times, its prompt, its plan and
        its end are left out, and so, unless it `speaks`, are its messages: its report is the result
        of the call.
        """
        before = self.caller, self._marks, self._is_heard
        if caller:
            self.caller, self._marks = caller, {PARENT: caller} | (meta or {})
            self._is_heard = speaks
        try:
            yield
        finally:
            self.caller, self._marks, self._is_heard = before

    # -- turns ---------------------------------------------------------------------------

    @property
    def in_turn(self) -> bool:
        """True while a turn is open."""
        return self._turn_open

    def prompt(self, blocks: Sequence[Object], *, turn: str = "") -> None:
        """Write a person's prompt; content blocks of the protocol.

        `turn` is the program's own id of it (a uuid, the id of a row), the same in every copy of
        the conversation, or BY_WORDS. Without one, its words with their time identify it.
        """
        if not blocks or self.caller:
            return
        self.end_turn()
        words = "".join([text(block, "text") for block in blocks])
        self._write_prompt(_encode(blocks), words, turn)

    def end_turn(self, reason: str = "") -> None:
        """End the turn; without a reason, with the one suggested by the last entry."""
        if not self._turn_open or self.caller:
            return
        is_unanswered = bool(self._open_calls) or self._last not in ("say", "done")
        self.fail_open_calls()
        end: Object = {"stopReason": reason or "end_turn"}
        if is_unanswered and not reason:
            end = {"interrupted": None}  # or only left: a transcript does not tell
        if self._usage:
            usage = dict(self._usage)
            usage["totalTokens"] = sum(usage.values())
            end["usage"] = usage
            if self._first_reply or not self._turn.startswith(BY_WORDS):
                self._turn_meta[REPLY] = digest_of(self._first_reply or self._turn, 7)
        session_total: Object = {"usage": self._session_usage} if self._session_usage else {}
        if self._session_cost is not None:
            session_total["cost"] = {"amount": self._session_cost, "currency": "USD"}
        if meta := self._turn_meta | ({SO_FAR: session_total} if session_total else {}):
            end["_meta"] = meta
        self._append(TURN_END, end)
        self._close_turn()

    def fail_turn(self, *why: str) -> None:
        """End the turn with an error, as far as a program says why."""
        if self._turn_open and not self.caller:
            self.fail_open_calls()
            message = ": ".join(filter(None, why)) or "The request failed"
            self._append(TURN_END, {"error": {"code": -32603, "message": message}})
            self._close_turn()

    def _close_turn(self) -> None:
        self._turn_open = False
        self._usage, self._turn_meta = {}, {}
        self._replies, self._replies_before = {}, self._replies
        self._first_reply = ""

    def fail_open_calls(self) -> None:
        """Fail the calls that nobody will finish."""
        for call_id in list(self._open_calls):
            self.update(call_id, {"status": "failed"})

    def tokens(self, reply: str = "", /, **counts: int | None) -> None:
        """Add tokens of this turn: inputTokens, outputTokens, cachedReadTokens …

        Of a `reply` that is told again as it grows, in this turn or in the next one, the largest
        counts are added once. Its id is the same in every copy, so that sums over the journal count
        a copied turn once.
        """
        if reply not in self._replies_before:
            self._first_reply = self._first_reply or reply
        known = self._replies_before.get(reply, {})
        known = self._replies.setdefault(reply, known) if reply else {}
        for name, count in counts.items():
            if count and count > (before := known.get(name, 0)):
                self._usage[name] = self._usage.get(name, 0) + count - before
                known[name] = count

    def spend(self, cost: object, **counts: int | None) -> None:
        """Add tokens, and US dollars, of the whole session: written with the next end of a turn.

        For agents that only keep the sum; called when everything has been told. A cost that is no
        number is missing.
        """
        for name, count in counts.items():
            if count and count > 0:
                self._session_usage[name] = self._session_usage.get(name, 0) + count
        if isinstance(cost, int | float) and cost > 0:
            self._session_cost = (self._session_cost or 0) + cost

    def model(self, name: str) -> None:
        """Set the model that answers in this turn."""
        if name:
            self._turn_meta["acphold/model"] = name

    def finish_answer(self) -> None:
        """Note that the agent finished its answer in this turn."""
        if not self.caller:
            self._last = "done"

    # -- messages ------------------------------------------------------------------------

    def say(self, words: str, message_id: str = "") -> None:
        """Write text of the agent."""
        if words:
            self._message("agent_message_chunk", text_block(words), message_id)
            if self._is_heard:
                self._last = "say"

    def think(self, words: str, message_id: str = "") -> None:
        """Write a thought of the agent."""
        if words:
            self._message("agent_thought_chunk", text_block(words), message_id)

    def show(self, block: Object, message_id: str = "") -> None:
        """Write other content in a message of the agent, such as a picture."""
        if not self.caller:
            self._message("agent_message_chunk", block, message_id)
            self._last = "say"

    def _message(self, kind: str, block: Object, message_id: str) -> None:
        if not self._is_heard:
            return
        update: Object = {"sessionUpdate": kind, "content": block}
        if message_id:
            update["messageId"] = message_id
        if self._marks:
            update["_meta"] = self._marks
        self._append(UPDATE, update)
        self._last = kind

    # -- tools ---------------------------------------------------------------------------

    def call(self, call_id: str, fields: Object) -> None:
        """Write a tool call with the protocol's fields; `pending` if they have no status."""
        if not call_id:
            self.missed.add("tool calls without an id", fields)
            return
        fields = {"status": "pending"} | fields
        if self._marks:
            meta = fields.get("_meta")
            fields["_meta"] = (meta if isinstance(meta, dict) else {}) | self._marks
        self._append(UPDATE, {"sessionUpdate": "tool_call", "toolCallId": call_id} | fields)
        self._track_call(call_id, fields)

    def update(self, call_id: str, fields: Object) -> None:
        """Write an update of a tool call."""
        self._append(UPDATE, {"sessionUpdate": "tool_call_update", "toolCallId": call_id} | fields)
        self._track_call(call_id, fields)

    def _track_call(self, call_id: str, fields: Object) -> None:
        status = fields.get("status")
        if status in ("completed", "failed"):
            self._open_calls.pop(call_id, None)
        elif status is not None:
            self._open_calls[call_id] = None
        self._last = "tool"

    def compaction(self, call_id: str, summary: str, fields: Object | None = None) -> None:
        """Write a compaction of the conversation: as a completed call, which is numbered if it has
        no id."""
        if self.caller:
            return
        self._compactions += 1
        call_id = call_id or f"compacted-{self._compactions}"
        shown: Object = {"title": "Compact conversation", "kind": "think", "status": "completed"}
        if summary:
            shown["content"] = [content(summary)]
        self.call(call_id, shown | (fields or {}))
        self.finish_answer()

    # -- metadata ------------------------------------------------------------------------------

    def plan(self, steps: Iterable[Object]) -> None:
        """Write the current plan, of steps as programs write them."""
        if not self.caller:
            self._append(UPDATE, {"sessionUpdate": "plan", "entries": plan_entries(steps)})
            self._last = "tool"

    def title(self, title: str) -> None:
        """Set the conversation's title; the last one counts."""
        if not self.caller and is_own(title := on_title(title), ()):
            self.facts.title = title or self.facts.title

    def mode(self, mode_id: str) -> None:
        """Write the mode of the session."""
        if mode_id and mode_id != self._mode and not self.caller:
            self._mode = mode_id
            self._append(UPDATE, {"sessionUpdate": "current_mode_update", "currentModeId": mode_id})

    def usage(self, used: int, size: int) -> None:
        """Write the tokens used of the model's context, and its size."""
        update = b'{"sessionUpdate":"usage_update","used":%d,"size":%d}' % (used, size)
        self._entries.append(PastEntry(UPDATE, self._now, update))

    # -- already in the protocol's terms ---------------------------------------------------------

    def relay_update(self, raw: bytes, kind: str, update: Object) -> None:
        """Write an update, or params with one; `update` is its content, if that matters here."""
        if not self.relay(kind, raw):
            return
        update_type = update.get("sessionUpdate")
        if update_type in ("tool_call", "tool_call_update"):
            self._track_call(str(update.get("toolCallId")), update)
        elif update_type == "agent_message_chunk":
            self._last = "say"
        elif update_type == "session_info_update" and isinstance(title := update.get("title"), str):
            self.title(title)

    def relay(self, kind: str, raw: bytes, seq: int = 0, *, turn: str = "") -> bool:
        """Write an entry unchanged, in any state; False, and counted, if it is not valid for its
        kind. `turn` is as in `prompt`."""
        if not is_sound(kind, raw):
            self.missed.add(f"invalid entries of kind {kind[:40]!r}", raw)
            return False
        raw = raw.replace(b"\n", b" ").replace(b"\r", b" ")
        if kind == PROMPT:
            self._write_prompt(raw, prompt_text(raw), turn, seq)
            return True
        self._entries.append(PastEntry(kind, self._now, raw, seq))
        if kind == TURN_END:
            self._open_calls.clear()
            self._close_turn()
        return True

    def set_list_title(self, title: str) -> None:
        """Set the session's title in lists, which no update contains."""
        self.facts.title = title or None
        self._has_list_title = True

    # -- the end ----------------------------------------------------------------------------------

    def title_update(self) -> None:
        """Write the title, once it is final."""
        if self.facts.title and not self._has_list_title:
            title = self.facts.title
            self._append(UPDATE, {"sessionUpdate": "session_info_update", "title": title})

    def _write_prompt(self, raw: bytes, said: str, turn: str, seq: int = 0) -> None:
        self._prompted_at = self._told_at
        # With its words: some programs number their prompts, in every conversation from 0.
        words = squeeze(said)
        its = turn if turn == BY_WORDS else digest_of(turn or f"{self._told_at} {words}", 4)
        digest = f"{its}{digest_of(words, 4)}"
        self._told[digest] = count = self._told.get(digest, 0) + 1
        if count > 1:
            digest = f"{digest}-{count}"
        self.offsets[digest] = self.offset
        self._entries.append(PastEntry(PROMPT, self._now, raw, seq, digest))
        self._turn_open, self._last, self._turn = True, "prompt", digest

    def _append(self, kind: str, value: object) -> None:
        self._entries.append(PastEntry(kind, self._now, _encode(value)))


def prompt_text(raw: bytes) -> str:
    """Return the text of a prompt, an array of content blocks."""
    return "".join(string(members(block).get("text")) or "" for block in items(raw))


def on_title(words: str) -> str:
    """Return a text as a title: on one line, and not too long."""
    return " ".join(words.split())[:TITLE_CHARACTERS]


# -- entries from foreign files -----------------------------------------------------------

# An agent's words are kept as they come, if they are an object: the agent answers for them. So an
# imported file is only checked for what makes an entry one of its kind; an export of ours, with
# anything an agent said in it, comes back whole.


def is_sound(kind: str, raw: bytes) -> bool:
    """Return True if an entry of this kind can have this content; an unknown kind can have any
    object."""
    try:
        if kind == PROMPT:
            return all(map(_is_block, items(raw)))
        parts = members(raw)
        if kind == CHILD:
            child = opencode_child(parts.get("params", b"")) or child_update(raw).child
            if not child:
                return False
            raw = child_update(raw).update
            parts = members(raw)
        if kind == PARAMS:
            raw = parts.get("update", b"")
            parts = members(raw)
    except InvalidParamsError:
        return False
    if kind not in (UPDATE, ECHO, TERMINAL, PARAMS, CHILD):
        return True
    update_type = update_kind(raw)
    return bool(update_type) and (update_type not in ROLES or _is_block(parts.get("content", b"")))


def _is_block(raw: bytes) -> bool:
    """Return True if this is a content block, known or not."""
    try:
        return string(members(raw).get("type")) is not None
    except InvalidParamsError:
        return False
