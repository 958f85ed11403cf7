"""The turns of a chat: prompts that are sent or wait, and the place where all of it is shown."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Coroutine
from contextlib import suppress
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

import msgspec

from acp_wire.schema import ContentBlock, ResourceLink, TextContent, encode
from acp_wire.tasks import TaskSet, timeout
from acphold.client.remote_turn import take_all
from acphold.conversation.history.raw_update import PROMPT_BEGUN
from acphold.conversation.history.timeline import TurnEnd, TurnOutcome, turn_end
from acphold.conversation.presentation.visible_text import on_one_line
from acphold.errors import AcpError, AuthRequiredError
from acphold.faces.screen import bounds
from acphold.faces.screen.answers import Face
from acphold.faces.screen.flow import Flow
from acphold.faces.screen.typed import is_picture, links, path_of
from acphold.live.reading.one_question import PRESENCE
from acphold.live.reading.processes import LiveSession, Process

if TYPE_CHECKING:
    from acphold.client import RemoteAgent, RemoteQueue, RemoteSession, RemoteTurn
    from acphold.faces.screen.sign_in import TerminalSignIn

log = logging.getLogger(__name__)

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
TURNS_A_SECOND = 8

NOT_HERE = "not available here; use `acphold export` or `acphold continue --from last`"


class ChatHost:
    """Services of the surrounding program for a chat; here, none."""

    def stderr(self) -> str | None:
        """Return the end of the agent's stderr and of our log; None if they are elsewhere."""
        return None

    def with_log(self, words: str) -> str:
        """Return the words; if they report an incident that a log has, with the place of it."""
        return words

    async def export(self, session_id: str, words: str) -> str:
        """Write a session as `acphold export` does, to the file that `words` name, if any; return
        a message."""
        return NOT_HERE

    async def fork(self, session_id: str, words: str) -> str:
        """Copy a session as `acphold continue --from last` does; return a message. The word
        `before` leaves out the last turn, `files` also copies the files."""
        return NOT_HERE


class ChatScreen:
    """The place of a chat on the screen: passages, a face, a hint, and work whose errors are
    shown."""

    face: Face

    def __init__(self, flow: Flow, host: ChatHost) -> None:
        self.flow = flow
        self._host = host
        self._hint = ""
        self._hint_until = 0.0
        self._tasks = TaskSet()

    def start(self, doing: Coroutine[Any, Any, object], name: str) -> None:
        """Run `doing` in a task and show its errors."""
        self._tasks.start(self._show_errors(doing), name)

    async def _show_errors(self, doing: Coroutine[Any, Any, object]) -> None:
        try:
            await doing
        except AcpError as error:
            self.flow.tell(str(error))
        except Exception as error:  # the top of a task: nobody awaits it
            log.exception("a task of the screen failed")
            self.flow.turn_over()
            where = "; F4 shows the traceback" if self._host.stderr() is not None else ""
            self.flow.tell(f"this failed because of a bug in acphold: {error!r}{where}")
        self.face.refresh()

    async def aclose(self) -> None:
        """End the tasks."""
        await self._tasks.aclose()

    def show_hint(self, hint: str) -> None:
        """Show a hint in the status line for a while, or none."""
        self._hint, self._hint_until = hint, monotonic() + bounds.HINT_SECONDS

    @property
    def hint(self) -> str:
        """The hint that is shown now; "" for none."""
        return self._hint if monotonic() < self._hint_until else ""

    def with_traceback(self, words: str) -> str:
        """Return the words with the place of the traceback, if they report an incident."""
        if (incident := re.search(r"\bincident [0-9a-f]{8}\b", words)) is None:
            return words
        if incident[0] in (self._host.stderr() or ""):
            return f"{words}; F4 shows its traceback"
        found = self._host.with_log(words)
        if found != words:
            return found
        return f"{words}; its traceback is in the log of the process that runs the session"


