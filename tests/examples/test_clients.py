"""The clients of examples/: they run as they are, but for the agent's command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.editor import scripted_agent

EXAMPLES = Path(__file__).parents[2] / "examples"


def fan_out(question: str, *commands: list[str]) -> subprocess.CompletedProcess[str]:
    words = [word for command in commands for word in ("--", *command)]
    return subprocess.run(
        [sys.executable, str(EXAMPLES / "fan_out.py"), question, *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_question_goes_to_several_agents_and_one_that_fails_is_an_answer_too() -> None:
    question = json.dumps([{"say": "in settings.toml"}])
    done = fan_out(
        question,
        scripted_agent(info={"name": "one", "version": "1"}),
        scripted_agent(info={"name": "two", "version": "1"}),
        ["no-such-agent"],
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("in settings.toml") == 2
    assert "== one, " in done.stdout
    assert "== two, " in done.stdout
    assert "== no-such-agent, " in done.stdout


def test_without_an_agent_it_says_how_it_is_called() -> None:
    done = fan_out("Where?")
    assert done.returncode == 2
    assert "fan_out.py" in done.stderr


@pytest.mark.slow
def test_the_notebook_runs_from_top_to_bottom(
    journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("ACPHOLD_JOURNAL", str(journal))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    notebook = nbformat.read(EXAMPLES / "notebook.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    steps = json.dumps([{"say": "a readme"}, {"plan": ["look", "tell"]}])
    command = scripted_agent(info={"name": "mine", "version": "1"})
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell in code:
        cell.source = cell.source.replace('["gemini", "--acp"]', repr(command))
        cell.source = cell.source.replace('"What is in this folder?"', repr(steps))
    NotebookClient(notebook, timeout=60, resources={"metadata": {"path": str(tmp_path)}}).execute()
    told = [
        "".join(
            out.get("text", "") or out.get("data", {}).get("text/plain", "") for out in it.outputs
        )
        for it in code
    ]
    assert told[1] == "'mine'"
    assert "a readme" in told[2]
    assert "('Message', 'a readme')" in told[4]
    assert len(eval(told[5])) == 1  # the titles of this folder's sessions
    assert int(told[6]) > 0
