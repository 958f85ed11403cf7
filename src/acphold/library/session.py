"""A session of an agent of the library: settings, commands, open objects, its author's view.

Sources: spec v1, session modes; session config options; slash commands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import msgspec
from msgspec import Struct

from acp_wire.schema import (
    AvailableCommand,
    AvailableCommandsUpdate,
    ClientCapabilities,
    ConfigOptionUpdate,
    ContentBlock,
    CurrentModeUpdate,
    Implementation,
    SessionConfigBoolean,
    SessionConfigOption,
    SessionConfigSelect,
    SessionConfigSelectOption,
    SessionMode,
    SessionModeState,
    TextContent,
    UnstructuredCommandInput,
    encode,
    splice,
)
from acp_wire.surroundings import Surroundings
from acphold.errors import DeclarationError
from acphold.library.questions import ALLOWED
from acphold.library.store import Store
from acphold.library.workspace import ClientSide, Folders, SessionFiles

if TYPE_CHECKING:
    from acp_wire.workspace.terminals import Terminals
    from acphold.conversation.history.fold import SessionState
    from acphold.library.history import History
    from acphold.library.outbox import Outbox
    from acphold.library.session_servers import SessionServers
    from acphold.mcp_servers.offers import Prompt


MODE = "mode"
"""The category, and by default the id, of the option that stands for the session mode."""

Severity: TypeAlias = Literal["info", "warning", "error"]
"""The severity of a notice."""

SEVERITIES = get_args(Severity)


class Option(Struct, frozen=True):
    """A config option; `values` is None if it is a boolean."""

    id: str
    name: str
    default: str | bool
    values: tuple[SessionConfigSelectOption, ...] | None = None
    description: str | None = None
    category: str | None = None

    def takes(self, value: object) -> bool:
        """Return True if the option can have this value."""
        if self.values is None:
            return isinstance(value, bool)
        return any(value == known.value for known in self.values)

    def with_value(self, value: str | bool) -> SessionConfigOption:
        """Return the option with this value as the current one, as the protocol shows it."""
        if isinstance(value, bool):
            return SessionConfigBoolean(
                id=self.id,
                name=self.name,
                description=self.description,
                category=self.category,
                current_value=value,
            )
        return SessionConfigSelect(
            id=self.id,
            name=self.name,
            description=self.description,
            category=self.category,
            current_value=value,
            options=self.values or (),
        )


class Selection:
    """The current mode and option values of one session, out of those its agent declared."""

    def __init__(self, agent: str, modes: Sequence[SessionMode], options: Sequence[Option]) -> None:
        self.mode = modes[0].id if modes else None
        self.values: dict[str, str | bool] = {option.id: option.default for option in options}
        self._agent = agent
        self._modes = tuple(modes)
        self._options = {option.id: option for option in options}
        ids = {mode.id for mode in modes}
        # The option for the mode has that category, and the modes are its values.
        self._mode_option = next(
            (
                option.id
                for option in options
                if option.category == MODE
                and ids
                and {value.value for value in option.values or ()} == ids
            ),
            None,
        )

    def choose_mode(self, mode_id: str) -> None:
        """Set the mode; DeclarationError for an unknown one."""
        if all(mode.id != mode_id for mode in self._modes):
            raise DeclarationError(f"agent {self._agent!r} has no mode {mode_id!r}")
        self.mode = mode_id
        if self._mode_option is not None:
            self.values[self._mode_option] = mode_id

    def choose_option(self, option_id: str, value: str | bool) -> None:
        """Set an option's value; DeclarationError for one it cannot have."""
        option = self._options.get(option_id)
        if option is None:
            raise DeclarationError(f"agent {self._agent!r} has no option {option_id!r}")
        if not option.takes(value):
            raise DeclarationError(f"option {option_id!r} cannot be {value!r}")
        self.values[option_id] = value
        if option_id == self._mode_option and isinstance(value, str):
            self.mode = value

    def options(self) -> tuple[SessionConfigOption, ...]:
        """Return all options with their current values, as the protocol shows them."""
        return tuple(option.with_value(self.values[id]) for id, option in self._options.items())

    def answer(self) -> bytes:
        """Return its part of the answer to session/new, load or resume: modes and options."""
        parts: dict[str, object] = {}
        if self.mode is not None:
            parts["modes"] = SessionModeState(
                current_mode_id=self.mode, available_modes=self._modes
            )
        if self._options:
            parts["configOptions"] = self.options()
        return encode(parts)

    def updates(self, mode_before: str | None) -> list[bytes]:
        """Return the updates for a change; a mode and its option are one choice: both are shown."""
        updates = []
        if self.mode is not None and self.mode != mode_before:
            updates.append(encode(CurrentModeUpdate(current_mode_id=self.mode)))
        if self._options:
            updates.append(encode(ConfigOptionUpdate(config_options=self.options())))
        return updates


