"""A session in a work tree: its work comes back from its menu, its tree goes when it is deleted."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

import acphold
from acphold.safety.snapshots.branches import NewTree, new_tree
from tests.editor import DEADLINE, scripted_agent
from tests.page.conftest import choose, opened, row_of, steps, violations
from tests.snapshots.conftest import Project, begun
from tests.web.conftest import Served, serving

pytestmark = [pytest.mark.interop, pytest.mark.asyncio(loop_scope="session")]

ADA = {"GIT_COMMITTER_NAME": "Ada", "GIT_COMMITTER_EMAIL": "ada@example.com"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    settings = folder / "settings.toml"
    settings.write_text(f"[agents.scripted]\ncommand = {json.dumps([*scripted_agent()])}\n")
    variables = {"ACPHOLD_SETTINGS": str(settings), **ADA}
    with serving(folder, agent=(), variables=variables) as found:
        yield found


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = begun(tmp_path)
    made.write("a.txt", "a\n")
    made.commit()
    return made


@pytest.fixture
def tree(project: Project) -> NewTree:
    """A work tree with a commit and a file that is not committed."""
    made = new_tree(str(project.top))
    Path(made.cwd, "a.txt").write_text("a\nb\n")
    project.git("commit", "-qam", "Add b", at=Path(made.cwd))
    Path(made.cwd, "c.txt").write_text("c\n")
    return made


@pytest.fixture
def trees(project: Project) -> list[NewTree]:
    """Two work trees; the first one has a file that is not committed."""
    made = [new_tree(str(project.top)) for _ in range(2)]
    Path(made[0].cwd, "c.txt").write_text("c\n")
    return made


@pytest_asyncio.fixture(loop_scope="session")
async def session(
    page: Page, agent: acphold.RemoteAgent, tree: NewTree
) -> AsyncIterator[acphold.RemoteSession]:
    """A session in it, on the screen."""
    made = await agent.new_session(cwd=tree.cwd)
    await made.prompt(steps({"say": "Done."}))
    await opened(page, made.id)
    yield made


@pytest.mark.parametrize("width", [360, 1440])
async def test_what_would_come_is_seen_committed_and_merged(
    page: Page, project: Project, tree: NewTree, session: acphold.RemoteSession, width: int
) -> None:
    await page.set_viewport_size({"width": width, "height": 760})
    target = project.git("branch", "--show-current").strip()
    await choose(page, "Merge…")
    dialog = page.get_by_role("dialog", name=re.compile(f"^Merged? into {target}"))
    await expect(dialog).to_contain_text(f"acphold/work → {target} in {project.top}")
    await expect(dialog).to_contain_text("Add b")
    await expect(dialog).to_contain_text(re.compile(r"a\.txt\s*\+1"))
    await expect(dialog).to_contain_text("1 file not committed")
    assert await violations(page) == []
    await dialog.get_by_role("button", name=re.compile("^Commit as ")).click()
    await expect(dialog).to_contain_text("2 commits")
    await expect(dialog).not_to_contain_text("not committed")
    assert not (project.top / "c.txt").exists()
    await dialog.get_by_role("button", name="Merge", exact=True).click()
    await expect(dialog.get_by_role("heading", name=f"Merged into {target}")).to_be_visible()
    assert (project.top / "c.txt").read_text() == "c\n"
    assert project.git("log", "-1", "--format=%an").strip() == "Ada"
    await page.get_by_role("button", name="Close").click()
    await choose(page, "Merge…")
    await expect(page.get_by_role("dialog")).to_contain_text("Nothing to merge")


async def test_a_yes_to_what_is_there_no_more_is_refused_and_shows_what_is(
    page: Page, project: Project, tree: NewTree, session: acphold.RemoteSession
) -> None:
    await choose(page, "Merge…")
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("Add b")
    project.git("commit", "-qam", "Meanwhile", "--allow-empty", at=Path(tree.cwd))
    await dialog.get_by_role("button", name="Merge", exact=True).click()
    await expect(dialog.get_by_role("alert")).to_contain_text("has changed since you saw it")
    await expect(dialog).to_contain_text("Meanwhile")
    assert (project.top / "a.txt").read_text() == "a\n"
    await dialog.get_by_role("button", name="Merge", exact=True).click()
    await expect(dialog).to_contain_text("has all of its commits now")


async def test_changes_in_the_same_files_and_conflicts_leave_it_to_the_person(
    page: Page, project: Project, tree: NewTree, session: acphold.RemoteSession
) -> None:
    project.write("a.txt", "mine\n")
    await choose(page, "Merge…")
    dialog = page.get_by_role("dialog")
    alert = dialog.get_by_role("alert")
    await expect(alert).to_contain_text("has uncommitted changes in the same files")
    await expect(dialog.get_by_role("button", name="Merge", exact=True)).to_have_count(0)
    await dialog.get_by_role("button", name="Close").click()
    project.git("commit", "-qam", "Mine")
    await choose(page, "Merge…")
    await expect(alert).to_contain_text("Git finds conflicts in 1 file")
    await expect(dialog).to_contain_text(f"git -C {project.top} merge acphold/work")
    assert await violations(page) == []


async def test_a_session_of_another_folder_has_nothing_to_merge(
    page: Page, agent: acphold.RemoteAgent, project: Project
) -> None:
    made = await agent.new_session(cwd=project.top)
    await made.prompt(steps({"say": "Done."}))
    await opened(page, made.id)
    await page.get_by_label("More").click()
    await expect(page.get_by_role("button", name="Export")).to_be_visible()
    await expect(page.get_by_role("button", name="Merge…")).to_have_count(0)


async def test_a_deleted_session_takes_its_work_tree_along_if_that_is_wanted(
    page: Page, project: Project, tree: NewTree, session: acphold.RemoteSession
) -> None:
    target = project.git("branch", "--show-current").strip()
    await choose(page, "Delete")
    dialog = page.get_by_role("dialog")
    losses = f"with 1 commit that {target} lacks and 1 uncommitted file"
    await expect(dialog).to_contain_text(f"and the branch acphold/work, {losses}")
    box = dialog.get_by_role("checkbox", name="Also delete its work tree")
    await expect(box).not_to_be_checked()
    assert await violations(page) == []
    await box.check()
    await page.clock.install()
    await dialog.get_by_role("button", name="Delete").click()
    await expect(row_of(page, session)).to_have_count(0)
    assert is_there(tree)  # it can be undone
    await page.clock.fast_forward(11_000)
    deadline = time.monotonic() + DEADLINE
    while is_there(tree) or "acphold/work" in project.git("branch"):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("width", [360, 1440])
async def test_of_several_deleted_sessions_each_work_tree_is_named_and_chosen(
    page: Page, agent: acphold.RemoteAgent, trees: list[NewTree], width: int
) -> None:
    await page.set_viewport_size({"width": width, "height": 740})
    sessions = [await agent.new_session(cwd=tree.cwd) for tree in trees]
    said = [f"Said in tree {number} at {width}." for number in range(2)]
    for made, words in zip(sessions, said, strict=True):
        await made.prompt(steps({"say": words}))
    await page.get_by_role("button", name="Select").click()
    for words in said:
        await page.locator("label.session", has_text=words).get_by_role("checkbox").check()
    await page.get_by_role("toolbar").get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog")
    named = [dialog.locator("label.check", has_text=f"{tree.cwd} and") for tree in trees]
    boxes = [each.get_by_role("checkbox") for each in named]
    await expect(named[0]).to_contain_text("and the branch acphold/work, with 1 uncommitted file")
    await expect(named[1]).not_to_contain_text("uncommitted")
    every = dialog.get_by_role("checkbox", name="Also delete 2 work trees")
    await every.check()
    for box in boxes:
        await expect(box).to_be_checked()
    await every.uncheck()
    await boxes[1].check()
    await expect(every).not_to_be_checked()
    assert await violations(page) == []
    await page.clock.install()
    await dialog.get_by_role("button", name="Delete").click()
    for made in sessions:
        await expect(row_of(page, made)).to_have_count(0)
    await page.clock.fast_forward(11_000)
    deadline = time.monotonic() + DEADLINE
    while is_there(trees[1]):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    assert is_there(trees[0])  # with its file that is nowhere else


def is_there(tree: NewTree) -> bool:
    return os.path.exists(tree.cwd)
