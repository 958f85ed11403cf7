"""A person at a session: sends prompts, shows updates, answers questions, until either ends.

| | |
|---|---|
| a prompt while a turn runs | waits in the session's queue |
| a turn of another client | is shown like ours; the hub knows if it still runs |
| a question that was answered elsewhere | disappears, with a note |
| the agent has ended | is reported; the hub starts it again with the next prompt |
| the process that has the session has ended | is reported, and the chat is over |
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from acp_wire.tasks import timeout
from acphold.client.remote_turn import take_all
from acphold.conversation.history.children import child_entry
from acphold.conversation.presentation.visible_text import on_one_line, quantity
from acphold.errors import AcpError
from acphold.faces.screen import bounds
from acphold.faces.screen.answers import Face
from acphold.faces.screen.chat_commands import ChatCommands
from acphold.faces.screen.flow import Flow
from acphold.faces.screen.session_options import attributes
from acphold.faces.screen.turns import ChatHost, ChatScreen, ShownTurns
from acphold.faces.screen.typed import Local, TypedCommand, TypedPrompt, interpret
from acphold.live.agents.capabilities import QUEUE_METHOD

if TYPE_CHECKING:
    from acphold.client import RemoteAgent, RemoteSession
    from acphold.faces.screen.sign_in import TerminalSignIn

TITLE_LETTERS = 60


LEAVE_HINT: Final = "Ctrl-C again leaves"


class Chat:
    """The chat; see the module. It is the `Person` behind the keys.

    `turns` has its prompts, and in `error` what ended it, if the person did not; `commands` has the
    commands, and in `goes_to` where the person went from here.
    """

    def __init__(
        self,
        flow: Flow,
        *,
        reads_only: bool = False,
        sign_in: TerminalSignIn | None = None,
        host: ChatHost | None = None,
        is_far: bool = False,
    ) -> None:
        self.flow = flow
        host = host or ChatHost()
        self.screen = ChatScreen(flow, host)
        self.turns = ShownTurns(self.screen, sign_in=sign_in, is_far=is_far)
        self.commands = ChatCommands(self.screen, self.turns, host, reads_only=reads_only)
        self._reads_only = reads_only
        self._early_updates: list[tuple[str, bytes]] = []
        self._has_news = asyncio.Event()
        self._facts: tuple[str, ...] = ()

    @property
    def face(self) -> Face:
        """The person's side; set before `begin`."""
        return self.screen.face

    # -- the session -----------------------------------------------------------------------

    def begin(self, agent: RemoteAgent, session: RemoteSession) -> None:
        """Show the session, which is open now, and the updates kept meanwhile."""
        self.turns.begin(agent, session)
        for session_id, raw in self._early_updates:
            if self.flow.knows_child(session_id):
                self.flow.add_child_update(child_entry(session_id, raw))
            else:
                self.flow.add_update(raw)
        self._early_updates.clear()

    def attend(self) -> None:
        """Follow the session from now on."""
        self.turns.queue_changed()
        self.screen.start(self._follow(), "follow session")
        self.screen.start(self._watch(), "watch session")

    async def aclose(self) -> None:
        """End the tasks of this chat."""
        self.commands.drop_pasted()
        await self.screen.aclose()

    async def _follow(self) -> None:
        """Notice when the session ends; its updates arrive in `on_update`."""
        updates = self.turns.session.updates()
        try:
            while await take_all(updates):
                pass
        except AcpError as error:
            self.turns.error = error
        self.flow.turn_over()
        self.face.close()

    async def _watch(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with timeout(bounds.CLIENTS_LOOK_SECONDS):
                    await self._has_news.wait()
            await asyncio.sleep(bounds.TURN_LOOK_SECONDS)
            self._has_news.clear()
            await self.turns.refresh()
            if self.turns.in_turn_of_another:
                self._has_news.set()  # it still runs: check again
            self.face.refresh()

    def on_update(self, session_id: str, raw: bytes) -> None:
        """Show an update; one that comes while the session is being opened is kept."""
        if not self.turns.has_session:
            self._early_updates.append((session_id, raw))
        elif self.flow.knows_child(session_id):
            self.flow.add_child_update(child_entry(session_id, raw))
            self.face.refresh()
        elif session_id == self.turns.session.id:
            self.turns.before_update(raw)
            self.flow.add_update(raw)
            self._has_news.set()
            self.face.refresh()

    def on_notification(self, method: str, params: Any) -> None:
        """Take a notification that is no update."""
        if method == QUEUE_METHOD and self.turns.has_session:
            self.turns.queue_changed()

    # -- keys ------------------------------------------------------------------------------

    def submit(self, text: str) -> bool:
        """Carry out a line of input; return True if it is a prompt, sent now or after the turn."""
        self.on_input()
        match interpret(text):
            case Local(name, words):
                self.commands.start(name, words)
            case TypedCommand(command):
                self.screen.start(self.commands.shell(command), "shell command")
            case TypedPrompt(text):
                self.turns.send(text)
                return True
        return False

    def on_input(self) -> None:
        """Drop the hint: after typing, a key that leaves when pressed twice starts over."""
        self.screen.show_hint("")

    @property
    def in_turn(self) -> bool:
        """True while a turn runs, ours or another client's."""
        return self.turns.in_turn

    def interrupt(self) -> None:
        """Cancel the running turn and hold what is queued; without a turn, leave when pressed
        twice."""
        if self._reads_only:
            self.face.close()
        elif self.in_turn and self.turns.has_session:
            self.turns.cancel()
        else:
            if self.turns.has_session and self.turns.may_begin:
                self.turns.cancel()
            if self.screen.hint == LEAVE_HINT:
                self.face.close()
            self.screen.show_hint(LEAVE_HINT)
        self.face.refresh()

    def leave(self) -> None:
        """Leave; a running turn goes on."""
        self.face.close()

    # -- status line -------------------------------------------------------------------------

    def status(self) -> Sequence[str]:
        """Return the facts for the status line, the most important first."""
        if hint := self.screen.hint:
            return (hint,)
        if self.face.asks and not self._reads_only:
            doing = "waiting for your answer (Ctrl-C cancels)"
        else:
            doing = self.turns.doing or ("read-only" if self._reads_only else "ready")
        if self.flow.attributes_changed and self.turns.has_session:
            self.flow.attributes_changed = False
            self._facts = attributes(self.turns.session)
        others = self.turns.live.clients - 1
        with_others = (quantity(others, "other client"),) if others > 0 else ()
        keys = ("q leaves",) if self._reads_only else ("Ctrl-D leaves", "? helps")
        return (doing, *self._facts, *with_others, *keys)

    @property
    def heading(self) -> str:
        """The terminal's title: a mark for a question or a running turn, and the session's
        title.
        """
        if not self.turns.has_session:
            return ""
        title = on_one_line(self.turns.session.title or "acphold")[:TITLE_LETTERS]
        mark = "? " if self.face.asks else "… " if self.in_turn else ""
        return f"{mark}{title}"
