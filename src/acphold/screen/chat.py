"""A person at a session: sends prompts, shows updates, answers questions, until either ends.

| | |
|---|---|
| a prompt while a turn runs | waits in the session's queue, or here if the agent keeps none |
| a turn of another client | is shown like ours; the hub knows if it still runs |
| a question that was answered elsewhere | disappears, with a note |
| the agent has ended | is reported; the hub starts it again with the next prompt |
| the line to another machine is down | is reported; prompts are sent once it is back |
| the process that has the session has ended | is reported, and the chat is over |
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import mkstemp
from time import localtime, monotonic, strftime
from typing import TYPE_CHECKING, Any, cast

import msgspec
from rich.text import Text

from acphold.agents.capabilities import QUEUE_METHOD
from acphold.errors import AcpholdError, AuthRequiredError
from acphold.history.children import child_entry
from acphold.history.entries import now_ms
from acphold.history.prompt_queue import moment_first
from acphold.history.raw_update import PROMPT_BEGUN
from acphold.history.timeline import TurnEnd, TurnOutcome, turn_end
from acphold.presentation.visible_text import counted, on_one_line, visible
from acphold.processes.clipboard import picture
from acphold.processes.foreground import ForegroundProgram
from acphold.reading.neighbours import PRESENCE, LiveSession, Process
from acphold.schema import ContentBlock, ImageContent, ResourceLink, TextContent, encode
from acphold.screen.answers import Face
from acphold.screen.flow import Flow
from acphold.screen.layout import Passage
from acphold.screen.panels import Choice, Key
from acphold.screen.queued_prompts import (
    LocalQueue,
    WaitingPrompts,
    change_by_words,
    page,
    prompt_at,
)
from acphold.screen.session_options import SessionOptions, attributes
from acphold.screen.typed import (
    Local,
    TypedCommand,
    TypedPrompt,
    help_page,
    is_picture,
    links,
    meant,
    path_of,
)
from acphold.tasks import TaskSet

if TYPE_CHECKING:
    from acphold.client import RemoteAgent, RemoteSession, RemoteTurn
    from acphold.screen.sign_in import TerminalSignIn

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""Seconds between two checks whether another client's turn still runs."""

LONG_SECONDS = 10.0
"""Seconds after which a finished turn rings the bell: the person may be doing something else."""

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
TURNS_A_SECOND = 8

HINT_SECONDS = 5.0
"""Seconds that a hint is shown, and that a key pressed a second time leaves the chat."""

IDLE_LOOK_SECONDS = 5.0
"""Seconds between two checks of who else is connected, while nothing happens."""


SessionAction = Callable[[str, str], Awaitable[str]]
"""Exports the session with this id to a file, "" for a default name; returns a message."""


TITLE_LETTERS = 60


def _lasted(seconds: float) -> str:
    """Return a duration in words, "" below a second."""
    if seconds < 1:
        return ""
    minutes, rest = divmod(int(seconds), 60)
    return f" {minutes} min {rest:02} s" if minutes else f" {rest} s"


async def _not_here(session_id: str, words: str) -> str:
    return "not available here; use `acphold export` or `acphold fork`"


