"""Terminals that are only shown: an agent runs the command itself, and reports its output.

It names the terminal in a tool call's content, and describes it in `_meta` of the call's updates:

    terminal_info          {"terminal_id", "cwd"}: it exists from this `tool_call` on
    terminal_output        {"terminal_id", "data"}: it has printed this, after what it had
    terminal_output_delta  the same, for clients that ask for it by this name
    terminal_exit          {"terminal_id", "exit_code", "signal"}: it prints no more

So the text of a terminal is all its `data` in a row, whatever else the updates say; other members
of `_meta` are replaced as usual. When the call is read, the text stands in its content in place of
the terminal. Any other fold of updates, such as the page's, has to do the same: append `data` by
its `terminal_id`, let an update whose `_meta` has nothing but these members change nothing else
there, and show the text where the content names the terminal.

Of a long text the end is kept; then CUT stands before it, and CUT_MARK says so.

Sources: what codex-acp and claude-agent-acp send, and how Zed shows it (`acp_thread`): it makes the
terminal at a `tool_call`, and takes its output from a `tool_call_update` alone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from acp_wire.newest import Newest
from acp_wire.schema import splice
from acphold.conversation.history.raw_update import encode_object, encode_text, members, string

INFO: Final = "terminal_info"
OUTPUT: Final = "terminal_output"
DELTA: Final = "terminal_output_delta"
EXIT: Final = "terminal_exit"

PRINTED: Final = (OUTPUT, DELTA)
"""The names under which agents report a terminal's output, and under which clients ask for it."""

MEMBERS: Final = (INFO, *PRINTED, EXIT)

TEXT_BYTES: Final = 48 * 1024
"""Bytes of JSON that are kept of a terminal's text, the newest: clients that read lines of 64 KiB
can read it, with everything around it."""

CUT: Final = "…\n"
"""The beginning of a text whose start was dropped."""

CUT_MARK: Final = "acphold/cut"
"""The member beside `data` that says that acphold put CUT before it."""

INPUT: Final = b'"terminal_input"'
"""A further report of some agents: typed input. Its place is among the output."""

PRINTED_BYTES: Final = TEXT_BYTES + 512
"""Most bytes of JSON in the members of one terminal, except for long folders."""

MOST: Final = 16
"""Most terminals of one call that are told apart; older ones are forgotten."""


def may_tell(raw: bytes) -> bool:
    """Return False for most updates without such terminals."""
    return b'"terminal_' in raw


class DisplayTerminal(Struct, frozen=True):
    """The reports about a terminal; `info` and `exit` are raw, b"" for nothing.

    `told_as` is the name under which the agent reported the output, `kept` the end of that;
    `is_cut` says that there was more.
    """

    info: bytes = b""
    told_as: str = ""
    kept: str = ""
    is_cut: bool = False
    exit: bytes = b""

    @property
    def text(self) -> str | None:
        """Its output, as far as it is kept."""
        return (CUT + from_next_line(self.kept) if self.is_cut else self.kept) or None


class TerminalDraft:
    """A terminal that may print more. Its text is joined when it is read."""

    def __init__(self, known: DisplayTerminal | None = None) -> None:
        known = known or DisplayTerminal()
        self._info, self.told_as, self.exit = known.info, known.told_as, known.exit
        self._is_cut = known.is_cut
        self._pieces = [known.kept] if known.kept else []
        self._size = 0

    def take(self, name: str, value: bytes) -> None:
        """Add the member of `_meta` with this name."""
        if name == INFO:
            self._info = value
            return
        if name == EXIT:
            self.exit = value
            return
        self.told_as = name
        parts = members(value)
        text = string(parts.get("data")) or ""
        if parts.get(CUT_MARK) == b"true":  # a gap between the text kept so far and this
            text = text.removeprefix(CUT)
            self._pieces.clear()
            self._is_cut, self._size = True, 0
        if text:
            self._pieces.append(text)
            self._size += len(text)
            if self._size > 2 * TEXT_BYTES:
                self._join()

    def _join(self) -> str:
        joined = "".join(self._pieces)
        kept = newest(joined, TEXT_BYTES)
        self._is_cut |= len(kept) < len(joined)
        self._pieces = [kept] if kept else []
        self._size = 0
        return kept

    def terminal(self) -> DisplayTerminal:
        """Return the terminal so far."""
        kept = self._join()
        return DisplayTerminal(self._info, self.told_as, kept, self._is_cut, self.exit)


