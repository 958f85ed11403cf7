"""Editors start agents in the folder of a project: nothing that a stranger put there is run.

The folder of these tests has a module of every name that Python looks for, and a program of every
name that is looked for on PATH, which leads there first. Each of them would leave its name.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest

from acphold.imports import Intake
from acphold.imports.claude import READER
from acphold.journal.stores import open_journal
from acphold.machine.own_program import own_command
from tests.conftest import Defaults
from tests.editor import DEADLINE, introduced, scripted_agent
from tests.imports.claude_home import SESSION, Transcript
from tests.imports.test_intake import conversation
from tests.imports.told import sources
from tests.watched_processes import started_with, until

ACPHOLD = os.fspath(Path(sys.executable).parent / "acphold")
"""The script, which an editor starts; `python -m acphold` looks in the folder before it is ours."""

MODULES = ("acphold/__init__", "acphold/__main__", "asyncio", "json", "msgspec", "sitecustomize")
PROGRAMS = ("acphold", "agent", "env", "grep", "ps", "python3", "sh", "sleep", "ssh")


class Project:
    """A folder that a stranger filled, and the programs started in it."""

    def __init__(self, tmp_path: Path, journal: Path, run: str) -> None:
        self.folder = tmp_path / "project"
        self.home = tmp_path / "home"
        self._ran = tmp_path / "ran"
        self.home.mkdir()
        for name in MODULES:
            module = self.folder / f"{name}.py"
            module.parent.mkdir(parents=True, exist_ok=True)
            module.write_text(f"open({str(self._ran)!r}, 'a').write({name + chr(10)!r})\n")
        for name in PROGRAMS:
            program = self.folder / name if name != "acphold" else self.folder / "bin" / name
            program.parent.mkdir(exist_ok=True)
            program.write_text(f"#!/bin/sh\necho {name} >> {shlex.quote(str(self._ran))}\n")
            program.chmod(0o755)
        self.env = {
            **os.environ,
            "ACPHOLD_JOURNAL": str(journal),
            "HOME": str(self.home),
            "PATH": f":.:bin:{os.environ['PATH']}",
            "XDG_RUNTIME_DIR": run,
            "XDG_STATE_HOME": run,
        }

    def run(
        self, *words: str, stdin: str = "", folder: Path | None = None, **changed: str
    ) -> subprocess.CompletedProcess[str]:
        """Run `acphold` here."""
        return subprocess.run(
            [ACPHOLD, *words],
            cwd=folder or self.folder,
            env={**self.env, **changed},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=2 * DEADLINE,
            check=False,
        )

    @property
    def ran(self) -> list[str]:
        """The programs of the folder that were run."""
        return self._ran.read_text().split() if self._ran.exists() else []


@pytest.fixture
def project(tmp_path: Path, journal: Path) -> Iterator[Project]:
    run = tempfile.mkdtemp(prefix="acphold-")  # a short name: sockets are made in it
    yield Project(tmp_path, journal, run)
    for pid in started_with("XDG_RUNTIME_DIR", run):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    shutil.rmtree(run, ignore_errors=True)


def test_the_folder_of_these_tests_is_a_trap(project: Project) -> None:
    subprocess.run([sys.executable, "-m", "acphold"], cwd=project.folder, check=True)
    subprocess.run(["/bin/sh", "-c", "grep"], cwd=project.folder, env=project.env, check=True)
    assert {*project.ran} >= {"acphold/__main__", "grep"}


async def test_wrap_and_the_import_beside_it_run_nothing_of_the_folder(
    project: Project, journal: Path
) -> None:
    conversation().write(project.home)
    info = {"name": "@agentclientprotocol/claude-agent-acp", "version": "1"}
    command = [ACPHOLD, "wrap", "--", *scripted_agent(info=info)]
    async with introduced(command, journal=journal, env=project.env, cwd=project.folder) as one:
        await one.talk({"say": "said"})
        with closing(sqlite3.connect(f"file:{journal}?mode=ro", uri=True)) as file:
            ids = "SELECT session_id FROM sessions"
            await until(lambda: (SESSION,) in file.execute(ids).fetchall())
    assert project.ran == []


async def test_the_daemon_runs_nothing_of_the_folder(
    project: Project, journal: Path, defaults: Defaults
) -> None:
    project.env["ACPHOLD_SETTINGS"] = str(defaults(no_import=True))
    command = [ACPHOLD, "wrap", "--", *scripted_agent()]
    async with introduced(command, journal=journal, env=project.env, cwd=project.folder) as one:
        await one.talk({"say": "said"})
        assert one.text() == "said"
    stopped = await asyncio.to_thread(project.run, "agent", "stop", "--all", "--yes")
    assert stopped.stdout == "Ended scripted.\n"
    assert project.ran == []


def test_chat_runs_nothing_of_the_folder(project: Project) -> None:
    done = project.run("chat", "--", *scripted_agent(), stdin='[{"say": "said"}]\n')
    assert "said" in done.stdout
    assert project.ran == []


def test_what_starts_elsewhere_and_works_in_the_folder_runs_nothing_of_it(
    project: Project, tmp_path: Path
) -> None:
    words = ["chat", "--cwd", str(project.folder), "--", *scripted_agent()]
    libraries = f"{os.pathsep}{tmp_path / 'libraries'}"  # its first part is wherever one is
    said = '[{"say": "said"}]\n'
    done = project.run(*words, stdin=said, folder=project.home, PYTHONPATH=libraries)
    assert "said" in done.stdout
    assert project.ran == []


def test_the_processes_of_a_large_import_run_nothing_of_the_folder(project: Project) -> None:
    large = Transcript("a large one")
    for number in range(40):
        large.assistant(f"{number} " + "words " * 100_000)
    assert large.write(project.home).stat().st_size > 16 << 20
    done = project.run("import", "--from", str(project.home))
    assert "new 1" in done.stdout, done.stderr
    assert project.ran == []


async def test_reading_what_was_only_listed_runs_nothing_of_the_folder(
    project: Project, journal: Path
) -> None:
    conversation().write(project.home)
    opened = open_journal(journal)
    await Intake(opened).list_first(sources(READER, project.home))
    await opened.aclose()
    for words in (["show"], ["export"]):
        done = await asyncio.to_thread(project.run, *words, SESSION)
        assert "prompt 1" in done.stdout, done.stderr
    assert project.ran == []


@pytest.mark.parametrize("words", [("mcp",), ("mcp-bridge",), ("--version",)])
def test_what_an_agent_or_an_editor_is_given_to_start_runs_nothing_of_the_folder(
    project: Project, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in ("", f"{os.pathsep}/libraries", "."):
        monkeypatch.setenv("PYTHONPATH", path)
        subprocess.run(
            own_command(*words),
            cwd=project.folder,
            env={**project.env, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=DEADLINE,
        )
    assert project.ran == []


def test_a_program_that_only_the_folder_has_is_not_on_path(project: Project) -> None:
    done = project.run("ask", "x", "--", "agent")
    assert "PATH has it in '.' only" in done.stderr
    done = project.run("setup", "zed", "--yes", "--", "agent")
    assert "no program 'agent' on PATH" in done.stderr
    done = project.run("list", "--host", "there", PATH=":.")
    assert "cannot start 'ssh'" in done.stderr
    done = project.run("setup", "emacs", "--", "/bin/sh")
    assert str(project.folder) not in done.stdout
    assert project.ran == []


def test_the_demo_runs_nothing_of_the_folder(project: Project) -> None:
    done = project.run("demo")
    assert done.returncode == 0, done.stdout
    assert project.ran == []


async def test_what_guards_an_agent_runs_nothing_of_the_folder(
    project: Project, journal: Path, tmp_path: Path, defaults: Defaults
) -> None:
    """Its shell ends the processes that an agent left behind when acphold was killed."""
    project.env["ACPHOLD_SETTINGS"] = str(defaults(no_import=True))
    command = [ACPHOLD, "wrap", "--", *scripted_agent(deaf=True)]
    async with introduced(command, journal=journal, env=project.env, cwd=project.folder) as one:
        await one.talk({"say": "said"})
        left = psutil.Process(one.process.pid).children(recursive=True)
        await one.kill()
        await until(lambda: not any(process.is_running() for process in left))
    assert project.ran == []
