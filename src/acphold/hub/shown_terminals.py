"""Terminals in tool calls, as one client can show them, live and in a replay.

    terminal                               what the client is told
    -------------------------------------  ---------------------------------------------------------
    made at this client (`terminal/…`)     the terminal while it is connected; later its text
    made at another one, or here           its text, once it is journalled (`hub.terminal_texts`)
    only shown by the agent, and the       the terminal, and what it printed, under the client's
    client offers to show such             own name for that
    only shown by the agent, and the       nothing while it runs; its text when it, or the call, has
    client does not                        ended

A compacted call has everything that its terminal printed. It is sent as it is sent live: first the
`tool_call`, at which Zed makes the terminal, then an update with the output, which Zed takes from
updates alone. For the agent's `_meta` see `history.display_terminals`.
"""

from __future__ import annotations

from collections.abc import Mapping

from acphold.history.display_terminals import (
    INFO,
    PRINTED,
    DisplayTerminals,
    may_tell,
    parted,
    texts,
)
from acphold.history.raw_update import encode_object, members, string, tool_id
from acphold.history.timeline import FINAL_STATUSES, without_terminals
from acphold.schema.splice import splice

CALLS = 64
"""Most calls with such terminals whose output is remembered; older ones are forgotten."""

ANNOUNCED = 4096
"""Most announced terminals that are remembered; older ones are forgotten."""


class _Call:
    """A call of the agent's with terminals, for a client that does not show them."""

    def __init__(self) -> None:
        self.terminals = DisplayTerminals()
        self.content = b""
        self.has_ended = False


class ShownTerminals:
    """See the module. `owners` maps the ids of terminals to the clients at which they were made;
    this client is `client`. Output is sent under `name`, with "" not at all."""

    def __init__(self, name: str, owners: Mapping[str, object], client: object) -> None:
        self._name = name
        self._owners = owners
        self._client = client
        self._announced: dict[str, None] = {}
        self._calls: dict[tuple[str, str], _Call] = {}

    def told(self, raw: bytes, child: str = "", *, is_past: bool) -> list[bytes]:
        """Return an update of a tool call, in this sub-agent's session, as updates for the
        client."""
        names_one, tells = b'"terminalId"' in raw, may_tell(raw)
        key = (child, tool_id(raw)) if self._calls else None
        if not (names_one or tells or key in self._calls):
            return [raw]
        parts = members(raw)
        meta, content = parts.get("_meta", b""), parts.get("content", b"")
        if self._name:
            self._announce(meta if tells else b"")
            changes: dict[str, bytes | None] = {}
            if names_one and content.startswith(b"["):
                stays = self._stays if is_past else self._stays_live
                changes["content"] = without_terminals(content, stays=stays)
            return self._renamed(splice(raw, changes) if changes else raw, parts)
        return self._as_text(raw, parts, (child, tool_id(raw)), is_past=is_past)

    # -- for a client that shows them -------------------------------------------------------

    def _announce(self, meta: bytes) -> None:
        if may_tell(meta):
            for id_, _ in parted(meta)[1].values():
                self._announced[id_] = None
            while len(self._announced) > ANNOUNCED:
                del self._announced[next(iter(self._announced))]

    def _stays(self, terminal: str) -> bool:
        return terminal in self._announced

    def _stays_live(self, terminal: str) -> bool:
        """Return True for the client's own, and for one that only the agent shows, perhaps
        announced before the client resumed."""
        return self._owners.get(terminal, self._client) is self._client

    def _renamed(self, raw: bytes, parts: Mapping[str, bytes]) -> list[bytes]:
        """Return the update with the output under the client's name for it, after the
        `tool_call`."""
        meta = parts.get("_meta", b"")
        if not may_tell(meta):
            return [raw]
        _, told = parted(meta)
        changes: dict[str, bytes | None] = {}
        for name in PRINTED:
            if name in told and name != self._name:
                changes |= {name: None, self._name: told[name][1]}
        later = {name: value for name, (_, value) in told.items() if name != INFO}
        if parts.get("sessionUpdate") != b'"tool_call"' or not later:
            return [splice(raw, {"_meta": splice(meta, changes)})] if changes else [raw]
        rest = splice(meta, dict.fromkeys(later))
        update = {
            "sessionUpdate": b'"tool_call_update"',
            "toolCallId": parts.get("toolCallId", b'""'),
            "_meta": splice(encode_object(later), changes),
        }
        return [splice(raw, {"_meta": rest}), encode_object(update)]

    # -- for one that does not --------------------------------------------------------------

    def _as_text(
        self, raw: bytes, parts: Mapping[str, bytes], key: tuple[str, str], *, is_past: bool
    ) -> list[bytes]:
        meta, content = parts.get("_meta", b""), parts.get("content", b"")
        changes: dict[str, bytes | None] = {}
        call = self._calls.get(key)
        if may_tell(meta):
            if call is None:
                self._calls[key] = call = _Call()
                if len(self._calls) > CALLS:
                    del self._calls[next(iter(self._calls))]
            changes["_meta"] = call.terminals.take(meta) or None
        if content.startswith(b"["):
            stays = _nowhere if is_past else self._owns
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
                stays = _nowhere if is_past else self._owns
                changes["content"] = without_terminals(call.content, known, stays)
        if not changes:
            return [raw]
        told = splice(raw, changes)
        if members(told).keys() <= {"sessionUpdate", "toolCallId"} and len(parts) > 2:
            return []  # it had nothing but what was printed
        return [told]

    def _owns(self, terminal: str) -> bool:
        return self._owners.get(terminal) is self._client


def _nowhere(_: str) -> bool:
    return False
