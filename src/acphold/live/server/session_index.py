"""One client's session index, as JetBrains AIR has it: see `agents.air`.

Its lists, and the sessions that it looks up, are those of `hub.session_list`, each with AIR's
members. What the journal does not know of a session is what the agent's own list says.

    _session/list/subscribe {cwd}                       {subscriptionId}
    _session/list/changes {subscriptionId, sessions,    a notification: new and changed sessions
        removed}                                        whole, ids of those that left; ours at most
                                                        once a second
    _session/list/unsubscribe {subscriptionId}          {}
    _session/batch_get {sessionIds}                     {sessions}: those that there are

An agent that tells changes of its own list is subscribed to, too: for the sessions that only it
has, and for those that go on in its own program.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Final
from uuid import uuid4

from msgspec import Raw, Struct

from acp_wire.newest import Newest
from acp_wire.rpc.requests import Request
from acp_wire.schema import encode, splice
from acp_wire.tasks import TaskSet, end, first
from acp_wire.workspace.threads import Threads
from acphold.conversation.history.raw_update import array, items, members, string, without_meta
from acphold.errors import (
    AcpError,
    ConnectionLostError,
    InvalidParamsError,
    JournalError,
    MethodNotFoundError,
)
from acphold.journal.rows import Archived
from acphold.live.agents import air
from acphold.live.agents.interface import ask
from acphold.live.hub.attachment import Client
from acphold.live.hub.desk import Desk
from acphold.live.hub.session_list import MESSAGE_COUNT, ORIGINS, ListedFolders
from acphold.live.reading.followed_list import Changed, follow_list
from acphold.live.server import bounds
from acphold.live.server.checked_params import decode_params, list_request, require_absolute
from acphold.live.server.principals import Entrance
from acphold.safety.snapshots.checkouts import in_other_work_trees

log = logging.getLogger(__name__)

LIVE_STATES: Final = {"waiting": "requires_action", "running": "running", "idle": "idle"}
"""AIR's words for the states of live sessions."""

SHELVES: Final[dict[str, Archived]] = {
    "unarchived": "exclude",
    "archived": "only",
    "all": "include",
}


class _Changes(Struct, rename="camel"):
    """The params of `air.CHANGES`."""

    subscription_id: str = ""
    sessions: list[Raw] = []
    removed: list[str] = []


class ListSubscription:
    """A subscription to the sessions of some folders; `sent` has what was told of each last.

    `agents_id` is that of the subscription at the agent, "" for none: it was made when the agent
    had started `generation` times.
    """

    def __init__(self, cwd: str) -> None:
        self.id = uuid4().hex
        self.cwd = cwd
        self.folders = ListedFolders(cwd, ())
        self.agents_id = ""
        self.generation = 0
        self.sent: dict[str, bytes] = {}

    def news(self, shown: Mapping[str, bytes], gone: Iterable[str]) -> bytes:
        """Return the params that tell these sessions, as far as they are in its folders and have
        changed, and those that are gone; b"" for nothing."""
        sessions, removed = list[bytes](), [*gone]
        for session_id, raw in shown.items():
            if not self.folders.have(string(members(raw).get("cwd")) or ""):
                removed += [session_id] if session_id in self.sent else []
                continue
            told = without_meta(raw, MESSAGE_COUNT)
            if self.sent.get(session_id) != (now := splice(told, {"updatedAt": None})):
                self.sent[session_id] = now  # without what each message changes
                sessions.append(told)
        for session_id in removed:
            self.sent.pop(session_id, None)
        if not sessions and not removed:
            return b""
        params = {"subscriptionId": encode(self.id), "removed": encode(removed)}
        return splice(b"{}", {**params, "sessions": array(sessions)})


