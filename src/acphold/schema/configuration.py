"""The settings of a session: its mode, and its config options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

from msgspec import UNSET, UnsetType

from acphold.schema.shapes import (
    Extensible,
    GoodItems,
    KnownValues,
    OrDefault,
    Otherwise,
    UnknownVariant,
)


class SessionMode(Extensible, frozen=True):
    """A way of working the agent offers, like `ask` or `code`."""

    id: str
    name: str
    description: OrDefault[str | None] = None


class SessionModeState(Extensible, frozen=True):
    """The modes of a session, and the one it is in."""

    current_mode_id: str
    available_modes: GoodItems[tuple[SessionMode, ...]]


class SetSessionModeRequest(Extensible, frozen=True):
    """`session/set_mode`: switch to another mode."""

    session_id: str
    mode_id: str


class SetSessionModeResponse(Extensible, frozen=True):
    """The mode is set."""


SessionConfigOptionCategory: TypeAlias = Annotated[
    str, KnownValues(("mode", "model", "model_config", "thought_level"))
]
"""The category of an option, only for its place on screen; others may be added."""


class SessionConfigSelectOption(Extensible, frozen=True):
    """One value of a select."""

    value: str
    name: str
    description: OrDefault[str | None] = None


class SessionConfigSelectGroup(Extensible, frozen=True):
    """Values of a select under one heading."""

    group: str
    name: str
    options: GoodItems[tuple[SessionConfigSelectOption, ...]]


if TYPE_CHECKING:
    SessionConfigSelectOptions: TypeAlias = (
        tuple[SessionConfigSelectOption, ...] | tuple[SessionConfigSelectGroup, ...]
    )
else:
    SessionConfigSelectOptions = Annotated[
        tuple[SessionConfigSelectOption, ...],
        Otherwise(untagged=tuple[SessionConfigSelectGroup, ...]),
    ]


class ConfigOptionFields(Extensible, frozen=True):
    """The fields of every kind of config option."""

    id: str
    name: str
    description: OrDefault[str | None] = None
    category: OrDefault[SessionConfigOptionCategory | None] = None


class SessionConfigSelect(
    ConfigOptionFields, frozen=True, kw_only=True, tag="select", tag_field="type"
):
    """A config option with one of several values."""

    current_value: str
    options: SessionConfigSelectOptions


class SessionConfigBoolean(
    ConfigOptionFields, frozen=True, kw_only=True, tag="boolean", tag_field="type"
):
    """A config option that is on or off."""

    current_value: bool


class UnknownConfigOption(UnknownVariant):
    """A config option of a `type` newer than this release, byte for byte."""


if TYPE_CHECKING:
    SessionConfigOption: TypeAlias = (
        SessionConfigSelect | SessionConfigBoolean | UnknownConfigOption
    )
else:
    SessionConfigOption = Annotated[
        SessionConfigSelect | SessionConfigBoolean, Otherwise(unknown=UnknownConfigOption)
    ]


class SetSessionConfigOptionRequest(Extensible, frozen=True):
    """`session/set_config_option`: the id of a value, or a bool, which needs `type="boolean"`."""

    session_id: str
    config_id: str
    value: str | bool
    type: Annotated[str, KnownValues(("boolean",))] | UnsetType = UNSET

    def __post_init__(self) -> None:
        if isinstance(self.value, bool) and self.type != "boolean":
            raise ValueError('`value` is a boolean, so `type` must be "boolean"')


class SetSessionConfigOptionResponse(Extensible, frozen=True):
    """All options of the session, since setting one may change others."""

    config_options: GoodItems[tuple[SessionConfigOption, ...]]
