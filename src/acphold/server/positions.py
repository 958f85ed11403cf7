"""Positions in params, where a client resumes, and the prompts that it has sent since.

A position is the number of an entry that a client has been sent. A client that kept it can come
back over a new connection and gets what is behind it, without the whole history. It names the
position in `_meta` of `session/resume`, where the protocol has room for it (spec v1,
extensibility), together with the lineage of the session, which it got with the answer that opened
it: see `acphold.journal.lineage`.

Of the prompts that a client has sent over a line to the owner, some may be unanswered when that
line ends. Its end says nothing about the owner: the journal knows the session's owner, and since
when.

    known of it        when its owner has the session still, under the same epoch
    -----------------  ----------------------------------------------------------------------
    is not cancelled   sent again over the new line, under its id: the owner goes on with it,
                       begins it, or tells how it ended
    is cancelled       answered as cancelled, and the owner is told so

An owner that dies takes some prompts with it. It puts a prompt of ours into the journal before its
agent gets it, and tells us the prompt's position: a prompt that arrived so has begun, and ended
with its owner. A prompt that is not in the journal has reached no agent, and can be sent to the
next owner like a new one.

    known of it        when another process has the session
    -----------------  ----------------------------------------------------------------------
    on its way         the former owner can no longer journal it: looked for in the journal,
                       and sent again if it is not there
    has arrived        its client is told that the turn was interrupted
    is cancelled       answered as cancelled, whether it has arrived or not

The same goes if another process has taken the session from an owner that was stopped, whether we
notice that or the owner says so.
"""

# See docs/decisions.md, 19 and 32.

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Protocol, TypeGuard
from uuid import uuid4

import msgspec
from msgspec import Struct

from acphold.errors import HELD_ELSEWHERE, InvalidParamsError, OwnerLostError, RemoteError
from acphold.history.raw_update import PROMPT_BEGUN, string
from acphold.hub.frames import EMPTY_UPDATE, POSITION
from acphold.hub.questions import QUESTION_KEY, SENT
from acphold.rpc import Peer
from acphold.rpc.requests import Answer, Request
from acphold.schema import PROMPT
from acphold.schema.splice import UNREADABLE, in_meta, members, splice, with_meta, without_meta
from acphold.server import bounds

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


def lineage_of_answer(result: bytes) -> str | None:
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
    return string(in_meta(params or b"{}", QUESTION_KEY)) or ""


ANSWERED = "acphold/answered"
"""In `session/resume`: the client's ids of answers whose fate it does not know; in the result: the
ids of those that were accepted."""


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


def position_of_update(params: bytes) -> int | None:
    """Return the position in the params of an update; None if there is none."""
    found = _TOLD.search(params, max(0, len(params) - 64))
    return None if found is None else int(found[1])


def is_only_position(params: bytes) -> bool:
    """Return True if the params of an update tell nothing but its position."""
    return len(params) < BARE_BYTES and EMPTY_UPDATE in params


def reports_begin(params: bytes) -> bool:
    """Return True if the params of an update tell that the turn of this client's own prompt
    begins."""
    return len(params) < BARE_BYTES and PROMPT_BEGUN in params


def ids_in(params: bytes, key: str) -> list[str]:
    """Return the ids that a resuming client names: with SENT, of the prompts that it has sent and
    has no answer to; with ANSWERED, of its answers whose fate it does not know."""
    try:
        ids = msgspec.json.decode(in_meta(params, key) or b"[]", type=list[str])
        return ids[: bounds.SENT_PROMPTS]
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise InvalidParamsError(f"{key}: a list of ids is required", f"_meta.{key}") from None


