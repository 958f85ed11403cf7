"""A session as the author of an agent sees it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.agents.outbox import Outbox
from holdfast.errors import DeclarationError
from holdfast.journal import SessionState
from holdfast.journal.fold import EMPTY
from holdfast.schema import (
    ConfigOptionUpdate,
    CurrentModeUpdate,
    SessionConfigBoolean,
    SessionConfigSelect,
    SessionConfigSelectOption,
    encode,
)

if TYPE_CHECKING:
    from holdfast.agents.definition import AgentDefinition, Option
    from holdfast.agents.interface import Listener
    from holdfast.schema import ClientCapabilities, Implementation, SessionConfigOption

STORE = "store"
"""The kind of entry that keeps a value of the author's: `{"key": …, "value": …}`."""


class AuthoredSession:
    """One conversation: where it is, how it is set, and what the author keeps with it.

    `state` is the conversation so far, folded; `client` is what the client said of itself.
    """

    def __init__(
        self,
        session_id: str,
        cwd: str,
        additional_directories: tuple[str, ...],
        definition: AgentDefinition,
        listener: Listener,
        capabilities: ClientCapabilities,
        client: Implementation | None,
    ) -> None:
        self.id = session_id
        self.cwd = cwd
        self.additional_directories = additional_directories
        self.capabilities = capabilities
        self.client = client
        self.state: SessionState = EMPTY
        self.outbox = Outbox(session_id, listener)
        self.store = Store(self.outbox)
        self._definition = definition
        self._mode = definition.modes[0].id if definition.modes else None
        self._values: dict[str, str | bool] = {
            option.id: option.default for option in definition.options
        }

    @property
    def roots(self) -> tuple[str, ...]:
        """The folders that tools may touch: `cwd`, then the additional ones."""
        return (self.cwd, *self.additional_directories)

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
        self.choose_mode(mode_id)
        await self.outbox.put(encode(CurrentModeUpdate(current_mode_id=mode_id)))
        if self._mode_option() is not None:
            await self.outbox.put(encode(ConfigOptionUpdate(config_options=self.option_list())))

    async def set_option(self, option_id: str, value: str | bool) -> None:
        """Change an option from the agent's side; DeclarationError for a value it cannot have."""
        self.choose_option(option_id, value)
        await self.outbox.put(encode(ConfigOptionUpdate(config_options=self.option_list())))
        if option_id == self._mode_option() and self._mode is not None:
            await self.outbox.put(encode(CurrentModeUpdate(current_mode_id=self._mode)))

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
        fits = (
            isinstance(value, bool)
            if option.values is None
            else value in {known for known, _ in option.values}
        )
        if not fits:
            raise DeclarationError(f"option {option_id!r} cannot be {value!r}")
        self._values[option_id] = value
        if option_id == self._mode_option() and isinstance(value, str):
            self._mode = value

    def option_list(self) -> tuple[SessionConfigOption, ...]:
        """All options with their current values, as the protocol shows them."""
        return tuple(_shown(option, self._values[option.id]) for option in self._definition.options)

    def _mode_option(self) -> str | None:
        """The option that stands for the mode: category "mode", and its values are the modes."""
        modes = {mode.id for mode in self._definition.modes}
        for option in self._definition.options:
            values = {value for value, _ in option.values or ()}
            if option.category == "mode" and modes and values == modes:
                return option.id
        return None


class Store(MutableMapping[str, Any]):
    """Small JSON values that live as long as the session: `session.store["key"] = value`.

    They are journalled with the turn's next commit; `await session.store.save()` does it now.
    """

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._values: dict[str, Any] = {}
        self._changed: dict[str, None] = {}

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __setitem__(self, key: str, value: Any) -> None:
        msgspec.json.encode(value)  # what is no JSON is refused here, at the author's line
        self._values[key] = value
        self._changed[key] = None

    def __delitem__(self, key: str) -> None:
        del self._values[key]
        self._changed[key] = None

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    async def save(self) -> None:
        """Journal what has changed."""
        changed, self._changed = self._changed, {}
        for key in changed:
            entry: dict[str, Any] = {"key": key}
            if key in self._values:
                entry["value"] = self._values[key]
            await self._outbox.keep(STORE, msgspec.json.encode(entry))

    def restore(self, raw: bytes) -> None:
        """Take over one journalled entry."""
        entry: dict[str, Any] = msgspec.json.decode(raw)
        if "value" in entry:
            self._values[entry["key"]] = entry["value"]
        else:
            self._values.pop(entry["key"], None)


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
        options=tuple(
            SessionConfigSelectOption(value=known, name=name) for known, name in option.values or ()
        ),
    )
