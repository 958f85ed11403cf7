"""Positions in params, where a client resumes, and the prompts that it has sent since.

A position is the number of an entry that a client has received. A client that kept it can connect
again and gets only the entries after it. It names the position in `_meta` of `session/resume`,
where the protocol has room for it (spec v1, extensibility), together with the lineage of the
session, which it got with the answer that opened it: see `journal.lineage`.

A client names its prompts, so that it can send one again when the connection is lost before the
answer. The entry of a prompt in the journal has its id, so the process that owns the session, the
same one or the next, knows what has become of it:

    in the journal                      the repeated prompt
    ----------------------------------  -----------------------------------------------------------
    is no entry with the id             begins: no agent has got it
    is one, and its turn runs here      joins that turn
    is one, and its turn has ended      is answered as the turn was; a turn ends with its owner, as
                                        interrupted
"""

# See docs/decisions.md, 19 and 32.

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct, field

from acp_wire.rpc import CutNotification
from acp_wire.schema import UPDATE, members, splice
from acp_wire.schema.splice import UNREADABLE, json_value
from acphold.conversation.history.entries import LAST_SEQ
from acphold.conversation.history.raw_update import (
    OPENCODE_CHILD,
    in_meta,
    string,
    with_meta,
    without_meta,
)
from acphold.errors import InvalidParamsError
from acphold.live.agents.interface import session_of
from acphold.live.hub.frames import EMPTY_UPDATE, PARENT, POSITION
from acphold.live.hub.questions import QUESTION_KEY, SENT

AFTER = "acphold/after"
LINEAGE = "acphold/lineage"

Position = Annotated[int, Meta(ge=0, le=LAST_SEQ)]
"""The number of an entry, 0 before the first."""

BARE_BYTES = 1024
"""More bytes than params that have only a position; ids are shorter than this."""


def lineage_of_answer(result: bytes) -> str | None:
    """Return the lineage in an answer; None if there is none, or it is not a lineage."""
    with suppress(InvalidParamsError):
        return string(in_meta(result, LINEAGE))
    return None


def with_lineage(result: bytes, lineage: str) -> bytes:
    """Return the answer that opens a session, with the lineage of its positions."""
    return with_meta(result, LINEAGE, msgspec.json.encode(lineage)) if lineage else result


def without_position(params: bytes) -> bytes:
    """Return the params for the agent: without our positions and ids of prompts."""
    return without_meta(params, AFTER, LINEAGE, SENT, ANSWERED)


def question_in(params: bytes) -> str:
    """Return the id under which this client was asked the question; "" if it has none."""
    return string(in_meta(params or b"{}", QUESTION_KEY)) or ""


ANSWERED = "acphold/answered"
"""In `session/resume`: the client's ids of answers whose fate it does not know; in the result: the
ids of those that were accepted."""


class Resuming(Struct, frozen=True):
    """The position in the params of a client that resumes, and its lineage; the ids of prompts that
    the client has sent without an answer so far, and of its answers whose fate it does not know."""

    after: int | None = None
    lineage: str | None = None
    sent: tuple[str, ...] = ()
    answered: tuple[str, ...] = ()


_IDS = tuple[str, ...], "a list of ids"
_SAID: Mapping[str, tuple[str, Any, str]] = {
    "after": (AFTER, Position, "the `acphold/seq` of an update"),
    "lineage": (LINEAGE, str | None, "the lineage from the answer that opened the session"),
    "sent": (SENT, *_IDS),
    "answered": (ANSWERED, *_IDS),
}
"""For each field its key in `_meta`, its type, and what it has to be."""


def resuming_in(meta: Mapping[str, bytes]) -> Resuming:
    """Return what the `_meta` of a request says that opens a session: nothing without a position.
    Raises InvalidParamsError for a member that is something else."""
    if AFTER not in meta:
        return Resuming()
    said: dict[str, object] = {}
    for name, (key, kind, what) in _SAID.items():
        if (raw := meta.get(key)) is not None:
            try:
                said[name] = msgspec.json.decode(raw, type=kind)
            except UNREADABLE:
                problem = f"{key}: must be {what}, not {raw[:40]!r}"
                raise InvalidParamsError(problem, f"_meta.{key}") from None
    return msgspec.convert(said, Resuming)


