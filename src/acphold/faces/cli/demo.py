"""`acphold demo`: the promise in five parts, with real processes; each claim is checked.

A program on `acphold.client`, as anybody could write one: it starts `acphold wrap` in front of
`acphold agent demo`, talks to it, kills the process behind it, and continues with another.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from rich.text import Text

from acp_wire.processes import process_tree
from acp_wire.schema import Implementation, Notice
from acphold.client import RemoteAgent, RemoteSession, RemoteTurn, connected_to
from acphold.client.endpoints import ProgramEndpoint, ProgramStart
from acphold.client.remote_turn import take_all
from acphold.conversation.history.fold import SessionState
from acphold.conversation.history.raw_update import text_block
from acphold.conversation.history.timeline import Message, ToolCall
from acphold.errors import AcpError, AgentExitedError
from acphold.faces.cli import bounds, options
from acphold.faces.cli.command_line import Exit, UsageError, command
from acphold.faces.cli.front import daemon_lock
from acphold.faces.cli.terminal_text import console, quantity
from acphold.faces.screen.flow import Flow
from acphold.faces.screen.layout import MAX_WIDTH, Beside, body
from acphold.journal_location import VARIABLE
from acphold.machine.locked_file import holder
from acphold.machine.own_program import own_command, start_beside
from acphold.version import __version__

FIRST = "Make the greeting friendlier"
SECOND = "Now count, slowly"
THIRD = "Do you recall what we said?"
"""Words in these prompts steer the agent: see `acphold agent demo --help`."""

ENOUGH = "tick 20 "
"""The second turn is cut off once this was seen."""

POLLS = 1000
"""Looks for processes that still run, at most."""

TITLE = "acphold: sessions that outlive the editor, the agent, and kill -9"
ABOUT = (
    "Real processes, offline. The agent is a script that can neither list nor load a session and "
    "forgets everything when it ends. ✓ marks a claim that was just checked."
)
NEXT = (
    "Now with your own agent: `acphold setup` puts acphold into your editor's settings, `acphold "
    "chat claude` talks to an agent here, and `acphold import` imports earlier conversations."
)


@command("demo")
def demo(
    *, keep: str | None = options.value("DIR", "keep the demo's journal in this folder")
) -> int:
    """See it work: talk, kill -9, list, load, continue.

    Real processes on this machine, offline: a scripted agent that has no sessions of its own,
    `acphold wrap` in front of it, and a small editor. Every claim is checked; the exit code is 1 if
    one of them does not hold.
    """
    with TemporaryDirectory(prefix="acphold-demo-") if keep is None else nullcontext(keep) as made:
        folder = Path(os.path.realpath(made))  # a temporary one is behind a link on macOS
        try:
            os.makedirs(folder / "project", mode=0o700, exist_ok=True)
        except OSError as error:
            why = f"{error.strerror}; name a folder you can write to"
            raise UsageError(f"--keep {made}: {why}") from None
        journal = str(folder / "journal.db")
        shown = Demo(journal, str(folder / "project"))
        began = time.monotonic()
        try:
            asyncio.run(asyncio.wait_for(shown.run(), bounds.DEMO_SECONDS))
        except TimeoutError:
            shown.claim(False, f"timed out after {bounds.DEMO_SECONDS:.0f} s")
        except AcpError as error:
            shown.claim(False, f"the demo cannot continue: {error}")
    held = f"{shown.claims - len(shown.failures)} of {shown.claims} claims hold"
    shown.part("∎", f"{held}, {time.monotonic() - began:.1f} s")
    for failure in shown.failures:
        shown.line("", f"✗ {failure}", "bad")
    if keep is not None:
        shown.line("", f"To look at the demo's journal: acphold list --journal {journal}")
    if not shown.failures:
        shown.line("", NEXT)
    return Exit.ERROR if shown.failures else Exit.OK


class Demo:
    """The five parts, on stdout; `heard` are the updates that the editor in it was sent."""

    def __init__(self, journal: str, project: str) -> None:
        self.failures: list[str] = []
        self.claims = 0
        self.heard: list[bytes] = []
        self._environment = {VARIABLE: journal}
        self._held = daemon_lock(os.path.realpath(journal))
        self._daemon = 0
        self._project = project
        self._console = console()
        self._flow = Flow(thoughts="whole")  # nobody can press a key here

    async def run(self) -> None:
        """Run all parts; raises an AcpError if it cannot go on."""
        self._console.print(Text(TITLE, "heading"))
        self._console.print(Text(ABOUT, "faint"), width=min(self._console.width, MAX_WIDTH))
        try:
            session_id = await self._survive_kill()
        finally:
            await self._end(signal.SIGTERM)  # the demo's folder goes, and it would linger
        self.part("5", "What the journal contains")
        # The commands themselves, on this terminal. A pager would wait for a key.
        here = {**os.environ, **self._environment, "PAGER": "cat"}
        for arguments in (["list"], ["show", session_id]):
            self.line("$", " ".join(["acphold", *arguments]), "command")
            self._console.print()
            self._console.file.flush()  # before another program prints
            code = await (await start_beside(own_command(*arguments), env=here)).wait()
            self._console.print()
            if code:
                self.claim(False, f"`acphold {arguments[0]}` works: exit code {code}")

    async def _survive_kill(self) -> str:
        """Run a turn, kill acphold in the middle of the next, load the session in a new process,
        compare it with what was seen, and continue it; return its id."""
        self.part("1", "A turn, behind `acphold wrap`")
        async with self._editor() as agent:
            session = await agent.new_session(self._project)
            turn = await self._turn(session, FIRST)
            is_over = turn.stop_reason == "end_turn" and not session.state.open_tools
            shown = quantity(len(self.heard), "update")
            self.claim(is_over, f"the turn is over ({turn.stop_reason}), {shown} were shown")

            self.part("2", "kill -9, in the middle of the next turn")
            turn = await self._turn(session, SECOND, until=ENOUGH)
            killed = process_tree.family(self._daemon)
            self.line("$", f"kill -9 {self._daemon}    # acphold itself", "command")
            left = await self._end(signal.SIGKILL)
            with suppress(AgentExitedError):
                await turn
            is_cut = turn.stop_reason is None
            self.claim(is_cut, "it was killed mid-turn: the answer never arrived")
            stay = "".join(f" {pid}" for pid in left)
            self.claim(not left, f"no process is left: the agent has exited too{stay}")
            session_id, seen = session.id, session.state

        self.part("3", "A new process: list, load")
        heard = len(self.heard)
        async with self._editor() as agent:
            listed = {info.session_id: info.title async for info in agent.sessions(self._project)}
            began = time.perf_counter()
            session = await agent.load_session(session_id, self._project)
            took = f"{(time.perf_counter() - began) * 1000:.0f} ms"
            replayed, title = session.state, listed.get(session_id)
            is_new = not killed & process_tree.family(self._daemon)
            self.claim(is_new, f"acphold ({self._daemon}) and the agent are new processes")
            self.claim(title == FIRST, f"session/list: {session_id}, “{title}”")
            gone = differences(seen, replayed)
            back = f"all {heard} updates that were shown are back, unchanged ({took})"
            self.claim(not gone, "\n  but not ".join([f"session/load: {back}", *gone]))
            words = last_said(seen)
            has_words = last_said(replayed).startswith(words) and ENOUGH in words
            last = words[-16:].strip()
            self.claim(has_words, f"so is the interrupted turn, up to its last words: “…{last}”")
            calls = [item for item in replayed.timeline if isinstance(item, ToolCall)]
            failed = {call.tool_call_id for call in calls if call.status == "failed"}
            has_failed = bool(seen.open_tools) and failed.issuperset(seen.open_tools)
            self.claim(has_failed, "the tool call it was in is marked failed, not left running")

            self.part("4", "The conversation continues")
            is_told = any(isinstance(update, Notice) for update in session.replay)
            self.claim(is_told, "a notice said what the next prompt passes on to the agent")
            turn = await self._turn(session, THIRD)
            knows = FIRST in turn.text and ENOUGH.strip() in turn.text
            self.claim(
                knows, "the agent, which remembers nothing, knows what was said before the kill"
            )
        return session_id

    @asynccontextmanager
    async def _editor(self) -> AsyncIterator[RemoteAgent]:
        """Start acphold in front of the agent, as an editor that allows everything."""
        # Its stderr stays out of the story.
        command = own_command("wrap", "--", *own_command("agent", "demo"))
        program = ProgramEndpoint(ProgramStart(command=command, env=self._environment))
        self.line("$", "acphold wrap -- acphold agent demo", "command")
        async with connected_to(
            program,
            on_update=lambda _, update: self.heard.append(update),
            permission="allow",
            client_info=Implementation(name="acphold-demo", version=__version__),
        ) as agent:
            self._daemon = holder(self._held) or 0
            yield agent

    async def _end(self, how: signal.Signals) -> set[int]:
        """End the process that keeps the sessions; return what is left of it and its agents."""
        pids = process_tree.family(self._daemon)
        if pids:
            os.kill(self._daemon, how)
        for _ in range(POLLS):
            if not (left := pids & process_tree.parents().keys()):
                break
            await asyncio.sleep(process_tree.POLL_SECONDS)
        return left

    async def _turn(self, session: RemoteSession, words: str, until: str = "") -> RemoteTurn:
        """Run a turn, to its end or `until` the agent has said this, and print it."""
        earlier, turn = len(self.heard), session.prompt(words)
        while not (until and until in turn.text) and await take_all(turn):
            pass
        self._flow.add_prompt(msgspec.json.encode([msgspec.Raw(text_block(words))]))
        for update in self.heard[earlier:]:
            self._flow.add_update(update)
        self._flow.turn_over()
        for shown in self._flow.take():
            if not shown.label and not shown.goes_on:
                self._console.print()  # a new paragraph
            self._console.print(Beside(shown.label, shown.style, body(shown)))
        return turn

    def part(self, mark: str, title: str) -> None:
        """Print the heading of a part."""
        heading = Text.assemble((f" {mark} ", "reverse"), f" {title}")
        heading.stylize("heading")
        self._console.print("", heading, "", sep="\n")

    def line(self, mark: str, text: str, style: str = "", mark_style: str = "faint") -> None:
        """Print a line with a mark in front."""
        self._console.print(Beside(mark, mark_style, Text(text, style)))

    def claim(self, holds: bool, text: str) -> None:
        """Print a checked claim; `holds` says if it is true."""
        self.claims += 1
        if not holds:
            self.failures.append(text)
        self.line("✓" if holds else "✗", text, mark_style="good" if holds else "bad")


def differences(seen: SessionState, replayed: SessionState) -> list[str]:
    """Name everything that was seen and did not come back unchanged; [] if all did.

    The replay may have more of the last message, and another status of a call that was open.
    """
    items, back = (
        [item for item in state.timeline if isinstance(item, Message | ToolCall)]
        for state in (seen, replayed)
    )
    gone = [] if seen.plan == replayed.plan else ["the plan"]
    for item, other in zip_longest(items, back[: len(items)]):
        if isinstance(item, Message):
            text = other.text if isinstance(other, Message) and other.role == item.role else ""
            if text != item.text and not (item is items[-1] and text.startswith(item.text)):
                gone.append(f"{item.role}: {item.text}")
        else:
            known = other.fields if isinstance(other, ToolCall) else {}
            changed = {name for name, it in item.fields.items() if known.get(name) != it}
            if not changed <= ({"status"} if item.tool_call_id in seen.open_tools else set()):
                gone.append(f"tool call {item.title!r}")
    return gone


def last_said(state: SessionState) -> str:
    """Return the text of the agent's last message; "" if there is none."""
    return next((it.text for it in reversed(state.timeline) if isinstance(it, Message)), "")
