"""Agents that break a rule of connections: of lines, of requests, of the introduction."""

from __future__ import annotations

import asyncio

import msgspec

from acp_check.exemplar import Exemplar
from acp_check.record import Json, RefusalError
from acp_wire.errors import (
    AUTH_REQUIRED,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
)
from tests.faults.register import Faults

FAULTS = Faults()

# -- introduction -----------------------------------------------------------------------------


FAULTS.answers("initialize.answer", "initialize", lambda *_: {"agentCapabilities": {}})


FAULTS.answers(
    "initialize.capabilities",
    "initialize",
    lambda _, params, answer: {k: v for k, v in answer.items() if k != "agentCapabilities"},
)


@FAULTS.breaks("auth.terminal-arguments")
class _LogsInLikeThat(Exemplar):
    def auth_methods(self) -> list[Json]:
        return [{k: v for k, v in it.items() if k != "args"} for it in super().auth_methods()]


@FAULTS.breaks("extension.advertised")
class _TellsMore(Exemplar):
    async def send_commands(self, session_id: str) -> None:
        await super().send_commands(session_id)
        self.notify("_exemplar/colour", {"sessionId": session_id, "colour": "green"})


@FAULTS.breaks("initialize.same-version")
class _OtherVersion(Exemplar):
    def version(self, asked: int) -> int:
        return 2


@FAULTS.breaks("initialize.other-version")
class _EchoesVersion(Exemplar):
    def version(self, asked: int) -> int:
        return asked


FAULTS.refuses(
    "initialize.other-version:refused", "initialize", lambda it: it["protocolVersion"] != 1
)


@FAULTS.breaks("initialize.other-version:next")
class _EchoesTheNext(Exemplar):
    def version(self, asked: int) -> int:
        return asked if asked < 100 else 1


FAULTS.refuses("initialize.few-members", "initialize", lambda it: "clientCapabilities" not in it)
FAULTS.refuses(
    "initialize.new-members",
    "initialize",
    lambda it: it.keys() - {"protocolVersion", "clientCapabilities", "clientInfo"},
)


@FAULTS.breaks("initialize.again")
class _OneClientName(Exemplar):
    """Takes one client of a name for the same one, which is connected."""

    async def initialize(self, params: Json) -> Json:
        self.memory.numbers += 1
        if self.memory.numbers == 6 and "title" in (params.get("clientInfo") or {}):
            raise RefusalError(INTERNAL_ERROR, "you are connected")
        return await super().initialize(params)


@FAULTS.breaks("initialize.info")
class _Nameless(Exemplar):
    def info(self) -> Json:
        return {"name": "exemplar", "version": ""}


# -- signing in -------------------------------------------------------------------------------


@FAULTS.breaks("auth.unique-ids")
class _OneIdTwice(Exemplar):
    def auth_methods(self) -> list[Json]:
        return [{"id": "key", "name": "Use a key"}, {"id": "key", "name": "Use another"}]


@FAULTS.breaks("auth.terminal-offered")
class _TerminalForAll(Exemplar):
    def auth_methods(self) -> list[Json]:
        return [{"id": "login", "name": "Log in", "type": "terminal", "args": ["login"]}]


@FAULTS.breaks("auth.methods-for-sign-in")
class _NoWayIn(Exemplar):
    sign_in_wanted = True

    def auth_methods(self) -> list[Json]:
        return []


FAULTS.passes_over("auth.unknown-method", "authenticate", lambda *_: True, {})


@FAULTS.breaks("auth.signed-in")
class _NeverSignedIn(Exemplar):
    def require_sign_in(self) -> None:
        raise RefusalError(AUTH_REQUIRED, "sign in first")


FAULTS.refuses("auth.logout", "logout", lambda _: True, METHOD_NOT_FOUND)


@FAULTS.breaks("auth.logout:code")
class _ForgetsTheCode(Exemplar):
    is_out = False

    async def result(self, asked: str, request: Json) -> object:
        if self.is_out and asked == "session/new":
            raise RefusalError(INTERNAL_ERROR, "nobody is signed in")
        self.is_out = self.is_out or asked == "logout"
        return await super().result(asked, request)


# -- lines ------------------------------------------------------------------------------------


@FAULTS.breaks("stdio.utf-8")
class _Latin1(Exemplar):
    def write(self, line: bytes) -> None:
        super().write(line.replace("Müs".encode(), b"M\xfcs"))

    def info(self) -> Json:
        return {**super().info(), "title": "Müsterbild"}


@FAULTS.breaks("stdio.only-messages")
class _Prints(Exemplar):
    async def new_session(self, params: Json) -> Json:
        self.write(b"making a session ...")
        return await super().new_session(params)


@FAULTS.breaks("stdio.only-messages:several-lines")
class _PrettyPrints(Exemplar):
    async def new_session(self, params: Json) -> Json:
        note = {"jsonrpc": "2.0", "method": "_note", "params": {}}
        self.write(msgspec.json.format(msgspec.json.encode(note), indent=2))
        return await super().new_session(params)


