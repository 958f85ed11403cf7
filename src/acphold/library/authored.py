"""A session as the author of an agent sees it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from acphold.errors import DeclarationError
from acphold.library.definition import MODE
from acphold.library.files import SessionFiles
from acphold.library.outbox import Outbox
from acphold.library.store import ALLOWED, Store
from acphold.schema import (
    ConfigOptionUpdate,
    CurrentModeUpdate,
    SessionConfigBoolean,
    SessionConfigSelect,
    encode,
)
from acphold.schema.splice import splice

if TYPE_CHECKING:
    from acphold.journal import SessionState
    from acphold.library.client_side import ClientSide
    from acphold.library.definition import AgentDefinition, Option
    from acphold.library.history import History
    from acphold.library.serving import SessionServers
    from acphold.library.slash import SlashCommands
    from acphold.schema import ClientCapabilities, Implementation, SessionConfigOption
    from acphold.workspace import Terminals

NOTICE_START = b'{"sessionUpdate":"notice","_meta":{"acphold/notice"'
"""How a notice begins that a client without notices is shown as a message."""

SEVERITIES = ("info", "warning", "error")


class AuthoredSession:
    """One conversation: where it is, how it is set, and what the author keeps with it.

    `cwd` and `additional_directories` are absolute paths (spec v1, session setup).
    `state` is the author's own, for what need not outlive the process; `store` is what does.
    """

    def __init__(
        self,
        client: ClientSide,
        cwd: str,
        additional_directories: tuple[str, ...],
        *,
        definition: AgentDefinition,
        outbox: Outbox,
        past: History,
    ) -> None:
        self.id = client.session_id
        self.cwd = cwd
        self.additional_directories = additional_directories
        self.client = client
        self.outbox = outbox
        self.store = Store(outbox)
        self.files = SessionFiles(client, cwd, additional_directories)
        self.state: dict[str, Any] = {}
        self._definition = definition
        self._past = past
        self.commands: SlashCommands | None = None
        self.servers: SessionServers | None = None
        self._terminals: Terminals | None = None
        self._mode = definition.modes[0].id if definition.modes else None
        self._values: dict[str, str | bool] = {
            option.id: option.default for option in definition.options
        }

    @property
    def client_capabilities(self) -> ClientCapabilities:
        """What the client said at `initialize` that it can do."""
        return self.client.capabilities

    @property
    def client_info(self) -> Implementation | None:
        """The client's name and version, if it said them."""
        return self.client.info

    @property
    def roots(self) -> tuple[str, ...]:
        """The folders that tools may touch: `cwd`, then the additional ones."""
        return (self.cwd, *self.additional_directories)

    async def history(self) -> SessionState:
        """The conversation so far, folded; in a turn, what was before its prompt.

        `timeline` holds its messages and tool calls in order (`acphold.Message` with `role`
        "user", "agent" or "thought" and `text`; `acphold.PastToolCall` with `title`, `status`
        and what it produced). Read from the journal, so it is there after a restart too.
        """
        return await self._past.read()

    # -- modes and options ----------------------------------------------------------------

    @property
    def mode(self) -> str | None:
        """The id of the current mode; None for an agent without modes."""
        return self._mode

    @property
    def options(self) -> Mapping[str, str | bool]:
        """Option id to its current value."""
        return dict(self._values)

    async def set_mode(self, mode_id: str) -> None:
        """Change the mode from the agent's side; DeclarationError for an unknown one."""
        before = self._mode
        self.choose_mode(mode_id)
        await self._tell_chosen(before)

    async def set_option(self, option_id: str, value: str | bool) -> None:
        """Change an option from the agent's side; DeclarationError for a value it cannot have."""
        before = self._mode
        self.choose_option(option_id, value)
        await self._tell_chosen(before)

    def choose_mode(self, mode_id: str) -> None:
        """Take a mode over without telling anybody."""
        if mode_id not in {mode.id for mode in self._definition.modes}:
            raise DeclarationError(f"agent {self._definition.name!r} has no mode {mode_id!r}")
        self._mode = mode_id
        option_id = self._mode_option()
        if option_id is not None:
            self._values[option_id] = mode_id

    def choose_option(self, option_id: str, value: str | bool) -> None:
        """Take an option's value over without telling anybody."""
        option = next((o for o in self._definition.options if o.id == option_id), None)
        if option is None:
            raise DeclarationError(f"agent {self._definition.name!r} has no option {option_id!r}")
        if not option.takes(value):
            raise DeclarationError(f"option {option_id!r} cannot be {value!r}")
        self._values[option_id] = value
        if option_id == self._mode_option() and isinstance(value, str):
            self._mode = value

    def option_list(self) -> tuple[SessionConfigOption, ...]:
        """All options with their current values, as the protocol shows them."""
        return tuple(_shown(option, self._values[option.id]) for option in self._definition.options)

    async def _tell_chosen(self, mode_before: str | None) -> None:
        """Show how things are set; in one go, for a mode and its option are one choice."""
        updates = []
        if self._mode is not None and self._mode != mode_before:
            updates.append(encode(CurrentModeUpdate(current_mode_id=self._mode)))
        if self._values:
            updates.append(encode(ConfigOptionUpdate(config_options=self.option_list())))
        await self.outbox.put(*updates)

    def _mode_option(self) -> str | None:
        """The option that stands for the mode: category "mode", and its values are the modes."""
        modes = {mode.id for mode in self._definition.modes}
        for option in self._definition.options:
            values = {value.value for value in option.values or ()}
            if option.category == MODE and modes and values == modes:
                return option.id
        return None

    # -- what it holds --------------------------------------------------------------------

    def terminals(self) -> Terminals:
        """The commands that run here and not in the client."""
        if self._terminals is None:
            from acphold.workspace import Terminals

            self._terminals = Terminals(self.files.roots)
        return self._terminals

    async def restore(self) -> bytes | None:
        """Take its store over from the journal; the commands that were shown last."""
        return await self._past.restore(self.store)

    async def aclose(self) -> None:
        """End what it holds; what was set is journalled."""
        if self.servers is not None:
            await self.servers.aclose()
        if self._terminals is not None:
            await self._terminals.aclose()
        await self.outbox.flush()

    # -- the client -----------------------------------------------------------------------

    async def call(self, method: str, params: Mapping[str, Any] | None = None) -> Any:
        """Call an extension method of the client, which begins with `_`; its result, as JSON.

        The session's id is added to the params. Raises RemoteError when the client refuses,
        MethodNotFoundError when it has gone (spec v1, extensibility).
        """
        return msgspec.json.decode(await self.client.ask_raw(method, self._params(method, params)))

    async def tell(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send the client an extension notification; otherwise like `call`."""
        await self.outbox.flush()
        await self.client.notify(method, self._params(method, params))

    def _params(self, method: str, params: Mapping[str, Any] | None) -> bytes:
        if not method.startswith("_"):
            raise DeclarationError(f"{method!r}: names of extensions begin with '_'")
        return splice(encode(dict(params or {})), {"sessionId": encode(self.id)})

    async def notice(self, title: str, description: str = "", *, severity: str = "info") -> None:
        """Tell the person something outside of a turn; see `Turn.notice`."""
        self.tell_notice(title, description, severity)
        await self.outbox.flush()

    def tell_notice(self, title: str, description: str = "", severity: str = "info") -> None:
        """`notice` without waiting for its delivery."""
        if not title or severity not in SEVERITIES:
            raise DeclarationError(
                f"a notice has a title, and a severity of {', '.join(SEVERITIES)}"
            )
        body = {"severity": severity, "title": title, "description": description}
        raw = NOTICE_START + b':{"from":%b}},%b' % (encode(self._definition.name), encode(body)[1:])
        self.outbox.keep("update", raw)  # alone in its batch, as the hub looks at the beginning

    # -- permissions ----------------------------------------------------------------------

    def forget_permissions(self) -> None:
        """Ask again what was allowed or rejected for always."""
        for key in self.store:
            if key.startswith(ALLOWED):
                del self.store[key]


def _shown(option: Option, value: str | bool) -> SessionConfigOption:
    if isinstance(value, bool):
        return SessionConfigBoolean(
            id=option.id,
            name=option.name,
            description=option.description,
            category=option.category,
            current_value=value,
        )
    return SessionConfigSelect(
        id=option.id,
        name=option.name,
        description=option.description,
        category=option.category,
        current_value=value,
        options=option.values or (),
    )
