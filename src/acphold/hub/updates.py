"""Which updates of an agent are news for a session, and which only repeat what it has."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from acphold.errors import InvalidParamsError
from acphold.hub.context import is_context
from acphold.journal.raw_update import update_kind
from acphold.journal.standing import Standing, fold_update
from acphold.schema.splice import items, members

if TYPE_CHECKING:
    from acphold.hub.session import Session

log = logging.getLogger(__name__)

STATE_KINDS = frozenset(
    {
        "available_commands_update",
        "current_mode_update",
        "config_option_update",
        "session_info_update",
        "usage_update",
    }
)
"""Updates that say how a session stands, whenever they come; the others belong to a turn."""

WHOLE_KINDS = frozenset({"available_commands_update", "usage_update"})
"""Of these, the ones of which the last one says it all."""

CHOSEN_KINDS = frozenset({"current_mode_update", "config_option_update"})
"""What the person chose: a session that is opened again is set as it was, not as it is told."""


class Repeats:
    """What an agent tells of a session while it opens it again.

    The conversation is in the journal already; of the rest, what differs from it is news.
    """

    def __init__(self) -> None:
        self._told: list[bytes] = []

    def take(self, raw: bytes) -> None:
        """Remember an update that may be news."""
        kind = update_kind(raw)
        if kind in CHOSEN_KINDS:
            return
        if kind in WHOLE_KINDS:
            self._told = [earlier for earlier in self._told if update_kind(earlier) != kind]
        self._told.append(raw)

    def news(self, standing: Standing) -> list[bytes]:
        """The updates that change this standing, in order."""
        found: list[bytes] = []
        for raw in self._told:
            changed = fold_update(standing, update_kind(raw), raw)
            if changed != standing:
                found.append(raw)
                standing = changed
        return found


def update_in(params: bytes) -> bytes:
    """The update in the params of a `session/update`; b"" when there is none to be read."""
    try:
        return members(params).get("update", b"")
    except InvalidParamsError:
        return b""


def for_session(session: Session, kind: str, raws: Sequence[bytes]) -> Sequence[bytes]:
    """Those that are to be published: while the agent repeats itself or is overdue, not all."""
    if kind not in ("update", "params") or not (session.backing.muted or session.turns.overdue):
        return raws
    passing: list[bytes] = []
    for raw in raws:
        update = update_in(raw) if kind == "params" else raw
        if update_kind(update) not in STATE_KINDS:
            continue
        if session.backing.repeats is None:
            passing.append(raw)
        else:
            session.backing.repeats.take(update)
    if dropped := len(raws) - len(passing):
        why = "a replay of the agent's own" if session.backing.muted else "a cancelled turn"
        log.info("session %s: %d updates of %s dropped", session.id, dropped, why)
    return passing


def repeats_prompt(update: bytes, prompt: bytes) -> bool:
    """Whether an update is one block of this prompt, or all of its text, sent back."""
    try:
        said = _plain(members(update).get("content", b"null"))
        blocks = [_plain(block) for block in items(prompt)]
    except InvalidParamsError:
        return False
    texts = [block["text"] for block in blocks if isinstance(block.get("text"), str)]
    return said in blocks or (said.get("type") == "text" and said.get("text") == _joined(texts))


def holds_context(update: bytes) -> bool:
    """Whether an update shows the earlier conversation that the agent was handed."""
    try:
        return is_context(members(update).get("content", b"null"))
    except InvalidParamsError:
        return False


def _joined(texts: Sequence[object]) -> str:
    return "".join(map(str, texts))


def _plain(block: bytes) -> dict[str, object]:
    """A content block without what programs add or leave out as they like."""
    try:
        found = msgspec.json.decode(block, type=dict[str, object])
    except msgspec.MsgspecError:
        return {"raw": block}
    return {name: value for name, value in found.items() if value is not None and name != "_meta"}
