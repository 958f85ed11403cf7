"""Journal entries as the lines that a client reads.

The bytes of an update are never encoded again: they are set between two fixed pieces, so whatever
an agent wrote arrives unchanged.

A client that asks for positions gets, in the `_meta` of the params, the number of the last entry
that it has been told, so that it can go on behind that later. A prompt of several blocks is one
entry and several lines: only the last of them has the position.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from acphold.agents.capabilities import Offer
from acphold.history import Segment
from acphold.history.children import is_opencodes, said, with_update
from acphold.history.entries import AUTHOR, CHILD, PROMPT, SENT, sent_id
from acphold.history.raw_update import PROMPT_BEGUN, update_kind
from acphold.history.replay import NOBODY, Replayed, replay, terminals_gone
from acphold.hub.annotations import NOTICE_START, notice_as_message
from acphold.hub.choices import without_booleans
from acphold.schema import UPDATE
from acphold.schema.splice import members, splice
from acphold.schema.update_kinds import CHILD as CHILD_KIND
from acphold.schema.update_kinds import OPENCODE_CHILD

POSITION = "acphold/seq"
"""The `_meta` key of a position."""

PARENT = "acphold/parent"
"""The `_meta` key of the session that a sub-agent belongs to, beside the position: it is one there.
"""

EMPTY_UPDATE = b'{"sessionUpdate":"session_info_update"}'
"""An update that changes nothing: each of its members may be missing (spec v1, session list)."""


NO_TERMINALS: Mapping[str, object] = {}

SPOKEN = b'{"sessionUpdate":"agent_'
"""How what an agent says begins, nearly always: no client is told it in another way."""


class Frames:
    """Lines of one session for one client, which is told nothing that it did not offer to show.

    Here alone is decided what of an update a client gets, live and in a replay.
    """

    def __init__(
        self,
        session_id: str,
        offer: Offer,
        *,
        positions: bool = False,
        terminals: Mapping[str, object] = NO_TERMINALS,
        client: object = None,
        sent: AbstractSet[str] = frozenset(),
    ) -> None:
        """`terminals` has, by their ids, the clients that know them: this one is `client`. `sent`
        are the ids of prompts that it knows, having sent them."""
        self._positions = positions
        self._withheld = offer.withheld
        self._terminals = terminals
        self._client = client
        self._id = msgspec.json.encode(session_id)
        head = b'{"jsonrpc":"2.0","method":"%b","params":' % UPDATE.name.encode()
        self._head = head
        self._before = head + b'{"sessionId":' + self._id + b',"update":'
        self._between = b"}}\n" + self._before
        self._booleans = offer.booleans
        self._author = NOBODY
        self._sent = sent
        self._is_known = False
        self._begun = offer.begun

    def live(self, segment: Segment) -> bytes:
        """The lines for a segment as it was committed; b"" when it shows nothing."""
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
        if raw.startswith(SPOKEN) and raw.count(b"\n") == raw.count(b"\n" + SPOKEN):
            return self._before + raw.replace(b"\n", self._between) + b"}}\n"
        shown = [line for each in raw.split(b"\n") if each and (line := self._shown(each))]
        return self._before + self._between.join(shown) + b"}}\n" if shown else b""

    def history(self, page: Sequence[Segment]) -> bytes:
        """The lines for the next segments of the conversation, as a replay tells them."""
        if not page:
            return b""
        if self._author is not NOBODY:  # the last page ended between an author and a prompt
            page = [self._author, *page]
        self._author = page[-1] if page[-1].kind == AUTHOR else NOBODY
        if self._sent:
            return b"".join(self._without_known(page))
        return self.replayed(replay(page))

    def _without_known(self, page: Sequence[Segment]) -> Iterator[bytes]:
        """The same, with nothing but their positions of the prompts that it has sent itself."""
        begin = 0
        for place, segment in enumerate(page):
            if segment.kind == SENT:
                self._is_known = any(sent_id(raw) in self._sent for _, raw in segment.raws())
            elif segment.kind == PROMPT:
                if self._is_known:
                    yield self.replayed(replay(page[begin:place]))
                    yield self.position(segment.last_seq)
                    begin = place + 1
                self._is_known = False
        yield self.replayed(replay(page[begin:]))

    def replayed(self, updates: Iterable[Replayed]) -> bytes:
        """The lines for what a replay yields."""
        return b"".join([self._line(update) for update in updates])

    def position(self, seq: int) -> bytes:
        """The line that tells nothing but a position, or that the turn begins; b"" for who asks for
        neither.

        For a prompt: its own client knows it, and is not told it again when it goes on behind.
        """
        if self._positions or self._begun:
            return self._line(Replayed(PROMPT_BEGUN if self._begun else EMPTY_UPDATE, seq=seq))
        return b""

    def _line(self, update: Replayed) -> bytes:
        if update.whole_params:
            return self._whole(update)
        if update.in_child:
            return self._of_child(update)
        if not (shown := self._shown(update.raw)):
            return b""
        if self._positions and update.seq:
            meta = b',"_meta":{"%b":%d}' % (POSITION.encode(), update.seq)
            return self._before + shown + meta + b"}}\n"
        return self._before + shown + b"}}\n"

    def _whole(self, update: Replayed) -> bytes:
        """The line of an update that came with more than itself; what is ours in it is put in."""
        parts = members(update.raw)
        if not (shown := self._shown(parts["update"])):
            return b""
        changes = {"sessionId": self._id, "update": shown}
        if self._positions and update.seq:
            meta = parts.get("_meta", b"")
            theirs = meta if meta.startswith(b"{") else b"{}"
            changes["_meta"] = splice(theirs, {POSITION: b"%d" % update.seq})
        return self._head + splice(update.raw, changes) + b"}\n"

    def _of_child(self, update: Replayed) -> bytes:
        """The line of what was said in a sub-agent: it has the sub-agent's own id, and for who asks
        for positions that of the session beside it."""
        told = said(update.raw)
        is_opencodes_own = is_opencodes(update.raw)
        if (OPENCODE_CHILD if is_opencodes_own else CHILD_KIND) in self._withheld:
            return b""
        raw = update.raw
        if told.update and not is_opencodes_own:
            if not (shown := self._shown(told.update)):
                return b""
            raw = raw if shown is told.update else with_update(raw, shown)
        method, params = UPDATE.name.encode(), raw
        if is_opencodes_own:
            method, params = OPENCODE_CHILD.encode(), members(raw).get("params", b"{}")
        if self._positions and update.seq:
            theirs = members(params).get("_meta", b"")
            place = {PARENT: self._id, POSITION: b"%d" % update.seq}
            meta = splice(theirs if theirs.startswith(b"{") else b"{}", place)
            params = splice(splice(params, {"_meta": None}), {"_meta": meta})
        return b'{"jsonrpc":"2.0","method":"%b","params":%b}\n' % (method, params)

    def _shown(self, raw: bytes) -> bytes:
        """The update as this client may be told it; b"" for one that it has not offered to show."""
        if raw.startswith(SPOKEN):
            return raw
        kind = update_kind(raw)
        if kind in self._withheld:
            return notice_as_message(raw) if raw.startswith(NOTICE_START) else b""
        if kind == "config_option_update" and not self._booleans:
            return without_booleans(raw)
        return terminals_gone(raw, self._knows) if self._terminals else raw

    def _knows(self, terminal: str) -> bool:
        """Whether the client can show a terminal: its own, or one that the agent only tells of."""
        return self._terminals.get(terminal, self._client) is self._client
