"""Journal entries as the lines that a client reads, as far as it can show them.

The bytes of an update are never encoded again: they are set between two fixed pieces, so whatever
an agent wrote arrives unchanged.

A client that asks for positions gets, in the `_meta` of the params, the number of the last entry
that it has been sent, and can resume after that later. A prompt of several blocks is one entry and
several lines: only the last of them has the position.

A client that does not show sub-agents sees each as a tool call, which has the sub-agent's id. The
call begins when the sub-agent is announced, or first says something. Its title is the sub-agent's,
its input the task, its content the sub-agent's words and the titles of its calls; of a long text
the end. It ends when the sub-agent does.

Each update of the call repeats the whole text. So one is sent when the text has grown by a third,
when the sub-agent ends, and at the end of a turn: in all only a few times the text's size. The
final text is the same live and in a replay.

Terminals in tool calls:

    terminal                               what the client is told
    -------------------------------------  ---------------------------------------------------------
    made at this client (`terminal/…`)     the terminal while it is connected; later its text
    made at another one, or here           its text, once it is journalled (`hub.services`)
    only shown by the agent, and the       the terminal, and what it printed, under the client's
    client offers to show such             own name for that
    only shown by the agent, and the       nothing while it runs; its text when it, or the call, has
    client does not                        ended

A compacted call has everything that its terminal printed. It is sent as it is sent live: first the
`tool_call`, at which Zed makes the terminal, then an update with the output, which Zed takes from
updates alone. For the agent's `_meta` see `history.display_terminals`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set as AbstractSet

import msgspec
from msgspec import Struct, field

from acp_wire.newest import Newest
from acp_wire.schema import UPDATE, splice
from acphold.conversation.history import children
from acphold.conversation.history.display_terminals import (
    CUT,
    INFO,
    PRINTED,
    TEXT_BYTES,
    DisplayTerminals,
    from_next_line,
    may_tell,
    newest,
    take_apart,
    texts,
)
from acphold.conversation.history.entries import (
    AUTHOR,
    CHILD,
    PROMPT,
    SENT,
    TURN_END,
    Segment,
    id_of_sent,
)
from acphold.conversation.history.raw_update import (
    CHILD as CHILD_KIND,
    OPENCODE_CHILD,
    PROMPT_BEGUN,
    TOOL_KINDS,
    content_text,
    encode_object,
    encode_text,
    members,
    string,
    text_block,
    tool_id,
    update_kind,
)
from acphold.conversation.history.replay import NOBODY, Replayed, replay
from acphold.conversation.history.timeline import FINAL_STATUSES, without_terminals
from acphold.live.agents.capabilities import ClientOffer
from acphold.live.hub import bounds
from acphold.live.hub.annotations import NOTICE_START, notice_as_message
from acphold.live.hub.choices import without_booleans

FAILURES = ("cancelled", "error", "refusal")
"""Reasons to stop that are failures of a call."""


POSITION = "acphold/seq"
"""The `_meta` key of a position."""

PARENT = "acphold/parent"
"""The `_meta` key of the session above a sub-agent, beside the position: positions count there."""

EMPTY_UPDATE = b'{"sessionUpdate":"session_info_update"}'
"""An update that changes nothing: each of its members may be missing (spec v1, session list)."""

NO_TERMINALS: Mapping[str, object] = {}

SPOKEN = b'{"sessionUpdate":"agent_'
"""The start of nearly all of an agent's messages and thoughts: they are never changed for a
client."""


class _Child(Struct):
    id: str
    title: str
    status: str
    _text: str = ""
    _is_cut: bool = False
    _part: str = ""
    _told: int = 0
    has_news: bool = False

    def say(self, part: str, text: str) -> None:
        """Append this text, after an empty line if it is another part."""
        if not text:
            return
        if self._text and part != self._part:
            text = "\n\n" + text
        self._part = part
        whole = self._text + text
        self._text = newest(whole, TEXT_BYTES) if len(whole) > TEXT_BYTES // 6 else whole
        self._is_cut |= len(self._text) < len(whole)
        self._told -= len(whole) - len(self._text)
        self.has_news = True

    @property
    def has_grown(self) -> bool:
        """True if there is enough new text to send it again."""
        new = len(self._text) - max(0, self._told)
        return new >= bounds.LEAST_GROWTH and 3 * new >= len(self._text)

    def update(self, kind: str = "tool_call_update", /, **fields: str | bytes) -> bytes:
        """Return an update of its call, with the text if there is news."""
        parts = {"sessionUpdate": encode_text(kind), "toolCallId": encode_text(self.id)}
        for name, value in fields.items():
            parts[name] = value if isinstance(value, bytes) else encode_text(value)
        if self.has_news:
            text = CUT + from_next_line(self._text) if self._is_cut else self._text
            parts["content"] = b'[{"type":"content","content":%b}]' % text_block(text)
            self.has_news, self._told = False, len(self._text)
        return encode_object(parts)


class ShownChildren:
    """Sub-agents as tool calls, for a client that does not show sub-agents."""

    def __init__(self) -> None:
        self._children: dict[str, _Child] = {}

    def show(self, child_id: str, update: bytes) -> list[bytes]:
        """Return the words of a sub-agent, or with "" of the session itself, as updates of
        calls."""
        kind = update_kind(update)
        parts = members(update)
        if (change := children.child_change(kind, parts)) is not None:
            return self._announce(change)
        if not child_id:
            return []
        told: list[bytes] = []
        child = self._children.get(child_id)
        if kind == "agent_message_chunk":
            part, text = f"m{string(parts.get('messageId'))}", _text(parts.get("content", b""))
        elif kind == "tool_call":
            part, text = f"t{string(parts.get('toolCallId'))}", string(parts.get("title")) or ""
            text = f"[{text}]" if text else ""
        else:
            return []
        if child is None:
            child, begun = self._begin(child_id, child_id, "in_progress")
            told.append(begun)
        child.say(part, text)
        if child.has_grown:
            told.append(child.update())
        return told

    def turn_over(self) -> list[bytes]:
        """Return the text of each call that has news."""
        return [child.update() for child in self._children.values() if child.has_news]

    def _begin(self, id_: str, title: str, status: str, **more: bytes) -> tuple[_Child, bytes]:
        self._children[id_] = child = _Child(id_, title, status)
        fields = {"title": encode_text(title), "kind": b'"other"', "status": encode_text(status)}
        return child, child.update("tool_call", **fields, content=b"[]", **more)

    def _announce(self, change: children.ChildChange) -> list[bytes]:
        task = change.changes.get("description")
        title = change.changes.get("title") or task
        state, status = change.changes.get("status"), ""  # "" for one that no call can have
        if state in children.AT_WORK:
            status = "in_progress"
        elif state == "idle":
            status = "failed" if change.changes.get("stop_reason") in FAILURES else "completed"
        if (child := self._children.get(change.child)) is None:
            more = {"rawInput": encode_object({"task": encode_text(task)})} if task else {}
            _, begun = self._begin(change.child, title or change.child, status or "pending", **more)
            return [begun]
        fields: dict[str, str | bytes] = {}
        if title and title != child.title:
            child.title = fields["title"] = title
        if status and status != child.status:
            child.status = fields["status"] = status
        return [child.update(**fields)] if fields else []


def _text(block: bytes) -> str:
    return content_text(block) or string(members(block).get("text")) or ""


class _Call(Struct):
    """A call of the agent's with terminals, for a client that does not show them."""

    terminals: DisplayTerminals = field(default_factory=DisplayTerminals)
    content: bytes = b""
    has_ended: bool = False


