"""Signing in with an agent: a person picks one of its ways, which is then carried out.

| way | |
|---|---|
| through the agent | `authenticate`: it opens a browser, asks, or finds a key in its environment |
| in this terminal | its own program runs here, as it says; then it is started again |

An agent may give its ways any name, so what each does comes first. Source: spec v1, authentication.
"""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from rich.text import Text

from acp_wire.schema import AuthMethodTerminal
from acp_wire.tasks import beside
from acphold.conversation.presentation.visible_text import on_one_line, visible
from acphold.errors import AcpError, AgentStartError, AuthRequiredError
from acphold.faces.screen import bounds
from acphold.faces.screen.answers import QuestionFace
from acphold.faces.screen.flow import Flow
from acphold.faces.screen.layout import Passage
from acphold.faces.screen.panels import Key, KeyChoice
from acphold.live.reading.one_question import SIGNED_IN
from acphold.machine.foreground import ForegroundProgram

if TYPE_CHECKING:
    from acphold.client import RemoteAgent

VARIABLE = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b")
"""Matches the name of a key that an agent looks for: `OPENAI_API_KEY`."""


class SignInProgram(Struct, frozen=True):
    """The start of the agent here: some sign in by being started on a terminal.

    `words` name it on our command line, `usual` is the vendor's command. `stderr` returns the end
    of its stderr; `is_direct`: there is no acphold in front of it.
    """

    words: str
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    usual: tuple[str, ...] = ()
    stderr: Callable[[], str] = str
    is_direct: bool = False


class SignInWay(Struct, frozen=True):
    """A way to sign in; with a command, one that runs in this terminal."""

    title: str
    about: str = ""
    method_id: str = ""
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = {}

    @property
    def words(self) -> str:
        """The text for the menu: what the way does, then the agent's description."""
        does = "in this terminal" if self.command else "through the agent"
        about = f" ({on_one_line(self.about)})" if self.about else ""
        return f"{does}: {on_one_line(self.title) or '(no name)'}{about}"


def ways_of(agent: RemoteAgent, program: SignInProgram) -> list[SignInWay]:
    """Return the available ways, the agent's first."""
    ways = []
    for method in agent.auth_methods:
        about = method.description or ""
        if not isinstance(method, AuthMethodTerminal):
            ways.append(SignInWay(method.name, about, method.id))
        elif program.command:
            command = (*program.command, *method.args)
            ways.append(SignInWay(method.name, about, method.id, command, method.env))
    if program.usual:
        ways.append(SignInWay(shlex.join(program.usual), command=program.usual))
    return ways


class TerminalSignIn:
    """Signs in the person at `terminal`; None is a pipe, where nobody can be asked.

    Progress is shown in `flow`.
    """

    def __init__(self, program: SignInProgram, terminal: QuestionFace | None, flow: Flow) -> None:
        self.terminal = terminal
        self._program = program
        self._flow = flow

    def refusal(self, agent: RemoteAgent, error: AuthRequiredError) -> AuthRequiredError:
        """Return the error for a person not signed in, with the command that signs in."""
        why = on_one_line(str(error.__cause__ or error))
        how = f"`acphold agent sign-in {on_one_line(self._program.words)}`"
        refused = AuthRequiredError(f"sign in first: {how}; {on_one_line(agent.name)} says: {why}")
        refused.__cause__ = error
        return refused

    async def sign_in(self, agent: RemoteAgent, why: AuthRequiredError) -> None:
        """Have the person sign in; raises AuthRequiredError if they do not."""
        if self.terminal is None or not (ways := ways_of(agent, self._program)):
            raise self.refusal(agent, why)
        self._tell(f"the agent wants you to sign in: {why.__cause__ or why}")
        if not await self.choose(agent, ways):
            raise self.refusal(agent, why)

    async def choose(self, agent: RemoteAgent, ways: Sequence[SignInWay]) -> bool:
        """Offer these until one has worked; False if the person gives up."""
        assert self.terminal is not None
        keys = [Key(str(number), way.words, str(number)) for number, way in enumerate(ways, 1)]
        choice = KeyChoice("How do you want to sign in?", (*keys, Key("n", "not now", "")))
        while picked := await self.terminal.choose(choice):
            way = ways[int(picked) - 1]
            try:
                await self.go(agent, way)
            except AcpError as error:
                self._tell(f"signing in failed: {error}")
                # It only sees this process's own variables.
                if names := dict.fromkeys(VARIABLE.findall(f"{way.title} {way.about} {error}")):
                    given = " ".join(f"{name}=…" for name in list(names)[:3])
                    self._tell(
                        "if a key is missing, leave, and start the agent with it: "
                        f"{given} acphold chat {self._program.words}"
                    )
            else:
                self._tell(f"signed in; {way.words}")
                return True
        return False

    async def go(self, agent: RemoteAgent, way: SignInWay) -> None:
        """Sign in by this way; raises an AcpError with the reason if it fails."""
        if way.command:
            if self.terminal is None:
                raise AuthRequiredError("this way to sign in needs a terminal, and there is none")
            code = await self.terminal.in_front(
                ForegroundProgram(way.command, {**self._program.env, **way.env})
            )
            if code:
                raise AgentStartError(f"{shlex.join(way.command)} ended with {code}")
            if not self._program.is_direct:
                await agent.call(SIGNED_IN, {})
            return
        self._tell("waiting for the agent to sign you in; it may open a browser (Ctrl-C cancels)")
        shown = self._program.stderr()
        async with beside(agent.authenticate(way.method_id), "sign in") as signing_in:
            while not signing_in.done():
                await asyncio.wait([signing_in], timeout=bounds.STDERR_LOOK_SECONDS)
                if (
                    output := self._program.stderr()
                ) != shown:  # many agents write their link there
                    new = visible(output.removeprefix(shown)).splitlines()
                    self._flow.put(Passage("stderr", "faint", [Text(line) for line in new if line]))
                    self._refresh()
                    shown = output
            await signing_in

    def _tell(self, words: str) -> None:
        self._flow.tell(on_one_line(words))
        self._refresh()

    def _refresh(self) -> None:
        if self.terminal is not None:
            self.terminal.refresh()