class ShownTurns:
    """Runs the turns of our prompts in a session, one after the other, and shows their ends.

    `last_end` is the end of the last turn prompted here, None before that; `failure` is what failed
    it. `queue` has the prompts that wait in the session. `live` is the hub's last word about the
    session, `error` what ended the chat if the person did not. With `is_far` the session is on
    another machine: `@` and `!` then use our current folder.
    """

    queue: RemoteQueue

    def __init__(self, screen: ChatScreen, *, sign_in: TerminalSignIn | None, is_far: bool) -> None:
        self.last_end: TurnEnd | None = None
        self.failure: AcpError | None = None
        self.live = LiveSession("")
        self.error: AcpError | None = None
        self._screen = screen
        self._flow = screen.flow
        self._sign_in = sign_in
        self._is_far = is_far
        self._agent: RemoteAgent
        self._session: RemoteSession | None = None
        self._signing_in: asyncio.Task[None] | None = None
        self._is_prompting = False
        self._in_queued_turn = False
        self.edited = ""  # the id of the queued prompt in the line of input
        self._cancelled = False
        self._began = 0.0
        self._unshown = b""
        self._turn: RemoteTurn | None = None

    # -- the session -------------------------------------------------------------------------

    def begin(self, agent: RemoteAgent, session: RemoteSession) -> None:
        """Send prompts to this session from now on."""
        self.live = LiveSession(session.id)
        self._agent, self._session = agent, session
        self.queue = session.queue

    @property
    def session(self) -> RemoteSession:
        """The session; there is one from `begin` on."""
        assert self._session is not None
        return self._session

    @property
    def has_session(self) -> bool:
        """True from `begin` on."""
        return self._session is not None

    @property
    def folder(self) -> str:
        """The folder for `@` mentions and the shell."""
        return os.getcwd() if self._is_far else self.session.cwd

    async def refresh(self) -> None:
        """Ask the hub for the session's state, and close a shown turn that no longer runs."""
        try:
            process = msgspec.convert(await self._agent.call(PRESENCE, {}), Process)
        except (AcpError, msgspec.ValidationError):
            return
        found = (live for live in process.sessions if live.session_id == self.session.id)
        self.live = next(found, LiveSession(self.session.id))
        if self._flow.is_open and not self.live.running and not self._is_prompting:
            self._flow.turn_over()

    @property
    def in_turn(self) -> bool:
        """True while a turn runs, ours or another client's."""
        return self._is_prompting or self._in_queued_turn or self.live.running or self._flow.is_open

    @property
    def in_turn_of_another(self) -> bool:
        """True if the shown turn is none of a prompt sent from here."""
        return self._flow.is_open and not self._is_prompting

    @property
    def doing(self) -> str:
        """The state of the turn, for the status line; "" if none runs."""
        if self._signing_in is not None:
            return "the agent is signing you in (Ctrl-C cancels)"
        if self._is_prompting or self._in_queued_turn:
            doing = "queued after another client's turn" if self._unshown else "running"
            doing = "cancelling" if self._cancelled else doing
            now = monotonic()
            mark = SPINNER[int(now * TURNS_A_SECOND) % len(SPINNER)]
            minutes, rest = divmod(int(now - self._began), 60)
            if minutes or rest:
                doing += f" {minutes} min {rest:02} s" if minutes else f" {rest} s"
            return f"{mark} {doing} (Ctrl-C cancels)"
        if self.live.waiting:
            return "waiting for an answer"
        return "running for another client" if self.in_turn else ""

    @property
    def may_begin(self) -> bool:
        """True if a queued prompt begins by itself, now or later."""
        queue = self.queue.state
        return bool(queue.waiting) and (not queue.held or queue.until_ms is not None)

    def cancel(self) -> None:
        """Cancel the running turn, or the sign-in that it needs, and hold what is queued."""
        self._cancelled = True
        if self._signing_in is not None:
            self._signing_in.cancel()
        else:
            self.session.cancel()

    def before_update(self, raw: bytes) -> None:
        """Show the end of our turn, or the beginning of our prompt's, before this update."""
        if self._turn is not None and self._turn.stop_reason is not None:
            self._end_turn(_end_of(self._turn))  # this update belongs to the next turn
        if raw == PROMPT_BEGUN:
            self._show_prompt()

    # -- prompts -----------------------------------------------------------------------------

    def send(self, text: str) -> None:
        """Send a prompt, now or after the running turn."""
        if self.in_turn or self.edited:
            self._screen.start(self.later(text), "prompt for later")
        else:
            self._is_prompting = True
            self._screen.start(self.prompt(text), "prompt")

    async def later(self, text: str, at: int | None = None, typed: str = "") -> None:
        """Add a prompt to those that wait, or put the edited one back, to begin not before a moment
        (ms since the epoch). If that fails, it is back in the line of input, as it was `typed`."""
        when = None if at is None else datetime.fromtimestamp(at / 1000, UTC)
        edited, self.edited = self.edited, ""
        try:
            if not edited:
                await self.queue.add(*self.content_of(text), at=when)
                return
            if when is not None:
                await self.queue.reschedule(edited, when)
            await self.queue.edit(edited, *self.content_of(text))
        except AcpError:
            self._screen.face.put_back(typed or text)
            raise

    async def give_back(self) -> None:
        """Let the prompt that is edited stand as before."""
        edited, self.edited = self.edited, ""
        if edited and self.queue.state.find(edited) is not None:
            await self.queue.edit(edited)

    async def steer(self, text: str) -> None:
        """Send text into the running turn; without one, it is a prompt.

        If the agent does not support that, the text returns to the line of input, and Enter then
        sends it after the turn.
        """
        if not text:
            self._screen.show_hint("/now TEXT: sends TEXT to the agent while it works")
        elif not self.in_turn:
            self.send(text)
        elif not self.session.has_steering:
            self._screen.face.put_back(text)
            agent = self.session.agent_name
            self._screen.show_hint(
                f"Enter sends it after the turn; {agent} accepts nothing while it works"
            )
        else:
            try:
                is_accepted = await self.session.steer(*self.content_of(text))
            except AcpError:
                self._screen.face.put_back(text)
                raise
            if not is_accepted:  # the turn is over
                await self.later(text)

    def content_of(self, text: str) -> tuple[ContentBlock, ...]:
        """Return the prompt: its text, and a link for each `@` mention; pictures are embedded.

        For another machine every file is embedded or left out: a link would lead nowhere there.
        """
        named: list[ContentBlock] = []
        for link in links(text, self.folder):
            if not (self._is_far or is_picture(link)):
                named.append(link)
                continue
            try:
                whole = self.session.blocks(path_of(link))
            except AcpError:  # it is gone, or too long
                whole = (link,)
            if self._is_far and isinstance(whole[0], ResourceLink):
                self._flow.tell(
                    f"{link.name} is on this machine, and the agent does not accept such files"
                )
            else:
                named += whole
        return (TextContent(text=text), *named)

    def queue_changed(self) -> None:
        """Show the queued prompts, and the beginning and the end of the turn of one of them."""
        queue = self.queue.state
        if queue.begun is not None and not self._in_queued_turn:
            self._began, self._cancelled = monotonic(), False
        elif queue.begun is None and self._in_queued_turn:
            state = queue.ended[-1].status if queue.ended else "done"
            outcome = cast("TurnOutcome", "completed" if state == "done" else state)
            self._show_end(TurnEnd(outcome, 0) if self._flow.is_open else None)
        self._in_queued_turn = queue.begun is not None
        self._screen.face.show_queue(queue)

    # -- our turn ----------------------------------------------------------------------------

    async def prompt(self, text: str) -> TurnEnd:
        """Run a turn to its end, and show that end."""
        try:
            return await self._run(self.content_of(text))
        finally:
            self._is_prompting = False

    async def _run(self, content: tuple[ContentBlock, ...]) -> TurnEnd:
        """Run the turn of a prompt and show it; return its end."""
        self._is_prompting, self._cancelled = True, False
        self._began = monotonic()
        self.last_end = self.failure = None
        if self._flow.is_open:  # is another client's turn running?
            with suppress(TimeoutError):
                async with timeout(bounds.TURN_LOOK_SECONDS):
                    await self.refresh()
        self._unshown = encode(content)
        if not (self._flow.is_open and self.live.running):
            self._show_prompt()
        self._screen.face.refresh()
        try:
            end: TurnEnd | None = None
            while end is None:
                try:
                    turn = self._turn = self.session.prompt(*content)
                    # Not `await turn`: leaving the chat would then cancel the turn.
                    while await take_all(turn):
                        pass
                    end = _end_of(turn)
                except AuthRequiredError as error:
                    await self._let_sign_in(error)  # then once more
        except AcpError as error:
            self.failure = error
            words = self._screen.with_traceback(on_one_line(str(error)))
            end = TurnEnd("failed", 0, message=words)
        if self.last_end is None:
            self._end_turn(end)
        return end

    async def _let_sign_in(self, why: AuthRequiredError) -> None:
        """Have the person sign in to retry the prompt; otherwise raises AuthRequiredError."""
        if self._sign_in is None:
            raise why
        self._show_prompt()
        self._signing_in = asyncio.create_task(self._sign_in.sign_in(self._agent, why))
        try:
            await self._signing_in
        except asyncio.CancelledError:
            if not self._signing_in.cancelled():
                raise  # we are being ended, not only the sign-in
            raise self._sign_in.refusal(self._agent, why) from None
        except AuthRequiredError as error:
            if self._sign_in.terminal is None:  # nobody can answer: the chat ends
                self.error = error
                self._screen.face.close()
            raise
        finally:
            self._signing_in.cancel()
            self._signing_in = None

    def _show_prompt(self) -> None:
        """Show our prompt, after the other client's turn that came before it."""
        if self._unshown:
            if self._flow.is_open:
                self._flow.turn_over()
            self._flow.add_prompt(self._unshown)
            self._unshown = b""

    def _end_turn(self, end: TurnEnd) -> None:
        """Show the end of our turn, and its prompt if the turn never began."""
        self._turn, self.last_end = None, end
        self._show_prompt()
        self._show_end(end)
        self._screen.face.refresh()

    def _show_end(self, end: TurnEnd | None) -> None:
        """Show the end of the turn of a prompt from here, None if the session's updates have shown
        it; a long one rings the bell."""
        self._flow.turn_over(end)
        if monotonic() - self._began > bounds.LONG_TURN_SECONDS:
            self._screen.face.ring()
        self.live = LiveSession(self.live.session_id, self.live.clients)


def _end_of(turn: RemoteTurn) -> TurnEnd:
    return turn_end(msgspec.json.encode({"stopReason": turn.stop_reason}), 0)
