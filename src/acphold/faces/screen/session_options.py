"""The mode and the options of a session, and menus to change them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from acp_wire.schema import SessionConfigSelect
from acphold.conversation.presentation.permissions import ACCEPTS_EDITS
from acphold.conversation.presentation.visible_text import on_one_line
from acphold.faces.screen.answers import EditMode, Face
from acphold.faces.screen.panels import Key, KeyChoice
from acphold.faces.screen.turns import ChatScreen

if TYPE_CHECKING:
    from acphold.client import RemoteSession
    from acphold.client.remote_session import ConfigOption

MARKS = "123456789abcdef"
"""Keys for one page of a menu: with its title, it fits on a terminal of 24 lines."""

NEXT_PAGE = "more"
"""The menu answer that asks for its next page."""


async def next_mode(session: RemoteSession, screen: ChatScreen) -> None:
    """Switch to the next mode, or say in a hint that there is none; so do the others here."""
    if (modes := modes_of(session)) is None:
        screen.show_hint("this agent has no modes")
        return
    current, known = modes
    ids = [mode for mode, _ in known]
    place = ids.index(current) + 1 if current in ids else 0
    await session.set_mode(ids[place % len(ids)])


async def set_mode(session: RemoteSession, screen: ChatScreen, words: str) -> None:
    """Switch to the mode of this name; without one, let the person pick."""
    if (modes := modes_of(session)) is None:
        screen.show_hint("this agent has no modes")
    elif (mode := await _value(screen, "mode", modes[1], words)) is not None:
        await session.set_mode(mode)


async def set_model(session: RemoteSession, screen: ChatScreen, words: str) -> None:
    """Switch to the model of this name; without one, let the person pick."""
    if (option := _option_of(session, "model")) is None:
        screen.show_hint("this agent has no models to choose from")
    elif (value := await _value(screen, "model", values_of(option), words)) is not None:
        await session.set_option(option.id, value)


async def set_option(session: RemoteSession, screen: ChatScreen) -> None:
    """Let the person pick an option and its value."""
    known = session.config_options
    if not known:
        screen.show_hint("this agent has no options")
        return
    names = [(option.id, f"{option.name}: {_value_name(option)}") for option in known]
    picked = await pick_one(screen.face, "Options", names)
    option = next((option for option in known if option.id == picked), None)
    if option is None:
        return
    value = (
        await pick_one(screen.face, option.name, values_of(option))
        if isinstance(option, SessionConfigSelect)
        else not option.current_value
    )
    if value is not None:
        await session.set_option(option.id, value)


async def _value(
    screen: ChatScreen, what: str, known: list[tuple[str, str]], words: str
) -> str | None:
    """Return the value that the words name, at least by a prefix; or let the person pick."""
    if words:
        if (value := find_value(known, words)) is not None:
            return value
        screen.show_hint(f"there is no {what} {on_one_line(words)!r}")
    return await pick_one(screen.face, what.capitalize(), known)


async def pick_one(face: Face, title: str, items: Sequence[tuple[str, str]]) -> str | None:
    """Let the person pick one of these items; None for none."""
    first = 0
    while True:
        page = items[first : first + len(MARKS)]
        keys = [
            Key(mark, on_one_line(words), str(place))  # answered by its index in the whole list
            for mark, (place, (_, words)) in zip(MARKS, enumerate(page, first), strict=False)
        ]
        if len(items) > len(MARKS):
            keys.append(Key("m", f"more; there are {len(items)}", NEXT_PAGE))
        keys.append(Key("escape", "cancel", ""))
        pressed = await face.choose(KeyChoice(on_one_line(title), tuple(keys), is_menu=True))
        if pressed != NEXT_PAGE:
            return items[int(pressed)][0] if pressed else None
        first = first + len(MARKS) if first + len(MARKS) < len(items) else 0


def attributes(session: RemoteSession) -> tuple[str, ...]:
    """Return the facts about a session for the status line."""
    facts = [on_one_line(session.agent_name)]
    if (modes := modes_of(session)) is not None:
        current, known = modes
        name = next((name for mode, name in known if mode == current), current)
        facts.append(f"{on_one_line(name)} (F2)")
    if (model := _option_of(session, "model")) is not None:
        facts.append(f"{_value_name(model)} (F3)")
    elif session.config_options:
        facts.append("options: F3")
    if (usage := session.usage) is not None and usage.size:
        tokens = f"{usage.used / 1000:.1f}k tokens"
        facts.append(f"{tokens}, {100 * usage.used // usage.size}% of {usage.size // 1000}k")
        if usage.cost is not None:
            facts.append(f"{usage.cost.amount:.2f} {on_one_line(usage.cost.currency)}")
    return tuple(facts)


def find_value(known: Sequence[tuple[str, str]], words: str) -> str | None:
    """Return the value with this value or name: exactly, or by a prefix."""
    wanted = words.casefold()
    whole = [value for value, name in known if wanted in (value.casefold(), name.casefold())]
    begun = [
        value
        for value, name in known
        if value.casefold().startswith(wanted) or name.casefold().startswith(wanted)
    ]
    return next(iter(whole or begun), None)


def modes_of(session: RemoteSession) -> tuple[str, list[tuple[str, str]]] | None:
    """Return the current mode, and all modes with their names; None if there are none."""
    if (option := _option_of(session, "mode")) is not None:
        values = values_of(option)
        return (option.current_value, values) if values else None
    if session.mode is None or not session.modes:
        return None
    return session.mode, [(mode.id, mode.name) for mode in session.modes]


def edit_mode(session: RemoteSession) -> EditMode | None:
    """Return the agent's mode that accepts edits; None if it has none, or is in it."""
    current, known = modes_of(session) or ("", [])
    for mode, name in known:
        if {re.sub(r"[\W_]", "", word.casefold()) for word in (mode, name)} & ACCEPTS_EDITS:
            enter = partial(session.set_mode, mode)
            return None if mode == current else EditMode(on_one_line(name), enter)
    return None


def _option_of(session: RemoteSession, category: str) -> SessionConfigSelect | None:
    """Return the option of a category that has values to choose from."""
    found = (it for it in session.config_options if isinstance(it, SessionConfigSelect))
    return next((it for it in found if it.category == category), None)


def values_of(option: SessionConfigSelect) -> list[tuple[str, str]]:
    """Return the values of an option, with their names."""
    return [(value.value, value.name) for value in option.values]


def _value_name(option: ConfigOption) -> str:
    if not isinstance(option, SessionConfigSelect):
        return "on" if option.current_value else "off"
    names = dict(values_of(option))
    return on_one_line(names.get(option.current_value, option.current_value))
