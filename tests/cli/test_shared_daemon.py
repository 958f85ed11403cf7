"""`wrap` with its daemon: agent and sessions live in a process of their own."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from acp_wire.tasks import beside
from acphold.errors import JournalUnavailableError
from acphold.faces.cli import bounds, front, process_commands
from acphold.faces.cli.daemon import _keep_lock, log_to_file
from acphold.faces.cli.front import daemon_lock, journal_of
from acphold.journal.stores import journal_name
from acphold.live.reading.processes import Process
from acphold.machine.locked_file import hold, read_note
from acphold.machine.unix import REFUSED, TAKEN
from tests.conftest import Defaults
from tests.editor import (
    DEADLINE,
    Editor,
    editor,
    introduced,
    received,
    scripted_agent,
    wrap_command,
)
from tests.owners import lone_command
from tests.screen_terminal import terminal
from tests.watched_processes import command_lines, lives, until

pytestmark = pytest.mark.slow

ASK: dict[str, Any] = {
    "toolCall": {"toolCallId": "t1", "title": "Run it"},
    "options": [
        {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
        {"optionId": "no", "name": "No", "kind": "reject_once"},
    ],
}


class Home:
    """Folders for sockets and logs, and the processes that run there."""

    def __init__(self, folder: Path, journal: Path) -> None:
        self.folder = folder
        self.journal = journal
        self.own = os.path.realpath(journal.parent)
        self.env = {
            **os.environ,
            "XDG_RUNTIME_DIR": str(folder),
            "XDG_STATE_HOME": str(folder / "state"),
            "ACPHOLD_JOURNAL": str(journal),
        }

    @asynccontextmanager
    async def editor(self, *options: str, agent: list[str] | None = None) -> AsyncIterator[Editor]:
        command = wrap_command(agent or scripted_agent(), *options)
        async with introduced(command, journal=self.journal, env=self.env) as one:
            yield one

    def daemons(self) -> list[int]:
        """The daemons, by number."""
        return [
            pid
            for pid, words in command_lines().items()
            if "daemon" in words and any(self.own in word for word in words) and lives(pid)
        ]

    @property
    def lock(self) -> str:
        """The file that the daemon of its journal holds."""
        return daemon_lock(os.path.realpath(self.journal))

    def note(self, path: str) -> None:
        """Note a socket in it, and leave it, as a daemon that is killed."""
        held = hold(self.lock)
        assert held is not None
        held.note(path)
        os.close(held._descriptor)

    @property
    def noted(self) -> str | None:
        """The socket that the daemon has noted in it; None if there is no such file."""
        return read_note(self.lock) if os.path.exists(self.lock) else None

    def socket(self) -> str:
        """The socket of that daemon."""
        found = os.stat(self.lock)
        return f"{self.folder}/acphold/daemon-{found.st_dev:x}-{found.st_ino:x}.sock"

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "acphold", *arguments],
            env=self.env,
            capture_output=True,
            text=True,
            timeout=DEADLINE * 2,
            check=False,
        )


@pytest.fixture
def home(journal: Path) -> Iterator[Home]:
    # Not in the folder of the test, whose name is too long for a socket in it.
    folder = Path(tempfile.mkdtemp(prefix="acphold-"))
    made = Home(folder, journal)
    yield made
    for pid in made.daemons():
        with suppress(psutil.NoSuchProcess):  # it may end by itself at this moment
            daemon = psutil.Process(pid)
            for each in (daemon, *daemon.children(recursive=True)):
                with suppress(psutil.NoSuchProcess):
                    each.kill()
    shutil.rmtree(folder, ignore_errors=True)  # a killed process may still be writing


async def test_a_turn_goes_on_when_its_editor_is_killed_and_the_next_editor_sees_all_of_it(
    home: Home, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    async with home.editor() as one:
        session = await one.new()
        one.begin_prompt(session, {"say": "begun "}, {"until": str(go)}, {"say": "and done"})
        await one.until_text("begun ")
        await one.kill()
    async with home.editor() as other:
        await other.load(session)
        assert other.text() == "begun "
        go.touch()
        await other.until_text("begun and done")
    assert len(home.daemons()) == 1


async def test_a_question_waits_for_whoever_comes_next(home: Home, tmp_path: Path) -> None:
    go = tmp_path / "go"
    async with home.editor() as one:
        session = await one.new()
        one.begin_prompt(
            session,
            {"say": "begun"},
            {"until": str(go)},
            {"ask": ["session/request_permission", ASK]},
        )
        await one.until_text("begun")
    go.touch()
    live = await until(lambda: [line for line in listed(home) if state(line) == "waiting"])
    assert live[0]["live"] == {**live[0]["live"], "clients": 0, "background": True}
    assert home.run("show", session).stdout.endswith("turn: waiting for an answer\n")
    async with home.editor() as other:
        await other.load(session)
        await other.until_text('"yes"')


async def test_prompts_of_a_killed_editor_stay_in_the_queue_and_outlive_its_process(
    home: Home, tmp_path: Path, defaults: Defaults
) -> None:
    home.env["ACPHOLD_SETTINGS"] = str(defaults(keep_prompts=True))
    log = tmp_path / "log"
    agent = scripted_agent(log=str(log))
    async with home.editor(agent=agent) as one:
        session = await one.new()
        one.begin_prompt(session, {"say": "begun"}, {"until": str(tmp_path / "never")})
        await one.until_text("begun")
        for word in ("second", "third"):
            one.begin_prompt(session, {"say": word})
        await one.call("session/list")
        await one.kill()
    await until(lambda: "2 queued prompts" in home.run("queue").stdout)
    [daemon] = home.daemons()
    os.kill(daemon, signal.SIGKILL)
    async with home.editor(agent=agent) as other:
        await other.load(session)
        lines = home.run("queue", session, "resume").stdout
        assert lines.splitlines()[0].endswith("2 queued prompts")
        await other.until(lambda: other.text().endswith("secondthird"))
    sent = [message["params"]["prompt"][-1]["text"] for message in received(log, "session/prompt")]
    assert [json.loads(text)[0]["say"] for text in sent] == ["begun", "second", "third"]


def state(line: dict[str, Any]) -> str | None:
    return line["live"] and str(line["live"]["state"])


def listed(home: Home) -> list[dict[str, Any]]:
    return [json.loads(line) for line in home.run("list", "--json").stdout.splitlines()]


async def test_doctor_says_what_runs_and_where_it_logs(home: Home) -> None:
    async with home.editor() as one:
        await one.new()
        home.env["COLUMNS"] = "1000"
        said = (await asyncio.to_thread(home.run, "doctor")).stdout
        [daemon] = home.daemons()
    assert f"process {daemon}: scripted, the daemon, 1 session live" in said
    assert f"{home.journal}-state" in said


async def test_an_editor_that_starts_while_the_last_process_ends_gets_the_next_one(
    home: Home,
) -> None:
    slow = scripted_agent(deaf=True)  # its end takes seconds
    async with home.editor(agent=slow) as one:
        await one.new()
        [daemon] = home.daemons()
        os.kill(daemon, signal.SIGTERM)
        await one.ended()
        async with home.editor(agent=slow) as other:
            await other.new()
            assert daemon not in home.daemons()


async def test_an_editor_whose_process_ends_before_it_takes_it_gets_the_next_one(
    home: Home,
) -> None:
    command = wrap_command(scripted_agent())
    path = f"{home.folder}/acphold/daemon-other.sock"
    os.mkdir(os.path.dirname(path), 0o700)
    held = hold(home.lock)
    assert held is not None
    held.note(path)

    def end_at_once(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with listening, connection:
            connection.recv(1)
            os.unlink(path)
            held.release()

    with socket.socket(socket.AF_UNIX) as listening:
        listening.settimeout(DEADLINE)
        listening.bind(path)
        listening.listen()
        ending = asyncio.create_task(asyncio.to_thread(end_at_once, listening))
        async with introduced(command, journal=home.journal, env=home.env):
            await ending
            await until(lambda: len(home.daemons()) == 1)  # one refused takes its time


async def test_a_program_that_listens_in_the_place_of_a_killed_daemon_keeps_no_editor(
    home: Home,
) -> None:
    path = f"{home.folder}/acphold/daemon-other.sock"
    os.mkdir(os.path.dirname(path), 0o700)
    home.note(path)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        async with home.editor() as one:
            await one.talk({"say": "hello"})


async def test_a_program_that_listens_in_the_place_of_a_living_daemon_keeps_no_editor(
    home: Home,
) -> None:
    async with home.editor() as one:
        await one.talk({"say": "hello"})
        await asyncio.sleep(1.2)  # until it watches its socket
        with socket.socket(socket.AF_UNIX) as listening:
            os.unlink(home.socket())
            listening.bind(home.socket())
            listening.listen()
            async with home.editor() as two:
                await two.talk({"say": "hello"})
        await until(lambda: len(home.daemons()) == 1)  # a second one ends at the lock


def test_an_editor_that_was_served_and_let_go_before_its_front_looked_is_not_served_again() -> None:
    fronts, daemons = socket.socketpair()
    with fronts:
        with daemons:
            daemons.sendall(TAKEN + REFUSED)
        assert front._is_accepted("", fronts, b"its frame", (0, 1, 2))
        assert fronts.recv(1) == REFUSED


def test_stop_takes_the_next_process_of_a_name_not_for_the_one_that_has_ended(
    tmp_path: Path,
) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    gone = Process(ended.pid, "agent", [], str(tmp_path / "daemon-1.sock"))
    with socket.socket(socket.AF_UNIX) as next_one:
        next_one.bind(gone.path)
        next_one.listen()
        ending = process_commands._still_running([gone])
        assert asyncio.run(asyncio.wait_for(ending, DEADLINE / 2)) == []


async def test_an_editor_whose_daemon_is_killed_before_it_listens_gets_the_next_one(
    home: Home, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        "if 'daemon' in sys.orig_argv and not os.path.exists(was := __file__ + '.killed'):\n"
        "    os.mkdir(was)\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    home.env["PYTHONPATH"] = str(tmp_path)
    async with home.editor() as one:
        await one.talk({"say": "hello"})
    assert (tmp_path / "sitecustomize.py.killed").exists()


async def test_it_is_found_when_its_socket_went_with_the_runtime_folder(
    home: Home, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    async with home.editor() as one:
        session = await one.new()
        turn = one.begin_prompt(session, {"say": "a"}, {"until": str(go)}, {"say": "b"})
        await one.until_text("a")
        shutil.rmtree(home.folder / "acphold")  # as at the last logout
        async with home.editor() as two:
            await until(lambda: len(home.daemons()) == 1)  # one refused takes its time
            await two.load(session)
            go.touch()
            await turn
            await two.until_text("ab")
    assert home.run("agent", "stop").returncode == 0
    assert home.daemons() == []


async def test_it_ends_by_itself_when_nobody_needs_it(
    home: Home, tmp_path: Path, defaults: Defaults
) -> None:
    home.env["ACPHOLD_SETTINGS"] = str(defaults(linger=0.2))
    go = tmp_path / "go"
    async with home.editor() as one:
        session = await one.new()
        one.begin_prompt(session, {"say": "begun"}, {"until": str(go)})
        await one.until_text("begun")
        [daemon] = home.daemons()
    agents = psutil.Process(daemon).children(recursive=True)
    assert lives(daemon)  # a turn runs
    go.touch()
    await until(lambda: not home.daemons())
    assert not [agent for agent in agents if lives(agent.pid)]
    sockets = os.listdir(home.folder / "acphold")
    assert [name for name in sockets if name.endswith(".sock")] == []


async def test_stop_ends_it_and_its_agent_and_nothing_is_lost(home: Home) -> None:
    async with home.editor() as one:
        session = await one.talk({"say": "kept"})
        turn = one.begin_prompt(session, {"say": "cut"}, {"until": "cancel"})
        await one.until_text("cut")
        stopped = await asyncio.to_thread(home.run, "agent", "stop", "--yes")
        assert stopped.stdout == "Ended scripted. 1 turn was stopped.\n"
        assert await turn == {"stopReason": "cancelled"}
        await one.ended()
        assert one.text().startswith("keptcut\n\n[acphold] acphold has stopped")
        assert "the acphold daemon ended" in one.stderr.decode()
    assert home.daemons() == []
    assert await asyncio.to_thread(home.run, "agent", "stop") is not None
    async with home.editor() as other:
        await other.load(session)
        assert other.text() == "keptcut"


async def test_stop_names_only_agents_that_ran(home: Home) -> None:
    absent = wrap_command(["/no/such/absent"])
    async with home.editor() as one, editor(absent, journal=home.journal, env=home.env) as other:
        await one.talk({"say": "kept"})
        await other.refused("initialize", {"protocolVersion": 1})
        stopped = await asyncio.to_thread(home.run, "agent", "stop")
        assert stopped.stdout == "Ended scripted. absent was not running.\n"


async def test_stop_by_id_ends_the_agent_that_has_the_session_and_no_other(home: Home) -> None:
    async with home.editor() as one, home.editor("--name", "another") as other:
        session = await one.talk({"say": "kept"})
        other.begin_prompt(await other.new(), {"say": "begun"}, {"until": "cancel"})
        await other.until_text("begun")  # which is not counted
        stopped = await asyncio.to_thread(home.run, "agent", "stop", session)
        told, _, short = stopped.stdout.removesuffix(".\n").rpartition(" ")
        assert told == "Stopped the agent of session"
        assert short
        assert session.startswith(short)
        await one.ended()
        assert len(home.daemons()) == 1
        await other.prompt(await other.new(), {"say": "still here"})
        await asyncio.to_thread(home.run, "agent", "stop", "--yes")
        assert home.daemons() == []


async def test_stop_leaves_what_an_editor_has_in_its_own_process(home: Home) -> None:
    command = lone_command(scripted_agent())
    async with introduced(command, journal=home.journal, env=home.env) as one:
        session = await one.talk({"say": "kept"})
        refused = await asyncio.to_thread(home.run, "agent", "stop", session)
        assert refused.returncode == 1
        assert "close it there" in refused.stderr


async def test_an_editor_of_a_stopped_daemon_is_refused_within_ten_seconds(home: Home) -> None:
    async with home.editor() as one:
        await one.prompt(await one.new(), {"say": "kept"})
    [daemon] = home.daemons()
    os.kill(daemon, signal.SIGSTOP)
    began = time.monotonic()
    async with editor(wrap_command(scripted_agent()), journal=home.journal, env=home.env) as other:
        try:
            error = await other.refused("initialize", {"protocolVersion": 1})
            took = time.monotonic() - began
        finally:
            os.kill(daemon, signal.SIGCONT)
        assert f"daemon {daemon} does not answer: it is stopped; `kill -CONT" in error.message
        assert took < 10 + 1.5  # its own start, on a busy machine


def impatient(name_seconds: float, take_seconds: float) -> list[str]:
    """The command of `wrap` with these bounds."""
    words = wrap_command(scripted_agent())[4:]
    bounds = f"wrap.NAME_SECONDS, wrap.TAKE_SECONDS = {name_seconds}, {take_seconds}"
    run = f"import acphold.faces.cli.front as wrap; {bounds}; wrap.start_front({words})"
    return [sys.executable, "-c", run]


@asynccontextmanager
async def stopped_and_full(home: Home) -> AsyncIterator[int]:
    """A daemon that is stopped, with as many waiting as may; its number."""
    async with home.editor() as one:
        await one.prompt(await one.new(), {"say": "kept"})
    [daemon] = home.daemons()
    path = home.socket()
    os.kill(daemon, signal.SIGSTOP)
    with ExitStack() as waiting:
        try:
            while True:
                asking = waiting.enter_context(socket.socket(socket.AF_UNIX))
                asking.setblocking(False)
                asking.connect(path)
        except BlockingIOError:
            pass
        try:
            yield daemon
        finally:
            os.kill(daemon, signal.SIGCONT)


async def test_a_stopped_process_before_which_many_wait_is_named_and_not_waited_for_without_end(
    home: Home,
) -> None:
    async with (
        stopped_and_full(home) as daemon,
        editor(impatient(0.1, 0.2), journal=home.journal, env=home.env) as other,
    ):
        error = await other.refused("initialize", {"protocolVersion": 1})
        told = f"daemon {daemon} does not answer: it is stopped; `kill -CONT {daemon}` "
        assert told in error.message
        assert "`acphold agent stop --force` kills it" in error.message
        stopped = await asyncio.to_thread(home.run, "agent", "stop", "--all")
        assert told in stopped.stderr


async def begin_question(one: Editor, session: str) -> asyncio.Future[Any]:
    """Begin a turn that asks a question, which nobody answers; return its answer."""
    unanswered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    asked = asyncio.Event()

    def ask(_: dict[str, Any]) -> Any:
        asked.set()
        return unanswered

    one.answers["session/request_permission"] = ask
    turn = one.begin_prompt(session, {"ask": ["session/request_permission", ASK]})
    await asked.wait()
    return turn


async def test_stop_ends_the_process_of_its_own_journal_and_that_of_another_only_with_all(
    home: Home, tmp_path: Path
) -> None:
    other = str(tmp_path / "other.db")
    async with home.editor() as one:
        session = await one.new()
        turn = await begin_question(one, session)
        [daemon] = home.daemons()
        home.env["ACPHOLD_JOURNAL"] = other
        nothing = await asyncio.to_thread(home.run, "stop", "--yes")
        assert (nothing.returncode, nothing.stdout) == (0, "")
        assert "This journal has no daemon" in nothing.stderr
        assert home.daemons() == [daemon]
        async with home.editor(f"--journal={other}") as two:
            await two.new()
            stopped = await asyncio.to_thread(home.run, "stop")
            assert stopped.stdout == "Ended scripted.\n"
            await two.ended()
        assert home.daemons() == [daemon]
        await asyncio.to_thread(home.run, "stop", "--all", "--yes")
        assert await turn == {"stopReason": "cancelled"}
    assert home.daemons() == []


async def test_stop_says_what_is_at_work_and_asks_before_it_ends_that(home: Home) -> None:
    async with home.editor() as one:
        session = await one.talk({"say": "done"})
        home.run("session", "rename", session, "Fix the greeting")
        turn = await begin_question(one, session)
        what = "1 question waits in “Fix the greeting”"
        for which in ([], [session]):
            refused = await asyncio.to_thread(home.run, "stop", *which)
            assert refused.returncode == 1
            assert refused.stderr == f"acphold stop: {what}; --yes stops it anyway\n"
        busy = await one.new()
        one.begin_prompt(busy, {"say": "begun"}, {"until": "cancel"})
        await one.until_text("begun")
        refused = await asyncio.to_thread(home.run, "stop")
        assert f"{what}, a turn runs in “" in refused.stderr
        await asyncio.to_thread(answer, home, "n", f"{what}, a turn runs in")
        assert len(home.daemons()) == 1
        await asyncio.to_thread(
            answer, home, "y", "Ended scripted. 1 open question was cancelled. 1 turn was stopped."
        )
        assert await turn == {"stopReason": "cancelled"}


async def test_stop_asks_again_if_something_else_is_at_work_once_it_is_answered(
    home: Home,
) -> None:
    async with home.editor() as one:
        session = await one.talk({"say": "done"})
        home.run("session", "rename", session, "Fix the greeting")
        await begin_question(one, session)
        env = home.env | {"TERM": "xterm"}
        with terminal([sys.executable, "-m", "acphold", "stop"], env) as person:
            await asyncio.to_thread(person.until, "Fix the greeting”. Stop anyway?")
            busy = await one.new()
            one.begin_prompt(busy, {"say": "begun"}, {"until": "cancel"})
            await one.until_text("begun")
            person.type("y\r")
            await asyncio.to_thread(person.until, "a turn runs in")
            person.type("n\r")
            assert await asyncio.to_thread(person.ended) == 1
        assert len(home.daemons()) == 1


def answer(home: Home, key: str, shown: str) -> None:
    """Answer the question of `acphold stop`, which shows this before or after it."""
    with terminal([sys.executable, "-m", "acphold", "stop"], home.env | {"TERM": "xterm"}) as one:
        one.until("Stop anyway? [y/N]:")
        one.type(f"{key}\r", shown)
        assert one.ended() == (0 if key == "y" else 1)


async def test_a_stopped_process_is_killed_by_force_and_the_next_editor_starts_another(
    home: Home, tmp_path: Path
) -> None:
    async with home.editor() as one:
        session = await one.new()
        one.begin_prompt(session, {"say": "begun"}, {"until": str(tmp_path / "never")})
        await one.until_text("begun")
        [daemon] = home.daemons()
        os.kill(daemon, signal.SIGSTOP)
        killed = await asyncio.to_thread(home.run, "agent", "stop", "--force")
        assert killed.stdout == f"Ended process {daemon}, which did not answer.\n"
        assert (killed.returncode, killed.stderr) == (0, "")
    async with home.editor() as other:
        await other.load(session)
        assert other.text() == "begun"
        assert daemon not in home.daemons()


async def test_commands_name_a_daemon_that_does_not_answer_and_exit_with_1(home: Home) -> None:
    async with home.editor() as one:
        session = await one.talk({"say": "hello"})
        [daemon] = home.daemons()
        os.kill(daemon, signal.SIGSTOP)
        try:
            for words in (
                ["inbox"],
                ["inbox", "--json"],
                ["list"],
                ["search", "kept"],
                ["search", "kept", "--json"],
                ["queue", session, "add", "next"],
                ["ask", "--session", session, "hello"],
            ):
                done = await asyncio.to_thread(home.run, *words)
                told = f"daemon {daemon} does not answer: it is stopped; `kill -CONT {daemon}`"
                assert told in done.stderr, words
                assert done.returncode == 1, words
                assert "Nothing is waiting" not in done.stderr, words
        finally:
            os.kill(daemon, signal.SIGCONT)


async def test_a_process_that_is_named_as_stopped_serves_the_editor_once_it_goes_on(
    home: Home,
) -> None:
    async with AsyncExitStack() as stack:
        daemon = await stack.enter_async_context(stopped_and_full(home))
        command = impatient(0.1, DEADLINE)
        other = await stack.enter_async_context(editor(command, journal=home.journal, env=home.env))
        asked = other.begin("initialize", {"protocolVersion": 1})
        await until(lambda: b"it is stopped" in other.stderr)
        os.kill(daemon, signal.SIGCONT)
        assert (await asyncio.wait_for(asked, DEADLINE))["protocolVersion"] == 1


PICKY = """#!/bin/sh
[ "$PICKY_KEY" = right ] || {{ echo "no key" >&2; exit 3; }}
exec {agent}
"""
"""An agent that does not start without its key."""


@pytest.mark.parametrize("lacking", [{"PATH": "/usr/bin:/bin"}, {"PICKY_KEY": "wrong"}])
async def test_the_next_editor_is_not_told_of_what_the_last_one_lacked(
    home: Home, tmp_path: Path, lacking: dict[str, str]
) -> None:
    picky = tmp_path / "bin" / "picky"
    picky.parent.mkdir()
    picky.write_text(PICKY.format(agent=shlex.join(scripted_agent())))
    picky.chmod(0o755)
    path = f"{picky.parent}:{os.environ['PATH']}"
    env = {**home.env, "PATH": path, "PICKY_KEY": "right"}
    command = wrap_command(["picky"])
    async with editor(command, journal=home.journal, env={**env, **lacking}) as one:
        why = await one.refused("initialize", {"protocolVersion": 1})
        assert "no such program" in why.message or "no key" in why.message
        async with introduced(command, journal=home.journal, env=env) as other:
            await other.talk({"say": "kept"})
            assert len(home.daemons()) == 1
        assert await one.leave() == 0
    async with editor(command, journal=home.journal, env={**env, **lacking}) as last:
        assert (await last.refused("initialize", {"protocolVersion": 1})).message == why.message


async def test_an_agent_that_starts_at_the_second_try_can_be_shared(
    home: Home, tmp_path: Path
) -> None:
    ready = tmp_path / "ready"
    waiting = ["sh", "-c", '[ -e "$0" ] && exec "$@"', str(ready), *scripted_agent()]
    command = wrap_command(waiting)
    async with editor(command, journal=home.journal, env=home.env) as one:
        await one.refused("initialize", {"protocolVersion": 1})
        ready.touch()
        await one.initialize()
        session = await one.talk({"say": "said by the first"})
        async with introduced(command, journal=home.journal, env=home.env) as other:
            await other.load(session)
            await other.prompt(session, {"say": " and by the second"})
            await one.until_text("said by the first and by the second")
        assert len(home.daemons()) == 1


async def test_editors_that_differ_in_everything_but_the_place_share_one_daemon(
    home: Home, tmp_path: Path
) -> None:
    """Each has its own folders, settings, agents, PATH and umask, and all start at once. What
    belongs to the journal is beside it, once."""
    here, everybody = {**home.env}, asyncio.Barrier(8)

    async def one(name: str) -> None:
        env = {**here, "ACPHOLD_SETTINGS": "", "PATH": f"{here['PATH']}:/{name}"}
        for variable in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "TMPDIR"):
            env[variable] = str(tmp_path / name / variable)
        env["XDG_RUNTIME_DIR"] = f"{home.folder}/{name}"
        os.mkdir(env["XDG_RUNTIME_DIR"], 0o700)
        if int(name) % 2:
            settings = Path(env["XDG_CONFIG_HOME"]) / "acphold" / "settings.toml"
        else:  # a name in its own folder
            settings, env["ACPHOLD_SETTINGS"] = tmp_path / name / "my.toml", "my.toml"
        settings.parent.mkdir(parents=True)
        words = json.dumps(scripted_agent(info={"name": f"agent {name}", "version": "1"}))
        settings.write_text(f"[agents.mine]\ncommand = {words}\n")
        wrap = shlex.join([sys.executable, "-m", "acphold", "wrap", "mine"])
        command = ["sh", "-c", f"umask 0{name}7; exec {wrap}"]
        async with editor(command, journal=home.journal, env=env, cwd=tmp_path / name) as client:
            assert (await client.initialize())["agentInfo"]["name"] == f"agent {name}"
            await client.talk({"say": "hello"})
            await everybody.wait()
            await until(lambda: len(home.daemons()) == 1)  # whoever came second has ended
            await everybody.wait()

    async with asyncio.TaskGroup() as tasks:
        for number in range(8):
            tasks.create_task(one(str(number)))

    def below(folder: str | Path, names: str) -> int:
        return len([*Path(folder).glob(names)])

    await until(lambda: below(f"{home.journal}-state", "starts/*") == 8)
    assert below(f"{home.journal}-state", "daemon-*.log") == 1
    assert below(tmp_path, "*/XDG_STATE_HOME/acphold/*") == 0
    seen = home.run("agent", "status")  # from where the runtime folder is yet another
    assert f"process {home.daemons()[0]}: daemon" in seen.stdout
    assert home.run("agent", "stop", "--force").returncode == 0
    assert home.daemons() == []
    assert home.noted is None


async def test_status_shows_which_folders_of_an_editor_are_its_own(home: Home) -> None:
    async with home.editor() as one:
        await one.new()
        home.env["XDG_CONFIG_HOME"] = str(home.folder / "other")
        async with home.editor() as two:
            await two.new()
            seen = await asyncio.to_thread(home.run, "agent", "status")
    assert seen.stdout.count(" has its own XDG_CONFIG_HOME\n") == 1


async def test_a_copy_of_a_journal_with_all_beside_it_gets_a_daemon_of_its_own(
    home: Home, tmp_path: Path
) -> None:
    async with home.editor() as one:
        session = await one.talk({"say": "hello"})
        shutil.copytree(home.journal.parent, copied := tmp_path / "copied", dirs_exist_ok=False)
        assert home.noted == home.socket()
        home.env["ACPHOLD_JOURNAL"] = str(copied / home.journal.name)
        async with editor(
            wrap_command(scripted_agent()), journal=copied / home.journal.name, env=home.env
        ) as two:
            await two.initialize()
            await two.load(session)
            assert len(home.daemons()) == 2


@pytest.mark.parametrize("waits", [0.0, 1.2])
async def test_a_daemon_whose_lock_was_removed_stays_the_only_one_and_takes_it_back(
    home: Home, waits: float
) -> None:
    """Before and after it watches the lock; several fronts come at once, and a turn runs."""
    async with home.editor() as one, AsyncExitStack() as stack:
        session = await one.new()
        turn = one.begin_prompt(session, {"say": "begun"}, {"until": "cancel"})
        await one.until_text("begun")
        await asyncio.sleep(waits)
        [daemon] = home.daemons()
        os.unlink(home.lock)
        for other in await asyncio.gather(
            *(stack.enter_async_context(home.editor()) for _ in range(3))
        ):
            await other.load(session)
            assert other.text() == "begun"
        await until(lambda: home.noted)
        await until(lambda: home.daemons() == [daemon])
        one.tell("session/cancel", {"sessionId": session})
        assert (await turn)["stopReason"] == "cancelled"
    assert home.run("agent", "stop", "--force").returncode == 0
    assert (home.daemons(), home.noted) == ([], None)


async def test_a_daemon_ends_once_another_has_its_lock_for_good(home: Home) -> None:
    """Nobody else finds it: its journal was removed, and there is a new one of the same name."""
    async with home.editor() as one:
        await one.talk({"say": "hello"})
        [daemon] = home.daemons()
        shutil.rmtree(folder := home.journal.parent)
        folder.mkdir()
        async with home.editor() as two:
            await two.talk({"say": "hello"})
            await until(lambda: daemon not in home.daemons())
            await one.ended()
            await two.talk({"say": "again"})
            assert home.noted == home.socket()


async def test_a_daemon_whose_journal_was_moved_makes_room_for_one_at_the_new_place(
    home: Home, tmp_path: Path
) -> None:
    async with home.editor() as one:
        session = await one.talk({"say": "hello"})
        [daemon] = home.daemons()
        await asyncio.sleep(1.2)  # until it watches its lock
        home.journal.parent.rename(moved := tmp_path.with_name(f"{tmp_path.name}-moved"))
        await until(lambda: daemon not in home.daemons())
        await one.ended()
    assert not home.journal.parent.exists()  # so it could be moved back
    home.env["ACPHOLD_JOURNAL"] = str(journal := moved / home.journal.name)
    async with introduced(wrap_command(scripted_agent()), journal=journal, env=home.env) as two:
        await two.load(session)
        assert two.text() == "hello"
    assert home.run("agent", "stop").returncode == 0


async def test_a_daemon_makes_room_at_once_where_a_folder_above_its_journal_was_moved_to(
    home: Home, tmp_path: Path
) -> None:
    (inner := home.journal.parent / "inner").mkdir()
    home.env["ACPHOLD_JOURNAL"] = str(inner / "journal.db")
    command = wrap_command(scripted_agent())
    async with introduced(command, journal=inner / "journal.db", env=home.env) as one:
        session = await one.talk({"say": "hello"})
        await asyncio.sleep(1.2)  # until it watches its lock
        home.journal.parent.rename(moved := tmp_path.with_name(f"{tmp_path.name}-moved"))
        home.env["ACPHOLD_JOURNAL"] = str(journal := moved / "inner" / "journal.db")
        async with introduced(command, journal=journal, env=home.env) as two:
            await two.load(session)
            await one.ended()


async def test_a_journal_that_is_moved_back_at_once_keeps_its_daemon_and_the_turn(
    home: Home, tmp_path: Path
) -> None:
    async with home.editor() as one:
        session = await one.new()
        turn = one.begin_prompt(session, {"say": "begun"}, {"until": "cancel"})
        await one.until_text("begun")
        [daemon] = home.daemons()
        await asyncio.sleep(1.2)  # until it watches its lock
        folder = home.journal.parent
        folder.rename(moved := tmp_path.with_name(f"{tmp_path.name}-away"))
        await asyncio.sleep(1)  # it looks ten times
        assert not folder.exists()
        moved.rename(folder)
        one.tell("session/cancel", {"sessionId": session})
        assert (await turn)["stopReason"] == "cancelled"
        await one.talk({"say": "again"})
        assert home.daemons() == [daemon]
    assert home.run("agent", "stop", "--force").returncode == 0


async def test_a_disk_that_fails_for_a_moment_ends_no_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (journal := tmp_path / "journal.db").touch()
    held = hold(f"{journal}-daemon")
    assert held is not None
    stop, look, looks = asyncio.Event(), os.lstat, 0

    def broken(path: str) -> os.stat_result:
        nonlocal looks
        looks += 1
        if 1 < looks < 6:
            raise OSError(errno.EIO, "the disk is broken", path)
        return look(path)

    for name in ("LOG_LOOK_SECONDS", "LOCK_LOOK_SECONDS"):
        monkeypatch.setattr(bounds, name, 0.01)
    monkeypatch.setattr("acphold.faces.cli.daemon.REBIND_SECONDS", 0.0)
    monkeypatch.setattr(os, "lstat", broken)
    async with beside(_keep_lock(held, str(journal), stop), "keep lock"):
        await until(lambda: looks > 8 or stop.is_set())
        assert not stop.is_set()
    held.release()


async def test_a_stopped_daemon_whose_lock_was_removed_is_named_and_no_other_begins(
    home: Home,
) -> None:
    async with home.editor() as one:
        await one.talk({"say": "hello"})
        [daemon] = home.daemons()
        os.kill(daemon, signal.SIGSTOP)
        os.unlink(home.lock)
        async with editor(impatient(1, 3), journal=home.journal, env=home.env) as other:
            try:
                error = await other.refused("initialize", {"protocolVersion": 1})
                assert home.daemons() == [daemon]
            finally:
                os.kill(daemon, signal.SIGCONT)
            assert f"daemon {daemon} does not answer: it is stopped" in error.message


@pytest.mark.skipif(sys.platform != "linux" or os.getuid() != 0, reason="mounts a folder")
async def test_a_journal_that_is_reached_through_a_mount_has_the_same_daemon(
    home: Home, tmp_path: Path
) -> None:
    (mounted := tmp_path / "mounted").mkdir()
    words = ["mount", "--bind", str(home.journal.parent), str(mounted)]
    await asyncio.to_thread(subprocess.check_call, words)
    try:
        async with home.editor() as one:
            session = await one.talk({"say": "hello"})
            env = {**home.env, "ACPHOLD_JOURNAL": str(mounted / home.journal.name)}
            command = wrap_command(scripted_agent())
            async with introduced(command, journal=home.journal, env=env) as two:
                await two.load(session)
                assert two.text() == "hello"
                assert len(home.daemons()) == 1
        home.env = env
        assert home.run("agent", "stop").stdout.startswith("Ended scripted")
    finally:
        await asyncio.to_thread(subprocess.check_call, ["umount", "--lazy", str(mounted)])


def test_the_journal_of_another_user_is_refused_and_nothing_is_left_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (journal := tmp_path / "journal.db").touch()
    user = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: user + 1)
    with pytest.raises(JournalUnavailableError, match="belongs to another user"):
        daemon_lock(str(journal))
    assert os.listdir(tmp_path) == ["journal.db"]


@pytest.mark.parametrize(
    ("options", "env", "is_other"),
    [
        ([], {}, False),
        (["--journal", "my.db"], {}, True),
        (["--journal=my.db"], {}, True),
        (["--journal=/my.db", "--log-level", "info"], {}, False),
        ([], {"ACPHOLD_JOURNAL": "my.db"}, True),
        ([], {"ACPHOLD_JOURNAL": "sqlite:////my.db"}, False),
        ([], {"ACPHOLD_SETTINGS": "my.toml"}, False),
    ],
)
def test_a_journal_of_another_folder_means_another_daemon(
    options: list[str],
    env: dict[str, str],
    is_other: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    found = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        found.append(daemon_lock(journal_of(options)))
    assert (found[0] != found[1]) == is_other


def test_a_database_has_one_daemon_with_a_password_in_its_url_and_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PGPASSWORD", "")  # put back what `journal_name` sets
    urls = "postgresql://me:secret@db/x?a=b", "postgresql://me@db/x?a=b"
    assert len({daemon_lock(it) for it in (*urls, journal_name(urls[0]))}) == 1
    others = "postgresql://you@db/x?a=b", "postgresql://me@db/y?a=b", "postgresql:///x"
    assert len({daemon_lock(it) for it in (urls[0], *others)}) == 4
    for name in ("HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, "/elsewhere")
    assert not daemon_lock(urls[0]).startswith("/elsewhere")


async def test_a_journal_that_cannot_be_opened_is_told_at_once(home: Home) -> None:
    home.journal.write_text("my diary\n" * 50)
    command = wrap_command(scripted_agent())
    async with editor(command, journal=home.journal, env=home.env) as one:
        error = await one.refused("initialize", {"protocolVersion": 1})
        assert "is not an acphold journal" in error.message
        assert await one.leave() == 1
        assert "journal" in one.stderr.decode()


async def test_a_runtime_folder_that_cannot_be_used_is_told_to_the_editor(
    home: Home, tmp_path: Path
) -> None:
    (folder := tmp_path / ("x" * 120)).mkdir(0o700)
    command = wrap_command(scripted_agent())
    env = {**home.env, "XDG_RUNTIME_DIR": str(folder)}
    async with editor(command, journal=home.journal, env=env) as one:
        error = await one.refused("initialize", {"protocolVersion": 1})
        assert "its path is too long for a socket in it" in error.message


async def test_the_editors_own_streams_do_not_stay_open_in_the_daemon(home: Home) -> None:
    async with home.editor() as one:
        await one.new()
        [daemon] = home.daemons()
        streams = targets(one.process.pid)
        assert len(streams & files(daemon)) == 3  # while it is there
    await until(lambda: not streams & files(daemon))


async def test_a_log_that_an_agent_floods_is_begun_anew_before_anybody_looks(home: Home) -> None:
    async with home.editor() as one:
        session = await one.new()
        await one.prompt(session, *[{"stderr": "x" * 99_999 + "\n"}] * 40)
        found = Path(f"{home.journal}-state")
        await until(lambda: [*found.glob("daemon-*.log.old")], 5.0)
        await one.prompt(session, {"stderr": "the last words\n"})
        await until(lambda: any("the last words" in it.read_text() for it in found.glob("*.log")))


def files(pid: int) -> set[str]:
    """All that a process has open."""
    found = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):
            found.add(os.readlink(f"/proc/{pid}/fd/{name}"))
    return found


def targets(pid: int) -> set[str]:
    """The files behind the three standard streams of a process."""
    return {os.readlink(f"/proc/{pid}/fd/{number}") for number in range(3)}


def test_a_folder_for_logs_that_cannot_be_made_is_told_with_what_to_do(
    tmp_path: Path,
) -> None:
    (tmp_path / "journal.db-state").touch()
    with pytest.raises(OSError, match="put the journal where you can write"):
        log_to_file(str(tmp_path / "journal.db"))


async def test_who_leaves_a_question_is_told_that_it_waits_and_how_to_find_it_later(
    home: Home,
) -> None:
    chat = [sys.executable, "-m", "acphold", "chat"]
    env = home.env | {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
    options = [{"optionId": "go", "name": "Go on", "kind": "allow_once"}]
    call = {"toolCall": {"toolCallId": "t1", "title": "Edit hello.py"}, "options": options}
    turn = json.dumps([{"ask": ["session/request_permission", call]}])
    with terminal([*chat, "--", *scripted_agent()], env) as one:
        one.until("ready")
        one.type(f"{turn}\r", "Edit hello.py", "waiting for your answer")
        assert one.ended("\x04") == 0
        [row] = map(json.loads, home.run("list", "--json").stdout.splitlines())
        said = one.until("1 question waits in", f"To continue: acphold continue {row['sessionId']}")
        assert "in the background" not in said
    with terminal([*chat, "--resume", row["sessionId"]], env) as two:
        two.until("waiting for your answer")
        assert two.ended("\x04") == 0
        two.until("1 question waits in", "To continue")
