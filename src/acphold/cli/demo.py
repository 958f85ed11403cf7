"""`acphold demo`: the promise in five parts, with real processes; each claim is checked.

A program on `acphold.client`, as anybody could write one: it starts `acphold wrap` in front of
`acphold demo-agent`, talks to it, kills it, and continues with another.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import msgspec
from rich.console import Group
from rich.live import Live
from rich.text import Text

from acphold.cli import bounds
from acphold.cli.command_line import Exit, Parser, UsageError
from acphold.cli.terminal_text import console, counted
from acphold.client import PermissionQuestion, RemoteAgent, connected_to
from acphold.client.endpoints import ProgramEndpoint, ProgramStart
from acphold.errors import AcpholdError, AgentExitedError
from acphold.history.fold import SessionState
from acphold.history.raw_update import text_block, update_kind
from acphold.history.timeline import Message, ToolCall
from acphold.journal.location import VARIABLE
from acphold.processes import process_tree
from acphold.processes.own_program import own_command, start_own
from acphold.schema import Implementation, PermissionOption
from acphold.screen.flow import Flow
from acphold.screen.layout import MAX_WIDTH, Beside, Passage, body
from acphold.version import __version__

FIRST = "Make the greeting friendlier, please"
SECOND = "Now count, slowly"
THIRD = "Do you recall what we said?"
"""Words in these prompts steer the agent: see `acphold demo-agent --help`."""

ENOUGH = "tick 20 "
"""The second turn is cut off once this was seen."""

POLLS, POLL_SECONDS = 1000, 0.02
"""Looks for processes that still run, at most, and the pause between two."""


def parser() -> Parser:
    """The arguments of `demo`."""
    made = Parser(demo, "demo")
    made.add_value("--keep", "DIR", "keep the demo's journal in this folder")
    return made


def demo(*, keep: str | None) -> int:
    """See it work: talk, kill -9, list, load, continue.

    Real processes on this machine, offline: a scripted agent that has no sessions of its own,
    `acphold wrap` in front of it, and a small editor. Every claim is checked; the exit code is 1 if
    one of them does not hold.
    """
    stage = DemoStage()
    with _folder(keep) as folder:
        stage.head(
            "acphold: sessions that outlive the editor, the agent, and kill -9",
            "Real processes, offline. The agent is a script that can neither list nor load a "
            "session and forgets everything when it ends. ✓ marks a claim that was just checked.",
        )
        began = time.monotonic()
        try:
            told = story(stage, str(folder / "journal.db"), str(folder / "project"))
            asyncio.run(asyncio.wait_for(told, bounds.DEMO_SECONDS))
        except TimeoutError:
            stage.claim(f"timed out after {bounds.DEMO_SECONDS:.0f} s", holds=False)
        except AcpholdError as error:
            stage.claim(f"the demo cannot continue: {error}", holds=False)
        seconds = time.monotonic() - began
        stage.step("", f"{stage.held} of {stage.claims} claims hold, {seconds:.1f} s")
        for failure in stage.failures:
            stage.say(f"✗ {failure}", "bad")
        if keep is not None:
            stage.say(
                f"To look at the demo's journal: acphold list --journal {folder / 'journal.db'}"
            )
        if not stage.failures:
            stage.say(
                "Now with your own agent: `acphold setup` puts acphold into your editor's "
                "settings, `acphold chat claude` talks to an agent here, and `acphold import` "
                "imports earlier conversations."
            )
    return Exit.ERROR if stage.failures else Exit.OK


@contextmanager
def _folder(keep: str | None) -> Iterator[Path]:
    """Yield the demo's folder: `keep`, or a temporary one."""
    if keep is None:
        with TemporaryDirectory(prefix="acphold-demo-") as made:
            folder = Path(os.path.realpath(made))  # on macOS it is behind a symbolic link
            (folder / "project").mkdir()
            yield folder
        return
    folder = Path(keep).absolute()
    try:
        os.makedirs(folder / "project", mode=0o700, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"--keep {folder}: {error.strerror}; name a folder you can write to"
        ) from None
    yield folder


async def story(stage: DemoStage, journal: str, project: str) -> None:
    """Run the whole demo; raises an AcpholdError when it cannot go on."""
    editor = DemoEditor(stage, journal)
    before = await talk_and_kill(stage, editor, project)
    await load_and_go_on(stage, editor, project, before)

    # The commands themselves, on this terminal. A pager would wait for a key.
    here = {**os.environ, **editor.environment, "PAGER": "cat"}
    stage.step("5", "What the journal contains")
    for arguments in (["list"], ["show", before.session_id]):
        stage.run(" ".join(["acphold", *arguments]))
        stage.gap()
        code = await (await start_own(own_command(*arguments), env=here)).wait()
        stage.gap()
        if code:
            stage.claim(f"`acphold {arguments[0]}` works: exit code {code}", holds=False)


