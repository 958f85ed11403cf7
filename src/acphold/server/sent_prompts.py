"""The prompts that a client has sent to the owner of a session, until they are answered.

The end of a line says nothing about the owner: the journal knows the session's owner, and since
when.

    known of it        when its owner has the session still, under the same epoch
    -----------------  ----------------------------------------------------------------------
    is not cancelled   sent again over the new line, under its id: the owner goes on with it,
                       begins it, or tells how it ended
    is cancelled       answered as cancelled, and the owner is told so

An owner that dies takes some of them with it. It puts a prompt of ours into the journal before its
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

# See docs/decisions.md, 19.

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Protocol, TypeGuard
from uuid import uuid4

from acphold.errors import HELD_ELSEWHERE, OwnerLostError, RemoteError
from acphold.rpc import Peer
from acphold.rpc.pending_call import Answer
from acphold.rpc.request import Request
from acphold.schema import PROMPT
from acphold.server.positions import Sent, sent_in, with_sent


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
    """See the module. `prompt` is its content blocks; `after` is an entry that was in the journal
    when it was sent to an owner with this `epoch`. `again` handles it if the line ends before the
    answer; `peer` is its client. `refusal` is the error of a process that is no longer the owner,
    and knows it before we do. `before` is the same prompt, sent over a line that was lost."""

    __slots__ = (
        *("_again", "_id", "_peer", "after", "epoch", "has_arrived", "id", "is_cancelled"),
        *("line", "prompt", "refusal", "request", "session_id", "_params"),
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

    @property
    def sent_id(self) -> str:
        """The client's own id for it; "" if it gave none."""
        sent = sent_in(self.request.params)
        return "" if sent is None else sent.id

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
