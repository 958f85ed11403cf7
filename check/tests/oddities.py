"""Agents that are odd and right: whatever they do, some page allows it, so no rule may fail."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Container
from datetime import datetime, timedelta, timezone
from typing import ClassVar

import msgspec

from acp_check.errands import (
    COUNT,
    ExemplarSession,
    ExemplarTurn,
    Memory,
    Script,
    Speaker,
)
from acp_check.exemplar import Exemplar
from acp_check.grammar import NEEDS
from acp_check.record import Json, RefusalError, objects
from acp_wire.errors import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST
from acp_wire.rpc.transport import Transport
from tests.faults.register import Faults, chunk, tell_later
from tests.faults.tools import PlansWithTool

ODDITIES = Faults()
"""By their oddity: declared as faults are, but they break no rule."""

odd = ODDITIES.breaks
odd_script = ODDITIES.scripted


@odd("speaks version 2 as well, as the draft has it")
class _NextVersion(Exemplar):
    async def initialize(self, params: Json) -> Json:
        if params["protocolVersion"] == 1:
            return await super().initialize(params)
        if not {"info", "capabilities"} <= params.keys():
            raise RefusalError(INVALID_PARAMS, "`info` and `capabilities` are missing")
        methods = [{"methodId": name, "type": "agent", "name": name} for name in ("key", "web")]
        return {
            "protocolVersion": 2,
            "capabilities": {"session": {"prompt": {"image": {}}, "mcp": {"stdio": {}}}},
            "info": self.info(),
            "authMethods": methods,
        }


@odd("tells its usage with the answer of a prompt, as a draft has it")
class _UsageInAnswer(Exemplar):
    def end_of(self, turn: ExemplarTurn) -> Json:
        usage = {"totalTokens": 3, "inputTokens": 2, "outputTokens": 1}
        return {**super().end_of(turn), "usage": usage}


@odd("sends a notification of a draft")
class _TellsStatus(Exemplar):
    async def send_commands(self, session_id: str) -> None:
        await super().send_commands(session_id)
        self.notify("auth/status_update", {"status": {"type": "unauthenticated"}})


@odd("echoes the prompt in its turn")
class _Echoes(Exemplar):
    def remember_prompt(self, kept: ExemplarSession, blocks: list[Json]) -> None:
        super().remember_prompt(kept, blocks)
        for session_id, other in self.memory.sessions.items():
            if other is kept:
                for update in kept.history[-len(blocks) :]:
                    self.update(session_id, update, remembered=False)


@odd("takes requests about the sessions alone that this connection has opened")
class _OwnSessionsAlone(Exemplar):
    async def result(self, method: str, request: Json) -> object:
        params = request.get("params")
        used = params.get("sessionId") if isinstance(params, dict) else None
        if method in OF_OPEN_SESSIONS and used not in self.links:
            raise RefusalError(INVALID_PARAMS, f"the session {used} is not open here")
        return await super().result(method, request)


OF_OPEN_SESSIONS = (
    "session/prompt",
    "session/set_mode",
    "session/set_config_option",
    "session/close",
)


@odd("refuses to delete a session that is open on any connection")
class _KeepsTheOpen(Exemplar):
    opened: ClassVar[list[_KeepsTheOpen]] = []

    async def serve(self) -> None:
        self.opened.append(self)
        try:
            await super().serve()
        finally:
            self.opened.remove(self)

    async def delete_session(self, params: Json) -> Json:
        if any(params["sessionId"] in one.links for one in self.opened):
            raise RefusalError(INVALID_PARAMS, "this session is open")
        return await super().delete_session(params)


@odd("replays in pieces of three letters")
class _ReplaysPieces(Exemplar):
    def replay(self, kept: ExemplarSession) -> list[Json]:
        return [piece for update in kept.history for piece in _pieces(update)]


def _pieces(update: Json) -> list[Json]:
    content = update.get("content")
    text = content.get("text") if isinstance(content, dict) else None
    if not text or not update["sessionUpdate"].endswith("_chunk"):
        return [update]
    cuts = range(0, len(text), 3)
    return [{**update, "content": {**update["content"], "text": text[i : i + 3]}} for i in cuts]


@odd("replays each tool call as one update, in its last state")
class _ReplaysCallsWhole(Exemplar):
    def replay(self, kept: ExemplarSession) -> list[Json]:
        calls: dict[str, Json] = {}
        found: list[Json] = []
        for update in kept.history:
            call = calls.get(update.get("toolCallId", ""))
            if call is not None:
                call |= {k: v for k, v in update.items() if k != "sessionUpdate"}
            elif "toolCallId" in update:
                call = calls[update["toolCallId"]] = {**update}
                found.append(call)
            else:
                found.append(update)
        return found


@odd("replays the last plan alone")
class _ReplaysLastPlan(Exemplar):
    def replay(self, kept: ExemplarSession) -> list[Json]:
        last = [it for it in kept.history if it["sessionUpdate"] == "plan"][-1:]
        return [it for it in kept.history if it["sessionUpdate"] != "plan" or it is last[0]]


@odd_script("makes its plans with a tool, and tells them as well")
class _PlansWithTool(PlansWithTool):
    pass


@odd_script("says nothing in a turn with a plan")
class _PlansSilently(Script):
    def say(self, text: str) -> None:
        if text != "That is all.":
            super().say(text)


@odd("takes out of a plan what it need not do any more")
class _PlansLess(Exemplar):
    def update(self, session_id: str, update: Json, *, remembered: bool = True) -> None:
        if update["sessionUpdate"] == "plan":
            done = [it for it in update["entries"] if it["status"] == "completed"]
            update = {**update, "entries": done or update["entries"]}
        super().update(session_id, update, remembered=remembered)


@odd("answers a load with null")
class _NullAfterLoad(Exemplar):
    async def load_session(self, params: Json) -> None:  # type: ignore[override]
        await super().load_session(params)

    def settings(self, session_id: str) -> Json:
        return {}


@odd("tells the options of a session that is loaded by an update")
class _OptionsByUpdate(Exemplar):
    async def load_session(self, params: Json) -> Json:
        opened = await super().load_session(params)
        told = {"sessionUpdate": "config_option_update", "configOptions": opened["configOptions"]}
        self.update(params["sessionId"], told, remembered=False)
        return {"modes": opened["modes"]}


@odd("has another model for each mode")
class _ModelOfTheMode(Exemplar):
    async def set_mode(self, params: Json) -> Json:
        self.session(params["sessionId"]).model = "large" if params["modeId"] == "code" else "small"
        return await super().set_mode(params)


@odd("tells times with their offset, and fractions of seconds")
class _TimesWithOffset(Exemplar):
    def now(self) -> str:
        return (
            datetime.fromisoformat(super().now())
            .astimezone(_KOLKATA)
            .isoformat(timespec="microseconds")
        )


_KOLKATA = timezone(timedelta(hours=5, minutes=30))


@odd("tells no times and no titles")
class _BareList(Exemplar):
    def list_entry(self, session_id: str, kept: ExemplarSession) -> Json:
        found = super().list_entry(session_id, kept)
        return {**found, "updatedAt": None, "title": found.get("title")}


@odd("makes a cursor anew each time")
class _OtherCursors(Exemplar):
    made = 0

    async def list_sessions(self, params: Json) -> Json:
        cursor = params.get("cursor")
        if cursor:
            params = {**params, "cursor": cursor.partition("/")[0]}
        found = await super().list_sessions(params)
        if "nextCursor" in found:
            self.made += 1
            found["nextCursor"] += f"/{self.made}"
        return found


@odd("lists the oldest first")
class _OldestFirst(Exemplar):
    async def list_sessions(self, params: Json) -> Json:
        held = self.memory.sessions
        self.memory.sessions = dict(reversed(held.items()))
        try:
            return await super().list_sessions(params)
        finally:
            self.memory.sessions = held


@odd("has ids that say nothing")
class _HexIds(Exemplar):
    def new_id(self) -> str:
        super().new_id()
        return f"{self.memory.numbers * 2654435761 % 2**32:08x}"


@odd("runs the turns of several sessions one after the other")
class _OneTurnAtATime(Exemplar):
    async def prompt(self, request: Json, params: Json) -> Json:
        if not hasattr(self, "free"):
            self.free = asyncio.Lock()
        async with self.free:
            return await super().prompt(request, params)


@odd("finds a title long after the turn")
class _LateTitle(Exemplar):
    def end_of(self, turn: ExemplarTurn) -> Json:
        kept = self.session(turn.session_id)
        title = {"sessionUpdate": "session_info_update", "title": kept.title}
        self.start(tell_later(self, 0.6, turn.session_id, title))
        return super().end_of(turn)


@odd("tells both of a mode that the client has set")
class _TellsTheModeToo(Exemplar):
    async def set_mode(self, params: Json) -> Json:
        answer = await super().set_mode(params)
        current = {"sessionUpdate": "current_mode_update", "currentModeId": params["modeId"]}
        self.update(params["sessionId"], current, remembered=False)
        return answer


@odd("sends notifications of its own, which it has advertised")
class _OwnMethods(Exemplar):
    def capabilities(self) -> Json:
        return {**super().capabilities(), "_meta": {"vendor": {"hints": True}}}

    async def send_commands(self, session_id: str) -> None:
        await super().send_commands(session_id)
        self.notify("_vendor/hint", {"sessionId": session_id, "text": "hello"})


@odd("has nothing but the least")
class _Least(Exemplar):
    def capabilities(self) -> Json:
        return {}

    def settings(self, session_id: str) -> Json:
        return {}

    def auth_methods(self) -> list[Json]:
        return []


@odd("takes a text block without `text` for an empty one")
class _TakesEmptyTexts(Exemplar):
    def fits(self, method: str, params: Json) -> None:
        for block in objects(params.get("prompt")):
            if block["type"] == "text":
                block.setdefault("text", "")
        super().fits(method, params)


class _FreeNumbers:
    """The lowest number that no pending request has."""

    def __init__(self, pending: Container[int]) -> None:
        self._pending = pending

    def __next__(self) -> int:
        return next(it for it in itertools.count(1) if it not in self._pending)


@odd("uses the ids of answered requests again")
class _UsesIdsAgain(Exemplar):
    def __init__(self, transport: Transport, memory: Memory) -> None:
        super().__init__(transport, memory)
        self._ids = _FreeNumbers(self._asked)  # type: ignore[assignment]


@odd("has texts for the ids of its requests")
class _TextIds(Exemplar):
    def send(self, message: Json) -> None:
        if "method" in message and "id" in message:
            message = {**message, "id": f"agent-{message['id']}"}
        super().send(message)

    def hear_answer(self, message: Json) -> None:
        word, _, number = str(message.get("id")).partition("-")
        super().hear_answer({**message, "id": int(number)} if word == "agent" else message)


@odd("lists one session on each page")
class _PageOfOne(Exemplar):
    page_size = 1


@odd_script("tells a tool call once, when it is done")
class _OneShotTools(Script):
    def __init__(self, agent: Speaker, turn: ExemplarTurn, words: str) -> None:
        super().__init__(agent, turn, words)
        self.held: dict[str, Json] = {}

    def tool(self, title: str, kind: str, status: str = "in_progress", **more: object) -> str:
        if status != "in_progress":
            return super().tool(title, kind, status, **more)
        self._calls += 1
        call = f"{self.calls_named}-{self._calls}"
        self.held[call] = {"toolCallId": call, "title": title, "kind": kind, **more}
        return call

    def change(self, call: str, **fields: object) -> None:
        if call not in self.held:
            super().change(call, **fields)
        elif fields.get("status") in ("completed", "failed"):
            done = {**self.held.pop(call), **fields}
            self.agent.update(self.session_id, {"sessionUpdate": "tool_call", **done})
        else:
            self.held[call] |= fields


@odd("answers null to methods that it does not advertise")
class _NullForTheRest(_Least):
    async def result(self, method: str, request: Json) -> object:
        if method in NEEDS:
            return None
        return await super().result(method, request)


@odd("gives no ids to messages")
class _NoMessageIds(Exemplar):
    def update(self, session_id: str, update: Json, *, remembered: bool = True) -> None:
        bare = {name: value for name, value in update.items() if name != "messageId"}
        super().update(session_id, bare, remembered=remembered)


@odd("puts `_meta` everywhere")
class _Meta(Exemplar):
    def send(self, message: Json) -> None:
        for name in ("result", "params"):
            if isinstance(message.get(name), dict):
                message = {**message, name: {**message[name], "_meta": {"odd": True}}}
        super().send(message)


@odd("refuses unknown sessions with an internal error")
class _InternalErrors(Exemplar):
    def session(self, session_id: str) -> ExemplarSession:
        try:
            return super().session(session_id)
        except RefusalError as error:
            raise RefusalError(INTERNAL_ERROR, str(error)) from None


@odd("answers an array with an array, as JSON-RPC does")
class _AnswersArrays(Exemplar):
    async def take(self, raw: bytes) -> None:
        if not raw.startswith(b"["):
            return await super().take(raw)
        error = {"code": INVALID_REQUEST, "message": "no request"}
        answers = [{"jsonrpc": "2.0", "id": None, "error": error} for _ in msgspec.json.decode(raw)]
        self.write(msgspec.json.encode(answers))


@odd("opens no session that another process of it has open")
class _OpenInOneProcess(Exemplar):
    owners: ClassVar[dict[tuple[int, str], Exemplar]] = {}

    async def serve(self) -> None:
        try:
            await super().serve()
        finally:
            for key in [key for key, owner in self.owners.items() if owner is self]:
                del self.owners[key]

    async def result(self, method: str, request: Json) -> object:
        session_id = (request.get("params") or {}).get("sessionId", "")
        key = id(self.memory), session_id
        if method in ("session/load", "session/resume"):
            if self.owners.get(key, self) is not self:
                raise RefusalError(INTERNAL_ERROR, "it is open elsewhere")
            self.owners[key] = self
        elif method == "session/close":
            self.owners.pop(key, None)
        found = await super().result(method, request)
        if method == "session/new" and isinstance(found, dict):
            self.owners[id(self.memory), found["sessionId"]] = self
        return found


@odd_script("offers four answers to a permission")
class _FourOptions(Script):
    async def ask(self, method: str, params: Json) -> Json:
        if method == "session/request_permission":
            more = [
                {"optionId": "always", "name": "Always", "kind": "allow_always"},
                {"optionId": "never", "name": "Never", "kind": "reject_always"},
            ]
            params = {**params, "options": [*more, *params["options"]]}
        return await super().ask(method, params)


@odd_script("asks for a permission, and then for more of it")
class _AsksForMore(Script):
    async def ask_permission(self, call: str) -> bool:
        if not await super().ask_permission(call):
            return False
        self.change(call, title="Do it outside of the sandbox")
        return await super().ask_permission(call)


@odd_script("uses no tool at all")
class _NoTools(Script):
    async def run(self) -> None:
        self.say(f"I have no tools for this: {self.words}")


@odd("writes each character of each string as an escape")
class _Escapes(Exemplar):
    def write(self, line: bytes) -> None:
        super().write(_escaped(msgspec.json.decode(line)).encode())


def _escaped(value: object) -> str:
    """JSON in which the characters of all strings are escaped."""
    if isinstance(value, dict):
        members = (f"{_escaped(name)}:{_escaped(it)}" for name, it in value.items())
        return "{" + ",".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_escaped, value)) + "]"
    if isinstance(value, str):
        units = value.encode("utf-16-be", "surrogatepass").hex()
        fours = (units[at : at + 4] for at in range(0, len(units), 4))
        return '"' + "".join(f"\\u{it}" for it in fours) + '"'
    return msgspec.json.encode(value).decode()


class _CountsBriefly(Script):
    async def count(self) -> None:
        self.say("1, 2, and so on")
        await asyncio.sleep(0.35)


@odd("runs out of tokens in every turn")
class _FewTokens(Exemplar):
    script_type = _CountsBriefly

    def end_of(self, turn: ExemplarTurn) -> Json:
        return super().end_of(turn) if turn.cancelled else {"stopReason": "max_tokens"}


@odd("ends its third count at once, before it reads on")
class _BriefCounts(Exemplar):
    counts = 0

    async def prompt(self, request: Json, params: Json) -> Json:
        is_count = COUNT.words in str(params["prompt"])
        self.counts += is_count
        if not is_count or self.counts != 3:
            return await super().prompt(request, params)
        self.remember_prompt(self.session(params["sessionId"]), params["prompt"])
        self.update(params["sessionId"], chunk("1, 2, and so on"))
        return {"stopReason": "end_turn"}
