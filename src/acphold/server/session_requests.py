"""One client's requests in sessions: each goes to the session's home, once the session is open.

A request that finds its home gone or silent goes to the next one. A prompt that was sent before its
line ended is sent again, unless the journal has it: see `sent_prompts`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from acphold.errors import (
    InterruptedTurnError,
    OwnerLostError,
    UnknownOutcomeError,
    UnknownSessionError,
)
from acphold.hub import Client, Hub
from acphold.hub.prompt_turn import CANCELLED
from acphold.rpc import Peer
from acphold.rpc.request import Request
from acphold.schema.methods import LEAVING
from acphold.schema.splice import session_id_in
from acphold.server.checked_params import prompt_in, session_id_of
from acphold.server.entrance import Entrance
from acphold.server.homes import LocalHome, RemoteHome, SessionHome
from acphold.server.positions import sent_in
from acphold.server.remote_sessions import Openings, RemoteSessions
from acphold.server.sent_prompts import SentPrompt

HOMES = 5
"""Most homes of a session that are asked, each after the one before has ended or fallen silent."""

Handler = Callable[[Request], Awaitable[bytes | None] | None]
"""Handles the requests of one method: see `ClientConnection`."""


class OwnSessions:
    """The sessions that one client may use: those of its tenant, and those shared with it.

    Rows that were looked up are remembered until `clear`, except for shares."""

    def __init__(
        self, hub: Hub, entrance: Entrance, remote: RemoteSessions, openings: Openings
    ) -> None:
        self._hub = hub
        self._entrance = entrance
        self._remote = remote
        self._openings = openings
        self._known: set[str] = set()  # sessions not held here
        self._watched: set[str] = set()

    def only_watches(self, session_id: str) -> bool:
        """Return True if a share lets the client read the session, but not answer in it."""
        return session_id in self._watched

    def is_known(self, params: bytes) -> bool:
        """Return True if the session that these params name, if any, is known to be open to this
        client."""
        if self._entrance.tenant is None or (session_id := session_id_in(params)) is None:
            return True
        if self._hub.holds(session_id):
            return self._entrance.principal.owns(self._hub.held(session_id).session.tenant)
        is_open = self._remote.line(session_id) is not None or self._openings.has(session_id)
        return is_open and session_id in self._known  # checked when the client opened it

    async def require(self, method: str, params: bytes) -> None:
        """Look up if the session is open to this client; a share is checked each time, for it may
        end.

        Raises UnknownSessionError, the same if there is no such session and if it may not know of
        it, and ForbiddenError.
        """
        session_id = session_id_in(params)
        if self.is_known(params) or session_id is None:
            return
        principal = self._entrance.principal
        try:
            row = await self._hub.whereabouts.row(session_id)
        except UnknownSessionError:
            if self._hub.agent.reads_journal or not principal.owns(""):
                raise
            return  # the agent's own
        principal.check_in(row, method, params)
        if principal.owns(row.tenant):
            self._known.add(session_id)
        elif "answer" in principal.scopes_in(row):
            self._watched.discard(session_id)
        else:
            self._watched.add(session_id)

    def clear(self) -> None:
        """Forget what is known: the client is somebody else now, or nobody."""
        self._known.clear()
        self._watched.clear()


class SessionRequests:
    """See the module. `shown` makes a result fit for the client."""

    def __init__(
        self,
        hub: Hub,
        client: Client,
        peer: Peer,
        entrance: Entrance,
        openings: Openings,
        remote: RemoteSessions,
        shown: Callable[[bytes], bytes],
    ) -> None:
        self._hub = hub
        self._client = client
        self._peer = peer
        self._entrance = entrance
        self._openings = openings
        self._remote = remote
        self._shown = shown
        self._in_order = asyncio.Lock()

    def prompt(self, request: Request) -> Awaitable[None] | None:
        session_id, prompt = prompt_in(request.params)
        if self._openings.has(session_id):
            return self._prompt_when_open(request, session_id, prompt)
        self.home(session_id).prompt(request, prompt, is_cancelled=False)
        return None

    async def _prompt_when_open(self, request: Request, session_id: str, prompt: bytes) -> None:
        is_cancelled = await self._openings.over(session_id, request)
        self.home(session_id).prompt(request, prompt, is_cancelled=is_cancelled)

    async def _prompt_again(self, sent: SentPrompt) -> None:
        """Send a prompt again whose line ended before the answer, or whose owner lost the session:
        see `sent_prompts`."""
        request, session_id = sent.request, sent.session_id
        try:
            if sent.refusal is not None:
                await self._remote.look_at(session_id)
            elif self._remote.line(session_id) is sent.line:
                await sent.line.is_over.wait()
            if sent.is_cancelled:
                request.answer(CANCELLED)  # a client that cancels does not wait for the owner
                await self._openings.over(session_id)
            else:
                sent.is_cancelled = await self._openings.over(session_id, request)
                if sent.is_cancelled:
                    request.answer(CANCELLED)
        finally:
            sent.line.prompts.remove(sent)
        line = self._remote.line(session_id)
        is_at_owner = line is not None and line.opened[session_id].epoch == sent.epoch
        if line is not None and is_at_owner and sent.refusal is None:
            RemoteHome(line, self._peer, session_id, self._prompt_again).go_on(sent)
            return
        if sent.is_cancelled:
            return
        if line is None and not self._hub.holds(session_id):
            raise UnknownOutcomeError
        # One at a time: a database answers in any order, but they must go on in theirs.
        async with sent.line.prompts.looking:
            has_begun = sent.has_arrived or await self._hub.whereabouts.has_prompt(
                session_id, sent.prompt, sent.after
            )
        if has_begun:
            raise InterruptedTurnError
        if sent.refusal is not None and self._remote.line(session_id) is sent.line:
            raise sent.refusal  # no other process has it
        await self._prompt_when_open(request, session_id, sent.prompt)

    async def cancel(self, params: bytes) -> None:
        session_id = session_id_of(params)
        sent = sent_in(params)
        self._openings.cancel(session_id)
        self._remote.cancel_prompts(session_id, None if sent is None else sent.id)
        is_open = self._hub.holds(session_id) or self._remote.line(session_id) is not None
        if is_open or not self._openings.has(session_id):
            await self.home(session_id).cancel(params)

    def home(self, session_id: str | None) -> SessionHome:
        """Return the home of a session, whether it is open to this client or not."""
        line = None if session_id is None else self._remote.line(session_id)
        if session_id is None or line is None:
            lost = self._sign_in_lost if self._entrance.wants_sign_in else None
            return LocalHome(
                self._hub, self._client, self._peer, session_id, self._shown, lost, self._in_order
            )
        return RemoteHome(line, self._peer, session_id, self._prompt_again)

    async def answer(self, request: Request) -> None:
        """Have the session's home answer, once the session is open.

        If the owner turns out to be gone or silent before it answers, the next home is asked. A
        request by which the client leaves the session ends any opening of it, without waiting.
        """
        session_id = session_id_in(request.params)
        if request.method in LEAVING:
            await self._remote.reopen_no_more(session_id_of(request.params))
        elif session_id is not None:
            await self._openings.over(session_id)
        for _ in range(HOMES - 1):
            with suppress(OwnerLostError):
                await self.home(session_id).answer(request)
                return
            if session_id is not None:  # its next home is being opened
                await self._openings.over(session_id)
        await self.home(session_id).answer(request)

    def _sign_in_lost(self) -> None:
        """Require a new sign-in: the agent asks the person who prompts here for one."""
        self._entrance.is_in = False
