"""One client's requests that open a session: here, or at the process that owns it.

A session has one owner. If a client opens a session that another process owns, its requests go over
a line to that owner (`server.remote_sessions`). When the owner ends, this process opens the session
again for the client: itself, or at another process that was quicker to take the session. The client
need not do anything. The same happens when another process takes the session from an owner that was
stopped.

A line always leads to the owner itself. A process that is asked over a line to open a session that
it does not own refuses, and the client's own process looks for the owner. Otherwise a prompt could
reach an owner by two ways.

The owner may change during this search: it has ended, or another process was quicker. An owner that
cannot be reached loses the session only if it is known to be silent or to have ended.
"""

# See docs/decisions.md, 16.

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from acp_wire.rpc.eager_tasks import EagerTasks
from acp_wire.rpc.requests import Request
from acp_wire.rpc.wire_errors import incident
from acp_wire.schema import (
    RESUME_SESSION,
    LoadSessionRequest,
    NewSessionRequest,
    ResumeSessionRequest,
    encode,
)
from acp_wire.schema.splice import members, splice, with_meta
from acp_wire.tasks import end
from acp_wire.transports.addresses import are_here, can_be_tried
from acphold import errors
from acphold.journal_location import is_same_folder
from acphold.live.agents.capabilities import (
    INTRODUCTION,
    KEPT_IN_FRONT,
    answer_without_agent,
)
from acphold.live.hub.agent_session import Setup
from acphold.live.hub.annotations import AGENT, LEFT_OUT, notice
from acphold.live.hub.attachment import Attachment, Client
from acphold.live.hub.choices import without_booleans
from acphold.live.hub.conversation import Conversation
from acphold.live.hub.desk import Desk
from acphold.live.hub.questions import SENT
from acphold.live.hub.router import Asker
from acphold.live.mcp.servers import ProvidedServers, server_ids
from acphold.live.server import bounds
from acphold.live.server.checked_params import OpenRequest, read_setup, session_id_of
from acphold.live.server.open_params import READS, RESUMING, OpenParams
from acphold.live.server.openings import Opening, Openings
from acphold.live.server.positions import (
    AFTER,
    ANSWERED,
    LINEAGE,
    ids_in,
    lineage_in,
    lineage_of_answer,
    position_in,
    resume_params,
    with_lineage,
)
from acphold.live.server.principals import Entrance, Principal
from acphold.live.server.remote_sessions import BACK, BACK_HOW, RemoteSessions

if TYPE_CHECKING:  # an editor waits for the start, and few sessions are live elsewhere
    from acphold.live.server.owner_line import Opened, OwnerLine

log = logging.getLogger(__name__)

AWAY = "This session cannot be reached at the moment"
AWAY_HOW = (
    "acphold is looking for the process that owns it, for up to a minute. Your messages wait. If "
    "that process has ended, the session continues without it."
)
GAP_HOW = (
    "This session has moved to another process, which has merged the updates that you had not "
    "received yet with earlier ones. To see them, load the session again."
)

NOT_OPEN = "This session is not open any more"
NOT_OPEN_HOW = (
    "The process that owned it no longer does, and it could not be opened again: {}. To continue, "
    "load the session again."
)

NO_SERVERS = "MCP servers of this session were left out"
NO_SERVERS_HOW = (
    "Only its owner's client can give it MCP servers, and their secrets are kept nowhere else. "
    "They are there again once the owner has opened it."
)

OpenAtDesk = Callable[[Client, str, Setup, int | None], Awaitable[tuple[Conversation, Attachment]]]
"""`Desk.load` or `Desk.resume`."""

OpenLocally = Callable[[int | None], Awaitable[None]]
"""Opens a session in this process; the number is the epoch of a silent owner's lease to take over.
Raises HeldElsewhereError, and LeaseLostError if the client has seen nothing of the session yet."""

OpenAtOwner = Callable[["OwnerLine", int], Awaitable[None]]
"""Opens a session over the line to its owner, whose lease has this epoch."""


def as_readable(result: bytes, client: Client) -> bytes:
    """Return the result of a request without options that this client cannot read."""
    return result if client.offer.booleans else without_booleans(result)


