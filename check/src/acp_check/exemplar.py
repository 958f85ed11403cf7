"""An agent that keeps every rule: the base of the faulty ones, and of the watcher of clients.

It has no model. The checker's errands steer it, see `errands`; any other prompt gets a short
answer. It keeps its sessions in a `Memory`, which outlives it.
"""

# See docs/decisions.md, 34.

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from acp_check.errands import ExemplarSession, ExemplarTurn, Memory, Script
from acp_check.exemplar_line import ExemplarLine
from acp_check.exemplar_servers import ServerLink, connect, tool_text
from acp_check.record import Json, RefusalError, time_of_day
from acp_wire import errors
from acp_wire.rpc.transport import Transport
from acp_wire.schema import AGENT_METHODS, Method, decode

MODES = [{"id": "ask", "name": "Ask"}, {"id": "code", "name": "Code", "description": "Writes"}]
MODELS = [{"value": "small", "name": "Small"}, {"value": "large", "name": "Large"}]
COMMANDS = [
    {"name": "plan", "description": "Make a plan", "input": {"hint": "what for"}},
    {"name": "test", "description": "Run the tests"},
]


class ExemplarSessions(ExemplarLine):
    """The sessions of the agent: their list, their modes and options, their MCP servers."""

    sign_in_wanted = False
    page_size = 10
    """Sessions on a page of the list."""
    connect_seconds = 10.0
    """Seconds for an MCP server to be ready; otherwise the session continues without it."""

    def __init__(self, transport: Transport, memory: Memory) -> None:
        super().__init__(transport, memory)
        self.client: Json = {}
        self.links: dict[str, list[ServerLink]] = {}

    async def new_session(self, params: Json) -> Json:
        self.require_sign_in()
        self.is_absolute(params["cwd"])
        session_id = self.new_id()
        directories = params.get("additionalDirectories") or []
        kept = ExemplarSession(params["cwd"], directories, [], updated_at=self.now())
        self.memory.sessions.setdefault(session_id, kept)
        await self.connect(session_id, params.get("mcpServers") or [])
        opened = {"sessionId": session_id, **self.settings(session_id)}
        self.start(self.send_commands(session_id))
        return opened

    def require_sign_in(self) -> None:
        if self.sign_in_wanted:
            raise RefusalError(errors.AUTH_REQUIRED, "sign in first")

    def is_absolute(self, cwd: str) -> None:
        if not cwd.startswith("/"):
            raise RefusalError(errors.INVALID_PARAMS, f"the folder {cwd} is not absolute")

    def new_id(self) -> str:
        return f"session-{self.memory.next_number()}"

    async def load_session(self, params: Json) -> Json:
        session_id = params["sessionId"]
        kept = self.session(session_id)
        self.is_absolute(params["cwd"])
        await self.connect(session_id, params.get("mcpServers") or [])
        for update in self.replay(kept):
            self.update(session_id, update, remembered=False)
            await self.drain()
        return self.settings(session_id)

    def replay(self, kept: ExemplarSession) -> list[Json]:
        """Return the updates that a load replays."""
        return [*kept.history]

    async def resume_session(self, params: Json) -> Json:
        self.session(params["sessionId"])
        await self.connect(params["sessionId"], params.get("mcpServers") or [])
        return self.settings(params["sessionId"])

    async def close_session(self, params: Json) -> Json:
        self.session(params["sessionId"])
        turn = self.turns.get(params["sessionId"])
        self.cancel(params["sessionId"])
        if turn is not None:
            await turn.over.wait()
        await self.end_servers_of(params["sessionId"])
        return {}

    async def delete_session(self, params: Json) -> Json:
        self.memory.sessions.pop(params["sessionId"], None)
        return {}

    def session(self, session_id: str) -> ExemplarSession:
        """Return a session; raises RefusalError if it does not exist."""
        found = self.memory.sessions.get(session_id)
        if found is None:
            raise RefusalError(errors.RESOURCE_NOT_FOUND, f"no session {session_id}")
        return found

    def update(self, session_id: str, update: Json, *, remembered: bool = True) -> None:
        """Send an update of a session."""
        kept = self.memory.sessions.get(session_id)
        if remembered and kept is not None:
            kept.history.append(update)
        self.notify("session/update", {"sessionId": session_id, "update": update})

    def now(self) -> str:
        now = time_of_day(asyncio.get_running_loop())
        return now.isoformat(timespec="seconds").replace("+00:00", "Z")

    # -- the list -----------------------------------------------------------------------------

    async def list_sessions(self, params: Json) -> Json:
        found = [
            self.list_entry(session_id, kept)
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
            raise RefusalError(errors.INVALID_PARAMS, "the cursor is none of ours")
        return int(number)

    def list_entry(self, session_id: str, kept: ExemplarSession) -> Json:
        info: Json = {"sessionId": session_id, "cwd": kept.cwd, "updatedAt": kept.updated_at}
        if kept.directories:
            info["additionalDirectories"] = kept.directories
        if kept.title is not None:
            info["title"] = kept.title
        return info

    # -- modes, options and commands ------------------------------------------------------------

    def settings(self, session_id: str) -> Json:
        return {"modes": self.modes(session_id), "configOptions": self.options(session_id)}

    def modes(self, session_id: str) -> Json:
        return {"currentModeId": self.session(session_id).mode, "availableModes": MODES}

    def options(self, session_id: str) -> list[Json]:
        kept = self.session(session_id)
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

    async def set_mode(self, params: Json) -> Json:
        kept = self.session(params["sessionId"])
        if params["modeId"] not in [mode["id"] for mode in MODES]:
            raise RefusalError(errors.INVALID_PARAMS, f"no mode {params['modeId']}")
        kept.mode = params["modeId"]
        options = {"configOptions": self.options(params["sessionId"])}
        changed = {"sessionUpdate": "config_option_update", **options}
        self.update(params["sessionId"], changed, remembered=False)
        return {}

    async def set_option(self, params: Json) -> Json:
        session_id, value = params["sessionId"], params["value"]
        kept = self.session(session_id)
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
                raise RefusalError(errors.INVALID_PARAMS, f"no option {option}, or no such value")
        return {"configOptions": self.options(session_id)}

    async def send_commands(self, session_id: str) -> None:
        """Send the commands, after the answer that names the session."""
        await asyncio.sleep(0)
        self.update(session_id, self.commands(), remembered=False)

    def commands(self) -> Json:
        return {"sessionUpdate": "available_commands_update", "availableCommands": COMMANDS}

    # -- MCP servers ----------------------------------------------------------------------------

    async def connect(self, session_id: str, servers: list[Json]) -> None:
        """Connect the MCP servers of a session."""
        found = [await connect(server, self.connect_seconds) for server in servers]
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


class Exemplar(ExemplarSessions):
    """The agent; see the module."""

    script_type = Script

    async def result(self, method: str, request: Json) -> object:
        """Return the result of a request; raises RefusalError."""
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
            raise RefusalError(errors.METHOD_NOT_FOUND, f"no method {method}")
        self.fits(method, params)
        return await answers[method](params)

    def fits(self, method: str, params: Json) -> None:
        """Raise InvalidParamsError for parameters that the schema does not allow."""
        known = AGENT_METHODS[method]
        assert isinstance(known, Method)
        decode(known.params, msgspec.json.encode(params))

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
            raise RefusalError(errors.INVALID_PARAMS, f"no method {params['methodId']}")
        self.sign_in_wanted = False
        return {}

    async def logout(self, params: Json) -> Json:
        return {}

    # -- turns ------------------------------------------------------------------------------

    async def prompt(self, request: Json, params: Json) -> Json:
        session_id = params["sessionId"]
        kept = self.session(session_id)
        if session_id in self.turns:
            raise RefusalError(errors.INTERNAL_ERROR, "a turn runs in this session")
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
        return self.script_type(self, turn, words)

    def end_of(self, turn: ExemplarTurn) -> Json:
        return {"stopReason": "cancelled" if turn.cancelled else "end_turn"}