class ShownTerminals:
    """Terminals in tool calls, as one client can show them. `owners` maps the ids of terminals to
    the clients at which they were made; this client is `client`. Output is sent under `name`, with
    "" not at all."""

    def __init__(self, name: str, owners: Mapping[str, object], client: object) -> None:
        self._name = name
        self._owners = owners
        self._client = client
        self._announced: Newest[str, None] = Newest(bounds.TERMINAL_IDS)
        self._calls: Newest[tuple[str, str], _Call] = Newest(bounds.TERMINAL_TEXTS)

    def show(self, raw: bytes, child: str = "", *, is_past: bool) -> list[bytes]:
        """Return an update of a tool call, in this sub-agent's session, as updates for the
        client."""
        names_one, tells = b'"terminalId"' in raw, may_tell(raw)
        key = (child, tool_id(raw)) if self._calls else None
        if not (names_one or tells or key in self._calls):
            return [raw]
        parts = members(raw)
        if not self._name:
            return self._as_text(raw, parts, (child, tool_id(raw)), is_past=is_past)
        meta, content = parts.get("_meta", b""), parts.get("content", b"")
        known = take_apart(meta)[1] if may_tell(meta) else {}
        for id_, _ in known.values():
            self._announced[id_] = None
        if names_one and content.startswith(b"["):
            stays = self._announced.__contains__ if is_past else self._owns
            raw = splice(raw, {"content": without_terminals(content, stays=stays)})
        # The output gets the client's name for it, and comes after the `tool_call`.
        changes: dict[str, bytes | None] = {}
        for name in PRINTED:
            if name in known and name != self._name:
                changes |= {name: None, self._name: known[name][1]}
        output = {name: value for name, (_, value) in known.items() if name != INFO}
        if parts.get("sessionUpdate") != b'"tool_call"' or not output:
            return [splice(raw, {"_meta": splice(meta, changes)})] if changes else [raw]
        rest = splice(meta, dict.fromkeys(output))
        update = {
            "sessionUpdate": b'"tool_call_update"',
            "toolCallId": parts.get("toolCallId", b'""'),
            "_meta": splice(encode_object(output), changes),
        }
        return [splice(raw, {"_meta": rest}), encode_object(update)]

    def _as_text(
        self, raw: bytes, parts: Mapping[str, bytes], key: tuple[str, str], *, is_past: bool
    ) -> list[bytes]:
        meta, content = parts.get("_meta", b""), parts.get("content", b"")
        changes: dict[str, bytes | None] = {}
        stays = self._announced.__contains__ if is_past else self._owns  # none is announced
        call = self._calls.get(key)
        if may_tell(meta):
            if call is None:
                self._calls[key] = call = _Call()
            changes["_meta"] = call.terminals.take(meta) or None
        if content.startswith(b"["):
            changes["content"] = without_terminals(content, stays=stays)
            if call is not None:
                call.content = content if b'"terminalId"' in content else b""
        if call is not None:
            has_ended = call.has_ended or (
                string(parts.get("status")) in FINAL_STATUSES or call.terminals.have_ended
            )
            says_more = "_meta" in changes or "content" in changes or has_ended != call.has_ended
            call.has_ended = has_ended
            if has_ended and says_more and call.content:
                known = texts(call.terminals.terminals())
                changes["content"] = without_terminals(call.content, known, stays)
        if not changes:
            return [raw]
        told = splice(raw, changes)
        if members(told).keys() <= {"sessionUpdate", "toolCallId"} and len(parts) > 2:
            return []  # it had nothing but what was printed
        return [told]

    def _owns(self, terminal: str) -> bool:
        """Return True for the client's own, and, if it shows them, for one that only the agent
        shows, perhaps announced before the client resumed."""
        return self._owners.get(terminal, self._client if self._name else None) is self._client


