"""The settings of a session: its mode, and the values of its config options.

Source: spec v1, session modes; session config options.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from acphold.errors import DeclarationError
from acphold.schema import (
    ConfigOptionUpdate,
    CurrentModeUpdate,
    SessionConfigBoolean,
    SessionConfigOption,
    SessionConfigSelect,
    SessionConfigSelectOption,
    SessionMode,
    SessionModeState,
    encode,
)

MODE = "mode"
"""The category, and by default the id, of the option that stands for the session mode."""


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

    def shown(self, value: str | bool) -> SessionConfigOption:
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


def mode_option(modes: Sequence[SessionMode]) -> Option:
    """Return an option for the modes of an agent that declares none for them itself."""
    values = tuple(
        SessionConfigSelectOption(value=mode.id, name=mode.name, description=mode.description)
        for mode in modes
    )
    return Option(MODE, "Mode", modes[0].id, values, category=MODE)


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
        return tuple(option.shown(self.values[id]) for id, option in self._options.items())

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
