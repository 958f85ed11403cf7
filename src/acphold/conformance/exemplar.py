"""An agent that keeps every rule: the base of the faulty ones, and of the watcher of clients.

It has no model. The checker's errands steer it, see `errands`; any other prompt gets a short
answer. It keeps its sessions in a `Memory`, which outlives it.
"""

# See docs/decisions.md, 34.

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable

import msgspec

from acphold.conformance.errands import (
    CANCEL_SECONDS,
    ExemplarSession,
    ExemplarTurn,
    InVainError,
    Memory,
    Script,
)
from acphold.conformance.exemplar_servers import ServerLink, connected, tool_text
from acphold.conformance.record import Json, time_of_day
from acphold.errors import (
    AUTH_REQUIRED,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    RESOURCE_NOT_FOUND,
    AcpholdError,
    ConnectionLostError,
)
from acphold.rpc.framing import LineBuffer, Oversize
from acphold.rpc.transport import Transport
from acphold.schema import AGENT_METHODS, Method, decode
from acphold.tasks import TaskSet

ANSWER_SECONDS = 60.0
"""Seconds for a client to answer a question without a person."""

PERSON_SECONDS = 1800.0
"""Seconds for a question to a person, who may be away for a while."""

MODES = [{"id": "ask", "name": "Ask"}, {"id": "code", "name": "Code", "description": "Writes"}]
MODELS = [{"value": "small", "name": "Small"}, {"value": "large", "name": "Large"}]
COMMANDS = [
    {"name": "plan", "description": "Make a plan", "input": {"hint": "what for"}},
    {"name": "test", "description": "Run the tests"},
]


