"""Positions in params, where a client resumes, and the prompts that it has sent since.

A position is the number of an entry that a client has received. A client that kept it can connect
again and gets only the entries after it. It names the position in `_meta` of `session/resume`,
where the protocol has room for it (spec v1, extensibility), together with the lineage of the
session, which it got with the answer that opened it: see `journal.lineage`.

When a line to an owner ends, some prompts that the client has sent over it may be unanswered. The
end of a line does not mean that the owner has ended: the journal knows the session's owner, and
since when.

    the prompt         if the same process still owns the session, under the same epoch
    -----------------  ----------------------------------------------------------------------
    is not cancelled   is sent again over the new line, under its id: the owner continues it,
                       begins it, or reports how it ended
    is cancelled       is answered as cancelled, and the owner is asked to cancel it

An owner that dies takes some prompts with it. It puts a prompt of ours into the journal before its
agent gets it, and reports the prompt's position to us: such a prompt has begun, and its turn ended
with its owner. A prompt that is not in the journal has reached no agent, and can be sent to the
next owner like a new one.

    the prompt         if another process owns the session now
    -----------------  ----------------------------------------------------------------------
    is on its way      the former owner can no longer journal it: if the journal does not have
                       it, it is sent again
    has arrived        is answered with an error: the turn was interrupted
    is cancelled       is answered as cancelled, whether it has arrived or not

The same applies if another process has taken the session from an owner that was stopped, whether
we notice that or the owner reports it.
"""

# See docs/decisions.md, 19 and 32.

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, TypeGuard
from uuid import uuid4

import msgspec
from msgspec import Struct

from acp_wire.rpc import Peer
from acp_wire.rpc.requests import Answer, Request
from acp_wire.schema import PROMPT
from acp_wire.schema.splice import UNREADABLE, in_meta, members, splice, with_meta, without_meta
from acphold.errors import HELD_ELSEWHERE, InvalidParamsError, OwnerLostError, RemoteError
from acphold.live.hub.frames import EMPTY_UPDATE, POSITION
from acphold.live.hub.questions import QUESTION_KEY, SENT
from acphold.live.server import bounds
from acphold.record.history.raw_update import PROMPT_BEGUN, string

AFTER = "acphold/after"
LINEAGE = "acphold/lineage"

BARE_BYTES = 1024
"""More bytes than params that have only a position; ids are shorter than this."""


def position_in(meta: Mapping[str, bytes]) -> int | None:
    """Return the position in the `_meta` of `session/resume`; InvalidParamsError if it is none."""
    if (raw := meta.get(AFTER)) is None:
        return None
    try:
        position = msgspec.json.decode(raw, type=int)
    except msgspec.MsgspecError:
        position = -1
    if position < 0:
        raise InvalidParamsError(
            f"{AFTER}: must be the `acphold/seq` of an update, not {raw[:40]!r}",
            field=f"_meta.{AFTER}",
        )
    return position


def lineage_in(meta: Mapping[str, bytes]) -> str | None:
    """Return the lineage in the `_meta` of params; None if there is none, InvalidParamsError if it
    is not a lineage."""
    raw = meta.get(LINEAGE)
    if raw is None or raw == b"null":
        return None
    lineage = string(raw)
    if lineage is None:
        raise InvalidParamsError(
            f"{LINEAGE}: must be the lineage from the answer that opened the session",
            field=f"_meta.{LINEAGE}",
        )
    return lineage


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


class _WithMeta(Struct, gc=False):
    meta: msgspec.Raw = msgspec.field(name="_meta", default=msgspec.Raw())


_with_meta = msgspec.json.Decoder(_WithMeta).decode


class Sent(Struct, frozen=True):
    """A client's own id for a prompt, so that it can send the prompt again.

    A repeated prompt has `after`, a position that the client had before it first sent the prompt.
    """

    id: str
    after: int | None = None


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
            f'{SENT}: must be {{"id": "…"}}, with an id of at most 100 characters',
            field=f"_meta.{SENT}",
        ) from None
    return sent


def with_sent(params: bytes, sent: Sent) -> bytes:
    """Return the params of a prompt with its client's id for it."""
    value = {"id": sent.id} if sent.after is None else {"id": sent.id, "after": sent.after}
    return with_meta(params, SENT, msgspec.json.encode(value))


_POSITION = re.compile(rb'"%b":(\d+)\}\}$' % POSITION.encode())
"""The end of the params of an update that carries its position."""


def position_of_update(params: bytes) -> int | None:
    """Return the position in the params of an update; None if there is none."""
    match = _POSITION.search(params, max(0, len(params) - 64))
    return None if match is None else int(match[1])


def is_only_position(params: bytes) -> bool:
    """Return True if the params of an update have only its position."""
    return len(params) < BARE_BYTES and EMPTY_UPDATE in params


def reports_begin(params: bytes) -> bool:
    """Return True if the params of an update report that the turn of this client's own prompt
    begins."""
    return len(params) < BARE_BYTES and PROMPT_BEGUN in params


