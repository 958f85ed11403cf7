"""`acphold demo`: the promise in four parts, on real processes; each claim is checked."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from acphold.cli.command_line import Exit, Parser, UsageError
from acphold.cli.demo_editor import (
    WAIT_SECONDS,
    Audience,
    Editor,
    Nobody,
    Place,
    editor,
    last_said,
    left_open,
    lost,
    open_tools,
)
from acphold.cli.demo_stage import Stage
from acphold.cli.terminal_text import counted
from acphold.errors import AcpholdError, AgentExitedError
from acphold.history import Entry
from acphold.history.fold import EMPTY, SessionState, fold
from acphold.history.raw_update import update_kind
from acphold.processes.own_program import own_command, start_own

FIRST = "Make the greeting friendlier, please"
SECOND = "Now count, slowly"
THIRD = "Do you recall what we said?"
"""Words in them steer the agent; see demo_agent.py."""

WRAP = "acphold wrap -- acphold demo-agent"

ENOUGH = "tick 20 "
"""What has been seen of the second turn when it is cut off."""


def parser() -> Parser:
    """The arguments of `demo`."""
    made = Parser(demo, "demo")
    made.add_argument("--keep", metavar="DIR", help="keep the journal of the demo in this folder")
    return made


def demo(*, keep: str | None) -> int:
    """See it work: talk, kill -9, list, load, go on.

    Real processes on this machine, offline: a scripted agent that has no sessions of its own,
    `acphold wrap` in front of it, and a small editor. Each claim that is made is checked; the
    exit code is 1 if one of them does not hold.
    """
    stage = Stage()
    with _place(keep) as place:
        stage.head(
            "acphold: sessions that outlive the editor, the agent, and kill -9",
            "Real processes, offline. The agent is a script that can neither list nor load a "
            "session and forgets everything when it ends. ✓ in the margin marks what was checked "
            "just now.",
        )
        began = time.monotonic()
        _play(stage, place)
        _sum_up(stage, time.monotonic() - began, place, kept=keep is not None)
    return Exit.ERROR if stage.failures else Exit.OK


def _play(stage: Stage, place: Place) -> None:
    try:
        asyncio.run(Story(stage, place).tell())
    except TimeoutError:
        stage.claim(f"something took more than {WAIT_SECONDS:.0f} s", holds=False)
    except AcpholdError as error:
        stage.claim(f"the story cannot go on: {error}", holds=False)


def _sum_up(stage: Stage, seconds: float, place: Place, *, kept: bool) -> None:
    stage.step("", f"{stage.held} of {stage.claims} claims hold, {seconds:.1f} s")
    for failure in stage.failures:
        stage.say(f"✗ {failure}", "bad")
    if kept:
        stage.say(f"The journal is kept: acphold list --journal {place.journal}")
    if not stage.failures:
        stage.say(
            "Now with your own agent: write `acphold wrap --` before its command in your "
            "editor's settings. `acphold doctor -- CMD` tries it first."
        )


@contextmanager
def _place(keep: str | None) -> Iterator[Place]:
    if keep is not None:
        yield _prepared(Path(keep).absolute())
        return
    # Resolved: on macOS the folder for such things is behind a link.
    with TemporaryDirectory(prefix="acphold-demo-") as folder:
        yield _prepared(Path(os.path.realpath(folder)))


def _prepared(folder: Path) -> Place:
    place = Place(str(folder / "journal.db"), str(folder / "project"))
    try:
        os.makedirs(place.project, mode=0o700, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"--keep {folder}: {error.strerror}; name a folder you can write to"
        ) from None
    return place


# -- the story ------------------------------------------------------------------------------


class Story:
    """One telling of it."""

    def __init__(self, stage: Stage, place: Place) -> None:
        self._stage = stage
        self._place = place
        self._session = ""
        self._seen: SessionState = EMPTY
        self._updates = 0
        self._pids = (0, 0)

    async def tell(self) -> None:
        """All of it; raises TimeoutError, or an AcpholdError, when it cannot go on."""
        async with self._editor(self._stage) as one:
            await self._first_turn(one)
            await self._cut_off(one)
        async with self._editor(Nobody()) as two:
            await self._list_and_load(two)
            await self._go_on(two)
        await self._look()

    @asynccontextmanager
    async def _editor(self, audience: Audience) -> AsyncIterator[Editor]:
        async with editor(self._place, audience) as made:
            try:
                yield made
            except (AcpholdError, TimeoutError):
                if words := made.last_words():
                    self._stage.say(f"acphold's last words on stderr:\n{words}", "bad")
                raise

    async def _first_turn(self, one: Editor) -> None:
        stage = self._stage
        stage.step("1", "A turn, behind `acphold wrap`")
        stage.run(WRAP)
        async with asyncio.timeout(WAIT_SECONDS):
            self._session = await one.new()
            stop_reason = await one.prompt(FIRST)
        self._pids = (one.pid, one.agent_pid)
        stage.claim(
            f"the turn is over ({stop_reason}), {counted(len(one.seen) - 1, 'update')} were shown",
            holds=stop_reason == "end_turn" and not open_tools(fold(one.seen).timeline),
        )

    async def _cut_off(self, one: Editor) -> None:
        stage = self._stage
        stage.step("2", "kill -9, in the middle of the next turn")
        enough = _Until(stage, ENOUGH)
        one.audience = enough
        turn = asyncio.create_task(one.prompt(SECOND))
        # Its end is looked at below; not when the person has had enough and pressed Ctrl-C.
        turn.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        async with asyncio.timeout(WAIT_SECONDS):
            await asyncio.wait(
                {turn, asyncio.create_task(enough.said.wait())},
                return_when=asyncio.FIRST_COMPLETED,
            )
        in_the_middle = not turn.done()
        one.audience = Nobody()
        stage.run(f"kill -9 {one.pid} -{one.agent_pid}    # acphold, and the agent's group")
        left = await one.kill()
        answered = (await asyncio.gather(turn, return_exceptions=True))[0]
        stage.claim(
            "both were killed in mid-turn: its answer never came",
            holds=in_the_middle and isinstance(answered, AgentExitedError),
        )
        pids = ", ".join(map(str, sorted(left)))
        stage.claim(f"no process is left{pids and f', but {pids}'}", holds=not left)
        self._seen, self._updates = fold(one.seen), len(one.seen) - 2

    async def _list_and_load(self, two: Editor) -> None:
        stage = self._stage
        stage.step("3", "A new process: list, load")
        stage.run(WRAP)
        async with asyncio.timeout(WAIT_SECONDS):
            listed = {info.session_id: info for info in await two.sessions()}
            began = time.perf_counter()
            await two.load(self._session)
        loaded = time.perf_counter() - began
        stage.claim(
            f"acphold and the agent are new processes ({two.pid}, {two.agent_pid})",
            holds=not {two.pid, two.agent_pid} & {*self._pids},
        )
        info = listed.get(self._session)
        title = info.title if info else None
        stage.claim(f"session/list: {self._session}, “{title}”", holds=title == FIRST)
        self._check_replay(fold(two.seen), loaded)

    def _check_replay(self, replayed: SessionState, seconds: float) -> None:
        stage = self._stage
        gone = lost(self._seen, replayed)
        stage.claim(
            f"session/load: all {self._updates} updates that were shown are back, "
            f"to the letter ({seconds * 1000:.0f} ms)"
            + "".join(f"\n  but not {what}" for what in gone),
            holds=not gone,
        )
        half = last_said(self._seen)
        stage.claim(
            f"the half-done turn too, up to its last words: “…{half[-16:].strip()}”",
            holds=last_said(replayed).startswith(half) and ENOUGH in half,
        )
        still_open = left_open(self._seen, replayed)
        stage.claim(
            "the tool call it was in is marked failed, not left running",
            holds=bool(open_tools(self._seen.timeline)) and not still_open,
        )

    async def _go_on(self, two: Editor) -> None:
        stage = self._stage
        stage.step("4", "The conversation goes on")
        before = len(two.seen)
        two.audience = stage
        async with asyncio.timeout(WAIT_SECONDS):
            stop_reason = await two.prompt(THIRD)
        turn = two.seen[before:]
        stage.claim(
            "the person was told that the agent had to be given the conversation",
            holds=any(update_kind(entry.raw) == "notice" for entry in turn),
        )
        answer = last_said(fold(turn))
        knows = FIRST in answer and ENOUGH.strip() in answer
        stage.claim(
            "the agent, which remembers nothing, knows what was said before the kill",
            holds=knows and stop_reason == "end_turn",
        )

    async def _look(self) -> None:
        """The commands themselves, on the terminal as it is."""
        self._stage.step("5", "What the journal has")
        await self._run("list")
        await self._run("show", self._session)

    async def _run(self, *arguments: str) -> None:
        self._stage.run(" ".join(["acphold", *arguments]))
        self._stage.gap()
        process = await start_own(
            own_command(*arguments), env={**os.environ, **self._place.environment}
        )
        async with asyncio.timeout(WAIT_SECONDS):
            code = await process.wait()
        self._stage.gap()
        if code:
            self._stage.claim(f"`acphold {arguments[0]}` works: exit code {code}", holds=False)


class _Until:
    """Passes everything on to the stage, and notes when enough has been said."""

    def __init__(self, stage: Stage, words: str) -> None:
        self.said = asyncio.Event()
        self._stage = stage
        self._words = words.encode()

    def hear(self, entry: Entry) -> None:
        self._stage.hear(entry)
        if self._words in entry.raw:
            self.said.set()

    def permitted(self, name: str) -> None:
        self._stage.permitted(name)
