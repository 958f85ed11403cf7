"""The daemon of a journal: one process for all editors, and each agent in its own surroundings."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
import threading
from asyncio.subprocess import DEVNULL, PIPE
from contextlib import suppress
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest

from acphold.faces.cli import bounds, daemon, watchdog
from acphold.faces.cli.command_line import Exit
from acphold.faces.cli.process_commands import print_process
from acphold.faces.cli.watchdog import watch_loop
from acphold.live.reading.processes import AgentProgram, LiveSession, Process
from acphold.live.server.daemon import release_parts
from acphold.machine.place import place_of
from tests.cli.test_shared_daemon import Home, begin_question, home
from tests.distributions import FOLDERS
from tests.editor import (
    DEADLINE,
    Refused,
    introduced,
    received,
    scripted_agent,
    wrap_command,
)
from tests.screen_terminal import terminal
from tests.watched_processes import lives, until

__all__ = ["home"]

RECORDS = (
    'printf "%s|%s|%s|%s\\n" "$CANARY" "$PWD" "$(umask)" "$(ulimit -Sn)" >> {file}; exec {agent}'
)
"""An agent that writes down where and how it was started."""


def say(words: str) -> str:
    """The prompt that makes the scripted agent say this."""
    return json.dumps([{"say": words}])


def recording(file: Path) -> list[str]:
    agent = shlex.join(scripted_agent())
    return ["sh", "-c", RECORDS.format(file=shlex.quote(str(file)), agent=agent)]


def front(command: list[str], umask: int, descriptors: int) -> list[str]:
    """The command with this umask and this many descriptors."""
    script = f"umask {umask:03o}; ulimit -Sn {descriptors}; exec {shlex.join(command)}"
    return ["sh", "-c", script]


@pytest.mark.slow
async def test_each_agent_starts_and_starts_again_in_the_surroundings_of_its_own_front(
    home: Home, tmp_path: Path
) -> None:
    places = {"one": (0o027, 200), "two": (0o077, 300)}
    async with asyncio.TaskGroup() as tasks:
        both = asyncio.Barrier(2)

        async def one(name: str, umask: int, descriptors: int) -> None:
            (folder := tmp_path / name).mkdir()
            command = wrap_command(recording(tmp_path / f"{name}.txt"))
            env = {**home.env, "CANARY": f"secret of {name}"}
            async with introduced(
                front(command, umask, descriptors), journal=home.journal, env=env, cwd=folder
            ) as client:
                session = await client.talk({"say": "hello"}, cwd=folder)
                await both.wait()
                with pytest.raises(Refused, match="SIGKILL"):
                    await client.prompt(session, {"kill": 9})
                await client.prompt(session, {"say": "again"})
                await both.wait()
            told = (tmp_path / f"{name}.txt").read_text().splitlines()
            expected = f"secret of {name}|{folder}|{umask:04o}|{descriptors}"
            assert told == [expected, expected]

        for name, (umask, descriptors) in places.items():
            tasks.create_task(one(name, umask, descriptors))
    [daemon] = home.daemons()
    assert "CANARY" not in psutil.Process(daemon).environ()
    assert os.readlink(f"/proc/{daemon}/cwd") == "/"


@pytest.mark.slow
async def test_an_alert_is_told_in_the_surroundings_of_the_front_also_when_that_has_gone(
    home: Home, tmp_path: Path
) -> None:
    settings, told, go = (tmp_path / name for name in ("settings.toml", "told", "go"))
    tell = ["sh", "-c", f'echo "$CANARY" > {told}.new && mv {told}.new {told}']
    settings.write_text(f"[alerts]\non_turn_end = {json.dumps(tell)}\nturn_seconds = 0")
    home.env["ACPHOLD_SETTINGS"] = str(settings)
    async with home.editor() as other:  # which starts the daemon
        await other.new()
        home.env["CANARY"] = "mine"
        async with home.editor() as one:
            session = await one.new()
            one.begin_prompt(session, {"say": "begun"}, {"until": str(go)})
            await one.until_text("begun")
            await one.kill()
        go.touch()
        await until(told.exists)
    assert told.read_text() == "mine\n"


@pytest.mark.slow
async def test_an_editor_that_reloads_gets_the_agent_that_it_has_left(home: Home) -> None:
    async with home.editor() as one:
        session = await one.talk({"say": "kept"})
        [daemon] = home.daemons()
        before = agents(daemon)
    async with home.editor() as again:
        await again.load(session)
        assert again.text() == "kept"
        assert agents(daemon) == before
        async with home.editor() as beside:  # and another one has an agent of its own
            await beside.new()
            assert len(agents(daemon)) == 2


def agents(daemon: int) -> set[int]:
    """The agents of a daemon, by number."""
    found = set()
    for child in psutil.Process(daemon).children():
        with suppress(psutil.NoSuchProcess):  # it has ended
            if "scripted_agent" in " ".join(child.cmdline()):
                found.add(child.pid)
    return found


@pytest.mark.slow
async def test_the_crash_of_one_agent_is_nothing_to_the_editor_of_another(home: Home) -> None:
    async with home.editor() as one, home.editor() as two:
        session, other = await one.new(), await two.new()
        [daemon] = home.daemons()
        turn = two.begin_prompt(other, {"say": "begun "}, {"until": "cancel"})
        await two.until_text("begun ")
        one.begin_prompt(session, {"kill": 9})
        await until(lambda: len(agents(daemon)) == 1)
        two.tell("session/cancel", {"sessionId": other})
        assert (await turn)["stopReason"] == "cancelled"
        await one.prompt(session, {"say": "again"})
        assert len(agents(daemon)) == 2


@pytest.mark.slow
async def test_the_daemon_outlives_the_tree_of_processes_that_started_it(home: Home) -> None:
    async with home.editor() as one, home.editor() as two:
        session = await two.new()
        turn = two.begin_prompt(session, {"say": "begun "}, {"until": "cancel"})
        await two.until_text("begun ")
        [daemon] = home.daemons()
        tree = psutil.Process(one.process.pid)
        for process in (*tree.children(recursive=True), tree):
            process.kill()
        await one.ended()
        two.tell("session/cancel", {"sessionId": session})
        assert (await turn)["stopReason"] == "cancelled"
        assert lives(daemon)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux" or os.getuid() != 0, reason="makes a namespace")
async def test_an_editor_in_another_place_gets_a_daemon_of_its_own(home: Home) -> None:
    inside = ["unshare", "--mount", *wrap_command(scripted_agent())]
    async with home.editor() as one:
        await one.talk({"say": "outside"})
        async with introduced(inside, journal=home.journal, env=home.env) as two:
            await two.talk({"say": "inside"})
            assert len(home.daemons()) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="namespaces")
def test_two_processes_are_in_one_place_unless_privileges_were_taken_from_one() -> None:
    with subprocess.Popen(["sleep", "60"]) as beside:
        assert place_of(beside.pid) == place_of()
        beside.kill()
    script = (
        "import ctypes, sys; ctypes.CDLL(None).prctl(38, 1, 0, 0, 0);"
        " print(1, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as confined:
        assert confined.stdout is not None
        confined.stdout.readline()
        assert place_of(confined.pid) != place_of()
        confined.kill()


@pytest.mark.slow
async def test_what_is_logged_for_an_editor_goes_to_it_and_to_no_other(
    home: Home, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    async with (
        home.editor() as one,
        home.editor("--log-file", str(log)) as other,
    ):
        one.send_line(b"garbage of one")
        other.send_line(b"garbage of the other")
        for client in (one, other):
            await client.talk({"say": "hello"})
        await until(lambda: b"not JSON" in one.stderr and "not JSON" in log.read_text())
        written = log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600
    assert b"not JSON" not in other.stderr
    assert one.stderr.count(b"not JSON") == written.count("not JSON") == 1


async def test_the_agent_of_a_question_has_ended_before_ask_has(home: Home) -> None:
    done = await asyncio.to_thread(home.run, "ask", say("hello"), "--", *scripted_agent())
    assert (done.returncode, done.stdout) == (0, "hello\n")
    [daemon] = home.daemons()
    assert psutil.Process(daemon).children() == []
    told = await asyncio.to_thread(home.run, "agent", "status", "--json")
    assert not told.stdout or json.loads(told.stdout)["sessions"] == []  # it may have ended since
    await until(lambda: not home.daemons())


async def test_an_ask_that_is_killed_takes_its_turn_and_its_agent_along(home: Home) -> None:
    words = json.dumps([{"say": "begun"}, {"until": "cancel"}])
    asking = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "acphold", "ask", words, "--", *scripted_agent()),
        env=home.env,
        stdin=DEVNULL,
        stdout=PIPE,
    )
    assert asking.stdout is not None
    await asyncio.wait_for(asking.stdout.readexactly(len("begun")), DEADLINE)
    asking.kill()
    await asking.wait()
    await until(lambda: not home.daemons())
    listed = await asyncio.to_thread(home.run, "list", "--json")
    assert json.loads(listed.stdout)["outcome"] == "cancelled"


async def test_the_agents_stderr_goes_to_its_own_editor_and_to_the_log(home: Home) -> None:
    async with home.editor() as one, home.editor() as two:
        await one.prompt(await one.new(), {"stderr": "of one\n"})
        await two.prompt(await two.new(), {"stderr": "of two\n"})
        await until(lambda: b"of one" in one.stderr and b"of two" in two.stderr)
        assert b"of two" not in one.stderr
        text = logs(home)
        assert "of one" in text
        assert "of two" in text


def logs(home: Home) -> str:
    """All that is in the logs of the daemons."""
    found = Path(f"{home.journal}-state").glob("*.log")
    return "".join(log.read_text() for log in found)


HANGS = """
import asyncio, time
from acphold.faces.cli import bounds
from acphold.faces.cli.process_commands import print_process
from acphold.faces.cli.watchdog import watch_loop
from acphold.live.reading.processes import AgentProgram, LiveSession, Process
bounds.WATCHDOG_SECONDS = bounds.HANG_SECONDS = 0.02

