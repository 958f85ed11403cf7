"""A conversation goes to another machine, and comes back, over a real `sshd`: two homes, and all
that is in them, on this one."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.editor import scripted_agent
from tests.interop.test_shared import ACPHOLD, PROGRAMS, ssh_server
from tests.snapshots.conftest import Project

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


class Home:
    """A person's home on one of the machines, with a clone of the project."""

    def __init__(self, folder: Path, run: str, project: Project) -> None:
        self.env = {
            "HOME": str(folder),
            "PATH": f"{PROGRAMS}:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "XDG_RUNTIME_DIR": run,
        }
        self.clone = folder / "code"
        (settings := folder / ".config" / "acphold").mkdir(parents=True)
        command = json.dumps(scripted_agent())
        told = f"[agents.scripted]\ncommand = {command}\n"
        (settings / "settings.toml").write_text(told)
        project.git("clone", "-q", str(project.top), str(self.clone))

    def run(self, *words: str, say: str = "", cwd: Path | None = None, **env: str) -> str:
        """Run a command, which must succeed, and return its output; `say` is its prompt."""
        done = subprocess.run(
            [*ACPHOLD, *words],
            env={**self.env, **env},
            cwd=cwd or self.clone,
            input=json.dumps([{"say": say}]) if say else "",
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def folder_of(self, session_id: str) -> Path:
        """The folder of a session."""
        listed = map(json.loads, self.run("list", "--json").splitlines())
        return next(Path(row["cwd"]) for row in listed if row["sessionId"] == session_id)


@pytest.fixture
def homes(tmp_path: Path) -> Iterator[tuple[Home, Home]]:
    (tmp_path / "origin").mkdir()
    project = Project(tmp_path / "origin")
    project.git("init", "-q", "-b", "main")
    project.write("a.txt", "first\n")
    project.commit()
    with (
        tempfile.TemporaryDirectory(prefix="run-") as one,  # a socket's path is no long one
        tempfile.TemporaryDirectory(prefix="run-") as other,
    ):
        yield Home(tmp_path / "here", one, project), Home(tmp_path / "there", other, project)


def test_a_conversation_and_its_files_go_over_a_real_ssh_and_come_back(
    homes: tuple[Home, Home], tmp_path: Path
) -> None:
    here, there = homes
    here.run("chat", "scripted", say="said here")
    session = json.loads(here.run("list", "--json"))["sessionId"]
    (here.clone / "a.txt").write_text("changed here\n")
    here.run("continue", session, say="more")
    there.run("chat", "scripted", say="by which the clone is known")
    with ssh_server(tmp_path, there.env) as programs:
        path = f"{programs}:{here.env['PATH']}"
        went = here.run("continue", session, "--on", "there", PATH=path)
        assert f"now continues on there\n  in {tmp_path}/there/code-" in went, went
        laid = there.folder_of(session)
        assert (laid / "a.txt").read_text() == "changed here\n"
        assert "said here" in here.run("show", session)
        (laid / "a.txt").write_text("changed there\n")
        assert "said here" in there.run("continue", session, say="said there", cwd=laid)
        came = here.run("continue", "--bring-from", "there", session, PATH=path)
        moved, _, _ = came.partition(" was moved here from there\n")
        assert moved
        assert session.startswith(moved)
        assert "said there" in came
        assert (here.folder_of(session) / "a.txt").read_text() == "changed there\n"
        assert (here.clone / "a.txt").read_text() == "changed here\n"
        shown = [home.run("show", session).partition("\nyou: ")[2] for home in homes]
        # What the agent there lacks is said there alone.
        one, other = (it.partition("\nacphold: The agent")[0].rstrip() for it in shown)
        assert one == other
        # The person goes on here, and there only with a copy.
        here.run("continue", session, say="again here")
        refused = subprocess.run(
            [*ACPHOLD, "continue", session], env=there.env, capture_output=True, text=True
        )
        assert refused.returncode != 0
        assert "--from last` continues a copy here" in refused.stderr