def ids_in(meta: Mapping[str, bytes], key: str) -> list[str]:
    """Return the ids that a resuming client names: with SENT, of the prompts that it has sent and
    has no answer to; with ANSWERED, of its answers whose fate it does not know."""
    try:
        ids = msgspec.json.decode(meta.get(key, b"[]"), type=list[str])
        return ids[: bounds.SENT_PROMPTS]
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise InvalidParamsError(f"{key}: must be a list of ids", f"_meta.{key}") from None


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


if TYPE_CHECKING:  # only for types: making such classes would delay an editor's start

    class PromptLine(Protocol):
        """The line to the owner: `server.owner_line.OwnerLine`. `is_over` is set once it has
        gone."""

        prompts: SentPrompts
        is_over: asyncio.Event

        def ask(self, method: str, params: bytes, reply: Callable[[Answer], None]) -> int: ...

        def expect(self, id_: int) -> None:
            """Expect the answer to this request from now on."""

        def give_up(self, id_: int) -> None:
            """Stop waiting for the answer: `$/cancel_request`."""

        def withdraw(self, id_: int) -> None:
            """Drop the request: cancel it at the owner, and ignore its answer."""

    class PromptSender(Protocol):
        """Sends the prompts of a client to the owners of its sessions."""

        async def prompt_again(self, sent: SentPrompt) -> None:
            """Handle a prompt whose line ended before the answer."""


class SentPrompt:
    """One prompt of a client at an owner.

    `prompt` is its content blocks; `after` is an entry that was in the journal when it was sent to
    an owner with this `epoch`. `sender` handles it if the line ends before the answer; `peer` is
    its client. `refusal` is the error of a process that is no longer the owner, and knows that
    before we do. `id` names it to the owner, `sent_id` is the client's own id for it, "" if it gave
    none. `before` is the same prompt, sent over a line that was lost.
    """

    def __init__(
        self,
        line: PromptLine,
        peer: Peer,
        request: Request,
        session_id: str,
        prompt: bytes,
        after: int,
        epoch: int,
        sender: PromptSender,
        before: SentPrompt | None = None,
    ) -> None:
        self.line = line
        self.request = request
        self.session_id = session_id
        self.prompt = prompt
        self.epoch = epoch
        self.is_cancelled = False
        self.refusal: RemoteError | None = None
        self._peer = peer
        self._sender = sender
        self._request_id = 0
        named = find_sent(request.params)
        self.sent_id = "" if named is None else named.id
        if before is None:
            self.id = self.sent_id or uuid4().hex
            self.after = after
            self.has_arrived = False
            self._params = request.params if named else with_sent(request.params, Sent(self.id))
        else:
            self.id = before.id
            self.after = before.after
            self.has_arrived = before.has_arrived
            # The client may have repeated it itself already, from an earlier entry.
            earliest = before.after
            if named is not None and named.after is not None:
                earliest = min(earliest, named.after)
            self._params = with_sent(request.params, Sent(self.id, earliest))

    def send(self) -> None:
        """Send it to the owner, and the owner's answer to the client."""
        self.line.prompts.add(self)
        self.request.on_cancel = self._give_up
        try:
            self._request_id = self.line.ask(PROMPT.name, self._params, self._on_answer)
        except OwnerLostError as exc:
            self._on_answer(exc)

    def _on_answer(self, answer: Answer) -> None:
        if is_not_owner(answer):
            self.refusal = answer
        elif not isinstance(answer, OwnerLostError):
            self.line.prompts.remove(self)
            self.request.reply(answer)
            return
        if not self._peer.is_lost:
            self.request.on_cancel = None
            self._peer.continue_with(self.request, self._sender.prompt_again(self))

    def _give_up(self) -> None:
        self.is_cancelled = True
        if not self._peer.is_lost:  # the turn of a client that has gone continues
            self.line.give_up(self._request_id)

    def cancel(self) -> None:
        """Cancel it: the owner has to answer now."""
        self.is_cancelled = True
        self.line.expect(self._request_id)

    def lose(self) -> None:
        """Take it back: its owner has lost the session, and has not ended."""
        if self.refusal is not None:
            return  # the owner has reported that already
        self.line.withdraw(self._request_id)
        self._on_answer(OwnerLostError(PROMPT.name))


def is_not_owner(answer: Answer) -> TypeGuard[RemoteError]:
    """Return True if the process at the other end is not the owner, or no longer."""
    return isinstance(answer, RemoteError) and answer.code == HELD_ELSEWHERE


class SentPrompts:
    """The prompts of one client at one owner, in the order in which they were sent."""

    def __init__(self) -> None:
        self._open: dict[str, list[SentPrompt]] = {}
        self.looking = asyncio.Lock()
        """Held while a prompt is looked up in the journal."""

    def add(self, sent: SentPrompt) -> None:
        """Add a prompt that is sent."""
        self._open.setdefault(sent.session_id, []).append(sent)

    def remove(self, sent: SentPrompt) -> None:
        """Remove a prompt: it is answered, or its line has ended and it is handled elsewhere."""
        waiting = self._open[sent.session_id]
        waiting.remove(sent)
        if not waiting:
            del self._open[sent.session_id]

    def on_arrival(self, session_id: str) -> None:
        """Note that the oldest has arrived: the owner has reported a prompt's position, and handles
        them in wire order."""
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
