"""One client's requests that open a session: here, or at the process that owns it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

from msgspec.structs import replace

from acphold.agents.capabilities import INTRODUCTION, is_kept_in_front
from acphold.errors import AuthRequiredError
from acphold.hub import Attachment, Client, Conversation, Hub, Setup
from acphold.hub.choices import without_booleans
from acphold.hub.questions import SENT
from acphold.hub.router import Asker
from acphold.hub.session_list import AGENT
from acphold.mcp.servers import ProvidedServers, provided_ids
from acphold.rpc.requests import Request
from acphold.schema import LoadSessionRequest, NewSessionRequest, ResumeSessionRequest, encode
from acphold.schema.splice import members, with_meta
from acphold.server.checked_params import OpenRequest, checked_setup, named_agent, session_id_of
from acphold.server.owner_line import Opened, OwnerLine
from acphold.server.positions import (
    ANSWERED,
    ids_in,
    lineage_in,
    position_in,
    with_lineage,
    without_position,
)
from acphold.server.principals import Entrance, Principal
from acphold.server.remote_sessions import Openings, RemoteSessions
from acphold.tasks import end

OpenInHub = Callable[[Client, str, Setup, int | None], Awaitable[tuple[Conversation, Attachment]]]
"""`Hub.load` or `Hub.resume`."""


class OpeningClient(Client, Protocol):
    """The client that opens sessions."""

    known_prompts: set[str]


class SessionOpener:
    """Opens sessions for one client.

    `introduction` is the client's own, as JSON; `told` is what it was told of the agent, if it is
    the line of a server that has several. With `stays` the agent keeps running when the client goes
    (`acphold serve`).
    """

    def __init__(
        self,
        hub: Hub,
        client: OpeningClient,
        entrance: Entrance,
        openings: Openings,
        principal: Principal,
        limit: int,
        *,
        stays: bool,
    ) -> None:
        self.introduction = b"{}"
        self.told = b""
        self.remote = RemoteSessions(hub, client, limit, openings)
        self._hub = hub
        self._client = client
        self._entrance = entrance
        self._openings = openings
        self._principal = principal
        self._stays = stays
        self._asked: set[Request] = set()

    # -- requests -------------------------------------------------------------------------

    def while_theirs(
        self, open_: Callable[[Request], Awaitable[None]]
    ) -> Callable[[Request], Awaitable[None]]:
        """Return a handler for requests that open a session; it ends if the client signs out
        meanwhile."""

        async def handle(request: Request) -> None:
            self._asked.add(request)
            try:
                await open_(request)
            finally:
                self._asked.discard(request)

        return handle

    async def new(self, request: Request) -> None:
        made: str | None = None
        try:
            setup = self.setup(NewSessionRequest, request.params)
            conversation, result = await self._hub.new(setup, Asker(self._client, request.id))
            made = conversation.session.id
        finally:
            self._principal.note(request.method, made)
        conversation.session.row.is_listed_elsewhere = setup.is_listed_elsewhere
        attachment = conversation.session.attachments.attach(self._client, after=0, live_after=0)
        await conversation.session.be_followed(attachment)
        request.answer(self.opened(result, conversation, attachment))
        self.remote.go_live(conversation, attachment, setup)

    async def load(self, request: Request) -> None:
        setup = self.setup(LoadSessionRequest, request.params)
        # Anew, for open sessions keep the set: a replay has the client's own prompts, too.
        self._client.known_prompts = set()
        await self._open(request, setup, self._hub.load, 0)

    async def resume(self, request: Request) -> None:
        after = position_in(request.params)
        if after is not None:
            self._client.known_prompts |= set(ids_in(request.params, SENT))
        params = request.params if after is None else without_position(request.params)
        setup = self.setup(ResumeSessionRequest, params)
        lineage = None if after is None else lineage_in(request.params)
        resume = partial(self._hub.resume, after=after, lineage=lineage)
        await self._open(request, setup, resume, after)

    async def _open(
        self, request: Request, setup: Setup, open_: OpenInHub, after: int | None
    ) -> None:
        """Open a session for a client that has everything up to `after`; None if it wants only what
        follows."""
        session_id = session_id_of(request.params)

        async def here(over: int | None) -> None:
            conversation, attachment = await open_(self._client, session_id, setup, over)
            conversation.session.row.is_listed_elsewhere = setup.is_listed_elsewhere
            try:
                result = self.opened(conversation.opened_result, conversation, attachment)
                known, named = position_in(request.params), ids_in(request.params, ANSWERED)
                if known is not None and named:  # tell it which of its answers were accepted
                    whereabouts = self._hub.whereabouts
                    taken = await whereabouts.answered(conversation.id, {*named}, known)
                    result = with_meta(result, ANSWERED, encode(taken))
            except BaseException:
                conversation.put_back(attachment)
                raise
            request.answer(result)
            self.remote.go_live(conversation, attachment, setup)

        async def there(line: OwnerLine, epoch: int) -> None:
            # Nothing from now on may be missed, should the owner end at once.
            begin = await self._hub.whereabouts.last_seq(session_id) if after is None else after
            opening = Opened(setup, begin, epoch)
            await self.remote.forward_opening(line, request, session_id, opening)

        with self._openings.track(session_id):
            left = await self.remote.stop_reopening(session_id)
            try:
                await self.remote.open(session_id, here, there)
            except BaseException:
                if left is not None:  # give the client back what it had, if possible
                    self.remote.reopen(session_id, left)
                raise

    def setup(self, kind: type[OpenRequest], params: bytes) -> Setup:
        is_listed, params = is_kept_in_front(params)
        named, stays = None, False
        if self._stays:
            named, params = named_agent(params)
            may_prompt = "prompt" in self._principal.scopes
            stays = named is None and may_prompt and not self._client.offer.watches
        setup = checked_setup(kind, params, self._hub.agent.capabilities)
        setup = replace(
            setup,
            params=ProvidedServers(self._entrance.tenant).for_agent(setup.params),
            tenant=self._entrance.tenant or "",
            introduction=self.introduction,
            is_listed_elsewhere=is_listed,
            stays=stays,
        )
        for server_id in provided_ids(members(setup.params).get("mcpServers", b"null")):
            self._hub.router.providers[server_id] = self._client
        return setup

    async def abandon(self) -> None:
        """Refuse the requests under way: the client has signed out."""
        opening = []
        for request in self._asked:
            request.refuse(AuthRequiredError("who asked for this has signed out meanwhile"))
            if request.task is not None:
                opening.append(request.task)
        await end(*opening)

    # -- answers --------------------------------------------------------------------------

    def opened(self, result: bytes, conversation: Conversation, attachment: Attachment) -> bytes:
        """Return the answer that opens a session, for a client with this attachment."""
        shown = self.shown(result)
        if self.told:  # where this client is, another agent may be the one that it knows
            shown = with_meta(shown, AGENT, encode(self._hub.agent.key))
            shown = with_meta(shown, INTRODUCTION, self.told)
        if not attachment.positions:
            return shown
        return with_lineage(shown, conversation.session.lease.lineage)

    def shown(self, result: bytes) -> bytes:
        """Return a result as this client can read it."""
        return result if self._client.offer.booleans else without_booleans(result)