def resume_params(
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


class PromptLine(Protocol):
    """The line to the owner: `server.owner_line.OwnerLine`. `is_over` is set once it has gone."""

    prompts: SentPrompts
    is_over: asyncio.Event

    def ask(self, method: str, params: bytes, reply: Callable[[Answer], None]) -> int: ...

    def expect(self, id_: int) -> None:
        """Expect the answer to this request from now on."""

    def give_up(self, id_: int) -> None:
        """Stop waiting for the answer: `$/cancel_request`."""

    def withdraw(self, id_: int) -> None:
        """Drop the answer; the owner is not told."""


class SentPrompt:
    """One prompt of a client at an owner.

    `prompt` is its content blocks; `after` is an entry that was in the journal when it was sent to
    an owner with this `epoch`. `again` handles it if the line ends before the answer; `peer` is its
    client. `refusal` is the error of a process that is no longer the owner, and knows it before we
    do. `sent_id` is the client's own id for it, "" if it gave none. `before` is the same prompt,
    sent over a line that was lost.
    """

    __slots__ = (
        *("_again", "_id", "_peer", "after", "epoch", "has_arrived", "id", "is_cancelled"),
        *("line", "prompt", "refusal", "request", "sent_id", "session_id", "_params"),
    )

    def __init__(
        self,
        line: PromptLine,
        peer: Peer,
        request: Request,
        session_id: str,
        prompt: bytes,
        after: int,
        epoch: int,
        again: Callable[[SentPrompt], Coroutine[None, None, None]],
        before: SentPrompt | None = None,
    ) -> None:
        self.line = line
        self.request = request
        self._peer = peer
        self.session_id = session_id
        self.prompt = prompt
        self.after = after
        self.epoch = epoch
        self.has_arrived = False
        self.is_cancelled = False
        named = sent_in(request.params)
        self.sent_id = "" if named is None else named.id
        self.id = uuid4().hex if named is None else named.id
        self._params = request.params
        if before is not None:
            self.id, self.after, self.has_arrived = before.id, before.after, before.has_arrived
            # Its client may have sent it over an earlier connection, and said behind which entry.
            far = None if named is None else named.after
            behind = self.after if far is None else min(self.after, far)
            self._params = with_sent(request.params, Sent(self.id, behind))
        elif named is None:
            self._params = with_sent(request.params, Sent(self.id))
        self.refusal: RemoteError | None = None
        self._again = again
        self._id = 0

    def send(self) -> None:
        """Send it, and its answer back whenever that comes."""
        self.line.prompts.add(self)
        self.request.on_cancel = self._give_up
        try:
            self._id = self.line.ask(PROMPT.name, self._params, self._answered)
        except OwnerLostError as exc:
            self._answered(exc)

    def _answered(self, answer: Answer) -> None:
        if is_not_owner(answer):
            self.refusal = answer
        elif not isinstance(answer, OwnerLostError):
            self.line.prompts.remove(self)
            self.request.reply(answer)
            return
        if not self._peer.is_lost:
            self.request.on_cancel = None
            self._peer.go_on(self.request, self._again(self))

    def _give_up(self) -> None:
        self.is_cancelled = True
        if not self._peer.is_lost:  # the turn of a client that has gone goes on
            self.line.give_up(self._id)

    def cancel(self) -> None:
        """Cancel it: the owner has to answer now."""
        self.is_cancelled = True
        self.line.expect(self._id)

    def lose(self) -> None:
        """Take it back: its owner has lost the session, and has not ended."""
        if self.refusal is not None:
            return  # the owner has said so
        self.line.withdraw(self._id)
        self._answered(OwnerLostError(PROMPT.name))


def is_not_owner(answer: Answer) -> TypeGuard[RemoteError]:
    """Return True if the process at the other end says that it is not the owner, or no longer."""
    return isinstance(answer, RemoteError) and answer.code == HELD_ELSEWHERE


class SentPrompts:
    """The prompts of one client at one owner, in the order in which they were sent."""

    def __init__(self) -> None:
        self._open: dict[str, list[SentPrompt]] = {}
        self.looking = asyncio.Lock()
        """Held while the fate of a prompt is looked up."""

    def add(self, sent: SentPrompt) -> None:
        """Add a prompt that is sent."""
        self._open.setdefault(sent.session_id, []).append(sent)

    def remove(self, sent: SentPrompt) -> None:
        """Remove a prompt: it is answered, or its fate is known after its owner's end."""
        waiting = self._open[sent.session_id]
        waiting.remove(sent)
        if not waiting:
            del self._open[sent.session_id]

    def arrived(self, session_id: str) -> None:
        """Note that the oldest has arrived: the owner told a prompt's position, and takes them in
        wire order."""
        for sent in self._open.get(session_id, ()):
            if not sent.has_arrived:
                sent.has_arrived = True
                return

    def ids(self, session_id: str) -> list[str]:
        """Return the owner's ids of those in this session."""
        return [sent.id for sent in self._open.get(session_id, ())]

    def lose(self, session_id: str) -> None:
        """Take back those in a session that another process has taken: its owner can begin none."""
        for sent in tuple(self._open.get(session_id, ())):
            sent.lose()

    def cancel(self, session_id: str, sent_id: str | None = None) -> None:
        """Cancel the client's prompts in this session, or the one with its own id `sent_id`."""
        for sent in self._open.get(session_id, ()):
            if sent_id in (None, sent.sent_id):
                sent.cancel()