def newest(text: str, room: int) -> str:
    """Return as much of the end of a text as takes `room` bytes as JSON."""
    if 6 * len(text) <= room or len(encode_text(text)) <= room:
        return text
    text = text[-room:]
    fits = bisect_left(range(len(text)), True, key=lambda at: len(encode_text(text[at:])) <= room)
    return text[fits:]


def from_next_line(text: str) -> str:
    """Return a text that begins in the middle of a line, from the next line on if there is one."""
    _, newline, lines = text.partition("\n")
    return lines if newline and lines else text


def take_apart(meta: bytes) -> tuple[bytes, dict[str, tuple[str, bytes]]]:
    """Return the rest of a `_meta`, b"" for nothing, and its members for such terminals: by name,
    the terminal and the member."""
    parts = members(meta)
    reports: dict[str, tuple[str, bytes]] = {}
    for name in MEMBERS:
        if name in parts and (id_ := string(members(parts[name]).get("terminal_id"))):
            reports[name] = id_, parts[name]
    if reports:
        meta = splice(meta, dict.fromkeys(reports))
    return (meta if len(parts) > len(reports) else b""), reports


class DisplayTerminals:
    """The terminals of one tool call."""

    def __init__(self, known: Mapping[str, DisplayTerminal] | None = None) -> None:
        self._drafts: Newest[str, TerminalDraft] = Newest(MOST)
        for id_, each in (known or {}).items():
            self._drafts[id_] = TerminalDraft(each)

    def __bool__(self) -> bool:
        return bool(self._drafts)

    @property
    def have_ended(self) -> bool:
        """True if nothing more is expected of any terminal."""
        return all(draft.exit for draft in self._drafts.values())

    def goes_with(self, meta: bytes) -> bool:
        """Return True if one `_meta` can hold everything known and this, too."""
        _, reports = take_apart(meta)
        ids = {id_ for id_, _ in reports.values()} | self._drafts.keys()
        names = {name for name in reports if name in PRINTED}
        names |= {draft.told_as for draft in self._drafts.values()} - {""}
        return len(ids) <= 1 and len(names) <= 1

    def take(self, meta: bytes) -> bytes:
        """Add the members for terminals; return the rest of the `_meta`, b"" for nothing."""
        rest, reports = take_apart(meta)
        for name, (id_, value) in reports.items():
            if id_ not in self._drafts:
                self._drafts[id_] = TerminalDraft()
            self._drafts[id_].take(name, value)
        return rest

    def terminals(self) -> dict[str, DisplayTerminal]:
        """Return all terminals so far, by their ids."""
        return {id_: draft.terminal() for id_, draft in self._drafts.items()}


def texts(terminals: Mapping[str, DisplayTerminal]) -> dict[str, str]:
    """Return the output of terminals, by their ids."""
    return {id_: text for id_, each in terminals.items() if (text := each.text) is not None}


def with_terminals(meta: bytes, terminals: Mapping[str, DisplayTerminal]) -> bytes:
    """Return a `_meta`, b"" for none, with everything known of one terminal."""
    reports: dict[str, bytes | None] = {}
    for id_, each in terminals.items():
        if each.info:
            reports[INFO] = each.info
        if each.told_as:
            printed = {
                "terminal_id": encode_text(id_),
                "data": encode_text((CUT if each.is_cut else "") + each.kept),
            }
            if each.is_cut:
                printed[CUT_MARK] = b"true"
            reports[each.told_as] = encode_object(printed)
        if each.exit:
            reports[EXIT] = each.exit
    return splice(meta or b"{}", reports) if reports else meta


def output_in(meta: bytes) -> Iterable[str]:
    """Yield the output of terminals in this `_meta`."""
    if may_tell(meta):
        for name, (_, value) in take_apart(meta)[1].items():
            if name in PRINTED:
                yield string(members(value).get("data")) or ""