class SessionOpener:
    """Opens sessions for one client.

    `introduction` is the client's own, as JSON. If the client is the line of another process,
    `introduce` makes its introduction of the agent's answer to `initialize`. With `stays` the agent
    keeps running when the client goes (`acphold serve`).
    """

    def __init__(
        self,
        desk: Desk,
        client: Client,
        entrance: Entrance,
        principal: Principal,
        limit: int,
        *,
        stays: bool,
    ) -> None:
        self.introduction = b"{}"
        self.introduce: Callable[[bytes], bytes] | None = None
        self.openings = Openings()
        self.remote = RemoteSessions(desk, client, limit, self.reopen)
        self._desk = desk
        self._client = client
        self._entrance = entrance
        self._principal = principal
        self._stays = stays
        self._in_progress: set[Request] = set()
        self._tasks = EagerTasks()
        self._reopening: dict[str, tuple[asyncio.Task[None], Opened]] = {}

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
            if "prompt" not in self._client.scopes_in(""):
                raise errors.ForbiddenError(request.method, "prompt")  # it starts the agent
            setup = await self.setup(NewSessionRequest, OpenParams.decode(request.params))
            conversation, result = await self._desk.new(setup, Asker(self._client, request.id))
            made = conversation.session.id
        finally:
            self._principal.note(request.method, made)
        conversation.session.row.is_listed_elsewhere = setup.is_listed_elsewhere
        attachment = conversation.session.attachments.attach(self._client, after=0, live_after=0)
        await conversation.session.note_follower(attachment)
        request.answer(self.answer(result, conversation, attachment))
        self.go_live(conversation, attachment, setup)

    async def load(self, request: Request) -> None:
        async with self._track(request) as (asked, before):
            setup = await self.setup(LoadSessionRequest, asked)
            # A new set, because open sessions keep theirs: a replay has the client's own prompts,
            # too.
            self._client.known_prompts = set()
            await self._open(request, asked, before, setup, self._desk.load, 0)

    async def resume(self, request: Request) -> None:
        async with self._track(request) as (asked, before):
            after, lineage, plain = position_in(asked.meta), None, asked
            if after is not None:
                self._client.known_prompts |= set(ids_in(asked.meta, SENT))
                lineage = lineage_in(asked.meta)
                plain = asked.without(AFTER, LINEAGE, SENT, ANSWERED)
            setup = await self.setup(ResumeSessionRequest, plain)
            resume = partial(self._desk.resume, after=after, lineage=lineage)
            await self._open(request, asked, before, setup, resume, after)

    @asynccontextmanager
    async def _track(self, request: Request) -> AsyncIterator[tuple[OpenParams, Opening | None]]:
        """Yield so much of a request as the client may say in the session, and an earlier opening
        of it that has not ended; for the block the session is being opened.

        Whoever may not set it up gets its folders as they are. What is left out goes to no owner
        either. Raises UnknownSessionError if neither the journal nor the agent has the session.
        """
        asked = OpenParams.decode(request.params)
        session_id = session_id_of(request.params) if asked.session_id is None else asked.session_id
        with self.openings.track(session_id) as before:
            scopes = self._client.scopes_in(session_id)
            if "manage" not in scopes:
                said, left_out = asked.restrict(scopes)
                cwd, additional_directories = await self._desk.folders(session_id)
                if asked.cwd is not None and not is_same_folder(cwd, asked.cwd):
                    left_out = ("cwd", *left_out)
                self._principal.leaves_out(request.method, session_id, left_out)
                asked = replace(said.set_up(cwd, additional_directories), left_out=left_out)
                request.params = asked.params
            yield asked, before

    async def _open(
        self,
        request: Request,
        asked: OpenParams,
        before: Opening | None,
        setup: Setup,
        open_: OpenAtDesk,
        after: int | None,
    ) -> None:
        """Open a session for a client that has all entries up to `after`; with None it gets only
        new ones. It waits for the opening `before`."""
        session_id = asked.session_id or ""

        async def open_locally(silent_epoch: int | None) -> None:
            conversation, attachment = await open_(self._client, session_id, setup, silent_epoch)
            if not setup.joins:
                conversation.session.row.is_listed_elsewhere = setup.is_listed_elsewhere
            try:
                result = self.answer(conversation.load_result, conversation, attachment)
                position, ids = position_in(asked.meta), ids_in(asked.meta, ANSWERED)
                if position is not None and ids:  # report which of its answers were accepted
                    whereabouts = self._desk.hub.whereabouts
                    accepted = await whereabouts.find_accepted(conversation.id, {*ids}, position)
                    result = with_meta(result, ANSWERED, encode(accepted))
            except BaseException:
                conversation.put_back(attachment)
                raise
            request.answer(result)
            lacks_servers = conversation.side.setup.joins and conversation.waiting.is_awake
            if setup.joins and (lacks_servers or "mcpServers" in asked.left_out):
                self._tell_of_servers(session_id)
            self.go_live(conversation, attachment, setup)

        async def open_at_owner(line: OwnerLine, epoch: int) -> None:
            from acphold.live.server.owner_line import Opened

            # The client must not miss an entry from now on, even if the owner ends at once.
            position = (
                await self._desk.hub.whereabouts.last_seq(session_id) if after is None else after
            )
            opening = Opened(setup, position, epoch)
            # The replay comes before the answer, and has positions already.
            begun = line.opened.begin(session_id, opening)

            def on_opened(result: bytes) -> None:
                opening.is_open = True
                opening.lineage = lineage_of_answer(result)
                self.remote.forget(session_id, but=line)
                if "mcpServers" in asked.left_out:
                    self._tell_of_servers(session_id)

            try:
                await line.forward(request, on_opened, lambda: opening.position == position)
            finally:
                begun.undo()  # no effect on a session that was opened

        interrupted = await self.stop_reopening(session_id)
        try:
            if before is not None:
                # One after the other: attaching anew ends the replay of the opening before.
                await before.wait_with_earlier()
            await self._search(session_id, open_locally, open_at_owner)
        except BaseException:
            if interrupted is not None:
                self.reopen(session_id, interrupted)
            raise

    async def _search(
        self, session_id: str, open_locally: OpenLocally, open_at_owner: OpenAtOwner
    ) -> None:
        """Open a session at its owner; in this process if it has none, or the owner is silent.

        If the client is a line itself, HeldElsewhereError names the owner instead. Raises
        UnreachableOwnerError if its owner runs and cannot be reached from here.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        silent_epoch: int | None = None
        why = "its owner keeps changing"
        pause = 0.0
        for _ in range(bounds.OWNER_ATTEMPTS):
            try:
                await open_locally(silent_epoch)
                self.remote.forget(session_id)
                return
            except errors.LeaseLostError as exc:
                # Lost while it was being opened; the client has seen nothing of it.
                if exc.deleted:
                    raise
                log.info("%s; looking for its new owner", exc)
                continue
            except errors.HeldElsewhereError as exc:
                if self._client.offer.is_line:
                    raise
                held = exc
            problem = await self._try_owner(held, open_at_owner)
            if problem is None:
                return
            step = next_step(held, problem)
            if step == "take over":
                log.info("taking over session %s: %s", session_id, problem)
                silent_epoch = held.epoch
            elif step == "wait":
                why = f"it is open in {held.where}, which cannot be reached from here: {problem}"
                limit = (
                    bounds.OWNER_SEARCH_SECONDS
                    if can_be_tried(held.addresses)
                    else bounds.UNSEEN_OWNER_SECONDS
                )
                if loop.time() - began > limit or (held.owner_id and not held.addresses):
                    break
                if not pause:
                    log.info("session %s: %s", session_id, why)
                await asyncio.sleep(pause)
                pause = min(bounds.OWNER_WAIT_SECONDS, pause * 2 or 0.01)
        raise errors.UnreachableOwnerError(session_id, why)

    async def _try_owner(
        self, held: errors.HeldElsewhereError, open_at_owner: OpenAtOwner
    ) -> errors.AcpError | None:
        """Open a session at its owner; return the problem if the owner cannot be reached, or is
        lost."""
        try:
            line = await self.remote.reach(held)
        except errors.ConnectionLostError as exc:
            return exc
        try:
            await open_at_owner(line, held.epoch)
        except errors.OwnerLostError as exc:  # it has ended, or fallen silent
            return exc
        return None

    async def setup(self, kind: type[OpenRequest], asked: OpenParams) -> Setup:
        """Return the setup in the params of a request that opens a session; raises
        InvalidParamsError."""
        stays = False
        scopes = self._client.scopes_in(asked.session_id or "")
        joins = "manage" not in scopes
        if self._stays:
            # Another agent reads the whole conversation: a guest takes it nowhere.
            is_moved = asked.agent is not None and not joins
            stays = not is_moved and "prompt" in scopes and not self._client.offer.watches
            asked = asked.without(AGENT)
        plain = asked.without(*(RESUMING if joins else ()), KEPT_IN_FRONT, READS)
        in_front = asked.journal_in_front
        provided = ProvidedServers(self._entrance.tenant)
        agent = self._desk.agent_in(asked.session_id)
        path = agent.surroundings.path
        setup = read_setup(kind, plain, agent.capabilities, provided, path)
        if b'"acp"' in setup.params:
            for server_id in server_ids(members(setup.params).get("mcpServers", b"null")):
                self._desk.provide(server_id, self._client, asked.session_id)
        return replace(
            setup,
            tenant=self._entrance.tenant or "",
            introduction=self.introduction,
            is_listed_elsewhere=in_front is not None
            and in_front == await self._desk.hub.journal_identity(),
            stays=stays,
            joins=joins,
        )

    def _tell_of_servers(self, session_id: str) -> None:
        """Tell the client that MCP servers were left out, if it is no process of ours."""
        if not self._client.offer.is_line:
            self.remote.notify(session_id, notice(NO_SERVERS, NO_SERVERS_HOW))

    async def abandon(self) -> None:
        """Refuse the requests in progress: the client has signed out."""
        tasks = []
        for request in self._in_progress:
            request.refuse(errors.AuthRequiredError("this client has signed out meanwhile"))
            if request.task is not None:
                tasks.append(request.task)
        await end(*tasks)

    def go_live(self, conversation: Conversation, attachment: Attachment, setup: Setup) -> None:
        """Let the client's attachment go live: it has the answer. If the session moves, the client
        follows it."""
        if not self._client.offer.is_line:
            session_id, lineage = conversation.id, conversation.session.lease.lineage

            def follow(told: int) -> None:
                from acphold.live.server.owner_line import Opened

                opened = Opened(setup, told, lineage=lineage)
                opened.is_open = True
                self._start_reopening(session_id, opened, self._follow(session_id, opened))

            attachment.on_moved = follow
        conversation.open_to(attachment)

    async def _follow(self, session_id: str, opened: Opened) -> None:
        try:
            followable = await self._desk.hub.whereabouts.can_be_followed(session_id)
        except errors.AcpError as exc:
            log.warning("cannot find the owner of session %s: %s", session_id, exc)
            return
        if followable:  # otherwise the two would take it from each other for ever
            await self._reopen_and_notify(session_id, opened)

    # -- opened again ---------------------------------------------------------------------

    def reopen(self, session_id: str, opened: Opened) -> None:
        """Start to open a session again, as the client had it."""
        self._start_reopening(session_id, opened, self._reopen_and_notify(session_id, opened))

    def _start_reopening(
        self, session_id: str, opened: Opened, work: Coroutine[None, None, None]
    ) -> None:
        if self.remote.is_over:
            work.close()
            return  # the client has gone
        # In this step: from now on, messages for the session wait until it is open.
        task = self._tasks.begin(work, "reopen session")
        if task is None:
            return
        self._reopening[session_id] = (task, opened)

        def on_done(task: asyncio.Task[None]) -> None:
            if self._reopening.get(session_id) == (task, opened):
                del self._reopening[session_id]

        task.add_done_callback(on_done)

    async def stop_reopening(self, session_id: str) -> Opened | None:
        """Stop opening a session again: the client itself opens, closes or deletes it.

        Return the session if it is not open yet: if the client's request fails, pass it to
        `reopen`.
        """
        task, opened = self._reopening.get(session_id, (None, None))
        await end(task)
        return opened

    async def _reopen_and_notify(self, session_id: str, opened: Opened) -> None:
        is_reported = False

        def report_away() -> None:
            nonlocal is_reported
            is_reported = True
            self.remote.notify(session_id, notice(AWAY, AWAY_HOW, "warning"))

        timer = asyncio.get_running_loop().call_later(bounds.SILENCE_SECONDS, report_away)
        try:
            try:
                await self._reopen(session_id, opened)
            except errors.AcpError as exc:
                if exc.code != errors.INVALID_PARAMS:
                    raise
                # Another process had the session meanwhile, and settled it.
                log.warning("session %s: %s", session_id, exc)
                row = await self._desk.hub.whereabouts.row(session_id)
                opened.position, opened.lineage = row.last_seq, row.lineage
                await self._reopen(session_id, opened)
                self.remote.notify(session_id, notice(LEFT_OUT, GAP_HOW, "warning"))
            if is_reported:
                self.remote.notify(session_id, notice(BACK, BACK_HOW))
        except Exception as exc:  # nobody awaits this task; report it to the client
            why = exc if isinstance(exc, errors.AcpError) else incident(exc)
            log.warning("session %s is not open any more: %s", session_id, why)
            self.remote.notify(session_id, notice(NOT_OPEN, NOT_OPEN_HOW.format(why), "warning"))
        finally:
            timer.cancel()

    async def _reopen(self, session_id: str, opened: Opened) -> None:
        """Open a session as the client had it, here or at its owner; try again if the problem may
        be temporary."""

        async def open_locally(silent_epoch: int | None) -> None:
            setup, after, lineage = opened.setup, opened.position, opened.lineage
            conversation, attachment = await self._desk.resume(
                self._client, session_id, setup, silent_epoch, after=after, lineage=lineage
            )
            self.go_live(conversation, attachment, setup)

        async def open_at_owner(line: OwnerLine, epoch: int) -> None:
            def on_opened(result: bytes) -> None:
                line.opened[session_id] = opened
                opened.lineage = lineage_of_answer(result)
                self.remote.forget(session_id, but=line)

            opened.epoch = epoch
            prompt_ids = self.remote.prompts(session_id)
            params = splice(opened.setup.params, {"sessionId": encode(session_id)})
            params = resume_params(params, opened.position or 0, prompt_ids, opened.lineage)
            await line.call(RESUME_SESSION.name, params, on_opened)

        with self.openings.track(session_id) as before:
            if before is not None:
                # The client itself is opening it; if that fails, open it here.
                await before.wait_with_earlier()
                if self._is_open(session_id):
                    return
            for pause in bounds.REOPEN_PAUSES:
                try:
                    return await self._search(session_id, open_locally, open_at_owner)
                except errors.AcpError as exc:
                    if _is_final(exc):
                        raise
                    log.info("session %s is not open again yet: %s", session_id, exc)
                await asyncio.sleep(pause)
            await self._search(session_id, open_locally, open_at_owner)

    def _is_open(self, session_id: str) -> bool:
        """Return True if the client has the session open, here or at its owner."""
        if self.remote.line(session_id) is not None:
            return True
        if not self._desk.hub.holds(session_id):
            return False
        session = self._desk.hub.conversation(session_id).session
        return session.attachments.find(self._client) is not None

    # -- leaving --------------------------------------------------------------------------

    async def leave(self) -> None:
        """Leave every owner, and open nothing again."""
        # All are cancelled in one step: none may attach a client that has gone.
        await end(*(task for task, _ in self._reopening.values()))
        await self.remote.leave()

    async def aclose(self) -> None:
        """End everything: the client has gone."""
        await self.remote.stop()
        await self.leave()
        self._tasks.close()

    # -- answers --------------------------------------------------------------------------

    def answer(self, result: bytes, conversation: Conversation, attachment: Attachment) -> bytes:
        """Return the answer that opens a session, for a client with this attachment."""
        result = as_readable(result, self._client)
        if self.introduce is not None:  # `initialize` may have introduced another agent
            introduced = self.introduce(conversation.initialize_answer or answer_without_agent())
            result = with_meta(result, AGENT, encode(conversation.side.agent.key))
            result = with_meta(result, INTRODUCTION, introduced)
        if not attachment.positions:
            return result
        return with_lineage(result, conversation.session.lease.lineage)


def next_step(
    held: errors.HeldElsewhereError, problem: errors.AcpError
) -> Literal["look again", "take over", "wait"]:
    """Return what to do about an owner that could not open a session for `problem`.

    An owner that was reached and then lost did nothing, and the session may have another one by
    now. An owner that cannot be reached loses the session only if it is known to be silent, or if
    another process is at its address. If an owner on this machine does not answer, it hangs. On
    another machine the network may be the cause, so the journal decides.
    """
    if isinstance(problem, errors.OwnerLostError):
        return "look again"
    hangs = isinstance(problem, errors.SilentPeerError) and are_here(held.addresses)
    has_ended = isinstance(problem, errors.EndedPeerError)
    return "take over" if hangs or has_ended or held.is_silent else "wait"


def _is_final(error: errors.AcpError) -> bool:
    """Return True if further tries to open a session would fail, too."""
    if isinstance(error, errors.UnreachableOwnerError):
        return True  # `SessionOpener._search` has waited for its owner already
    if isinstance(error, errors.LeaseLostError) and error.deleted:
        return True
    return error.code in (errors.INVALID_PARAMS, errors.RESOURCE_NOT_FOUND, errors.AUTH_REQUIRED)
