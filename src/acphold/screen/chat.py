"""A person at a session: prompts out, updates in, questions answered, until one of them goes.

| | |
|---|---|
| a prompt while a turn of ours runs | waits for its end |
| a turn of another client | is seen as ours are; the hub tells whether it still runs |
| a question that was answered elsewhere | goes away, and that is said |
| the agent has ended | is told; the hub starts it again with the next prompt |
| the process that has the session has ended | is told, and the chat is over |
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any

import msgspec

from acphold.errors import AcpholdError
from acphold.history.children import child_entry
from acphold.history.raw_update import PROMPT_BEGUN
from acphold.history.timeline import TurnEnd, turn_end
from acphold.presentation.visible_text import counted, on_one_line
from acphold.schema import SessionConfigSelect, encode
from acphold.schema.configuration import SessionConfigSelectGroup
from acphold.screen.answers import Face
from acphold.screen.flow import Flow
from acphold.screen.panels import Choice, Key
from acphold.screen.typed import blocks
from acphold.server.neighbours import PRESENCE, LiveSession, Process

if TYPE_CHECKING:
    from acphold.client import RemoteAgent, RemoteSession, RemoteTurn
    from acphold.client.remote_session import ConfigOption

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""How often the hub is asked whether a turn of another client still runs."""

HINT_SECONDS = 5.0
"""How long a hint stands, and a key that leaves at the second time waits for it: later it is a
first time again."""

MARKS = "123456789abcdef"
"""The keys of a page of a menu: with its title, it fits on a terminal of 24 lines."""

NEXT_PAGE = "more"
"""The answer to a menu that asks for its next page."""

IDLE_LOOK_SECONDS = 5.0
"""How often it is asked who else is there, while nothing happens."""


