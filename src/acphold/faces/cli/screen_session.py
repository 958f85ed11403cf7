"""The screen of `chat` and `continue`: on a terminal, or plain in a pipe."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from io import StringIO
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

from acp_wire.schema import ClientCapabilities
from acphold.errors import AuthRequiredError, ConnectionLostError, JournalError
from acphold.faces.cli import bounds
from acphold.faces.cli.ask_person import person_here
from acphold.faces.cli.asked_calls import KnownCalls
from acphold.faces.cli.command_line import ENDS, Exit
from acphold.faces.cli.continuation import title_of
from acphold.faces.cli.journals import lasting_id, sessions_here, short_id
from acphold.faces.cli.session_setup import AS_IT_IS, SessionSetup
from acphold.faces.cli.ssh import host_option
from acphold.faces.cli.terminal_text import (
    LINE_TERMINALS,
    console,
    on_one_line,
    on_terminal,
    tell,
    visible,
)
from acphold.live.agents.capabilities import WATCHES
from acphold.live.reading.local_reader import LocalReader, existing_journal

if TYPE_CHECKING:
    from acphold.client import Options, RemoteAgent, RemoteSession
    from acphold.client.answers import Rule
    from acphold.faces.screen.answers import PersonAnswers
    from acphold.faces.screen.chat import Chat
    from acphold.faces.screen.line_screen import LineScreen
    from acphold.faces.screen.plain import PlainFace
    from acphold.faces.screen.sign_in import SignInProgram, TerminalSignIn

T = TypeVar("T")


class WantedConversation(NamedTuple):
    """The session to open: the one of this id; or the one that `words` mean, which are an id or
    filter the list to choose from; or the `newest`; or otherwise a new one. `cwd` is None for the
    session's folder, or otherwise this one here. With `is_new_beside`, a new session is opened with
    the agent and in the folder of the one of this id. `setup` is applied to each that is opened.

    `agent` or `program` is the agent to continue it with, if the person named one; `permission`
    says how its requests are answered.
    """

    session_id: str | None = None
    words: str | None = None
    newest: bool = False
    cwd: str | None = None
    is_new_beside: bool = False
    setup: SessionSetup = AS_IT_IS
    agent: str | None = None
    program: tuple[str, ...] = ()
    permission: Rule | None = None

    @property
    def names_agent(self) -> bool:
        """True if the person named an agent."""
        return self.agent is not None or bool(self.program)


class _ScreenCapabilities(ClientCapabilities, frozen=True, kw_only=True):
    """Adds `subagents`, which is not stable yet."""

    subagents: dict[str, str]


def _draws() -> bool:
    """Return True if there is a person whose terminal can be redrawn."""
    return on_terminal() and os.environ.get("TERM") not in LINE_TERMINALS


class ChatFrontend:
    """A chat, the person who answers in it, and the options of its connection.

    With `is_far` the agent works on another machine.
    """

    def __init__(
        self,
        *,
        permission: Rule | None,
        reads_only: bool,
        program: SignInProgram | None = None,
        is_far: bool = False,
    ) -> None:
        from acphold.faces.cli.chat_host import CommandHost
        from acphold.faces.screen.answers import PersonAnswers
        from acphold.faces.screen.chat import Chat
        from acphold.faces.screen.flow import Flow
        from acphold.faces.screen.sign_in import TerminalSignIn

        self._logged = StringIO()
        self.flow = Flow(thoughts="folded" if on_terminal() else "whole", brief=_draws())
        self.reads_only = reads_only
        self._person = person_here(self.flow) if on_terminal() and program is not None else None
        self._can_sign_in_here = on_terminal() and program is not None and bool(program.command)
        self.sign_in: TerminalSignIn | None = (
            None if program is None else TerminalSignIn(program, self._person, self.flow)
        )
        self.chat: Chat = Chat(
            self.flow,
            reads_only=reads_only,
            sign_in=self.sign_in,
            host=CommandHost(program, self._logged),
            is_far=is_far,
        )
        self.answers: PersonAnswers = PersonAnswers(
            self.flow, KnownCalls(is_far=is_far), reads_only=reads_only
        )
        self._permission = permission
        if self._person is not None:
            self.answers.face = self._person  # for questions before the session is open

    async def with_sign_in(self, agent: RemoteAgent, opening: Callable[[], Awaitable[T]]) -> T:
        """Open a session, after a sign-in if the agent wants one."""
        while True:
            try:
                return await opening()
            except AuthRequiredError as error:
                if self.sign_in is None:
                    raise
                await self.sign_in.sign_in(agent, error)

    @property
    def options(self) -> Options:
        """The options of the connection."""
        from acphold.client.answers import Answers

        options: Options = {
            "on_update": self.chat.on_update,
            "on_notification": self.chat.on_notification,
        }
        if on_terminal() or self.reads_only:
            options["on_permission"] = self.answers.on_permission
            if self._permission is not None:
                options["permission"] = self._permission
        else:
            options["permission"] = "reject" if self._permission in (None, "ask") else "allow"
        if on_terminal() and not self.reads_only:  # a read-only one is asked nothing
            options["on_form"] = self.answers.on_form
            options["on_page"] = self.answers.on_page
        answers = Answers(
            on_form=options.get("on_form"),
            on_page=options.get("on_page"),
            signs_in=self._can_sign_in_here,
        )
        offered = msgspec.structs.asdict(answers.capabilities)
        offered["meta"] = {WATCHES: self.reads_only}
        options["capabilities"] = _ScreenCapabilities(**offered, subagents={})
        return options

    async def run(self, agent: RemoteAgent, session: RemoteSession) -> int:
        """Show the session until the person leaves or it ends; returns the exit code."""
        from acphold.faces.screen.session_options import edit_mode

        named = on_one_line(session.id)
        with suppress(JournalError):  # the chat does not need it
            named = await _short_id(session.id)
        self.flow.transcript = f"acphold show{host_option()} {named}"
        self.answers.edit_mode = partial(edit_mode, session)
        self.chat.begin(agent, session)
        if self._person is not None:
            self._person.refresh()
        try:
            if _draws():
                await self._on_terminal(session)
            elif on_terminal() and not self.reads_only:
                await self._on_lines()
            else:
                from acphold.faces.screen.plain import PlainFace

                face = PlainFace(self.flow, sys.stdout)
                prompt_each = partial(face.prompt_each, self.chat.turns)
                await self._print_on(face, face.wait_closed if self.reads_only else prompt_each)
        finally:
            await self.answers.aclose()
        error, end = self.chat.turns.error, self.chat.turns.last_end
        if error is not None:
            tell(f"acphold: {error}")
        elif on_terminal() or end is None:
            return Exit.OK
        match error or self.chat.turns.failure:  # in a script, as in `ask`
            case JournalError():
                return Exit.JOURNAL
            case AuthRequiredError():
                return Exit.SIGN_IN
        return Exit.AGENT if end is None or error is not None else ENDS[end.outcome]

    async def _show_on(self, face: LineScreen | PlainFace, most: int | None = None) -> None:
        """Show the chat, the answers and the sign-in there from now on; of the history, at most so
        many passages."""
        self.chat.screen.face = self.answers.face = face
        if self.sign_in is not None and self.sign_in.terminal is not None:
            self.sign_in.terminal = face
        await self.chat.turns.refresh()
        if most is not None:
            self.flow.shorten(most)
        self.chat.attend()

    async def _on_terminal(self, session: RemoteSession) -> None:
        from prompt_toolkit.completion import ThreadedCompleter

        from acphold.faces.screen.line_screen import LineScreen
        from acphold.faces.screen.terminal import background
        from acphold.faces.screen.typed import PromptCompleter, prompt_history

        around = background(sys.stdin.fileno(), sys.stdout.fileno())
        folder = self.chat.turns.folder
        screen = LineScreen(
            self.flow,
            console(light=around.is_light),
            self.chat,
            chat=self.chat.commands,
            completer=ThreadedCompleter(PromptCompleter(lambda: session.commands, folder)),
            history=prompt_history(),
            reads_only=self.reads_only,
        )
        screen.type_ahead(around.typed)
        await self._show_on(screen, bounds.HISTORY_PASSAGES)
        # Log lines would break the screen: they are shown on a key press, and at the end.
        root = logging.getLogger()
        before, root.handlers = root.handlers, [logging.StreamHandler(self._logged)]
        try:
            await screen.run()
        finally:
            await self.chat.aclose()
            root.handlers = before
            print(visible(self._logged.getvalue()), end="", file=sys.stderr)
            self._logged.seek(self._logged.truncate(0))

    async def _on_lines(self) -> None:
        from acphold.faces.screen.plain import TeletypeFace

        def interrupt() -> None:
            # A hint cannot be shown here, so without a turn the first Ctrl-C leaves.
            if self.chat.in_turn:
                self.chat.interrupt()
            else:
                self.chat.face.close()

        face = TeletypeFace(self.flow, sys.stdout, self.chat)
        loop = asyncio.get_running_loop()

        async def run() -> None:
            loop.add_signal_handler(signal.SIGINT, interrupt)
            try:
                await face.run()
            finally:
                loop.remove_signal_handler(signal.SIGINT)

        await self._print_on(face, run, bounds.HISTORY_PASSAGES)

    async def _print_on(
        self, face: PlainFace, run: Callable[[], Awaitable[None]], most: int | None = None
    ) -> None:
        """Show the chat on lines while this runs."""
        await self._show_on(face, most)
        face.refresh()
        try:
            await run()
        finally:
            await self.chat.aclose()
            face.refresh()
            face.require_written()


class LeftSession(NamedTuple):
    """The session that a person left for another one: `new`, or `resume` with words. With
    `is_joined`, its agent may be another one than the person named."""

    session_id: str
    goes_to: tuple[str, str]
    is_joined: bool = False


async def join(
    session_id: str, *, watch: bool = False, setup: SessionSetup = AS_IT_IS
) -> tuple[int, LeftSession | None]:
    """Attach to a session, or print what to do if it is not live; returns the exit code, and where
    the person went."""
    from acphold.client import connect  # late: commands that only look do not wait for it

    frontend = ChatFrontend(permission=None, reads_only=watch)
    try:
        async with connect(session=session_id, **frontend.options) as agent:
            session = await agent.load_session(session_id)
            await setup.apply(session)
            code = await frontend.run(agent, session)
    except ConnectionLostError as error:
        if "is not live" not in str(error):
            raise
        short = await _short_id(session_id)
        _print_how_to_continue(f"Session {short} is not running; to continue it", short)
        return Exit.ERROR, None
    async with sessions_here() as (reader, kept):
        word = await lasting_id(kept, session_id)
        asked = await waiting_questions(reader, session_id)
    if on_terminal() and code == Exit.OK:
        how = f"acphold continue{host_option()} {word}"
        print(
            f"\n{asked}To continue: {how}" if asked else f"\nDetached; the session continues: {how}"
        )
    elif frontend.chat.turns.error is not None:
        _print_how_to_continue("To continue", word)
    goes_to = frontend.chat.commands.goes_to
    return code, None if goes_to is None else LeftSession(session_id, goes_to, is_joined=True)


async def waiting_questions(reader: LocalReader, session_id: str) -> str:
    """Return a line about the questions that wait in a session; "" if there are none."""
    questions = [it for it in await reader.questions() if it.row.session_id == session_id]
    if not questions:
        return ""
    waits = "question waits" if len(questions) == 1 else "questions wait"
    return f"{len(questions)} {waits} in {title_of(questions[0].row)}.\n"


async def _short_id(session_id: str) -> str:
    async with existing_journal() as kept:
        return await short_id(kept, session_id)


def _print_how_to_continue(why: str, short: str) -> None:
    tell(f"{why}: acphold continue{host_option()} {short}")