class SlashCommands:
    """The commands that the client is shown, and the meaning of a prompt that begins with `/name`.

    `declared` are the author's commands, `prompts` the MCP prompts behind the others, by name;
    `shown` is the list the client was last shown, a JSON array.
    """

    def __init__(self, declared: Mapping[str, AvailableCommand], outbox: Outbox) -> None:
        self.shown: bytes = b"[]"
        self.declared = declared
        self._outbox = outbox
        self.prompts: dict[str, Prompt] = {}

    def offer(self, prompts: Sequence[Prompt] = ()) -> None:
        """Show the author's commands and these prompts, unless the client has this list already."""
        self.prompts = {}
        for prompt in prompts:
            name = "-".join(f"{prompt.server}:{prompt.name}".split())
            if name not in self.declared:
                self.prompts.setdefault(name, prompt)
        commands = list(self.declared.values())
        for name, prompt in self.prompts.items():
            hint = " ".join(
                argument.name if argument.required else f"[{argument.name}]"
                for argument in prompt.arguments
            )
            command = AvailableCommand(
                name=name,
                description=prompt.description or prompt.title or prompt.name,
                input=UnstructuredCommandInput(hint=hint) if hint else None,
            )
            commands.append(command)
        raw = encode(commands)
        if raw != self.shown:
            self.shown = raw
            self._outbox.add(encode(AvailableCommandsUpdate(available_commands=tuple(commands))))


def slash_command(prompt: tuple[ContentBlock, ...]) -> tuple[str, str] | None:
    """Return the name and the words of a prompt that begins with `/name`, otherwise None."""
    first = prompt[0] if prompt else None
    if not isinstance(first, TextContent) or not first.text.startswith("/"):
        return None
    name, *words = first.text[1:].split(None, 1) or [""]
    return name, (words[0].strip() if words else "")


def arguments(prompt: Prompt, words: str) -> dict[str, str]:
    """Return the words after a command as arguments of an MCP prompt.

    They are `name=value` for each, quoted as in a shell; or values in order, the last one taking
    all the rest.
    """
    names = [argument.name for argument in prompt.arguments]
    if not names or not words:
        return {}
    named = [word.partition("=") for word in _split(words)]
    if all(equals and name in names for name, equals, _ in named):
        return {name: value for name, _, value in named}
    if len(names) == 1:
        return {names[0]: words}
    values = _split(words)
    rest = len(names) - 1
    if len(values) > len(names):
        values = [*values[:rest], " ".join(values[rest:])]
    return dict(zip(names, values, strict=False))


def missing(prompt: Prompt, given: dict[str, str]) -> list[str]:
    """Return the names of the arguments that a prompt needs and was not given."""
    return [
        argument.name
        for argument in prompt.arguments
        if argument.required and argument.name not in given
    ]


def _split(words: str) -> list[str]:
    import shlex

    try:
        return shlex.split(words)
    except ValueError:  # a quote that does not end
        return words.split()


class AuthorSession:
    """A session from opening to close; `agent` is the name of the agent."""

    def __init__(
        self,
        client: ClientSide,
        cwd: str,
        additional_directories: tuple[str, ...],
        *,
        agent: str,
        selection: Selection,
        slash: SlashCommands,
        outbox: Outbox,
        history: History,
        surroundings: Surroundings,
    ) -> None:
        self.id: str = client.session_id
        self.client = client
        self.cwd = cwd
        self.additional_directories = additional_directories
        self.roots: tuple[str, ...] = (cwd, *additional_directories)
        self.selection = selection
        self.slash = slash
        self.outbox = outbox
        self.history = history
        self.store: Store = Store(outbox)
        self.folders: Folders = Folders(cwd, additional_directories)
        self.files: SessionFiles = SessionFiles(client, self.folders)
        self.servers: SessionServers | None = None
        self._agent = agent
        self._surroundings = surroundings
        self._terminals: Terminals | None = None
        self.session: Session = Session(self)

    def terminals(self) -> Terminals:
        """The commands that run in this process, not in the client."""
        if self._terminals is None:
            from acp_wire.workspace.terminals import Terminals

            self._terminals = Terminals(self.folders.roots, self._surroundings)
        return self._terminals

    def notice(self, title: str, description: str = "", severity: Severity = "info") -> None:
        """Show the person a notice; does not wait for its delivery."""
        from acphold.live.hub.annotations import NOTICE_START

        if not title or severity not in SEVERITIES:
            raise DeclarationError(
                f"a notice needs a title and a severity: {', '.join(SEVERITIES)}, not {severity!r}"
            )
        body = {"severity": severity, "title": title, "description": description}
        raw = NOTICE_START + b':{"from":%b}},%b' % (encode(self._agent), encode(body)[1:])
        self.outbox.keep("update", raw)  # alone in its batch, as the hub looks at the beginning

    async def aclose(self) -> None:
        """Release what it holds; whatever was set is in the journal."""
        if self.servers is not None:
            await self.servers.aclose()
        if self._terminals is not None:
            await self._terminals.aclose()
        try:
            await self.outbox.flush()
        finally:
            self.outbox.close()