class Frames:
    """The lines of one session for one client, which is sent nothing that it did not offer to show.

    Only this class decides which part of an update a client gets, live and in a replay.
    """

    def __init__(
        self,
        session_id: str,
        offer: ClientOffer,
        *,
        positions: bool = False,
        terminals: Mapping[str, object] = NO_TERMINALS,
        client: object = None,
        sent: AbstractSet[str] = frozenset(),
        from_start: bool = False,
    ) -> None:
        """`terminals` maps the ids of terminals to the clients that know them; this client is
        `client`. `sent` are the ids of prompts that it sent and so knows. `from_start` says that it
        is sent the whole history."""
        self._positions = positions
        self._withheld = offer.withheld
        self._terminals = ShownTerminals(offer.shows_terminals, terminals, client)
        self._id = msgspec.json.encode(session_id)
        head = b'{"jsonrpc":"2.0","method":"%b","params":' % UPDATE.name.encode()
        self._head = head
        self._before = head + b'{"sessionId":' + self._id + b',"update":'
        self._between = b"}}\n" + self._before
        self._booleans = offer.booleans
        self._author = NOBODY
        self._sent = sent
        self._is_known = False
        self._children = ShownChildren()
        self._called: set[tuple[str, str]] | None = set() if from_start else None
        self._begun = offer.begun

    def aside(self, update: bytes) -> bytes:
        """Return the lines for an update that is not journalled."""
        return self.live(Segment(0, 0, "update", 0, update))

    def live(self, segment: Segment) -> bytes:
        """Return the lines for a segment as it was committed; b"" if it shows nothing."""
        raw, whole, in_child = segment.raw, segment.kind == "params", segment.kind == CHILD
        if not (whole or in_child or segment.kind in ("update", "echo")):
            if segment.kind == AUTHOR:  # nothing to show, as `history` finds the long way
                self._author = segment
                return b""
            if segment.kind == SENT:
                self._is_known = any(id_of_sent(each) in self._sent for _, each in segment.raws())
            elif segment.kind == PROMPT and self._is_known:  # by the id that came before it
                self._is_known, self._author = False, NOBODY
                return self.position(segment.last_seq)
            return self.history([segment])
        if whole or in_child or self._positions:
            return self.lines_of(
                Replayed(each, whole_params=whole, in_child=in_child, seq=seq)
                for seq, each in segment.raws()
                if each  # an empty one was made void by a later one
            )
        others = segment.last_seq - segment.first_seq
        if raw.startswith(SPOKEN) and raw.count(b"\n" + SPOKEN) == others:
            return self._before + raw.replace(b"\n", self._between) + b"}}\n"
        shown = [told for each in raw.split(b"\n") if each for told in self._show(each)]
        return self._before + self._between.join(shown) + b"}}\n" if shown else b""

    def history(self, page: Sequence[Segment]) -> bytes:
        """Return the lines for the next segments of the conversation, as in a replay."""
        if not page:
            return b""
        if self._author is not NOBODY:  # the last page ended between an author and a prompt
            page = [self._author, *page]
        self._author = page[-1] if page[-1].kind == AUTHOR else NOBODY
        lines = self.lines_of(replay(page), is_past=True)
        return lines + b"".join([self._turn_over() for each in page if each.kind == TURN_END])

    def own(self, segment: Segment) -> bytes:
        """Return the lines for entries that the client knows: it sent them or got them as an
        answer."""
        if segment.kind == PROMPT:
            self._is_known = False  # its id stood before it, and may be one of those named
            # At once, not with the next update: if the owner is killed while the agent thinks, the
            # client comes back by this position, and is not shown its own prompt.
            return self.position(segment.last_seq)
        return self._turn_over() if segment.kind == TURN_END else b""

    def _turn_over(self) -> bytes:
        """Return what sub-agents have said that the client has not been sent yet."""
        shown = self._children.turn_over()
        return b"".join([self._line_at(each, 0) for each in shown])

    def lines_of(self, updates: Iterable[Replayed], *, is_past: bool = False) -> bytes:
        """Return the lines for the updates of a replay."""
        lines: list[bytes] = []
        for update in updates:
            if update.in_child:
                lines += self._of_child(update, is_past)
            elif update.whole_params:  # it came with more than itself: our ids are put in
                parts = members(update.raw)
                for seq, shown in _place(self._show(parts["update"], is_past=is_past), update.seq):
                    changes = {"sessionId": self._id, "update": shown}
                    params = splice(update.raw, changes)
                    if self._positions:
                        params = _with_last_meta(params, {POSITION: b"%d" % seq} if seq else {})
                    lines.append(self._head + params + b"}\n")
            else:
                for seq, shown in _place(self._show(update.raw, is_past=is_past), update.seq):
                    lines.append(self._line_at(shown, seq))
        return b"".join(lines)

    def position(self, seq: int) -> bytes:
        """Return a line with nothing but a position, or the beginning of a turn; b"" if the client
        asked for neither.

        It stands for a prompt: its own client knows the prompt, and is not sent it again when it
        resumes.
        """
        if self._positions or self._begun:
            return self.lines_of([Replayed(PROMPT_BEGUN if self._begun else EMPTY_UPDATE, seq=seq)])
        return b""

    def _line_at(self, shown: bytes, seq: int) -> bytes:
        if not self._positions:
            return self._before + shown + b"}}\n"
        # Also without a position: that is read from the end of a line, which is no agent's.
        meta = b'"%b":%d' % (POSITION.encode(), seq) if seq else b""
        return self._before + shown + b',"_meta":{' + meta + b"}}}\n"

    def _of_child(self, update: Replayed, is_past: bool) -> Iterator[bytes]:
        """Yield the line of an update of a sub-agent: it has the sub-agent's own id, and, with
        positions, that of the session beside it."""
        inner = children.child_update(update.raw)
        is_opencodes_own = children.is_opencodes(update.raw)
        if (OPENCODE_CHILD if is_opencodes_own else CHILD_KIND) in self._withheld:
            as_call = self._children.show(inner.child, inner.update)
            for seq, each in _place(as_call, update.seq):
                yield self._line_at(each, seq)
            return
        method = OPENCODE_CHILD if is_opencodes_own else UPDATE.name
        shown: Sequence[bytes] = (inner.update,)
        if inner.update and not is_opencodes_own:
            shown = self._show(inner.update, inner.child, is_past=is_past)
        for seq, each in _place(shown, update.seq):
            raw = update.raw if each is inner.update else children.with_update(update.raw, each)
            params = members(raw).get("params", b"{}") if is_opencodes_own else raw
            if self._positions:
                place = {PARENT: self._id, POSITION: b"%d" % seq} if seq else {}
                params = _with_last_meta(params, place)
            yield b'{"jsonrpc":"2.0","method":"%b","params":%b}\n' % (method.encode(), params)

    def _show(self, raw: bytes, child: str = "", *, is_past: bool = False) -> Sequence[bytes]:
        """Return the update as this client may see it; nothing if it did not offer to show it."""
        if raw.startswith(SPOKEN):
            return (raw,)
        kind = update_kind(raw)
        if kind in self._withheld:
            if kind in children.SPEAKS_OF_CHILDREN:
                return self._children.show(child, raw)
            said = notice_as_message(raw) if raw.startswith(NOTICE_START) else b""
            return (said,) if said else ()
        if kind == "config_option_update" and not self._booleans:
            return (without_booleans(raw),)
        if kind in TOOL_KINDS:
            if is_past and self._called is not None:
                raw = self._announce(kind, raw, child)
            return self._terminals.show(raw, child, is_past=is_past)
        return (raw,)

    def _announce(self, kind: str, raw: bytes, child: str) -> bytes:
        """Return the first update of a call as its beginning: some agents only send updates of a
        call, and some clients draw an error for an update of a call that was not announced."""
        assert self._called is not None
        key = child, tool_id(raw)
        if key in self._called:
            return raw
        self._called.add(key)
        if kind == "tool_call":
            return raw
        begins: dict[str, bytes | None] = {"sessionUpdate": b'"tool_call"'}
        if not members(raw).get("title", b"").startswith(b'"'):
            begins["title"] = b'"Tool call"'
        return splice(raw, begins)


def _with_last_meta(params: bytes, place: Mapping[str, bytes]) -> bytes:
    """Return the params with this in their `_meta`, as their last member."""
    meta = members(params).get("_meta", b"")
    meta = splice(meta if meta.startswith(b"{") else b"{}", place)
    return splice(splice(params, {"_meta": None}), {"_meta": meta})


def _place(shown: Sequence[bytes], seq: int) -> Iterator[tuple[int, bytes]]:
    """Yield the updates that one became; the last has its position."""
    last = len(shown) - 1
    return ((seq if place == last else 0, each) for place, each in enumerate(shown))