class DemoEditor:
    """A small editor, which allows everything; `heard` are the updates that it was sent."""

    def __init__(self, stage: DemoStage, journal: str) -> None:
        self.environment = {VARIABLE: journal}
        self.heard: list[bytes] = []
        self._stage = stage

    @asynccontextmanager
    async def open(self) -> AsyncIterator[tuple[int, RemoteAgent]]:
        """Start acphold in front of the agent; yield its process id, and the connection."""
        # Its stderr stays out of the story.
        command = own_command("wrap", "--", *own_command("demo-agent"))
        program = ProgramEndpoint(ProgramStart(command=command, env=self.environment))
        self._stage.run("acphold wrap -- acphold demo-agent")
        async with connected_to(
            program,
            on_update=self._hear,
            on_permission=self._permit,
            client_info=Implementation(name="acphold-demo", version=__version__),
        ) as agent:
            yield program.pid, agent

    def _hear(self, _: str, update: bytes) -> None:
        self.heard.append(update)
        self._stage.hear(update)

    def _permit(self, question: PermissionQuestion) -> PermissionOption:
        allow = next(it for it in question.options if it.kind.startswith("allow"))
        self._stage.permitted(allow.name)
        return allow


class BeforeKill(NamedTuple):
    """The session as the editor saw it, with so many updates, and the processes that ran it."""

    session_id: str
    seen: SessionState
    shown: int
    killed: set[int]


async def talk_and_kill(stage: DemoStage, editor: DemoEditor, project: str) -> BeforeKill:
    """Run a turn, and kill acphold in the middle of the next."""
    stage.step("1", "A turn, behind `acphold wrap`")
    async with editor.open() as (pid, agent):
        session = await agent.new_session(project)
        with stage.turn(FIRST):
            turn = await session.prompt(FIRST)
        updates = counted(len(editor.heard), "update")
        stage.claim(
            f"the turn is over ({turn.stop_reason}), {updates} were shown",
            holds=turn.stop_reason == "end_turn" and not session.state.open_tools,
        )

        stage.step("2", "kill -9, in the middle of the next turn")
        turn = session.prompt(SECOND)
        with stage.turn(SECOND):
            while ENOUGH not in turn.text and await turn.take_all():
                pass
        killed = family(pid)
        stage.run(f"kill -9 {pid}    # acphold itself")
        os.kill(pid, signal.SIGKILL)
        with suppress(AgentExitedError):
            await turn
        stage.claim("it was killed mid-turn: the answer never arrived", holds=not turn.stop_reason)
        for _ in range(POLLS):
            if not (left := running(killed)):
                break
            await asyncio.sleep(POLL_SECONDS)
        stage.claim(
            "no process is left: the agent has exited too" + "".join(f" {pid}" for pid in left),
            holds=not left,
        )
        return BeforeKill(session.id, session.state, len(editor.heard), killed)


async def load_and_go_on(
    stage: DemoStage, editor: DemoEditor, project: str, before: BeforeKill
) -> None:
    """Load the session in a new process, compare it with what was seen, and continue it."""
    session_id, seen, shown, killed = before
    stage.step("3", "A new process: list, load")
    async with editor.open() as (pid, agent):
        listed = {info.session_id: info.title async for info in agent.sessions(project)}
        began = time.perf_counter()
        session = await agent.load_session(session_id, project)
        loaded = time.perf_counter() - began
        replayed, title = session.state, listed.get(session_id)
        stage.claim(
            f"acphold ({pid}) and the agent are new processes", holds=not killed & family(pid)
        )
        stage.claim(f"session/list: {session_id}, “{title}”", holds=title == FIRST)
        gone = lost(seen, replayed)
        stage.claim(
            f"session/load: all {shown} updates that were shown are back, unchanged "
            f"({loaded * 1000:.0f} ms)" + "".join(f"\n  but not {what}" for what in gone),
            holds=not gone,
        )
        half = last_said(seen)
        stage.claim(
            f"so is the interrupted turn, up to its last words: “…{half[-16:].strip()}”",
            holds=last_said(replayed).startswith(half) and ENOUGH in half,
        )
        calls = [item for item in replayed.timeline if isinstance(item, ToolCall)]
        failed = {call.tool_call_id for call in calls if call.status == "failed"}
        stage.claim(
            "the tool call it was in is marked failed, not left running",
            holds=bool(seen.open_tools) and failed.issuperset(seen.open_tools),
        )

        stage.step("4", "The conversation continues")
        heard = len(editor.heard)
        with stage.turn(THIRD):
            turn = await session.prompt(THIRD)
        stage.claim(
            "a notice says that acphold passed the conversation on to the agent",
            holds=any(update_kind(update) == "notice" for update in editor.heard[heard:]),
        )
        stage.claim(
            "the agent, which remembers nothing, knows what was said before the kill",
            holds=FIRST in turn.text and ENOUGH.strip() in turn.text,
        )