class Chat:
    """See the module. `error` is what ended it, if the person did not; `last_end` is the end of
    the last turn that was prompted here, None before that."""

    def __init__(self, flow: Flow, *, reads_only: bool = False, leaving: str = "leaves") -> None:
        self.flow = flow
        self.error: AcpholdError | None = None
        self.last_end: TurnEnd | None = None
        self.face: Face
        self._agent: RemoteAgent
        self._session: RemoteSession | None = None
        self._reads_only = reads_only
        self._leaving = leaving
        self._early: list[tuple[str, bytes]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._queue: deque[str] = deque()
        self._is_prompting = False
        self._cancelled = False
        self._unshown = b""
        self._hint = ""
        self._pressed = ""
        self._hint_until = 0.0
        self._heard = asyncio.Event()
        self._turn: RemoteTurn | None = None
        self._live = LiveSession("")
        self._facts: tuple[str, ...] = ()

    # -- beginning and ending --------------------------------------------------------------

    def begin(self, agent: RemoteAgent, session: RemoteSession) -> None:
        """The session is open: show it, and go on with what came meanwhile."""
        self._agent, self._session = agent, session
        for session_id, raw in self._early:
            if self.flow.knows(session_id):
                self.flow.hear_child(child_entry(session_id, raw))
            else:
                self.flow.hear(raw)
        self._early.clear()

    async def look(self) -> None:
        """Ask the hub how the session stands; afterwards an open message is really open."""
        assert self._session is not None
        try:
            told = msgspec.convert(await self._agent.call(PRESENCE, {}), Process)
        except (AcpholdError, msgspec.ValidationError):
            return
        found = (live for live in told.sessions if live.session_id == self._session.id)
        self._live = next(found, LiveSession(self._session.id))
        if self.flow.is_open and not self._live.running and not self._is_prompting:
            self.flow.turn_over()

    def attend(self) -> None:
        """Follow the session from now on."""
        self._begin(self._follow(), "follow session")
        self._begin(self._watch(), "watch session")

    async def aclose(self) -> None:
        """End what was begun for it here."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _follow(self) -> None:
        """Notice when the session ends; what it says comes to `hear`."""
        assert self._session is not None
        updates = self._session.updates()
        try:
            while await updates.take_all():
                pass
        except AcpholdError as error:
            self.error = error
        self.flow.turn_over()
        self.face.close()

    async def _watch(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(IDLE_LOOK_SECONDS):
                    await self._heard.wait()
            await asyncio.sleep(LOOK_SECONDS)
            self._heard.clear()
            await self.look()
            if self.flow.is_open and not self._is_prompting:
                self._heard.set()  # it still runs: look again
            self.face.changed()

    def _begin(self, doing: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(self._told(doing), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _told(self, doing: Coroutine[Any, Any, None]) -> None:
        """What goes wrong is said on the screen."""
        try:
            await doing
        except AcpholdError as error:
            self.flow.tell(str(error))
        except Exception as error:  # the top of a task: nobody awaits it
            log.exception("what the screen was doing has failed")
            self.flow.turn_over()
            self.flow.tell(f"this has failed, which is a bug in acphold: {error!r}")
        self.face.changed()

    # -- what is heard --------------------------------------------------------------------

    def hear(self, session_id: str, raw: bytes) -> None:
        """An update came; what comes while the session is being opened is kept."""
        if self._session is None:
            self._early.append((session_id, raw))
        elif self.flow.knows(session_id):
            self.flow.hear_child(child_entry(session_id, raw))
            self.face.changed()
        elif session_id == self._session.id:
            if self._turn is not None and self._turn.stop_reason is not None:
                self._end_turn(_end_of(self._turn))  # what comes now is behind it
            if raw == PROMPT_BEGUN:
                self._show_prompt()
            self.flow.hear(raw)
            self._heard.set()
            self.face.changed()

    # -- what the person does ---------------------------------------------------------------

    def submit(self, text: str) -> None:
        """Send a prompt, now or behind the turn that runs."""
        self.typed()
        self._queue.append(text)
        if not self._is_prompting:
            self._is_prompting = True
            self._begin(self._prompt_all(), "prompts")

    async def _prompt_all(self) -> None:
        try:
            while self._queue:
                await self.prompt(self._queue.popleft())
        finally:
            self._is_prompting = False

    async def prompt(self, text: str) -> TurnEnd:
        """A turn, to its end, which is shown."""
        assert self._session is not None
        self._is_prompting, self._cancelled = True, False
        self.last_end = None
        said = blocks(text, self._session.cwd)
        if self.flow.is_open:  # is it a turn of another client that runs?
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self.look()
        self._unshown = encode(said)
        if not (self.flow.is_open and self._live.running):
            self._show_prompt()
        self.face.changed()
        try:
            turn = self._turn = self._session.prompt(*said)
            end = _end_of(await turn)
        except AcpholdError as error:
            end = TurnEnd("failed", 0, message=str(error))
        finally:
            self._is_prompting = bool(self._queue)
        if self.last_end is None:
            self._end_turn(end)
        return end

    def _end_turn(self, end: TurnEnd) -> None:
        """Our turn is over: show how, and its prompt, if it never began."""
        assert self._session is not None
        self._turn, self.last_end = None, end
        self._show_prompt()
        self.flow.turn_over(end)
        self._live = LiveSession(self._session.id, self._live.clients)
        self.face.changed()

    def _show_prompt(self) -> None:
        """Our prompt, behind a turn of another client that was before it."""
        if self._unshown:
            if self.flow.is_open:
                self.flow.turn_over()
            self.flow.prompted(self._unshown)
            self._unshown = b""

    @property
    def in_turn(self) -> bool:
        """Whether a turn runs, ours or another client's."""
        return self._is_prompting or self._live.running or self.flow.is_open

    def typed(self) -> None:
        """Whoever types goes on: a hint is old, and a key that leaves at the second time begins
        anew."""
        self._hint, self._pressed = "", ""

    def interrupt(self) -> None:
        """Cancel the running turn; without one, leave at the second time."""
        if self._reads_only:
            self.face.close()
        elif self.in_turn and self._session is not None:
            if self._queue:
                self.flow.tell(f"{counted(len(self._queue), 'prompt')} behind it: not sent")
                self._queue.clear()
            self._cancelled = True
            self._session.cancel()
        else:
            self._close_at_second("Ctrl-C", f"Ctrl-C again {self._leaving}")
        self.face.changed()

    def leave(self) -> None:
        """Go; where that ends a running turn, only at the second time."""
        if self._leaving == "detaches" or not self.in_turn:
            self.face.close()
        else:
            self._close_at_second("Ctrl-D", "a turn runs: Ctrl-D again ends it and leaves")
            self.face.changed()

    def _close_at_second(self, key: str, hint: str) -> None:
        """Close if this key was the last one pressed; else say what it does the next time."""
        if self._pressed == key and monotonic() < self._hint_until:
            self.face.close()
        self._say(hint)
        self._pressed = key

    def _say(self, hint: str) -> None:
        """Say this in the status line for a while."""
        self._hint, self._hint_until = hint, monotonic() + HINT_SECONDS

    # -- mode and options -----------------------------------------------------------------

    def next_mode(self) -> None:
        """Go to the mode behind the one that is set."""
        self.typed()
        self._begin(self._set_next_mode(), "next mode")

    async def _set_next_mode(self) -> None:
        assert self._session is not None
        modes = _modes(self._session)
        if modes is None:
            self._say("this agent has no modes")
            return
        current, known = modes
        ids = [mode for mode, _ in known]
        place = ids.index(current) + 1 if current in ids else 0
        await self._session.set_mode(ids[place % len(ids)])
        self.flow.attributes_changed = True

    def set_options(self) -> None:
        """Have one of the options changed, by a menu."""
        self.typed()
        self._begin(self._set_option(), "options")

    async def _set_option(self) -> None:
        assert self._session is not None
        known = self._session.options
        if not known:
            self._say("this agent has no options")
            return
        names = [(option.id, f"{option.name}: {_value_name(option)}") for option in known]
        picked = await self._picked("Options", names)
        option = next((option for option in known if option.id == picked), None)
        if option is None:
            return
        value = (
            await self._picked(option.name, _values(option))
            if isinstance(option, SessionConfigSelect)
            else not option.current_value
        )
        if value is not None:
            await self._session.set_option(option.id, value)
        self.flow.attributes_changed = True

    async def _picked(self, title: str, items: Sequence[tuple[str, str]]) -> str | None:
        """The one of these, told with its words, that the person picks; None for none."""
        first = 0
        while (pressed := await self.face.choose(_menu(title, items, first))) == NEXT_PAGE:
            first = first + len(MARKS) if first + len(MARKS) < len(items) else 0
        return items[int(pressed)][0] if pressed else None

    # -- what the status line says ----------------------------------------------------------

    def status(self) -> Sequence[str]:
        """The most important first."""
        if self._hint and monotonic() < self._hint_until:
            return (self._hint,)
        return (self._doing(), *self._attributes(), *self._others())

    def _doing(self) -> str:
        waiting = f", {counted(len(self._queue), 'prompt')} behind it" if self._queue else ""
        if self.face.asks and not self._reads_only:
            return f"waits for your answer{waiting} (Ctrl-C cancels)"
        if self._is_prompting:
            doing = "behind another client's turn" if self._unshown else "running"
            return f"{'cancelling' if self._cancelled else doing}{waiting} (Ctrl-C cancels)"
        if self._live.waiting:
            return "waits for an answer"
        if self.in_turn:
            return "running for another client"
        return "reads only" if self._reads_only else "ready"

    def _others(self) -> Sequence[str]:
        others = self._live.clients - 1
        keys = "q leaves" if self._reads_only else f"Ctrl-D {self._leaving}"
        return (*([counted(others, "other client")] if others > 0 else []), keys)

    def _attributes(self) -> Sequence[str]:
        """Agent, mode, options and usage; asked of the session only when one has changed."""
        if self.flow.attributes_changed and self._session is not None:
            self.flow.attributes_changed = False
            self._facts = attributes(self._agent, self._session)
        return self._facts


def _end_of(turn: RemoteTurn) -> TurnEnd:
    return turn_end(msgspec.json.encode({"stopReason": turn.stop_reason}), 0)


def attributes(agent: RemoteAgent, session: RemoteSession) -> tuple[str, ...]:
    """What a status line says of a session."""
    facts = [on_one_line(agent.name)]
    if (modes := _modes(session)) is not None:
        current, known = modes
        name = next((name for mode, name in known if mode == current), current)
        facts.append(f"{on_one_line(name)} (F2)")
    picked = [
        _value_name(option)
        for option in session.options
        if option.category == "model" and isinstance(option, SessionConfigSelect)
    ]
    facts += [f"{name} (F3)" for name in picked] or (["options: F3"] if session.options else [])
    if (usage := session.usage) is not None and usage.size:
        facts.append(f"context {100 * usage.used // usage.size}% of {usage.size // 1000}k")
        if usage.cost is not None:
            facts.append(f"{usage.cost.amount:.2f} {on_one_line(usage.cost.currency)}")
    return tuple(facts)


def _modes(session: RemoteSession) -> tuple[str, list[tuple[str, str]]] | None:
    """The mode that is set, and all of them with their names; None where there are none."""
    for option in session.options:
        if option.category == "mode" and isinstance(option, SessionConfigSelect):
            values = _values(option)
            return (option.current_value, values) if values else None
    if (modes := session.modes) is None or not modes.available_modes:
        return None
    return modes.current_mode_id, [(mode.id, mode.name) for mode in modes.available_modes]


def _values(option: SessionConfigSelect) -> list[tuple[str, str]]:
    values: list[tuple[str, str]] = []
    for item in option.options:
        inside = item.options if isinstance(item, SessionConfigSelectGroup) else (item,)
        values += [(value.value, value.name) for value in inside]
    return values


def _value_name(option: ConfigOption) -> str:
    if not isinstance(option, SessionConfigSelect):
        return "on" if option.current_value else "off"
    names = dict(_values(option))
    return on_one_line(names.get(option.current_value, option.current_value))


def _menu(title: str, items: Sequence[tuple[str, str]], first: int) -> Choice:
    """A page of a menu, by number and, behind the ninth, by letter; what is picked is told by its
    place in all of it."""
    page = items[first : first + len(MARKS)]
    keys = [
        Key(mark, on_one_line(words), str(place))
        for mark, (place, (_, words)) in zip(MARKS, enumerate(page, first), strict=False)
    ]
    if len(items) > len(MARKS):
        keys.append(Key("m", f"more; there are {len(items)}", NEXT_PAGE))
    return Choice(on_one_line(title), (*keys, Key("escape", "leave it", "")), is_menu=True)
