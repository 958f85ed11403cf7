"""Agents that break a rule of sessions: how they are made, listed, opened again, and end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec

from acp_check.errands import ExemplarSession, ExemplarTurn, Memory, Script
from acp_check.exemplar import Exemplar
from acp_check.record import Json, RefusalError
from acp_wire.errors import INTERNAL_ERROR, INVALID_PARAMS
from acp_wire.rpc.transport import Transport
from tests.faults.register import Faults, chunk, tell_later

FAULTS = Faults()


def is_unknown(agent: Exemplar, params: Json) -> bool:
    return params["sessionId"] not in agent.memory.sessions


def is_prompt(update: Json) -> bool:
    return bool(update["sessionUpdate"] == "user_message_chunk")


def text_of(update: Json) -> str:
    """The text of a chunk; "" for all else."""
    is_chunk = str(update["sessionUpdate"]).endswith("_chunk")
    return str(update["content"].get("text", "")) if is_chunk else ""


def said(text: str) -> Json:
    return {"content": {"type": "text", "text": text}}


def bare(update: Json, name: str) -> Json:
    return {key: value for key, value in update.items() if key != name}


def without(*kinds: str) -> Callable[[list[Json]], list[Json]]:
    return lambda history: [it for it in history if it["sessionUpdate"] not in kinds]


@FAULTS.breaks("new.answer")
class _NumberForId(Exemplar):
    async def new_session(self, params: Json) -> Json:
        return {**await super().new_session(params), "sessionId": 17}

    async def send_commands(self, session_id: str) -> None:
        return None


@FAULTS.breaks("new.unique-ids")
class _OneId(Exemplar):
    def new_id(self) -> str:
        return "session-1" if super().new_id() == "session-2" else f"session-{self.memory.numbers}"


@FAULTS.breaks("session.not-early")
class _TellsTooEarly(Exemplar):
    async def send_commands(self, session_id: str) -> None:
        return None

    async def connect(self, session_id: str, servers: list[Json]) -> None:
        self.update(session_id, self.commands(), remembered=False)
        await super().connect(session_id, servers)


@FAULTS.breaks("session.own-context")
class _OneMemory(Exemplar):
    """Recalls the words of any session."""

    def script(self, turn: ExemplarTurn, blocks: list[Json]) -> Script:
        made = super().script(turn, blocks)
        known = next((it for it in map(self.recall, self.memory.sessions) if it), "")
        own = made.recall
        made.recall = lambda: own() or known  # type: ignore[method-assign]
        return made

    def recall(self, session_id: str) -> str:
        return Script(self, ExemplarTurn(session_id, {}), "").recall()


@FAULTS.breaks("new.unique-over-restarts")
class _CountsAnew(Exemplar):
    def new_id(self) -> str:
        return "session-1" if super().new_id() == "session-3" else f"session-{self.memory.numbers}"


@FAULTS.breaks("new.two-at-once")
class _OneAtATime(Exemplar):
    making = 0

    async def answer(self, request: Json) -> None:
        is_new = request["method"] == "session/new"
        self.making += is_new
        await asyncio.sleep(0.001)
        try:
            if is_new and self.making > 1:
                self.refuse(request, -32603, "busy")
            else:
                await super().answer(request)
        finally:
            self.making -= is_new


class _Interfering(Exemplar):
    """Ends turns, or closes sessions, when it is asked for something else."""

    method, ends_turns, closes = "", False, ""

    def __init__(self, transport: Transport, memory: Memory) -> None:
        super().__init__(transport, memory)
        self.closed: set[str] = set()

    async def result(self, method: str, request: Json) -> object:
        id = str((request.get("params") or {}).get("sessionId"))
        if method == "session/prompt" and id in self.closed:
            raise RefusalError(INVALID_PARAMS, "the session is closed")
        try:
            return await super().result(method, request)
        finally:
            if method == self.method and self.ends_turns:
                for session_id in [*self.turns]:
                    self.cancel(session_id)
            elif method == self.method:
                self.closed |= {id} if self.closes == "own" else {*self.memory.sessions} - {id}


def _interferes(name: str, method: str, *, ends_turns: bool = False, closes: str = "") -> None:
    @FAULTS.breaks(f"session.independent:{name}")
    class Interfering(_Interfering):
        pass

    Interfering.method, Interfering.ends_turns = method, ends_turns
    Interfering.closes = closes


_interferes("list-cancels", "session/list", ends_turns=True)
_interferes("load-cancels", "session/load", ends_turns=True)
_interferes("load", "session/load", closes="others")
_interferes("delete", "session/delete", closes="others")
_interferes("mode", "session/set_mode", closes="own")
_interferes("option", "session/set_config_option", closes="own")

FAULTS.refuses("new.new-members", "session/new", lambda it: "weather" in it)
FAULTS.refuses("new.directories", "session/new", lambda it: it.get("additionalDirectories"))
for _how in ("load", "resume"):
    FAULTS.refuses(
        f"{_how}.directories", f"session/{_how}", lambda it: it.get("additionalDirectories")
    )
FAULTS.refuses("new.odd-folder", "session/new", lambda it: not it["cwd"].isascii())


@FAULTS.breaks("session.known-id")
class _OtherId(Exemplar):
    def update(self, session_id: str, update: Json, *, remembered: bool = True) -> None:
        if update["sessionUpdate"] == "usage_update":
            session_id = f"own-{session_id}"
        super().update(session_id, update, remembered=remembered)


FAULTS.passes_over("session.unknown-id", "session/prompt", is_unknown, {"stopReason": "end_turn"})
# -- list -------------------------------------------------------------------------------------


FAULTS.answers(
    "list.answer", "session/list", lambda _, asked, found: found if asked else {"sessions": None}
)


@FAULTS.breaks("list.answer:params")
class _WantsParams(Exemplar):
    async def answer(self, request: Json) -> None:
        if request["method"] == "session/list" and "params" not in request:
            self.refuse(request, INVALID_PARAMS, "params are missing")
        else:
            await super().answer(request)


FAULTS.passes_over(
    "list.answer:null",
    "session/list",
    lambda _, asked: asked.get("cwd", "") is None,
    {"sessions": []},
)


@FAULTS.breaks("list.known-session")
class _ListsTheOthers(Exemplar):
    def fits_filter(self, kept: ExemplarSession, cwd: str | None) -> bool:
        own = (self.memory.sessions.get(id) for id in self.links)
        is_own = kept.cwd.endswith("/work") and any(it is kept for it in own)
        return super().fits_filter(kept, cwd) and not is_own


@FAULTS.breaks("list.known-session:all")
class _ForgetsFoldersInTheWholeList(Exemplar):
    async def list_sessions(self, params: Json) -> Json:
        found = await super().list_sessions(params)
        if params.get("cwd") is None:
            found["sessions"] = [{**it, "cwd": "/"} for it in found["sessions"]]
        return found


@FAULTS.breaks("list.after-restart")
class _ListsItsOwn(Exemplar):
    def __init__(self, transport: Transport, memory: Memory) -> None:
        super().__init__(transport, memory)
        self.before = {**memory.sessions}

    def fits_filter(self, kept: ExemplarSession, cwd: str | None) -> bool:
        is_old = any(it is kept for it in self.before.values())
        is_lost = is_old and kept.cwd.endswith("/conversation")
        return super().fits_filter(kept, cwd) and not is_lost


FAULTS.lists("list.filter", lambda kept, cwd: "nobody" not in cwd)
FAULTS.lists("list.filter:prefix", lambda kept, cwd: kept.cwd.startswith(cwd))
FAULTS.lists(
    "list.filter:below", lambda kept, cwd: Path(cwd) in (Path(kept.cwd), *Path(kept.cwd).parents)
)
FAULTS.lists(
    "list.filter:above", lambda kept, cwd: Path(kept.cwd) in (Path(cwd), *Path(cwd).parents)
)
FAULTS.lists("list.filter:name", lambda kept, cwd: Path(kept.cwd).name == Path(cwd).name)
FAULTS.lists("list.filter:capitals", lambda kept, cwd: kept.cwd.lower() == cwd.lower())
FAULTS.lists("list.filter:directories", lambda kept, cwd: cwd in (kept.cwd, *kept.directories))


@FAULTS.breaks("list.filter:second-page")
class _ForgetsTheFilter(Exemplar):
    async def list_sessions(self, params: Json) -> Json:
        if "cursor" in params:
            params = {"cursor": params["cursor"]}
        return await super().list_sessions(params)


FAULTS.lists("list.no-match", lambda kept, cwd: kept.cwd == cwd or "nobody" in cwd)


@FAULTS.breaks("list.page-size")
class _OnePageForAll(Exemplar):
    """Keeps many sessions of a folder that nobody asks for by name."""

    async def list_sessions(self, params: Json) -> Json:
        found = await super().list_sessions(params)
        if params.get("cwd") is None and "nextCursor" not in found:
            more = {"cwd": "/old", "updatedAt": "2025-01-01T00:00:00Z"}
            found["sessions"] += [{"sessionId": f"old-{n}", **more} for n in range(1001)]
        return found


@FAULTS.breaks("list.pages")
class _OverlappingPages(Exemplar):
    def first_of(self, cursor: str | None) -> int:
        return max(0, super().first_of(cursor) - 1)


@FAULTS.breaks("list.pages:cut")
class _EndsEarly(Exemplar):
    async def list_sessions(self, params: Json) -> Json:
        found = await super().list_sessions(params)
        if params.get("cursor") and "cwd" not in params:
            found = {"sessions": found["sessions"][:1]}
        return found


@FAULTS.breaks("list.pages:endless")
class _EndlessPages(Exemplar):
    async def list_sessions(self, params: Json) -> Json:
        found = await super().list_sessions(params)
        if "nextCursor" in found or params.get("cursor"):
            found.setdefault("nextCursor", "from-1000")
        return found


@FAULTS.breaks("list.pages:no-end")
class _NoLastPage(Exemplar):
    async def list_sessions(self, params: Json) -> Json:
        found = await super().list_sessions(params)
        number = int(str(params.get("cursor") or "from-0").rpartition("-")[2])
        return {"nextCursor": f"from-{number + 1000}", **found}


FAULTS.refuses(
    "list.no-match:missing-folder", "session/list", lambda it: "never made" in str(it.get("cwd"))
)
FAULTS.describes("list.last-activity", lambda _: {"updatedAt": "1970-01-01T00:00:00Z"})


@FAULTS.breaks("list.only-lists:touches")
class _ListingIsActivity(Exemplar):
    async def list_sessions(self, params: Json) -> Json:
        found = await super().list_sessions(params)
        for n, listed in enumerate(found["sessions"]):
            self.memory.sessions[listed["sessionId"]].updated_at = f"{self.now()[:-1]}.{n}Z"
        return found


@FAULTS.breaks("list.only-lists:closes")
class _ClosesWhatItLists(Exemplar):
    def __init__(self, transport: Transport, memory: Memory) -> None:
        super().__init__(transport, memory)
        self.closed: set[str] = set()

    async def list_sessions(self, params: Json) -> Json:
        found = await super().list_sessions(params)
        self.closed |= {it["sessionId"] for it in found["sessions"]} & self.links.keys()
        return found

    async def prompt(self, request: Json, params: Json) -> Json:
        if params["sessionId"] in self.closed:
            raise RefusalError(INVALID_PARAMS, "this session is closed")
        return await super().prompt(request, params)


@FAULTS.breaks("list.only-lists:drops-empty")
class _DropsEmptyOnes(Exemplar):
    async def list_sessions(self, params: Json) -> Json:
        kept = self.memory.sessions
        for id in [id for id, session in kept.items() if not session.history]:
            del kept[id]
        return await super().list_sessions(params)


@FAULTS.breaks("list.bad-cursor")
class _AnyCursor(Exemplar):
    def first_of(self, cursor: str | None) -> int:
        return 0 if cursor == "check-no-such-cursor" else super().first_of(cursor)


@FAULTS.breaks("list.only-lists")
class _TellsWhatItLists(Exemplar):
    async def list_sessions(self, params: Json) -> Json:
        found = await super().list_sessions(params)
        for listed in found["sessions"]:
            if (
                listed["sessionId"] not in self.memory.sessions
                or "conversation" not in listed["cwd"]
            ):
                continue
            self.update(listed["sessionId"], self.commands(), remembered=False)
        return found


FAULTS.describes(
    "list.absolute-folders",
    lambda kept: {"additionalDirectories": ["more"]} if kept.directories else {},
)
FAULTS.describes("list.times", lambda _: {"updatedAt": "1763654400"})
FAULTS.tells("list.times:update", "session_info_update", lambda _: {"updatedAt": "just now"})
FAULTS.describes("list.titles", lambda _: {"title": "Untitled"})
# -- load and resume --------------------------------------------------------------------------


@FAULTS.breaks("load.after-restart")
class _LoadsItsOwn(Exemplar):
    def __init__(self, transport: Transport, memory: Memory) -> None:
        super().__init__(transport, memory)
        self.before = {*memory.sessions}

    async def load_session(self, params: Json) -> Json:
        if params["sessionId"] in self.before:
            raise RefusalError(INTERNAL_ERROR, "it was lost")
        return await super().load_session(params)


FAULTS.replays(
    "load.user-messages",
    lambda history: [it for it in history if not (is_prompt(it) and "code word" in text_of(it))],
)
FAULTS.replays(
    "load.agent-messages",
    lambda history: [
        {**it, **said("That …")} if text_of(it) == "That is all." else it for it in history
    ],
)
FAULTS.replays(
    "load.exact-text",
    lambda history: [{**it, **said(text_of(it).strip())} if text_of(it) else it for it in history],
)
FAULTS.replays(
    "load.exact-text:blanks",
    lambda history: msgspec.json.decode(msgspec.json.encode(history).replace(b"  ", b" ")),
)
FAULTS.replays("load.thoughts", without("agent_thought_chunk"))
FAULTS.replays("load.tool-calls", lambda history: [bare(it, "status") for it in history])
FAULTS.replays(
    "load.tool-details",
    lambda history: [bare(it, "content") if "toolCallId" in it else it for it in history],
)
FAULTS.replays("load.tool-calls:gone", without("tool_call", "tool_call_update"))
FAULTS.replays("load.plan", without("plan"))
FAULTS.replays("load.order", lambda history: sorted(history, key=lambda it: not is_prompt(it)))
FAULTS.replays(
    "load.order:calls-first",
    lambda history: sorted(history, key=lambda it: "toolCallId" not in it),
)
FAULTS.replays(
    "load.user-messages:twice",
    lambda history: [it for one in history for it in ([one, one] if is_prompt(one) else [one])],
)


class Opener(Exemplar):
    """Knows which sessions were opened again in its process."""

    def __init__(self, transport: Transport, memory: Memory) -> None:
        super().__init__(transport, memory)
        self.loaded: set[str] = set()
        self.resumed: set[str] = set()

    async def load_session(self, params: Json) -> Json:
        self.loaded.add(params["sessionId"])
        return await super().load_session(params)

    async def resume_session(self, params: Json) -> Json:
        self.resumed.add(params["sessionId"])
        return await super().resume_session(params)


@FAULTS.breaks("load.folder")
class _LoadsElsewhere(Opener):
    """Works in the folder of its process in sessions that it has loaded."""

    def script(self, turn: ExemplarTurn, blocks: list[Json]) -> Script:
        made = super().script(turn, blocks)
        if turn.session_id in self.loaded:
            made.absolute = lambda what: f"/{what.lstrip('/')}"  # type: ignore[method-assign]
        return made


@FAULTS.breaks("load.grows")
class _ForgetsWhatFollows(Opener):
    """Does not record the turns after a load."""

    async def prompt(self, request: Json, params: Json) -> Json:
        kept = self.session(params["sessionId"])
        before = [*kept.history]
        ended = await super().prompt(request, params)
        if params["sessionId"] in self.loaded and "fine day" in str(params["prompt"]):
            kept.history[:] = before
        return ended


@FAULTS.breaks("load.replay-first")
class _AnswersTooSoon(Exemplar):
    async def load_session(self, params: Json) -> Json:
        session_id = params["sessionId"]
        self.is_absolute(params["cwd"])
        history = self.replay(self.session(session_id))
        for update in history:
            self.update(session_id, update, remembered=False)
        again = [
            {"sessionUpdate": "agent_thought_chunk", "content": update["content"]}
            for update in history[-1:]
            if isinstance(update.get("content"), dict)
        ]
        self.start(tell_later(self, 0.0, session_id, *again))
        return self.settings(session_id)


@FAULTS.breaks("load.replay-first:late")
class _TellsTheRestLater(Exemplar):
    async def load_session(self, params: Json) -> Json:
        history = self.session(params["sessionId"]).history
        plans = [it for it in history if it["sessionUpdate"] == "plan"]
        self.start(tell_later(self, 0.9, params["sessionId"], *plans[-1:]))
        return await super().load_session(params)


@FAULTS.breaks("load.again")
class _RemembersReplays(Exemplar):
    async def load_session(self, params: Json) -> Json:
        kept = self.session(params["sessionId"])
        loaded = await super().load_session(params)
        kept.history += [it for it in kept.history if it["sessionUpdate"] != "plan"]
        return loaded


@FAULTS.breaks("load.again:open")
class _ReplaysOnce(Opener):
    """Replays nothing when the session is already open here."""

    async def load_session(self, params: Json) -> Json:
        if params["sessionId"] in self.loaded:
            return self.settings(params["sessionId"])
        return await super().load_session(params)


@FAULTS.breaks("load.goes-on")
class _ReadOnly(Opener):
    async def prompt(self, request: Json, params: Json) -> Json:
        if params["sessionId"] in self.loaded and len(params["prompt"][0]["text"]) < 60:
            raise RefusalError(INTERNAL_ERROR, "this session is over")
        return await super().prompt(request, params)


@FAULTS.breaks("load.remembers")
class _Forgetful(Opener):
    """Forgets everything before a load."""

    def script(self, turn: ExemplarTurn, blocks: list[Json]) -> Script:
        made = super().script(turn, blocks)
        if turn.session_id in self.loaded:
            made.recall = lambda: ""  # type: ignore[method-assign]
        return made


FAULTS.passes_over("load.unknown-id", "session/load", is_unknown, {})


@FAULTS.breaks("load.after-kill")
class _WritesAtTheEnd(Exemplar):
    async def load_session(self, params: Json) -> Json:
        history = self.session(params["sessionId"]).history
        counted = [it for it in history if "Count from" in str(it.get("content"))]
        if counted:
            del history[: history.index(counted[0])]
        return await super().load_session(params)


@FAULTS.breaks("load.after-kill-in-turn")
class _WritesTurnByTurn(Exemplar):
    async def load_session(self, params: Json) -> Json:
        history = self.session(params["sessionId"]).history
        counted = [it for it in history if "Count from" in str(it.get("content"))]
        if counted:
            del history[history.index(counted[0]) :]
        return await super().load_session(params)


FAULTS.refuses("resume.after-restart", "session/resume", lambda it: "mcpServers" not in it)


@FAULTS.breaks("resume.remembers")
class _ResumesEmpty(Opener):
    def script(self, turn: ExemplarTurn, blocks: list[Json]) -> Script:
        made = super().script(turn, blocks)
        if turn.session_id in self.resumed:
            made.recall = lambda: ""  # type: ignore[method-assign]
        return made


@FAULTS.breaks("resume.no-history")
class _ReplaysOnResume(Exemplar):
    async def resume_session(self, params: Json) -> Json:
        return await self.load_session(params)


@FAULTS.breaks("resume.no-history:as-load")
class _ResumesAsItLoads(Exemplar):
    async def resume_session(self, params: Json) -> Json:
        if "mcpServers" not in params:
            raise RefusalError(INVALID_PARAMS, "mcpServers is missing")
        return await self.load_session(params)


@FAULTS.breaks("resume.no-history:late")
class _ReplaysSoonAfter(Exemplar):
    async def resume_session(self, params: Json) -> Json:
        history = self.session(params["sessionId"]).history
        self.start(tell_later(self, 0.2, params["sessionId"], *history))
        return await super().resume_session(params)


@FAULTS.breaks("resume.goes-on")
class _ResumesNothing(Opener):
    async def prompt(self, request: Json, params: Json) -> Json:
        if params["sessionId"] in self.resumed:
            raise RefusalError(INTERNAL_ERROR, "this session is over")
        return await super().prompt(request, params)


FAULTS.passes_over("resume.unknown-id", "session/resume", is_unknown, {})
# -- close and delete -------------------------------------------------------------------------


@FAULTS.breaks("close.answer")
class _CannotCloseIdle(Exemplar):
    async def close_session(self, params: Json) -> Json:
        history = self.session(params["sessionId"]).history
        if not history:
            raise RefusalError(INTERNAL_ERROR, "nothing to close")
        return await super().close_session(params)


FAULTS.passes_over(
    "close.cancels", "session/close", lambda agent, it: not is_unknown(agent, it), {}
)


@FAULTS.breaks("cancel-request.code")
class _EndsWithErrorOfItsOwn(Exemplar):
    """The prompt of a session that is closed is answered with an error."""

    closed = ""

    async def close_session(self, params: Json) -> Json:
        self.closed = params["sessionId"]
        return await super().close_session(params)

    def end_of(self, turn: ExemplarTurn) -> Json:
        if turn.session_id == self.closed:
            raise RefusalError(INTERNAL_ERROR, "The request was cancelled.")
        return super().end_of(turn)


@FAULTS.breaks("close.no-other")
class _ClosesAll(Exemplar):
    async def close_session(self, params: Json) -> Json:
        for turn in self.turns.values():
            turn.cancel()
        return await super().close_session(params)


@FAULTS.breaks("close.silent")
class _SpeaksWhenClosed(Exemplar):
    async def close_session(self, params: Json) -> Json:
        closed = await super().close_session(params)
        self.start(tell_later(self, 0.4, params["sessionId"], chunk("Good bye.")))
        return closed


@FAULTS.breaks("close.load-again")
class _ClosesForGood(Exemplar):
    closed = ""

    async def close_session(self, params: Json) -> Json:
        self.closed = params["sessionId"]
        return await super().close_session(params)

    async def load_session(self, params: Json) -> Json:
        if params["sessionId"] == self.closed:
            raise RefusalError(INTERNAL_ERROR, "it is closed")
        return await super().load_session(params)


@FAULTS.breaks("delete.answer")
class _AnswersWithAWord(Exemplar):
    async def answer(self, request: Json) -> None:
        known = (request.get("params") or {}).get("sessionId") in self.memory.sessions
        if request["method"] == "session/delete" and known:
            await super().delete_session(request["params"])
            self.reply(request, "deleted")
        else:
            await super().answer(request)


FAULTS.passes_over("delete.gone", "session/delete", lambda _, it: True, {})


@FAULTS.breaks("delete.gone:from-one-folder")
class _HidesInItsFolder(Exemplar):
    def __init__(self, transport: Transport, memory: Memory) -> None:
        super().__init__(transport, memory)
        self.hidden: list[ExemplarSession] = []

    async def delete_session(self, params: Json) -> Json:
        if params["sessionId"] in self.memory.sessions:
            self.hidden.append(self.memory.sessions[params["sessionId"]])
        return {}

    def fits_filter(self, kept: ExemplarSession, cwd: str | None) -> bool:
        is_hidden = any(it is kept for it in self.hidden)
        return super().fits_filter(kept, cwd) and not (is_hidden and cwd)


@FAULTS.breaks("delete.no-other")
class _DeletesAll(Exemplar):
    async def delete_session(self, params: Json) -> Json:
        if params["sessionId"] in self.memory.sessions:
            self.memory.sessions.clear()
        return {}


@FAULTS.breaks("delete.twice")
class _OnceOnly(Exemplar):
    async def delete_session(self, params: Json) -> Json:
        if params["sessionId"] != "check-no-such-session":
            self.session(params["sessionId"])
        return await super().delete_session(params)


@FAULTS.breaks("delete.unknown-id")
class _KnownOnly(Exemplar):
    async def delete_session(self, params: Json) -> Json:
        if params["sessionId"] == "check-no-such-session":
            self.session(params["sessionId"])
        return await super().delete_session(params)