@FAULTS.breaks("stdio.only-messages:blank")
class _BlankLines(Exemplar):
    def write(self, line: bytes) -> None:
        super().write(line + b"\n")


@FAULTS.breaks("stdio.only-messages:byte-order-mark")
class _ByteOrderMark(Exemplar):
    begun = False

    def send(self, message: Json) -> None:
        update = message.get("params", {}).get("update", {})
        if update.get("sessionUpdate") == "current_mode_update" and not self.begun:
            self.begun = True
            self.write(b"\xef\xbb\xbf" + msgspec.json.encode({"jsonrpc": "2.0", **message}))
        else:
            super().send(message)


@FAULTS.breaks("stdio.pieces")
class _OneMessageARead(Exemplar):
    async def take(self, raw: bytes) -> None:
        if b"check-piece-1" in raw or b"check-piece-2" in raw:
            return
        await super().take(raw)


@FAULTS.breaks("stdio.line-separators")
class _SplitsLines(Exemplar):
    async def take(self, raw: bytes) -> None:
        for line in raw.decode().splitlines():
            if line[:1] == "{" and line[-1:] == "}":
                await super().take(line.encode())


@FAULTS.breaks("stdio.long-lines")
class _ShortLines(Exemplar):
    async def take(self, raw: bytes) -> None:
        if len(raw) < 65536:
            await super().take(raw)


@FAULTS.breaks("stdio.ends-with-stdin")
class _Stays(Exemplar):
    async def serve(self) -> None:
        await super().serve()
        await asyncio.sleep(3600)


# -- JSON-RPC ---------------------------------------------------------------------------------


@FAULTS.breaks("json-rpc.version")
class _NoJsonRpc(Exemplar):
    def notify(self, method: str, params: Json) -> None:
        self.write(msgspec.json.encode({"method": method, "params": params}))


@FAULTS.breaks("json-rpc.result-or-error")
class _ResultAndError(Exemplar):
    def refuse(self, request: Json, code: int, message: str) -> None:
        error = {"code": code, "message": message}
        self.send({"id": request["id"], "result": None, "error": error})


@FAULTS.breaks("json-rpc.result-or-error:code")
class _CodeIsText(Exemplar):
    def refuse(self, request: Json, code: int, message: str) -> None:
        if request["method"] == "session/prompt":
            self.send({"id": request["id"], "error": {"code": str(code), "message": message}})
        else:
            super().refuse(request, code, message)


@FAULTS.breaks("json-rpc.same-id")
class _IdBecomesText(Exemplar):
    def reply(self, request: Json, result: object) -> None:
        if request["method"] == "session/prompt":
            self.send({"id": str(request["id"]), "result": result})
        else:
            super().reply(request, result)


@FAULTS.breaks("json-rpc.same-id:null")
class _ErrorsLoseTheId(Exemplar):
    def refuse(self, request: Json, code: int, message: str) -> None:
        is_mode = request["method"] == "session/set_mode"
        super().refuse({**request, "id": None} if is_mode else request, code, message)


@FAULTS.breaks("json-rpc.same-id:fractional")
class _IdBecomesFractional(Exemplar):
    def send(self, message: Json) -> None:
        if "method" not in message and isinstance(message["id"], int):
            message = {**message, "id": float(message["id"])}
        super().send(message)


@FAULTS.breaks("json-rpc.kinds")
class _UpdatesAreRequests(Exemplar):
    def notify(self, method: str, params: Json) -> None:
        self.send({"id": next(self._ids), "method": method, "params": params})


@FAULTS.breaks("json-rpc.own-ids")
class _FractionalIds(Exemplar):
    def send(self, message: Json) -> None:
        if message.get("method") == "session/request_permission":
            message = {**message, "id": message["id"] + 0.5}
        super().send(message)

    def hear_answer(self, message: Json) -> None:
        super().hear_answer({**message, "id": int(message["id"])})


@FAULTS.breaks("json-rpc.one-answer")
class _AnswersTwice(Exemplar):
    def reply(self, request: Json, result: object) -> None:
        super().reply(request, result)
        if request["method"] == "session/new":
            super().reply(request, result)


@FAULTS.breaks("json-rpc.error-message")
class _ErrorOfManyLines(Exemplar):
    def refuse(self, request: Json, code: int, message: str) -> None:
        super().refuse(request, code, f"Traceback:\n  line 1\n{message}")


@FAULTS.breaks("json-rpc.error-codes")
class _ReservedCode(Exemplar):
    def refuse(self, request: Json, code: int, message: str) -> None:
        known = request["method"] in ("session/prompt", "session/load")
        super().refuse(request, -32150 if known else code, message)


FAULTS.ignores("json-rpc.string-id", lambda it: it["id"] == "check-7f3a")


@FAULTS.breaks("json-rpc.string-id:number")
class _NumbersFromText(Exemplar):
    def send(self, message: Json) -> None:
        id = message.get("id")
        if isinstance(id, str) and id.isdecimal() and id[0] != "0":
            message = {**message, "id": int(id)}
        super().send(message)


