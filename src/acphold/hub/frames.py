"""Journal entries as the lines a client reads.

The bytes of an update are never re-encoded: they are set between two fixed pieces, so whatever an
agent put into them arrives unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from acphold.hub.annotations import NOTICE_START, notice_as_message
from acphold.hub.choices import without_booleans
from acphold.journal import Segment
from acphold.journal.entries import AUTHOR
from acphold.journal.replay import NOBODY, Replayed, replay
from acphold.schema import UPDATE, ClientCapabilities
from acphold.schema.splice import members, splice


class Frames:
    """Lines of one session for one client."""

    def __init__(self, session_id: str, capabilities: ClientCapabilities) -> None:
        self._id = msgspec.json.encode(session_id)
        head = b'{"jsonrpc":"2.0","method":"%b","params":' % UPDATE.name.encode()
        self._head = head
        self._before = head + b'{"sessionId":' + self._id + b',"update":'
        self._between = b"}}\n" + self._before
        self._booleans = _takes_booleans(capabilities)
        session = capabilities.session
        self._notices = session is not None and session.notices is not None
        self._author = NOBODY

    def live(self, segment: Segment) -> bytes:
        """The lines for a segment as it was committed; b"" when it shows nothing."""
        raw = segment.raw
        if segment.kind == "params":
            return self.replayed(Replayed(line, whole_params=True) for line in raw.split(b"\n"))
        if segment.kind not in ("update", "echo"):
            return self.history([segment])
        if raw.startswith(NOTICE_START) and not self._notices:
            raw = notice_as_message(raw)
        if not self._booleans and b"config_option_update" in raw and b"boolean" in raw:
            return self.replayed(Replayed(line, False) for line in raw.split(b"\n"))
        return self._before + raw.replace(b"\n", self._between) + b"}}\n"

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

    def _line(self, update: Replayed) -> bytes:
        raw = update.raw
        if update.whole_params:
            changes = {"sessionId": self._id, "update": self._shown(members(raw)["update"])}
            return self._head + splice(raw, changes) + b"}\n"
        return self._before + self._shown(raw) + b"}}\n"

    def _shown(self, raw: bytes) -> bytes:
        if not self._booleans and b"config_option_update" in raw and b"boolean" in raw:
            return without_booleans(raw)
        return raw


def _takes_booleans(capabilities: ClientCapabilities) -> bool:
    session = capabilities.session
    options = None if session is None else session.config_options
    return options is not None and options.boolean is not None
