"""Positions in params: behind which one a client goes on, and which one an update has.

A position is the number of an entry that a client has been sent. A client that kept it can come
back over a new connection and gets what is behind it, without the whole history: it names it in
`_meta` of `session/resume`, where the protocol has room for it (spec v1, extensibility).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from acphold.errors import InvalidParamsError
from acphold.history.raw_update import PROMPT_BEGUN, string
from acphold.hub.client_request import QUESTION, SENT
from acphold.hub.frames import EMPTY_UPDATE, POSITION
from acphold.schema.splice import UNREADABLE, members, splice, with_meta

AFTER = "acphold/after"

BARE_BYTES = 1024
"""More than any of the params have that tell nothing but a position; ids are shorter than this."""


def position_in(params: bytes) -> int | None:
    """The position that the params of `session/resume` name; InvalidParamsError if it is none."""
    meta = members(params).get("_meta", b"")
    raw = members(meta).get(AFTER) if meta.startswith(b"{") else None
    if raw is None:
        return None
    try:
        position = msgspec.json.decode(raw, type=int)
    except msgspec.MsgspecError:
        position = -1
    if position < 0:
        raise InvalidParamsError(
            f"{AFTER}: the `acphold/seq` of an update is required, not {raw[:40]!r}",
            field=f"_meta.{AFTER}",
        )
    return position


def without_position(params: bytes) -> bytes:
    """The params as the agent may get them: it knows no positions of ours, nor ids of prompts."""
    meta = splice(members(params)["_meta"], {AFTER: None, SENT: None, ANSWERED: None})
    return splice(params, {"_meta": meta if members(meta) else None})


def question_in(params: bytes) -> str:
    """By what id a client knows the question again that it is asked so; "" for what has none."""
    meta = members(params or b"{}").get("_meta", b"")
    raw = members(meta).get(QUESTION, b'""') if meta.startswith(b"{") else b'""'
    return string(raw) or ""


ANSWERED = "acphold/answered"
"""In `session/resume`: the client's ids of answers that it does not know to have been taken; in the
result: of those that were."""

MOST_PROMPTS = 1000
"""More than anybody has waiting for their answers."""


class _WithMeta(Struct, gc=False):
    meta: msgspec.Raw = msgspec.field(name="_meta", default=msgspec.Raw())


_with_meta = msgspec.json.Decoder(_WithMeta).decode


class Sent(Struct, frozen=True):
    """By what id a client knows a prompt that it sends, so that it can be sent again.

    It is, where `after` is named: a position that the client had before it sent it first.
    """

    id: str
    after: int | None = None


def sent_in(params: bytes) -> Sent | None:
    """What the `_meta` of a prompt says of that; InvalidParamsError if it is not to be read."""
    try:
        meta = bytes(_with_meta(params).meta)  # without a copy of the prompt
    except UNREADABLE as exc:
        raise InvalidParamsError(str(exc), "$") from None
    raw = members(meta).get(SENT) if meta.startswith(b"{") else None
    if raw is None:
        return None
    try:
        sent = msgspec.json.decode(raw, type=Sent)
        if not 0 < len(sent.id) <= 100:
            raise msgspec.ValidationError
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise InvalidParamsError(
            f'{SENT}: an id of at most 100 characters is required, {{"id": "…"}}',
            field=f"_meta.{SENT}",
        ) from None
    return sent


def with_sent(params: bytes, sent: Sent) -> bytes:
    """The params of a prompt that its client knows so."""
    said = {"id": sent.id} if sent.after is None else {"id": sent.id, "after": sent.after}
    return with_meta(params, SENT, msgspec.json.encode(said))


_TOLD = re.compile(rb'"%b":(\d+)\}\}$' % POSITION.encode())
"""How the params of an update end that carries its position."""


def told_position(params: bytes) -> int | None:
    """The position in the params of an update; None where there is none."""
    found = _TOLD.search(params, max(0, len(params) - 64))
    return None if found is None else int(found[1])


def is_bare(params: bytes) -> bool:
    """Whether params of an update tell nothing but its position."""
    return len(params) < BARE_BYTES and EMPTY_UPDATE in params


def tells_beginning(params: bytes) -> bool:
    """Whether params of an update tell that the turn of a prompt of this client's own begins."""
    return len(params) < BARE_BYTES and PROMPT_BEGUN in params


def known_prompts_in(params: bytes) -> list[str]:
    """The prompts that a client knows which goes on: those that it sent and has no answer to."""
    return _ids_in(params, SENT)


def answers_in(params: bytes) -> list[str]:
    """The answers of a client which goes on, of which it does not know what became of them."""
    return _ids_in(params, ANSWERED)


def _ids_in(params: bytes, key: str) -> list[str]:
    meta = members(params).get("_meta", b"")
    raw = members(meta).get(key, b"[]") if meta.startswith(b"{") else b"[]"
    try:
        return msgspec.json.decode(raw, type=list[str])[:MOST_PROMPTS]
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise InvalidParamsError(f"{key}: a list of ids is required", f"_meta.{key}") from None


def behind(params: bytes, position: int, known: Sequence[str] = ()) -> bytes:
    """The params of `session/resume`, going on behind a position, for who knows these prompts."""
    meta = members(params).get("_meta", b"{}")
    said = {AFTER: b"%d" % position}
    if known:
        said[SENT] = msgspec.json.encode(known)
    meta = splice(meta if meta.startswith(b"{") else b"{}", said)
    return splice(params, {"_meta": meta})
