"""Positions in params: where a client resumes, and where an update stands.

A position is the number of an entry that a client has been sent. A client that kept it can come
back over a new connection and gets what is behind it, without the whole history. It names the
position in `_meta` of `session/resume`, where the protocol has room for it (spec v1,
extensibility), together with the lineage of the session, which it got with the answer that opened
it: see `acphold.journal.lineage`.
"""

# See docs/decisions.md, 32.

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress

import msgspec
from msgspec import Struct

from acphold.errors import InvalidParamsError
from acphold.history.raw_update import PROMPT_BEGUN, string
from acphold.hub.client_request import QUESTION, SENT
from acphold.hub.frames import EMPTY_UPDATE, POSITION
from acphold.schema.splice import UNREADABLE, in_meta, members, splice, with_meta, without_meta

AFTER = "acphold/after"
LINEAGE = "acphold/lineage"

BARE_BYTES = 1024
"""More bytes than params that tell nothing but a position; ids are shorter than this."""


def position_in(params: bytes) -> int | None:
    """Return the position in the params of `session/resume`; InvalidParamsError if it is none."""
    if (raw := in_meta(params, AFTER)) is None:
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


def lineage_in(told: bytes) -> str | None:
    """Return the lineage in the `_meta` of params, or of a result; None if there is none.

    InvalidParamsError if it is not a lineage.
    """
    raw = in_meta(told, LINEAGE)
    if raw is None or raw == b"null":
        return None
    lineage = string(raw)
    if lineage is None:
        raise InvalidParamsError(
            f"{LINEAGE}: the one that came with the answer which opened the session is required",
            field=f"_meta.{LINEAGE}",
        )
    return lineage


def told_lineage(result: bytes) -> str | None:
    """Return the lineage in an answer; None if there is none, or it is not a lineage."""
    with suppress(InvalidParamsError):
        return lineage_in(result)
    return None


def with_lineage(result: bytes, lineage: str) -> bytes:
    """Return the answer that opens a session, with the lineage of its positions."""
    return with_meta(result, LINEAGE, msgspec.json.encode(lineage)) if lineage else result


def without_position(params: bytes) -> bytes:
    """Return the params for the agent: without our positions and ids of prompts."""
    return without_meta(params, AFTER, LINEAGE, SENT, ANSWERED)


def question_in(params: bytes) -> str:
    """Return the id under which this client was asked the question; "" if it has none."""
    return string(in_meta(params or b"{}", QUESTION)) or ""


ANSWERED = "acphold/answered"
"""In `session/resume`: the client's ids of answers whose fate it does not know; in the result: the
ids of those that were accepted."""

MOST_PROMPTS = 1000
"""More prompts than a client has waiting for answers."""


class _WithMeta(Struct, gc=False):
    meta: msgspec.Raw = msgspec.field(name="_meta", default=msgspec.Raw())


_with_meta = msgspec.json.Decoder(_WithMeta).decode


class Sent(Struct, frozen=True):
    """A client's own id for a prompt that it sends, so that it can send it again.

    With `after` it is sent again: that is a position that the client had before it first sent the
    prompt.
    """

    id: str
    after: int | None = None


def sent_in(params: bytes) -> Sent | None:
    """Return the Sent in the `_meta` of a prompt; InvalidParamsError if it cannot be read."""
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
    """Return the params of a prompt with its client's id for it."""
    said = {"id": sent.id} if sent.after is None else {"id": sent.id, "after": sent.after}
    return with_meta(params, SENT, msgspec.json.encode(said))


_TOLD = re.compile(rb'"%b":(\d+)\}\}$' % POSITION.encode())
"""The end of the params of an update that carries its position."""


def told_position(params: bytes) -> int | None:
    """Return the position in the params of an update; None if there is none."""
    found = _TOLD.search(params, max(0, len(params) - 64))
    return None if found is None else int(found[1])


def is_bare(params: bytes) -> bool:
    """Return True if the params of an update tell nothing but its position."""
    return len(params) < BARE_BYTES and EMPTY_UPDATE in params


def tells_beginning(params: bytes) -> bool:
    """Return True if the params of an update tell that the turn of this client's own prompt
    begins."""
    return len(params) < BARE_BYTES and PROMPT_BEGUN in params


def known_prompts_in(params: bytes) -> list[str]:
    """Return the prompts that a resuming client knows: it sent them and has no answer."""
    return _ids_in(params, SENT)


def answers_in(params: bytes) -> list[str]:
    """Return the answers of a resuming client whose fate it does not know."""
    return _ids_in(params, ANSWERED)


def _ids_in(params: bytes, key: str) -> list[str]:
    try:
        return msgspec.json.decode(in_meta(params, key) or b"[]", type=list[str])[:MOST_PROMPTS]
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise InvalidParamsError(f"{key}: a list of ids is required", f"_meta.{key}") from None


def behind(
    params: bytes, position: int, known: Sequence[str] = (), lineage: str | None = None
) -> bytes:
    """Return the params of `session/resume` behind a position, for a client that knows these
    prompts."""
    meta = members(params).get("_meta", b"{}")
    said: dict[str, bytes | None] = {
        AFTER: b"%d" % position,
        LINEAGE: None if lineage is None else msgspec.json.encode(lineage),
    }
    if known:
        said[SENT] = msgspec.json.encode(known)
    meta = splice(meta if meta.startswith(b"{") else b"{}", said)
    return splice(params, {"_meta": meta})
