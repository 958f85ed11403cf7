"""One client's requests that open a session: here, or at the process that owns it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

from msgspec.structs import replace

from acphold.agents.capabilities import INTRODUCTION, is_kept_in_front
from acphold.errors import AuthRequiredError
from acphold.hub import Attachment, Client, Conversation, Hub, Setup
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
from acphold.server.session_requests import as_readable
from acphold.tasks import end

OpenInHub = Callable[[Client, str, Setup, int | None], Awaitable[tuple[Conversation, Attachment]]]
"""`Hub.load` or `Hub.resume`."""


class OpeningClient(Client, Protocol):
    """The client that opens sessions."""

    known_prompts: set[str]


class SessionOpener:
    """Opens sessions for one client.

    `introduction` is the client's own, as JSON. If the client is the line of a server with several
    agents, `agent_introduction` is the one that it got of this agent. With `stays` the agent keeps
    running when the client goes (`acphold serve`).
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
        self.agent_introduction = b""
        self.remote = RemoteSessions(hub, client, limit, openings)
        self._hub = hub
        self._client = client
        self._entrance = entrance
        self._openings = openings
        self._principal = principal
        self._stays = stays
        self._in_progress: set[Request] = set()

    # -- requests -------------------------------------------------------------------------

    def until_sign_out(
        self, open_: Callable[[Request], Awaitable[None]]
    ) -> Callable[[Request], Awaitable[None]]:
        """Return a handler for requests that open a session; it is cancelled if the client signs
        out meanwhile."""

        async def handle(request: Request) -> None:
            self._in_progress.add(request)
            try:
                await open_(request)
            finally:
                self._in_progress.discard(request)

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
        await conversation.session.note_follower(attachment)
        request.answer(self.opened(result, conversation, attachment))
        self.remote.go_live(conversation, attachment, setup)

    async def load(self, request: Request) -> None:
        setup = self.setup(LoadSessionRequest, request.params)
        # A new set, because open sessions keep theirs: a replay has the client's own prompts, too.
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
        """Open a session for a client that has all entries up to `after`; with None it gets only
        new ones."""
        session_id = session_id_of(request.params)

        async def open_locally(silent_epoch: int | None) -> None:
            conversation, attachment = await open_(self._client, session_id, setup, silent_epoch)
            conversation.session.row.is_listed_elsewhere = setup.is_listed_elsewhere
            try:
                result = self.opened(conversation.opened_result, conversation, attachment)
                position, ids = position_in(request.params), ids_in(request.params, ANSWERED)
                if position is not None and ids:  # report which of its answers were accepted
                    whereabouts = self._hub.whereabouts
                    accepted = await whereabouts.answered(conversation.id, {*ids}, position)
                    result = with_meta(result, ANSWERED, encode(accepted))
            except BaseException:
                conversation.put_back(attachment)
                raise
            request.answer(result)
            self.remote.go_live(conversation, attachment, setup)

        async def open_at_owner(line: OwnerLine, epoch: int) -> None:
            # The client must not miss an entry from now on, even if the owner ends at once.
            position = await self._hub.whereabouts.last_seq(session_id) if after is None else after
            opening = Opened(setup, position, epoch)
            await self.remote.forward_opening(line, request, session_id, opening)

        with self._openings.track(session_id):
            interrupted = await self.remote.stop_reopening(session_id)
            try:
                await self.remote.open(session_id, open_locally, open_at_owner)
            except BaseException:
                if interrupted is not None:
                    self.remote.reopen(session_id, interrupted)
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
        """Refuse the requests in progress: the client has signed out."""
        tasks = []
        for request in self._in_progress:
            request.refuse(AuthRequiredError("this client has signed out meanwhile"))
            if request.task is not None:
                tasks.append(request.task)
        await end(*tasks)

    # -- answers --------------------------------------------------------------------------

    def opened(self, result: bytes, conversation: Conversation, attachment: Attachment) -> bytes:
        """Return the answer that opens a session, for a client with this attachment."""
        result = as_readable(result, self._client)
        if self.agent_introduction:  # `initialize` introduced another agent to this client
            result = with_meta(result, AGENT, encode(self._hub.agent.key))
            result = with_meta(result, INTRODUCTION, self.agent_introduction)
        if not attachment.positions:
            return result
        return with_lineage(result, conversation.session.lease.lineage)
