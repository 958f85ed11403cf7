"""Agents that break a rule of tools, permissions, files, terminals or choices."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress

from acphold.conformance.exemplar import Exemplar, RefusedError
from acphold.conformance.exemplar_turns import InVainError, Memory, Script, Turn
from acphold.conformance.record import Json
from acphold.errors import INTERNAL_ERROR, METHOD_NOT_FOUND
from acphold.rpc.transport import Transport
from tests.conformance.faults.register import Faults

FAULTS = Faults()

# -- tool calls -------------------------------------------------------------------------------


@FAULTS.breaks("tool.turns")
class _FailsWithTools(Exemplar):
    async def prompt(self, request: Json, params: Json) -> Json:
        if "Run the command" in str(params["prompt"]):
            raise RefusedError(INTERNAL_ERROR, "no shell")
        return await super().prompt(request, params)


@FAULTS.scripted("tool.reported")
class _Silent(Script):
    def tool(self, title: str, kind: str, status: str = "in_progress", **more: object) -> str:
        return "silent" if kind == "read" else super().tool(title, kind, status, **more)

    def change(self, call: str, **fields: object) -> None:
        if call != "silent":
            super().change(call, **fields)


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

    def script(self, turn: Turn, blocks: list[Json]) -> Script:
        made = super().script(turn, blocks)
        made.absolute = lambda what: os.path.join(self.folder, what)  # type: ignore[method-assign]
        return made


@FAULTS.scripted("tool.refused")
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

    def script(self, turn: Turn, blocks: list[Json]) -> Script:
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
        await self.permitted(call)


@FAULTS.scripted("tool.absolute")
class _RelativePaths(Script):
    def tool(self, title: str, kind: str, status: str = "in_progress", **more: object) -> str:
        if kind == "read":
            more["locations"] = [{"path": "walnut.txt"}]
        return super().tool(title, kind, status, **more)


@FAULTS.scripted("tool.lines")
class _LineZero(Script):
    def tool(self, title: str, kind: str, status: str = "in_progress", **more: object) -> str:
        if kind == "read":
            more["locations"] = [{"path": "/walnut.txt", "line": 0}]
        return super().tool(title, kind, status, **more)


# -- permission -------------------------------------------------------------------------------


@FAULTS.scripted("permission.rejected")
class _DoesItAnyhow(Script):
    async def permitted(self, call: str) -> bool:
        await super().permitted(call)
        return not self.is_cancelled()


@FAULTS.scripted("permission.cancelled-is-no-yes")
class _DoesItWhenCancelled(Script):
    async def permitted(self, call: str) -> bool:
        return await super().permitted(call) or self.is_cancelled()


@FAULTS.scripted("cancel.permission")
class _WaitsForEver(Script):
    async def permitted(self, call: str) -> bool:
        allowed = await super().permitted(call)
        if self.is_cancelled():
            await asyncio.sleep(3600)
        return allowed


class _OptionEditor(Script):
    def edited(self, options: list[Json]) -> list[Json]:
        return options

    async def ask(self, method: str, params: Json) -> Json:
        if "options" in params:
            params = {**params, "options": self.edited(params["options"])}
        return await super().ask(method, params)


@FAULTS.scripted("permission.options")
class _OneOptionId(_OptionEditor):
    def edited(self, options: list[Json]) -> list[Json]:
        return [*options, {**options[0], "kind": "allow_always"}]


@FAULTS.scripted("permission.options:none")
class _NoOptions(_OptionEditor):
    def edited(self, options: list[Json]) -> list[Json]:
        return []


# -- what clients serve -----------------------------------------------------------------------


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


class _Rewriter(Script):
    """Changes what is asked of the client in one method."""

    method = ""
    changes: Json = {}  # noqa: RUF012  (never changed)

    async def ask(self, method: str, params: Json) -> Json:
        if method == self.method:
            params = {**params, **self.changes}
        return await super().ask(method, params)


@FAULTS.scripted("fs.absolute")
class _ReadsRelative(_Rewriter):
    method = "fs/read_text_file"
    changes = {"path": "walnut.txt"}  # noqa: RUF012


@FAULTS.scripted("fs.lines")
class _ReadsLineZero(_Rewriter):
    method = "fs/read_text_file"
    changes = {"line": 0}  # noqa: RUF012


@FAULTS.scripted("terminal.absolute")
class _RelativeTerminal(_Rewriter):
    method = "terminal/create"
    changes = {"cwd": "."}  # noqa: RUF012


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


# -- modes ------------------------------------------------------------------------------------


class _ModeEditor(Exemplar):
    def modes(self, session_id: str) -> Json:
        return self.edited(super().modes(session_id))

    def edited(self, modes: Json) -> Json:
        return modes


@FAULTS.breaks("modes.current")
class _InNoMode(_ModeEditor):
    def edited(self, modes: Json) -> Json:
        current = modes["currentModeId"]
        others = [mode for mode in modes["availableModes"] if mode["id"] != current]
        return {**modes, "availableModes": others}


@FAULTS.breaks("modes.unique-ids")
class _ModeTwice(_ModeEditor):
    def edited(self, modes: Json) -> Json:
        return {**modes, "availableModes": [*modes["availableModes"], {"id": "ask", "name": "Ask"}]}


@FAULTS.breaks("modes.known-updates")
class _TellsAnotherMode(Exemplar):
    def update(self, session_id: str, update: Json, *, remembered: bool = True) -> None:
        if update["sessionUpdate"] == "current_mode_update":
            update = {**update, "currentModeId": "secret"}
        super().update(session_id, update, remembered=remembered)


@FAULTS.breaks("modes.set")
class _CannotSetModes(Exemplar):
    async def set_mode(self, params: Json) -> Json:
        if params["modeId"] == "code":
            raise RefusedError(METHOD_NOT_FOUND, "no method session/set_mode")
        return await super().set_mode(params)


@FAULTS.breaks("modes.unknown")
class _AnyMode(Exemplar):
    async def set_mode(self, params: Json) -> Json:
        return {}


# -- options ----------------------------------------------------------------------------------


class _OptionsEditor(Exemplar):
    def options(self, session_id: str) -> list[Json]:
        return self.edited(super().options(session_id))

    def edited(self, options: list[Json]) -> list[Json]:
        return options


@FAULTS.breaks("options.unique-ids")
class _OptionTwice(_OptionsEditor):
    def edited(self, options: list[Json]) -> list[Json]:
        return [*options, options[1]]


@FAULTS.breaks("options.current")
class _OddValue(_OptionsEditor):
    def edited(self, options: list[Json]) -> list[Json]:
        odd = {**options[1], "id": "odd", "category": None, "currentValue": "huge"}
        return [*options, odd]


@FAULTS.breaks("options.boolean-offered")
class _BooleansForAll(Exemplar):
    def shows_booleans(self) -> bool:
        return True


@FAULTS.breaks("options.categories")
class _OwnCategory(_OptionsEditor):
    def edited(self, options: list[Json]) -> list[Json]:
        return [options[0], {**options[1], "category": "brain"}, *options[2:]]


@FAULTS.breaks("options.and-modes")
class _OptionsOnly(Exemplar):
    def settings(self, session_id: str) -> Json:
        return {"configOptions": self.options(session_id)}


@FAULTS.breaks("options.in-step")
class _OutOfStep(_ModeEditor):
    def edited(self, modes: Json) -> Json:
        return {**modes, "currentModeId": "code"}


@FAULTS.breaks("options.set")
class _ForgetsTheValue(Exemplar):
    async def set_option(self, params: Json) -> Json:
        before = self.options(params["sessionId"])
        await super().set_option(params)
        return {"configOptions": before}


@FAULTS.breaks("options.complete")
class _OnlyTheOne(Exemplar):
    async def set_option(self, params: Json) -> Json:
        found = await super().set_option(params)
        options = [it for it in found["configOptions"] if it["id"] == params["configId"]]
        return {"configOptions": options}


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


@FAULTS.breaks("options.set-boolean")
class _StuckSwitch(Exemplar):
    async def set_option(self, params: Json) -> Json:
        if isinstance(params["value"], bool):
            raise RefusedError(INTERNAL_ERROR, "it cannot be switched")
        return await super().set_option(params)


@FAULTS.breaks("commands.names")
class _Slashes(Exemplar):
    def commands(self) -> Json:
        command = {"name": "/test", "description": "Run the tests"}
        return {**super().commands(), "availableCommands": [command]}


# -- schema and extensions --------------------------------------------------------------------


@FAULTS.breaks("schema.results")
class _ModesWithoutNames(_ModeEditor):
    def edited(self, modes: Json) -> Json:
        return {**modes, "availableModes": [{"id": it["id"]} for it in modes["availableModes"]]}


@FAULTS.breaks("schema.empty-results")
class _Nulls(Exemplar):
    async def answer(self, request: Json) -> None:
        if request["method"] == "session/close":
            await super().close_session(request["params"])
            self.reply(request, None)
        else:
            await super().answer(request)


@FAULTS.breaks("schema.updates")
class _OddPriority(Exemplar):
    def update(self, session_id: str, update: Json, *, remembered: bool = True) -> None:
        if update["sessionUpdate"] == "plan":
            entries = [{**entry, "priority": "urgent"} for entry in update["entries"]]
            update = {**update, "entries": entries}
        super().update(session_id, update, remembered=remembered)


@FAULTS.breaks("schema.updates:kind")
class _OwnKind(Exemplar):
    def commands(self) -> Json:
        return {"sessionUpdate": "mood_update", "mood": "fine"}


@FAULTS.scripted("schema.requests")
class _WordForLimit(_Rewriter):
    method = "terminal/create"
    changes = {"outputByteLimit": "much"}  # noqa: RUF012


@FAULTS.breaks("schema.offered-updates")
class _NoticesForAll(Exemplar):
    def commands(self) -> Json:
        return {"sessionUpdate": "notice", "severity": "info", "title": "Welcome"}


@FAULTS.breaks("extension.members")
class _CustomMembers(Exemplar):
    def update(self, session_id: str, update: Json, *, remembered: bool = True) -> None:
        if update["sessionUpdate"] == "usage_update":
            update = {**update, "percent": 1}
        super().update(session_id, update, remembered=remembered)


@FAULTS.breaks("extension.members:drafted")
class _UsageAtTheRoot(Exemplar):
    def end_of(self, turn: Turn) -> Json:
        return {**super().end_of(turn), "usage": {"inputTokens": 1, "outputTokens": 1}}


@FAULTS.breaks("extension.methods")
class _CustomMethod(Exemplar):
    async def tell_commands(self, session_id: str) -> None:
        await super().tell_commands(session_id)
        self.tell("exemplar/ready", {})


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
