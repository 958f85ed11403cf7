"""Agents that break a rule of tools, permissions, files, terminals or choices."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress

from acp_check.errands import ExemplarTurn, InVainError, Memory, Script
from acp_check.exemplar import Exemplar
from acp_check.record import Json, RefusalError
from acp_wire.errors import INTERNAL_ERROR, METHOD_NOT_FOUND
from acp_wire.rpc.transport import Transport
from tests.faults.register import Faults

FAULTS = Faults()

# -- tool calls -------------------------------------------------------------------------------


FAULTS.refuses(
    "tool.turns",
    "session/prompt",
    lambda it: "Run the command" in str(it["prompt"]),
    INTERNAL_ERROR,
)


@FAULTS.scripted("tool.reported")
class _Silent(Script):
    def tool(self, title: str, kind: str, status: str = "in_progress", **more: object) -> str:
        return "silent" if kind == "read" else super().tool(title, kind, status, **more)

    def change(self, call: str, **fields: object) -> None:
        if call != "silent":
            super().change(call, **fields)


@FAULTS.scripted("tool.root-set")
class _WritesAnywhere(Script):
    """Asks for permission only within the folders of the session."""

    is_outside = False

    async def write(self, what: str, text: str) -> None:
        self.is_outside = what.startswith("/var/tmp")
        await super().write(what, text)

    async def ask_permission(self, call: str) -> bool:
        return self.is_outside or await super().ask_permission(call)


class PlansWithTool(Script):
    """Makes plans with a tool, and tells them as `told` has it."""

    def told(self, number: int, plan: Json) -> Json | None:
        return plan

    async def plan(self) -> None:
        for number, status in enumerate(("pending", "in_progress", "completed")):
            steps = [{"content": step, "status": status} for step in ("Knead", "Bake")]
            call = self.tool("Plan", "think", rawInput={"todos": steps})
            entries = [{**step, "priority": "high"} for step in steps]
            plan = self.told(number, {"sessionUpdate": "plan", "entries": entries})
            if plan is not None:
                self.agent.update(self.session_id, plan)
            self.change(call, status="completed")
        self.say("That is all.")


@FAULTS.scripted("plan.told")
class _PlansUntold(PlansWithTool):
    def told(self, number: int, plan: Json) -> None:
        return None


@FAULTS.scripted("plan.updated")
class _PlansToldOnce(PlansWithTool):
    def told(self, number: int, plan: Json) -> Json | None:
        return plan if number == 0 else None


@FAULTS.breaks("plan.complete")
class _TellsChangesOfPlans(Exemplar):
    plan: tuple[Json, ...] = ()

    def update(self, session_id: str, update: Json, *, remembered: bool = True) -> None:
        if update["sessionUpdate"] == "plan" and remembered:
            before, self.plan = self.plan, tuple(update["entries"])
            is_new = all(it["status"] == "pending" for it in self.plan)
            entries = [it for it in self.plan if is_new or it not in before]
            update = {**update, "entries": entries}
        super().update(session_id, update, remembered=remembered)


@FAULTS.scripted("tool.folder")
class _WhereItWasStarted(Script):
    def absolute(self, what: str) -> str:
        return what if what.startswith("/") else f"/{what}"


@FAULTS.breaks("tool.folder:newest")
class _OneFolderForAll(Exemplar):
    """Works in the folder of its newest session."""

    folder = ""

    async def new_session(self, params: Json) -> Json:
        self.folder = params["cwd"]
        return await super().new_session(params)

    def script(self, turn: ExemplarTurn, blocks: list[Json]) -> Script:
        made = super().script(turn, blocks)
        made.absolute = lambda what: os.path.join(self.folder, what)  # type: ignore[method-assign]
        return made


@FAULTS.scripted("tool.refused")
class _FailsAfterErrors(Script):
    async def in_terminal(self, call: str, command: str) -> str:
        try:
            return await super().in_terminal(call, command)
        except InVainError:
            raise RefusalError(INTERNAL_ERROR, "there is no terminal") from None


@FAULTS.scripted("json-rpc.in-time:errors")
class _WaitsAfterErrors(Script):
    async def in_terminal(self, call: str, command: str) -> str:
        try:
            return await super().in_terminal(call, command)
        except InVainError:
            await asyncio.sleep(3600)
            raise


@FAULTS.scripted("fs.offered:some")
class _WritesWhereItReads(Script):
    def offers(self, *path: str) -> bool:
        return super().offers(*path[:1])


@FAULTS.scripted("tool.unique-ids")
class _OneIdForAll(Script):
    def tool(self, title: str, kind: str, status: str = "in_progress", **more: object) -> str:
        self._calls = 0
        return super().tool(title, kind, status, **more)


@FAULTS.breaks("tool.unique-ids:restart")
class _CountsAnew(Exemplar):
    """Numbers its calls from 1 in every process."""

    def __init__(self, transport: Transport, memory: Memory) -> None:
        super().__init__(transport, memory)
        self.calls: dict[str, int] = {}

    def script(self, turn: ExemplarTurn, blocks: list[Json]) -> Script:
        made = super().script(turn, blocks)
        made._calls = self.calls.get(turn.session_id, 0)
        tools = "tool for" in made.words or "Run the" in made.words
        self.calls[turn.session_id] = made._calls + tools
        return made


@FAULTS.scripted("tool.known-id")
class _UpdateFirst(Script):
    def tool(self, title: str, kind: str, status: str = "in_progress", **more: object) -> str:
        self.change(f"call-{self._calls + 1}", status="pending")
        return super().tool(title, kind, status, **more)


@FAULTS.scripted("tool.ends")
class _LeavesOpen(Script):
    async def read(self, what: str) -> None:
        await super().read(what)
        self.tool("Read more", "read")


@FAULTS.scripted("tool.no-way-back")
class _BeginsAgain(Script):
    async def read(self, what: str) -> None:
        await super().read(what)
        call = f"call-{self._calls}"
        self.change(call, status="in_progress")
        self.change(call, status="completed")


@FAULTS.scripted("tool.in-progress")
class _SilentAfterYes(Script):
    async def run_command(self, command: str) -> None:
        call = self.tool("Run a command", "execute", status="failed")
        await self.ask_permission(call)


@FAULTS.scripted("tool.absolute")
class _RelativePaths(Script):
    def tool(self, title: str, kind: str, status: str = "in_progress", **more: object) -> str:
        if kind == "read":
            more["locations"] = [{"path": "walnut.txt"}]
        return super().tool(title, kind, status, **more)


class _ForNoSession(Script):
    names: object = "none"

    async def ask(self, method: str, params: Json) -> Json:
        if method == "fs/read_text_file":
            params = {**params, "sessionId": self.names}
        return await super().ask(method, params)


FAULTS.scripted("session.known-id:file")(_ForNoSession)


@FAULTS.scripted("session.known-id:number")
class _ForANumber(_ForNoSession):
    names = 17


@FAULTS.scripted("tool.lines")
class _LineZero(Script):
    def tool(self, title: str, kind: str, status: str = "in_progress", **more: object) -> str:
        if kind == "read":
            more["locations"] = [{"path": "/walnut.txt", "line": 0}]
        return super().tool(title, kind, status, **more)


# -- permission -------------------------------------------------------------------------------


@FAULTS.scripted("permission.rejected")
class _DoesItAnyhow(Script):
    async def ask_permission(self, call: str) -> bool:
        await super().ask_permission(call)
        return not self.turn.cancelled


@FAULTS.scripted("permission.rejected:elsewhere")
class _WritesItsOwnFile(Script):
    """Writes another file than it was asked for, after no as after yes."""

    async def write(self, what: str, text: str) -> None:
        path = self.absolute("note.txt")
        call = self.tool("Write a note", "edit", status="pending", locations=[{"path": path}])
        with self.failing(call):
            await self.ask_permission(call)
            if self.offers("fs", "writeTextFile") and not self.turn.cancelled:
                await self.ask("fs/write_text_file", {"path": path, "content": text})
            self.change(call, status="completed")


@FAULTS.scripted("permission.once")
class _AsksTwice(Script):
    async def ask_permission(self, call: str) -> bool:
        return await super().ask_permission(call) and await super().ask_permission(call)


@FAULTS.scripted("permission.once:refused")
class _InsistsOnce(Script):
    async def ask_permission(self, call: str) -> bool:
        return await super().ask_permission(call) or await super().ask_permission(call)


@FAULTS.scripted("permission.cancelled-is-no-yes")
class _DoesItWhenCancelled(Script):
    async def ask_permission(self, call: str) -> bool:
        return await super().ask_permission(call) or self.turn.cancelled


@FAULTS.scripted("cancel.permission")
class _GoesOnUnpermitted(Script):
    async def ask_permission(self, call: str) -> bool:
        allowed = await super().ask_permission(call)
        self.turn.cancelled = False
        return allowed


@FAULTS.scripted("json-rpc.in-time:permission")
class _WaitsForEver(Script):
    async def ask_permission(self, call: str) -> bool:
        allowed = await super().ask_permission(call)
        if self.turn.cancelled:
            await asyncio.sleep(3600)
        return allowed


FAULTS.asks(
    "permission.options",
    "session/request_permission",
    lambda it: {"options": [*it["options"], {**it["options"][0], "kind": "allow_always"}]},
)
FAULTS.asks("permission.options:none", "session/request_permission", lambda _: {"options": []})
# -- tools of clients -------------------------------------------------------------------------


class _Asker(Script):
    """Asks for something in a greeting, and goes on whatever is answered."""

    asks: tuple[str, Json] = ("", {})

    async def greet(self) -> None:
        method, params = self.asks
        with suppress(InVainError):
            await self.ask(method, params)
        await super().greet()


@FAULTS.scripted("fs.offered")
class _ReadsUnasked(_Asker):
    asks = ("fs/read_text_file", {"path": "/etc/hostname"})


@FAULTS.scripted("terminal.offered")
class _RunsUnasked(_Asker):
    asks = ("terminal/create", {"command": "true"})


@FAULTS.scripted("elicitation.offered")
class _ShowsForms(_Asker):
    asks = (
        "elicitation/create",
        {"mode": "form", "message": "Well?", "requestedSchema": {"type": "object"}},
    )


FAULTS.asks("fs.absolute", "fs/read_text_file", lambda _: {"path": "walnut.txt"})
FAULTS.asks("fs.lines", "fs/read_text_file", lambda _: {"line": 0})
FAULTS.asks("terminal.absolute", "terminal/create", lambda _: {"cwd": "."})
FAULTS.asks("terminal.folder", "terminal/create", lambda _: {"cwd": os.getcwd()})


@FAULTS.scripted("terminal.released")
class _KeepsTerminals(Script):
    async def ask(self, method: str, params: Json) -> Json:
        return {} if method == "terminal/release" else await super().ask(method, params)


@FAULTS.scripted("terminal.known-id")
class _ReleasesTwice(Script):
    async def ask(self, method: str, params: Json) -> Json:
        if method == "terminal/release":
            await super().ask(method, params)
        return await super().ask(method, params)


@FAULTS.scripted("terminal.known-id:shown")
class _ShowsWhatIsNotThere(Script):
    def change(self, call: str, **fields: object) -> None:
        if "terminalId" in str(fields):
            fields["content"] = [{"type": "terminal", "terminalId": "terminal-of-mine"}]
        super().change(call, **fields)


@FAULTS.scripted("terminal.known-id:late")
class _ShowsWhatIsReleased(Script):
    def change(self, call: str, **fields: object) -> None:
        self.shown = getattr(self, "shown", {})
        if "terminalId" in str(fields):
            self.shown[call] = fields.pop("content")
        elif call in self.shown and fields.get("status") == "completed":
            fields["content"] = self.shown[call]
        if fields:
            super().change(call, **fields)


# -- modes ------------------------------------------------------------------------------------


FAULTS.offers_modes(
    "modes.current",
    lambda it: {
        **it,
        "availableModes": [m for m in it["availableModes"] if m["id"] != it["currentModeId"]],
    },
)
FAULTS.offers_modes(
    "modes.unique-ids",
    lambda it: {**it, "availableModes": [*it["availableModes"], {"id": "ask", "name": "Ask"}]},
)
FAULTS.tells("modes.known-updates", "current_mode_update", lambda _: {"currentModeId": "secret"})
FAULTS.refuses("modes.set", "session/set_mode", lambda it: it["modeId"] == "code", METHOD_NOT_FOUND)
FAULTS.passes_over(
    "modes.unknown", "session/set_mode", lambda _, it: it["modeId"] == "check-no-such-mode", {}
)


@FAULTS.breaks("modes.unknown:set")
class _SetsAnotherMode(Exemplar):
    async def set_mode(self, params: Json) -> Json:
        if params["modeId"] == "check-no-such-mode":
            self.session(params["sessionId"]).mode = "code"
        return await super().set_mode(params)


# -- options ----------------------------------------------------------------------------------


FAULTS.offers_options("options.unique-ids", lambda options: [*options, options[1]])
FAULTS.offers_options(
    "options.current",
    lambda options: [
        *options,
        {**options[1], "id": "odd", "category": None, "currentValue": "huge"},
    ],
)


@FAULTS.breaks("options.boolean-offered")
class _BooleansForAll(Exemplar):
    def shows_booleans(self) -> bool:
        return True


FAULTS.offers_options(
    "options.categories",
    lambda options: [options[0], {**options[1], "category": "brain"}, *options[2:]],
)


@FAULTS.breaks("options.and-modes")
class _OptionsOnly(Exemplar):
    def settings(self, session_id: str) -> Json:
        return {"configOptions": self.options(session_id)}


FAULTS.offers_modes("options.in-step", lambda it: {**it, "currentModeId": "code"})


@FAULTS.breaks("options.set")
class _ForgetsTheValue(Exemplar):
    async def set_option(self, params: Json) -> Json:
        before = self.options(params["sessionId"])
        await super().set_option(params)
        return {"configOptions": before}


FAULTS.answers(
    "options.complete",
    "session/set_config_option",
    lambda _, asked, found: {
        "configOptions": [it for it in found["configOptions"] if it["id"] == asked["configId"]]
    },
)


@FAULTS.breaks("options.own-session")
class _OneModeForAll(Exemplar):
    async def set_option(self, params: Json) -> Json:
        found = await super().set_option(params)
        if params["configId"] == "mode":
            for kept in self.memory.sessions.values():
                kept.mode = params["value"]
        return found


@FAULTS.breaks("options.unknown")
class _AnyOption(Exemplar):
    async def set_option(self, params: Json) -> Json:
        if params["configId"] == "check-no-such-option":
            return {"configOptions": self.options(params["sessionId"])}
        return await super().set_option(params)


@FAULTS.breaks("options.unknown-value")
class _AnyValue(Exemplar):
    async def set_option(self, params: Json) -> Json:
        if params["value"] == "check-no-value":
            return {"configOptions": self.options(params["sessionId"])}
        return await super().set_option(params)


@FAULTS.breaks("options.unknown-value:set")
class _SetsWhatItRefuses(Exemplar):
    async def set_option(self, params: Json) -> Json:
        if params["configId"] == "mode":
            self.session(params["sessionId"]).mode = params["value"]
        return await super().set_option(params)


@FAULTS.breaks("options.unknown-value:resets")
class _ForgetsOthers(Exemplar):
    async def set_option(self, params: Json) -> Json:
        if params["value"] == "check-no-value":
            self.session(params["sessionId"]).model = "large"
        return await super().set_option(params)


FAULTS.refuses(
    "options.set-boolean",
    "session/set_config_option",
    lambda it: isinstance(it["value"], bool),
    INTERNAL_ERROR,
)


@FAULTS.breaks("commands.names")
class _Slashes(Exemplar):
    def commands(self) -> Json:
        command = {"name": "/test", "description": "Run the tests"}
        return {**super().commands(), "availableCommands": [command]}


# -- schema and extensions --------------------------------------------------------------------


FAULTS.offers_modes(
    "schema.results",
    lambda it: {**it, "availableModes": [{"id": mode["id"]} for mode in it["availableModes"]]},
)


@FAULTS.breaks("schema.empty-results")
class _Nulls(Exemplar):
    async def answer(self, request: Json) -> None:
        if request["method"] == "session/close":
            await super().close_session(request["params"])
            self.reply(request, None)
        else:
            await super().answer(request)


FAULTS.tells(
    "schema.updates",
    "plan",
    lambda it: {"entries": [{**entry, "priority": "urgent"} for entry in it["entries"]]},
)


@FAULTS.breaks("schema.updates:kind")
class _OwnKind(Exemplar):
    def commands(self) -> Json:
        return {"sessionUpdate": "mood_update", "mood": "fine"}


FAULTS.asks("schema.requests", "terminal/create", lambda _: {"outputByteLimit": "much"})


@FAULTS.breaks("schema.offered-updates")
class _NoticesForAll(Exemplar):
    def commands(self) -> Json:
        return {"sessionUpdate": "notice", "severity": "info", "title": "Welcome"}


FAULTS.tells("extension.members", "usage_update", lambda _: {"percent": 1})


FAULTS.tells(
    "extension.members:below",
    "agent_message_chunk",
    lambda it: {"content": {**it["content"], "tone": "warm"}},
)


@FAULTS.breaks("extension.methods")
class _CustomMethod(Exemplar):
    async def send_commands(self, session_id: str) -> None:
        await super().send_commands(session_id)
        self.notify("exemplar/ready", {})


class _CustomRequests(Exemplar):
    async def answer(self, request: Json) -> None:
        if request["method"].startswith("_check.example"):
            self.custom(request)
        else:
            await super().answer(request)

    def custom(self, request: Json) -> None:
        """Answer a custom request, or do not."""


@FAULTS.breaks("extension.answered")
class _IgnoresCustom(_CustomRequests):
    pass


@FAULTS.breaks("extension.unknown-request")
class _NullForCustom(_CustomRequests):
    def custom(self, request: Json) -> None:
        self.reply(request, None)


@FAULTS.breaks("extension.unknown-notification")
class _ComplainsOfCustom(Exemplar):
    def hear(self, message: Json) -> None:
        super().hear(message)
        if message["method"].startswith("_check.example"):
            self.send({"id": None, "error": {"code": METHOD_NOT_FOUND, "message": "what?"}})