class ExemplarError(Exception):
    """A request is answered with an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Exemplar:
    """The agent; see the module. Everything a fault changes is a method of its own."""

    script_type = Script
    sign_in_wanted = False
    page_size = 10
    """Sessions on a page of the list."""
    connect_seconds = 2.0
    """Seconds for an MCP server to be ready; after that the session goes on without it."""

    def __init__(self, transport: Transport, memory: Memory) -> None:
        self.memory = memory
        self.client: Json = {}
        self.turns: dict[str, ExemplarTurn] = {}
        self.links: dict[str, list[ServerLink]] = {}
        self._transport = transport
        self._ids = itertools.count(1)
        self._asked: dict[int, asyncio.Future[Json]] = {}
        self._tasks = TaskSet()

    # -- lines ------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Serve until the client leaves."""
        lines = LineBuffer(64 << 20)
        try:
            while chunk := await self._transport.receive():
                for raw in lines.feed(chunk):
                    await self.take(raw.head if isinstance(raw, Oversize) else raw)
        except ConnectionLostError:
            pass
        finally:
            await self._tasks.aclose()
            await self.end_servers()
            await self._transport.aclose()

    async def take(self, raw: bytes) -> None:
        """Handle one line of the client."""
        try:
            message = msgspec.json.decode(raw)
        except (ValueError, RecursionError):  # of JSON, or of UTF-8
            self.send({"id": None, "error": {"code": PARSE_ERROR, "message": "not JSON"}})
            return
        if not _is_message(message):
            self.send({"id": None, "error": {"code": INVALID_REQUEST, "message": "no request"}})
        elif "method" not in message:
            self.hear_answer(message)
        elif "id" not in message:
            self.hear(message)
        else:
            self.start(self.answer(message))
            await asyncio.sleep(0)  # requests begin in the order of arrival

    def start(self, work: Awaitable[None]) -> None:
        """Run this as a task."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)

    def send(self, message: Json) -> None:
        """Save the sessions, then write a message."""
        self.memory.save()
        self.write(msgspec.json.encode({"jsonrpc": "2.0", **message}))

    def write(self, line: bytes) -> None:
        """Write a line."""
        self._transport.send(line + b"\n")

    async def drained(self) -> None:
        """Wait until the client reads again."""
        await self._transport.drain()

    # -- the client's messages ----------------------------------------------------------------

    def hear_answer(self, message: Json) -> None:
        """Take a response of the client."""
        id = message.get("id")
        asked = self._asked.get(id) if isinstance(id, int) else None
        if asked is not None and not asked.done():
            asked.set_result(message)

    def hear(self, message: Json) -> None:
        """Handle a notification."""
        params = message.get("params")
        params = params if isinstance(params, dict) else {}
        if message["method"] == "session/cancel":
            self.cancel(str(params.get("sessionId", "")))
        elif message["method"] == "$/cancel_request":
            self.cancel_request(params.get("requestId"))

    def cancel(self, session_id: str) -> None:
        """Cancel the turn of a session."""
        turn = self.turns.get(session_id)
        if turn is not None:
            turn.cancel()

    def cancel_request(self, request_id: object) -> None:
        """Cancel the turn that answers this request."""
        for turn in self.turns.values():
            if turn.request["id"] == request_id:
                self.cancel(turn.session_id)

    async def answer(self, request: Json) -> None:
        """Answer a request."""
        try:
            result = await self.result(request["method"], request)
        except ExemplarError as refused:
            self.refuse(request, refused.code, str(refused))
        except AcpholdError as error:
            self.refuse(request, error.code, str(error))
        else:
            self.reply(request, result)

    def reply(self, request: Json, result: object) -> None:
        """Answer a request with a result."""
        self.send({"id": request["id"], "result": result})

    def refuse(self, request: Json, code: int, message: str) -> None:
        """Answer a request with an error."""
        self.send({"id": request["id"], "error": {"code": code, "message": message}})

    async def result(self, method: str, request: Json) -> object:
        """Return the result of a request; raises RefusedError."""
        params = request.get("params")
        params = params if isinstance(params, dict) else {}
        answers: dict[str, Callable[[Json], Awaitable[object]]] = {
            "initialize": self.initialize,
            "authenticate": self.authenticate,
            "logout": self.logout,
            "session/new": self.new_session,
            "session/load": self.load_session,
            "session/resume": self.resume_session,
            "session/list": self.list_sessions,
            "session/close": self.close_session,
            "session/delete": self.delete_session,
            "session/set_mode": self.set_mode,
            "session/set_config_option": self.set_option,
        }
        if method == "session/prompt":
            self.fits(method, params)
            return await self.prompt(request, params)
        if method not in answers:
            raise ExemplarError(METHOD_NOT_FOUND, f"no method {method}")
        self.fits(method, params)
        return await answers[method](params)

    def fits(self, method: str, params: Json) -> None:
        """Raise InvalidParamsError for parameters that the schema does not allow."""
        known = AGENT_METHODS[method]
        assert isinstance(known, Method)
        decode(known.params, msgspec.json.encode(params))

    # -- the connection ---------------------------------------------------------------------

    async def initialize(self, params: Json) -> Json:
        self.client = params.get("clientCapabilities") or {}
        return {
            "protocolVersion": self.version(params["protocolVersion"]),
            "agentCapabilities": self.capabilities(),
            "agentInfo": self.info(),
            "authMethods": self.auth_methods(),
        }

    def version(self, asked: int) -> int:
        return 1

    def capabilities(self) -> Json:
        nothing: Json = {}
        methods = ("list", "resume", "close", "delete", "additionalDirectories")
        return {
            "loadSession": True,
            "promptCapabilities": {"image": True, "audio": True, "embeddedContext": True},
            "mcpCapabilities": {"http": True, "sse": True},
            "sessionCapabilities": dict.fromkeys(methods, nothing),
            "auth": {"logout": nothing},
        }

    def info(self) -> Json:
        return {"name": "exemplar", "title": "Exemplar", "version": "1"}

    def auth_methods(self) -> list[Json]:
        methods: list[Json] = [{"id": "key", "name": "Use a key"}]
        if (self.client.get("auth") or {}).get("terminal"):
            methods.append({"id": "login", "name": "Log in", "type": "terminal", "args": ["login"]})
        return methods

    async def authenticate(self, params: Json) -> Json:
        if params["methodId"] != "key":
            raise ExemplarError(INVALID_PARAMS, f"no method {params['methodId']}")
        self.sign_in_wanted = False
        return {}

    async def logout(self, params: Json) -> Json:
        return {}

    # -- sessions ---------------------------------------------------------------------------

    async def new_session(self, params: Json) -> Json:
        self.signed_in()
        self.is_absolute(params["cwd"])
        session_id = self.new_id()
        directories = params.get("additionalDirectories") or []
        kept = ExemplarSession(params["cwd"], directories, [], updated_at=self.now())
        self.memory.sessions.setdefault(session_id, kept)
        await self.connect(session_id, params.get("mcpServers") or [])
        opened = {"sessionId": session_id, **self.settings(session_id)}
        self.start(self.tell_commands(session_id))
        return opened

    def signed_in(self) -> None:
        if self.sign_in_wanted:
            raise ExemplarError(AUTH_REQUIRED, "sign in first")

    def is_absolute(self, cwd: str) -> None:
        if not cwd.startswith("/"):
            raise ExemplarError(INVALID_PARAMS, f"the folder {cwd} is not absolute")

    def new_id(self) -> str:
        self.memory.numbers += 1
        return f"session-{self.memory.numbers}"

    async def tell_commands(self, session_id: str) -> None:
        """Send the commands, after the answer that names the session."""
        await asyncio.sleep(0)
        self.update(session_id, self.commands(), remembered=False)

    def commands(self) -> Json:
        return {"sessionUpdate": "available_commands_update", "availableCommands": COMMANDS}

    async def connect(self, session_id: str, servers: list[Json]) -> None:
        """Connect the MCP servers of a session."""
        found = [await connected(server, self.connect_seconds) for server in servers]
        self.links[session_id] = [link for link in found if link is not None]

    async def call_tool(self, session_id: str, tool: str) -> str:
        """Return the answer of a tool of the session's MCP servers."""
        links = self.links.get(session_id)
        return await tool_text(links[0], tool) if links else f"no tool {tool}"

    async def end_servers(self) -> None:
        """End the servers of all sessions."""
        for session_id in [*self.links]:
            await self.end_servers_of(session_id)

    async def end_servers_of(self, session_id: str) -> None:
        """End the servers of a session."""
        for link in self.links.pop(session_id, []):
            await link.aclose()

    def settings(self, session_id: str) -> Json:
        return {"modes": self.modes(session_id), "configOptions": self.options(session_id)}

    def modes(self, session_id: str) -> Json:
        return {"currentModeId": self.kept(session_id).mode, "availableModes": MODES}

    def options(self, session_id: str) -> list[Json]:
        kept = self.kept(session_id)
        modes = [{"value": mode["id"], "name": mode["name"]} for mode in MODES]
        mode = {"id": "mode", "name": "Mode", "category": "mode", "type": "select"}
        model = {"id": "model", "name": "Model", "category": "model", "type": "select"}
        options: list[Json] = [
            {**mode, "currentValue": kept.mode, "options": modes},
            {**model, "currentValue": kept.model, "options": MODELS},
        ]
        if self.shows_booleans():
            brave = {"id": "brave", "name": "Brave", "type": "boolean"}
            options.append({**brave, "currentValue": kept.brave})
        return options

    def shows_booleans(self) -> bool:
        session = self.client.get("session") or {}
        return (session.get("configOptions") or {}).get("boolean") is not None

    def kept(self, session_id: str) -> ExemplarSession:
        """Return a session; raises RefusedError if it does not exist."""
        found = self.memory.sessions.get(session_id)
        if found is None:
            raise ExemplarError(RESOURCE_NOT_FOUND, f"no session {session_id}")
        return found

    async def load_session(self, params: Json) -> Json:
        session_id = params["sessionId"]
        kept = self.kept(session_id)
        await self.connect(session_id, params.get("mcpServers") or [])
        for update in self.replayed(kept):
            self.update(session_id, update, remembered=False)
            await self.drained()
        return self.settings(session_id)

    def replayed(self, kept: ExemplarSession) -> list[Json]:
        """Return the updates that a load replays."""
        return [*kept.history]

    async def resume_session(self, params: Json) -> Json:
        self.kept(params["sessionId"])
        await self.connect(params["sessionId"], params.get("mcpServers") or [])
        return self.settings(params["sessionId"])

    async def list_sessions(self, params: Json) -> Json:
        found = [
            self.listed(session_id, kept)
            for session_id, kept in reversed(self.memory.sessions.items())
            if self.fits_filter(kept, params.get("cwd"))
        ]
        first = self.first_of(params.get("cursor"))
        last = first + self.page_size
        page: Json = {"sessions": found[first:last]}
        if len(found) > last:
            page["nextCursor"] = self.cursor_at(last)
        return page

    def cursor_at(self, place: int) -> str:
        return f"from-{place}"

    def fits_filter(self, kept: ExemplarSession, cwd: str | None) -> bool:
        return cwd is None or kept.cwd == cwd

    def first_of(self, cursor: str | None) -> int:
        if cursor is None:
            return 0
        word, _, number = cursor.partition("-")
        if word != "from" or not number.isdecimal():
            raise ExemplarError(INVALID_PARAMS, "the cursor is none of ours")
        return int(number)

    def listed(self, session_id: str, kept: ExemplarSession) -> Json:
        info: Json = {"sessionId": session_id, "cwd": kept.cwd, "updatedAt": kept.updated_at}
        if kept.directories:
            info["additionalDirectories"] = kept.directories
        if kept.title is not None:
            info["title"] = kept.title
        return info

    async def close_session(self, params: Json) -> Json:
        self.kept(params["sessionId"])
        turn = self.turns.get(params["sessionId"])
        self.cancel(params["sessionId"])
        if turn is not None:
            await turn.over.wait()
        await self.end_servers_of(params["sessionId"])
        return {}

    async def delete_session(self, params: Json) -> Json:
        self.memory.sessions.pop(params["sessionId"], None)
        return {}

    async def set_mode(self, params: Json) -> Json:
        kept = self.kept(params["sessionId"])
        if params["modeId"] not in [mode["id"] for mode in MODES]:
            raise ExemplarError(INVALID_PARAMS, f"no mode {params['modeId']}")
        kept.mode = params["modeId"]
        options = {"configOptions": self.options(params["sessionId"])}
        changed = {"sessionUpdate": "config_option_update", **options}
        self.update(params["sessionId"], changed, remembered=False)
        return {}

    async def set_option(self, params: Json) -> Json:
        session_id, value = params["sessionId"], params["value"]
        kept = self.kept(session_id)
        match params["configId"]:
            case "mode" if value in [mode["id"] for mode in MODES]:
                kept.mode = value
                current = {"sessionUpdate": "current_mode_update", "currentModeId": value}
                self.update(session_id, current, remembered=False)
            case "model" if value in [model["value"] for model in MODELS]:
                kept.model = value
            case "brave" if isinstance(value, bool) and self.shows_booleans():
                kept.brave = value
            case option:
                raise ExemplarError(INVALID_PARAMS, f"no option {option}, or no such value")
        return {"configOptions": self.options(session_id)}

    # -- turns ------------------------------------------------------------------------------

    async def prompt(self, request: Json, params: Json) -> Json:
        session_id = params["sessionId"]
        kept = self.kept(session_id)
        if session_id in self.turns:
            raise ExemplarError(INTERNAL_ERROR, "a turn runs in this session")
        self.remember_prompt(kept, params["prompt"])
        turn = self.turns[session_id] = ExemplarTurn(session_id, request)
        try:
            await self.script(turn, params["prompt"]).run()
        finally:
            del self.turns[session_id]
            turn.over.set()
            kept.updated_at = self.now()
        return self.end_of(turn)

    def remember_prompt(self, kept: ExemplarSession, blocks: list[Json]) -> None:
        for block in blocks:
            kept.history.append({"sessionUpdate": "user_message_chunk", "content": block})

    def script(self, turn: ExemplarTurn, blocks: list[Json]) -> Script:
        # An earlier conversation is handed over before the person's own words.
        texts = [str(block["text"]) for block in blocks if block["type"] == "text"]
        words = texts[-1] if texts else ""
        return self.script_type(self, turn.session_id, words, lambda: turn.cancelled)

    def end_of(self, turn: ExemplarTurn) -> Json:
        return {"stopReason": "cancelled" if turn.cancelled else "end_turn"}

    # -- to the client --------------------------------------------------------------------------

    def update(self, session_id: str, update: Json, *, remembered: bool = True) -> None:
        """Send an update of a session."""
        kept = self.memory.sessions.get(session_id)
        if remembered and kept is not None:
            kept.history.append(update)
        self.tell("session/update", {"sessionId": session_id, "update": update})

    def tell(self, method: str, params: Json) -> None:
        """Send a notification."""
        self.send({"method": method, "params": params})

    async def ask(self, method: str, params: Json) -> Json:
        """Ask the client and return its result, empty for null.

        Raises InVainError for an error, and if there is no answer.
        """
        turn = self.turns.get(params.get("sessionId", ""))
        waits: set[asyncio.Timeout] = set() if turn is None else turn.waits
        is_cancelled = turn is not None and turn.cancelled
        takes_person = method in ("session/request_permission", "elicitation/create")
        seconds = PERSON_SECONDS if takes_person else ANSWER_SECONDS
        number = next(self._ids)
        asked = self._asked[number] = asyncio.get_running_loop().create_future()
        self.send({"id": number, "method": method, "params": params})
        try:
            async with asyncio.timeout(CANCEL_SECONDS if is_cancelled else seconds) as wait:
                waits.add(wait)
                message = await asked
        except TimeoutError:
            raise InVainError(f"the client did not answer {method}") from None
        finally:
            waits.discard(wait)
            del self._asked[number]
        if "error" in message:
            raise InVainError(f"{method} was refused: {_words(message['error'])}")
        result = message["result"]
        return result if isinstance(result, dict) else {}

    def now(self) -> str:
        now = time_of_day(asyncio.get_running_loop())
        return now.isoformat(timespec="seconds").replace("+00:00", "Z")


def _is_message(message: object) -> bool:
    """Return True for a request, a notification or a response."""
    if not isinstance(message, dict):
        return False
    if "method" in message:
        return isinstance(message["method"], str)
    return "result" in message or "error" in message


def _words(error: object) -> str:
    """Return the message of an error, on one line."""
    said = error.get("message") if isinstance(error, dict) else error
    return " ".join(str(said).split())