class _WithMeta(Struct, gc=False):
    meta: Raw = field(name="_meta", default=Raw())


_with_meta = msgspec.json.Decoder(_WithMeta).decode


class Sent(Struct, frozen=True, omit_defaults=True):
    """A client's own id for a prompt, so that it can send the prompt again.

    A repeated prompt has `after`, a position that the client had before it first sent the prompt.
    """

    id: str
    after: Position | None = None


def find_sent(params: bytes) -> Sent | None:
    """Return the Sent in the params of a prompt; InvalidParamsError if it cannot be read."""
    try:
        return find_sent_in_meta(bytes(_with_meta(params).meta))  # without a copy of the prompt
    except UNREADABLE as exc:
        raise InvalidParamsError(str(exc), "$") from None


def find_sent_in_meta(meta: bytes) -> Sent | None:
    """Return the Sent in the `_meta` of a prompt; InvalidParamsError if it cannot be read."""
    raw = members(meta).get(SENT) if meta.startswith(b"{") else None
    if raw is None:
        return None
    try:
        sent = msgspec.json.decode(raw, type=Sent)
        if not 0 < len(sent.id) <= 100:
            raise msgspec.ValidationError
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise InvalidParamsError(
            f'{SENT}: must be {{"id": "…"}}, with an id of at most 100 characters, and perhaps '
            "`after`, the `acphold/seq` of an update",
            field=f"_meta.{SENT}",
        ) from None
    return sent


def with_sent(params: bytes, sent: Sent) -> bytes:
    """Return the params of a prompt with its client's id for it."""
    return with_meta(params, SENT, msgspec.json.encode(sent))


UPDATES = (UPDATE.name, OPENCODE_CHILD)
"""The methods whose params have positions, behind all that an agent has said in them: see
`hub.frames`."""

_POSITION = re.compile(rb'"%b":(\d+)\}\}$' % POSITION.encode())
"""The end of the params of an update that carries its position."""


def position_of_update(method: str | None, params: bytes) -> int | None:
    """Return the position in the params of an update; None if there is none, or if it is none."""
    if method not in UPDATES:
        return None
    match = _POSITION.search(params, max(0, len(params) - 64))
    return None if match is None else int(match[1])


_OF_CHILD = re.compile(
    rb'"%b":("(?:[^"\\]|\\.)*"),"%b":\d+\}\}$' % (PARENT.encode(), POSITION.encode())
)
"""The end of the params of a sub-agent's update, with the session that it belongs to."""


def place_of_cut(cut: CutNotification) -> tuple[str | None, int | None]:
    """Return the session of an update that was over a limit, and its position there; None for what
    it does not have, and for any other notification."""
    if cut.method not in UPDATES:
        return None, None
    params = cut.tail.rstrip()[:-1]  # their end, without the brace of the message
    of_child = _OF_CHILD.search(params)
    session_id = session_of(cut) if of_child is None else msgspec.json.decode(of_child[1])
    return session_id, position_of_update(cut.method, params)


def is_only_position(params: bytes) -> bool:
    """Return True if the params of an update have only its position."""
    is_short = len(params) < BARE_BYTES and EMPTY_UPDATE in params
    return is_short and members(params).get("update") == EMPTY_UPDATE


class _UpdateMeta(Struct):
    parent: str = field(name=PARENT, default="")


class _Params(Struct):
    sessionId: str = ""
    meta: _UpdateMeta = field(name="_meta", default_factory=_UpdateMeta)


def session_of_update(params: bytes) -> str:
    """Return the session in which an update has its position: for a sub-agent's, the one it belongs
    to."""
    update = json_value(params, _Params)
    return "" if update is None else update.meta.parent or update.sessionId


def resume_params(
    params: bytes, position: int, known: Sequence[str] = (), lineage: str | None = None
) -> bytes:
    """Return the params of `session/resume` after a position; `known` are the ids of the client's
    unanswered prompts."""
    meta = members(params).get("_meta", b"{}")
    added: dict[str, bytes | None] = {
        AFTER: b"%d" % position,
        LINEAGE: None if lineage is None else msgspec.json.encode(lineage),
    }
    if known:
        added[SENT] = msgspec.json.encode(known)
    meta = splice(meta if meta.startswith(b"{") else b"{}", added)
    return splice(params, {"_meta": meta})