exec("def wait(seconds): time.sleep(seconds)", waiting := {{"time": time, "__name__": {module!r}}})

async def hang():
    async with watch_loop():
        waiting["wait"]({seconds})

asyncio.run(hang())
"""


def hanging(module: str, seconds: float) -> subprocess.CompletedProcess[str]:
    """A process whose loop hangs for so long in a function of this module."""
    words = [sys.executable, "-c", HANGS.format(module=module, seconds=seconds)]
    return subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE, check=False)


def test_a_loop_that_hangs_is_written_down_and_aborted() -> None:
    done = hanging("elsewhere", 60)
    assert done.returncode == -6
    assert "the event loop hangs; all stacks" in done.stderr
    assert "in hang" in done.stderr


def test_a_loop_that_waits_for_the_disk_of_the_journal_is_given_ten_minutes() -> None:
    done = hanging("acphold.journal.sqlite", 0.8)
    assert done.returncode == 0
    assert "the event loop hangs; all stacks" in done.stderr
    assert bounds.DISK_TICKS * bounds.HANG_SECONDS == 600
    assert hanging("acphold.journal.sqlite", 60).returncode == -6


async def test_a_loop_that_waits_for_long_answers_the_watchdog(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bounds, "WATCHDOG_SECONDS", 0.001)
    async with watch_loop():
        await asyncio.sleep(0.05)
        assert [it.name for it in threading.enumerate()].count("watchdog") == 1
    assert "hangs" not in capfd.readouterr().err


async def test_the_code_of_each_distribution_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: set[str] = set()
    monkeypatch.setattr(watchdog, "keep_code", lambda *names: kept.update(names))
    monkeypatch.setattr(bounds, "KEEP_CODE_SECONDS", 0)
    await watchdog.keep_own_code()
    assert kept == {*FOLDERS} - {"acp_check"}  # which no daemon imports


@pytest.mark.parametrize(("clients", "words"), [(0, "nobody now"), (1, "1 client")])
def test_status_never_says_nobody_of_an_agent_whose_session_is_open(
    capsys: pytest.CaptureFixture[str], clients: int, words: str
) -> None:
    program = AgentProgram(2, "scripted", os.getpid())
    live = [LiveSession("one", clients, agent=2), LiveSession("two", agent=2)]
    print_process(Process(os.getpid(), "scripted", live, programs=(program,)))
    assert f"scripted  {words} " in capsys.readouterr().out


@pytest.mark.slow
async def test_status_shows_each_editor_by_its_front_and_folder(home: Home) -> None:
    async with home.editor() as one:
        session = await one.new()
        shown = home.run("agent", "status").stdout
        here = re.escape(os.getcwd().replace(os.environ["HOME"], "~"))
        row = rf"\nscripted +\S+ in {here} +now  +[\d.]+ MiB  1 idle\n"
        assert re.search(row, shown), shown
        short = session.removeprefix("own-")[:1]
        assert re.search(rf"\n\(no title\)  own-{short}\S*  idle   1 client *\n", shown), shown
        [told] = map(json.loads, home.run("agent", "status", "--json").stdout.splitlines())
        [program], [front] = told["programs"], told["fronts"]
        assert (front["pid"], front["agent"]) == (one.process.pid, program["number"])
        assert told["since"] <= program["since"]
        assert psutil.Process(program["pid"]).ppid() == told["pid"]
        assert program["memory"] > 1_000_000
    await until(lambda: " in " not in home.run("agent", "status").stdout)


@pytest.mark.slow
async def test_status_fits_80_columns_and_puts_what_waits_first(home: Home) -> None:
    async with home.editor() as one:
        await one.talk({"say": "done"})
        session = await one.talk({"say": "done"})
        home.run("session", "rename", session, "Fix the greeting " * 9)
        await begin_question(one, session)
        with terminal(
            [sys.executable, "-m", "acphold", "status"], home.env | {"TERM": "xterm"}
        ) as it:
            it.until("Fix the greeting", "waiting", "1 question", "1 idle, 1 waiting")
            lines = [line.rstrip() for line in it.screen.display if line.strip()]
    assert lines[0].startswith("process ")
    assert [line.split()[0] for line in lines[1:4:2]] == ["AGENT", "SESSION"]
    assert lines[4].startswith("Fix the greeting")


@pytest.mark.slow
async def test_all_tasks_are_written_to_the_log_at_a_signal(home: Home) -> None:
    async with home.editor() as one:
        await one.new()
        [daemon] = home.daemons()
        os.kill(daemon, signal.SIGUSR1)
        await until(lambda: "all tasks and threads" in logs(home))
        await until(lambda: "the desk of an editor" in logs(home))
        await one.new()


async def test_the_daemon_has_no_openssl_in_memory(home: Home) -> None:
    async with home.editor() as one:
        await one.talk({"say": "hello"})
        [daemon] = home.daemons()
        loaded = {Path(each.path).name for each in psutil.Process(daemon).memory_maps()}
    assert [name for name in loaded if name.startswith("_sqlite3")]
    openssl = ("_hashlib", "_ssl", "libcrypto", "libssl")
    assert [name for name in loaded if name.startswith(openssl)] == []


@pytest.mark.slow
async def test_the_daemon_may_open_as_many_files_as_the_system_lets_it(home: Home) -> None:
    async with home.editor() as one:
        await one.new()
        [daemon] = home.daemons()
        soft, hard = resource.prlimit(daemon, resource.RLIMIT_NOFILE)
        assert soft == hard


@pytest.mark.slow
async def test_a_daemon_in_the_foreground_serves_one_editor_after_the_other_until_a_signal(
    home: Home,
) -> None:
    command = (sys.executable, "-m", "acphold", "agent", "daemon")
    daemon = await asyncio.create_subprocess_exec(*command, env=home.env, stderr=PIPE)
    try:
        assert daemon.stderr is not None
        assert b"keeping the sessions of" in await daemon.stderr.readline()
        second = await asyncio.create_subprocess_exec(*command, env=home.env, stderr=PIPE)
        _, refused = await asyncio.wait_for(second.communicate(), DEADLINE)
        assert second.returncode != 0
        assert b"another process keeps the sessions" in refused
        async with home.editor() as client:
            session = await client.talk({"say": "hello"})
        async with home.editor() as client:
            await client.load(session)
            assert client.text() == "hello"
            assert home.daemons() == []
            assert daemon.returncode is None
    finally:
        daemon.terminate()
        assert await asyncio.wait_for(daemon.wait(), DEADLINE) == 0


def test_releases_are_compared_by_their_numbers() -> None:
    assert release_parts("1.10.2") > release_parts("1.9.30.dev1") > release_parts("1.9")
    assert release_parts("unknown") == ()


@pytest.mark.slow
async def test_an_agent_that_has_a_list_of_its_own_is_told_what_a_command_changes(
    home: Home, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    can = {"loadSession": True, "sessionCapabilities": {"close": {}, "archive": {}}}
    async with home.editor(agent=scripted_agent(log=str(log), capabilities=can)) as one:
        session = await one.talk({"say": "hello"})
        await one.call("session/close", {"sessionId": session})
        assert home.run("session", "archive", session).stdout == "Archived 1 session.\n"
        await until(lambda: received(log, "session/archive"))


def test_why_no_daemon_can_start_says_beside_which_journal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told: list[str] = []
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setenv("ACPHOLD_JOURNAL", journal := str(tmp_path / "journal.db"))
    monkeypatch.setattr(daemon, "report", told.append)
    monkeypatch.setattr(daemon, "log_to_file", Mock(side_effect=full))
    assert daemon.start_daemon(str(tmp_path / "held"), None) == Exit.ERROR
    assert told == [f"failed no daemon starts beside {journal}: {full}; see `acphold doctor`"]