class SessionIndex:
    """The lists of one client, and its subscriptions; `clear` ends these."""

    def __init__(self, desk: Desk, client: Client, entrance: Entrance) -> None:
        self._desk = desk
        self._hub = desk.hub
        self._client = client
        self._entrance = entrance
        self._subscriptions: dict[str, ListSubscription] = {}
        self._following: asyncio.Task[None] | None = None
        self._follows = asyncio.Event()
        self._in_order = asyncio.Lock()
        self._threads = Threads(1)
        self._tasks = TaskSet()
        self._shown: Newest[str, None] = Newest(bounds.SHOWN_SESSIONS)

    async def answer(self, request: Request) -> bytes:
        """Answer one of AIR's methods."""
        match request.method:
            case air.BATCH_GET:
                return await self._batch_get(request)
            case air.SUBSCRIBE:
                return await self._subscribe(request)
            case air.UNSUBSCRIBE:
                return await self._unsubscribe(request)
            case other:
                raise MethodNotFoundError(other)

    # -- lists ----------------------------------------------------------------------------

    async def _in_work_trees(self, cwd: str | None) -> tuple[str, ...]:
        """Return the same folder in the other work trees of its repository."""
        return () if cwd is None else await self._threads.run(in_other_work_trees, cwd)

    async def list(self, params: bytes) -> bytes:
        """Return the result of `session/list`."""
        asked = list_request(params)
        wanted = decode_params(air.fields_in(params).get("list", b"{}"), air.ListWishes)
        limit = bounds.INDEX_PAGE if wanted.limit is None else wanted.limit
        if limit < 1:
            raise InvalidParamsError("limit: must be at least 1", "_meta.jetbrains.air.list.limit")
        if (archived := SHELVES.get(wanted.archived or "unarchived")) is None:
            problem = f"archived: {wanted.archived!r} is not one of {', '.join(SHELVES)}"
            raise InvalidParamsError(problem, "_meta.jetbrains.air.list.archived")
        if (only := self._entrance.principal.session_id) is not None:
            found = await self._find([only])
            return splice(b"{}", {"sessions": array([*found.values()])})
        beside = await self._in_work_trees(asked.cwd) if wanted.include_worktrees else ()
        tenant = self._entrance.tenant
        filter = self._hub.list_filter(asked.cwd, archived, tenant, beside)
        limit = min(limit, bounds.INDEX_PAGE_MOST)
        page = await self._desk.sessions.page(filter, asked.cursor, marked=True, limit=limit)
        shown = await self._show(items(members(page)["sessions"]), {})
        return splice(page, {"sessions": array([*shown.values()])})

    async def _batch_get(self, request: Request) -> bytes:
        ids = decode_params(request.params, air.BatchGetRequest).session_ids
        if len(ids) > bounds.BATCH or len({*ids}) < len(ids) or not all(map(str.strip, ids)):
            raise InvalidParamsError(
                f"sessionIds: at most {bounds.BATCH} ids, each once, and none empty", "sessionIds"
            )
        found = await self._find(ids)
        return splice(b"{}", {"sessions": array([*found.values()])})

    async def _find(
        self, session_ids: Sequence[str], live: Mapping[str, str] = {}
    ) -> dict[str, bytes]:
        """Return these sessions as they are shown, as far as the client may know of them; `live`
        has the states of those that are live anywhere."""
        if not self._entrance.is_in:
            return {}
        only = self._entrance.principal.session_id
        ids = [it for it in session_ids if only in (None, it)]
        found = await self._desk.sessions.find(
            ids, self._entrance.tenant, as_guest=only is not None
        )
        return await self._show(found, live)

    async def _show(self, infos: Sequence[bytes], live: Mapping[str, str]) -> dict[str, bytes]:
        """Return sessions with AIR's members, by id."""
        by_id = {string(members(raw).get("sessionId")) or "": raw for raw in infos}
        outcomes = await self._hub.journal.outcomes([*by_id])
        for session_id in by_id:
            self._shown[session_id] = None
        shown: dict[str, bytes] = {}
        for session_id, raw in by_id.items():
            here = self._hub.live.get(session_id)
            if not (state := live.get(session_id)):
                if here is not None and here.questions.waiting:
                    state = "requires_action"
                elif here is not None and here.turns.running is not None:
                    state = "running"
                elif outcomes.get(session_id) in ("failed", "limited"):
                    state = "error"
                else:  # it is not known here what goes on in others
                    state = None if here is None else "idle"
            parts, known = members(raw), air.fields_in(raw)
            fields: dict[str, bytes | None] = {"archived": parts.get("archived", b"false")}
            fields["state"] = known.get("state", b'"idle"') if state is None else encode(state)
            origins = items(members(parts.get("_meta", b"")).get(ORIGINS, b""))
            source = members(origins[-1]).get("sessionId") if origins else None
            if source is not None and source != parts["sessionId"]:
                fields["forkedFrom"] = source
            shown[session_id] = splice(air.with_fields(raw, fields), {"archived": None})
        return shown

    # -- subscriptions --------------------------------------------------------------------

    async def _subscribe(self, request: Request) -> bytes:
        cwd = decode_params(request.params, air.SubscribeRequest).cwd
        require_absolute(cwd, "cwd")
        if len(self._subscriptions) >= bounds.SUBSCRIPTIONS:
            raise InvalidParamsError(f"at most {bounds.SUBSCRIPTIONS} subscriptions at a time")
        subscription = ListSubscription(cwd)
        self._subscriptions[subscription.id] = subscription
        try:
            subscription.folders = ListedFolders(cwd, await self._in_work_trees(cwd))
            await self._subscribe_at_agent(subscription)
            if self._following is None or self._following.done():
                self._follows = asyncio.Event()
                following = self._follow(self._follows)
                self._following = asyncio.create_task(following, name="session index")
            await first(self._following, self._follows.wait())
        except BaseException:
            self._end(subscription)
            raise
        if subscription.id not in self._subscriptions:
            raise ConnectionLostError("the client has left, or signed out, meanwhile")
        return encode({"subscriptionId": subscription.id})

    async def _unsubscribe(self, request: Request) -> bytes:
        id_ = decode_params(request.params, air.UnsubscribeRequest).subscription_id
        if (subscription := self._subscriptions.get(id_)) is not None:
            self._end(subscription)
        if not self._subscriptions:
            await self.clear()
        return b"{}"

    def _end(self, subscription: ListSubscription) -> None:
        self._subscriptions.pop(subscription.id, None)
        self._leave_agent(subscription)

    async def clear(self) -> None:
        """End all subscriptions: the client has gone, or signed out."""
        for subscription in [*self._subscriptions.values()]:
            self._end(subscription)
        following, self._following = self._following, None
        await end(following, *self._tasks)

    async def _follow(self, follows: asyncio.Event) -> None:
        """Tell changes of the list for as long as there are subscriptions."""
        journal = self._hub.journal
        while True:
            try:
                with self._hub.activity.listen() as activity:
                    look = bounds.INDEX_LOOK_SECONDS
                    async with aclosing(follow_list(journal, 1, activity, look)) as found:
                        async for each in found:
                            follows.set()
                            if not each.is_all:
                                await self._tell(each)
            except JournalError as exc:
                log.warning("changes of the list are not told for a moment: %s", exc)
                await asyncio.sleep(bounds.INDEX_LOOK_SECONDS)

    async def _tell(self, changed: Changed) -> None:
        await self._client.drain()
        states = {id_: LIVE_STATES[live.state] for id_, (live, _) in changed.live.items()}
        async with self._in_order:
            gone = [it for it in changed.gone if self._client.sees_all or it in self._shown]
            shown = await self._find([row.session_id for row in changed.rows], states)
            for subscription in [*self._subscriptions.values()]:
                if subscription.generation != self._desk.agent.generation:
                    again = self._subscribe_at_agent(subscription)
                    self._tasks.start(again, "subscribe to the agent's list again")
                if news := subscription.news(shown, gone):
                    self._client.tell(air.CHANGES, news)
        await asyncio.sleep(bounds.CHANGES_APART_SECONDS)

    # -- the agent's own ------------------------------------------------------------------

    async def _subscribe_at_agent(self, subscription: ListSubscription) -> None:
        agent = self._desk.agent
        self._desk.router.subscriptions.pop(subscription.agents_id, None)
        subscription.generation, subscription.agents_id = agent.generation, ""
        if air.SUBSCRIBE not in agent.index_methods or not self._client.sees_all:
            return
        try:
            params = encode({"cwd": subscription.cwd})
            answer = await ask(agent, air.SUBSCRIBE, params, bounds.AGENT_SUBSCRIBE_SECONDS)
        except AcpError as exc:
            log.info("the agent does not tell changes of its own list: %s", exc)
            return
        if agents_id := string(members(answer).get("subscriptionId")):
            subscription.agents_id = agents_id
            hear = partial(self._on_agents_news, subscription)
            self._desk.router.subscriptions[agents_id] = hear
            if subscription.id not in self._subscriptions:  # it has ended meanwhile
                self._leave_agent(subscription)

    def _leave_agent(self, subscription: ListSubscription) -> None:
        agent = self._desk.agent
        if self._desk.router.subscriptions.pop(subscription.agents_id, None) is not None:
            params = encode({"subscriptionId": subscription.agents_id})
            leaving = ask(agent, air.UNSUBSCRIBE, params, bounds.AGENT_SUBSCRIBE_SECONDS)
            self._hub.undoing.start(_try(leaving), "leave the agent's list")

    def _on_agents_news(self, subscription: ListSubscription, params: bytes) -> None:
        lags = self._client.buffered > bounds.UNREAD_CHANGES_BYTES
        if lags or len(self._tasks) > bounds.UNHEARD_CHANGES:
            log.warning("%s of the agent dropped: too much waits", air.CHANGES)
            return
        self._tasks.start(_try(self._hear(subscription, params)), "changes of the agent's list")

    async def _hear(self, subscription: ListSubscription, params: bytes) -> None:
        told = decode_params(params, _Changes)
        agents = self._desk.sessions.agents
        async with self._in_order:
            gone = await agents.only_its(told.removed)
            infos = [bytes(it) for it in told.sessions]
            known, others = await agents.hear(infos, told.removed)
            theirs = {string(members(raw).get("sessionId")) or "": raw for raw in others}
            if news := subscription.news({**await self._find(known), **theirs}, gone):
                self._client.tell(air.CHANGES, news)


async def _try(work: Awaitable[object]) -> None:
    """Finish what may fail without harm."""
    try:
        await work
    except AcpError as exc:
        log.info("the agent's own list: %s", exc)