# -- what runs ------------------------------------------------------------------------------


def family(pid: int) -> set[int]:
    """Return a process and all its running descendants."""
    parents = process_tree.parents()
    found = {pid} & parents.keys()
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def running(pids: set[int]) -> set[int]:
    """Return the running ones of `pids`; a zombie does not run."""
    return pids & process_tree.parents().keys()


# -- what was seen, and what came back ------------------------------------------------------


def lost(seen: SessionState, replayed: SessionState) -> list[str]:
    """Name everything that was seen and did not come back unchanged; empty if all did.

    The message that was cut off may be longer in the replay: the journal may have more than
    has arrived. The status of a tool call that was open may have changed.
    """
    items, back = (
        [item for item in state.timeline if isinstance(item, Message | ToolCall)]
        for state in (seen, replayed)
    )
    gone = [] if seen.plan == replayed.plan else ["the plan"]
    for item, other in zip_longest(items, back[: len(items)]):
        match item, other:
            case Message(), Message() if item.role == other.role and (
                item.text == other.text or (item is items[-1] and other.text.startswith(item.text))
            ):
                pass
            case ToolCall(), ToolCall() if all(
                other.fields.get(name) == value
                or (name == "status" and item.tool_call_id in seen.open_tools)
                for name, value in item.fields.items()
            ):
                pass
            case Message(), _:
                gone.append(f"{item.role}: {item.text}")
            case ToolCall(), _:
                gone.append(f"tool call {item.title!r}")
    return gone


def last_said(state: SessionState) -> str:
    """Return the text of the agent's last message."""
    said = [item.text for item in state.timeline if isinstance(item, Message)]
    return said[-1] if said else ""


# -- the stage -------------------------------------------------------------------------------


class DemoStage:
    """Prints to stdout: in colour on a terminal, plain elsewhere."""

    def __init__(self) -> None:
        self.failures: list[str] = []
        self.claims = 0
        self._console = console()
        self._flow = Flow(thoughts="whole")  # nobody can press a key here
        self._live: Live | None = None

    @property
    def held(self) -> int:
        """The number of claims that hold."""
        return self.claims - len(self.failures)

    # -- the frame ------------------------------------------------------------------------

    def head(self, title: str, text: str) -> None:
        """Print the title and the introduction."""
        self._console.print(Text(title, "heading"))
        self._console.print(Text(text, "faint"), width=min(self._console.width, MAX_WIDTH))

    def step(self, number: str, title: str) -> None:
        """Print the heading of a part."""
        heading = Text.assemble((f" {number} " if number else " ∎ ", "reverse"), f" {title}")
        heading.stylize("heading")
        self._console.print("", heading, "", sep="\n")

    def gap(self) -> None:
        """Print a blank line and flush, so that another program may print."""
        self._console.print()
        self._console.file.flush()

    def run(self, command: str) -> None:
        """Print a command as one would type it."""
        self._console.print(Beside("$", "faint", Text(command, "command")))

    def say(self, text: str, style: str = "") -> None:
        """Print a sentence of the narrator."""
        self._console.print(Beside("", "", Text(text, style)))

    def claim(self, text: str, *, holds: bool) -> None:
        """Print a checked claim; `holds` says if it is true."""
        self.claims += 1
        if not holds:
            self.failures.append(text)
        mark, style = ("✓", "good") if holds else ("✗", "bad")
        self._console.print(Beside(mark, style, Text(text)))

    # -- the conversation -----------------------------------------------------------------

    @contextmanager
    def turn(self, words: str) -> Iterator[None]:
        """Show a turn with this prompt: what is heard in the block is shown as it comes."""
        self._flow.add_prompt(msgspec.json.encode([msgspec.Raw(text_block(words))]))
        try:
            with Live(console=self._console, auto_refresh=False, transient=True) as self._live:
                yield
        finally:
            self._live = None
            self._flow.turn_over()
            self._show()

    def hear(self, update: bytes) -> None:
        """Take an update in; it is shown during a turn."""
        if self._live is not None:
            self._flow.add_update(update)
            self._show()

    def permitted(self, name: str) -> None:
        """Show that the agent asked for permission and got this option."""
        self._flow.put(Passage("you", "you", [Text(f"[{name}]")]))
        self._show()

    def _show(self) -> None:
        for shown in self._flow.take():
            if not shown.label and not shown.goes_on:
                self._console.print()  # a new paragraph
            self._console.print(_beside(shown))
        if self._live is not None:
            self._live.update(Group(*map(_beside, self._flow.live())), refresh=True)


def _beside(shown: Passage) -> Beside:
    return Beside(shown.label, shown.style, body(shown))