class Session:
    """One conversation: its folders, its settings, and what the author keeps with it.

    Clients know it by `id`. `cwd` and `additional_directories` are absolute paths (spec v1, session
    setup), and `files` works inside them. `store` keeps JSON values that outlive the process;
    `scratch` is a dict that does not. `tenant` is the name that the coroutine of `Agent.auth`
    returned, or "".
    """

    def __init__(self, opened: AuthorSession) -> None:
        self.id: str = opened.id
        self.cwd: str = opened.cwd
        self.additional_directories: tuple[str, ...] = opened.additional_directories
        self.files: SessionFiles = opened.files
        self.store: Store = opened.store
        self.tenant = ""
        self.scratch: dict[str, Any] = {}
        self._open = opened

    def __repr__(self) -> str:
        return f"<Session {self.id!r} in {self.cwd!r}>"

    @property
    def roots(self) -> tuple[str, ...]:
        """`cwd`, then the additional ones."""
        return self._open.roots

    @property
    def client_capabilities(self) -> ClientCapabilities:
        """Those of `initialize`."""
        return self._open.client.capabilities

    @property
    def client_info(self) -> Implementation | None:
        """Its introduction."""
        return self._open.client.info

    async def history(self, *, last: int | None = None) -> SessionState:
        """Return the conversation so far; in a turn, the conversation before its prompt.

        With `last`, return only that many of the newest turns.
        """
        return await self._open.history.read(last)

    @property
    def mode(self) -> str | None:
        """The id of the current mode; None if the agent has no modes."""
        return self._open.selection.mode

    @property
    def config_options(self) -> Mapping[str, str | bool]:
        """The current values by option id."""
        return dict(self._open.selection.values)

    async def set_mode(self, mode_id: str) -> None:
        """Change the mode; DeclarationError for an unknown one."""
        before = self.mode
        self._open.selection.choose_mode(mode_id)
        await self._show_selection(before)

    async def set_option(self, option_id: str, value: str | bool) -> None:
        """Change an option; DeclarationError for a value it cannot have."""
        before = self.mode
        self._open.selection.choose_option(option_id, value)
        await self._show_selection(before)

    async def _show_selection(self, mode_before: str | None) -> None:
        await self._open.outbox.put(*self._open.selection.updates(mode_before))

    async def call(self, method: str, params: Mapping[str, Any] | None = None) -> Any:
        """Call an extension method of the client; returns its result.

        The session's id is added to the params. Raises RemoteError when the client refuses,
        MethodNotFoundError when it does not know the method or has gone (spec v1, extensibility).
        """
        raw = await self._open.client.ask_raw(method, self._params(method, params))
        return msgspec.json.decode(raw)

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send the client an extension notification; otherwise like `call`."""
        await self._open.outbox.flush()
        await self._open.client.notify(method, self._params(method, params))

    def _params(self, method: str, params: Mapping[str, Any] | None) -> bytes:
        if not method.startswith("_"):
            raise DeclarationError(f"{method!r}: names of extensions must begin with '_'")
        return splice(encode(dict(params or {})), {"sessionId": encode(self.id)})

    async def notice(
        self, title: str, description: str = "", *, severity: Severity = "info"
    ) -> None:
        """Tell the person something outside of a turn; see `Turn.notice`."""
        self._open.notice(title, description, severity)
        await self._open.outbox.flush()

    def forget_permissions(self) -> None:
        """Forget what was allowed or rejected for always."""
        for key in self.store:
            if key.startswith(ALLOWED):
                del self.store[key]
