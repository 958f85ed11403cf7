"""Every code block of the first half of docs/library.md, run: a section's are one program."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import acphold
from acphold.library.agent import import_only
from acphold.testing import connect
from tests.conftest import TypeChecker
from tests.library.conftest import mcp_server

GUIDE = Path(__file__).parents[2] / "docs" / "library.md"
HALVES = GUIDE.read_text(encoding="utf-8").split("\n# Talk to an agent\n")
"""For authors of agents, and for authors of clients."""

SECTION = re.compile(r"^## (.+?)$(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TRY = re.compile(r"^<!-- try: (.+?) => (.+?) -->$", re.MULTILINE)


class Section(NamedTuple):
    """A part of the guide: its code, and its agent's answer to each prompt."""

    title: str
    code: str
    tries: list[tuple[str, str]]


def sections() -> list[Section]:
    """Those with code, in order."""
    found = []
    for title, text in SECTION.findall(HALVES[0]):
        blocks = [code for language, code in BLOCK.findall(text) if language == "python"]
        if blocks:
            found.append(Section(title, "\n".join(blocks), TRY.findall(text)))
    return found


def run(section: Section) -> dict[str, Any]:
    """The names a section's program defines."""
    names: dict[str, Any] = {"__name__": "guide"}
    with import_only():
        exec(compile(section.code, f"{GUIDE.name}: {section.title}", "exec"), names)
    return names


@pytest.mark.parametrize("section", sections(), ids=lambda section: section.title)
async def test_the_agent_of_a_section_answers_as_it_says(section: Section, tmp_path: Path) -> None:
    agent = run(section)["agent"]
    assert isinstance(agent, acphold.Agent)
    (tmp_path / "notes.txt").write_text("a weed in here\n")
    servers = [mcp_server()] if "turn.mcp" in section.code else []
    async with connect(agent) as client:
        session = await client.new_session(tmp_path, mcp_servers=servers)
        for text, answer in section.tries:
            assert (await session.prompt(text)).text.strip() == answer.strip()


@pytest.mark.parametrize("section", sections(), ids=lambda section: section.title)
async def test_the_tests_of_a_section_pass(section: Section) -> None:
    names = run(section)
    tests = [value for name, value in names.items() if name.startswith("test_")]
    assert bool(tests) == (section.title == "Test it")
    for test in tests:
        assert inspect.iscoroutinefunction(test)
        await test()


@pytest.mark.slow
def test_the_code_is_typed(tmp_path: Path, type_checker: TypeChecker) -> None:
    for place, section in enumerate(sections()):
        (tmp_path / f"guide_{place}.py").write_text(section.code)
    said, status = type_checker(tmp_path)
    assert status == 0, said


def test_the_settings_are_json() -> None:
    blocks = [code for language, code in BLOCK.findall(HALVES[0]) if language == "json"]
    assert [list(json.loads(code)) for code in blocks] == [["agent_servers"]]


def test_the_commands_run(tmp_path: Path) -> None:
    first = sections()[0]
    (tmp_path / "agent.py").write_text(first.code)
    blocks = [code for language, code in BLOCK.findall(HALVES[0]) if language == "console"]
    commands = [line.removeprefix("$ ") for code in blocks for line in code.splitlines()]
    assert commands == ["acphold agent run agent.py"]
    for command in commands:
        _, *arguments = command.split()
        done = subprocess.run(
            [sys.executable, "-m", "acphold", *arguments, "--journal", "journal.db"],
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_the_tests_run_with_the_settings_for_pytest(tmp_path: Path) -> None:
    [settings] = [code for language, code in BLOCK.findall(HALVES[0]) if language == "toml"]
    [section] = [section for section in sections() if section.title == "Test it"]
    (tmp_path / "pyproject.toml").write_text(settings)
    (tmp_path / "test_greeter.py").write_text(section.code)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "3 passed" in done.stdout) == (0, True), done.stdout


def test_every_section_has_code_that_is_tried() -> None:
    titles = [section.title for section in sections()]
    assert len(titles) == 12
    for section in sections():
        assert section.tries or "test_" in section.code
