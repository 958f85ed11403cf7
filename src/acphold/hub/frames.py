"""Journal entries as the lines that a client reads.

The bytes of an update are never encoded again: they are set between two fixed pieces, so whatever
an agent wrote arrives unchanged.

A client that asks for positions gets, in the `_meta` of the params, the number of the last entry
that it has been told, so that it can go on behind that later. A prompt of several blocks is one
entry and several lines: only the last of them has the position.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from acphold.hub.annotations import NOTICE_START, notice_as_message
from acphold.hub.choices import without_booleans
from acphold.journal import Segment
from acphold.journal.entries import AUTHOR
from acphold.journal.raw_update import BEGUN, PROMPT_BEGUN
from acphold.journal.replay import NOBODY, Replayed, replay, terminals_gone
from acphold.schema import UPDATE, ClientCapabilities
from acphold.schema.splice import members, splice

POSITION = "acphold/seq"
"""The `_meta` key of a position."""

NO_NEWS = b'{"sessionUpdate":"session_info_update"}'
"""An update that changes nothing: each of its members may be missing (spec v1, session list)."""


class Frames:
    """Lines of one session for one client."""

    def __init__(
        self, session_id: str, capabilities: ClientCapabilities, *, positions: bool = False
    ) -> None:
        self._positions = positions
        self._hides_terminals = False
        self._is_special = positions  # nearly nobody is: one look for both
        self._id = msgspec.json.encode(session_id)
        head = b'{"jsonrpc":"2.0","method":"%b","params":' % UPDATE.name.encode()
        self._head = head
        self._before = head + b'{"sessionId":' + self._id + b',"update":'
        self._between = b"}}\n" + self._before
        self._booleans = _takes_booleans(capabilities)
        session = capabilities.session
        self._notices = session is not None and session.notices is not None
        self._author = NOBODY
        self._begun = wants_begun(capabilities)

    def show_terminals(self, show: bool) -> None:
        """Whether updates may name terminals: the client has some."""
        self._hides_terminals = not show
        self._is_special = self._positions or not show

    def live(self, segment: Segment) -> bytes:
        """The lines for a segment as it was committed; b"" when it shows nothing."""
        raw = segment.raw
        if segment.kind not in ("update", "echo"):
            return self._others(segment)
        if self._is_special and (self._positions or b'"terminalId"' in raw):
            return self.replayed(self._each(segment))
        if raw.startswith(NOTICE_START) and not self._notices:
            raw = notice_as_message(raw)
        if not self._booleans and b"config_option_update" in raw and b"boolean" in raw:
            return self.replayed(Replayed(line, False) for line in raw.split(b"\n"))
        return self._before + raw.replace(b"\n", self._between) + b"}}\n"

    def _others(self, segment: Segment) -> bytes:
        if segment.kind != "params":
            return self.history([segment])
        return self.replayed(
            Replayed(raw, whole_params=True, seq=seq) for seq, raw in segment.raws()
        )

    def _each(self, segment: Segment) -> Iterator[Replayed]:
        """The updates of a segment one by one, each with its number."""
        for seq, raw in segment.raws():
            if raw.startswith(NOTICE_START) and not self._notices:
                yield Replayed(notice_as_message(raw), seq=seq)
            elif raw:  # a later update has made it void
                yield Replayed(raw, seq=seq)

    def history(self, page: Sequence[Segment]) -> bytes:
        """The lines for the next segments of the conversation, as a replay tells them."""
        if not page:
            return b""
        if self._author is not NOBODY:  # the last page ended between an author and a prompt
            page = [self._author, *page]
        self._author = page[-1] if page[-1].kind == AUTHOR else NOBODY
        return self.replayed(replay(page))

    def replayed(self, updates: Iterable[Replayed]) -> bytes:
        """The lines for what a replay yields."""
        return b"".join([self._line(update) for update in updates])

    def place(self, seq: int) -> bytes:
        """The line that tells nothing but a position, or that the turn begins; b"" for who asks for
        neither.

        For a prompt: its own client knows it, and is not told it again when it goes on behind.
        """
        if self._positions or self._begun:
            return self._line(Replayed(PROMPT_BEGUN if self._begun else NO_NEWS, seq=seq))
        return b""

    def _line(self, update: Replayed) -> bytes:
        raw = update.raw
        if update.whole_params:
            return self._head + splice(raw, self._changes(update)) + b"}\n"
        if self._positions and update.seq:
            meta = b',"_meta":{"%b":%d}' % (POSITION.encode(), update.seq)
            return self._before + self._shown(raw) + meta + b"}}\n"
        return self._before + self._shown(raw) + b"}}\n"

    def _changes(self, update: Replayed) -> dict[str, bytes]:
        """What is ours in the params of an update that came with more than itself."""
        parts = members(update.raw)
        changes = {"sessionId": self._id, "update": self._shown(parts["update"])}
        if self._positions and update.seq:
            meta = parts.get("_meta", b"")
            theirs = meta if meta.startswith(b"{") else b"{}"
            changes["_meta"] = splice(theirs, {POSITION: b"%d" % update.seq})
        return changes

    def _shown(self, raw: bytes) -> bytes:
        if self._hides_terminals:
            raw = terminals_gone(raw)
        if not self._booleans and b"config_option_update" in raw and b"boolean" in raw:
            return without_booleans(raw)
        return raw


def wants_begun(capabilities: ClientCapabilities) -> bool:
    """Whether a client is to be told when the turn of its own prompt begins."""
    return (capabilities.meta or {}).get(BEGUN) is True


def _takes_booleans(capabilities: ClientCapabilities) -> bool:
    session = capabilities.session
    options = None if session is None else session.config_options
    return options is not None and options.boolean is not None