class Chat:
    """The chat; see the module.

    `error` is what ended it, if the person did not; `last_end` is the end of the last turn prompted
    here, None before that. `goes_to` is where the person went from here, `new` or `resume` with its
    arguments, if `goes` includes that; `export` writes a session to a file, `fork` copies it, and
    both return a message.
    With `is_far` the session is on another machine: `@` and `!` then use our current folder.
    """

    def __init__(
        self,
        flow: Flow,
        *,
        reads_only: bool = False,
        leaving: str = "leaves",
        sign_in: TerminalSignIn | None = None,
        goes: Collection[str] = (),
        export: SessionAction | None = None,
        fork: SessionAction | None = None,
        stderr: Callable[[], str] | None = None,
        with_log: Callable[[str], str] = str,
        is_far: bool = False,
    ) -> None:
        self.flow = flow
        self._is_far = is_far
        self._away_since: float | None = None
        self.goes_to: tuple[str, str] | None = None
        self._goes = goes
        self._export = export or _not_here
        self._fork = fork or _not_here
        self._stderr = stderr
        self._with_log = with_log
        self._began = 0.0
        self._pasted: list[str] = []
        self._sign_in = sign_in
        self._signing_in: asyncio.Task[None] | None = None
        self.error: AcpholdError | None = None
        self.last_end: TurnEnd | None = None
        self.face: Face
        self._agent: RemoteAgent
        self._session: RemoteSession | None = None
        self._reads_only = reads_only
        self._leaving = leaving
        self._early: list[tuple[str, bytes]] = []
        self._tasks = TaskSet()
        self._queue: WaitingPrompts = LocalQueue(self.queue_changed)
        self._in_queued_turn = False
        self._is_taking_back = False
        self._waking: asyncio.TimerHandle | None = None
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
        """Show the session, which is open now, and the updates kept meanwhile."""
        self.error, self.goes_to, self._live = None, None, LiveSession(session.id)
        self._agent, self._session = agent, session
        kept = session.queue
        self._queue = kept if kept.is_kept else LocalQueue(self.queue_changed)
        self._in_queued_turn = False
        for session_id, raw in self._early:
            if self.flow.knows(session_id):
                self.flow.hear_child(child_entry(session_id, raw))
            else:
                self.flow.hear(raw)
        self._early.clear()

    def end(self) -> None:
        """End this session's part of the chat; keep later updates for the next session."""
        self._session = None
        self._wake_never()
        self.flow.turn_over()

    async def look(self) -> None:
        """Ask the hub for the session's state, and close a shown turn that no longer runs."""
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
        self.queue_changed()
        self._begin(self._follow(), "follow session")
        self._begin(self._watch(), "watch session")

    async def aclose(self) -> None:
        """End the tasks of this chat."""
        for path in self._pasted:
            with suppress(OSError):  # gone already
                os.unlink(path)
        self._pasted.clear()
        self._wake_never()
        await self._tasks.aclose()

    async def _follow(self) -> None:
        """Notice when the session ends; its updates come to `hear`."""
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
                self._heard.set()  # it still runs: check again
            self.face.changed()

    def _begin(self, doing: Coroutine[Any, Any, None], name: str) -> None:
        self._tasks.start(self._told(doing), name)

    async def _told(self, doing: Coroutine[Any, Any, None]) -> None:
        """Run `doing` and show its errors on the screen."""
        try:
            await doing
        except AcpholdError as error:
            self.flow.tell(str(error))
        except Exception as error:  # the top of a task: nobody awaits it
            log.exception("what the screen was doing has failed")
            self.flow.turn_over()
            where = "; F4 shows the traceback" if self._stderr is not None else ""
            self.flow.tell(f"this has failed, which is a bug in acphold: {error!r}{where}")
        self.face.changed()

    # -- updates -----------------------------------------------------------------------------

    def hear(self, session_id: str, raw: bytes) -> None:
        """Show an update; one that comes while the session is being opened is kept."""
        if self._session is None:
            self._early.append((session_id, raw))
        elif self.flow.knows(session_id):
            self.flow.hear_child(child_entry(session_id, raw))
            self.face.changed()
        elif session_id == self._session.id:
            if self._turn is not None and self._turn.stop_reason is not None:
                self._end_turn(_end_of(self._turn))  # what comes now belongs to the next turn
            if raw == PROMPT_BEGUN:
                self._show_prompt()
            self.flow.hear(raw)
            self._heard.set()
            self.face.changed()

    def notified(self, method: str, params: Any) -> None:
        """Take a notification that is no update."""
        if method == QUEUE_METHOD and self._session is not None:
            self.queue_changed()

    def queue_changed(self) -> None:
        """Show the prompts that wait, and the beginning and the end of the turn of one of them."""
        queue = self._queue.state
        if queue.begun is not None and not self._in_queued_turn:
            self._began, self._cancelled = monotonic(), False
        elif queue.begun is None and self._in_queued_turn:
            state = queue.ended[-1].state if queue.ended else "done"
            outcome = cast("TurnOutcome", "completed" if state == "done" else state)
            self._end_queued(TurnEnd(outcome, 0))
        self._in_queued_turn = queue.begun is not None
        self.face.waits(queue)
        self._wake_never()
        if isinstance(self._queue, LocalQueue) and not self._is_prompting:
            if queue.next(now_ms()) is not None:
                self._is_prompting = True
                self._begin(self._prompt_all(), "prompts")
            elif queue.wakes_at is not None:
                # In steps: the machine may sleep meanwhile, and its clock be set.
                seconds = min(max(0, queue.wakes_at - now_ms()) / 1000, IDLE_LOOK_SECONDS)
                loop = asyncio.get_running_loop()
                self._waking = loop.call_later(seconds, self.queue_changed)

    def _wake_never(self) -> None:
        if self._waking is not None:
            self._waking.cancel()
            self._waking = None

    def _end_queued(self, end: TurnEnd) -> None:
        """Show the end of the turn of a prompt that had waited."""
        self.flow.turn_over(end)
        if monotonic() - self._began > LONG_SECONDS:
            self.face.ring()
        if self._session is not None:
            self._live = LiveSession(self._session.id, self._live.clients)

    def away(self, since: float | None) -> None:
        """Note that the connection is down since this time (s since the epoch), or back (None)."""
        self._away_since = since
        if self._session is not None:
            self.face.changed()

    # -- input ---------------------------------------------------------------------------------

    def submit(self, text: str) -> None:
        """Carry out a line of input: usually, send a prompt, now or after the running turn."""
        self.typed()
        match meant(text):
            case Local(name, words):
                self._begin(self._local(name, words), f"/{name}")
                return
            case TypedCommand(command):
                self._begin(self._shell(command), "shell command")
                return
            case TypedPrompt(text):
                self._send(text)

    def _send(self, text: str) -> None:
        """Send a prompt, now or after the running turn."""
        is_local = isinstance(self._queue, LocalQueue)
        if self._is_prompting or (self.in_turn and not is_local):
            self._begin(self._later(text), "prompt for later")
        else:
            self._is_prompting = True
            self._begin(self._prompt_all(text), "prompts")

    async def _later(self, text: str, at: int | None = None) -> None:
        """Add a prompt to those that wait, to begin not before a moment (ms since the epoch)."""
        try:
            await self._queue.add(*self._said(text), at=at)
        except AcpholdError:
            self.face.put_back(text)
            raise

    async def _steer(self, text: str) -> None:
        """Say something into the running turn; without one, it is a prompt.

        If the agent takes no words into its turn, the text comes back, and Enter puts it behind.
        """
        assert self._session is not None
        if not text:
            self._say("/now TEXT: for the agent, while it is at work")
        elif not self.in_turn:
            self._send(text)
        elif not self._session.has_steering:
            self.face.put_back(text)
            agent = self._session.agent_name
            self._say(f"Enter: after the turn; {agent} takes no words while it works")
        else:
            try:
                is_said = await self._session.steer(*self._said(text))
            except AcpholdError:
                self.face.put_back(text)
                raise
            if not is_said:  # the turn is over
                await self._later(text)

    async def _prompt_all(self, text: str = "") -> None:
        """Run the turn of a prompt, and then of those that wait here and not in the session."""
        try:
            if text:
                end = await self._run(self._said(text))
                if isinstance(self._queue, LocalQueue):
                    self._queue.over(end.outcome)
            while isinstance(self._queue, LocalQueue) and (said := self._queue.begun()):
                self._queue.over((await self._run(said)).outcome)
        finally:
            self._is_prompting = False
        self.queue_changed()  # what still waits here waits for its moment

    async def prompt(self, text: str) -> TurnEnd:
        """Run a turn to its end, and show that end."""
        try:
            return await self._run(self._said(text))
        finally:
            self._is_prompting = False

    async def _run(self, said: tuple[ContentBlock, ...]) -> TurnEnd:
        assert self._session is not None
        self._is_prompting, self._cancelled = True, False
        self._began = monotonic()
        self.last_end = None
        if self.flow.is_open:  # is another client's turn running?
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self.look()
        self._unshown = encode(said)
        if not (self.flow.is_open and self._live.running):
            self._show_prompt()
        self.face.changed()
        try:
            while True:
                try:
                    turn = self._turn = self._session.prompt(*said)
                    while await turn.take_all():  # awaited, it would be cancelled by who leaves
                        pass
                    end = _end_of(turn)
                except AuthRequiredError as error:
                    await self._let_sign_in(error)
                else:
                    break
        except AcpholdError as error:
            end = TurnEnd("failed", 0, message=self._with_traceback(on_one_line(str(error))))
        if self.last_end is None:
            self._end_turn(end)
        return end

    def _said(self, text: str) -> tuple[ContentBlock, ...]:
        """Return the prompt: its text, and a link for each `@` mention; pictures are embedded.

        For another machine every file is embedded or left out: a link would lead nowhere there.
        """
        assert self._session is not None
        named: list[ContentBlock] = []
        for link in links(text, self.folder):
            if not (self._is_far or is_picture(link)):
                named.append(link)
                continue
            try:
                whole = self._session.blocks(path_of(link))
            except AcpholdError:  # it is gone, or too long
                whole = (link,)
            if self._is_far and isinstance(whole[0], ResourceLink):
                self.flow.tell(
                    f"{link.name}: it is on this machine, and the agent takes no such file"
                )
            else:
                named += whole
        return (TextContent(text=text), *named)

    @property
    def folder(self) -> str:
        """The folder for `@` mentions and the shell."""
        assert self._session is not None
        return os.getcwd() if self._is_far else self._session.cwd

    def _with_traceback(self, words: str) -> str:
        """Return the words with the place of the traceback, if they report an incident."""
        if (incident := re.search(r"\bincident [0-9a-f]{8}\b", words)) is None:
            return words
        if self._stderr is not None and incident[0] in self._stderr():
            return f"{words}; F4 shows its traceback"
        found = self._with_log(words)
        if found != words:
            return found
        return f"{words}; its traceback is in the log of the process that has the session"

    def paste_picture(self) -> None:
        """Insert a reference to the clipboard's picture into the line of input."""
        self._begin(self._paste_picture(), "paste picture")

    async def _paste_picture(self) -> None:
        if not (found := await picture()):
            self._say("no picture in the clipboard, or none of wl-paste, xclip and pngpaste")
            return
        descriptor, path = mkstemp(suffix=".png", prefix="acphold-")
        os.close(descriptor)
        Path(path).write_bytes(found)  # noqa: ASYNC240 - as quick as the clipboard is small
        self._pasted.append(path)
        self.face.insert(f"@{path} ")

    async def _let_sign_in(self, why: AuthRequiredError) -> None:
        """Have the person sign in to retry the prompt; otherwise raises AuthRequiredError."""
        if self._sign_in is None:
            raise why
        self._show_prompt()
        self._signing_in = asyncio.create_task(self._sign_in.sign_in(self._agent, why))
        self.face.changed()
        try:
            await self._signing_in
        except asyncio.CancelledError:
            if not self._signing_in.cancelled():
                raise  # we are being ended, not only the sign-in
            raise self._sign_in.refused(self._agent, why) from None
        except AuthRequiredError as error:
            if self._sign_in.terminal is None:  # nobody is there to go on
                self.error = error
                self.face.close()
            raise
        finally:
            self._signing_in.cancel()
            self._signing_in = None

    def _end_turn(self, end: TurnEnd) -> None:
        """Show the end of our turn, and its prompt if the turn never began."""
        assert self._session is not None
        self._turn, self.last_end = None, end
        self._show_prompt()
        self.flow.turn_over(end)
        if monotonic() - self._began > LONG_SECONDS:
            self.face.ring()
        self._live = LiveSession(self._session.id, self._live.clients)
        self.face.changed()

    def _show_prompt(self) -> None:
        """Show our prompt, after the other client's turn that came before it."""
        if self._unshown:
            if self.flow.is_open:
                self.flow.turn_over()
            self.flow.prompted(self._unshown)
            self._unshown = b""

    @property
    def in_turn(self) -> bool:
        """True while a turn runs, ours or another client's."""
        return self._is_prompting or self._in_queued_turn or self._live.running or self.flow.is_open

    def typed(self) -> None:
        """Drop the hint: after typing, a key that leaves when pressed twice starts over."""
        self._hint, self._pressed = "", ""

    def interrupt(self) -> None:
        """Cancel the running turn; without one, leave when pressed twice."""
        if self._reads_only:
            self.face.close()
        elif self.in_turn and self._session is not None:
            self._cancelled = True
            if self._signing_in is not None:
                self._signing_in.cancel()
            else:
                self._session.cancel()
        else:
            self._close_at_second("Ctrl-C", f"Ctrl-C again {self._leaving}")
        self.face.changed()

    def leave(self) -> None:
        """Leave; if that ends a running turn, only when pressed twice."""
        if self._leaving == "detaches" or not self.in_turn:
            self.face.close()
        else:
            self._close_at_second(
                "Ctrl-D", "a turn is running: press Ctrl-D again to cancel it and leave"
            )
            self.face.changed()

    def _close_at_second(self, key: str, hint: str) -> None:
        """Close if this key was also the last one pressed; otherwise show the hint."""
        if self._pressed == key and monotonic() < self._hint_until:
            self.face.close()
        self._say(hint)
        self._pressed = key

    def _say(self, hint: str) -> None:
        """Show a hint in the status line for a while."""
        self._hint, self._hint_until = hint, monotonic() + HINT_SECONDS

    # -- our commands --------------------------------------------------------------------------

    def next_mode(self) -> None:
        """Switch to the next mode."""
        self.typed()
        self._begin(self._local("next mode"), "next mode")

    def set_options(self) -> None:
        """Show a menu of the session's options."""
        self.typed()
        self._begin(self._local("options"), "options")

    def help(self) -> None:
        """Show the commands and keys."""
        self._begin(self._local("help"), "help")

    async def _local(self, name: str, words: str = "") -> None:
        """Run one of our commands."""
        assert self._session is not None
        options = SessionOptions(self._session, self.face, self._say)
        match name:
            case "help":
                self.flow.put(help_page())
            case "quit":
                await self._quit()
            case "new" | "resume" if self.in_turn:
                self._say("a turn is running: Ctrl-C cancels it")
            case "new" | "resume" if name not in self._goes:
                self._say("not available here: leave, then run `acphold resume` or `acphold chat`")
            case "new" | "resume":
                self.goes_to = name, words if name == "resume" else ""
                self.face.close()
            case "model":
                await options.set_model(words)
            case "mode":
                await options.set_mode(words)
            case "next mode":
                await options.next_mode()
            case "options":
                await options.set_option()
            case "now":
                await self._steer(words)
            case "queue" | "later":
                await self._change_queue(name, words)
            case "export":
                self.flow.tell(await self._export(self._session.id, words))
            case "fork":
                for line in (await self._fork(self._session.id, words)).splitlines():
                    self.flow.tell(line)
        self.flow.attributes_changed = True

    async def _quit(self) -> None:
        """Leave; if that ends a running turn, only after confirmation."""
        if self._leaving != "detaches" and self.in_turn:
            keys = (Key("e", "cancel it and leave", "end"), Key("escape", "stay", ""))
            if not await self.face.choose(Choice("A turn runs", keys, is_menu=True)):
                return
        self.face.close()

    async def _change_queue(self, name: str, words: str) -> None:
        """Carry out `/later TEXT`, or `/queue` with its words."""
        waiting = self._queue.state.waiting
        command, _, number = words.partition(" ")
        try:
            if name == "later":
                at, text = moment_first(words)
                if text:
                    await self._later(text, at)
                else:
                    self._say("/later [02:00] TEXT: for after this turn, or not before 02:00")
            elif words in ("", "back") and not waiting:
                self._say("no prompt waits")
            elif not words:
                self.flow.put(page(self._queue.state))
            elif command == "back":
                await self._take_back(number.strip() or str(len(waiting)))
            elif said := await change_by_words(self._queue, words):
                self._say(said)
        except ValueError as error:
            if name == "later":
                self.face.put_back(f"/later {words}")
            self._say(str(error))

    def take_back(self) -> None:
        """Take the last prompt that waits back into the line of input."""
        if not self._is_taking_back:
            self._begin(self._local("queue", "back"), "take back")

    async def _take_back(self, number: str) -> None:
        """Take the prompt with this number back; ValueError if there is none, or it is more than
        what could be typed again."""
        waits = prompt_at(self._queue.state, number)
        self._is_taking_back = True
        try:
            blocks = await self._queue.content(waits.id)
            text = "\n".join(block.text for block in blocks if isinstance(block, TextContent))
            is_text = all(isinstance(block, TextContent) for block in blocks)
            if not (is_text or self._said(text) == blocks):
                has_picture = any(isinstance(block, ImageContent) for block in blocks)
                what = "pictures" if has_picture else "files"
                raise ValueError(f"prompt {number} has {what}, and stays; /queue drop {number}")
            await self._queue.drop(waits.id)
        finally:
            self._is_taking_back = False
        self.face.put_back(text)

    async def _shell(self, command: str) -> None:
        """Run the person's shell command in the folder of the session."""
        assert self._session is not None
        shell = os.environ.get("SHELL") or "/bin/sh"
        self.flow.put(Passage("shell", "acphold", [Text(visible(f"$ {command}"))]))
        code = await self.face.in_front(ForegroundProgram((shell, "-c", command), cwd=self.folder))
        if code:
            self.flow.tell(f"it ended with {code}")

    # -- status line ---------------------------------------------------------------------------

    def status(self) -> Sequence[str]:
        """Return the facts for the status line, the most important first."""
        if self._hint and monotonic() < self._hint_until:
            return (self._hint,)
        return (self._doing(), *self._attributes(), *self._others())

    def _doing(self) -> str:
        if self._away_since is not None:
            since = strftime("%H:%M:%S", localtime(self._away_since))
            kept = "" if self._reads_only else "; your messages are kept"
            return f"offline since {since}, reconnecting{kept}"
        if self.face.asks and not self._reads_only:
            return "waiting for your answer (Ctrl-C cancels)"
        if self._signing_in is not None:
            return "the agent signs you in (Ctrl-C gives up)"
        if self._is_prompting or self._in_queued_turn:
            doing = "queued behind another client's turn" if self._unshown else "running"
            doing = "cancelling" if self._cancelled else doing
            now = monotonic()
            mark = SPINNER[int(now * TURNS_A_SECOND) % len(SPINNER)]
            return f"{mark} {doing}{_lasted(now - self._began)} (Ctrl-C cancels)"
        if self._live.waiting:
            return "waits for an answer"
        if self.in_turn:
            return "running for another client"
        return "reads only" if self._reads_only else "ready"

    @property
    def heading(self) -> str:
        """The terminal's title: a mark for a question or a running turn, and the session's
        title.
        """
        if self._session is None:
            return ""
        title = on_one_line(self._session.title or "acphold")[:TITLE_LETTERS]
        mark = "? " if self.face.asks else "… " if self.in_turn else ""
        return f"{mark}{title}"

    def open_calls(self) -> None:
        """Show the whole tool calls in the pager."""
        if calls := self.flow.opened_calls():
            self._begin(self.face.read(calls), "read tool calls")
        else:
            self._say("no tool calls yet")

    def open_stderr(self) -> None:
        """Show the stderr of the agent, and of acphold in front of it, in the pager."""
        told = visible(self._stderr() if self._stderr is not None else "")
        if told.strip():
            lines = [Text(line) for line in told.splitlines()]
            self._begin(self.face.read([Passage("stderr", "faint", lines)]), "read stderr")
        else:
            self._say("its stderr is not available")

    def _others(self) -> Sequence[str]:
        others = self._live.clients - 1
        keys = ("q leaves",) if self._reads_only else (f"Ctrl-D {self._leaving}", "? helps")
        return (*([counted(others, "other client")] if others > 0 else []), *keys)

    def _attributes(self) -> Sequence[str]:
        """Return agent, mode, options and usage; recomputed only after a change."""
        if self.flow.attributes_changed and self._session is not None:
            self.flow.attributes_changed = False
            self._facts = attributes(self._session)
        return self._facts


def _end_of(turn: RemoteTurn) -> TurnEnd:
    return turn_end(msgspec.json.encode({"stopReason": turn.stop_reason}), 0)
