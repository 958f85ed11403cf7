"""A session of an agent of the library: the objects open for it, and the author's view of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import msgspec

from acphold.errors import DeclarationError
from acphold.library.permission import forget_permissions
from acphold.library.session_files import Folders, SessionFiles
from acphold.library.store import Store
from acphold.schema import encode
from acphold.schema.splice import splice

if TYPE_CHECKING:
    from acphold.history import SessionState
    from acphold.library.client_side import ClientSide
    from acphold.library.outbox import Outbox
    from acphold.library.selection import Selection
    from acphold.library.session_servers import SessionServers
    from acphold.library.slash_commands import SlashCommands
    from acphold.library.store import History
    from acphold.schema import ClientCapabilities, Implementation
    from acphold.workspace.terminals import Terminals

NOTICE_START = b'{"sessionUpdate":"notice","_meta":{"acphold/notice"'
"""The beginning of a notice; clients without notices are shown it as a message."""

Severity: TypeAlias = Literal["info", "warning", "error"]
"""How severe a notice is."""

SEVERITIES = get_args(Severity)


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
    ) -> None:
        self.id: str = client.session_id
        self.client = client
        self.cwd = cwd
        self.additional_directories = additional_directories
        self.selection = selection
        self.slash = slash
        self.outbox = outbox
        self.history = history
        self.store: Store = Store(outbox)
        self.folders: Folders = Folders(cwd, additional_directories)
        self.files: SessionFiles = SessionFiles(client, self.folders)
        self.servers: SessionServers | None = None
        self._agent = agent
        self._terminals: Terminals | None = None
        self.session: Session = Session(self)

    @property
    def roots(self) -> tuple[str, ...]:
        """The folders that tools may touch: `cwd`, then the additional ones."""
        return (self.cwd, *self.additional_directories)

    def terminals(self) -> Terminals:
        """The commands that run in this process, not in the client."""
        if self._terminals is None:
            from acphold.workspace.terminals import Terminals

            self._terminals = Terminals(self.folders.roots)
        return self._terminals

    def notice(self, title: str, description: str = "", severity: Severity = "info") -> None:
        """Show the person a notice; does not wait for its delivery."""
        if not title or severity not in SEVERITIES:
            raise DeclarationError(
                f"a notice has a title, and a severity of {', '.join(SEVERITIES)}, not {severity!r}"
            )
        body = {"severity": severity, "title": title, "description": description}
        raw = NOTICE_START + b':{"from":%b}},%b' % (encode(self._agent), encode(body)[1:])
        self.outbox.keep("update", raw)  # alone in its batch, as the hub looks at the beginning

    async def restore(self) -> None:
        """Restore the session from the journal."""
        self.slash.shown = await self.history.restore(self.store) or self.slash.shown

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

    Clients know it by `id`. `cwd` and `additional_directories` are absolute paths (spec
    v1, session setup). `files` reads and writes inside them. `store` keeps JSON values that
    outlive the process; `state` is a dict for what need not. `tenant` is the name that the
    coroutine of `Agent.auth` returned; "" when the session belongs to no tenant.
    """

    def __init__(self, opened: AuthorSession) -> None:
        self.id: str = opened.id
        self.cwd: str = opened.cwd
        self.additional_directories: tuple[str, ...] = opened.additional_directories
        self.files: SessionFiles = opened.files
        self.store: Store = opened.store
        self.tenant = ""
        self.state: dict[str, Any] = {}
        self._open = opened

    def __repr__(self) -> str:
        return f"<Session {self.id!r} in {self.cwd!r}>"

    @property
    def roots(self) -> tuple[str, ...]:
        """The folders that tools may touch: `cwd`, then the additional ones."""
        return self._open.roots

    @property
    def client_capabilities(self) -> ClientCapabilities:
        """The capabilities that the client sent with `initialize`."""
        return self._open.client.capabilities

    @property
    def client_info(self) -> Implementation | None:
        """The client's name and version, if it sent them."""
        return self._open.client.info

    async def history(self, *, last: int | None = None) -> SessionState:
        """Return the conversation so far; in a turn, the conversation before its prompt.

        With `last`, return only that many of the newest turns and what they say about the session:
        enough to tell a model about a long conversation.

        `timeline` holds its messages and tool calls in order (`acphold.Message` with `role`
        "user", "agent" or "thought" and `text`; `acphold.ToolCall` with `title`, `status`
        and its output). It is read from the journal, so a restart does not lose it.
        """
        return await self._open.history.read(last)

    @property
    def mode(self) -> str | None:
        """The id of the current mode; None if the agent has no modes."""
        return self._open.selection.mode

    @property
    def options(self) -> Mapping[str, str | bool]:
        """The current values by option id."""
        return dict(self._open.selection.values)

    async def set_mode(self, mode_id: str) -> None:
        """Change the mode from the agent's side; DeclarationError for an unknown one."""
        before = self.mode
        self._open.selection.choose_mode(mode_id)
        await self._show_selection(before)

    async def set_option(self, option_id: str, value: str | bool) -> None:
        """Change an option from the agent's side; DeclarationError for a value it cannot have."""
        before = self.mode
        self._open.selection.choose_option(option_id, value)
        await self._show_selection(before)

    async def _show_selection(self, mode_before: str | None) -> None:
        await self._open.outbox.put(*self._open.selection.updates(mode_before))

    async def call(self, method: str, params: Mapping[str, Any] | None = None) -> Any:
        """Call an extension method of the client, which begins with `_`; returns its result.

        Params and result are JSON values; the session's id is added to the params. Raises
        RemoteError when the client refuses, MethodNotFoundError when it does not know the method
        or has gone (spec v1, extensibility).
        """
        raw = await self._open.client.ask_raw(method, self._params(method, params))
        return msgspec.json.decode(raw)

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send the client an extension notification; otherwise like `call`."""
        await self._open.outbox.flush()
        await self._open.client.notify(method, self._params(method, params))

    def _params(self, method: str, params: Mapping[str, Any] | None) -> bytes:
        if not method.startswith("_"):
            raise DeclarationError(f"{method!r}: names of extensions begin with '_'")
        return splice(encode(dict(params or {})), {"sessionId": encode(self.id)})

    async def notice(
        self, title: str, description: str = "", *, severity: Severity = "info"
    ) -> None:
        """Tell the person something outside of a turn; see `Turn.notice`."""
        self._open.notice(title, description, severity)
        await self._open.outbox.flush()

    def forget_permissions(self) -> None:
        """Forget permissions allowed or rejected for always: the person is asked again."""
        forget_permissions(self.store)
