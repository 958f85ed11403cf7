"""Agents that break a rule of sessions: how they are made, listed, opened again, and end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from acphold.conformance.exemplar import Exemplar, RefusedError
from acphold.conformance.exemplar_turns import Kept, Memory, Script, Turn
from acphold.conformance.record import Json
from acphold.errors import INTERNAL_ERROR, INVALID_PARAMS
from acphold.rpc.transport import Transport
from tests.conformance.faults.register import Faults

FAULTS = Faults()


@FAULTS.breaks("new.answer")
class _NumberForId(Exemplar):
    async def new_session(self, params: Json) -> Json:
        return {**await super().new_session(params), "sessionId": 17}

    async def tell_commands(self, session_id: str) -> None:
        return None


@FAULTS.breaks("new.unique-ids")
class _OneId(Exemplar):
    def new_id(self) -> str:
        return "session-1" if super().new_id() == "session-2" else f"session-{self.memory.numbers}"


@FAULTS.breaks("session.not-early")
class _TellsTooEarly(Exemplar):
    async def tell_commands(self, session_id: str) -> None:
        return None

    async def connect(self, session_id: str, servers: list[Json]) -> None:
        self.update(session_id, self.commands(), remembered=False)
        await super().connect(session_id, servers)


@FAULTS.breaks("session.own-context")
class _OneMemory(Exemplar):
    """Recalls what was said in any session."""

    def script(self, turn: Turn, blocks: list[Json]) -> Script:
        made = super().script(turn, blocks)
        known = next((it for it in map(self.recalled, self.memory.sessions) if it), "")
        own = made.recalled
        made.recalled = lambda: own() or known  # type: ignore[method-assign]
        return made

    def recalled(self, session_id: str) -> str:
        return Script(self, session_id, "", lambda: False).recalled()


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


@FAULTS.breaks("new.new-members")
class _StrictAboutMembers(Exemplar):
    async def new_session(self, params: Json) -> Json:
        if "weather" in params:
            raise RefusedError(INVALID_PARAMS, "unknown member")
        return await super().new_session(params)


@FAULTS.breaks("new.directories")
class _NoDirectories(Exemplar):
    async def new_session(self, params: Json) -> Json:
        if params.get("additionalDirectories"):
            raise RefusedError(INVALID_PARAMS, "one folder is enough")
        return await super().new_session(params)


@FAULTS.breaks("new.odd-folder")
class _PlainFolders(Exemplar):
    async def new_session(self, params: Json) -> Json:
        if not params["cwd"].isascii():
            raise RefusedError(INVALID_PARAMS, "no such folder")
        return await super().new_session(params)


@FAULTS.breaks("session.known-id")
class _OtherId(Exemplar):
    def update(self, session_id: str, update: Json, *, remembered: bool = True) -> None:
        if update["sessionUpdate"] == "usage_update":
            session_id = f"own-{session_id}"
        super().update(session_id, update, remembered=remembered)


@FAULTS.breaks("session.unknown-id")
class _AnySession(Exemplar):
    async def prompt(self, request: Json, params: Json) -> Json:
        if params["sessionId"] not in self.memory.sessions:
            return {"stopReason": "end_turn"}
        return await super().prompt(request, params)


# -- list -------------------------------------------------------------------------------------


class _Lister(Exemplar):
    """Changes what is listed of a session."""

    def listed(self, session_id: str, kept: Kept) -> Json:
        return {**super().listed(session_id, kept), **self.changes(kept)}

    def changes(self, kept: Kept) -> Json:
        return {}


@FAULTS.breaks("list.answer")
class _NullForEmpty(Exemplar):
    async def list_sessions(self, params: Json) -> Json:
        return {"sessions": None} if not params else await super().list_sessions(params)


@FAULTS.breaks("list.answer:params")
class _WantsParams(Exemplar):
    async def answer(self, request: Json) -> None:
        if request["method"] == "session/list" and "params" not in request:
            self.refuse(request, INVALID_PARAMS, "params are missing")
        else:
            await super().answer(request)


@FAULTS.breaks("list.answer:null")
class _NullIsAFolder(Exemplar):
    async def list_sessions(self, params: Json) -> Json:
        found = await super().list_sessions(params)
        return {"sessions": []} if params.get("cwd", "") is None else found


@FAULTS.breaks("list.known-session")
class _ListsTheOthers(Exemplar):
    def fits_filter(self, kept: Kept, cwd: str | None) -> bool:
        is_first = kept is self.memory.sessions.get("session-1")
        return super().fits_filter(kept, cwd) and not is_first


@FAULTS.breaks("list.after-restart")
class _ListsItsOwn(Exemplar):
    def __init__(self, transport: Transport, memory: Memory) -> None:
        super().__init__(transport, memory)
        self.before = {**memory.sessions}

    def fits_filter(self, kept: Kept, cwd: str | None) -> bool:
        is_old = any(it is kept for it in self.before.values())
        is_lost = is_old and "/work" in kept.cwd
        return super().fits_filter(kept, cwd) and not is_lost


@FAULTS.breaks("list.filter")
class _ListsTheRest(Exemplar):
    def fits_filter(self, kept: Kept, cwd: str | None) -> bool:
        return cwd is None or "nobody" not in cwd


@FAULTS.breaks("list.filter:prefix")
class _ListsByPrefix(Exemplar):
    def fits_filter(self, kept: Kept, cwd: str | None) -> bool:
        return cwd is None or kept.cwd.startswith(cwd)


@FAULTS.breaks("list.filter:below")
class _ListsWhatIsBelow(Exemplar):
    def fits_filter(self, kept: Kept, cwd: str | None) -> bool:
        return cwd is None or Path(cwd) in (Path(kept.cwd), *Path(kept.cwd).parents)


@FAULTS.breaks("list.filter:above")
class _ListsWhatIsAbove(Exemplar):
    def fits_filter(self, kept: Kept, cwd: str | None) -> bool:
        return cwd is None or Path(kept.cwd) in (Path(cwd), *Path(cwd).parents)


@FAULTS.breaks("list.filter:name")
class _ListsByName(Exemplar):
    def fits_filter(self, kept: Kept, cwd: str | None) -> bool:
        return cwd is None or Path(kept.cwd).name == Path(cwd).name


@FAULTS.breaks("list.filter:capitals")
class _ListsAnyCase(Exemplar):
    def fits_filter(self, kept: Kept, cwd: str | None) -> bool:
        return cwd is None or kept.cwd.lower() == cwd.lower()


@FAULTS.breaks("list.filter:directories")
class _ListsByAnyFolder(Exemplar):
    def fits_filter(self, kept: Kept, cwd: str | None) -> bool:
        return super().fits_filter(kept, cwd) or cwd in kept.directories


@FAULTS.breaks("list.filter:second-page")
class _ForgetsTheFilter(Exemplar):
    async def list_sessions(self, params: Json) -> Json:
        if "cursor" in params:
            params = {"cursor": params["cursor"]}
        return await super().list_sessions(params)


@FAULTS.breaks("list.no-match")
class _ListsAnything(Exemplar):
    def fits_filter(self, kept: Kept, cwd: str | None) -> bool:
        return super().fits_filter(kept, cwd) or "nobody" in (cwd or "")


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


@FAULTS.breaks("list.no-match:missing-folder")
class _WantsTheFolder(Exemplar):
    async def list_sessions(self, params: Json) -> Json:
        if "never made" in str(params.get("cwd")):
            raise RefusedError(INVALID_PARAMS, "no such folder")
        return await super().list_sessions(params)


@FAULTS.breaks("list.last-activity")
class _ListsOddTimes(_Lister):
    def changes(self, kept: Kept) -> Json:
        return {"updatedAt": "1970-01-01T00:00:00Z"}


@FAULTS.breaks("list.only-lists:touches")
class _ListingIsActivity(Exemplar):
    async def list_sessions(self, params: Json) -> Json:
        found = await super().list_sessions(params)
        for n, listed in enumerate(found["sessions"]):
            self.memory.sessions[listed["sessionId"]].updated_at = f"{self.now()[:-1]}.{n}Z"
        return found


@FAULTS.breaks("list.bad-cursor")
class _AnyCursor(Exemplar):
    def first_of(self, cursor: str | None) -> int:
        return 0 if cursor == "check-no-such-cursor" else super().first_of(cursor)


@FAULTS.breaks("list.only-lists")
class _TellsWhatItLists(Exemplar):
    async def list_sessions(self, params: Json) -> Json:
        found = await super().list_sessions(params)
        for listed in found["sessions"]:
            if listed["sessionId"] not in self.memory.sessions or "work" not in listed["cwd"]:
                continue
            self.update(listed["sessionId"], self.commands(), remembered=False)
        return found


@FAULTS.breaks("list.absolute-folders")
class _RelativeFolders(_Lister):
    def changes(self, kept: Kept) -> Json:
        return {"additionalDirectories": ["more"]} if kept.directories else {}


@FAULTS.breaks("list.times")
class _SecondsSince1970(_Lister):
    def changes(self, kept: Kept) -> Json:
        return {"updatedAt": "1763654400"}


@FAULTS.breaks("list.titles")
class _OtherTitles(_Lister):
    def changes(self, kept: Kept) -> Json:
        return {"title": "Untitled"}


# -- load and resume --------------------------------------------------------------------------


@FAULTS.breaks("load.after-restart")
class _LoadsItsOwn(Exemplar):
    def __init__(self, transport: Transport, memory: Memory) -> None:
        super().__init__(transport, memory)
        self.before = {*memory.sessions}

    async def load_session(self, params: Json) -> Json:
        if params["sessionId"] in self.before:
            raise RefusedError(INTERNAL_ERROR, "it was lost")
        return await super().load_session(params)


class _Replayer(Exemplar):
    """Leaves something out of a replay, or changes it."""

    def replayed(self, kept: Kept) -> list[Json]:
        return [update for update in kept.history if self.keeps(update)]

    def keeps(self, update: Json) -> bool:
        return True


@FAULTS.breaks("load.user-messages")
class _WithoutTheFirstPrompt(_Replayer):
    def keeps(self, update: Json) -> bool:
        is_prompt = update["sessionUpdate"] == "user_message_chunk"
        return not is_prompt or "code word" not in update["content"].get("text", "")


@FAULTS.breaks("load.agent-messages")
class _TextIsCut(_Replayer):
    def replayed(self, kept: Kept) -> list[Json]:
        return [self._cut(update) for update in kept.history]

    def _cut(self, update: Json) -> Json:
        if update.get("content") != {"type": "text", "text": "That is all."}:
            return update
        return {**update, "content": {"type": "text", "text": "That …"}}


@FAULTS.breaks("load.exact-text")
class _TrimsTexts(_Replayer):
    def replayed(self, kept: Kept) -> list[Json]:
        return [self._trimmed(update) for update in kept.history]

    def _trimmed(self, update: Json) -> Json:
        if not str(update["sessionUpdate"]).endswith("_chunk") or "text" not in update["content"]:
            return update
        text = str(update["content"]["text"]).strip()
        return {**update, "content": {**update["content"], "text": text}}


@FAULTS.breaks("load.exact-text:blanks")
class _JoinsBlanks(_Replayer):
    def replayed(self, kept: Kept) -> list[Json]:
        found = msgspec.json.encode(kept.history).replace(b"  ", b" ")
        history: list[Json] = msgspec.json.decode(found)
        return history


@FAULTS.breaks("load.thoughts")
class _WithoutThoughts(_Replayer):
    def keeps(self, update: Json) -> bool:
        return bool(update["sessionUpdate"] != "agent_thought_chunk")


@FAULTS.breaks("load.tool-calls")
class _NeverEnded(_Replayer):
    def replayed(self, kept: Kept) -> list[Json]:
        names = {"status"}
        return [{key: it[key] for key in it.keys() - names} for it in kept.history]


@FAULTS.breaks("load.tool-details")
class _WithoutResults(_Replayer):
    def replayed(self, kept: Kept) -> list[Json]:
        calls = ("tool_call", "tool_call_update")
        return [
            {key: it[key] for key in it.keys() - {"content"}}
            if it["sessionUpdate"] in calls
            else it
            for it in kept.history
        ]


@FAULTS.breaks("load.tool-calls:gone")
class _WithoutTools(_Replayer):
    def keeps(self, update: Json) -> bool:
        return not update["sessionUpdate"].startswith("tool_call")


@FAULTS.breaks("load.plan")
class _WithoutPlan(_Replayer):
    def keeps(self, update: Json) -> bool:
        return bool(update["sessionUpdate"] != "plan")


@FAULTS.breaks("load.order")
class _OneSideAfterTheOther(_Replayer):
    def replayed(self, kept: Kept) -> list[Json]:
        return sorted(kept.history, key=lambda it: it["sessionUpdate"] != "user_message_chunk")


@FAULTS.breaks("load.order:calls-first")
class _CallsFirst(_Replayer):
    def replayed(self, kept: Kept) -> list[Json]:
        calls = [it for it in kept.history if "toolCallId" in it]
        return [*calls, *(it for it in kept.history if it not in calls)]


@FAULTS.breaks("load.user-messages:twice")
class _PromptsTwice(_Replayer):
    def replayed(self, kept: Kept) -> list[Json]:
        is_first = [it["sessionUpdate"] == "user_message_chunk" for it in kept.history]
        twice = [
            [it, it] if first else [it] for it, first in zip(kept.history, is_first, strict=True)
        ]
        return [it for both in twice for it in both]


@FAULTS.breaks("load.folder")
class _LoadsElsewhere(Exemplar):
    """Works in the folder of its process in sessions that it has loaded."""

    def __init__(self, transport: Transport, memory: Memory) -> None:
        super().__init__(transport, memory)
        self.loaded: set[str] = set()

    async def load_session(self, params: Json) -> Json:
        self.loaded.add(params["sessionId"])
        return await super().load_session(params)

    def script(self, turn: Turn, blocks: list[Json]) -> Script:
        made = super().script(turn, blocks)
        if turn.session_id in self.loaded:
            made.absolute = lambda what: f"/{what.lstrip('/')}"  # type: ignore[method-assign]
        return made


@FAULTS.breaks("load.grows")
class _ForgetsWhatFollows(Exemplar):
    """What is said in a session that was loaded is not written down."""

    def __init__(self, transport: Transport, memory: Memory) -> None:
        super().__init__(transport, memory)
        self.loaded: set[str] = set()

    async def load_session(self, params: Json) -> Json:
        self.loaded.add(params["sessionId"])
        return await super().load_session(params)

    async def prompt(self, request: Json, params: Json) -> Json:
        kept = self.kept(params["sessionId"])
        before = [*kept.history]
        ended = await super().prompt(request, params)
        if params["sessionId"] in self.loaded and "fine day" in str(params["prompt"]):
            kept.history[:] = before
        return ended


@FAULTS.breaks("load.replay-first")
class _AnswersTooSoon(Exemplar):
    async def load_session(self, params: Json) -> Json:
        session_id = params["sessionId"]
        history = self.replayed(self.kept(session_id))
        for update in history:
            self.update(session_id, update, remembered=False)
        self.start(self._later(session_id, history[-1:]))
        return self.settings(session_id)

    async def _later(self, session_id: str, history: list[Json]) -> None:
        await asyncio.sleep(0)
        for update in history:
            content = update.get("content")
            again = {"sessionUpdate": "agent_thought_chunk", "content": content}
            self.update(session_id, again, remembered=False)


@FAULTS.breaks("load.replay-first:late")
class _TellsTheRestLater(Exemplar):
    async def load_session(self, params: Json) -> Json:
        history = self.kept(params["sessionId"]).history
        plans = [it for it in history if it["sessionUpdate"] == "plan"]
        self.start(self._later(params["sessionId"], plans[-1:]))
        return await super().load_session(params)

    async def _later(self, session_id: str, updates: list[Json]) -> None:
        await asyncio.sleep(0.9)
        for update in updates:
            self.update(session_id, update, remembered=False)


@FAULTS.breaks("load.again")
class _RemembersReplays(Exemplar):
    async def load_session(self, params: Json) -> Json:
        kept = self.kept(params["sessionId"])
        loaded = await super().load_session(params)
        kept.history += [it for it in kept.history if it["sessionUpdate"] != "plan"]
        return loaded


@FAULTS.breaks("load.goes-on")
class _ReadOnly(Exemplar):
    loaded = ""

    async def load_session(self, params: Json) -> Json:
        self.loaded = params["sessionId"]
        return await super().load_session(params)

    async def prompt(self, request: Json, params: Json) -> Json:
        if params["sessionId"] == self.loaded and len(params["prompt"][0]["text"]) < 60:
            raise RefusedError(INTERNAL_ERROR, "this session is over")
        return await super().prompt(request, params)


@FAULTS.breaks("load.remembers")
class _Forgetful(Exemplar):
    """Knows nothing of what was said before a load."""

    loaded = ""

    async def load_session(self, params: Json) -> Json:
        self.loaded = params["sessionId"]
        return await super().load_session(params)

    def script(self, turn: Turn, blocks: list[Json]) -> Script:
        made = super().script(turn, blocks)
        if turn.session_id == self.loaded:
            made.recalled = lambda: ""  # type: ignore[method-assign]
        return made


@FAULTS.breaks("load.unknown-id")
class _LoadsAnything(Exemplar):
    async def load_session(self, params: Json) -> Json:
        if params["sessionId"] not in self.memory.sessions:
            return {}
        return await super().load_session(params)


@FAULTS.breaks("load.after-kill")
class _WritesAtTheEnd(Exemplar):
    async def load_session(self, params: Json) -> Json:
        history = self.kept(params["sessionId"]).history
        counted = [it for it in history if "Count from" in str(it.get("content"))]
        if counted:
            del history[: history.index(counted[0])]
        return await super().load_session(params)


@FAULTS.breaks("load.after-kill-in-turn")
class _WritesTurnByTurn(Exemplar):
    async def load_session(self, params: Json) -> Json:
        history = self.kept(params["sessionId"]).history
        counted = [it for it in history if "Count from" in str(it.get("content"))]
        if counted:
            del history[history.index(counted[0]) :]
        return await super().load_session(params)


@FAULTS.breaks("resume.after-restart")
class _WantsServers(Exemplar):
    async def resume_session(self, params: Json) -> Json:
        if "mcpServers" not in params:
            raise RefusedError(INVALID_PARAMS, "mcpServers is missing")
        return await super().resume_session(params)


@FAULTS.breaks("resume.remembers")
class _ResumesEmpty(Exemplar):
    resumed = ""

    async def resume_session(self, params: Json) -> Json:
        self.resumed = params["sessionId"]
        return await super().resume_session(params)

    def script(self, turn: Turn, blocks: list[Json]) -> Script:
        made = super().script(turn, blocks)
        if turn.session_id == self.resumed:
            made.recalled = lambda: ""  # type: ignore[method-assign]
        return made


@FAULTS.breaks("resume.no-history")
class _ReplaysOnResume(Exemplar):
    async def resume_session(self, params: Json) -> Json:
        return await self.load_session(params)


@FAULTS.breaks("resume.no-history:late")
class _ReplaysSoonAfter(Exemplar):
    async def resume_session(self, params: Json) -> Json:
        self.start(self._later(params["sessionId"]))
        return await super().resume_session(params)

    async def _later(self, session_id: str) -> None:
        await asyncio.sleep(0.2)
        for update in [*self.kept(session_id).history]:
            self.update(session_id, update, remembered=False)


@FAULTS.breaks("resume.goes-on")
class _ResumesNothing(Exemplar):
    resumed = ""

    async def resume_session(self, params: Json) -> Json:
        self.resumed = params["sessionId"]
        return await super().resume_session(params)

    async def prompt(self, request: Json, params: Json) -> Json:
        if params["sessionId"] == self.resumed:
            raise RefusedError(INTERNAL_ERROR, "this session is over")
        return await super().prompt(request, params)


@FAULTS.breaks("resume.unknown-id")
class _ResumesAnything(Exemplar):
    async def resume_session(self, params: Json) -> Json:
        if params["sessionId"] not in self.memory.sessions:
            return {}
        return await super().resume_session(params)


# -- close and delete -------------------------------------------------------------------------


@FAULTS.breaks("close.answer")
class _CannotCloseIdle(Exemplar):
    async def close_session(self, params: Json) -> Json:
        history = self.kept(params["sessionId"]).history
        if not history:
            raise RefusedError(INTERNAL_ERROR, "nothing to close")
        return await super().close_session(params)


@FAULTS.breaks("close.cancels")
class _ClosesAndGoesOn(Exemplar):
    async def close_session(self, params: Json) -> Json:
        self.kept(params["sessionId"])
        return {}


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
        self.start(self._later(params["sessionId"]))
        return closed

    async def _later(self, session_id: str) -> None:
        await asyncio.sleep(0.4)
        content = {"type": "text", "text": "Good bye."}
        chunk = {"sessionUpdate": "agent_message_chunk", "content": content}
        self.update(session_id, chunk, remembered=False)


@FAULTS.breaks("close.load-again")
class _ClosesForGood(Exemplar):
    closed = ""

    async def close_session(self, params: Json) -> Json:
        self.closed = params["sessionId"]
        return await super().close_session(params)

    async def load_session(self, params: Json) -> Json:
        if params["sessionId"] == self.closed:
            raise RefusedError(INTERNAL_ERROR, "it is closed")
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


@FAULTS.breaks("delete.gone")
class _KeepsTheDeleted(Exemplar):
    async def delete_session(self, params: Json) -> Json:
        return {}


@FAULTS.breaks("delete.gone:from-one-folder")
class _HidesInItsFolder(Exemplar):
    def __init__(self, transport: Transport, memory: Memory) -> None:
        super().__init__(transport, memory)
        self.hidden: list[Kept] = []

    async def delete_session(self, params: Json) -> Json:
        if params["sessionId"] in self.memory.sessions:
            self.hidden.append(self.memory.sessions[params["sessionId"]])
        return {}

    def fits_filter(self, kept: Kept, cwd: str | None) -> bool:
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
            self.kept(params["sessionId"])
        return await super().delete_session(params)


@FAULTS.breaks("delete.unknown-id")
class _KnownOnly(Exemplar):
    async def delete_session(self, params: Json) -> Json:
        if params["sessionId"] == "check-no-such-session":
            self.kept(params["sessionId"])
        return await super().delete_session(params)