FAULTS.ignores("json-rpc.zero-id:negative", lambda it: isinstance(it["id"], int) and it["id"] < 0)
FAULTS.ignores("json-rpc.zero-id", lambda it: not it["id"])
FAULTS.ignores("json-rpc.large-id", lambda it: isinstance(it["id"], int) and it["id"] >= 2**31)
FAULTS.passes_over("json-rpc.unknown-method", "check/no_such_method", lambda *_: True, None)


@FAULTS.breaks("json-rpc.invalid-params")
class _TakesAnything(Exemplar):
    def fits(self, method: str, params: Json) -> None:
        if method == "session/new":
            params.setdefault("cwd", "/")
            params["mcpServers"] = []


@FAULTS.breaks("json-rpc.invalid-params:prompt")
class _TakesAnyPrompt(Exemplar):
    async def answer(self, request: Json) -> None:
        if isinstance((request.get("params") or {}).get("prompt"), str):
            self.reply(request, {"stopReason": "end_turn"})
        else:
            await super().answer(request)


@FAULTS.breaks("json-rpc.error-codes:known-method")
class _NoSuchMethodForASession(Exemplar):
    def refuse(self, request: Json, code: int, message: str) -> None:
        is_prompt = request["method"] == "session/prompt" and code != INVALID_PARAMS
        super().refuse(request, METHOD_NOT_FOUND if is_prompt else code, message)


@FAULTS.breaks("json-rpc.invalid-params-code")
class _InternalError(Exemplar):
    def refuse(self, request: Json, code: int, message: str) -> None:
        broken = request["method"] == "session/new" and code == INVALID_PARAMS
        super().refuse(request, INTERNAL_ERROR if broken else code, message)


@FAULTS.breaks("json-rpc.no-answer-to-notifications")
class _AnswersNotifications(Exemplar):
    def hear(self, message: Json) -> None:
        super().hear(message)
        if message["method"].startswith("check/"):
            error = {"code": METHOD_NOT_FOUND, "message": "no such notification"}
            self.send({"id": None, "error": error})


@FAULTS.breaks("json-rpc.after-errors")
class _SulksAfterErrors(Exemplar):
    made = refused = False

    def refuse(self, request: Json, code: int, message: str) -> None:
        known = request["method"] != "check/no_such_method"
        self.refused = self.refused or not (known or self.made)
        super().refuse(request, code, message)

    async def new_session(self, params: Json) -> Json:
        if self.refused:
            raise RefusalError(INTERNAL_ERROR, "something went wrong before")
        self.made = True
        return await super().new_session(params)


FAULTS.ignores("json-rpc.many-at-once", lambda it: (it.get("params") or {}).get("number", 0) >= 40)


@FAULTS.breaks("json-rpc.parse-error")
class _EndsAtGarbage(Exemplar):
    async def take(self, raw: bytes) -> None:
        if not raw.endswith(b"}") and raw[:1] == b"{":
            await asyncio.sleep(3600)
        await super().take(raw)


@FAULTS.breaks("json-rpc.parse-error-reply")
class _NoIdForGarbage(Exemplar):
    def send(self, message: Json) -> None:
        error = message.get("error")
        if message.get("id", 0) is None and error and error["code"] == -32700:
            message = {"error": error}
        super().send(message)


@FAULTS.breaks("json-rpc.invalid-request")
class _EndsAtNoRequest(Exemplar):
    async def take(self, raw: bytes) -> None:
        if raw == b'{"foo": "bar"}':
            await asyncio.sleep(3600)
        await super().take(raw)


@FAULTS.breaks("json-rpc.invalid-request-reply")
class _OtherCodeForNoRequest(Exemplar):
    def send(self, message: Json) -> None:
        error = message.get("error")
        if message.get("id", 0) is None and error and error["code"] == -32600:
            message = {**message, "error": {**error, "code": -32603}}
        super().send(message)


@FAULTS.breaks("json-rpc.array")
class _EndsAtArray(Exemplar):
    async def take(self, raw: bytes) -> None:
        if raw[:1] == b"[":
            await asyncio.sleep(3600)
        await super().take(raw)


# -- pressure ---------------------------------------------------------------------------------


@FAULTS.breaks("pressure.unread-answers")
class _ForgetsTheWaiting(Exemplar):
    """Has room for some hundred answers."""

    def refuse(self, request: Json, code: int, message: str) -> None:
        if self._transport.buffered < 4096:
            super().refuse(request, code, message)


@FAULTS.breaks("pressure.notifications")
class _CountsNotifications(Exemplar):
    heard = 0

    def hear(self, message: Json) -> None:
        self.heard += 1
        super().hear(message)

    async def answer(self, request: Json) -> None:
        if self.heard < 1000:
            await super().answer(request)


@FAULTS.breaks("stdio.stays")
class _EndsAfterASwitch(Exemplar):
    async def answer(self, request: Json) -> None:
        await super().answer(request)
        if isinstance((request.get("params") or {}).get("value"), bool):
            await self._transport.aclose()
