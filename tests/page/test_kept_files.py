"""A session whose files were kept goes on from a copy with its files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

import acphold
from tests.editor import scripted_agent
from tests.page.conftest import choose, opened, steps
from tests.snapshots.conftest import Project
from tests.web.conftest import Served, serving

pytestmark = [pytest.mark.interop, pytest.mark.asyncio(loop_scope="module")]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    settings = folder / "settings.toml"
    command = json.dumps([*scripted_agent()])
    settings.write_text(f"[agents.scripted]\ncommand = {command}\nsnapshots = true\n")
    with serving(folder, agent=(), variables={"ACPHOLD_SETTINGS": str(settings)}) as found:
        yield found


async def test_a_session_is_forked_with_its_files_from_its_menu(
    page: Page, agent: acphold.RemoteAgent, tmp_path: Path
) -> None:
    (tmp_path / "work").mkdir()
    project = Project(tmp_path / "work")
    project.git("init", "-q")
    project.write("a.txt", "then")
    session = await agent.new_session(cwd=project.top)
    await session.prompt(steps({"say": "Done."}))
    await opened(page, session.id)
    original = page.url
    await choose(page, "Fork with its files")
    await page.wait_for_url(lambda url: "#/session/" in url and url != original)
    await expect(page.locator(".said", has_text="Done.")).to_be_visible()
    await expect(page.locator(".bar .name p")).to_contain_text(re.compile("project-fork"))
    assert (project.top.with_name("project-fork") / "a.txt").read_text() == "then"
