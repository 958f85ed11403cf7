"""Journal entries as the lines that a client reads.

The bytes of an update are never encoded again: they are set between two fixed pieces, so whatever
an agent wrote arrives unchanged.

A client that asks for positions gets, in the `_meta` of the params, the number of the last entry
that it has been sent, and can resume behind that later. A prompt of several blocks is one entry and
several lines: only the last of them has the position.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from acphold.agents.capabilities import ClientOffer
from acphold.history import Segment
from acphold.history.children import SPEAKS_OF_CHILDREN, is_opencodes, said, with_update
from acphold.history.entries import AUTHOR, CHILD, PROMPT, SENT, TURN_END, sent_id
from acphold.history.raw_update import PROMPT_BEGUN, tool_id, update_kind
from acphold.history.replay import NOBODY, Replayed, replay
from acphold.hub.annotations import NOTICE_START, notice_as_message
from acphold.hub.choices import without_booleans
from acphold.hub.shown_children import ShownChildren
from acphold.hub.shown_terminals import ShownTerminals
from acphold.schema import UPDATE
from acphold.schema.splice import members, splice
from acphold.schema.update_kinds import CHILD as CHILD_KIND
from acphold.schema.update_kinds import OPENCODE_CHILD, TOOL_KINDS

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
        raw = segment.raw
        if segment.kind == "params":
            return self.replayed(
                Replayed(each, whole_params=True, seq=seq) for seq, each in segment.raws()
            )
        if segment.kind == CHILD:
            return self.replayed(
                Replayed(each, in_child=True, seq=seq) for seq, each in segment.raws()
            )
        if segment.kind not in ("update", "echo"):
            return self.history([segment])
        if self._positions:
            # An empty one was made void by a later one.
            return self.replayed(Replayed(each, seq=seq) for seq, each in segment.raws() if each)
        others = segment.last_seq - segment.first_seq
        if raw.startswith(SPOKEN) and raw.count(b"\n" + SPOKEN) == others:
            return self._before + raw.replace(b"\n", self._between) + b"}}\n"
        shown = [told for each in raw.split(b"\n") if each for told in self._shown(each)]
        return self._before + self._between.join(shown) + b"}}\n" if shown else b""

    def history(self, page: Sequence[Segment]) -> bytes:
        """Return the lines for the next segments of the conversation, as in a replay."""
        if not page:
            return b""
        if self._author is not NOBODY:  # the last page ended between an author and a prompt
            page = [self._author, *page]
        self._author = page[-1] if page[-1].kind == AUTHOR else NOBODY
        if self._sent:
            lines = b"".join(self._without_known(page))
        else:
            lines = self.replayed(replay(page), is_past=True)
        return lines + b"".join([self._turn_over() for each in page if each.kind == TURN_END])

    def own(self, segment: Segment) -> bytes:
        """Return the lines for entries that the client knows: it sent them or got them as an
        answer."""
        if segment.kind == PROMPT:
            # At once, not with the next update: if the owner is killed while the agent thinks, the
            # client comes back by this position, and is not shown its own prompt.
            return self.position(segment.last_seq)
        return self._turn_over() if segment.kind == TURN_END else b""

    def _turn_over(self) -> bytes:
        """Return what sub-agents have said that the client has not been sent yet."""
        shown = self._children.turn_over()
        return b"".join([self._before + each + b"}}\n" for each in shown])

    def _without_known(self, page: Sequence[Segment]) -> Iterator[bytes]:
        """Yield the same, but of prompts that the client sent itself only their positions."""
        begin = 0
        for place, segment in enumerate(page):
            if segment.kind == SENT:
                self._is_known = any(sent_id(raw) in self._sent for _, raw in segment.raws())
            elif segment.kind == PROMPT:
                if self._is_known:
                    yield self.replayed(replay(page[begin:place]), is_past=True)
                    yield self.position(segment.last_seq)
                    begin = place + 1
                self._is_known = False
        yield self.replayed(replay(page[begin:]), is_past=True)

    def replayed(self, updates: Iterable[Replayed], *, is_past: bool = False) -> bytes:
        """Return the lines for the updates of a replay."""
        return b"".join([line for update in updates for line in self._lines(update, is_past)])

    def position(self, seq: int) -> bytes:
        """Return a line with nothing but a position, or the beginning of a turn; b"" if the client
        asked for neither.

        It stands for a prompt: its own client knows the prompt, and is not sent it again when it
        resumes.
        """
        if self._positions or self._begun:
            return self.replayed([Replayed(PROMPT_BEGUN if self._begun else EMPTY_UPDATE, seq=seq)])
        return b""

    def _lines(self, update: Replayed, is_past: bool) -> Iterator[bytes]:
        if update.whole_params:
            yield from self._whole(update, is_past)
            return
        if update.in_child:
            yield from self._of_child(update, is_past)
            return
        for seq, shown in _placed(self._shown(update.raw, is_past=is_past), update.seq):
            yield self._placed_line(shown, seq)

    def _placed_line(self, shown: bytes, seq: int) -> bytes:
        if self._positions and seq:
            meta = b',"_meta":{"%b":%d}' % (POSITION.encode(), seq)
            return self._before + shown + meta + b"}}\n"
        return self._before + shown + b"}}\n"

    def _whole(self, update: Replayed, is_past: bool) -> Iterator[bytes]:
        """Yield the line of an update that came with more than itself, with our ids put in."""
        parts = members(update.raw)
        for seq, shown in _placed(self._shown(parts["update"], is_past=is_past), update.seq):
            changes = {"sessionId": self._id, "update": shown}
            if self._positions and seq:
                meta = parts.get("_meta", b"")
                theirs = meta if meta.startswith(b"{") else b"{}"
                changes["_meta"] = splice(theirs, {POSITION: b"%d" % seq})
            yield self._head + splice(update.raw, changes) + b"}\n"

    def _of_child(self, update: Replayed, is_past: bool) -> Iterator[bytes]:
        """Yield the line of an update of a sub-agent: it has the sub-agent's own id, and, with
        positions, that of the session beside it."""
        told = said(update.raw)
        is_opencodes_own = is_opencodes(update.raw)
        if (OPENCODE_CHILD if is_opencodes_own else CHILD_KIND) in self._withheld:
            as_call = self._children.told(told.child, told.update)
            for seq, each in _placed(as_call, update.seq):
                yield self._placed_line(each, seq)
            return
        method = OPENCODE_CHILD if is_opencodes_own else UPDATE.name
        shown: Sequence[bytes] = (told.update,)
        if told.update and not is_opencodes_own:
            shown = self._shown(told.update, told.child, is_past=is_past)
        for seq, each in _placed(shown, update.seq):
            raw = update.raw if each is told.update else with_update(update.raw, each)
            params = members(raw).get("params", b"{}") if is_opencodes_own else raw
            if self._positions and seq:
                theirs = members(params).get("_meta", b"")
                place = {PARENT: self._id, POSITION: b"%d" % seq}
                meta = splice(theirs if theirs.startswith(b"{") else b"{}", place)
                params = splice(splice(params, {"_meta": None}), {"_meta": meta})
            yield b'{"jsonrpc":"2.0","method":"%b","params":%b}\n' % (method.encode(), params)

    def _shown(self, raw: bytes, child: str = "", *, is_past: bool = False) -> Sequence[bytes]:
        """Return the update as this client may see it; nothing if it did not offer to show it."""
        if raw.startswith(SPOKEN):
            return (raw,)
        kind = update_kind(raw)
        if kind in self._withheld:
            if kind in SPEAKS_OF_CHILDREN:
                return self._children.told(child, raw)
            said = notice_as_message(raw) if raw.startswith(NOTICE_START) else b""
            return (said,) if said else ()
        if kind == "config_option_update" and not self._booleans:
            shown = without_booleans(raw)
            return (shown,) if shown else ()
        if kind in TOOL_KINDS:
            if is_past and self._called is not None:
                raw = self._announced(kind, raw, child)
            return self._terminals.told(raw, child, is_past=is_past)
        return (raw,)

    def _announced(self, kind: str, raw: bytes, child: str) -> bytes:
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


def _placed(shown: Sequence[bytes], seq: int) -> Iterator[tuple[int, bytes]]:
    """Yield the updates that one became; the last has its position."""
    last = len(shown) - 1
    return ((seq if place == last else 0, each) for place, each in enumerate(shown))
